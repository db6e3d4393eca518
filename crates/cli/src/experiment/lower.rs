//! Makes the engine's plans from an experiment.

use std::path::Path;
use std::time::Duration;

use netplumb_engine::bench::{BenchPlan, Nics};
use netplumb_engine::live::{PacketPlan, Source, TrafficPlan, WorkPlan};
use netplumb_engine::{GuestRun, Plan};
use netplumb_instruments::exact::Sampling;
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::bench::BenchArm;
use netplumb_model::class::Link;
use netplumb_model::experiment::{Experiment, Kind, Lab};
use netplumb_model::recording::Arm;

use super::command::Machine;
use super::frames::Guests;
use super::how::How;
use super::spec;
use crate::args::live::EXACT;
use crate::exit::{Usage, WrongKey};

/// Total measuring time on this machine, by default.
const DURATION: Duration = Duration::from_secs(5);
/// Duration of a window of other traffic.
const WINDOW: Duration = Duration::from_millis(500);
/// A profile of some duration has as many windows, of a second or longer; a short one has the
/// fewest.
const WINDOWS: u32 = 20;
const FEWEST_WINDOWS: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);
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
        let window = duration.map_or(WINDOW, |all| WINDOW.min(all / count));
        return Ok(Source::Traffic(TrafficPlan {
            duration,
            window: workload.window.map_or(window, |time| time.0),
            command: workload.command.clone(),
            output_to_stderr: how.for_programs(),
            within,
            interface: filter.interface.clone(),
            namespace: filter.netns.clone(),
        }));
    }
    let arms = experiment.arms();
    let blocks = experiment.block_count();
    let probes = &experiment.probes;
    let instruments = experiment.instruments.as_ref().map_or(1, Vec::len) as u32;
    let turns = instruments.max(1) + u32::from(probes.measure_cost);
    let each = arms.len() as u32 * blocks * turns;
    let time = experiment.blocks.time.map(|time| time.0);
    Ok(Source::Packets(PacketPlan {
        arms,
        blocks,
        block: match workload.packets {
            Some(_) => None,
            None => Some(time.unwrap_or(DURATION / each.max(1))),
        },
        packets: workload.packets.unwrap_or(0),
        warmup_packets: workload.warmup_packets(),
        rate_pps: workload.rate,
        stream: workload.kind == Kind::Stream,
        measure_cost: probes.measure_cost,
    }))
}

/// Work of this machine's CPUs, which is named after what it is of.
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
    let window = duration.map(|all| match all {
        long if long >= WINDOWS * SECOND => long / WINDOWS,
        short if short >= FEWEST_WINDOWS * SECOND => SECOND,
        shorter => shorter / FEWEST_WINDOWS,
    });
    Ok(WorkPlan {
        name,
        duration,
        window: workload.window.map(|time| time.0).or(window),
        command: workload.command.clone(),
        output_to_stderr: how.for_programs(),
        pid: filter.pid,
        cgroup,
    })
}

fn one_arm(experiment: &Experiment) -> anyhow::Result<Arm> {
    let arm = experiment.arms().into_iter().next();
    arm.ok_or_else(|| Usage("the experiment has no arm".into()).into())
}

/// Packets in guests.
pub(super) fn guests(experiment: &Experiment) -> GuestRun {
    let time = experiment.blocks.time;
    GuestRun {
        measure_cost: experiment.probes.measure_cost,
        rate_pps: experiment.workload.rate,
        stream: experiment.workload.kind == Kind::Stream,
        block_ns: time.map(|time| time.0.as_nanos() as u64),
        ..GuestRun::exact(Plan::of(experiment))
    }
}

/// How samples are drawn in guests.
pub(super) fn sampling(experiment: &Experiment) -> Sampling {
    Sampling {
        period: experiment.samples.period(),
        seeds: experiment.samples.seeds(),
    }
}

/// The guest of a command, where nothing is measured yet.
pub(super) fn machine(experiment: &Experiment) -> anyhow::Result<Machine> {
    let arm = one_arm(experiment)?;
    let fixed = ["mtu_bytes", "bridge", "queues", "offload"];
    let set = |key: &str| arm.knobs.contains_key(key) || arm.table(key).next().is_some();
    if let Some(key) = fixed.iter().find(|key| set(key)) {
        let why = "can't be used with a command in the vm lab: it is for packets that plumb sends";
        return Err(WrongKey::usage(*key, format!("{key} {why}")).into());
    }
    Ok(Machine {
        link: arm.link,
        family: arm.family,
        forward: arm.forward,
        kernel: arm.read("kernel").unwrap_or_default(),
        mitigations: arm.is_on("mitigations"),
        cmdline: arm.read("cmdline").unwrap_or_default(),
        sysctl: (arm.table("sysctl"))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        warmup: experiment.workload.connections.unwrap_or(CONNECTIONS),
        blocks: experiment.block_count(),
        exact: false,
        sampling: None,
        timed: None,
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

/// What guests have to do for frames.
pub(super) fn beside_frames(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
) -> anyhow::Result<Guests> {
    let asks = |name: &str| experiment.explain || asked.iter().any(|i| i.name() == name);
    let link = bench_arms(experiment)?.first().map(|arm| arm.link);
    Ok(Guests {
        rates: experiment.lab == Lab::Vm,
        count: asks(EXACT),
        beside: asks(registry::BESIDE_RATES.name()),
        link: link.unwrap_or(Link::Veth),
        kernel: match experiment.vary.get("kernel").first() {
            Some(kernel) => kernel.to_string(),
            None => experiment.knobs.read("kernel").unwrap_or_default(),
        },
    })
}
