//! `plumb path` under a clock of time: in namespaces of this machine, over its own
//! traffic, or in a guest.

mod ask;
mod cost;
mod rights;
mod view;
mod watch;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_engine::live::{
    self, LiveEvent, LiveOptions, LivePlan, PacketPlan, Source, TrafficPlan,
};
use netplumb_engine::{EngineError, GuestRun, run_in_guests};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::live::{Live, LiveError};
use netplumb_instruments::registry;
use netplumb_lab::vm::process::VmError;
use netplumb_model::message::Exit;
use netplumb_model::recording::Arm;
use netplumb_model::text::counted;
use netplumb_model::timing::{INSTRUCTIONS, OWN_TIME, STAGE_TIME, TimingSpec};
use netplumb_report::printable;

use super::path::PathArgs;
use crate::exit::Usage;
use crate::recorder::{Outcome, record_by};
pub(crate) use ask::{check_exact, duration};
use watch::Watcher;

/// Where packets run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lab {
    /// This machine's own traffic
    Host,
    /// Network namespaces of this machine, joined by veth
    Netns,
    /// A QEMU guest that boots any kernel
    Vm,
}

/// The instrument that is asked for; none where it is left to us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedClock(pub(super) Option<&'static dyn Instrument>);

impl AskedClock {
    /// Whether one of this name is asked for.
    pub(super) fn is(self, name: &str) -> bool {
        self.0.is_some_and(|instrument| instrument.name() == name)
    }

    /// As clap takes it: the names that there are, with a line of help each.
    fn parser() -> impl TypedValueParser<Value = AskedClock> {
        let auto = PossibleValue::new(AUTO).help(
            "In the vm lab exact; elsewhere functions where the kernel lets them be timed, else \
             stages",
        );
        let clocks = registry::ALL.into_iter().filter(|i| i.is_clock());
        let clocks = clocks.map(|i| PossibleValue::new(i.name()).help(i.about()));
        PossibleValuesParser::new([auto].into_iter().chain(clocks))
            .map(|name| AskedClock(registry::find(&name)))
    }
}

/// What leaves the choice to us.
const AUTO: &str = "auto";

/// The lab, its clock, and what only clocks of time take.
#[derive(Debug, Args)]
#[command(next_help_heading = "Labs and clocks")]
pub(crate) struct LiveArgs {
    /// Where packets run
    #[arg(long, value_enum, value_name = "LAB", default_value = "vm")]
    pub(crate) lab: Lab,
    /// What is measured with
    #[arg(long, value_parser = AskedClock::parser(), value_name = "CLOCK", default_value = AUTO)]
    pub(crate) clock: AskedClock,
    /// How long to measure in all, like 10s or 500ms [default: 5s, of a command as long as it runs]
    #[arg(long, value_name = "TIME", value_parser = ask::duration)]
    pub(crate) duration: Option<Duration>,
    /// Packets a second, at most
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) rate: Option<u32>,
    /// Send without waiting for packets to arrive, by a thread of its own
    #[arg(long)]
    pub(crate) stream: bool,
    /// A bridge between the ends
    #[arg(long, conflicts_with = "forward")]
    pub(crate) bridge: bool,
    /// Queues of each veth device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) queues: Option<u32>,
    /// An offload of every device on the path, like gro=on; again for more, and with the other
    /// level of the same to compare them
    #[arg(long, value_name = "NAME=on|off", value_parser = ask::offload)]
    pub(crate) offload: Vec<(String, String)>,
    /// Only packets with this port at either end
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Only packets with this address at either end
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Only packets on this device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) interface: Option<String>,
    /// Only in this network namespace: a name of `ip netns`, a process, or a path
    #[arg(long, value_name = "NAME|PID|PATH")]
    pub(crate) netns: Option<String>,
    /// Only calls of this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only tasks of this cgroup (version 2): its path
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Functions to be timed, with * for any letters; again for more
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) functions: Vec<String>,
    /// Time the functions that this recording saw
    #[arg(long, value_name = "FILE")]
    pub(crate) from_recording: Option<PathBuf>,
    /// Time the functions that take a packet, from the kernel's type information [default,
    /// if no functions are named]
    #[arg(long)]
    pub(crate) discover: bool,
    /// Time at most so many functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) max_functions: Option<u32>,
    /// Let measuring take no more than this share of the work, like 5%: functions are shed,
    /// stages are followed with pauses [default: of stages on the host, or with
    /// --measure-cost, 5%; 100% is no limit]
    #[arg(long, value_name = "SHARE", value_parser = ask::share)]
    pub(crate) max_overhead: Option<f64>,
    /// Run every block with and without probes, and tell what measuring costs
    #[arg(long)]
    pub(crate) measure_cost: bool,
    /// Tell one packet's way step by step, beside the figures: `--perfetto OUT` makes a trace
    /// of it
    #[arg(long)]
    pub(crate) one_packet: bool,
    /// Show figures as they come, in the labs host and netns; q ends
    #[arg(long)]
    pub(crate) watch: bool,
}

impl LiveArgs {
    /// Whether a clock of time is asked for.
    pub(crate) fn wanted(&self) -> bool {
        self.lab != Lab::Vm || (self.clock.0.is_some() && !self.clock.is(EXACT))
    }

    /// The clock that is meant, if it is not left to the machine.
    fn clock(&self) -> Option<&'static str> {
        match self.clock.0 {
            Some(instrument) => Some(instrument.name()),
            // Who names functions means that clock.
            None if self.selects() => Some(FUNCTIONS),
            None => None,
        }
    }

    /// Whether functions are chosen.
    fn selects(&self) -> bool {
        !self.functions.is_empty()
            || self.from_recording.is_some()
            || self.discover
            || self.max_functions.is_some()
    }

    /// The share of the work that following packets may take, if there is a limit.
    fn stages_share(&self) -> Option<f64> {
        // Our own packets are there to be measured; those of others have to go on, and
        // what that costs is what is asked.
        let default = (self.lab == Lab::Host || self.measure_cost).then_some(MAX_OVERHEAD);
        let share = self.max_overhead.or(default);
        share.filter(|share| *share < 1.0)
    }
}

/// Instruments of which something is to be said here.
const EXACT: &str = INSTRUCTIONS.instrument;
const FUNCTIONS: &str = OWN_TIME.instrument;
const STAGES: &str = STAGE_TIME.instrument;
/// How long is measured where nothing is said.
const DURATION: Duration = Duration::from_secs(5);
/// Blocks of each arm.
const BLOCKS: u32 = 10;
/// How long a window over others' traffic is.
const WINDOW: Duration = Duration::from_millis(500);
/// Packets that are told one by one.
const TOLD_PACKETS: u32 = 1;
/// What following packets may take of the work where nothing is said.
const MAX_OVERHEAD: f64 = 0.05;
/// Functions that are timed where nothing is said.
const MAX_FUNCTIONS: u32 = 100;

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    ask::check(&args)?;
    args.show.check()?;
    args.page.check()?;
    if args.live.lab == Lab::Vm {
        return in_guests(args, cache);
    }
    rights::check(args.live.lab)?;
    let spec = ask::spec(&args)?;
    let source = source(&args)?;
    let measures_cost = args.live.measure_cost;
    let plan = LivePlan {
        specs: vec![spec],
        source,
    };
    let asked = args.live.clock();
    let chosen: Cell<Option<&'static str>> = Cell::new(asked);
    let mut end = live::LiveEnd::default();
    let mut empty = None;
    let outcome = record_by(
        |engine, recording, save, teller| {
            let layers = &engine.layers;
            let layer =
                |name: &str, module: Option<&str>| layers.layer(name, module).map(String::from);
            let notes = RefCell::new(Vec::new());
            let attach = |spec: &TimingSpec| -> Result<(&'static str, Box<dyn Live>), LiveError> {
                let by = |clock: &'static str| {
                    let mut spec = TimingSpec {
                        instrument: clock.into(),
                        ..spec.clone()
                    };
                    if clock == STAGES {
                        spec.selection.max_overhead = args.live.stages_share();
                    }
                    registry::attach(&spec, &layer).map(|live| (clock, live))
                };
                if let Some(clock) = chosen.get() {
                    return by(clock);
                }
                let [first, second] = registry::PREFERRED.map(Instrument::name);
                match by(first) {
                    Ok(attached) => {
                        chosen.set(Some(first));
                        Ok(attached)
                    }
                    Err(LiveError::CannotRun { reason, .. }) => {
                        notes.borrow_mut().push(format!(
                            "the clock is `{second}`: {first} can't be timed here: {reason}"
                        ));
                        chosen.set(Some(second));
                        by(second)
                    }
                    Err(error) => Err(error),
                }
            };
            let options = LiveOptions {
                layers,
                attach: &attach,
                cancel: &engine.cancel,
                seed: live::random_seed(),
            };
            let mut watcher = Watcher::start(args.live.watch, &engine.cancel, teller);
            let mut told_arm = false;
            let result = live::run_live(&plan, &options, recording, &mut *save, &mut |event| {
                for note in notes.borrow_mut().drain(..) {
                    watcher.note(teller, &note);
                }
                match event {
                    LiveEvent::Note(note) => watcher.note(teller, &note),
                    LiveEvent::Named(run) => {
                        watcher.note(teller, &format!("namespaces: {run}-*, for `ip netns exec`"));
                    }
                    LiveEvent::Attached(attached) => {
                        if !std::mem::replace(&mut told_arm, true) {
                            watcher.note(teller, &attached_line(chosen.get(), attached));
                        }
                    }
                    LiveEvent::Block(recording, done, all) => {
                        watcher.block(recording, done, all, teller);
                    }
                }
            });
            let ended_by_key = watcher.stop();
            match result {
                Err(EngineError::Vm(VmError::Interrupted))
                    if ended_by_key
                        && recording.blocks.is_empty()
                        && args.live.lab == Lab::Host =>
                {
                    empty = Some(());
                    Err(EngineError::NothingSeen { command: None })
                }
                // Who has seen enough ends it: that is no interruption.
                Err(EngineError::Vm(VmError::Interrupted))
                    if ended_by_key && !recording.blocks.is_empty() =>
                {
                    recording.complete = true;
                    save(recording).map_err(EngineError::Save)
                }
                Ok(ended) => {
                    end = ended;
                    Ok(())
                }
                Err(EngineError::NothingSeen { command }) => {
                    end.command = command;
                    empty = Some(());
                    Err(EngineError::NothingSeen { command })
                }
                Err(error) => Err(error),
            }
        },
        "path",
        "",
        &args.options,
        cache,
    )?;
    if empty.is_some() {
        tell_end(&args, end);
        return Err(anyhow::Error::msg(nothing_seen(&args)));
    }
    if measures_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, args.show.for_programs());
    }
    let code = finish(outcome, &args)?;
    let failed = tell_end(&args, end);
    Ok(if code == ExitCode::SUCCESS && failed {
        ExitCode::FAILURE
    } else {
        code
    })
}

/// What stands, in a line.
fn attached_line(clock: Option<&str>, attached: &netplumb_model::timing::Attached) -> String {
    let clock = clock.map_or_else(String::new, |c| format!("the clock is `{c}`"));
    let ms = attached.attach_ns as f64 / 1e6;
    match attached.functions.len() {
        0 => format!("{clock}, attached in {ms:.0} ms"),
        n => format!(
            "{clock}: {}, attached in {ms:.0} ms",
            counted(n, "function")
        ),
    }
}

/// Show what was measured under a clock of time, and then tell what went wrong.
fn finish(outcome: Outcome, args: &PathArgs) -> anyhow::Result<ExitCode> {
    super::path::finish(outcome, &args.show, &args.page, &args.direction)
}

/// What makes the packets.
fn source(args: &PathArgs) -> anyhow::Result<Source> {
    let live = &args.live;
    let command = args.command.words();
    if live.lab == Lab::Host || !command.is_empty() {
        let within = match live.lab {
            Lab::Host => None,
            _ => Some(one_arm(args)?),
        };
        let duration = match (live.duration, command.is_empty()) {
            (None, true) => Some(DURATION),
            (asked, _) => asked,
        };
        return Ok(Source::Traffic(TrafficPlan {
            duration,
            window: duration.map_or(WINDOW, |d| WINDOW.min(d / args.blocks.unwrap_or(1).max(1))),
            command: command.to_vec(),
            output_to_stderr: args.show.for_programs(),
            within,
            interface: live.interface.clone(),
            namespace: live.netns.clone(),
        }));
    }
    let arms = arms(args)?;
    let blocks = args.blocks.unwrap_or(BLOCKS);
    let each = arms.len() as u32 * blocks * if live.measure_cost { 2 } else { 1 };
    let block = match args.packets {
        Some(_) => None,
        None => Some(live.duration.unwrap_or(DURATION) / each.max(1)),
    };
    Ok(Source::Packets(PacketPlan {
        arms,
        blocks,
        block,
        packets: args.packets.unwrap_or(0),
        warmup_packets: args.warmup.unwrap_or(super::path::PACKETS),
        rate_pps: live.rate,
        stream: live.stream,
        measure_cost: live.measure_cost,
    }))
}

/// What is compared.
fn arms(args: &PathArgs) -> anyhow::Result<Vec<Arm>> {
    let mut arms = args.plan()?.arms;
    for arm in &mut arms {
        // Of the running kernel, which is as it is.
        for knob in ["kernel", "mitigations"] {
            arm.knobs.remove(knob);
        }
    }
    Ok(arms)
}

fn one_arm(args: &PathArgs) -> anyhow::Result<Arm> {
    let arms = arms(args)?;
    match arms.into_iter().next() {
        Some(arm) => Ok(arm),
        None => Err(Usage("there is nothing to run".into()).into()),
    }
}

/// In guests, with their own kernels.
fn in_guests(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let mut spec = ask::spec(&args)?;
    if spec.instrument == STAGES {
        spec.selection.max_overhead = args.live.stages_share();
    }
    if !args.command.is_empty() {
        let ran = super::path::run_command(&args, Some(spec), cache);
        return ran.map_err(|error| match super::command::is_nothing_seen(&error) {
            true => anyhow::Error::msg(nothing_seen(&args)),
            false => error,
        });
    }
    let measures_cost = args.live.measure_cost;
    let timing = GuestRun {
        plan: args.plan()?,
        exact: false,
        timed: vec![spec],
        measure_cost: measures_cost,
        rate_pps: args.live.rate,
        stream: args.live.stream,
        block_ns: args.live.duration.map(|d| {
            let blocks = args.blocks.unwrap_or(super::path::BLOCKS);
            let each = blocks * if measures_cost { 2 } else { 1 };
            (d / each.max(1)).as_nanos() as u64
        }),
    };
    let outcome = record_by(
        |engine, recording, save, teller| {
            run_in_guests(&timing, engine, recording, save, &|event| {
                teller.tell(event);
            })
        },
        "path",
        "",
        &args.options,
        cache,
    )?;
    if measures_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, args.show.for_programs());
    }
    finish(outcome, &args)
}

/// Say how the command ended, where that is not well. Whether it did not.
fn tell_end(args: &PathArgs, end: live::LiveEnd) -> bool {
    let words = args.command.words();
    let name = printable(words.first().map_or("", String::as_str), 80);
    let how = match (end.command, end.stopped) {
        (_, true) => {
            eprintln!("plumb: {name} had not ended when its time was over, and was killed");
            return false;
        }
        (None | Some(Exit::Code(0)), _) => return false,
        (Some(Exit::Code(code)), _) => format!("ended with code {code}"),
        (Some(Exit::Signal(signal)), _) => format!("was ended by signal {signal}"),
    };
    eprintln!("plumb: {name} {how}");
    true
}

/// That no packet was seen, and what it would take.
fn nothing_seen(args: &PathArgs) -> String {
    let live = &args.live;
    let mut filters: Vec<&str> = Vec::new();
    for (set, name) in [
        (!args.proto.is_empty(), "--proto"),
        (!args.family.is_empty(), "--family"),
        (live.port.is_some(), "--port"),
        (live.address.is_some(), "--address"),
        (live.interface.is_some(), "--interface"),
        (live.netns.is_some(), "--netns"),
        (live.pid.is_some(), "--pid"),
        (live.cgroup.is_some(), "--cgroup"),
    ] {
        if set {
            filters.push(name);
        }
    }
    let what = match filters.as_slice() {
        [] => "no packet was seen: there was no traffic".to_string(),
        names => format!(
            "no packet was seen that is as {} {}: widen {}, or wait for such traffic",
            names.join(" and "),
            if names.len() == 1 { "asks" } else { "ask" },
            if names.len() == 1 { "it" } else { "them" },
        ),
    };
    let take = match args.command.words().is_empty() {
        true => {
            "make some while it measures, as with `-- ping -c 5 ADDRESS`, measure for longer \
             with --duration 60s, or let plumb send packets itself with --lab netns"
        }
        false => {
            "the command sent and received none before it ended: is it one that uses the network?"
        }
    };
    format!("{what}; {take}")
}
