//! Packets in the kernel of this machine: in namespaces, or its own traffic.

mod view;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::live::{self, LiveEvent, LiveOptions, LivePlan};
use netplumb_engine::{EngineError, Progress, long};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::live::{Live, LiveError};
use netplumb_instruments::registry;
use netplumb_lab::vm::process::VmError;
use netplumb_model::experiment::{Experiment, Lab};
use netplumb_model::message::Exit;
use netplumb_model::text::counted;
use netplumb_model::timing::TimingSpec;
use netplumb_report::printable;

use super::cost;
use super::how::{How, finish};
use super::unseen::nothing_seen;
use crate::args::live::STAGES;
use crate::exit::WORSE;
use crate::recorder::record_by;
use crate::rights;
use crate::signals;
use watch::Watcher;

/// Measure on this machine with the given instruments, or else the best available one; stages
/// with a limit on their overhead.
///
/// # Errors
/// The measurement failed.
pub(super) fn run(
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
                    let mut spec = TimingSpec { instrument: name.into(), ..spec.clone() };
                    if name == STAGES {
                        spec.selection.max_overhead = stages_share;
                    }
                    let attached = instrument.attach(&spec, &layer, &engine.cancel);
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
                            "using instrument {}: {} unavailable: {reason}",
                            second.name(),
                            first.name()
                        ));
                        let step = format!("attaching instrument {}", second.name());
                        teller.tell(Progress::Step(step));
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
            let mut announced = BTreeSet::new();
            let result = live::run_live(plan, &options, recording, &mut *save, &mut |event| {
                for note in notes.borrow_mut().drain(..) {
                    watcher.note(teller, &note);
                }
                match event {
                    LiveEvent::Note(note) => watcher.note(teller, &note),
                    LiveEvent::Step(step) => teller.tell(Progress::Step(step)),
                    // Without root they are seen by this process only.
                    LiveEvent::Named(run) if rights::is_root() => {
                        watcher.note(
                            teller,
                            &format!("network namespaces: {run}-*, usable with `ip netns exec`"),
                        );
                    }
                    LiveEvent::Named(_) => {}
                    LiveEvent::Attached(attached) => {
                        if announced.insert(chosen.get()) {
                            watcher.note(teller, &attached_line(chosen.get(), attached));
                        }
                    }
                    LiveEvent::Block(recording, done, all) => {
                        let progress = all.map(|all| Progress::Blocks(done.min(all), all));
                        watcher.block(recording, progress, teller);
                    }
                    LiveEvent::Passed(recording, pace) => {
                        let progress = Progress::Passed(pace, long::latest(recording));
                        watcher.block(recording, Some(progress), teller);
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
                // Ended by the key `q`: not an interruption.
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
        (experiment, how.text),
        &how.options,
        cache,
    )?;
    if empty.is_some() {
        print_end(experiment, end);
        let message = nothing_seen(experiment, &outcome.recording);
        return Err(anyhow::Error::msg(message));
    }
    if experiment.probes.measure_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, how.for_programs());
    }
    if experiment.long().is_some() {
        outcome.print_how_to_resume(&experiment.name, &how.options);
    }
    let code = finish(outcome, how)?;
    let interrupted = end.interrupted;
    let failed = print_end(experiment, end);
    // Claims about a command that failed mean nothing.
    let is_result = [ExitCode::SUCCESS, ExitCode::from(WORSE)].contains(&code);
    Ok(match (failed, interrupted) {
        (true, _) if is_result => ExitCode::FAILURE,
        // As perf does, so that a script ends, too.
        (_, true) if is_result => ExitCode::from(signals::exit_code()),
        _ => code,
    })
}

/// The line about an attached instrument.
fn attached_line(clock: Option<&str>, attached: &netplumb_model::timing::Attached) -> String {
    let clock = clock.map_or_else(String::new, |c| format!("instrument {c}"));
    let ms = attached.attach_ns as f64 / 1e6;
    match attached.functions.len() {
        0 => format!("{clock}, attached in {ms:.0} ms"),
        n => format!("{clock}: {}, attached in {ms:.0} ms", counted(n, "function")),
    }
}

/// Report a command that failed; returns whether it did.
fn print_end(experiment: &Experiment, end: live::LiveEnd) -> bool {
    let words = &experiment.workload.command;
    let name = printable(words.first().map_or("", String::as_str), 80);
    let how = match (end.command, end.stopped) {
        (ended, _) if end.interrupted => {
            match ended {
                Some(_) => eprintln!("plumb: {name} was interrupted"),
                None => eprintln!("plumb: {name} went on after an interruption, and was killed"),
            }
            return false;
        }
        (_, true) => {
            eprintln!("plumb: {name} was killed after --duration");
            return false;
        }
        (None | Some(Exit::Code(0)), _) => return false,
        (Some(Exit::Code(code)), _) => format!("exited with code {code}"),
        (Some(Exit::Signal(signal)), _) => format!("was killed by signal {signal}"),
    };
    eprintln!("plumb: {name} {how}");
    true
}
