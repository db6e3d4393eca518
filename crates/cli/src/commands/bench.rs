//! `plumb bench`: how fast packets are dropped or forwarded, by which path.

mod args;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use netplumb_engine::Progress;
use netplumb_engine::bench::{
    self, BenchEvent, BenchOptions, BenchPlan, BesidePlan, ExplainPlan, GuestLab,
};
use netplumb_engine::live::random_seed;
use netplumb_model::bench::Bench;
use netplumb_model::class::Link;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::{claims, conclusions, figures, printable, rates, terminal};

use args::{BenchArgs, OutArgs, SwapArgs};

use super::experiment::{self, How, Shown};
use super::page::PageArgs;
use super::report::{columns, print};
use crate::exit::CannotHere;
use crate::recorder::{Outcome, RunOptions, record_by};

/// What there is to be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// How fast packets are dropped
    Drop(BenchArgs),
    /// How fast packets are sent on, by the same NIC or another one
    Forward(BenchArgs),
    /// Whether a program of XDP can be replaced under load: no packet is lost by it, and each
    /// meets one program
    Swap(SwapArgs),
    /// What the kernel's verifier says of programs: by line, why it refuses one
    Verify {
        /// A compiled object of BPF programs [default: one of ours that is unsafe]
        file: Option<PathBuf>,
    },
}

/// What guests are for.
#[derive(Debug, Clone)]
pub(super) struct Guests {
    /// Rates are measured in one.
    pub(super) rates: bool,
    /// Instructions are counted in some.
    pub(super) count: bool,
    /// Whether blocks of their own show where the time went; not in a guest.
    pub(super) beside: bool,
    /// Over what packets run there.
    pub(super) link: Link,
    /// What they boot.
    pub(super) kernel: String,
}

/// As what a bench is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    /// A table; details of every arm, or of those that lost packets or are invalid.
    Text {
        /// Of every arm.
        all: bool,
    },
    /// A line for each block.
    Csv,
    /// Everything.
    Json,
}

impl Format {
    /// What flags ask for.
    pub(super) fn of(csv: bool, json: bool, all: bool) -> Format {
        match (csv, json) {
            (true, _) => Format::Csv,
            (_, true) => Format::Json,
            _ => Format::Text { all },
        }
    }
}

/// Batches of frames in a block whose instructions are counted, and such blocks.
const EXPLAIN: ExplainPlan = ExplainPlan {
    batches: 16,
    blocks: 3,
};

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(command: BenchCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Drop(args) => measure(Bench::Drop, &args, cache),
        BenchCommand::Forward(args) => measure(Bench::Forward, &args, cache),
        BenchCommand::Swap(args) => swap(&args, cache),
        BenchCommand::Verify { file: Some(file) } => verify::file(&file),
        BenchCommand::Verify { file: None } => verify::refusal(),
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

const NO_ROOT: &str = "a bench makes network namespaces and loads programs into the kernel, which \
                       takes root: run it with sudo";

#[cfg(test)]
impl BenchCommand {
    /// What is asked, as an experiment; none of the verifier.
    pub(super) fn experiment(&self) -> Option<anyhow::Result<Experiment>> {
        match self {
            BenchCommand::Drop(args) => Some(args.experiment(Bench::Drop)),
            BenchCommand::Forward(args) => Some(args.experiment(Bench::Forward)),
            BenchCommand::Swap(args) => Some(args.experiment()),
            BenchCommand::Verify { .. } => None,
        }
    }
}

fn measure(bench: Bench, args: &BenchArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let experiment = args.experiment(bench)?;
    let nics = &args.nics;
    let how = How {
        yes_change: &nics.yes_change,
        even_default_route: nics.even_default_route,
        ..how(&args.out)
    };
    experiment::run(&experiment, how, cache)
}

/// Replace programs under load.
fn swap(args: &SwapArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.experiment()?, how(&args.out), cache)
}

fn how(out: &OutArgs) -> How<'_> {
    How {
        text: "",
        shown: Shown::Rates(out.format()),
        page: &out.page,
        options: out.options(),
        watch: false,
        stdin: false,
        yes_change: &[],
        even_default_route: false,
    }
}

/// Measure frames, and show rates.
///
/// # Errors
/// What kept it from measuring.
pub(super) fn run_plan(
    plan: &BenchPlan,
    guests: &Guests,
    name: &str,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let Shown::Rates(format) = how.shown else {
        return Err(anyhow::Error::msg("frames have rates alone"));
    };
    let outcome = record(plan, name, how.text, guests, &how.options, cache)?;
    finish(outcome, format, how.page)
}

fn record(
    plan: &BenchPlan,
    name: &str,
    text: &str,
    guests: &Guests,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    if !guests.rates && !is_root() {
        return Err(CannotHere(format!("{NO_ROOT}, or in a guest (--lab vm)")).into());
    }
    record_by(
        |engine, recording, save, teller| {
            let lab = GuestLab {
                kernel: &guests.kernel,
                link: guests.link,
                options: engine,
                tell: &|event| teller.tell(event),
            };
            // What is missing is told before anything is measured.
            if guests.rates || guests.count {
                lab.check()?;
            }
            let options = BenchOptions {
                cancel: &engine.cancel,
                seed: random_seed(),
                guest: guests.rates.then_some(&lab),
                beside: guests.beside.then_some(BesidePlan {
                    blocks: EXPLAIN.blocks,
                    layers: &engine.layers,
                }),
            };
            bench::run_bench(plan, &options, recording, &mut *save, &mut |event| {
                teller.tell(match event {
                    BenchEvent::Note(note) => Progress::Note(note),
                    BenchEvent::Block(_, done, all) => Progress::Blocks(done, all),
                });
            })?;
            match guests.count {
                true => bench::explain(&plan.arms, EXPLAIN, &lab, recording, save),
                false => Ok(()),
            }
        },
        name,
        text,
        options,
        cache,
    )
}

fn finish(outcome: Outcome, format: Format, page: &PageArgs) -> anyhow::Result<ExitCode> {
    let recording = &outcome.recording;
    let all = rates::arms(recording);
    if !recording.blocks.is_empty() || all.iter().any(|a| a.failed.is_some()) {
        show(recording, format)?;
        page.write(recording, &[], &[])?;
    }
    if let Some(error) = outcome.error {
        return Err(error);
    }
    if recording.blocks.is_empty() {
        return Err(CannotHere("no path that was asked for can run here".into()).into());
    }
    let bad = all
        .iter()
        .filter(|a| a.failed.is_none() && a.valid.is_empty());
    Ok(match bad.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Show the recording of a bench.
///
/// # Errors
/// Its file can't be read as one of a bench, or nothing be written.
pub(super) fn show(recording: &Recording, format: Format) -> anyhow::Result<ExitCode> {
    let text = match format {
        Format::Csv => rates::csv::render(recording),
        Format::Json => rates::json::render(recording),
        Format::Text { all } => {
            let mut text = match recording.experiment_toml.as_str() {
                "" => String::new(),
                text => told(&Experiment::parse(text)?, recording),
            };
            text.push_str(&rates::terminal::render(recording, columns(), all));
            text
        }
    };
    print(&text)
}

/// The figures of a file, and its claims.
fn told(experiment: &Experiment, recording: &Recording) -> String {
    let mut text = figures::sweeps::render(experiment, recording, columns());
    let all = claims::judge_blocks(experiment, recording);
    for judged in &all {
        let (verdict, says) = (judged.verdict.as_str(), printable(&judged.says, 300));
        let because = printable(&judged.because, 1_000);
        let line = format!("  {verdict}: {says}: {because}");
        text.push_str(&terminal::continued(&line, 4, columns()));
        text.push('\n');
    }
    if experiment.conclusion.is_some() {
        text.push_str(&conclusions::render(experiment, &all, None, columns()));
    }
    text.push('\n');
    text
}
