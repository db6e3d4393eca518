//! The settings of an instrument that measures time; names are looked up on this machine.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use netplumb_instruments::events::has_function;
use netplumb_model::class::Proto;
use netplumb_model::events::{self, EventsSpec, Whose};
use netplumb_model::experiment::{Experiment, Key, Kind, Lab};
use netplumb_model::recording::Recording;
use netplumb_model::spans::{self, SpansSpec};
use netplumb_model::timing::{Filter, ProfileSpec, Roles, Selection, TimingSpec};
use netplumb_model::trace::CallsSpec;
use netplumb_report::printable;
use netplumb_sys::netns::Namespace;
use netplumb_sys::proc;

use crate::args::live::CALLS;
use crate::exit::WrongKey;

/// Packets that are traced step by step.
const TRACED_PACKETS: u32 = 1;
/// Where cgroups usually are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Functions that are timed, by default.
const MAX_FUNCTIONS: u32 = 100;

/// The settings of an instrument.
///
/// # Errors
/// No such device, namespace, process or cgroup, or a recording that can't be read.
pub(super) fn spec(experiment: &Experiment, instrument: &str) -> anyhow::Result<TimingSpec> {
    let Experiment { filter: asked, functions, probes, workload, samples, .. } = experiment;
    let mut filter = Filter {
        protos: asked.proto.clone(),
        family: asked.family,
        port: asked.port,
        address: asked.address,
        pid: asked.pid,
        ..Filter::default()
    };
    if filter.protos.contains(&Proto::Command) {
        let why = "invalid protocol `command`; a command is measured by `plumb path -- COMMAND`";
        return Err(WrongKey::usage(of_filter("proto"), why).into());
    }
    if asked.interface.is_some() || asked.netns.is_some() {
        let within = match &asked.netns {
            Some(name) => namespace(name)?,
            None => Namespace::current().context("can't open the current network namespace")?,
        };
        filter.namespaces = vec![within.inode().context("can't identify the network namespace")?];
        if let Some(name) = &asked.interface {
            filter.interface = Some(interface(name, &within)?);
        }
    }
    let of_work = [events::INSTRUMENT, spans::INSTRUMENT, CALLS].contains(&instrument);
    for (key, given) in [("pid", asked.pid.is_some()), ("cgroup", asked.cgroup.is_some())] {
        if given && of_work && experiment.lab == Lab::Vm {
            let why =
                format!("--{key} ({key}) applies to this machine, not to guests: use --lab host");
            return Err(WrongKey::usage(of_filter(key), why).into());
        }
    }
    if let Some(pid) = asked.pid
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        let why = format!("--pid {pid}: no such process");
        return Err(WrongKey::usage(of_filter("pid"), why).into());
    }
    if let Some(pid) = asked.pid
        && let Some(process) = proc::process_of(pid).filter(|process| *process != pid)
    {
        let why = format!(
            "--pid {pid}: a thread of process {process}, whose threads are measured together: use \
             --pid {process}"
        );
        return Err(WrongKey::usage(of_filter("pid"), why).into());
    }
    let mut directory = None;
    // Others are at work on this machine.
    let sends = experiment.lab == Lab::Netns && workload.kind.sends();
    let by_task = [spans::INSTRUMENT, CALLS].contains(&instrument);
    if by_task && sends && asked.pid.is_none() && asked.cgroup.is_none() {
        filter.pid = Some(std::process::id());
    }
    if let Some(path) = &asked.cgroup {
        let (path, id) = cgroup(Path::new(path))?;
        filter.cgroup = Some(id);
        directory = Some(path.display().to_string());
    }
    let recorded = match &functions.recorded {
        Some(path) => recorded(&netplumb_store::read(Path::new(path))?),
        None => Vec::new(),
    };
    let share = probes.max_overhead.map(|share| share.0);
    Ok(TimingSpec {
        instrument: instrument.into(),
        roles: Roles::Calls,
        filter,
        selection: Selection {
            discover: functions.discover,
            patterns: functions.names.clone(),
            layers: experiment.layer.iter().cloned().collect(),
            recorded,
            max_functions: functions.most.unwrap_or(MAX_FUNCTIONS),
            max_overhead: share.filter(|share| *share < 1.0),
        },
        mechanism: None,
        one_packet: if probes.one_packet { TRACED_PACKETS } else { 0 },
        profile: (workload.kind == Kind::Work).then(|| ProfileSpec {
            frequency_hz: samples.frequency(),
            off_cpu: samples.off_cpu,
            user_stacks: samples.user_stacks.unwrap_or_default(),
            event: samples.event.unwrap_or_default(),
            children: experiment.runs_command(),
        }),
        events: match instrument == events::INSTRUMENT {
            true => Some(EventsSpec {
                names: named(experiment, experiment.events.all())?,
                whose: match (workload.kind, experiment.runs_command()) {
                    (Kind::Work, false) => Whose::All,
                    (Kind::Work | Kind::Command, _) => Whose::Started,
                    _ => Whose::Own,
                },
                cgroup: directory,
                by: experiment.events.by,
            }),
            false => None,
        },
        spans: match instrument == spans::INSTRUMENT {
            true => Some(SpansSpec {
                events: named(experiment, experiment.spans.whole().events)?,
                ..experiment.spans.spec(experiment.runs_command())
            }),
            false => None,
        },
        calls: match (instrument == CALLS, &experiment.trace) {
            (true, Some(trace)) => Some(CallsSpec {
                children: experiment.runs_command(),
                own: workload.kind.sends(),
                program: program_with(experiment, trace.place().1),
                ..trace.spec()
            }),
            _ => None,
        },
    })
}

/// Events by their names, as a guest's agent has to have them, whose directory is another.
fn named(experiment: &Experiment, names: Vec<String>) -> anyhow::Result<Vec<String>> {
    if experiment.lab != Lab::Vm {
        return Ok(names);
    }
    let folder = std::env::current_dir().context("can't read the current directory")?;
    let each = names.into_iter();
    Ok(each.map(|name| events::within(&name, &folder)).collect())
}

/// The program of the command, if it has a function of its own of this name.
fn program_with(experiment: &Experiment, function: &str) -> Option<String> {
    let name = experiment.workload.command.first()?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let path = match name.contains('/') {
        true => PathBuf::from(name),
        false => std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())?,
    };
    has_function(&path, function).then(|| printable(name, 200))
}

fn of_filter(name: &'static str) -> Key {
    Key::new("filter", name)
}

/// The index of a device, which each namespace numbers by itself.
fn interface(name: &str, within: &Namespace) -> anyhow::Result<u32> {
    let devices = within.devices().context("can't list network devices")?;
    let index = devices.get(name).copied();
    index.ok_or_else(|| {
        let known: Vec<&str> = devices.keys().map(String::as_str).collect();
        let why = format!(
            "--interface {}: no such device; available are {}",
            printable(name, 40),
            printable(&known.join(", "), 200)
        );
        WrongKey::usage(of_filter("interface"), why).into()
    })
}

fn namespace(name: &str) -> anyhow::Result<Namespace> {
    let failed = |error: std::io::Error| {
        let why = format!(
            "--netns {}: {error}; expected a name from `ip netns`, a PID, or a path",
            printable(name, 80)
        );
        WrongKey::usage(of_filter("netns"), why)
    };
    Ok(Namespace::find(name).map_err(failed)?)
}

/// The directory of a cgroup of version 2, and its ID, which is the directory's inode.
pub(super) fn cgroup(path: &Path) -> anyhow::Result<(PathBuf, u64)> {
    let failed = |why: String| {
        let why = format!(
            "--cgroup {}: {why}; expected a directory below {}, where cgroups of version 2 are",
            printable(&path.display().to_string(), 80),
            cgroups().display()
        );
        WrongKey::usage(of_filter("cgroup"), why)
    };
    let full = match path.starts_with("/sys") {
        true => path.to_path_buf(),
        false => cgroups().join(path.strip_prefix("/").unwrap_or(path)),
    };
    let metadata = std::fs::metadata(&full).map_err(|e| failed(e.to_string()))?;
    if !full.join("cgroup.procs").exists() {
        return Err(failed("not a cgroup".into()).into());
    }
    // Tasks of one of version 1 are not known by it.
    if !is_version_2(&full) {
        return Err(failed("a cgroup of version 1".into()).into());
    }
    Ok((full, metadata.ino()))
}

/// Whether a directory is in the file system of cgroups of version 2.
fn is_version_2(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a structure of integers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    let failed = unsafe { libc::statfs(path.as_ptr(), &raw mut found) } != 0;
    !failed && found.f_type as i64 == libc::CGROUP2_SUPER_MAGIC
}

/// Where cgroups of version 2 are mounted: elsewhere if version 1 is there too.
fn cgroups() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = words.find(|words| words.get(2) == Some(&"cgroup2"));
    found.map_or(CGROUPS.into(), |words| words[1].into())
}

/// The functions of a recording, the most expensive first.
fn recorded(recording: &Recording) -> Vec<String> {
    let mut costs = vec![0_f64; recording.functions.len()];
    let mut add = |node: u32, cost: f64| {
        let function = recording.nodes.get(node as usize).map(|n| n.function);
        if let Some(sum) = function.and_then(|f| costs.get_mut(f as usize)) {
            *sum += cost;
        }
    };
    for cost in &recording.costs {
        add(cost.node, cost.own as f64);
    }
    for (_, call) in recording.calls() {
        add(call.node, call.corrected_ns);
    }
    let mut named: Vec<(f64, &str)> = costs
        .into_iter()
        .zip(recording.functions.iter().map(|f| f.name.as_str()))
        .filter(|(cost, _)| *cost > 0.0)
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut names: Vec<String> = Vec::new();
    for (_, name) in named {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_string());
        }
    }
    names
}
