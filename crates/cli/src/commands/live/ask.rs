//! From what was typed to what an instrument is asked: what can't be together, and what
//! names mean on this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use netplumb_model::class::{Link, Proto};
use netplumb_model::experiment::Offload;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{Filter, Roles, Selection, TimingSpec};
use netplumb_report::printable;
use netplumb_sys::netns::Namespace;

use super::{EXACT, FUNCTIONS, Lab, MAX_FUNCTIONS, STAGES, TOLD_PACKETS};
use crate::commands::path::PathArgs;
use crate::exit::{CannotHere, Usage};

/// A time: a number with a unit, or of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "`{}` is no time: it takes 10s, 500ms or 2m",
            printable(text, 40)
        )
    };
    let at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    match seconds {
        s if !(0.01..=86_400.0).contains(&s) => Err("it takes from 10ms to 24h".to_string()),
        s => Ok(Duration::from_secs_f64(s)),
    }
}

/// A share: per cent, or a number up to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|n| n * factor);
    share
        .filter(|s| *s > 0.0 && *s <= 1.0)
        .ok_or_else(|| format!("`{}` is no share: it takes 5% or 0.05", printable(text, 40)))
}

/// An offload and its level.
pub(super) fn offload(text: &str) -> Result<(String, String), String> {
    let (name, level) = text
        .split_once('=')
        .ok_or("it takes NAME=on or NAME=off, like gro=on")?;
    let name: Offload = name.parse().map_err(|e| format!("{e}"))?;
    match level {
        "on" | "off" => Ok((name.to_string(), level.to_string())),
        other => Err(format!("`{}`: it takes on or off", printable(other, 40))),
    }
}

/// What can't be asked for together.
///
/// # Errors
/// It is: what to do instead.
pub(super) fn check(args: &PathArgs) -> anyhow::Result<()> {
    let live = &args.live;
    if live.lab != Lab::Vm && live.clock.is(EXACT) {
        return Err(CannotHere(
            "`exact` counts the instructions of a guest, never of this machine: use --lab vm, or \
             here --clock functions or stages"
                .into(),
        )
        .into());
    }
    let clashes = match live.lab {
        Lab::Vm => in_vm(args),
        Lab::Netns => in_netns(args),
        Lab::Host => in_host(args),
    };
    if let Some((option, why)) = clashes
        .into_iter()
        .chain(of_clock(args))
        .find(|(_, why)| why.is_some())
        .and_then(|(option, why)| Some((option, why?)))
    {
        return Err(Usage(format!("{option}: {why}")).into());
    }
    if args.show.for_programs() && live.watch {
        return Err(Usage("--watch is for people: leave out --json or --csv".into()).into());
    }
    if live.lab != Lab::Host
        && let Some(link) = args.link.iter().find(|l| **l == Link::Any)
    {
        return Err(Usage(format!(
            "--link {link}: it takes lo, veth, virtio-net, e1000, usb-net"
        ))
        .into());
    }
    Ok(())
}

/// Options that can't be there, each with the reason if it is.
type Clashes = Vec<(&'static str, Option<&'static str>)>;

const COST_OF_COMMAND: &str = "it needs packets that plumb sends: leave out the command";

fn in_vm(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let here = "it names something of this machine, which a guest does not see: use --lab host or \
                netns";
    let command = !args.command.is_empty();
    vec![
        ("--interface", live.interface.is_some().then_some(here)),
        ("--netns", live.netns.is_some().then_some(here)),
        ("--pid", live.pid.is_some().then_some(here)),
        ("--cgroup", live.cgroup.is_some().then_some(here)),
        (
            "--watch",
            live.watch.then_some("a guest says nothing while it is measured, so there is nothing to see before its end: leave it out, or use --lab netns or host"),
        ),
        (
            "--measure-cost",
            (live.measure_cost && command).then_some(COST_OF_COMMAND),
        ),
        (
            "--duration",
            (live.duration.is_some() && command).then_some("a command in a guest runs until it has ended: --timeout SECONDS, of our own clock, is the longest that it may take"),
        ),
        (
            "--seeds",
            args.options.seeds.is_some().then_some("it is for --clock exact"),
        ),
        (
            "--resume",
            args.options.resume.then_some("it is for --clock exact: measure again, into another file with --output"),
        ),
    ]
}

fn in_netns(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let mut clashes = of_this_kernel(args);
    let nics = args
        .link
        .iter()
        .any(|l| !matches!(l, Link::Lo | Link::Veth | Link::Any));
    let filtered = "the lab netns has namespaces of its own: it is for --lab host";
    clashes.extend([
        (
            "--link",
            nics.then_some("the lab netns has lo and veth; other links are in --lab vm"),
        ),
        ("--interface", live.interface.is_some().then_some(filtered)),
        ("--netns", live.netns.is_some().then_some(filtered)),
        (
            "--measure-cost",
            (live.measure_cost && !args.command.is_empty()).then_some(COST_OF_COMMAND),
        ),
    ]);
    clashes
}

fn in_host(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let sends = "the lab host sends nothing, it watches: use --lab netns, or `-- COMMAND` to make \
                 traffic";
    let mut clashes = of_this_kernel(args);
    clashes.extend([
        ("--link", (!args.link.is_empty()).then_some(sends)),
        ("--forward", args.forward.then_some(sends)),
        ("--bridge", live.bridge.then_some(sends)),
        ("--queues", live.queues.is_some().then_some(sends)),
        ("--offload", (!live.offload.is_empty()).then_some(sends)),
        ("--size", (!args.size.is_empty()).then_some(sends)),
        ("--mtu", (!args.mtu.is_empty()).then_some(sends)),
        ("--packets", args.packets.is_some().then_some(sends)),
        ("--warmup", args.warmup.is_some().then_some(sends)),
        ("--rate", live.rate.is_some().then_some(sends)),
        ("--stream", live.stream.then_some(sends)),
        ("--sysctl", (!args.sysctl.is_empty()).then_some(sends)),
        (
            "--measure-cost",
            live.measure_cost
                .then_some("it needs packets that are the same each time: use --lab netns"),
        ),
    ]);
    clashes
}

/// What a guest can have, and this machine has already.
fn of_this_kernel(args: &PathArgs) -> Clashes {
    let guests = "it is for guests: use --lab vm";
    vec![
        ("--kernel", (!args.kernel.is_empty()).then_some(guests)),
        ("--mitigations", args.mitigations.is_some().then_some(guests)),
        ("--cmdline", args.cmdline.is_some().then_some(guests)),
        ("--quick", args.options.quick.then_some(guests)),
        ("--cold", args.options.cold.then_some(guests)),
        ("--jobs", args.options.jobs.is_some().then_some(guests)),
        ("--seeds", args.options.seeds.is_some().then_some(guests)),
        (
            "--resume",
            args.options.resume.then_some("a clock of time does not go on where it was: measure again, into another file with --output"),
        ),
        ("--with", args.command.with_files().then_some(guests)),
        ("--peer", args.command.has_peer().then_some("in the labs host and netns start it yourself, or use --lab vm")),
        ("--stdin", args.command.takes_stdin().then_some("a command of the labs host and netns has our standard input anyhow")),
    ]
}

fn of_clock(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let stages = live.clock.is(STAGES);
    let selects = "stages have no functions to choose: use --clock functions";
    vec![
        (
            "--functions",
            (stages && !live.functions.is_empty()).then_some(selects),
        ),
        (
            "--from-recording",
            (stages && live.from_recording.is_some()).then_some(selects),
        ),
        ("--discover", (stages && live.discover).then_some(selects)),
        (
            "--max-functions",
            (stages && live.max_functions.is_some()).then_some(selects),
        ),
        (
            "--duration",
            (live.duration.is_some() && args.packets.is_some())
                .then_some("a block is over by time or by packets: leave out --packets, or this"),
        ),
    ]
}

/// What is asked under `--lab vm` with the clock `exact`, and only clocks of time take.
///
/// # Errors
/// It is asked: what to do instead.
pub(crate) fn check_exact(args: &PathArgs) -> anyhow::Result<()> {
    let live = &args.live;
    let asked = [
        ("--duration", live.duration.is_some()),
        ("--rate", live.rate.is_some()),
        ("--stream", live.stream),
        ("--port", live.port.is_some()),
        ("--address", live.address.is_some()),
        ("--interface", live.interface.is_some()),
        ("--netns", live.netns.is_some()),
        ("--pid", live.pid.is_some()),
        ("--cgroup", live.cgroup.is_some()),
        ("--functions", !live.functions.is_empty()),
        ("--from-recording", live.from_recording.is_some()),
        ("--discover", live.discover),
        ("--max-functions", live.max_functions.is_some()),
        ("--max-overhead", live.max_overhead.is_some()),
        ("--measure-cost", live.measure_cost),
        ("--one-packet", live.one_packet),
        ("--watch", live.watch),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((option, _)) => Err(Usage(format!(
            "{option} is for clocks of time: add --lab netns, --lab host, or --clock functions; \
             `exact` counts all of a guest's functions and packets"
        ))
        .into()),
        None => Ok(()),
    }
}

/// What the instrument is to do.
///
/// # Errors
/// A name that nothing here has, or a recording that can't be read.
pub(super) fn spec(args: &PathArgs) -> anyhow::Result<TimingSpec> {
    let live = &args.live;
    let mut filter = Filter {
        protos: args.proto.clone(),
        family: match args.family.as_slice() {
            [one] => Some(*one),
            _ => None,
        },
        port: live.port,
        address: live.address,
        pid: live.pid,
        ..Filter::default()
    };
    if filter.protos.contains(&Proto::Command) {
        return Err(Usage(
            "a command is no protocol: it is measured by `plumb path -- COMMAND`".into(),
        )
        .into());
    }
    if live.interface.is_some() || live.netns.is_some() {
        let within = match &live.netns {
            Some(name) => namespace(name)?,
            None => Namespace::current().context("find the own network namespace")?,
        };
        filter.namespaces = vec![within.inode().context("number a network namespace")?];
        if let Some(name) = &live.interface {
            filter.interface = Some(interface(name, &within)?);
        }
    }
    if let Some(pid) = live.pid
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(Usage(format!("--pid {pid}: there is no such process")).into());
    }
    if let Some(path) = &live.cgroup {
        filter.cgroup = Some(cgroup(path)?);
    }
    let recorded = match &live.from_recording {
        Some(path) => recorded(&netplumb_store::read(path)?),
        None => Vec::new(),
    };
    let layers: Vec<String> = args.show.layer().map(String::from).into_iter().collect();
    Ok(TimingSpec {
        instrument: live.clock().unwrap_or(FUNCTIONS).into(),
        roles: Roles::Calls,
        filter,
        selection: Selection {
            discover: live.discover,
            patterns: live.functions.clone(),
            layers,
            recorded,
            max_functions: live.max_functions.unwrap_or(MAX_FUNCTIONS),
            max_overhead: live.max_overhead.filter(|share| *share < 1.0),
        },
        mechanism: None,
        one_packet: if live.one_packet { TOLD_PACKETS } else { 0 },
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
    for timed in &recording.timed {
        add(timed.node, timed.corrected_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times and shares are read with their units, and nothing else is.
    #[test]
    fn units() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "10x", "-1", "0", "nan", "inf", "1e9h"] {
            // What it takes: 10s, or from 10ms on.
            assert!(duration(wrong).unwrap_err().contains("10"), "{wrong}");
        }
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.2"), Ok(0.2));
        assert_eq!(share("100%"), Ok(1.0));
        for wrong in ["", "%", "0", "101%", "2", "-5%"] {
            assert!(share(wrong).unwrap_err().contains("5%"), "{wrong}");
        }
        assert!(offload("gro=on").is_ok());
        assert!(offload("gro=1").unwrap_err().contains("on or off"));
        assert!(offload("speed=on").unwrap_err().contains("gro"));
    }
}
