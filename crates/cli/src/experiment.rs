//! Runs experiments, from files and command lines alike. `lower.rs` makes the engine's plans, for the runners:
//! `guests`, `command`, `live`, `frames` and `hosts`.

pub(crate) mod build;
mod command;
pub(crate) mod consent;
mod cost;
mod disks;
mod frames;
mod guests;
mod hosts;
mod how;
mod instruments;
mod live;
mod lower;
pub(crate) mod machine;
pub(crate) mod modules;
pub(crate) mod serve;
mod spec;
pub(crate) mod topologies;
mod unseen;

use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::live::{LivePlan, Source};
use netplumb_model::experiment::{Experiment, Kind, Lab};

use crate::args::live::{EVENTS, FUNCTIONS, SPANS};
use crate::exit::{Usage, WrongKey};
use crate::rights;
pub(crate) use how::{How, PrintWhat};
pub(crate) use instruments::NOT_RESUMED;

/// Check an experiment, run it, and print the result.
///
/// # Errors
/// The experiment can't be run, or it failed.
pub(crate) fn run(
    experiment: &Experiment,
    mut how: How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    experiment.check().map_err(|(_, why)| Usage(why))?;
    let (lab, kind) = (experiment.lab, experiment.workload.kind);
    how.check()?;
    consent::check_namespaces(experiment)?;
    how.options.seeds = experiment.blocks.seeds;
    if experiment.has_hosts() {
        return hosts::run(experiment, &how, cache);
    }
    let asked = instruments::chosen(experiment)?;
    let shows_all = how.clock.is_none() && kind != Kind::Frames;
    if asked.len() > 1 && shows_all && how.is_one_output() {
        let why = "this output format shows a single instrument: omit it, and write it for each \
                   instrument afterwards, with `plumb report FILE --clock CLOCK`";
        return Err(Usage(why.into()).into());
    }
    if kind == Kind::Frames {
        let (plan, guests) =
            (lower::frames(experiment, &how)?, lower::beside_frames(experiment, &asked)?);
        return frames::run(&plan, &guests, experiment, &how, cache);
    }
    instruments::check_options(experiment, &asked, &how.options)?;
    if how.watch && lab == Lab::Vm {
        let why =
            "--watch: there is no live view of guests, whose results arrive when they have ended";
        return Err(Usage(why.into()).into());
    }
    if lab == Lab::Vm {
        return guests::run(experiment, &asked, &how, cache);
    }
    match kind {
        // The kernel decides what may be counted, for each event.
        Kind::Work if asked.iter().any(|i| i.name() == EVENTS) => {}
        Kind::Work if asked.iter().any(|i| i.name() == SPANS) => {
            rights::check_of_work("pairing events", "between")?;
        }
        Kind::Work if experiment.times_calls() => rights::check_of_calls()?,
        Kind::Work => rights::check_of_work("sampling CPUs", "profile")?,
        _ => rights::check(lab)?,
    }
    let specs = match asked.as_slice() {
        [] => vec![spec::spec(experiment, FUNCTIONS)?],
        asked => instruments::specs(experiment, asked)?,
    };
    let source = lower::source(experiment, &how)?;
    if let (Source::Traffic(_) | Source::Work(_), [_, _, ..]) = (&source, specs.as_slice()) {
        let why = "only one instrument at a time can measure the traffic or work of this machine";
        return Err(WrongKey::cannot_here("instruments", why).into());
    }
    let by = (!asked.is_empty(), instruments::stages_share(experiment));
    live::run(experiment, &LivePlan { specs, source }, by, &how, cache)
}
