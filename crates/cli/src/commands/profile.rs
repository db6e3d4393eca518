//! `plumb profile`: where CPU time goes, of all work or of a process, a cgroup or a command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Blocks, Experiment, Filter, Kind, Lab, Samples, Time, Workload};
use netplumb_model::timing::{SampleEvent, UserStacks};

use crate::args::guard::GuardArgs;
use crate::args::heading;
use crate::args::knobs::{KnobArgs, OfMachine, levels};
use crate::args::live::SAMPLES;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::{self, How, PrintWhat};

/// How CPUs are sampled.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct SamplingArgs {
    /// Samples per second on each CPU [default: 997]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    frequency: Option<u32>,
    /// Event to sample [default: cpu-clock]
    ///
    /// `cpu-clock` is a timer on each CPU, `cycles` the cycle counter of each CPU; `auto` takes the
    /// counter if there is one, or else the timer.
    #[arg(long, value_name = "EVENT", value_parser = events())]
    event: Option<SampleEvent>,
    /// Unwinding of program stacks [default: auto]
    ///
    /// `fp` follows frame pointers; `dwarf` applies the unwind tables of files to copies of stacks;
    /// `auto` follows frame pointers where they are valid, and uses tables elsewhere.
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
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    how: SamplingArgs,
    /// Also measure time off the CPU, waiting or runnable
    ///
    /// Time waiting is shown by the waiting stack and by the waker.
    #[arg(long)]
    off_cpu: bool,
    /// Sampling time, like 10s
    ///
    /// [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Number of runs of COMMAND with each compared setting, each run a block [default: 1]
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    /// Only this process, and its future children
    #[arg(long, value_name = "PID", help_heading = heading::FILTERS, conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Only tasks in this cgroup (version 2), and below it
    #[arg(long, value_name = "PATH", help_heading = heading::FILTERS, conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    #[command(flatten)]
    knobs: KnobArgs<OfMachine>,
    #[command(flatten)]
    guard: GuardArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Recording to write [default: profile.plumb]
    ///
    /// An existing recording is renamed to profile.plumb.old.
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,
    /// File of layer rules that take precedence over the built-in ones
    #[arg(long, value_name = "FILE", help_heading = heading::REPORT)]
    layers: Option<PathBuf>,
    /// Show a live view of functions and their shares; q prints the report
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with = "command")]
    watch: bool,
    /// Don't print progress
    #[arg(short, long, help_heading = heading::OUTPUT)]
    quiet: bool,
    /// Command to run, and to sample from start to end
    #[arg(last = true, value_name = "COMMAND", help_heading = None)]
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
                ..Workload::from_kind(Kind::Work)
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
            PrintWhat::Report(&args.show, &directions),
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
