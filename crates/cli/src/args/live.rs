//! The lab, the instruments, and options of instruments that measure time.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::experiment::{Lab, Samples, Share, Time};
use netplumb_model::timing::{INSTRUCTIONS, OWN_TIME, SAMPLED, STAGE_TIME};

use super::heading;

/// An instrument by its name; none for `auto`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedClock(Option<&'static dyn Instrument>);

impl AskedClock {
    /// For clap: the names, each with a line of help.
    fn parser() -> impl TypedValueParser<Value = AskedClock> {
        let auto = PossibleValue::new(AUTO).help(
            "exact in the vm lab; elsewhere functions if the kernel supports it, else stages",
        );
        let clocks = registry::ALL.into_iter().filter(|i| i.is_clock());
        let clocks = clocks.map(|i| PossibleValue::new(i.name()).help(i.about()));
        PossibleValuesParser::new([auto].into_iter().chain(clocks))
            .map(|name| AskedClock(registry::find(&name)))
    }
}

/// The name with which plumb chooses.
const AUTO: &str = "auto";

/// The lab, the instruments, and options of instruments that measure time.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct LiveArgs {
    /// Lab to run in
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = lab(), help_heading = heading::LAB)]
    pub(crate) lab: Lab,
    /// Instruments, comma-separated
    ///
    /// Each instrument measures in blocks of its own.
    #[arg(long, value_parser = AskedClock::parser(), value_name = "CLOCK", value_delimiter = ',', default_value = AUTO)]
    pub(crate) clock: Vec<AskedClock>,
    /// Average number of instructions between samples, in guests [default: 1000]
    #[arg(long, value_name = "INSNS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample_period: Option<u64>,
    /// Random seeds for sampling in guests, comma-separated [default: 1]
    ///
    /// The same run is sampled with each seed.
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    pub(crate) sample_seed: Vec<u32>,
    /// Total measuring time, like 10s, 500ms or 12h
    ///
    /// It replaces the number of blocks. [default: 5s; with COMMAND, until it exits]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Maximum number of packets to send per second
    #[arg(long, value_name = "PPS", help_heading = heading::WORKLOAD, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) rate: Option<u32>,
    /// Send continuously from a separate thread, without waiting for each packet to arrive
    #[arg(long, help_heading = heading::WORKLOAD)]
    pub(crate) stream: bool,
    /// Only packets with this source or destination port
    #[arg(long, value_name = "PORT", help_heading = heading::FILTERS)]
    pub(crate) port: Option<u16>,
    /// Only packets with this source or destination IP address
    #[arg(long, value_name = "ADDRESS", help_heading = heading::FILTERS)]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Only packets on this network interface
    #[arg(long, value_name = "DEVICE", help_heading = heading::FILTERS)]
    pub(crate) interface: Option<String>,
    /// Only packets in this network namespace: a name from `ip netns`, a PID, or a path
    #[arg(long, value_name = "NAME|PID|PATH", help_heading = heading::FILTERS)]
    pub(crate) netns: Option<String>,
    /// Only events in the context of this process
    #[arg(long, value_name = "PID", help_heading = heading::FILTERS)]
    pub(crate) pid: Option<u32>,
    /// Only events in the context of tasks in this cgroup (version 2)
    #[arg(long, value_name = "PATH", help_heading = heading::FILTERS)]
    pub(crate) cgroup: Option<PathBuf>,
    /// Functions to time: names or glob patterns, comma-separated; may be repeated
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) functions: Vec<String>,
    /// Time the functions of this recording
    #[arg(long, value_name = "FILE")]
    pub(crate) from_recording: Option<PathBuf>,
    /// Time the functions with a struct sk_buff * parameter, according to BTF
    ///
    /// [default if no functions are given]
    #[arg(long)]
    pub(crate) discover: bool,
    /// Maximum number of functions to time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) max_functions: Option<u32>,
    /// Maximum measuring overhead, as a share of the work's CPU time, like 5%
    ///
    /// Functions called too often are detached; stages are recorded in intervals. [default: 5% for
    /// stages in the host lab or with --measure-cost, else 100%, no limit]
    #[arg(long, value_name = "SHARE")]
    pub(crate) max_overhead: Option<Share>,
    /// Run every block with and without probes, and report the measuring overhead
    #[arg(long)]
    pub(crate) measure_cost: bool,
    /// Also record per-packet traces: single packets, step by step
    ///
    /// `--perfetto OUT` exports the traces.
    #[arg(long)]
    pub(crate) one_packet: bool,
}

impl LiveArgs {
    /// Whether an instrument that measures time was requested.
    pub(crate) fn wanted(&self) -> bool {
        let named = self.clock.iter().filter_map(|clock| clock.0);
        let counts = |name: &str| [EXACT, SAMPLES].contains(&name);
        self.lab != Lab::Vm || named.into_iter().any(|i| !counts(i.name()))
    }

    /// Whether an instrument of this name was requested.
    pub(crate) fn asks(&self, name: &str) -> bool {
        self.instruments().is_some_and(|all| all.iter().any(|one| one == name))
    }

    /// How samples are drawn in guests.
    pub(crate) fn samples(&self) -> Samples {
        Samples {
            period: self.sample_period,
            seeds: self.sample_seed.iter().copied().map(u64::from).collect(),
            ..Samples::default()
        }
    }

    /// The instruments by name; none if plumb chooses.
    pub(crate) fn instruments(&self) -> Option<Vec<String>> {
        let names = self.clock.iter().map(|clock| clock.0.map(|i| i.name().into()));
        names.collect()
    }
}

/// Instruments that options depend on.
pub(crate) const EXACT: &str = INSTRUCTIONS.instrument;
pub(crate) const FUNCTIONS: &str = OWN_TIME.instrument;
pub(crate) const STAGES: &str = STAGE_TIME.instrument;
pub(crate) const SAMPLES: &str = SAMPLED.instrument;
pub(crate) const EVENTS: &str = netplumb_model::events::INSTRUMENT;
pub(crate) const SPANS: &str = netplumb_model::spans::INSTRUMENT;
/// The instrument that times single calls.
pub(crate) const CALLS: &str = netplumb_model::calls::TIMED.step.instrument;

/// Labs by name, each with a line of help.
fn lab() -> impl TypedValueParser<Value = Lab> {
    let labs = [
        (Lab::Host, "The interfaces and traffic of this machine; nothing is sent or changed"),
        (Lab::Netns, "Network namespaces on this machine, connected by veth"),
        (Lab::Vm, "A QEMU guest that boots the kernel given by --kernel"),
    ];
    let values = labs.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).map(|name| name.parse().unwrap_or_default())
}
