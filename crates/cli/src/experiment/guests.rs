//! Packets and commands in guests.

use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::GuestRun;
use netplumb_instruments::instrument::Instrument;
use netplumb_model::experiment::{Experiment, Key, Kind};

use super::command::Machine;
use super::how::{How, finish};
use super::instruments::{check_counting, specs};
use super::unseen::{is_nothing_seen, nothing_seen};
use super::{command, cost, lower};
use crate::args::live::{EXACT, SAMPLES};
use crate::exit::WrongKey;
use crate::recorder::record;

/// Measure in guests: with `exact`, `samples` from the same guests, other instruments, each in
/// guests of its own, or several instruments.
///
/// # Errors
/// The measurement failed.
pub(super) fn run(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let exact = asked.is_empty() || asked.iter().any(|i| i.name() == EXACT);
    let samples = asked.iter().any(|i| i.name() == SAMPLES);
    let others: Vec<_> =
        asked.iter().copied().filter(|i| ![EXACT, SAMPLES].contains(&i.name())).collect();
    let timed = specs(experiment, &others)?;
    let sampling = samples.then(|| lower::sampling(experiment));
    if experiment.workload.kind == Kind::Command {
        check_command(experiment)?;
    }
    for (name, counts) in [(EXACT, exact), (SAMPLES, samples)] {
        if counts {
            check_counting(experiment, name, how.text.is_empty())?;
        }
    }
    if experiment.workload.kind == Kind::Command {
        // Packets of a command make arms of their own, by protocol.
        let of_packets = others.iter().any(|i| i.is_clock());
        if of_packets && asked.len() > 1 {
            let why = "functions and stages measure a command alone: leave out the other instruments, \
                       and measure again with these";
            return Err(WrongKey::cannot_here("instruments", why).into());
        }
        let machine = Machine {
            exact,
            sampling,
            trace: experiment.trace.clone().filter(|_| exact),
            timed,
            ..lower::machine(experiment)?
        };
        if of_packets && machine.arms.len() > 1 {
            let why = "times of a command's packets are measured in one arm: measure each by \
                       itself, and compare the recordings with `plumb diff`";
            return Err(WrongKey::usage("instruments", why).into());
        }
        return command::run(experiment, machine, how, cache);
    }
    if !timed.is_empty() && experiment.blocks.seeds() > 1 {
        let why = "seeds can only be used with instruments `exact` and `samples`";
        return Err(WrongKey::usage(Key::new("blocks", "seeds"), why).into());
    }
    let run = GuestRun {
        exact,
        sampling,
        trace: experiment.trace.clone().filter(|_| exact),
        timed,
        ..lower::guests(experiment)
    };
    let outcome = record(&run, (experiment, how.text), &how.options, cache)?;
    if outcome.error.as_ref().is_some_and(is_nothing_seen) {
        let message = nothing_seen(experiment, &outcome.recording);
        return Err(anyhow::Error::msg(message));
    }
    if run.measure_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, how.for_programs());
    }
    finish(outcome, how)
}

/// Reject settings that only runs of a command elsewhere have.
fn check_command(experiment: &Experiment) -> anyhow::Result<()> {
    let workload = &experiment.workload;
    let why = "is not supported by commands in guests: each run of the command is a block, and goes on until it ends";
    for (key, flag, given) in [
        ("window", "--interval", workload.window.is_some()),
        ("duration", "--duration", workload.duration.is_some()),
    ] {
        if given {
            let why = format!("{key} ({flag}) {why}");
            return Err(WrongKey::usage(Key::new("workload", key), why).into());
        }
    }
    Ok(())
}
