//! A command in a guest: from its files to its costs.

mod exact;
mod tables;
mod timed;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use netplumb_instruments::exact::Sampling;
use netplumb_lab::bundle::Bundle;
use netplumb_lab::vm::machine::{LARGE_MEMORY_MIB, MEMORY_MIB};
use netplumb_lab::vm::process::{Extra, Guest, VmError};
use netplumb_lab::vm::{bulk, disk};
use netplumb_model::experiment::{DiskPlan, Trace};
use netplumb_model::loss::Loss;
use netplumb_model::message::{
    CommandEnd, CommandPlan, Output, Reply, Request, RunPlan, SetupPlan,
};
use netplumb_model::quantity::Subject;
use netplumb_model::reads::FileReads;
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::timing::{INSTRUCTIONS, SAMPLED, TimingSpec};
use netplumb_model::topology::TopologySpec;
use netplumb_sys::memory::memfd;

use crate::error::EngineError;
use crate::extras;
use crate::kinds::{check_pairs, is_of_packets};
use crate::origin::{self, Boot, Origin};
use crate::plan::{GuestPlan, Plan};
use crate::prototypes::GuestPrototypes;
use crate::run::{MEMORY_FACT, Options, Progress, Save, note_arch, note_instrument, note_machine};
use crate::schedule::{Turn, whole};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use tables::Tables;

/// How long a command may take to end after it was signalled.
const GRACE: std::time::Duration = std::time::Duration::from_secs(20);
/// The file with standard input, in the guest.
const STDIN: &str = "/run/stdin";
/// The directory of modules for the guest to load.
const MODULES: &str = "/run/modules";

/// A command in a guest with these settings.
#[derive(Debug)]
pub struct CommandArm {
    /// Its settings, as recorded.
    pub arm: Arm,
    /// Path of the program in the guest.
    pub program: PathBuf,
    /// Arguments of the program, without its path.
    pub words: Vec<String>,
    /// The reads, if it is `plumb read-file`.
    pub reads: Option<FileReads>,
}

/// The files that a guest of the usual size has room for: one of 6.12 for arm64 in which BPF programs are loaded has room
/// for some 30 MiB.
const ROOM_BYTES: u64 = 32 << 20;
/// The most that a command may have: a guest that is larger has room for them.
pub const MAX_FILES_BYTES: u64 = 384 << 20;

/// The size of a guest's memory that has room for these files.
fn memory_mib(bundle: &Bundle) -> u32 {
    match bundle.size_bytes() > ROOM_BYTES {
        true => LARGE_MEMORY_MIB,
        false => MEMORY_MIB,
    }
}

/// Commands with their files and settings.
#[derive(Debug)]
pub struct CommandRun {
    /// The arms, each in a guest of its own; one if an instrument is about packets.
    pub arms: Vec<CommandArm>,
    /// The topologies that arms may name besides the presets.
    pub topologies: Vec<TopologySpec>,
    /// The path and arguments of the peer.
    pub peer: Option<(PathBuf, Vec<String>)>,
    /// The working directory of both.
    pub folder: PathBuf,
    /// The contents of standard input, if it is not /dev/null.
    pub stdin: Option<Vec<u8>>,
    /// The files to put into the guest.
    pub bundle: Bundle,
    /// The kernel modules that it needs; missing ones are ignored.
    pub modules: Vec<String>,
    /// Set-up before the first run. Its modules are required.
    pub setup: SetupPlan,
    /// Connections that the guest opens before the first run.
    pub warmup: u32,
    /// Repetitions.
    pub blocks: u32,
    /// Maximum number of bytes kept of each output stream.
    pub output_bytes: u64,
    /// Whether its instructions are counted.
    pub exact: bool,
    /// Whether and how samples are drawn of them, from the same guest.
    pub sampling: Option<Sampling>,
    /// Which calls are traced, where they are counted.
    pub trace: Option<Trace>,
    /// The settings of instruments that measure on the running kernel, each in guests of its own.
    pub timed: Vec<TimingSpec>,
}

/// Measure a command. Its output is passed to `output`; how its runs ended is in `ends`, also for
/// those before an error.
///
/// # Errors
/// See [`EngineError`]. Earlier results are in the recording.
pub fn run_command(
    run: &CommandRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
    output: &mut dyn FnMut(Output, &[u8]),
    ends: &mut Vec<CommandEnd>,
) -> Result<(), EngineError> {
    if let [arm] = &run.arms[..] {
        let words = arm.words.join(" ");
        (recording.environment).insert("command.words".into(), words);
    }
    if !run.is_of_packets() {
        recording.arms = run.arms.iter().map(|arm| arm.arm.clone()).collect();
    }
    recording.environment.insert("command.warmup".into(), run.warmup.to_string());
    recording.complete = false;
    let names = run.names();
    let counts = !run.counted().is_empty();
    note_machine(recording, options);
    note_instrument(recording, names.first().copied().unwrap_or_default(), counts);
    recording.environment.insert(env::LAB.into(), "vm".into());
    let mut keeper = Keeper::new(recording, save, &options.cancel);
    let mut said = CommandReplies { output, ends, quiet: false };
    let mut site = OneAtATime::new(Runs {
        run,
        options,
        progress,
        said: &mut said,
        tables: Tables::default(),
    });
    let turns = whole(run.arms.len(), names.len(), 0..run.blocks);
    site::run(&mut site, turns, &names, &mut keeper, &mut |_, _| {})?;
    keeper.recording.complete = !said.ends.iter().any(|end| end.stopped);
    keeper.keep()?;
    check_pairs(keeper.recording, &names)
}

/// The site of a command: a guest of its own.
struct Runs<'a, 's> {
    run: &'a CommandRun,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress) + Sync),
    said: &'a mut CommandReplies<'s>,
    tables: Tables,
}

impl Alone for Runs<'_, '_> {
    /// All runs of an arm with an instrument, in one guest.
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let (options, progress) = (self.options, self.progress);
        let one = OneArm { run: self.run, at: turn.arm };
        // It prints the same with each instrument.
        self.said.quiet = turn.by > 0;
        match self.run.spec(turn.by) {
            None => {
                let tables = &mut self.tables;
                exact::measure(one, options, keeper, progress, self.said, tables)?;
            }
            Some(spec) => timed::measure(one, spec, options, keeper, progress, self.said)?,
        }
        Ok(Ended::Measured)
    }
}

/// Receives the output of a command, and how it ended.
struct CommandReplies<'a> {
    output: &'a mut dyn FnMut(Output, &[u8]),
    ends: &'a mut Vec<CommandEnd>,
    /// Whether the output is not passed on.
    quiet: bool,
}

impl CommandReplies<'_> {
    /// Process a reply of a kind handled here.
    fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Output(..) if self.quiet => {}
            Reply::Output(from, bytes) => (self.output)(from, &bytes),
            Reply::Ended(end) => self.ends.push(end),
            _ => {}
        }
    }
}

/// An arm of a run.
#[derive(Clone, Copy)]
struct OneArm<'a> {
    run: &'a CommandRun,
    at: usize,
}

impl<'a> OneArm<'a> {
    fn command(self) -> &'a CommandArm {
        &self.run.arms[self.at]
    }
}

/// The origin of a command's guest, for any instrument.
struct Base {
    origin: Origin,
    links: RunPlan,
    /// Modules to load, by their paths in the guest, with their parameters.
    modules: Vec<String>,
    /// Names of those among them that have to be loaded.
    shipped: Vec<String>,
    /// Initramfs archive of the command's files.
    archive: OwnedFd,
}

impl OneArm<'_> {
    /// QEMU's arguments in addition to the machine's: the files, and a disk if it is one of QEMU's.
    fn extra(self, archive: OwnedFd) -> Result<Extra, EngineError> {
        let mut extra =
            Extra { args: bulk::qemu_args(archive.as_raw_fd()), fds: vec![archive], cpu: None };
        if let Some(plan) = DiskPlan::from_arm(&self.command().arm) {
            let memory = disk::backing(&plan.disk);
            if let Some(memory) = memory.map_err(EngineError::host("make a disk in memory"))? {
                extra.args.extend(disk::qemu_args(memory.as_raw_fd()));
                extra.fds.push(memory);
            }
        }
        Ok(extra)
    }
}

impl CommandRun {
    /// The run's instruments that the plugin's stream feeds.
    fn counted(&self) -> Vec<&'static str> {
        let exact = self.exact.then_some(INSTRUCTIONS.instrument);
        let samples = self.sampling.as_ref().map(|_| SAMPLED.instrument);
        exact.into_iter().chain(samples).collect()
    }

    /// Names of instruments, by their numbers in turns; several that share a turn have the first
    /// one's.
    fn names(&self) -> Vec<&str> {
        let timed = self.timed.iter().map(|spec| spec.instrument.as_str());
        self.counted().into_iter().take(1).chain(timed).collect()
    }

    /// The settings of an instrument, by number; none if the plugin serves it.
    fn spec(&self, by: usize) -> Option<&TimingSpec> {
        let at = by.checked_sub(usize::from(!self.counted().is_empty()))?;
        self.timed.get(at)
    }

    /// Whether an instrument is about packets, whose arms are made as they are seen.
    fn is_of_packets(&self) -> bool {
        let mut timed = self.timed.iter();
        timed.any(|spec| is_of_packets(&spec.instrument))
    }
}

impl OneArm<'_> {
    /// The plan, with one guest.
    fn plan(self) -> Plan {
        Plan {
            arms: vec![self.command().arm.clone()],
            packets: 0,
            warmup_packets: 0,
            blocks: self.run.blocks,
            scan: None,
            topologies: self.run.topologies.clone(),
        }
    }

    /// Find the kernel and boot it, and pack the files.
    fn base(
        self,
        options: &Options,
        keeper: &mut Keeper<'_>,
        progress: &dyn Fn(Progress),
    ) -> Result<Base, EngineError> {
        let plan = self.plan();
        // One arm is one guest.
        let memory_mib = memory_mib(&self.run.bundle);
        let guest = &GuestPlan { memory_mib, ..plan.guests().remove(0) };
        let kernel = guest.kernel_in(options, progress)?;
        origin::check(options, kernel.arch, self.run.exact)?;
        let facts = &mut keeper.recording.environment;
        note_arch(facts, kernel.arch);
        facts.insert(MEMORY_FACT.into(), memory_mib.to_string());
        keeper.keep()?;
        let (tree, _) = extras::module_tree(&kernel, guest)?;
        let disk = DiskPlan::from_arm(&self.command().arm);
        let needed = Needed::new(disk.as_ref(), &self.run.setup);
        let (modules, shipped, mut made) = modules(&tree, &self.run.modules, &needed)?;
        if let Some(bytes) = &self.run.stdin {
            made.push((STDIN.into(), 0o600, bytes.clone()));
        }
        let boot = Boot { guest, kernel: &kernel, options };
        let links = plan.run_plan(&self.command().arm);
        let origin = boot.origin(&links, progress)?;
        let archive = bulk::archive(&self.run.bundle, &made)?;
        let archive =
            memfd("netplumb-files", &archive).map_err(EngineError::host("hold the files"))?;
        keeper.recording.environment.extend(origin.facts.clone());
        Ok(Base { origin, links, modules, shipped, archive })
    }

    /// Types and debug information of its kernel's functions.
    fn known<'o>(self, options: &'o Options) -> Result<GuestPrototypes<'o>, EngineError> {
        let plan = self.plan();
        let guests = plan.guests();
        let kernel = guests[0].kernel_in(options, &|_| {})?;
        let (tree, _) = extras::module_tree(&kernel, &guests[0])?;
        Ok(GuestPrototypes::new(&kernel, tree, &options.cancel))
    }

    /// The request to the guest.
    fn request(self, links: RunPlan, watch: Option<(u64, u64)>, shipped: Vec<String>) -> Request {
        let (run, command) = (self.run, self.command());
        Request::Command(CommandPlan {
            links,
            program: command.program.to_string_lossy().into_owned(),
            words: command.words.clone(),
            peer: (run.peer.as_ref())
                .map(|(path, words)| (path.to_string_lossy().into_owned(), words.clone())),
            folder: run.folder.to_string_lossy().into_owned(),
            stdin: run.stdin.as_ref().map(|_| STDIN.into()),
            warmup: run.warmup,
            blocks: run.blocks,
            output_bytes: run.output_bytes,
            watch,
            disk: DiskPlan::from_arm(&command.arm),
            setup: SetupPlan { modules: shipped, ..run.setup.clone() },
            reads: command.reads.clone(),
        })
    }
}

/// Process the replies of all runs.
fn runs(
    guest: &mut Guest,
    options: &Options,
    each: &mut dyn FnMut(Reply),
) -> Result<(), EngineError> {
    let mut each = |reply| {
        each(reply);
        Ok(())
    };
    match guest.answers(options.timeout, &mut each) {
        // The timeout: its cost and output until now are kept.
        Err(VmError::Timeout { .. }) => guest.ask(&Request::Stop, GRACE, &mut each)?,
        other => other?,
    }
    Ok(())
}

/// Add the reply to [`Request::Describe`] to the recording's facts.
fn facts(
    guest: &mut Guest,
    options: &Options,
    recording: &mut Recording,
) -> Result<(), EngineError> {
    let facts = &mut recording.environment;
    guest.answers(options.timeout, |reply| {
        if let Reply::Facts(guest_facts) = reply {
            facts.extend(guest_facts);
        }
        Ok(())
    })?;
    Ok(())
}

type GeneratedFiles = Vec<(String, u32, Vec<u8>)>;

/// Modules that have to be there, each with its parameters.
struct Needed(Vec<(String, String)>);

impl Needed {
    fn new(disk: Option<&DiskPlan>, setup: &SetupPlan) -> Needed {
        let mut needed = Vec::new();
        if let Some(plan) = disk {
            for name in plan.modules() {
                let parameters = match name == plan.disk.device.module() {
                    true => disk::parameters(&plan.disk),
                    false => String::new(),
                };
                needed.push((name.to_string(), parameters));
            }
        }
        let own = setup.modules.iter();
        needed.extend(own.map(|name| (name.replace('-', "_"), String::new())));
        Needed(needed)
    }

    fn parameters(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(needed, _)| needed == name);
        found.map_or("", |(_, parameters)| parameters)
    }
}

/// The named modules with their dependencies: paths in the guest with parameters, in load order,
/// the names of the required ones, and the files. `names` may be missing.
fn modules(
    tree: &netplumb_kernel::modules::ModuleTree,
    names: &[String],
    needed: &Needed,
) -> Result<(Vec<String>, Vec<String>, GeneratedFiles), EngineError> {
    let mut paths: Vec<String> = Vec::new();
    let mut shipped: Vec<String> = Vec::new();
    let mut files: GeneratedFiles = Vec::new();
    let mut add = |all: Vec<netplumb_kernel::modules::ModuleFile>| -> Result<(), EngineError> {
        for module in all {
            let path = format!("{MODULES}/{}.ko", module.name);
            let line = match needed.parameters(&module.name) {
                "" => path.clone(),
                parameters => format!("{path} {parameters}"),
            };
            if !paths.contains(&line) {
                files.push((path, 0o600, module.read()?));
                paths.push(line);
            }
        }
        Ok(())
    };
    for (name, _) in &needed.0 {
        add(tree.resolve(&[name.as_str()])?)?;
        // Built-in modules are there already.
        if tree.find(name).is_some() {
            shipped.push(name.clone());
        }
    }
    for name in names {
        // It may be built in, or missing.
        if let Ok(found) = tree.resolve(&[name.as_str()]) {
            add(found)?;
        }
    }
    Ok((paths, shipped, files))
}

/// Add the runs' figures apart from instructions to the blocks of an instrument.
fn add_figures(recording: &mut Recording, arm: usize, instrument: &str, ends: &[CommandEnd]) {
    for end in ends {
        let is_its = |block: &netplumb_model::recording::Block| {
            block.arm as usize == arm && block.index == end.index && block.instrument == instrument
        };
        if let Some(block) = recording.blocks.iter().position(is_its) {
            for figure in &end.figures {
                recording.add_figure(Subject::Block(block as u32), figure.clone());
            }
        }
    }
}

/// Add the losses of the runs. `cut` is the number of runs that the instrument saw end early.
fn add_command_losses(recording: &mut Recording, instrument: &str, cut: u64, ends: &[CommandEnd]) {
    for (cause, count, meaning) in [
        (
            "runs killed by the time limit",
            cut + ends.iter().filter(|e| e.stopped).count() as u64,
            "their costs are those until then",
        ),
        (
            "orphaned processes",
            ends.iter().map(|e| e.left.len() as u64).sum(),
            "still running when the command ended, and killed: what they did afterwards is not \
             counted",
        ),
        (
            "bytes of output discarded",
            ends.iter().map(|e| e.unkept_bytes).sum(),
            "no effect on the costs",
        ),
    ] {
        recording.add_loss(instrument, Loss::new(cause, count, meaning));
    }
}
