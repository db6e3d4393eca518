//! An experiment, carried out: whatever a file or a command line asks for comes here, and is
//! lowered to what the engine takes. Nothing else knows the engine's plans.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use netplumb_engine::bench::{BenchPlan, Nics};
use netplumb_engine::live::{LivePlan, PacketPlan, Source, TrafficPlan};
use netplumb_engine::{GuestRun, Plan};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::bench::BenchArm;
use netplumb_model::class::{Direction, Link};
use netplumb_model::experiment::{Experiment, Filter, Functions, Kind, Lab, Probes};
use netplumb_model::recording::Arm;
use netplumb_model::text::counted;
use netplumb_model::timing::TimingSpec;

use super::bench::{Format, Guests};
use super::command::Machine;
use super::live::{self, EXACT, FUNCTIONS, STAGES};
use super::page::PageArgs;
use super::report::{ShowArgs, show};
use crate::exit::{CannotHere, Failure, Usage, told};
use crate::recorder::{Outcome, RunOptions, record};

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

    /// Whether it is shown in a form that one instrument's figures have alone.
    fn is_one_output(&self) -> bool {
        let written = match self.shown {
            Shown::Report(show, _) => show.outputs.wanted(),
            Shown::Rates(_) => false,
        };
        written || self.for_programs() || self.page.wanted()
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
    let asked = instruments_of(experiment)?;
    if asked.len() > 1 && kind != Kind::Frames && how.is_one_output() {
        let why = "several instruments have no such output together: leave it out, and take it of \
                   one of them afterwards, with `plumb report FILE --clock CLOCK`";
        return Err(Usage(why.into()).into());
    }
    if kind == Kind::Frames {
        let (plan, guests) = (frames(experiment, &how)?, guests(experiment, &asked)?);
        return super::bench::run_plan(&plan, &guests, &experiment.name, &how, cache);
    }
    let counts = asked.is_empty() || asked.iter().any(|i| i.name() == EXACT);
    check_options(experiment, lab == Lab::Vm && counts, &how.options)?;
    if lab == Lab::Vm {
        return in_guests(experiment, &asked, &how, cache);
    }
    live::check_rights(lab)?;
    let specs = match asked.as_slice() {
        [] => vec![live::spec(experiment, FUNCTIONS)?],
        asked => specs(experiment, asked)?,
    };
    let source = source(experiment, &how)?;
    if let (Source::Traffic(_), [_, _, ..]) = (&source, specs.as_slice()) {
        let why = "traffic of others is watched by one instrument at a time: leave one";
        return Err(CannotHere(why.into()).into());
    }
    let by = (!asked.is_empty(), stages_share(experiment));
    live::run(experiment, &LivePlan { specs, source }, by, &how, cache)
}

/// In guests: counted, timed, or both, each in guests of its own.
fn in_guests(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let exact = asked.is_empty() || asked.iter().any(|i| i.name() == EXACT);
    let others: Vec<_> = asked
        .iter()
        .copied()
        .filter(|i| i.name() != EXACT)
        .collect();
    let timed = specs(experiment, &others)?;
    if experiment.workload.kind == Kind::Command {
        return match (exact, timed.as_slice()) {
            (true, []) => {
                check_exact(experiment)?;
                super::command::run(experiment, machine(experiment, None)?, how, cache)
            }
            (false, [spec]) => {
                let machine = machine(experiment, Some(spec.clone()))?;
                live::command(experiment, machine, how, cache)
            }
            _ => Err(CannotHere(
                "a command is measured by one instrument at a time: leave one".into(),
            )
            .into()),
        };
    }
    if exact {
        check_exact(experiment)?;
    }
    if !timed.is_empty() && experiment.blocks.seeds() > 1 {
        let why = "seeds are for `exact` alone: leave out the other instruments, or the seeds";
        return Err(Usage(why.into()).into());
    }
    let run = GuestRun {
        exact,
        timed,
        ..timing(experiment)
    };
    match run.timed.is_empty() {
        true => finish(
            record(&run, &experiment.name, how.text, &how.options, cache)?,
            how,
        ),
        false => live::in_guests(experiment, &run, how, cache),
    }
}

/// The instruments that are asked for; none if it is left to the lab.
fn instruments_of(experiment: &Experiment) -> anyhow::Result<Vec<&'static dyn Instrument>> {
    let (lab, kind) = (experiment.lab, experiment.workload.kind);
    let names = experiment.instruments.as_deref().unwrap_or_default();
    // Who chooses functions means that clock.
    let functions = [FUNCTIONS.to_string()];
    let names = match names {
        [] if !experiment.functions.is_empty() && kind != Kind::Frames => &functions,
        names => names,
    };
    let mut all: Vec<&'static dyn Instrument> = Vec::new();
    for name in names {
        // Files are checked for names where lines can be shown.
        let found =
            registry::find(name).ok_or_else(|| Usage(format!("`{name}` measures nothing")))?;
        let cannot = match kind {
            Kind::Frames => {
                let looks_on = [EXACT, registry::BESIDE_RATES.name()].contains(&name.as_str());
                let why = "`rates` measure frames, and `exact` and `samples` where their time goes";
                match found.unavailable(lab).filter(|_| looks_on && name != EXACT) {
                    Some((why, remedy)) => Some(cannot_in(name, lab, why, remedy)),
                    None => (found.is_clock() && !looks_on).then_some(why.to_string()),
                }
            }
            _ if !found.is_clock() => Some(format!(
                "`{name}` measures frames, and this workload is of kind {kind}"
            )),
            _ => (found.unavailable(lab)).map(|(why, remedy)| cannot_in(name, lab, why, remedy)),
        };
        if let Some(why) = cannot {
            return Err(CannotHere(why).into());
        }
        if ![EXACT, FUNCTIONS].contains(&name.as_str()) && !experiment.functions.is_empty() {
            let why = format!("{name} have no functions to choose: use --clock functions");
            return Err(Usage(why).into());
        }
        if all.iter().any(|one| one.name() == name) {
            return Err(Usage(format!("`{name}` is named twice")).into());
        }
        all.push(found);
    }
    Ok(all)
}

fn cannot_in(name: &str, lab: Lab, why: &str, remedy: &str) -> String {
    format!("`{name}` can't measure in the lab {lab}: {why}; {remedy}")
}

/// What each instrument is to do.
fn specs(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
) -> anyhow::Result<Vec<TimingSpec>> {
    let spec = |instrument: &&'static dyn Instrument| {
        let mut spec = live::spec(experiment, instrument.name())?;
        if instrument.name() == STAGES {
            spec.selection.max_overhead = stages_share(experiment);
        }
        Ok(spec)
    };
    asked.iter().map(spec).collect()
}

/// What is asked of guests, or of counting, where there is none.
fn check_options(
    experiment: &Experiment,
    counts: bool,
    options: &RunOptions,
) -> anyhow::Result<()> {
    let guests = experiment.lab == Lab::Vm;
    let again = "a clock of time does not go on where it was: measure again, into another file \
                 with --output";
    let counting = "it is for instructions (exact) in the lab vm";
    for (flag, given, why) in [
        ("--quick", options.quick && !guests, counting),
        ("--cold", options.cold && !guests, counting),
        ("--jobs", options.jobs.is_some() && !guests, counting),
        ("--resume", options.resume && !counts, again),
        (
            "--seeds",
            experiment.blocks.seeds() > 1 && !counts,
            counting,
        ),
    ] {
        if given {
            return Err(Usage(format!("{flag}: {why}")).into());
        }
    }
    Ok(())
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

fn one_arm(experiment: &Experiment) -> anyhow::Result<Arm> {
    let arm = experiment.arms().into_iter().next();
    arm.ok_or_else(|| Usage("there is nothing to run".into()).into())
}

/// Packets in guests.
fn timing(experiment: &Experiment) -> GuestRun {
    let time = experiment.blocks.time;
    GuestRun {
        measure_cost: experiment.probes.measure_cost,
        rate_pps: experiment.workload.rate,
        stream: experiment.workload.kind == Kind::Stream,
        block_ns: time.map(|time| time.0.as_nanos() as u64),
        ..GuestRun::exact(Plan::of(experiment))
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
fn guests(experiment: &Experiment, asked: &[&'static dyn Instrument]) -> anyhow::Result<Guests> {
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
        let found = |instruments: &str, rest: &str| {
            let text = format!("name = \"x\"\ninstruments = {instruments}\n{rest}");
            let experiment = Experiment::parse(&text).unwrap();
            let found = instruments_of(&experiment);
            found.map(|all| all.iter().map(|i| i.name()).collect::<Vec<_>>())
        };
        let refused =
            |instruments: &str, rest: &str| found(instruments, rest).unwrap_err().to_string();
        let both = found("[\"exact\", \"functions\"]", "").unwrap();
        assert_eq!(both, ["exact", "functions"]);
        let both = found("[\"stages\", \"samples\"]", "lab = \"netns\"").unwrap();
        assert_eq!(both, ["stages", "samples"]);
        assert!(refused("[\"exact\"]", "lab = \"netns\"").contains("--lab vm"));
        assert!(refused("[\"rates\"]", "").contains("frames"));
        assert!(refused("[\"exact\", \"exact\"]", "").contains("twice"));
        let frames = "lab = \"netns\"\n[workload]\nkind = \"frames\"";
        assert!(refused("[\"stages\"]", frames).contains("`rates`"));
        assert!(found("[\"rates\", \"samples\"]", frames).is_ok());
        let chosen = "lab = \"netns\"\n[functions]\ndiscover = true";
        assert!(refused("[\"stages\"]", chosen).contains("no functions to choose"));
    }
}
