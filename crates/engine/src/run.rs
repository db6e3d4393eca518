//! An experiment under the `exact` instrument, from first boot to last block.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use netplumb_instruments::exact::{
    self, Accountant, Losses, StreamError, StreamReader, TreeNode, Window,
};
use netplumb_kernel::config::KernelConfig;
use netplumb_kernel::kallsyms::{KallsymsError, SymbolTable};
use netplumb_kernel::layers::LayerRules;
use netplumb_kernel::modules::ModuleError;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::channel::send as channel_send;
use netplumb_lab::vm::initramfs::{self, Module};
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore, KernelStoreError};
use netplumb_lab::vm::machine::{self, Machine};
use netplumb_lab::vm::process::{self, Cancel, Extra, Guest, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::recording::{Ledger, Loss, Recording, env};

use crate::collect::{Index, Translation};
use crate::extras;
use crate::guest::config_facts;
use crate::plan::{GuestPlan, Plan};

/// This program, which is its guests' init as well.
pub const OWN_BINARY: &str = "/proc/self/exe";

/// How to run, apart from what.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where kernels are kept.
    pub cache: PathBuf,
    /// The program that is init in a guest: [`OWN_BINARY`], but for tests.
    pub init: PathBuf,
    /// Without an instruction clock.
    pub quick: bool,
    /// How long a boot or an arm may take.
    pub timeout: Duration,
    /// The rules for layers.
    pub layers: LayerRules,
    /// Set to stop.
    pub cancel: Cancel,
}

/// What happens, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A guest boots: which of how many, and its kernel.
    Booting {
        /// From 1.
        guest: usize,
        /// All.
        guests: usize,
        /// Release of its kernel.
        kernel: String,
    },
    /// Its agent is ready.
    Ready {
        /// Since QEMU was started.
        after: Duration,
    },
    /// An arm begins: its name.
    Arm(String),
    /// Blocks that are done, over all arms, and how many there are to be.
    Blocks(u32, u32),
}

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel's catalogue.
    #[error(transparent)]
    Kernel(#[from] KernelStoreError),
    /// A module.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The guest.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A file that a knob needs.
    #[error(transparent)]
    Files(#[from] netplumb_lab::vm::files::FilesError),
    /// QEMU will not have the plugin.
    #[error("{0}")]
    Plugin(String),
    /// The guest's symbols.
    #[error("the guest's symbols: {0}")]
    Symbols(#[from] KallsymsError),
    /// The plugin's stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream ended before the windows did.
    #[error("the plugin told of {got} of {wanted} blocks: the guest's markers were not seen")]
    WindowsMissing {
        /// Windows that came.
        got: usize,
        /// Blocks that ran.
        wanted: usize,
    },
    /// What was measured can't be kept.
    #[error("{0}")]
    Save(String),
    /// A system call of ours failed.
    #[error("can't {what}: {source}")]
    Host {
        /// What we were to do.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// Takes the recording as it grows, to keep what is there already.
pub type Save<'a> = &'a mut dyn FnMut(&Recording) -> Result<(), String>;

/// Run a plan. What was measured before an error is in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run(
    plan: &Plan,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    let store = KernelStore::new(&options.cache);
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    let version = trial::version(&qemu).unwrap_or_else(|_| "unknown".into());
    let plan = &crate::scan::planned(plan, &store, options, &qemu, recording, progress)?;
    recording.arms = plan.arms.clone();
    let mut fact = |key: &str, value: String| recording.environment.insert(key.into(), value);
    fact(env::CLOCK, "exact".into());
    fact(env::UNIT, "instructions".into());
    fact(env::QUICK, if options.quick { "yes" } else { "no" }.into());
    fact(env::QEMU, version);
    fact(env::CPU, machine::CPU.into());
    fact(env::REP, machine::REP_NOTE.into());
    fact("vm.memory_mib", machine::MEMORY_MIB.to_string());

    let guests = plan.guests();
    // Found before the first boot: a wrong name is told at once.
    let kernels: Vec<KernelEntry> = guests
        .iter()
        .map(|g| store.find(&g.kernel))
        .collect::<Result<_, _>>()?;
    save(recording).map_err(EngineError::Save)?;
    let mut index = Index::default();
    for (number, (guest, kernel)) in guests.iter().zip(&kernels).enumerate() {
        progress(Progress::Booting {
            guest: number + 1,
            guests: guests.len(),
            kernel: kernel.release.clone(),
        });
        let job = Job {
            plan,
            guest,
            kernel,
            options,
            qemu: &qemu,
            first: number == 0,
        };
        job.run(recording, &mut index, save, progress)?;
    }
    recording.complete = true;
    save(recording).map_err(EngineError::Save)
}

/// One boot, and all that it takes.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) guest: &'a GuestPlan,
    pub(crate) kernel: &'a KernelEntry,
    pub(crate) options: &'a Options,
    pub(crate) qemu: &'a Path,
    pub(crate) first: bool,
}

/// What the reader of the stream tells the one who runs the guest.
struct Told {
    window: Window,
    new_nodes: Vec<TreeNode>,
    losses: Losses,
}

impl Job<'_> {
    pub(crate) fn machine(&self) -> Machine {
        Machine {
            qemu: self.qemu.to_path_buf(),
            kernel: self.kernel.boot_image(),
            link: self.guest.link,
            forward: self.guest.forward,
            icount: !self.options.quick,
            mitigations: self.guest.mitigations,
            cmdline: self.guest.cmdline.clone(),
            seed: self.guest.seed,
        }
    }

    /// One plan for each protocol over each topology: what is to be drawn at random
    /// for an arm is drawn for all that are like it.
    fn plans(&self) -> Vec<RunPlan> {
        /// Enough to get past what the kernel does for first packets.
        const PACKETS: u32 = 20;
        let mut plans: Vec<RunPlan> = Vec::new();
        for &arm in &self.guest.arms {
            let plan = RunPlan {
                size_bytes: 10,
                packets: 0,
                warmup_packets: PACKETS,
                blocks: 0,
                ..self.plan.run_plan(&self.plan.arms[arm])
            };
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        plans
    }

    pub(crate) fn initramfs(&self, machine: &Machine) -> Result<Vec<u8>, EngineError> {
        let host = |what| move |source| EngineError::Host { what, source };
        let init = std::fs::read(&self.options.init).map_err(host("read our own binary"))?;
        let tree = extras::module_tree(self.kernel, self.guest)?;
        let more = extras::modules(self.guest, &tree);
        let needed = tree.resolve(&[machine.link_modules(), more.clone()].concat())?;
        // A kernel without a driver for the agent's port has its serial one.
        let modules = tree
            .resolve(&[machine.modules(), more].concat())
            .unwrap_or_else(|_| needed.clone())
            .into_iter()
            .map(|m| {
                Ok(Module {
                    bytes: m.read()?,
                    required: m.required && needed.contains(&m),
                    name: m.name,
                })
            })
            .collect::<Result<Vec<_>, ModuleError>>()?;
        let mut requests = Vec::new();
        channel_send(&mut requests, &Request::Prepare(self.plans()))
            .and_then(|()| initramfs::build(&init, &modules, &requests))
            .map_err(host("build the initramfs"))
            .and_then(|archive| Ok([archive, extras::archive(self.guest)?].concat()))
    }

    fn run(
        &self,
        recording: &mut Recording,
        index: &mut Index,
        save: Save<'_>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), EngineError> {
        let machine = self.machine();
        let initramfs = self.initramfs(&machine)?;
        let host = |what| move |source| EngineError::Host { what, source };
        let plugin =
            process::memfd("netplumb-plugin", exact::PLUGIN).map_err(host("hold the plugin"))?;
        let (stream, stream_end) = pipe().map_err(host("make a pipe"))?;
        let extra = Extra {
            args: exact::qemu_args(plugin.as_raw_fd(), stream_end.as_raw_fd()),
            fds: vec![plugin, stream_end],
        };
        let started = std::time::Instant::now();
        let cancel = self.options.cancel.clone();
        let mut guest = Guest::start(&machine, &initramfs, extra, cancel)?;
        drop(initramfs);
        guest
            .wait_ready(self.options.timeout)
            .map_err(plugin_refused)?;
        progress(Progress::Ready {
            after: started.elapsed(),
        });
        self.describe(&mut guest, recording)?;
        let kallsyms = guest.read_file("/proc/kallsyms", self.options.timeout)?;
        let symbols = SymbolTable::parse(&kallsyms)?;
        drop(kallsyms);
        let rules = PathRules::built_in();

        // The guest is moved into the scope: when that is left, whatever for, it
        // is killed, its end of the pipe is closed, and the reader ends.
        thread::scope(|scope| {
            let mut guest = guest;
            let (sender, told) = channel();
            let (symbols, rules) = (&symbols, &rules);
            let done = recording.blocks.len() as u32;
            let total = self.plan.blocks * self.plan.arms.len() as u32;
            let reader = scope.spawn(move || {
                follow(stream, symbols, rules, &sender, &|n| {
                    progress(Progress::Blocks(done + n, total));
                })
            });
            let outcome = self.arms(&mut guest, recording, index, symbols, &told, save, progress);
            drop(guest);
            let read = reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A stream that broke explains windows that are missing.
            match (outcome, read) {
                (Err(EngineError::WindowsMissing { .. }), Err(stream)) => Err(stream.into()),
                (outcome, _) => outcome,
            }
        })
    }

    /// The facts of this guest. Those of later guests are told by their arms.
    fn describe(&self, guest: &mut Guest, recording: &mut Recording) -> Result<(), EngineError> {
        if !self.options.quick {
            recording.environment.insert(
                format!("vm.icount_shift.{}", self.guest.link),
                machine::icount_shift(self.guest.link).to_string(),
            );
        }
        if !self.first {
            let mut told = std::collections::BTreeMap::new();
            guest.ask(&Request::Describe, self.options.timeout, |reply| {
                if let Reply::Facts(facts) = reply {
                    told.extend(facts);
                }
                Ok(())
            })?;
            for &arm in &self.guest.arms {
                extras::note(recording, arm, &told);
            }
            return Ok(());
        }
        let environment = &mut recording.environment;
        guest.ask(&Request::Describe, self.options.timeout, |reply| {
            if let Reply::Facts(facts) = reply {
                environment.extend(facts);
            }
            Ok(())
        })?;
        let config = self
            .kernel
            .config()
            .and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(config) = config.and_then(|text| KernelConfig::parse(&text).ok()) {
            environment.extend(config_facts(&config));
        }
        environment.insert(env::KERNEL_HASH.into(), self.kernel.hash.clone());
        let mitigations = if self.guest.mitigations { "on" } else { "off" };
        environment.insert(env::MITIGATIONS.into(), mitigations.into());
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn arms(
        &self,
        guest: &mut Guest,
        recording: &mut Recording,
        index: &mut Index,
        symbols: &SymbolTable,
        told: &Receiver<Told>,
        save: Save<'_>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), EngineError> {
        let mut losses = Losses::default();
        let outcome = self.each_arm(
            guest,
            recording,
            index,
            symbols,
            told,
            &mut losses,
            save,
            progress,
        );
        add_losses(recording, &losses);
        if let Some(bytes) = guest.peak_memory_bytes() {
            let key = "vm.qemu_peak_bytes";
            let before = recording
                .environment
                .get(key)
                .and_then(|v| v.parse().ok())
                .unwrap_or(0);
            recording
                .environment
                .insert(key.into(), bytes.max(before).to_string());
        }
        if outcome.is_err() && !recording.blocks.is_empty() {
            // The error that there is goes before one of keeping what was measured.
            let _ = save(recording);
        }
        outcome
    }

    #[allow(clippy::too_many_arguments)]
    fn each_arm(
        &self,
        guest: &mut Guest,
        recording: &mut Recording,
        index: &mut Index,
        symbols: &SymbolTable,
        told: &Receiver<Told>,
        losses: &mut Losses,
        save: Save<'_>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), EngineError> {
        let mut translation = Translation::default();
        for &arm in &self.guest.arms {
            progress(Progress::Arm(self.plan.arms[arm].name.clone()));
            let request = Request::Run(RunPlan {
                aligned: !self.options.quick,
                ..self.plan.run_plan(&self.plan.arms[arm])
            });
            let mut ledgers: Vec<Ledger> = Vec::new();
            let answered = guest.ask(&request, self.options.timeout, |reply| {
                match reply {
                    Reply::BlockDone { ledger, .. } => ledgers.push(ledger),
                    Reply::Facts(facts) => extras::note(recording, arm, &facts),
                    _ => {}
                }
                Ok(())
            });
            let wanted = ledgers.len();
            let mut n = 0;
            let mut add = |told: Told, ledger| {
                translation.add_nodes(
                    recording,
                    index,
                    symbols,
                    &self.options.layers,
                    &told.new_nodes,
                );
                translation.add_block(recording, arm as u32, n, &told.window, ledger);
                *losses = told.losses;
                n += 1;
            };
            for (got, ledger) in ledgers.into_iter().enumerate() {
                // The plugin writes before the guest goes on: it is on its way.
                let told = told
                    .recv_timeout(self.options.timeout)
                    .map_err(|_| EngineError::WindowsMissing { got, wanted })?;
                add(told, ledger);
            }
            match answered {
                Ok(()) => {}
                // In a scan, that a setting breaks the path is a finding.
                Err(error @ VmError::CommandFailed { .. }) if self.plan.scan.is_some() => {
                    extras::failed(recording, arm, &error.into());
                }
                // The agent has told of the blocks before the one that failed.
                Err(error @ VmError::CommandFailed { .. }) => return Err(error.into()),
                Err(error) => {
                    // It can't any more, but the plugin has: whole windows they are.
                    while let Ok(told) = told.try_recv() {
                        add(told, untold_ledger(self.plan.packets));
                    }
                    return Err(error.into());
                }
            }
            save(recording).map_err(EngineError::Save)?;
        }
        Ok(())
    }
}

/// The ledger of a block whose guest did not live to tell it.
fn untold_ledger(packets: u32) -> Ledger {
    let packets = u64::from(packets);
    Ledger {
        offered: packets,
        delivered: 0,
        dropped: [("not known: the run was cut short".to_string(), packets)].into(),
    }
}

fn add_losses(recording: &mut Recording, losses: &Losses) {
    for (cause, count, meaning) in [
        (
            "returns without a call",
            losses.unmatched_returns,
            "the stack below was taken as new: inclusive costs of what was on it end there",
        ),
        (
            "calls without an address",
            losses.calls_without_address,
            "the function called was taken as jumped to",
        ),
        (
            "stack addresses outside of the kernel",
            losses.bad_addresses,
            "the calls were taken as jumps",
        ),
        (
            "instructions without a symbol",
            losses.insns_without_symbol,
            "they are in [unknown]: compiled BPF, or a module loaded late",
        ),
        (
            "stacks given up",
            losses.stacks_given_up,
            "deeper than a kernel stack can be: inclusive costs end there",
        ),
    ] {
        if count == 0 {
            continue;
        }
        match recording.losses.iter_mut().find(|l| l.cause == cause) {
            Some(loss) => loss.count += count,
            None => recording.losses.push(Loss {
                cause: cause.into(),
                count,
                meaning: meaning.into(),
            }),
        }
    }
}

fn follow(
    stream: File,
    symbols: &SymbolTable,
    rules: &PathRules,
    sender: &Sender<Told>,
    done: &dyn Fn(u32),
) -> Result<(), StreamError> {
    let mut reader = StreamReader::new(stream);
    let mut accountant = Accountant::new(symbols, rules);
    let mut nodes_told = 0;
    let mut windows = 0;
    while let Some(record) = reader.next()? {
        let Some(window) = accountant.take(record) else {
            continue;
        };
        windows += 1;
        done(windows);
        let nodes = accountant.tree().nodes();
        let new_nodes = nodes[nodes_told..].to_vec();
        nodes_told = nodes.len();
        // Nobody listens any more: keep reading, or the guest would block.
        let _ = sender.send(Told {
            window,
            new_nodes,
            losses: accountant.losses(),
        });
    }
    Ok(())
}

/// QEMU's refusal of the plugin, in words of our own.
fn plugin_refused(error: VmError) -> EngineError {
    if let VmError::QemuFailed { stderr, .. } = &error
        && let Some(why) = exact::describe_refusal(stderr)
    {
        return EngineError::Plugin(format!("{why}\n  QEMU said: {}", stderr.join(" ")));
    }
    error.into()
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // As large as an ordinary user may have it; a smaller one only waits more.
    // SAFETY: a descriptor of ours and a number.
    unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
    Ok((File::from(read), write))
}
