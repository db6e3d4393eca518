//! Packets and commands in guests.

use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::GuestRun;
use netplumb_instruments::instrument::Instrument;
use netplumb_model::experiment::{Experiment, Key, Kind};

use super::how::{How, finish};
use super::instruments::{check_exact, specs};
use super::{command, cost, lower};
use crate::args::live::EXACT;
use crate::exit::WrongKey;
use crate::recorder::record;

/// Measure in guests, with `exact`, other instruments, or both, each in guests of its own.
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
                command::run(experiment, lower::machine(experiment, None)?, how, cache)
            }
            (false, [spec]) => {
                let machine = lower::machine(experiment, Some(spec.clone()))?;
                command::run(experiment, machine, how, cache)
            }
            _ => {
                let why = "only one instrument at a time can measure a command";
                Err(WrongKey::cannot_here("instruments", why).into())
            }
        };
    }
    if exact {
        check_exact(experiment)?;
    }
    if !timed.is_empty() && experiment.blocks.seeds() > 1 {
        let why = "seeds can only be used with instrument `exact` alone";
        return Err(WrongKey::usage(Key::of("blocks", "seeds"), why).into());
    }
    let run = GuestRun {
        exact,
        timed,
        ..lower::guests(experiment)
    };
    let outcome = record(&run, &experiment.name, how.text, &how.options, cache)?;
    if run.measure_cost && !outcome.recording.blocks.is_empty() {
        cost::tell(&outcome.recording, how.for_programs());
    }
    finish(outcome, how)
}
