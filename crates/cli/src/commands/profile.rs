//! `plumb profile`: where CPU time goes, of all work or of a process, a cgroup or a command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Blocks, Experiment, Filter, Kind, Lab, Samples, Time, Workload};
use netplumb_model::timing::{SampleEvent, UserStacks};

use crate::args::guard::GuardArgs;
use crate::args::knobs::{KnobArgs, OfMachine, levels};
use crate::args::live::SAMPLES;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::{self, How, Shown};

/// How CPUs are sampled.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Samples of each CPU per second [default: 997]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    frequency: Option<u32>,
    /// What makes samples: `cpu-clock`, a timer of each CPU; `cycles`, its counter of cycles; `auto`,
    /// cycles if there is such a counter, or else the timer [default: cpu-clock]
    #[arg(long, value_name = "EVENT", value_parser = events())]
    event: Option<SampleEvent>,
    /// How stacks of programs are found: `fp` by frame pointers, `dwarf` by the unwind tables of
    /// files, on copies of stacks; `auto` by frame pointers where they hold, and else by tables
    /// [default: auto]
    #[arg(long, value_name = "HOW", value_parser = user_stacks())]
    user_stacks: Option<UserStacks>,
}

impl SamplingArgs {
    /// As a table of an experiment.
    pub(crate) fn samples(&self) -> Samples {
        Samples {
            frequency: self.frequency,
            user_stacks: self.user_stacks,
            event: self.event,
            ..Samples::default()
        }
    }
}

/// Arguments of `plumb profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    how: SamplingArgs,
    /// Only this process, and those that it starts from now on
    #[arg(long, value_name = "PID", conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Only tasks in this cgroup (version 2) and in those below it
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// Measure time off the CPU as well: waiting, by the stack that waits and who ends it, or
    /// runnable
    #[arg(long)]
    off_cpu: bool,
    /// How long to sample, like 10s [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    #[command(flatten)]
    knobs: KnobArgs<OfMachine>,
    #[command(flatten)]
    guard: GuardArgs,
    /// Run COMMAND this often with each setting that is compared, each run being a block [default: 1]
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Recording to write [default: profile.plumb]; an existing one is renamed to
    /// profile.plumb.old
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// File of layer rules that take precedence over the built-in ones
    #[arg(long, value_name = "FILE")]
    layers: Option<PathBuf>,
    /// Show a live view: the functions with their shares; q ends it, and prints the report
    #[arg(long, conflicts_with = "command")]
    watch: bool,
    /// Don't print progress
    #[arg(short, long)]
    quiet: bool,
    /// Command to run and sample, from its start to its end
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ProfileArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob.
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let (knobs, vary) = levels(&self.knobs, Kind::Work, Lab::Host).map_err(Usage)?;
        Ok(Experiment {
            name: "profile".into(),
            instruments: Some(vec![SAMPLES.into()]),
            lab: Lab::Host,
            layer: self.show.layer().map(String::from),
            workload: Workload {
                command: self.command.clone(),
                duration: self.duration,
                ..Workload::of(Kind::Work)
            },
            filter: Filter {
                pid: self.pid,
                cgroup: (self.cgroup.as_ref()).map(|path| path.display().to_string()),
                ..Filter::default()
            },
            samples: Samples { off_cpu: self.off_cpu, ..self.how.samples() },
            blocks: Blocks { count: self.blocks, ..Blocks::default() },
            knobs,
            vary,
            ..Experiment::default()
        })
    }
}

/// Events, by name.
fn events() -> impl TypedValueParser<Value = SampleEvent> {
    PossibleValuesParser::new(SampleEvent::WORDS).map(|word| word.parse().unwrap_or_default())
}

/// Kinds of user stacks, by name.
fn user_stacks() -> impl TypedValueParser<Value = UserStacks> {
    PossibleValuesParser::new(UserStacks::WORDS).map(|word| word.parse().unwrap_or_default())
}

/// Sample and show.
///
/// # Errors
/// It can't be sampled here, or the run failed.
pub(crate) fn run(args: ProfileArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.watch && args.show.for_programs() {
        return Err(Usage("--watch can't be used with --json or --csv".into()).into());
    }
    if args.duration.is_some_and(|time| time.0.is_zero()) {
        return Err(Usage("invalid duration `0s`; expected like 10s or 500ms".into()).into());
    }
    let experiment = args.experiment()?;
    if args.blocks.is_some() && !experiment.has_knobs() {
        let why =
            "--blocks: a command is sampled in windows, unless settings are compared; leave it out";
        return Err(Usage(why.into()).into());
    }
    let changed = args.knobs.of_machine();
    let directions: [Direction; 0] = [];
    let how = How {
        watch: args.watch,
        yes_change: &changed,
        even_default_route: args.guard.even_default_route,
        ..How::new(
            Shown::Report(&args.show, &directions),
            &args.page,
            RunOptions {
                output: args.output,
                layers: args.layers,
                quiet: args.quiet,
                ..RunOptions::plain()
            },
        )
    };
    experiment::run(&experiment, how, cache)
}
