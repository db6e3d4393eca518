//! Two hosts with a wire between them: the runner of `hosts = 2`.

use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::HostsRun;
use netplumb_engine::Plan;
use netplumb_model::experiment::{Experiment, Lab};

use super::how::{How, finish};
use crate::exit::Usage;
use crate::recorder::record_by;
use crate::rights;

/// Run both hosts, and print the results.
///
/// # Errors
/// The measurement failed.
pub(super) fn run(
    experiment: &Experiment,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let in_netns = experiment.lab == Lab::Netns;
    for (flag, given, why) in [
        ("--cold", in_netns && how.options.cold, "there are no guests in lab netns"),
        ("--quick", how.options.quick, "two hosts need virtual time: leave it out"),
        (
            "--layers",
            how.options.layers.is_some() && !experiment.counts_hosts(),
            "no functions are measured",
        ),
        ("--jobs", in_netns && how.options.jobs.is_some(), "there are no guests in lab netns"),
        (
            "--watch",
            how.watch,
            "there is no live view of guests, whose results arrive when they have ended",
        ),
    ] {
        if given {
            return Err(Usage(format!("{flag}: {why}")).into());
        }
    }
    if in_netns {
        rights::check(experiment.lab)?;
    }
    let plan = Plan::from_experiment(experiment);
    let plan = plan.with_seeds(experiment.blocks.seeds()).map_err(Usage)?;
    let run = HostsRun { plan, load: experiment.host_load(), counts: experiment.counts_hosts() };
    let outcome = record_by(
        |engine, recording, save, teller| {
            let tell = |event| teller.tell(event);
            match in_netns {
                true => netplumb_engine::run_namespaces(&run, engine, recording, save, &tell),
                false => netplumb_engine::run_hosts(&run, engine, recording, save, &tell),
            }
        },
        (experiment, how.text),
        &how.options,
        cache,
    )?;
    if run.plan.arms.len() > 1 {
        outcome.print_how_to_resume(&experiment.name, &how.options);
    }
    finish(outcome, how)
}
