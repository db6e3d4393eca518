//! `plumb tune`: search settings for a goal, between two hosts in virtual time.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netplumb_engine::{EngineError, HostsRun, Options, Plan, run_hosts};
use netplumb_model::experiment::{Blocks, Experiment, FileSize, Kind, Knobs, Time, Workload};
use netplumb_model::hosts::{BUSY, Side, THROUGHPUT, TURN};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Recording, env};
use netplumb_model::tune::{
    Choice, DIMENSIONS, Dimension, Goal, Hold, Measured, Setting, Tuned, arm_of, chosen,
};
use netplumb_report::tune as report;
use netplumb_stats::halving::{Found, Halving, Point, front};

use crate::args::knobs::{KnobArgs, OfHosts};
use crate::args::run::RunOptions;
use crate::exit::{Usage, WORSE};
use crate::output::print::{columns, print};
use crate::progress::Teller;
use crate::recorder::record_by;

/// Arguments of `plumb tune`.
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// What is to become better: throughput of a stream, latency of a request, or CPU time per byte
    #[arg(long, value_name = "GOAL", value_parser = goal())]
    goal: Goal,
    /// What has to hold, like latency<200us, throughput>900M or busy<50%; may be given more than once
    #[arg(long, value_name = "CONDITION", value_parser = |text: &str| text.parse::<Hold>())]
    hold: Vec<Hold>,
    /// Number of hosts: two guests and a wire between them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=2))]
    hosts: u32,
    /// Time after which nothing else is tried
    #[arg(long, value_name = "TIME", default_value = "5m")]
    budget: Time,
    /// How many combinations to begin with
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=200))]
    candidates: u32,
    /// The interface that the printed command lines name
    #[arg(long, value_name = "NAME", default_value = "eth0", value_parser = interface)]
    nic: String,
    /// Also write the settings that no other beat as an experiment, for plumb run
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    knobs: KnobArgs<OfHosts>,
    #[command(flatten)]
    options: RunOptions,
}

fn goal() -> impl TypedValueParser<Value = Goal> {
    PossibleValuesParser::new(Goal::WORDS).try_map(|name| name.parse())
}

/// A name that may be part of a command line.
fn interface(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !text.is_empty() && text.len() < 16 && text.chars().all(is_good) {
        true => Ok(text.into()),
        false => Err("expected the name of an interface, like eth0".into()),
    }
}

/// What is measured of each combination at scale 0; twice as much at the next.
const STREAM_BYTES: u32 = 1 << 20;
const TURNS: u32 = 40;
/// The scale at which a stream has 64 MiB: longer ones tell nothing more.
const MOST_SCALE: u32 = 6;

/// Search, and print what was found.
///
/// # Errors
/// The measurement failed.
pub(crate) fn run(args: TuneArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    args.options.check_for_bench()?;
    let fixed = args.knobs.given();
    if let Some((key, _)) = fixed
        .iter()
        .find(|(key, _)| fixed.iter().filter(|(k, _)| k == key).count() > 1)
    {
        return Err(Usage(format!(
            "{key}: give one value, which all combinations have"
        ))
        .into());
    }
    // What is given is the situation, and not searched.
    let is_free = |dimension: &Dimension| {
        let mut keys = dimension.iter().flat_map(|setting| setting.knobs);
        !keys.any(|(key, _)| args.knobs.has(key))
    };
    let dimensions: Vec<Dimension> = DIMENSIONS.iter().copied().filter(is_free).collect();
    if dimensions.is_empty() {
        return Err(Usage("all settings that could be searched are given".into()).into());
    }
    let search = Search {
        args: &args,
        fixed: Knobs::of(fixed.iter().cloned()).map_err(Usage)?,
        dimensions: &dimensions,
    };
    for kind in [Kind::Stream, Kind::Request] {
        let all = search.experiment(kind, &[vec![0; dimensions.len()]], 0)?;
        all.check().map_err(|(_, why)| Usage(why))?;
    }
    let asked = search.experiment(Kind::Stream, &[vec![0; dimensions.len()]], 0)?;
    let mut tuned = None;
    let mut finalists = None;
    let outcome = record_by(
        |engine, recording, save, teller| {
            let found = search.run(engine, teller)?;
            let last = search.last(&found);
            let points: Vec<Point> = last.iter().map(|n| found.tried[*n].point.clone()).collect();
            // What is kept is a run of two hosts of these.
            let experiment = search
                .experiment(Kind::Stream, &points, found.scale)
                .map_err(odd)?;
            if let Ok(text) = experiment.measured().to_toml() {
                recording.environment.insert(env::ASKED.into(), text);
            }
            run_hosts(&of(&experiment), engine, recording, save, &|event| {
                teller.tell(event)
            })?;
            tuned = Some(search.tuned(&found, &last));
            finalists = Some(experiment);
            Ok(())
        },
        (&asked, ""),
        &args.options,
        cache,
    )?;
    if let Some(error) = outcome.error {
        return Err(error);
    }
    let tuned = tuned.ok_or_else(|| anyhow!("nothing was measured"))?;
    if let (Some(path), Some(experiment)) = (&args.experiment, &finalists) {
        let text = experiment.to_toml()?;
        std::fs::write(path, text).map_err(|e| anyhow!("write {}: {e}", path.display()))?;
    }
    print(&match args.json {
        true => report::json(&tuned),
        false => report::terminal(&tuned, columns()),
    })?;
    Ok(match tuned.missed() {
        true => ExitCode::from(WORSE),
        false => ExitCode::SUCCESS,
    })
}

/// An error that can't be, since all combinations were checked.
fn odd(error: anyhow::Error) -> EngineError {
    EngineError::Guest(error.to_string())
}

fn of(experiment: &Experiment) -> HostsRun {
    HostsRun {
        plan: Plan::of(experiment),
        load: experiment.host_load(),
        counts: false,
    }
}

struct Search<'a> {
    args: &'a TuneArgs,
    /// What all combinations have.
    fixed: Knobs,
    dimensions: &'a [Dimension],
}

impl Search<'_> {
    fn settings(&self, point: &[usize]) -> Vec<Setting> {
        chosen(self.dimensions, point)
    }

    /// A run of these points.
    fn experiment(&self, kind: Kind, points: &[Point], scale: u32) -> anyhow::Result<Experiment> {
        let scale = scale.min(MOST_SCALE);
        let mut workload = Workload::of(kind);
        match kind {
            Kind::Request => workload.turns = Some(TURNS << scale),
            _ => workload.bytes = Some(FileSize(STREAM_BYTES << scale)),
        }
        let arm = |point: &Point| arm_of(&self.settings(point)).map_err(Usage);
        Ok(Experiment {
            name: "tune".into(),
            hosts: Some(self.args.hosts),
            workload,
            blocks: Blocks {
                count: Some(1),
                ..Blocks::default()
            },
            knobs: self.fixed.clone(),
            arms: points.iter().map(arm).collect::<Result<_, _>>()?,
            ..Experiment::default()
        })
    }

    fn run(&self, engine: &Options, teller: &Teller) -> Result<Found<Measured>, EngineError> {
        let levels: Vec<usize> = self.dimensions.iter().map(|levels| levels.len()).collect();
        let halving = Halving {
            levels: &levels,
            candidates: self.args.candidates as usize,
            seed: 1,
        };
        let begun = Instant::now();
        let budget: Duration = self.args.budget.0;
        halving.search(
            &|a, b| self.order(a, b),
            &mut || begun.elapsed() < budget,
            &mut |points, scale| self.measure(points, scale, engine, teller),
        )
    }

    /// What holds comes before what does not, then by goal.
    fn order(&self, a: &Measured, b: &Measured) -> Ordering {
        let missed = |m: &Measured| {
            self.args
                .hold
                .iter()
                .map(|hold| hold.missed(m))
                .sum::<f64>()
        };
        let by_goal = || a.cost(self.args.goal).total_cmp(&b.cost(self.args.goal));
        missed(a).total_cmp(&missed(b)).then_with(by_goal)
    }

    fn measure(
        &self,
        points: &[Point],
        scale: u32,
        engine: &Options,
        teller: &Teller,
    ) -> Result<Vec<Measured>, EngineError> {
        let run = |kind: Kind| -> Result<Recording, EngineError> {
            let experiment = self.experiment(kind, points, scale).map_err(odd)?;
            let mut recording = Recording::default();
            let save = &mut |_: &Recording| Ok(());
            run_hosts(&of(&experiment), engine, &mut recording, save, &|event| {
                teller.tell(event)
            })?;
            Ok(recording)
        };
        let (stream, requests) = (run(Kind::Stream)?, run(Kind::Request)?);
        let all = (0..points.len()).map(|arm| {
            let busy = Side::ALL
                .iter()
                .map(|side| figure(&stream, arm, &BUSY, Some(side.called())));
            let busy: Vec<f64> = busy.collect::<Result<_, _>>()?;
            Ok(Measured {
                throughput_bps: figure(&stream, arm, &THROUGHPUT, None)?,
                latency_ns: figure(&requests, arm, &TURN, Some("median"))?,
                busy: [busy[0], busy[1]],
            })
        });
        all.collect()
    }

    /// The default and those that no other beats, of what was measured the longest.
    fn last(&self, found: &Found<Measured>) -> Vec<usize> {
        let longest: Vec<(usize, Vec<f64>)> = (found.longest())
            .map(|(number, tried)| {
                (
                    number,
                    Goal::ALL
                        .iter()
                        .map(|goal| tried.measured.cost(*goal))
                        .collect(),
                )
            })
            .collect();
        let costs: Vec<Vec<f64>> = longest.iter().map(|(_, costs)| costs.clone()).collect();
        let mut last: Vec<usize> = front(&costs).into_iter().map(|n| longest[n].0).collect();
        last.extend([0, found.best]);
        last.sort_by(|a, b| {
            let of = |n: usize| &found.tried[n].measured;
            self.order(of(*a), of(*b)).then(a.cmp(b))
        });
        last.dedup();
        last
    }

    fn tuned(&self, found: &Found<Measured>, last: &[usize]) -> Tuned {
        let choice = |number: usize| Choice {
            settings: self.settings(&found.tried[number].point),
            measured: found.tried[number].measured,
        };
        let levels = self.dimensions.iter().map(|levels| levels.len());
        Tuned {
            goal: self.args.goal,
            hold: self.args.hold.clone(),
            default: found.tried[0].measured,
            best: choice(found.best),
            front: last.iter().map(|number| choice(*number)).collect(),
            tried: found.tried.len(),
            possible: levels.product(),
            ended_early: found.ended_early,
            nic: self.args.nic.clone(),
        }
    }
}

/// The figure of an arm's only block.
fn figure(
    recording: &Recording,
    arm: usize,
    quantity: &Declared,
    label: Option<&str>,
) -> Result<f64, EngineError> {
    let of_arm = |block: u32| {
        let block = recording.blocks.get(block as usize);
        block.is_some_and(|block| block.arm as usize == arm)
    };
    let mut its = recording.scalars_of(quantity).filter(|scalar| {
        scalar.block().is_some_and(of_arm) && scalar.item.label.as_deref() == label
    });
    let missing = || EngineError::Guest(format!("no {} was measured", quantity.name));
    its.next().map(|scalar| scalar.value).ok_or_else(missing)
}
