//! Makes the engine's plans from an experiment.

use std::path::Path;
use std::time::Duration;

use netplumb_agent::bench::Nics;
use netplumb_engine::bench::BenchPlan;
use netplumb_engine::live::{Length, PacketPlan, RunsPlan, Source, TrafficPlan, WorkPlan};
use netplumb_engine::{GuestRun, Plan};
use netplumb_instruments::exact::Sampling;
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::bench::BenchArm;
use netplumb_model::class::{Link, Proto};
use netplumb_model::events;
use netplumb_model::experiment::{DURATION, Experiment, Kind, Lab, files};
use netplumb_model::recording::Arm;
use netplumb_report::printable;

use super::command::{Machine, Words};
use super::frames::Guests;
use super::how::How;
use super::{machine as own, spec};
use crate::args::live::EXACT;
use crate::exit::{Usage, WrongKey};

/// Duration of a window of other traffic.
const WINDOW: Duration = Duration::from_millis(500);
/// A profile of some duration has as many windows, of a second or longer; a short one has the
/// fewest.
const WINDOWS: u32 = 20;
const FEWEST_WINDOWS: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);
/// Windows that somebody watches: a second at first, and later a hundredth of the time since the start.
const WATCHED: Length = Length::Growing { shortest: SECOND, part: 100 };
/// Length of a block of frames, and of its warm-up.
const FRAMES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(200));
/// Connections that a guest opens before a command, as a warm-up.
const CONNECTIONS: u32 = 1;

/// Where the packets on this machine come from.
pub(super) fn source(experiment: &Experiment, how: &How<'_>) -> anyhow::Result<Source> {
    let (workload, filter) = (&experiment.workload, &experiment.filter);
    if workload.kind == Kind::Work {
        return Ok(Source::Work(work(experiment, how)?));
    }
    if let Kind::Traffic | Kind::Command = workload.kind {
        let within = match experiment.lab {
            Lab::Host => None,
            _ => Some(one_arm(experiment)?),
        };
        let duration = match (workload.duration, workload.command.is_empty()) {
            (None, true) => Some(DURATION),
            (asked, _) => asked.map(|time| time.0),
        };
        let count = experiment.block_count();
        // Counts of a whole run are a repetition; counts of a piece of one are not.
        let window = match duration {
            None if counts_events(experiment) => None,
            None => Some(WINDOW),
            Some(all) => Some(WINDOW.min(all / count)),
        };
        return Ok(Source::Traffic(TrafficPlan {
            duration,
            long: experiment.long().is_some(),
            window: workload.window.map(|time| time.0).or(window),
            command: workload.command.clone(),
            output_to_stderr: how.for_programs(),
            within,
            topologies: experiment.topologies.clone(),
            interface: filter.interface.clone(),
            namespace: filter.netns.clone(),
        }));
    }
    Ok(Source::Packets(PacketPlan {
        arms: experiment.arms(),
        topologies: experiment.topologies.clone(),
        blocks: experiment.block_count(),
        long: experiment.long(),
        block: experiment.block_time(),
        packets: workload.packets.unwrap_or(0),
        warmup_packets: workload.warmup_packets(),
        rate_pps: workload.rate,
        stream: workload.kind == Kind::Stream,
        measure_cost: experiment.probes.measure_cost,
    }))
}

/// Work of this machine's CPUs; the arm's name tells whose.
fn work(experiment: &Experiment, how: &How<'_>) -> anyhow::Result<WorkPlan> {
    let (workload, filter) = (&experiment.workload, &experiment.filter);
    let cgroup = match &filter.cgroup {
        Some(path) => Some(spec::cgroup(Path::new(path))?.0),
        None => None,
    };
    let name = match (filter.pid, &filter.cgroup, &workload.command[..]) {
        (Some(pid), ..) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            format!("process {pid} ({})", name.unwrap_or_default().trim_end())
        }
        (_, Some(path), _) => format!("cgroup {path}"),
        (.., []) => "all CPUs".into(),
        (.., words) => words.join(" "),
    };
    let duration = workload.duration.map(|time| time.0);
    // A run of a command is a repetition; a piece of one is not.
    let whole = counts_events(experiment) && !workload.command.is_empty() && duration.is_none();
    let whole = (whole && workload.window.is_none()) || experiment.has_knobs();
    let length = match (workload.window, duration, how.watch) {
        (Some(time), ..) => Length::Each(time.0),
        (_, None, false) => Length::UNWATCHED,
        (_, Some(short), _) if short < FEWEST_WINDOWS * SECOND => {
            Length::Each(short / FEWEST_WINDOWS)
        }
        (_, _, true) => WATCHED,
        (_, Some(all), _) => Length::Each(SECOND.max(all / WINDOWS)),
    };
    let mut plan = WorkPlan {
        name,
        duration,
        length,
        rolling: false,
        runs: None,
        command: workload.command.clone(),
        output_to_stderr: how.for_programs(),
        pid: filter.pid,
        cgroup,
    };
    if whole {
        plan.runs = Some(RunsPlan {
            blocks: experiment.block_count(),
            arms: own::arms(experiment, &plan, how)?,
        });
    }
    Ok(plan)
}

/// Whether events are counted.
fn counts_events(experiment: &Experiment) -> bool {
    let mut named = experiment.instruments.iter().flatten();
    named.any(|name| name == events::INSTRUMENT)
}

fn one_arm(experiment: &Experiment) -> anyhow::Result<Arm> {
    let mut arms = experiment.arms().into_iter();
    match (arms.next(), arms.next()) {
        (Some(arm), None) => Ok(arm),
        (None, _) => Err(Usage("the experiment has no arm".into()).into()),
        (Some(_), Some(_)) => {
            let why = "a command can be compared in lab vm only; measure each arm by itself, and \
                       compare the recordings with `plumb diff`";
            Err(Usage(why.into()).into())
        }
    }
}

/// Packets in guests.
pub(super) fn guests(experiment: &Experiment) -> GuestRun {
    GuestRun {
        long: experiment.long(),
        measure_cost: experiment.probes.measure_cost,
        rate_pps: experiment.workload.rate,
        stream: experiment.workload.kind == Kind::Stream,
        block_ns: experiment.block_time().map(|time| time.as_nanos() as u64),
        ..GuestRun::exact(Plan::from_experiment(experiment))
    }
}

/// How samples are drawn in guests.
pub(super) fn sampling(experiment: &Experiment) -> Sampling {
    Sampling { period: experiment.samples.period(), seeds: experiment.samples.seeds() }
}

/// Knobs of packets that plumb sends; not of a command in a guest.
const OF_PACKETS: [&str; 4] = ["mtu_bytes", "bridge", "queues", "offload"];
/// Knobs that are recorded of an arm of a command in a guest.
const OF_COMMANDS: [&str; 12] = [
    "topology",
    "command",
    "kernel",
    "arch",
    "mitigations",
    "cmdline",
    "module",
    "load",
    "disk",
    "scheduler",
    "nr_requests",
    "read_ahead_kb",
];

/// The guests of a command, where nothing is measured yet.
pub(super) fn machine(experiment: &Experiment) -> anyhow::Result<Machine> {
    let workload = &experiment.workload;
    let compares = !(experiment.arms.is_empty() && experiment.vary.is_empty());
    let mut arms = Vec::new();
    for mut arm in experiment.arms() {
        let set = |key: &str| arm.knobs.contains_key(key) || arm.table(key).next().is_some();
        if let Some(key) = OF_PACKETS.iter().find(|key| set(key)) {
            let why =
                "can't be used with a command in the vm lab: it is for packets that plumb sends";
            return Err(WrongKey::usage(*key, format!("{key} {why}")).into());
        }
        let words = match arm.knobs.get("command") {
            Some(line) => shell_words::split(line)
                .map_err(|why| WrongKey::usage("command", format!("invalid command: {why}")))?,
            None => workload.command.clone(),
        };
        if words.is_empty() {
            let why = format!(
                "arm `{}` has no command: set it in [workload], or in [knobs] of the arm",
                printable(&arm.name, 80)
            );
            return Err(WrongKey::usage("command", why).into());
        }
        if !compares {
            arm.name = words.join(" ");
        }
        arm.knobs
            .retain(|key, _| key.starts_with("sysctl.") || OF_COMMANDS.contains(&key.as_str()));
        if let Some(line) = &workload.peer {
            arm.knobs.insert("peer".into(), line.clone());
        }
        (arm.proto, arm.size_bytes) = (Proto::Command, 0);
        arms.push(Words { arm, words });
    }
    Ok(Machine {
        arms,
        warmup: workload.connections.unwrap_or(CONNECTIONS),
        blocks: experiment.block_count(),
        exact: false,
        sampling: None,
        trace: None,
        timed: Vec::new(),
    })
}

fn bench_arms(experiment: &Experiment) -> anyhow::Result<Vec<BenchArm>> {
    let arms = experiment.bench_arms();
    arms.map_err(|(key, why)| WrongKey::usage(key, why).into())
}

/// Frames along data paths.
pub(super) fn frames(experiment: &Experiment, how: &How<'_>) -> anyhow::Result<BenchPlan> {
    let blocks = &experiment.blocks;
    Ok(BenchPlan {
        arms: bench_arms(experiment)?,
        named: experiment.arms(),
        blocks: experiment.block_count(),
        window: blocks.time.map_or(FRAMES.0, |time| time.0),
        warmup: blocks.warmup.map_or(FRAMES.1, |time| time.0),
        search: blocks.search,
        nics: experiment.nics.as_ref().map(|nics| Nics {
            nic: nics.nic.clone(),
            from: nics.from.clone(),
            to: nics.to.clone(),
            sink: nics.sink.clone(),
            yes_change: how.yes_change.to_vec(),
            even_default_route: how.even_default_route,
        }),
    })
}

/// Work of guests for frames.
pub(super) fn beside_frames(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
) -> anyhow::Result<Guests> {
    let asks = |name: &str| experiment.explain || asked.iter().any(|i| i.name() == name);
    let link = bench_arms(experiment)?.first().map(|arm| arm.link);
    let vary = experiment.vary.get("load");
    let load = vary.first().copied().or_else(|| experiment.knobs.get("load"));
    Ok(Guests {
        rates: experiment.lab == Lab::Vm,
        count: asks(EXACT),
        beside: asks(registry::BESIDE_RATES.name()),
        link: link.unwrap_or(Link::Veth),
        kernel: match experiment.vary.get("kernel").first() {
            Some(kernel) => kernel.to_string(),
            None => experiment.knobs.read("kernel").unwrap_or_default(),
        },
        load: files(load.unwrap_or_default()).map(String::from).collect(),
    })
}
