//! `plumb path` under a clock of time: in namespaces of this machine, over its own
//! traffic, or in a guest.

mod ask;
mod cost;
mod rights;
mod view;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_engine::live::{self, LiveEvent, LiveOptions, LivePlan};
use netplumb_engine::{EngineError, GuestRun, run_in_guests};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::live::{Live, LiveError};
use netplumb_instruments::registry;
use netplumb_lab::vm::process::VmError;
use netplumb_model::experiment::{Experiment, Lab, Share, Time};
use netplumb_model::message::Exit;
use netplumb_model::text::counted;
use netplumb_model::timing::{INSTRUCTIONS, OWN_TIME, STAGE_TIME, TimingSpec};
use netplumb_report::printable;

use super::command::Machine;
use super::experiment::{How, finish};
use crate::recorder::record_by;
pub(crate) use ask::{check, check_exact, spec};
pub(crate) use rights::check as check_rights;
use watch::Watcher;

/// The instrument that is asked for; none where it is left to us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedClock(Option<&'static dyn Instrument>);

impl AskedClock {
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
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = lab())]
    pub(crate) lab: Lab,
    /// What is measured with; several with commas, each in blocks of its own
    #[arg(long, value_parser = AskedClock::parser(), value_name = "CLOCK", value_delimiter = ',', default_value = AUTO)]
    pub(crate) clock: Vec<AskedClock>,
    /// How long to measure in all, like 10s or 500ms [default: 5s, of a command as long as it runs]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Packets a second, at most
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) rate: Option<u32>,
    /// Send without waiting for packets to arrive, by a thread of its own
    #[arg(long)]
    pub(crate) stream: bool,
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
    #[arg(long, value_name = "SHARE")]
    pub(crate) max_overhead: Option<Share>,
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
        let named = self.clock.iter().filter_map(|clock| clock.0);
        self.lab != Lab::Vm || named.into_iter().any(|i| i.name() != EXACT)
    }

    /// Whether one of this name is asked for.
    pub(crate) fn asks(&self, name: &str) -> bool {
        self.instruments()
            .is_some_and(|all| all.iter().any(|one| one == name))
    }

    /// The instruments that are meant, if they are not left to the machine.
    pub(crate) fn instruments(&self) -> Option<Vec<String>> {
        let names = self
            .clock
            .iter()
            .map(|clock| clock.0.map(|i| i.name().into()));
        names.collect()
    }
}

/// Instruments of which something is to be said here.
pub(crate) const EXACT: &str = INSTRUCTIONS.instrument;
pub(crate) const FUNCTIONS: &str = OWN_TIME.instrument;
pub(crate) const STAGES: &str = STAGE_TIME.instrument;

/// Labs by their names, with what they are.
fn lab() -> impl TypedValueParser<Value = Lab> {
    let told = [
        (Lab::Host, "This machine's own traffic"),
        (
            Lab::Netns,
            "Network namespaces of this machine, joined by veth",
        ),
        (Lab::Vm, "A QEMU guest that boots any kernel"),
    ];
    let values = told.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).map(|name| name.parse().unwrap_or_default())
}

/// Packets that are told one by one.
const TOLD_PACKETS: u32 = 1;
/// Functions that are timed where nothing is said.
const MAX_FUNCTIONS: u32 = 100;

/// Measure on this machine, and show: by the instruments that are asked for, or if it is left
/// to us, the best that there is; stages within a share of the work.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(
    experiment: &Experiment,
    plan: &LivePlan,
    (is_asked, stages_share): (bool, Option<f64>),
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let chosen: Cell<Option<&'static str>> = Cell::new(None);
    let mut end = live::LiveEnd::default();
    let mut empty = None;
    let outcome = record_by(
        |engine, recording, save, teller| {
            let layers = &engine.layers;
            let layer =
                |name: &str, module: Option<&str>| layers.layer(name, module).map(String::from);
            let notes = RefCell::new(Vec::new());
            let attach = |spec: &TimingSpec| -> Result<(&'static str, Box<dyn Live>), LiveError> {
                let by = |instrument: &'static dyn Instrument| {
                    let name = instrument.name();
                    let mut spec = TimingSpec {
                        instrument: name.into(),
                        ..spec.clone()
                    };
                    if name == STAGES {
                        spec.selection.max_overhead = stages_share;
                    }
                    let attached = instrument.attach(&spec, &layer);
                    chosen.set(Some(name));
                    attached.map(|live| (name, live))
                };
                let asked = match is_asked {
                    true => Some(spec.instrument.as_str()),
                    false => chosen.get(),
                };
                if let Some(instrument) = asked.and_then(registry::find) {
                    return by(instrument);
                }
                let [first, second] = registry::PREFERRED;
                match by(first) {
                    Err(LiveError::CannotRun { reason, .. }) => {
                        notes.borrow_mut().push(format!(
                            "the clock is `{}`: {} can't be timed here: {reason}",
                            second.name(),
                            first.name()
                        ));
                        by(second)
                    }
                    attached => attached,
                }
            };
            let options = LiveOptions {
                layers,
                attach: &attach,
                cancel: &engine.cancel,
                seed: live::random_seed(),
            };
            let mut watcher = Watcher::start(how.watch, &engine.cancel, teller);
            let mut told = BTreeSet::new();
            let result = live::run_live(plan, &options, recording, &mut *save, &mut |event| {
                for note in notes.borrow_mut().drain(..) {
                    watcher.note(teller, &note);
                }
                match event {
                    LiveEvent::Note(note) => watcher.note(teller, &note),
                    LiveEvent::Named(run) => {
                        watcher.note(teller, &format!("namespaces: {run}-*, for `ip netns exec`"));
                    }
                    LiveEvent::Attached(attached) => {
                        if told.insert(chosen.get()) {
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
                        && experiment.lab == Lab::Host =>
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
        &experiment.name,
        how.text,
        &how.options,
        cache,
    )?;
    if empty.is_some() {
        tell_end(experiment, end);
        return Err(anyhow::Error::msg(nothing_seen(experiment)));
    }
    if experiment.probes.measure_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, how.for_programs());
    }
    let code = finish(outcome, how)?;
    let failed = tell_end(experiment, end);
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

/// In guests, with their own kernels.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn in_guests(
    experiment: &Experiment,
    timing: &GuestRun,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let outcome = record_by(
        |engine, recording, save, teller| {
            run_in_guests(timing, engine, recording, save, &|event| {
                teller.tell(event);
            })
        },
        &experiment.name,
        how.text,
        &how.options,
        cache,
    )?;
    if timing.measure_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, how.for_programs());
    }
    finish(outcome, how)
}

/// A command in a guest, its packets timed.
///
/// # Errors
/// What kept it from being measured.
pub(crate) fn command(
    experiment: &Experiment,
    machine: Machine,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let ran = super::command::run(experiment, machine, how, cache);
    ran.map_err(|error| match super::command::is_nothing_seen(&error) {
        true => anyhow::Error::msg(nothing_seen(experiment)),
        false => error,
    })
}

/// Say how the command ended, where that is not well. Whether it did not.
fn tell_end(experiment: &Experiment, end: live::LiveEnd) -> bool {
    let words = &experiment.workload.command;
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
fn nothing_seen(experiment: &Experiment) -> String {
    let filter = &experiment.filter;
    let mut filters: Vec<&str> = Vec::new();
    for (set, name) in [
        (!filter.proto.is_empty(), "--proto"),
        (filter.family.is_some(), "--family"),
        (filter.port.is_some(), "--port"),
        (filter.address.is_some(), "--address"),
        (filter.interface.is_some(), "--interface"),
        (filter.netns.is_some(), "--netns"),
        (filter.pid.is_some(), "--pid"),
        (filter.cgroup.is_some(), "--cgroup"),
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
    let take = match experiment.workload.command.is_empty() {
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
