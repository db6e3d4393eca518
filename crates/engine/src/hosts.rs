//! Two hosts and a wire between them: each arm in two guests that start from saved states, and run
//! together in virtual time.
//!
//! `hosts/pair.rs` runs both guests, `figures.rs` and `counts.rs` make figures of a block; in the guest,
//! `netplumb_agent`'s `guest/host.rs` sends and receives what `netplumb_workload::hosts` defines. `wires.rs` loads the
//! plugin, also for two NICs of one guest; `namespaces.rs` runs the same loads in namespaces of this machine.
//! Declarations are in `netplumb_model::hosts` and its `experiment/hosts.rs`, output is in `netplumb_report::hosts`.

mod counts;
mod cpus;
pub(crate) mod figures;
mod pair;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};

use netplumb_instruments::wire;
use netplumb_lab::vm::disk;
use netplumb_lab::vm::files::Program;
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_lab::vm::machine;
use netplumb_lab::vm::process::VmError;
use netplumb_lab::vm::trial::release::Release;
use netplumb_lab::vm::trial::{self, WirePlugin};
use netplumb_model::arch::Arch;
use netplumb_model::class::Proto;
use netplumb_model::experiment::{DiskPlan, Load, buffer_of, link_of, module_options};
use netplumb_model::hosts::{self, HostLoad, HostOf, Side};
use netplumb_model::message::{HostPlan, RunPlan};
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_model::web::{WebLoad, WebPlan};

use crate::error::EngineError;
use crate::extras;
use crate::index::Index;
use crate::kernel_lines::KernelLines;
use crate::origin::{self, Boot, Origin};
use crate::plan::{GuestPlan, Plan};
use crate::run::{Options, Progress, Save, note_arch, note_machine};
use crate::schedule::{Turn, whole};
use crate::site::{self, Ended, Keeper, Site, take_up};
use cpus::Cpus;

/// How many times as many arms wait for their turn, or to be added, as run in parallel.
const AHEAD: usize = 4;
/// The fact with the hash of every frame's time.
const FRAMES_HASH: &str = "wire.frames";

/// A run of two hosts.
#[derive(Debug, Clone)]
pub struct HostsRun {
    /// The arms and their blocks.
    pub plan: Plan,
    /// What is sent, except the size of requests, which is the arm's.
    pub load: HostLoad,
    /// Whether both hosts' instructions are also counted by function.
    pub counts: bool,
}

/// Run two hosts. Results from before an error are in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_hosts(
    run: &HostsRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    // Both are of the same guests: a turn is of the first, and arms that lack either are run again.
    let names = [hosts::INSTRUMENT];
    let counted = [hosts::INSTRUMENT, INSTRUCTIONS.instrument];
    let measured = if run.counts { &counted[..] } else { &names };
    let done = take_up(recording, &run.plan.arms, measured, run.plan.blocks)?;
    recording.complete = false;
    note_machine(recording, options);
    for (key, value) in [(env::LAB, "vm"), (env::CLOCK, hosts::INSTRUMENT), (env::UNIT, "bytes")] {
        recording.environment.insert(key.into(), value.into());
    }
    // Looked up before the first boot, so that a wrong name is an error at once.
    let mut qemus = BTreeMap::new();
    let mut first = None;
    for guest in run.plan.guests() {
        let kernel = guest.kernel_in(options, progress)?;
        extras::check(&kernel, &guest, options, progress)?;
        let mut facts = BTreeMap::new();
        note_arch(&mut facts, kernel.arch);
        facts.insert(env::CPU.into(), machine::hosts_cpu(kernel.arch).into());
        if *first.get_or_insert(kernel.arch) == kernel.arch {
            recording.environment.extend(facts);
        } else {
            for arm in &guest.arms {
                recording.notes_of(*arm).facts.extend(facts.clone());
            }
        }
        qemus.insert(kernel.arch, origin::check(options, kernel.arch, false)?);
    }
    for end in (run.plan.arms.iter()).flat_map(|arm| ends_of(run, arm)) {
        let programs = extras::programs(&end.guest);
        extras::fetch(&end.guest.kernel_in(options, progress)?, programs, options, progress)?;
    }
    for (arch, qemu) in &qemus {
        let version = trial::version(qemu, options.timeout, &options.cancel);
        let version = version
            .map_err(|why| VmError::QemuMissing(trial::QemuMissing::NotQemu(qemu.clone(), why)))?;
        try_wire(*arch, qemu, &version, options)?;
        if Release::from_version(&version) == Release::Untested {
            progress(Progress::Note(format!(
                "the wire is untested in QEMU {version}; the trial of two guests passed"
            )));
        }
    }
    let all = run.plan.arms.len() as u32 * run.plan.blocks;
    let turns = whole(run.plan.arms.len(), 1, 0..run.plan.blocks);
    let turns = turns.into_iter().filter(|t| !done.contains(&(t.arm, t.by)));
    let before = done.iter().filter(|(_, by)| *by == 0).count() as u32 * run.plan.blocks;
    let shared = Shared {
        run,
        options,
        progress,
        origins: Mutex::default(),
        cpus: Cpus::for_pairs(options.jobs),
        failed: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    let index = Index::from_recording(recording);
    thread::scope(|scope| {
        let mut site = Hosts {
            scope,
            shared: &shared,
            begun: VecDeque::new(),
            number: 0,
            index,
            lines: KernelLines::default(),
        };
        let mut keeper = Keeper::new(recording, save, &options.cancel);
        site::run(&mut site, turns, &names, &mut keeper, &mut |_, over| {
            progress(Progress::Blocks(before + over, all));
        })?;
        keeper.recording.complete = true;
        keeper.keep()
    })
}

/// Try the wire in a QEMU: hosts that can't be joined would boot for nothing.
fn try_wire(arch: Arch, qemu: &Path, version: &str, options: &Options) -> Result<(), EngineError> {
    let plugin = WirePlugin { bytes: wire::PLUGIN, args: wire::trial_args };
    origin::passes(options, (qemu, version), wire::PLUGIN, || {
        trial::probe_wire(arch, qemu, &plugin).map_err(|why| no_wire(&why))
    })
}

/// Why there is no wire.
fn no_wire(why: &str) -> EngineError {
    let said = format!("netplumb: {why}");
    let refusal = wire::describe_refusal(&[said]);
    EngineError::Guest(refusal.unwrap_or_else(|| {
        format!("the wire between the hosts failed its trial: {why}; see plumb doctor")
    }))
}

/// Shared state of all arms' threads.
struct Shared<'a> {
    run: &'a HostsRun,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress) + Sync),
    /// Origins of guests, each with its plan.
    origins: Mutex<Vec<(GuestPlan, Arc<Origin>)>>,
    cpus: Cpus,
    /// The first failure, for which later arms are not begun.
    failed: Mutex<Option<EngineError>>,
    /// Whether an arm failed.
    stop: AtomicBool,
}

/// The origins of an arm's hosts, and their results.
type Over = Result<([Arc<Origin>; 2], pair::PairResult), ArmAbandoned>;

/// An arm was left: it failed, another one did, or a signal came.
struct ArmAbandoned;

/// The site: two guests for each arm; some arms run in parallel. Their results are added in the order of arms, so that
/// recordings of one plan are the same.
struct Hosts<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared<'env>,
    /// Arms whose results are not yet in the recording.
    begun: VecDeque<(Turn, Receiver<Over>)>,
    /// How many arms have begun.
    number: usize,
    /// Index of the functions that the recording has already.
    index: Index,
    lines: KernelLines,
}

impl Site for Hosts<'_, '_> {
    /// More than run in parallel, so that a short arm does not wait for a long one before it.
    fn at_once(&self) -> usize {
        AHEAD * self.shared.options.jobs
    }

    /// QEMU is killed when the thread that started it ends, so the thread stays until the turn is over.
    fn begin(&mut self, turn: Turn) {
        let (sender, receiver) = channel();
        let (shared, arm, number) = (self.shared, turn.arm, self.number);
        self.number += 1;
        self.scope.spawn(move || {
            // There is no receiver if the run has panicked.
            let _ = sender.send(shared.one(number, arm));
        });
        self.begun.push_back((turn, receiver));
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        // INVARIANT: the loop starts a turn before it waits for one.
        #[allow(clippy::expect_used)]
        let (turn, receiver) = self.begun.pop_front().expect("a turn was begun");
        // Without a sender its thread has panicked, which the scope passes on.
        let result = receiver.recv().unwrap_or(Err(ArmAbandoned));
        let added = match result {
            Ok((origins, ran)) => {
                self.add(&turn, &origins, ran, keeper.recording);
                Ok(Ended::Measured)
            }
            Err(ArmAbandoned) => Err(self.shared.cause()),
        };
        (turn, added)
    }
}

impl Hosts<'_, '_> {
    /// Add the results of an arm.
    fn add(
        &mut self,
        turn: &Turn,
        origins: &[Arc<Origin>; 2],
        ran: pair::PairResult,
        recording: &mut Recording,
    ) {
        let origins = [&*origins[0], &*origins[1]];
        let Shared { run, options, .. } = self.shared;
        let ends = ends_of(run, &run.plan.arms[turn.arm]);
        for origin in origins {
            for (key, value) in &origin.facts {
                let facts = &mut recording.environment;
                facts.entry(key.clone()).or_insert_with(|| value.clone());
            }
            extras::note(recording, turn.arm, &origin.facts);
        }
        let facts = &mut recording.notes_of(turn.arm).facts;
        facts.extend(ran.notes);
        facts.insert(FRAMES_HASH.into(), ran.frames_hash);
        // One CPU each.
        extras::idle(recording, turn.arm, (Load::Stream, 1), None);
        for (index, sides) in turn.blocks.clone().zip(&ran.blocks) {
            figures::add(recording, turn.arm, index, &ends, sides, &ran.occupied);
        }
        if let Some(counted) = &ran.counted {
            let of = counts::HostsExecuted {
                origins,
                executed: counted,
                blocks: &ran.blocks,
                layers: &options.layers,
            };
            of.add(recording, turn, &mut self.index);
            self.lines.add(recording, turn.arm as u32, &origins[0].booted(options));
        }
    }
}

impl Shared<'_> {
    /// Run both hosts of an arm.
    fn one(&self, number: usize, arm: usize) -> Over {
        let seat = self.cpus.take(number);
        self.go_on()?;
        let arms = &self.run.plan.arms;
        let ends = ends_of(self.run, &arms[arm]);
        let origins = self.prepare(&ends, arm)?;
        (self.progress)(Progress::Arm(arms[arm].name.clone()));
        let from = [&*origins[0], &*origins[1]];
        let ran = pair::run(&arms[arm], &ends, from, self.run.counts, seat.cpu, self.options);
        // Before the seat is free for the next arm.
        let ran = ran.map_err(|error| self.fail(error, arm))?;
        Ok((origins, ran))
    }

    /// Whether an arm may continue.
    fn go_on(&self) -> Result<(), ArmAbandoned> {
        match self.stop.load(Ordering::Acquire) || self.options.cancel.load(Ordering::Relaxed) {
            true => Err(ArmAbandoned),
            false => Ok(()),
        }
    }

    /// An arm has failed: the others are left.
    fn fail(&self, error: EngineError, arm: usize) -> ArmAbandoned {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| error.of_arm(arm, &self.run.plan.arms));
        self.stop.store(true, Ordering::Release);
        ArmAbandoned
    }

    /// Why arms are left.
    fn cause(&self) -> EngineError {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        // Without one it was a signal, or a thread has panicked, which the scope passes on.
        failed.take().unwrap_or_else(|| VmError::Interrupted.into())
    }

    /// The first arm with the same origin as this one, whichever of them was first to have it made.
    fn first_of(&self, end: &End) -> usize {
        let arms = self.run.plan.arms.iter();
        let starts_there = |arm: &Arm| {
            let mut ends = ends_of(self.run, arm).into_iter();
            ends.any(|other| other.starts_as(end))
        };
        arms.take_while(|arm| !starts_there(arm)).count()
    }

    /// Find or make the saved states of both hosts; two boot at the same time, and other arms wait for them.
    fn prepare(&self, ends: &[End; 2], arm: usize) -> Result<[Arc<Origin>; 2], ArmAbandoned> {
        let mut known = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        // A guest that did not boot for another arm is not tried again.
        self.go_on()?;
        let missing: Vec<&End> =
            (ends.iter()).filter(|end| origin_of(&known, end).is_err()).collect();
        let made = thread::scope(|scope| {
            let threads: Vec<_> = (missing.iter())
                .map(|end| {
                    let (options, progress) = (self.options, self.progress);
                    let kernel = end.guest.kernel_in(self.options, self.progress);
                    scope.spawn(move || -> Result<Origin, EngineError> {
                        let kernel: KernelEntry = kernel?;
                        let boot = Boot { guest: &end.guest, kernel: &kernel, options };
                        boot.origin(&end.links, &|event| progress(event))
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        for (end, origin) in missing.into_iter().zip(made) {
            let origin = origin.map_err(|error| self.fail(error, self.first_of(end)))?;
            known.push((end.guest.clone(), Arc::new(origin)));
        }
        let of = |end| origin_of(&known, end).map_err(|error| self.fail(error, arm));
        Ok([of(&ends[0])?, of(&ends[1])?])
    }
}

/// Where the guest of a host starts from.
fn origin_of(origins: &[(GuestPlan, Arc<Origin>)], end: &End) -> Result<Arc<Origin>, EngineError> {
    let known = |(guest, origin): &&(GuestPlan, Arc<Origin>)| {
        *guest == end.guest && origin.is_for(&end.links)
    };
    let found = origins.iter().find(known).map(|(_, origin)| origin);
    found.cloned().ok_or(EngineError::OtherPlan("other arms"))
}

/// Both hosts of an arm.
fn ends_of(run: &HostsRun, arm: &Arm) -> [End; 2] {
    [Side::Tx, Side::Rx].map(|side| End::new(run, arm, side))
}

/// One of the two hosts of an arm.
struct End {
    side: Side,
    guest: GuestPlan,
    links: RunPlan,
    plan: HostPlan,
}

impl End {
    fn new(run: &HostsRun, arm: &Arm, side: Side) -> End {
        let one = Plan { arms: vec![arm.clone()], ..run.plan.clone() };
        let is_web = matches!(run.load, HostLoad::Web(_)) && side == Side::Tx;
        let server = is_web.then(|| WebPlan::from_arm(arm));
        let disk = server.as_ref().and_then(|server| server.disk.as_ref());
        // One arm is one guest.
        let guest = one.guests().remove(0);
        let guest = GuestPlan {
            host: Some(HostOf {
                side,
                icount_shift: arm.read(shift_of(side)).unwrap_or(0),
                throttles: arm.level("throttle") != Some("off"),
            }),
            link: link_of(arm, side),
            programs: server.iter().flat_map(programs_of).collect(),
            more_modules: disk.map_or_else(Vec::new, DiskPlan::modules),
            module_options: options_of(arm, side, disk),
            // Arms that differ in what a guest can change share a state.
            arms: Vec::new(),
            ..guest
        };
        let mut links =
            RunPlan { host: Some(side), link: link_of(arm, side), ..run.plan.run_plan(arm) };
        let within = arm.level("offload_in").unwrap_or("both");
        if within != "both" && within != side.as_str() {
            links.offload.clear();
        }
        let plan = HostPlan {
            links: links.clone(),
            load: load_of(run.load, arm),
            buffer_bytes: buffer_of(arm, side),
            blocks: run.plan.blocks,
            web: server,
        };
        End { side, guest, links, plan }
    }

    /// Whether it starts from the state of another.
    fn starts_as(&self, other: &End) -> bool {
        let of = |end: &End| origin::preparation(&end.links);
        self.guest == other.guest && of(self) == of(other)
    }

    fn icount_shift(&self) -> u8 {
        self.guest.host.map_or(0, |host| host.icount_shift)
    }
}

/// The load of an arm's hosts: the size of requests and the seed are its own.
pub(crate) fn load_of(load: HostLoad, arm: &Arm) -> HostLoad {
    match load {
        HostLoad::Request { turns, .. } | HostLoad::Echo { turns, .. } => {
            let size_bytes = arm.size_bytes;
            match arm.proto {
                Proto::Raw => HostLoad::Echo { turns, size_bytes },
                _ => HostLoad::Request { turns, size_bytes },
            }
        }
        HostLoad::Web(load) => {
            HostLoad::Web(WebLoad { seed: arm.read("seed").unwrap_or(load.seed), ..load })
        }
        stream @ HostLoad::Stream { .. } => stream,
    }
}

/// The programs that a web server needs.
fn programs_of(server: &WebPlan) -> impl Iterator<Item = Program> {
    let file_system = (server.disk.as_ref()).map(|plan| plan.disk.file_system);
    std::iter::once(Program::Nginx).chain(file_system.map(Program::Mkfs))
}

/// The options of a host's modules, among them its disk's.
fn options_of(arm: &Arm, side: Side, disk: Option<&DiskPlan>) -> BTreeMap<String, String> {
    let mut options = module_options(arm, Some(side));
    if let Some(plan) = disk {
        let module = plan.disk.device.module().to_string();
        let own = options.entry(module).or_default();
        *own = format!("{} {own}", disk::parameters(&plan.disk));
    }
    options
}

fn shift_of(side: Side) -> &'static str {
    match side {
        Side::Tx => "tx_shift",
        Side::Rx => "rx_shift",
    }
}
