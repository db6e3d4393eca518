//! `plumb trace`: single calls of a function, as trees.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::experiment::{
    Blocks, Condition, Experiment, Filter, Kind, Knobs, Lab, Time, Trace, Vary, Workload,
};

use crate::args::command::CommandArgs;
use crate::args::knobs::{KnobArgs, OfPackets, levels};
use crate::args::live::{CALLS, EXACT};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, Shown};

/// Arguments of `plumb trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Function of the kernel, or of COMMAND; FILE:FUNCTION is that of its program or library FILE,
    /// whatever the kernel has
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// How deep: 1 is the function alone [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    depth: Option<u32>,
    /// Calls to keep in each block, those that took most; besides the first one [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slowest: Option<u32>,
    /// Show arguments and return values of calls, by the kernel's types (BTF) and the program's debug
    /// information
    #[arg(long)]
    args: bool,
    /// Keep only calls for which this holds: insns, self, switches, an argument of the function by
    /// its name or retval, compared with a number, like 'insns > 10K && retval < 0'; of calls that are
    /// timed dur, elapsed or switches, like 'dur > 1ms'
    #[arg(long = "if", value_name = "CONDITION")]
    only: Option<Condition>,
    /// Time calls, by the kernel's function_graph tracer, instead of counting their instructions; as
    /// everywhere but in the lab vm
    #[arg(long)]
    time: bool,
    /// Only calls that this process makes, and those that it starts from now on; in the lab host
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// How long to trace, like 10s; in the lab host [default: until Ctrl-C, or until COMMAND or the
    /// process ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Where the workload runs
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = labs())]
    lab: Lab,
    #[command(flatten)]
    knobs: KnobArgs<OfPackets>,
    /// Packets per block [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    packets: Option<u32>,
    /// Warm-up packets before the first block, not measured [default: 200]; with a command:
    /// connections to open before it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warmup: Option<u32>,
    /// Number of blocks per arm [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    #[command(flatten)]
    command: CommandArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// Packets of a block, by default: each may have many calls.
const PACKETS: u32 = 20;

/// Labs by name, each with a line of help.
fn labs() -> impl TypedValueParser<Value = Lab> {
    let labs = [
        (Lab::Vm, "Packets or COMMAND in a QEMU guest"),
        (Lab::Netns, "Packets or COMMAND in network namespaces of this machine; calls are timed"),
        (Lab::Host, "This machine: all calls, or those of a process or of COMMAND; they are timed"),
    ];
    let values = labs.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Lab>())
}

impl TraceArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob.
    pub(crate) fn experiment(&self) -> Result<Experiment, String> {
        let kind = match (self.lab, self.command.is_empty()) {
            (Lab::Host, _) => Kind::Work,
            (_, true) => Kind::Packets,
            (_, false) => Kind::Command,
        };
        let packets = kind == Kind::Packets;
        let (knobs, vary) = match kind {
            // There is nothing to set: what is there is measured.
            Kind::Work if self.knobs.given().is_empty() => (Knobs::default(), Vary::default()),
            kind => levels(&self.knobs, kind, self.lab)?,
        };
        let timed = self.time || self.lab != Lab::Vm;
        Ok(Experiment {
            name: "trace".into(),
            title: format!("Calls of {}", self.function),
            instruments: Some(vec![if timed { CALLS } else { EXACT }.into()]),
            lab: self.lab,
            workload: Workload {
                packets: packets.then(|| self.packets.unwrap_or(PACKETS)),
                warmup_packets: self.warmup.filter(|_| packets),
                command: self.command.words().to_vec(),
                with: self.command.with_files().to_vec(),
                peer: self.command.peer().map(String::from),
                connections: self.warmup.filter(|_| kind == Kind::Command),
                duration: self.duration,
                ..Workload::of(kind)
            },
            filter: Filter { pid: self.pid, ..Filter::default() },
            blocks: Blocks {
                count: (kind != Kind::Work).then_some(self.blocks.unwrap_or(1)),
                seeds: self.options.seeds,
                ..Blocks::default()
            },
            trace: Some(Trace {
                function: self.function.clone(),
                depth: self.depth,
                slowest: self.slowest,
                steps: None,
                args: self.args,
                only: self.only.clone(),
            }),
            setup: self.command.setup()?,
            knobs,
            vary,
            ..Experiment::default()
        })
    }
}

/// Trace and show.
///
/// # Errors
/// It can't be traced here, there is no such function, or the run failed.
pub(crate) fn run(args: TraceArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let of_host = [
        ("--pid", args.pid.is_some(), "it needs --lab host"),
        ("--duration", args.duration.is_some(), "it needs --lab host"),
    ];
    let of_others = [
        (
            "--packets",
            args.packets.is_some(),
            "it can't be used with --lab host, which sends nothing",
        ),
        (
            "--warmup",
            args.warmup.is_some(),
            "it can't be used with --lab host, which sends nothing",
        ),
        (
            "--blocks",
            args.blocks.is_some(),
            "it can't be used with --lab host, which has one block",
        ),
    ];
    let wrong = match args.lab {
        Lab::Host => &of_others[..],
        _ => &of_host[..],
    };
    if let Some((flag, _, why)) = wrong.iter().find(|(_, given, _)| *given) {
        return Err(Usage(format!("{flag}: {why}")).into());
    }
    if !args.command.is_empty() && args.packets.is_some() {
        return Err(Usage(
            "--packets can't be used with a command: it is for packets that plumb sends".into(),
        )
        .into());
    }
    let mut experiment = args.experiment().map_err(Usage)?;
    if args.knobs.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    // What was traced is for the report to know.
    let text = experiment.to_toml()?;
    let directions: [Direction; 0] = [];
    let how = How {
        text: &text,
        stdin: args.command.takes_stdin(),
        ..How::new(Shown::Report(&args.show, &directions), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}
