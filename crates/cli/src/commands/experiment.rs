//! An experiment, carried out: whatever a file or a command line asks for comes here, and is
//! lowered to what the engine takes. Nothing else knows the engine's plans.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use netplumb_engine::Plan;
use netplumb_engine::bench::{BenchPlan, Nics};
use netplumb_engine::live::{GuestTiming, LivePlan, PacketPlan, Source, TrafficPlan};
use netplumb_model::bench::BenchArm;
use netplumb_model::class::{Direction, Link};
use netplumb_model::experiment::{Experiment, Filter, Functions, Kind, Lab, Probes};
use netplumb_model::recording::Arm;
use netplumb_model::text::counted;
use netplumb_model::timing::{Clock, TimingSpec};

use super::bench::{Format, Guests};
use super::command::Machine;
use super::live;
use super::page::PageArgs;
use super::report::{ShowArgs, show};
use crate::exit::{CannotHere, Failure, Usage, told};
use crate::recorder::{Outcome, RunOptions, record};

/// What there is to measure with.
pub(crate) const INSTRUMENTS: &[&str] = &["exact", "functions", "stages", "samples", "rates"];

/// How long packets go in all in the lab netns, and traffic is watched, where nothing is said.
const DURATION: Duration = Duration::from_secs(5);
/// How long a window over others' traffic is.
const WINDOW: Duration = Duration::from_millis(500);
/// How long a block of frames is, and how long they run before.
const FRAMES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(200));
/// Connections of a guest's own before a command.
const CONNECTIONS: u32 = 1;
/// What following packets may take of the work where nothing is said.
const MAX_OVERHEAD: f64 = 0.05;

/// What is shown of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// What `plumb report` shows, of these directions.
    Report(&'a ShowArgs, &'a [Direction]),
    /// Rates.
    Rates(Format),
}

/// How it is run, apart from what.
#[derive(Debug)]
pub(crate) struct How<'a> {
    /// The experiment's file, as it was read; empty of a command line.
    pub(crate) text: &'a str,
    pub(crate) shown: Shown<'a>,
    pub(crate) page: &'a PageArgs,
    pub(crate) options: RunOptions,
    /// Whether figures are shown as they come.
    pub(crate) watch: bool,
    /// Whether our standard input is a command's.
    pub(crate) stdin: bool,
    /// Interfaces of this machine that may be changed.
    pub(crate) yes_change: &'a [String],
    /// Even if the default route is over one of them.
    pub(crate) even_default_route: bool,
}

impl How<'_> {
    /// Whether what is shown is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        match self.shown {
            Shown::Report(show, _) => show.for_programs(),
            Shown::Rates(format) => !matches!(format, Format::Text { .. }),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        self.page.check()?;
        match self.shown {
            Shown::Report(show, _) => show.check(),
            Shown::Rates(_) => Ok(()),
        }
    }
}

/// Check, measure and show.
///
/// # Errors
/// What can't be carried out, and what kept it from measuring.
pub(crate) fn run(
    experiment: &Experiment,
    mut how: How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    experiment.check().map_err(|(_, why)| Usage(why))?;
    let (lab, kind) = (experiment.lab, experiment.workload.kind);
    how.check()?;
    how.options.seeds = experiment.blocks.seeds;
    let instrument = instrument(experiment)?;
    if kind == Kind::Frames {
        let (plan, guests) = (frames(experiment, &how)?, guests(experiment)?);
        return super::bench::run_plan(&plan, &guests, &experiment.name, &how, cache);
    }
    match (lab, clock(experiment, instrument)?) {
        (Lab::Vm, None | Some(Clock::Exact)) => {
            check_exact(experiment)?;
            if kind == Kind::Command {
                let machine = machine(experiment, None)?;
                return super::command::run(experiment, machine, &how, cache);
            }
            let plan = Plan::of(experiment);
            let outcome = record(&plan, &experiment.name, how.text, &how.options, cache)?;
            finish(outcome, &how)
        }
        (Lab::Vm, clock) => {
            let mut spec = live::spec(experiment, clock)?;
            if spec.clock == Clock::Stages {
                spec.selection.max_overhead = stages_share(experiment);
            }
            if kind == Kind::Command {
                let machine = machine(experiment, Some(spec))?;
                return live::command(experiment, machine, &how, cache);
            }
            live::in_guests(experiment, &timing(experiment, spec), &how, cache)
        }
        (Lab::Netns | Lab::Host, clock) => {
            live::check_rights(lab)?;
            let spec = live::spec(experiment, clock)?;
            let source = source(experiment, &how)?;
            let share = stages_share(experiment);
            live::run(
                experiment,
                &LivePlan { spec, source },
                (clock, share),
                &how,
                cache,
            )
        }
    }
}

/// The instrument that is asked for, if it is not left to the lab.
fn instrument(experiment: &Experiment) -> anyhow::Result<Option<&str>> {
    let kind = experiment.workload.kind;
    let names = experiment.instruments.as_deref().unwrap_or_default();
    let name = match names {
        [] => return Ok(None),
        [one] => one.as_str(),
        several => {
            return Err(CannotHere(format!(
                "one instrument measures in a run so far, and this experiment names {}: leave one",
                several.join(", ")
            ))
            .into());
        }
    };
    let frames = kind == Kind::Frames;
    if name == "samples" {
        return Err(
            CannotHere("`samples` can't measure yet: use stages or functions".into()).into(),
        );
    }
    if frames != (name == "rates") {
        let why = match frames {
            true => format!("`{name}` can't measure frames yet: they are for `rates`"),
            false => format!("`rates` measures frames, and this workload is of kind {kind}"),
        };
        return Err(CannotHere(why).into());
    }
    Ok(Some(name))
}

/// The clock that is asked for, if it is not left to the lab.
fn clock(experiment: &Experiment, instrument: Option<&str>) -> anyhow::Result<Option<Clock>> {
    let clock = match instrument {
        // Who chooses functions means that clock.
        None if !experiment.functions.is_empty() => Some(Clock::Functions),
        None => None,
        Some(name) => name.parse().ok(),
    };
    if clock == Some(Clock::Exact) && experiment.lab != Lab::Vm {
        return Err(CannotHere(
            "`exact` counts the instructions of a guest, never of this machine: use --lab vm, or \
             here --clock functions or stages"
                .into(),
        )
        .into());
    }
    if clock == Some(Clock::Stages) && !experiment.functions.is_empty() {
        let why = "stages have no functions to choose: use --clock functions";
        return Err(Usage(why.into()).into());
    }
    Ok(clock)
}

/// What only clocks of time take.
fn check_exact(experiment: &Experiment) -> anyhow::Result<()> {
    let Experiment {
        workload,
        blocks,
        filter,
        functions,
        probes,
        ..
    } = experiment;
    let asked = [
        ("kind = \"stream\"", workload.kind == Kind::Stream),
        ("rate", workload.rate.is_some()),
        ("time", blocks.time.is_some()),
        ("duration", workload.duration.is_some()),
        ("[filter]", *filter != Filter::default()),
        ("[functions]", *functions != Functions::default()),
        ("[probes]", *probes != Probes::default()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((key, _)) => Err(Usage(format!(
            "{key} is for instruments that read a clock (functions, stages): `exact` counts all of \
             a guest's functions and packets, one packet at a time"
        ))
        .into()),
        None => Ok(()),
    }
}

/// The share of the work that following packets may take, if there is a limit.
fn stages_share(experiment: &Experiment) -> Option<f64> {
    // Our own packets are there to be measured; those of others have to go on, and
    // what that costs is what is asked.
    let probes = &experiment.probes;
    let limited = experiment.lab == Lab::Host || probes.measure_cost;
    let share = probes.max_overhead.map(|share| share.0);
    let share = share.or(limited.then_some(MAX_OVERHEAD));
    share.filter(|share| *share < 1.0)
}

/// What makes the packets on this machine.
fn source(experiment: &Experiment, how: &How<'_>) -> anyhow::Result<Source> {
    let (workload, filter) = (&experiment.workload, &experiment.filter);
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
    let each = arms.len() as u32 * blocks * if probes.measure_cost { 2 } else { 1 };
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

fn one_arm(experiment: &Experiment) -> anyhow::Result<Arm> {
    let arm = experiment.arms().into_iter().next();
    arm.ok_or_else(|| Usage("there is nothing to run".into()).into())
}

/// Packets in guests, under a clock of time.
fn timing(experiment: &Experiment, spec: TimingSpec) -> GuestTiming {
    let time = experiment.blocks.time;
    GuestTiming {
        plan: Plan::of(experiment),
        spec,
        measure_cost: experiment.probes.measure_cost,
        rate_pps: experiment.workload.rate,
        stream: experiment.workload.kind == Kind::Stream,
        block_ns: time.map(|time| time.0.as_nanos() as u64),
    }
}

/// The guest that a command runs in, and what is timed meanwhile.
fn machine(experiment: &Experiment, timed: Option<TimingSpec>) -> anyhow::Result<Machine> {
    let arm = one_arm(experiment)?;
    let fixed = ["mtu_bytes", "bridge", "queues", "offload"];
    let set = |key: &str| arm.knobs.contains_key(key) || arm.table(key).next().is_some();
    if let Some(key) = fixed.iter().find(|key| set(key)) {
        return Err(Usage(format!(
            "{key} is for packets that plumb sends: a command in the lab vm has its own; leave out \
             one or the other"
        ))
        .into());
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
        timed,
    })
}

fn bench_arms(experiment: &Experiment) -> anyhow::Result<Vec<BenchArm>> {
    let arms = experiment.bench_arms();
    arms.map_err(|(_, why)| Usage(why).into())
}

/// Frames along paths.
fn frames(experiment: &Experiment, how: &How<'_>) -> anyhow::Result<BenchPlan> {
    let blocks = &experiment.blocks;
    Ok(BenchPlan {
        arms: bench_arms(experiment)?,
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

/// What guests are for, where frames are measured.
fn guests(experiment: &Experiment) -> anyhow::Result<Guests> {
    let link = bench_arms(experiment)?.first().map(|arm| arm.link);
    Ok(Guests {
        rates: experiment.lab == Lab::Vm,
        explain: experiment.explain,
        link: link.unwrap_or(Link::Veth),
        kernel: match experiment.vary.get("kernel").first() {
            Some(kernel) => kernel.to_string(),
            None => experiment.knobs.read("kernel").unwrap_or_default(),
        },
    })
}

/// Show what was measured, and then tell what went wrong, if anything did.
///
/// # Errors
/// Nothing can be shown of it.
pub(crate) fn finish(outcome: Outcome, how: &How<'_>) -> anyhow::Result<ExitCode> {
    let Shown::Report(show_args, directions) = how.shown else {
        return Err(anyhow::Error::msg("rates are shown by their own"));
    };
    let shown = if outcome.recording.blocks.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        show(&outcome.recording, show_args, directions).and_then(|code| {
            how.page
                .write(&outcome.recording, directions, &show_args.arm)
                .map(|()| code)
        })
    };
    match outcome.error {
        Some(error) => {
            eprintln!("plumb: {}", told(&error));
            if !outcome.recording.blocks.is_empty() {
                eprintln!(
                    "plumb: measured before that, and shown above: {}",
                    counted(outcome.recording.blocks.len(), "block")
                );
            }
            Ok(ExitCode::from(Failure::of(&error).code()))
        }
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn asked(line: &str) -> Experiment {
        let words = std::iter::once("plumb").chain(line.split(' '));
        match Cli::try_parse_from(words).unwrap().command {
            Command::Path(args) => args.experiment().unwrap(),
            Command::Bench(command) => command.experiment().unwrap().unwrap(),
            _ => panic!("{line}: it asks for no experiment"),
        }
    }

    /// Check that what command lines ask for is an experiment that can be written as a file,
    /// and that the file asks for the same.
    #[test]
    fn command_lines_are_experiments() {
        for line in [
            "path",
            "path --proto udp,raw --size 10,1K --offload gro=on --offload gro=off --seeds 3",
            "path --sysctl net.core.x=1 --mitigations on --cmdline quiet --qdisc fq --qdisc-in rx",
            "path --lab netns --stream --rate 500 --duration 4s --bridge --queues 2",
            "path --lab netns --clock functions --functions ip_*,udp_* --max-overhead 10%",
            "path --lab host --proto tcp --port 80 --interface eth0 --duration 10s --one-packet",
            "path --lab host -- ping -c 1 192.0.2.1",
            "path --with data --peer nc --warmup 2 -- cat data",
            "bench drop --path xdp,tc --cores 1,2 --queues 1,2 --rate 250k,max --latency",
            "bench drop --lab vm --link e1000 --kernel debian --twice",
            "bench forward --nic a --from b --to c --sink d --search --time 2s",
            "bench drop --explain --kernel debian --plant ttl --frames icmp --family ipv6",
            "bench swap --path xdp-tx --swaps 10 --cores 2",
        ] {
            let experiment = asked(line);
            assert_eq!(experiment.check(), Ok(()), "{line}");
            let text = experiment.to_toml().unwrap();
            assert_eq!(Experiment::parse(&text), Ok(experiment), "{line}:\n{text}");
        }
    }

    /// Check what lines are lowered to: arms and their names, blocks, and how long they are.
    #[test]
    fn what_is_lowered() {
        let names = |line: &str| -> Vec<String> {
            let arms = asked(line).arms();
            arms.into_iter().map(|arm| arm.name).collect()
        };
        assert_eq!(names("path"), ["udp"]);
        assert_eq!(names("path --link lo"), ["udp"]);
        assert_eq!(names("path --proto udp,tcp --mtu 1400"), ["udp", "tcp"]);
        assert_eq!(names("bench drop --path xdp --twice"), ["xdp", "xdp again"]);
        let timed = asked("path --lab netns --proto udp,raw --duration 4s --measure-cost");
        assert_eq!(timed.block_count(), 10);
        let each = timed.blocks.time.map(|time| time.0);
        assert_eq!(each, Some(Duration::from_millis(100)));
        assert_eq!(timed.filter.proto.len(), 2);
        let bench = asked("bench forward --path route");
        assert_eq!(bench.block_count(), 5);
        assert!(bench.arms()[0].forward);
    }

    /// Check that an instrument that can't measure what is asked says so before anything runs.
    #[test]
    fn instruments_that_cannot() {
        let refused = |instruments: &str, rest: &str| {
            let text = format!("name = \"x\"\ninstruments = {instruments}\n{rest}");
            let experiment = Experiment::parse(&text).unwrap();
            let found = instrument(&experiment).and_then(|name| clock(&experiment, name));
            found.unwrap_err().to_string()
        };
        assert!(refused("[\"exact\", \"functions\"]", "").contains("exact, functions"));
        assert!(refused("[\"exact\"]", "lab = \"netns\"").contains("--lab vm"));
        assert!(refused("[\"rates\"]", "").contains("frames"));
        let frames = "lab = \"netns\"\n[workload]\nkind = \"frames\"";
        assert!(refused("[\"stages\"]", frames).contains("`rates`"));
        let chosen = "lab = \"netns\"\n[functions]\ndiscover = true";
        assert!(refused("[\"stages\"]", chosen).contains("no functions to choose"));
    }
}
