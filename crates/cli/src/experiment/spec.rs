//! What an instrument that reads a clock is to do, and what names mean on this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use netplumb_model::class::Proto;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{Filter, Roles, Selection, TimingSpec};
use netplumb_report::printable;
use netplumb_sys::netns::Namespace;

use crate::exit::Usage;

/// Packets that are told one by one.
const TOLD_PACKETS: u32 = 1;
/// Functions that are timed where nothing is said.
const MAX_FUNCTIONS: u32 = 100;

/// What the instrument is to do.
///
/// # Errors
/// A name that nothing here has, or a recording that can't be read.
pub(super) fn spec(experiment: &Experiment, instrument: &str) -> anyhow::Result<TimingSpec> {
    let Experiment {
        filter: asked,
        functions,
        probes,
        ..
    } = experiment;
    let mut filter = Filter {
        protos: asked.proto.clone(),
        family: asked.family,
        port: asked.port,
        address: asked.address,
        pid: asked.pid,
        ..Filter::default()
    };
    if filter.protos.contains(&Proto::Command) {
        return Err(Usage(
            "a command is no protocol: it is measured by `plumb path -- COMMAND`".into(),
        )
        .into());
    }
    if asked.interface.is_some() || asked.netns.is_some() {
        let within = match &asked.netns {
            Some(name) => namespace(name)?,
            None => Namespace::current().context("find the own network namespace")?,
        };
        filter.namespaces = vec![within.inode().context("number a network namespace")?];
        if let Some(name) = &asked.interface {
            filter.interface = Some(interface(name, &within)?);
        }
    }
    if let Some(pid) = asked.pid
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(Usage(format!("--pid {pid}: there is no such process")).into());
    }
    if let Some(path) = &asked.cgroup {
        filter.cgroup = Some(cgroup(Path::new(path))?);
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
        one_packet: if probes.one_packet { TOLD_PACKETS } else { 0 },
    })
}

/// The index of a device, which is one's own in each namespace.
fn interface(name: &str, within: &Namespace) -> anyhow::Result<u32> {
    let devices = within.devices().context("list the network devices")?;
    let index = devices.get(name).copied();
    index.ok_or_else(|| {
        let known: Vec<&str> = devices.keys().map(String::as_str).collect();
        Usage(format!(
            "--interface {}: there is no such device; there are {}",
            printable(name, 40),
            printable(&known.join(", "), 200)
        ))
        .into()
    })
}

fn namespace(name: &str) -> anyhow::Result<Namespace> {
    let told = |error: std::io::Error| {
        Usage(format!(
            "--netns {}: {error}; it takes a name that `ip netns` lists, a process, or a path",
            printable(name, 80)
        ))
    };
    Ok(Namespace::find(name).map_err(told)?)
}

/// The id of a cgroup is the inode of its folder.
fn cgroup(path: &Path) -> anyhow::Result<u64> {
    let told = |why: String| {
        Usage(format!(
            "--cgroup {}: {why}; it takes a folder below /sys/fs/cgroup",
            printable(&path.display().to_string(), 80)
        ))
    };
    let full = match path.starts_with("/sys") {
        true => path.to_path_buf(),
        false => Path::new("/sys/fs/cgroup").join(path.strip_prefix("/").unwrap_or(path)),
    };
    let metadata = std::fs::metadata(&full).map_err(|e| told(e.to_string()))?;
    if !full.join("cgroup.procs").exists() {
        return Err(told("it is no cgroup".into()).into());
    }
    Ok(metadata.ino())
}

/// Functions that a recording saw, those that cost most first.
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
