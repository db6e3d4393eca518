//! The lab, its instruments, and what only instruments of time take.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::experiment::{Lab, Share, Time};
use netplumb_model::timing::{INSTRUCTIONS, OWN_TIME, STAGE_TIME};

/// The instrument that is asked for; none where it is left to us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedClock(Option<&'static dyn Instrument>);

impl AskedClock {
    /// As clap takes it: the names that there are, with a line of help each.
    fn parser() -> impl TypedValueParser<Value = AskedClock> {
        let auto = PossibleValue::new(AUTO).help(
            "In the vm lab exact; elsewhere functions where the kernel lets them be timed, else \
             stages",
        );
        let clocks = registry::ALL.into_iter().filter(|i| i.is_clock());
        let clocks = clocks.map(|i| PossibleValue::new(i.name()).help(i.about()));
        PossibleValuesParser::new([auto].into_iter().chain(clocks))
            .map(|name| AskedClock(registry::find(&name)))
    }
}

/// What leaves the choice to us.
const AUTO: &str = "auto";

/// The lab, its clock, and what only clocks of time take.
#[derive(Debug, Args)]
#[command(next_help_heading = "Labs and clocks")]
pub(crate) struct LiveArgs {
    /// Where packets run
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = lab())]
    pub(crate) lab: Lab,
    /// What is measured with; several with commas, each in blocks of its own
    #[arg(long, value_parser = AskedClock::parser(), value_name = "CLOCK", value_delimiter = ',', default_value = AUTO)]
    pub(crate) clock: Vec<AskedClock>,
    /// How long to measure in all, like 10s or 500ms [default: 5s, of a command as long as it runs]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Time>,
    /// Packets a second, at most
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) rate: Option<u32>,
    /// Send without waiting for packets to arrive, by a thread of its own
    #[arg(long)]
    pub(crate) stream: bool,
    /// Only packets with this port at either end
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Only packets with this address at either end
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<std::net::IpAddr>,
    /// Only packets on this device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) interface: Option<String>,
    /// Only in this network namespace: a name of `ip netns`, a process, or a path
    #[arg(long, value_name = "NAME|PID|PATH")]
    pub(crate) netns: Option<String>,
    /// Only calls of this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only tasks of this cgroup (version 2): its path
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Functions to be timed, with * for any letters; again for more
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) functions: Vec<String>,
    /// Time the functions that this recording saw
    #[arg(long, value_name = "FILE")]
    pub(crate) from_recording: Option<PathBuf>,
    /// Time the functions that take a packet, from the kernel's type information [default,
    /// if no functions are named]
    #[arg(long)]
    pub(crate) discover: bool,
    /// Time at most so many functions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) max_functions: Option<u32>,
    /// Let measuring take no more than this share of the work, like 5%: functions are shed,
    /// stages are followed with pauses [default: of stages on the host, or with
    /// --measure-cost, 5%; 100% is no limit]
    #[arg(long, value_name = "SHARE")]
    pub(crate) max_overhead: Option<Share>,
    /// Run every block with and without probes, and tell what measuring costs
    #[arg(long)]
    pub(crate) measure_cost: bool,
    /// Tell one packet's way step by step, beside the figures: `--perfetto OUT` makes a trace
    /// of it
    #[arg(long)]
    pub(crate) one_packet: bool,
    /// Show figures as they come, in the labs host and netns; q ends
    #[arg(long)]
    pub(crate) watch: bool,
}

impl LiveArgs {
    /// Whether a clock of time is asked for.
    pub(crate) fn wanted(&self) -> bool {
        let named = self.clock.iter().filter_map(|clock| clock.0);
        self.lab != Lab::Vm || named.into_iter().any(|i| i.name() != EXACT)
    }

    /// Whether one of this name is asked for.
    pub(crate) fn asks(&self, name: &str) -> bool {
        self.instruments()
            .is_some_and(|all| all.iter().any(|one| one == name))
    }

    /// The instruments that are meant, if they are not left to the machine.
    pub(crate) fn instruments(&self) -> Option<Vec<String>> {
        let names = self
            .clock
            .iter()
            .map(|clock| clock.0.map(|i| i.name().into()));
        names.collect()
    }
}

/// Instruments of which something is to be said here.
pub(crate) const EXACT: &str = INSTRUCTIONS.instrument;
pub(crate) const FUNCTIONS: &str = OWN_TIME.instrument;
pub(crate) const STAGES: &str = STAGE_TIME.instrument;

/// Labs by their names, with what they are.
fn lab() -> impl TypedValueParser<Value = Lab> {
    let told = [
        (Lab::Host, "This machine's own traffic"),
        (
            Lab::Netns,
            "Network namespaces of this machine, joined by veth",
        ),
        (Lab::Vm, "A QEMU guest that boots any kernel"),
    ];
    let values = told.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).map(|name| name.parse().unwrap_or_default())
}
