//! `plumb between`: the time from one event to the next, of all work or of a process, a cgroup or a
//! command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Experiment, Filter, Kind, Time, Workload};
use netplumb_model::span::StageKind;
use netplumb_model::spans::{self, By, Preset, Slow, Spans};

use crate::args::heading;
use crate::args::live::SPANS;
use crate::args::page::PageArgs;
use crate::args::place::PlaceArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, PrintWhat};

/// Between which events.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::EVENTS)]
pub(crate) struct BetweenEvents {
    /// Two or more events, in order
    ///
    /// Tracepoints (block:block_rq_issue), kernel functions (kprobe:FUNCTION, kretprobe:FUNCTION)
    /// and functions of programs (uprobe:FILE:FUNCTION).
    #[arg(value_name = "EVENT", required_unless_present = "preset", num_args = 1.., help_heading = None)]
    events: Vec<String>,
    /// Use a predefined pair of events, with keys
    #[arg(long, value_name = "PRESET", conflicts_with_all = ["events", "key"], value_parser = presets())]
    preset: Option<Preset>,
    /// Match events by KEY: request, bio, skb, task, cpu, or an argument or field
    ///
    /// `request`, `bio`, `skb`, `task`, `cpu`, or the name of an argument or field; one for all
    /// events, or one per event, comma-separated [default: what all events have in common, by type,
    /// or else the running task].
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    key: Vec<String>,
    /// Kind of each stage, comma-separated, where it is unknown
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    kind: Vec<StageKind>,
}

impl BetweenEvents {
    /// As of an experiment.
    pub(crate) fn spans(&self) -> Spans {
        Spans {
            preset: self.preset,
            events: self.events.clone(),
            key: self.key.clone(),
            kinds: self.kind.clone(),
            ..Spans::default()
        }
    }
}

/// Arguments of `plumb between`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::EVENTS)]
pub(crate) struct BetweenArgs {
    #[command(flatten)]
    which: BetweenEvents,
    /// Break times down
    #[arg(long, value_name = "WHAT", value_parser = breakdowns())]
    by: Option<By>,
    /// Show who caused times above TIME, like 10ms or p99; implies --by stack
    ///
    /// p99 is the 99th percentile of the times so far.
    #[arg(long, value_name = "TIME", value_parser = slow)]
    slow: Option<String>,
    /// Only events begun by this process, and by its future children
    #[arg(long, value_name = "PID", help_heading = heading::FILTERS, conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Only events begun by tasks in this cgroup (version 2), and below it
    #[arg(long, value_name = "PATH", help_heading = heading::FILTERS, conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// Measuring time, like 10s
    ///
    /// [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME", help_heading = heading::MEASUREMENT)]
    duration: Option<Time>,
    /// Measure in windows of this length, like 1s
    #[arg(long, value_name = "TIME", help_heading = heading::MEASUREMENT)]
    interval: Option<Time>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Show a live view of the stages and their times; q prints the report
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with = "command")]
    watch: bool,
    #[command(flatten)]
    options: RunOptions,
}

/// Presets, each with its events.
fn presets() -> impl TypedValueParser<Value = Preset> {
    let about = |preset: &Preset| {
        let (events, _) = preset.parts();
        let short: Vec<&str> = events.iter().map(|event| spans::short(event)).collect();
        PossibleValue::new(preset.as_str()).help(short.join(", "))
    };
    let words: Vec<PossibleValue> = Preset::ALL.iter().map(about).collect();
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Preset>())
}

/// What times may be broken down by.
fn breakdowns() -> impl TypedValueParser<Value = By> {
    PossibleValuesParser::new(By::WORDS).try_map(|word| word.parse::<By>())
}

/// What a stage may be said to be.
fn kinds() -> impl TypedValueParser<Value = StageKind> {
    let kinds = [StageKind::Work.as_str(), StageKind::Wait.as_str()];
    PossibleValuesParser::new(kinds).try_map(|word| word.parse::<StageKind>())
}

fn slow(text: &str) -> Result<String, String> {
    text.parse::<Slow>().map(|_| text.into())
}

impl BetweenArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob, or an option that is for other work.
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let place = self.place.experiment()?;
        Ok(Experiment {
            name: "between".into(),
            instruments: Some(vec![SPANS.into()]),
            layer: self.show.layer().map(String::from),
            workload: Workload { duration: self.duration, window: self.interval, ..place.workload },
            filter: Filter {
                pid: self.pid,
                cgroup: (self.cgroup.as_ref()).map(|path| path.display().to_string()),
                ..Filter::default()
            },
            spans: Spans { by: self.by, slow: self.slow.clone(), ..self.which.spans() },
            ..place
        })
    }
}

/// Measure and show.
///
/// # Errors
/// It can't be measured here, or the run failed.
pub(crate) fn run(args: BetweenArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let mut experiment = args.experiment()?;
    experiment::topologies::read(&mut experiment, Names::Typed)?;
    let windows = experiment.workload.kind == Kind::Work && !experiment.has_knobs();
    if windows && experiment.blocks.count.is_some() {
        let why = "--blocks: on this machine times are measured in windows, unless settings are compared; use \
                   --interval";
        return Err(Usage(why.into()).into());
    }
    if args.place.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    let directions: [Direction; 0] = [];
    let how = How {
        stdin: args.place.takes_stdin(),
        watch: args.watch,
        yes_change: &args.place.of_machine(),
        even_default_route: args.place.even_default_route(),
        ..How::new(PrintWhat::Report(&args.show, &directions), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}
