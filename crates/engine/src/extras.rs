//! Requirements of a guest's knobs at boot: modules, files, a replaced module; and notes on the
//! knobs of its arms.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use netplumb_kernel::config::{ConfigValue, KernelConfig};
use netplumb_kernel::modules::{ModuleError, ModuleTree};
use netplumb_kernel::signature;
use netplumb_lab::vm::files::{FilesError, Program};
use netplumb_lab::vm::initramfs::Module;
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_lab::vm::process::VmError;
use netplumb_lab::vm::requested;
use netplumb_model::class::Direction;
use netplumb_model::experiment::acting::{self, Scene};
use netplumb_model::experiment::{BpfProgram, Load, ProgramFile};
use netplumb_model::recording::{Arm, Block, Cost, Recording, env};
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_model::topology::TopologySpec;
use netplumb_sys::memory::memfd;

use crate::error::EngineError;
use crate::plan::GuestPlan;
use crate::run::{Options, Progress, fetching};

/// The kernel's modules, some replaced by the user's, and the names of the latter.
pub(crate) fn module_tree(
    kernel: &KernelEntry,
    guest: &GuestPlan,
) -> Result<(ModuleTree, Vec<String>), EngineError> {
    let mut tree = kernel.module_tree()?;
    let mut own = Vec::new();
    for module in &guest.own_modules {
        let name = tree.replace(Path::new(module), &kernel.release)?;
        if own.contains(&name) {
            return Err(EngineError::Module(ModuleError::WrongModule {
                path: module.into(),
                reason: format!("another file of the same arm is {name} as well"),
            }));
        }
        own.push(name);
    }
    Ok((tree, own))
}

/// The files of the user's modules, by their names.
pub(crate) fn own_files(
    kernel: &KernelEntry,
    guest: &GuestPlan,
) -> Result<BTreeMap<String, PathBuf>, EngineError> {
    if guest.own_modules.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (tree, own) = module_tree(kernel, guest)?;
    let files = own.into_iter().filter_map(|name| {
        let path = tree.find(&name)?.path;
        Some((name, path))
    });
    Ok(files.collect())
}

/// The error of a guest's boot, with the file of a module if the user supplied it.
pub(crate) fn of_boot(error: VmError, own: &BTreeMap<String, PathBuf>) -> EngineError {
    match error {
        VmError::NotLoaded(refused) => match own.get(&refused.module) {
            Some(path) => EngineError::NotLoaded { path: path.clone(), refused },
            None => VmError::NotLoaded(refused).into(),
        },
        error => EngineError::of_start(error),
    }
}

/// Modules to load in addition to the machine's.
pub(crate) fn modules<'g>(
    guest: &'g GuestPlan,
    kernel: &KernelEntry,
    tree: &ModuleTree,
) -> Result<Vec<&'g str>, EngineError> {
    let mut modules = Vec::new();
    modules.extend(guest.nft.then_some("nf_tables"));
    for module in &guest.more_modules {
        if tree.find(module).is_some() {
            modules.push(*module);
        }
    }
    if guest.topology.has_bridge() {
        modules.push("bridge");
    }
    modules.extend(qdiscs(guest, kernel, tree)?);
    modules.extend(guest.load.iter().map(String::as_str));
    Ok(modules)
}

/// An archive of the modules that the kernel of a guest may request of it, if it has rules that weren't generated, or
/// devices that may be in modules.
pub(crate) fn requested(
    kernel: &KernelEntry,
    guest: &GuestPlan,
) -> Result<Option<OwnedFd>, EngineError> {
    if !guest.requests && !guest.topology.needs_requests() {
        return Ok(None);
    }
    let (tree, _) = module_tree(kernel, guest)?;
    let is_wanted = |path: &str| REQUESTED.iter().any(|part| path.contains(part));
    let archive = requested::archive(&tree.answers(is_wanted)?)?;
    let held = memfd("netplumb-modules", &archive);
    Ok(Some(held.map_err(EngineError::host("hold modules"))?))
}

/// The directories, below which are modules that rules and devices use: net/netfilter, net/ipv4/netfilter,
/// net/bridge/netfilter and so on, and the directories of virtual devices.
const REQUESTED: &[&str] = &[
    "netfilter/",
    "drivers/net/bonding",
    "drivers/net/dummy",
    "drivers/net/geneve",
    "drivers/net/ipvlan",
    "drivers/net/macvlan",
    "drivers/net/vxlan",
    "drivers/net/wireguard",
    "net/8021q/",
    "net/bridge/",
    "net/sched/",
    "net/ipv4/",
    "net/ipv6/",
];

/// Check that a guest can have what its arms need, before any boots. Programs for another architecture than
/// this machine's are fetched.
///
/// # Errors
/// This machine or that kernel lacks something.
pub(crate) fn check(
    kernel: &KernelEntry,
    guest: &GuestPlan,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<(), EngineError> {
    let (tree, _) = module_tree(kernel, guest)?;
    check_options(guest, &tree)?;
    check_load(&guest.load, &tree)?;
    if guest.qdisc {
        qdiscs(guest, kernel, &tree)?;
    }
    fetch(kernel, programs(guest), options, progress)?;
    // A program that is missing is an error at once.
    archives(kernel, guest, &options.cache)?;
    Ok(())
}

/// Check that a kernel has modules that are asked for by name.
pub(crate) fn check_load(names: &[String], tree: &ModuleTree) -> Result<(), ModuleError> {
    for name in names.iter().filter(|name| !tree.is_builtin(name)) {
        tree.require(name)?;
    }
    Ok(())
}

/// Fetch programs that guests of another architecture than this machine's need, unless that was done
/// before.
///
/// # Errors
/// Debian's archive does not have one, or can't be reached.
pub(crate) fn fetch(
    kernel: &KernelEntry,
    programs: impl IntoIterator<Item = Program>,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<(), FilesError> {
    let of_arch = format!("guests of {}", kernel.arch);
    let mut tell = fetching(&of_arch, progress);
    for program in programs {
        program.fetch(kernel.arch, &options.cache, &options.cancel, &mut tell)?;
    }
    Ok(())
}

/// The options of a module, by its name as the kernel shows it.
pub(crate) fn options_of(guest: &GuestPlan, module: &str) -> Option<String> {
    let mut all = guest.module_options.iter();
    let (_, options) = all.find(|(name, _)| name.replace('-', "_") == module)?;
    Some(options.trim().to_owned())
}

/// Check that modules have the options that are asked for: the kernel would ignore others, and only
/// log that.
fn check_options(guest: &GuestPlan, tree: &ModuleTree) -> Result<(), EngineError> {
    for (module, options) in &guest.module_options {
        let name = module.replace('-', "_");
        let Some(file) = tree.find(&name) else {
            let why = match tree.is_builtin(&name) {
                true => format!(
                    "`{module}` is built into the kernel; use cmdline = \"{module}.OPTION=VALUE\""
                ),
                false => format!("the kernel has no module `{module}`"),
            };
            return Err(EngineError::ModuleOptions(why));
        };
        let known = file.info()?.options;
        for word in options.split_whitespace() {
            let option = word.split_once('=').map_or(word, |(option, _)| option);
            if !known.iter().any(|known| known == option) {
                let listed = match known.is_empty() {
                    true => "it has none".to_string(),
                    false => format!("it has {}", known.join(", ")),
                };
                return Err(EngineError::ModuleOptions(format!(
                    "module {module} has no option `{option}`; {listed}"
                )));
            }
        }
    }
    Ok(())
}

/// Check that modules with options are among those that a guest loads.
pub(crate) fn check_loaded(guest: &GuestPlan, loaded: &[Module]) -> Result<(), EngineError> {
    for module in guest.module_options.keys() {
        let name = module.replace('-', "_");
        if !loaded.iter().any(|loaded| loaded.name == name) {
            let names: Vec<&str> = loaded.iter().map(|module| module.name.as_str()).collect();
            return Err(EngineError::ModuleOptions(format!(
                "the guest does not load module {module}; it loads {}",
                names.join(", ")
            )));
        }
    }
    Ok(())
}

/// The modules of qdiscs to load.
fn qdiscs<'g>(
    guest: &'g GuestPlan,
    kernel: &KernelEntry,
    tree: &ModuleTree,
) -> Result<Vec<&'g str>, EngineError> {
    let mut modules = Vec::new();
    for module in &guest.qdisc_modules {
        if tree.find(module).is_some() {
            modules.push(module.as_str());
        } else if !tree.is_builtin(module) && !in_config(kernel, module) {
            return Err(EngineError::NoQdisc {
                kernel: kernel.release.clone(),
                module: module.clone(),
            });
        }
    }
    Ok(modules)
}

/// Whether a kernel's configuration has a qdisc built in: an image may lack the list of built-in
/// modules.
fn in_config(kernel: &KernelEntry, module: &str) -> bool {
    let option = format!("NET_{}", module.to_ascii_uppercase());
    config_of(kernel).is_some_and(|config| matches!(config.get(&option), Some(ConfigValue::Yes)))
}

fn config_of(kernel: &KernelEntry) -> Option<KernelConfig> {
    let text = std::fs::read_to_string(kernel.config()?).ok()?;
    KernelConfig::parse(&text).ok()
}

/// Whether a kernel with this command line may refuse modules without a signature; unknown without its
/// configuration.
pub(crate) fn insists_on_signatures(kernel: &KernelEntry, cmdline: &str) -> bool {
    config_of(kernel).is_none_or(|config| signature::is_forced(&config, cmdline))
}

/// Initramfs archives of programs, appended to the one with init and modules, each under the key of
/// its hash in a recording.
///
/// # Errors
/// This machine lacks one, or it was not fetched.
pub(crate) fn archives(
    kernel: &KernelEntry,
    guest: &GuestPlan,
    cache: &Path,
) -> Result<Vec<(&'static str, Vec<u8>)>, EngineError> {
    programs(guest)
        .map(|program| Ok((program.key(), program.archive(kernel.arch, cache)?)))
        .collect()
}

/// The programs that a guest runs before it is measured.
pub(crate) fn programs(guest: &GuestPlan) -> impl Iterator<Item = Program> + '_ {
    let nft = guest.nft.then_some(Program::Nft);
    let tc = guest.qdisc.then_some(Program::Tc);
    nft.into_iter().chain(tc).chain(guest.programs.iter().copied())
}

/// The BPF programs of an arm, with their objects.
///
/// # Errors
/// One can't be read.
pub(crate) fn objects(arm: &Arm) -> Result<Vec<BpfProgram>, EngineError> {
    let read = |file: ProgramFile<'_>| {
        let object = std::fs::read(file.path);
        Ok(BpfProgram {
            hook: file.hook,
            device: file.device.into(),
            egress: file.egress,
            program: file.program.map(Into::into),
            object: object.map_err(EngineError::host("read a BPF object"))?,
        })
    };
    ProgramFile::all_of(arm).into_iter().map(read).collect()
}

/// Note the facts of a guest that differ from the recording's, which are from the first guest.
pub(crate) fn note(recording: &mut Recording, arm: usize, facts: &BTreeMap<String, String>) {
    const TOLD: &[&str] = &[
        "vulnerability.",
        "nft.",
        "qdisc.",
        "bpf.",
        "topology.",
        "files.",
        "no_effect.",
        "kernel.",
        env::CONFIG,
        env::QEMU,
        env::PROGRAM,
    ];
    for (key, value) in facts {
        let of_interest = TOLD.iter().any(|prefix| key.starts_with(prefix));
        if of_interest && recording.environment.get(key) != Some(value) {
            let facts = &mut recording.notes_of(arm).facts;
            facts.insert(key.clone(), value.clone());
        }
    }
}

/// CPUs of a guest.
pub(crate) const GUEST_CPUS: usize = 1;

/// Note which settings of an arm could not act, and why. If every function was counted, the
/// functions that its packets entered take precedence; its costs are the last of the recording.
pub(crate) fn idle(
    recording: &mut Recording,
    arm: usize,
    (load, cpus): (Load, usize),
    topology: Option<&TopologySpec>,
) {
    let scene = Scene { arm: &recording.arms[arm], load, cpus };
    let counts = |b: &Block| b.arm as usize == arm && b.instrument == INSTRUCTIONS.instrument;
    let counted = recording.blocks.iter().any(counts);
    let entered = counted.then(|| entered(recording, arm));
    let mut idle = acting::idle(&scene, entered.as_ref());
    if let Some(topology) = topology {
        idle.extend(acting::idle_in_topology(&scene, topology, entered.as_ref()));
    }
    if !idle.is_empty() {
        recording.notes_of(arm).inert.extend(idle);
    }
}

/// The functions that an arm's packets entered, without suffixes of compilers.
fn entered(recording: &Recording, arm: usize) -> BTreeSet<&str> {
    let of_arm = |cost: &&Cost| recording.blocks[cost.block as usize].arm as usize == arm;
    let own = recording.costs.iter().rev().take_while(of_arm);
    let costs = own.filter(|cost| cost.direction != Direction::Other);
    let name = |cost: &Cost| {
        let function = recording.nodes[cost.node as usize].function;
        let name = recording.functions[function as usize].name.as_str();
        name.split('.').next().unwrap_or(name)
    };
    costs.map(name).collect()
}

/// An error in one line of limited length.
pub(crate) fn in_a_line(error: &EngineError) -> String {
    let why: Vec<String> = error.to_string().lines().map(String::from).collect();
    why.join(" ").chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the options in which an arm's kernel differs from the first one are noted,
    /// including missing ones.
    #[test]
    fn options_by_arm() {
        let facts = |options: &[(&str, &str)]| -> BTreeMap<String, String> {
            let options = options.iter();
            let options = options.map(|(key, value)| (format!("config.{key}"), (*value).into()));
            options.collect()
        };
        let mut recording = Recording {
            environment: facts(&[("HZ", "250"), ("RETHUNK", "y"), ("ARM64_PAN", "not set")]),
            ..Recording::default()
        };
        let other = facts(&[("HZ", "250"), ("RETHUNK", "not set"), ("ARM64_PAN", "y")]);
        note(&mut recording, 1, &other);
        let noted = facts(&[("RETHUNK", "not set"), ("ARM64_PAN", "y")]);
        assert_eq!(recording.notes[&1].facts, noted);
        let of = |arm, option: &str| recording.fact(arm, &format!("config.{option}"));
        assert_eq!([of(0, "RETHUNK"), of(1, "RETHUNK")], [Some("y"), Some("not set")]);
        assert_eq!([of(0, "HZ"), of(1, "HZ")], [Some("250"); 2]);
    }
}
