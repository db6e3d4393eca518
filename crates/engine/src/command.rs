//! A command under the `exact` instrument: from its files to its costs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;

use netplumb_instruments::exact::{
    self, Accountant, Images, Losses, StreamError, StreamReader, TreeNode, UserCode, UserSymbol,
    Window,
};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::bundle::Bundle;
use netplumb_lab::vm::bulk;
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::machine;
use netplumb_lab::vm::process::{self, Extra, Guest, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::message::{CommandEnd, CommandPlan, Output, Reply, Request};
use netplumb_model::recording::{Arm, Ledger, Loss, Recording};

use crate::collect::{Index, Translation};
use crate::debug_info::{self, Ran};
use crate::error::EngineError;
use crate::measure::pipe;
use crate::origin::Boot;
use crate::plan::Plan;
use crate::run::{Options, Progress, Save, add_losses, note_machine};

/// The name of the code that the kernel lends to processes.
const VDSO: &str = "[vdso]";
/// How long a command that is told to end may take to.
const GRACE: std::time::Duration = std::time::Duration::from_secs(20);
/// Where standard input is in the guest.
const STDIN: &str = "/run/stdin";
/// Where modules are put for the guest to load.
const MODULES: &str = "/run/modules";

/// A command, with all that it takes along.
#[derive(Debug)]
pub struct CommandRun {
    /// A name that the catalogue of kernels knows.
    pub kernel: String,
    /// CPU vulnerability mitigations.
    pub mitigations: bool,
    /// More words for the kernel.
    pub cmdline: String,
    /// What joins the two ends.
    pub link: Link,
    /// Version of IP of the addresses of the two ends.
    pub family: Family,
    /// A router between them.
    pub forward: bool,
    /// Settings below /proc/sys, in every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Path of the program in the guest.
    pub program: PathBuf,
    /// The command's words.
    pub words: Vec<String>,
    /// The peer's path and words.
    pub peer: Option<(PathBuf, Vec<String>)>,
    /// The folder that both run in.
    pub folder: PathBuf,
    /// What standard input holds, if it is not /dev/null.
    pub stdin: Option<Vec<u8>>,
    /// The files.
    pub bundle: Bundle,
    /// The kernel's modules that it needs; those that there are not are left out.
    pub modules: Vec<String>,
    /// Repetitions.
    pub blocks: u32,
    /// Bytes of output that are kept, of each stream.
    pub output_bytes: u64,
}

/// Measure a command. What it says is handed to `output`; how its blocks ended is
/// returned.
///
/// # Errors
/// See [`EngineError`]. What was measured before is in the recording.
pub fn run_command(
    run: &CommandRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
    output: &mut dyn FnMut(Output, &[u8]),
) -> Result<Vec<CommandEnd>, EngineError> {
    let arm = run.arm();
    let plan = Plan {
        arms: vec![arm.clone()],
        packets: 0,
        warmup_packets: 0,
        blocks: run.blocks,
        scan: None,
    };
    recording.arms = plan.arms.clone();
    recording.complete = false;
    note_machine(recording, options);
    let mut fact = |key: &str, value: String| recording.environment.insert(key.into(), value);
    fact("command.words", run.words.join(" "));
    if !options.quick {
        fact(
            &format!("vm.icount_shift.{}", run.link),
            machine::icount_shift(run.link).to_string(),
        );
    }
    let store = KernelStore::new(&options.cache);
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    let kernel = store.find(&run.kernel)?;
    let guests = plan.guests();
    let Some(guest) = guests.first() else {
        return Ok(Vec::new());
    };
    save(recording).map_err(EngineError::Save)?;
    let (modules, mut made) = modules(&kernel.module_tree()?, &run.modules)?;
    if let Some(bytes) = &run.stdin {
        made.push((STDIN.into(), 0o600, bytes.clone()));
    }
    let boot = Boot {
        guest,
        kernel: &kernel,
        options,
        qemu: &qemu,
    };
    let links = plan.run_plan(&arm);
    let origin = boot.origin(&links, &|event| progress(event))?;
    // Loaded late, they are in no table that was saved.
    let symbols = origin.symbols.clone().filter(|_| modules.is_empty());
    let mut requests = vec![Request::Unpack { modules }, Request::ReadVdso];
    if symbols.is_none() {
        requests.push(Request::ReadFile("/proc/kallsyms".into()));
    }
    if origin.symbols.is_none() {
        requests.push(Request::Describe);
    }
    // The kernel itself does not move: an address of another boot will do.
    let watch = match &origin.symbols {
        Some(symbols) => watched(symbols),
        None => None,
    };
    requests.push(Request::Command(CommandPlan {
        links,
        program: run.program.to_string_lossy().into_owned(),
        words: run.words.clone(),
        peer: run
            .peer
            .as_ref()
            .map(|(path, words)| (path.to_string_lossy().into_owned(), words.clone())),
        folder: run.folder.to_string_lossy().into_owned(),
        stdin: run.stdin.as_ref().map(|_| STDIN.into()),
        blocks: run.blocks,
        output_bytes: run.output_bytes,
        watch,
    }));

    let host = EngineError::host;
    let archive = bulk::archive(&run.bundle, &made)?;
    let archive = process::memfd("netplumb-files", &archive).map_err(host("hold the files"))?;
    let plugin =
        process::memfd("netplumb-plugin", exact::PLUGIN).map_err(host("hold the plugin"))?;
    let (stream, stream_end) = pipe().map_err(host("make a pipe"))?;
    let mut args = exact::qemu_args(plugin.as_raw_fd(), stream_end.as_raw_fd());
    args.extend(bulk::qemu_args(archive.as_raw_fd()));
    let extra = Extra {
        args,
        fds: vec![plugin, stream_end, archive],
    };
    recording.environment.extend(origin.facts.clone());
    let guest = origin.start(&requests, extra, options)?;
    progress(Progress::Arm(arm.name.clone()));
    let (mut images, paths) = debug_info::images(&run.bundle);

    let mut ends = Vec::new();
    let (outcome, told, late) = thread::scope(|scope| {
        let mut guest = guest;
        let (ready, begin) = channel::<(SymbolTable, Images)>();
        let known = symbols.as_deref();
        let blocks = run.blocks;
        let reader = scope.spawn(move || {
            // Not ready, and never will be: the guest ended first.
            let Ok((late, images)) = begin.recv() else {
                return (Told::default(), None);
            };
            let symbols = known.unwrap_or(&late);
            let told = follow(stream, symbols, images, &|n| {
                progress(Progress::Blocks(n.min(blocks), blocks));
            });
            (told, known.is_none().then_some(late))
        });
        let outcome = (|| -> Result<(), EngineError> {
            guest.go_on()?;
            guest.answers(options.timeout, |_| Ok(()))?;
            let vdso = chunks(&mut guest, options)?;
            // Without it its code is in no file; it is not much.
            let _ = images.add(VDSO, &vdso, None);
            let late = match known {
                Some(_) => SymbolTable::default(),
                None => SymbolTable::parse(&chunks(&mut guest, options)?)?,
            };
            if origin.symbols.is_none() {
                let facts = &mut recording.environment;
                guest.answers(options.timeout, |reply| {
                    if let Reply::Facts(told) = reply {
                        facts.extend(told);
                    }
                    Ok(())
                })?;
            }
            let _ = ready.send((late, std::mem::take(&mut images)));
            let mut each = |reply| {
                match reply {
                    Reply::Output(from, bytes) => output(from, &bytes),
                    Reply::Ended(end) => ends.push(end),
                    _ => {}
                }
                Ok(())
            };
            match guest.answers(options.timeout, &mut each) {
                // Its time is over: what it did and said until now is worth having.
                Err(VmError::Timeout { .. }) => {
                    guest.ask(&Request::Stop, GRACE, &mut each)?;
                }
                other => other?,
            }
            Ok(())
        })();
        let peak = guest.peak_memory_bytes().unwrap_or(0);
        recording
            .environment
            .insert("vm.qemu_peak_bytes".into(), peak.to_string());
        drop((guest, ready));
        let (told, late) = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (outcome, told, late)
    });

    if let Some(symbols) = symbols.as_deref().or(late.as_ref()) {
        let mut index = Index::of(recording);
        let mut translation = Translation::default();
        let user_symbols = told.user_symbols;
        translation.set_user(user_symbols.clone());
        translation.add_nodes(recording, &mut index, symbols, &options.layers, &told.nodes);
        for (number, window) in (0..).zip(&told.windows) {
            translation.add_block(recording, 0, number, window, one_run());
        }
        let ran = Ran {
            symbols: &user_symbols,
            code: &told.code,
            windows: &told.windows,
        };
        debug_info::add_lines(
            recording,
            &translation,
            &ran,
            &run.bundle,
            &paths,
            &options.cancel,
        );
    }
    add_losses(recording, &told.losses);
    add_command_losses(recording, &told.losses, &ends);
    let (got, wanted) = (told.windows.len(), ends.len());
    let outcome = match (outcome, told.error) {
        (Ok(()), _) if got >= wanted => Ok(()),
        (Ok(()), Some(stream)) => Err(stream.into()),
        (Ok(()), None) => Err(EngineError::WindowsMissing { got, wanted }),
        (outcome, _) => outcome,
    };
    recording.complete = outcome.is_ok() && !ends.iter().any(|e| e.stopped);
    if !recording.blocks.is_empty() {
        let saved = save(recording).map_err(EngineError::Save);
        outcome?;
        saved?;
    } else {
        outcome?;
    }
    Ok(ends)
}

impl CommandRun {
    /// What is compared with others: one arm.
    fn arm(&self) -> Arm {
        let mut knobs = BTreeMap::from([
            ("kernel".to_string(), self.kernel.clone()),
            (
                "mitigations".to_string(),
                if self.mitigations { "on" } else { "off" }.to_string(),
            ),
        ]);
        if !self.cmdline.is_empty() {
            knobs.insert("cmdline".into(), self.cmdline.clone());
        }
        if let Some((_, words)) = &self.peer {
            knobs.insert("peer".into(), words.join(" "));
        }
        for (key, value) in &self.sysctl {
            knobs.insert(format!("sysctl.{key}"), value.clone());
        }
        Arm {
            name: self.words.join(" "),
            proto: Proto::Command,
            family: self.family,
            link: self.link,
            forward: self.forward,
            size_bytes: 0,
            knobs,
        }
    }
}

/// A command's ledger: it was run.
fn one_run() -> Ledger {
    Ledger {
        offered: 1,
        delivered: 1,
        ..Ledger::default()
    }
}

/// What the plugin told.
#[derive(Default)]
struct Told {
    windows: Vec<Window>,
    nodes: Vec<TreeNode>,
    user_symbols: Vec<UserSymbol>,
    /// The blocks that windows name.
    code: BTreeMap<u32, UserCode>,
    losses: Losses,
    error: Option<StreamError>,
}

fn follow(stream: File, symbols: &SymbolTable, images: Images, done: &dyn Fn(u32)) -> Told {
    let rules = PathRules::built_in();
    let mut reader = StreamReader::new(stream);
    let mut accountant = Accountant::of_command(symbols, &rules, images);
    let mut told = Told::default();
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                if let Some(window) = accountant.take(record) {
                    told.windows.push(window);
                    done(told.windows.len() as u32);
                }
            }
            Ok(None) => break,
            Err(error) => {
                told.error = Some(error);
                break;
            }
        }
    }
    told.windows.extend(accountant.finish());
    for ran in told.windows.iter().flat_map(|w| &w.user_code) {
        if let Entry::Vacant(entry) = told.code.entry(ran.block) {
            entry.insert(accountant.user_code(ran.block).unwrap_or_default());
        }
    }
    told.nodes = accountant.tree().nodes().to_vec();
    told.user_symbols = accountant.user_symbols().to_vec();
    told.losses = accountant.losses();
    told
}

/// The answer to a request, of chunks.
fn chunks(guest: &mut Guest, options: &Options) -> Result<Vec<u8>, EngineError> {
    let mut bytes = Vec::new();
    guest.answers(options.timeout, |reply| {
        if let Reply::Chunk(chunk) = reply {
            bytes.extend_from_slice(&chunk);
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Where the kernel prepares the stacks of new tasks.
pub(crate) fn watched(symbols: &SymbolTable) -> Option<(u64, u64)> {
    let rules = PathRules::built_in();
    let symbol = symbols
        .symbols()
        .iter()
        .find(|s| rules.role(&s.name).new_task)?;
    Some((symbol.addr, symbol.addr + symbol.size))
}

type Made = Vec<(String, u32, Vec<u8>)>;

/// The modules of these names, and all that they need: paths in the guest, in the
/// order to be loaded, and the files.
fn modules(
    tree: &netplumb_kernel::modules::ModuleTree,
    names: &[String],
) -> Result<(Vec<String>, Made), EngineError> {
    let mut paths: Vec<String> = Vec::new();
    let mut files: Made = Vec::new();
    for name in names {
        // A kernel may have it built in, or not at all.
        let Ok(needed) = tree.resolve(&[name.as_str()]) else {
            continue;
        };
        for module in needed {
            let path = format!("{MODULES}/{}.ko", module.name);
            if !paths.contains(&path) {
                files.push((path.clone(), 0o600, module.read()?));
                paths.push(path);
            }
        }
    }
    Ok((paths, files))
}

fn add_command_losses(recording: &mut Recording, losses: &Losses, ends: &[CommandEnd]) {
    let mut add = |cause: &str, count: u64, meaning: &str| {
        if count > 0 {
            recording.losses.push(Loss {
                cause: cause.into(),
                count,
                meaning: meaning.into(),
            });
        }
    };
    add(
        "ways to functions not told apart",
        losses.ways_cut,
        "deeper, or more, than are kept: those calls are below the root of their thread",
    );
    add(
        "instructions in code of no file",
        losses.insns_without_file,
        "made while it ran, or in a file that was not taken along: they are in [unknown]",
    );
    add(
        "runs cut short",
        losses.windows_cut + ends.iter().filter(|e| e.stopped).count() as u64,
        "the command was killed when its time was over: its costs are those until then",
    );
    let left = ends.iter().map(|e| e.left.len() as u64).sum();
    add(
        "processes left behind",
        left,
        "they ran when the command had ended, and were killed: what they did then is not counted",
    );
    add(
        "bytes of output not kept",
        ends.iter().map(|e| e.unkept_bytes).sum(),
        "the command was not stopped for it, and its costs are whole",
    );
}
