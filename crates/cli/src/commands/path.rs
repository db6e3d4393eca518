//! `plumb path`: what a packet costs.

mod args;
mod check;

use std::path::Path;
use std::process::ExitCode;

use netplumb_model::experiment::{Kind, Knob, Lab};

use crate::args::live::SAMPLES;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, PrintWhat};
pub(crate) use args::PathArgs;
use check::{check, check_exact};

/// Measure and show.
///
/// # Errors
/// The measurement failed.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.live.lab == Lab::Host && args.knobs.has("qdisc") {
        return Err(Usage(
            "--qdisc can't be used with --lab host, which changes no interface; use --lab netns, or \
             set it with tc"
                .into(),
        )
        .into());
    }
    let samples = args.live.samples();
    let sampled = args.live.lab == Lab::Vm && args.live.asks(SAMPLES);
    if !samples.is_empty() && !sampled {
        return Err(Usage(
            "--sample-period and --sample-seed need --clock samples in the vm lab".into(),
        )
        .into());
    }
    match args.live.wanted() {
        true => check(&args)?,
        false => check_exact(&args)?,
    }
    if !args.command.is_empty() && args.live.lab == Lab::Vm {
        args.check_command()?;
    }
    let mut experiment = args.experiment().map_err(Usage)?;
    experiment::topologies::read(&mut experiment, Names::Typed)?;
    experiment::topologies::find_objects(&mut experiment, Names::Typed)?;
    if experiment.workload.kind == Kind::Command
        && experiment.lab != Lab::Vm
        && let Some(knob) = experiment.vary.compared()
    {
        return Err(several(knob).into());
    }
    if args.knobs.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    let how = How {
        watch: args.watch,
        stdin: args.command.takes_stdin(),
        ..How::new(PrintWhat::Report(&args.show, &args.direction), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}

/// Outside of guests, a command runs with one level of each knob.
fn several(knob: &Knob) -> Usage {
    let flag = knob.flag.name().unwrap_or(knob.key);
    Usage(format!(
        "--{flag}: only one value can be given with a command; measure it once for each value, and \
         compare the recordings with plumb diff"
    ))
}
