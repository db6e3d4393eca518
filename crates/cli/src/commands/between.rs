//! `plumb between`: the time from one event to the next, of all work or of a process, a cgroup or a
//! command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Experiment, Filter, Kind, Lab, Time, Workload};
use netplumb_model::span::StageKind;
use netplumb_model::spans::{By, Slow, Spans};

use crate::args::live::SPANS;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::experiment::{self, How, Shown};

/// Arguments of `plumb between`.
#[derive(Debug, Args)]
pub(crate) struct BetweenArgs {
    /// Two events or more, the first one first: tracepoints (block:block_rq_issue), functions of the
    /// kernel (kprobe:FUNCTION, kretprobe:FUNCTION) and of programs (uprobe:FILE:FUNCTION)
    #[arg(value_name = "EVENT", required = true, num_args = 1..)]
    events: Vec<String>,
    /// What an event is about: `request`, `bio`, `skb`, `task`, `cpu`, or the name of an argument or
    /// field; one for all events, or one for each, comma-separated [default: what all events have in
    /// common, by their types, or else the task that runs]
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    key: Vec<String>,
    /// Break times down by this
    #[arg(long, value_name = "WHAT", value_parser = breakdowns())]
    by: Option<By>,
    /// Show who caused those that took longer, like 10ms, or p99 of those before; implies --by stack
    #[arg(long, value_name = "TIME", value_parser = slow)]
    slow: Option<String>,
    /// Whether each stage is work or a wait, comma-separated, where it is not known
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    kind: Vec<StageKind>,
    /// Only what this process begins, and those that it starts from now on
    #[arg(long, value_name = "PID", conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Only what tasks begin in this cgroup (version 2) and in those below it
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// How long to measure, like 10s [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Measure in windows of this length, like 1s
    #[arg(long, value_name = "TIME")]
    interval: Option<Time>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Recording to write [default: between.plumb]; an existing one is renamed to between.plumb.old
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// File of layer rules that take precedence over the built-in ones
    #[arg(long, value_name = "FILE")]
    layers: Option<PathBuf>,
    /// Don't print progress
    #[arg(short, long)]
    quiet: bool,
    /// Command to run meanwhile: only what it and its children begin
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
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
    pub(crate) fn experiment(&self) -> Experiment {
        Experiment {
            name: "between".into(),
            instruments: Some(vec![SPANS.into()]),
            lab: Lab::Host,
            layer: self.show.layer().map(String::from),
            workload: Workload {
                command: self.command.clone(),
                duration: self.duration,
                window: self.interval,
                ..Workload::of(Kind::Work)
            },
            filter: Filter {
                pid: self.pid,
                cgroup: (self.cgroup.as_ref()).map(|path| path.display().to_string()),
                ..Filter::default()
            },
            spans: Spans {
                events: self.events.clone(),
                key: self.key.clone(),
                kinds: self.kind.clone(),
                by: self.by,
                slow: self.slow.clone(),
            },
            ..Experiment::default()
        }
    }
}

/// Measure and show.
///
/// # Errors
/// It can't be measured here, or the run failed.
pub(crate) fn run(args: BetweenArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let experiment = args.experiment();
    let directions: [Direction; 0] = [];
    let how = How {
        text: "",
        folder: Path::new(""),
        shown: Shown::Report(&args.show, &directions),
        page: &args.page,
        options: RunOptions {
            output: args.output,
            layers: args.layers,
            quiet: args.quiet,
            ..RunOptions::plain()
        },
        watch: false,
        stdin: false,
        yes_change: &[],
        even_default_route: false,
    };
    experiment::run(&experiment, how, cache)
}
