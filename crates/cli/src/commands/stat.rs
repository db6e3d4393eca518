//! `plumb stat`: how often events happen, of all work or of a process, a cgroup or a command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::events::{By, EVENTS as DECLARED, Events, Focus};
use netplumb_model::experiment::{Experiment, Filter, Kind, Lab, Time, Workload};

use crate::args::formats::FormatArgs;
use crate::args::heading;
use crate::args::live::{EVENTS, EXACT};
use crate::args::page::PageArgs;
use crate::args::place::PlaceArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, PrintWhat};

/// Which events are counted.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::EVENTS)]
pub(crate) struct EventArgs {
    /// Events, comma-separated (see `plumb doctor --events`)
    ///
    /// Names (page-faults), tracepoints (block:block_rq_issue, block:*), and function calls
    /// (kprobe:FUNCTION, uprobe:FILE:FUNCTION). `plumb doctor --events` lists the names. [default:
    /// task-clock, context-switches, page-faults and others]
    #[arg(value_name = "EVENTS", value_delimiter = ',', help_heading = None)]
    events: Vec<String>,
    /// Count all events of these subsystems, comma-separated
    ///
    /// `plumb doctor --events` lists the events of each subsystem.
    #[arg(long, value_name = "FOCUS", value_delimiter = ',', value_parser = focuses())]
    focus: Vec<Focus>,
    /// Break counts down
    #[arg(long, value_name = "WHAT", value_parser = breakdowns())]
    by: Option<By>,
}

impl EventArgs {
    /// As a table of an experiment.
    pub(crate) fn events(&self) -> Events {
        Events {
            names: self.events.clone(),
            focus: self.focus.clone(),
            by: self.by,
            ..Events::default()
        }
    }
}

/// Arguments of `plumb stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    which: EventArgs,
    /// Divide one event by another, like page-faults/task-clock; may be repeated
    #[arg(long, value_name = "A/B", help_heading = heading::EVENTS)]
    ratio: Vec<String>,
    /// Only this process, and its future children
    #[arg(long, value_name = "PID", help_heading = heading::FILTERS, conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Only tasks in this cgroup (version 2), and below it
    #[arg(long, value_name = "PATH", help_heading = heading::FILTERS, conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// Counting time, like 10s
    ///
    /// [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME", help_heading = heading::MEASUREMENT)]
    duration: Option<Time>,
    /// Count in windows of this length, like 1s
    ///
    /// Without --interval, a run of COMMAND is one block.
    #[arg(long, value_name = "TIME", help_heading = heading::MEASUREMENT)]
    interval: Option<Time>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print CSV, one row per event
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, with everything measured
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
    /// Write Markdown, for a cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = heading::FORMATS, conflicts_with_all = ["csv", "json"])]
    markdown: Option<PathBuf>,
    /// Write the counts as OpenMetrics text
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = heading::FORMATS, conflicts_with_all = ["csv", "json", "markdown"])]
    openmetrics: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
    /// Show a live view of the events and their rates; q prints the report
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["csv", "json", "command", "blocks"])]
    watch: bool,
}

/// Subsystems, each with its number of events.
fn focuses() -> impl TypedValueParser<Value = Focus> {
    let about = |focus: &Focus| {
        let events = DECLARED.iter().filter(|event| event.focus == *focus);
        PossibleValue::new(focus.as_str()).help(format!("{} events", events.count()))
    };
    let words: Vec<PossibleValue> = Focus::ALL.iter().map(about).collect();
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Focus>())
}

/// What counts may be broken down by.
fn breakdowns() -> impl TypedValueParser<Value = By> {
    PossibleValuesParser::new(By::WORDS).try_map(|word| word.parse::<By>())
}

impl StatArgs {
    /// Check that guests are asked for what is counted in them.
    ///
    /// # Errors
    /// An option that is for this machine, and what to use instead.
    fn check_guest(&self) -> anyhow::Result<()> {
        let of_host = "it is for tasks of this machine: use --lab host";
        for (flag, given, why) in [
            (
                "--duration",
                self.duration.is_some(),
                "in lab vm, --packets and --blocks set how many packets are counted, and a command is counted until it ends",
            ),
            (
                "--interval",
                self.interval.is_some(),
                "in lab vm there are blocks of packets (--packets), and each run of a command is a block",
            ),
            ("--pid", self.pid.is_some(), of_host),
            ("--cgroup", self.cgroup.is_some(), of_host),
        ] {
            if given && self.place.lab == Lab::Vm {
                return Err(Usage(format!("{flag}: {why}")).into());
            }
        }
        Ok(())
    }

    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob, or an option that is for other work.
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let place = self.place.experiment()?;
        // In guests all instructions are counted, too, in other guests of the same kind.
        let counts = (place.lab == Lab::Vm).then(|| EXACT.to_string());
        Ok(Experiment {
            name: "stat".into(),
            instruments: Some(counts.into_iter().chain([EVENTS.into()]).collect()),
            workload: Workload { duration: self.duration, window: self.interval, ..place.workload },
            filter: Filter {
                pid: self.pid,
                cgroup: (self.cgroup.as_ref()).map(|path| path.display().to_string()),
                ..Filter::default()
            },
            events: Events { ratios: self.ratio.clone(), ..self.which.events() },
            ..place
        })
    }
}

/// Count and show.
///
/// # Errors
/// It can't be counted here, or the run failed.
pub(crate) fn run(args: StatArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let mut experiment = args.experiment()?;
    experiment::topologies::read(&mut experiment, Names::Typed)?;
    args.check_guest()?;
    let work = experiment.workload.kind == Kind::Work;
    if work && experiment.blocks.count.is_some() && experiment.workload.command.is_empty() {
        let why = "--blocks: these are runs of a command; without one use --interval";
        return Err(Usage(why.into()).into());
    }
    if args.place.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    // The report needs to know the ratios.
    let text = experiment.to_toml()?;
    let show = ShowArgs::of_no_functions(
        args.csv,
        args.json,
        FormatArgs::of_counts(args.markdown, args.openmetrics),
    );
    let directions: [Direction; 0] = [];
    let how = How {
        text: &text,
        // Of several parts, this one: the others' findings are printed with it.
        clock: Some(EVENTS),
        stdin: args.place.takes_stdin(),
        watch: args.watch,
        yes_change: &args.place.of_machine(),
        even_default_route: args.place.even_default_route(),
        ..How::new(PrintWhat::Report(&show, &directions), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}
