//! The agent in a guest: requests of experiments.

mod bench;
mod command;
mod disk;
mod furnish;
mod host;
mod live;
mod nics;
mod pages;
mod reads;
mod settings;
mod timing;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use netplumb_instruments::live::Live;
use netplumb_lab::netns::{Topology, TopologyError, TopologyPlan};
use netplumb_lab::vm::guest::Handler;
use netplumb_lab::vm::link;
use netplumb_lab::vm::{random, requested, usb};
use netplumb_model::experiment::{FromDevice, RxFault};
use netplumb_model::message::{Refused, Reply, Request, RunPlan};
use netplumb_model::recording::{Ledger, env};
use netplumb_model::timing::TimingSpec;
use netplumb_workload::device::{Device, FromDevices};
use netplumb_workload::ends::Ends;
use netplumb_workload::mark::Counting;
use netplumb_workload::packets::Traffic;

use crate::ends::{ends_of, topology_of};
use crate::facts;

pub use command::watched;
pub use timing::{CLOCK_INSNS, CLOCK_NS};

/// The agent, as far as it is about workloads.
#[derive(Debug, Default)]
pub struct Agent {
    standing: Vec<Standing>,
    /// The port of requests.
    port: Option<OwnedFd>,
    /// The instrument attached for the next command.
    instrument: Option<Box<dyn Live>>,
    /// One that has measured. To detach it takes long: the kernel's code is patched again.
    used: Option<Box<dyn Live>>,
}

/// The current topology, and its plan.
#[derive(Debug)]
struct Standing {
    plan: TopologyPlan,
    ends: Ends,
    topology: Topology,
}

/// Run as init of a guest. Returns only on failure.
pub fn be_init() -> io::Error {
    netplumb_lab::vm::guest::run(&mut Agent::default())
}

impl Handler for Agent {
    fn handle(
        &mut self,
        request: Request,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        match request {
            Request::Describe => Ok(reply(Reply::Facts(self.facts()))?),
            Request::Prepare(plan) => self.ends(&plan).map(drop),
            Request::Run(plan) => self.run(&plan, false, reply),
            Request::BeHost(plan) => self.be_host(&plan, reply),
            Request::RunOn(plan) => self.run(&plan, true, reply),
            Request::ListSysctls { prefixes, skip, plan } => {
                self.list_settings(&prefixes, &skip, &plan, reply)
            }
            Request::TimeFunctions { functions, spec, plan } => {
                self.time_functions(&functions, spec.as_deref(), &plan, reply)
            }
            Request::Time { spec, plan, bare } => self.time(spec, &plan, bare, reply),
            Request::Unpack { modules } => Ok(command::unpack(&modules)?),
            Request::ReadVdso => command::vdso(reply),
            Request::FindFrames(files) => Ok(reply(Reply::Frames(pages::frames(&files)))?),
            Request::Attach { spec, links } => self.attach(spec, &links, reply),
            Request::Command(plan) => {
                let port = self.port.as_ref().and_then(|p| p.try_clone().ok());
                let mut instrument = self.instrument.take();
                let ends = self.ends(&plan.links)?;
                let outcome =
                    command::run(&plan, ends, instrument.as_deref_mut(), port.as_ref(), reply);
                self.used = instrument;
                outcome
            }
            Request::BenchLimit(arm) => self.bench_limit(&arm, reply),
            Request::BenchBlock { arm, window_ns, warmup_ns, limit } => {
                self.bench_block(&arm, [window_ns, warmup_ns], limit, reply)
            }
            Request::BenchDiagnose(arm) => self.bench_diagnose(&arm, reply),
            Request::BenchCount(plan) => self.bench_count(&plan, reply),
            other => Err(format!("unknown request {other:?}").into()),
        }
    }

    fn clean_up(&mut self) {
        self.used = None;
    }

    fn port(&mut self, port: BorrowedFd<'_>) {
        self.port = port.try_clone_to_owned().ok();
    }
}

impl Agent {
    /// Facts of the machine, and of the current namespaces.
    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = facts::machine();
        let random = if random::is_set() { "seed" } else { "boot" };
        facts.insert(env::RANDOM.into(), random.into());
        for standing in &self.standing {
            let plan = &standing.plan;
            let prefix = format!("net.{}.{}", plan.link, plan.family);
            facts.extend(facts::topology(&prefix, &standing.topology));
        }
        facts
    }

    /// The ends for a plan, set up if necessary.
    fn ends(&mut self, plan: &RunPlan) -> Result<&Ends, Refused> {
        let wanted = topology_of(plan);
        if let Some(at) = self.standing.iter().position(|s| s.plan == wanted) {
            return Ok(&self.standing[at].ends);
        }
        let has_rules = wanted.nft.as_ref().is_some_and(|(rules, _)| !rules.is_generated());
        if has_rules || !wanted.programs.is_empty() || wanted.topology.spec.needs_requests() {
            let answered = requested::answer_requests();
            answered.map_err(|e| format!("answer the kernel's requests for modules: {e}"))?;
        }
        let close = |s: &Standing| Topology::can_become(&s.plan, &wanted);
        if let Some(at) = self.standing.iter().position(close) {
            let standing = &mut self.standing[at];
            standing.topology.change(&wanted).map_err(of_topology)?;
            note_modules(&mut standing.topology);
            standing.plan = wanted;
            return Ok(&self.standing[at].ends);
        }
        let wires = if wanted.topology.spec.links() > 1 { 2 } else { 1 };
        if plan.link.has_nics() {
            // The old one first: its NICs come home with its namespaces.
            self.standing.clear();
        }
        link::start(plan.link, wires).map_err(|e| format!("start the link {}: {e}", plan.link))?;
        let mut topology = Topology::build(&wanted, &link::nics(wires)).map_err(of_topology)?;
        note_modules(&mut topology);
        let ends = ends_of(&topology).map_err(|e| format!("hold a namespace: {e}"))?;
        self.standing.push(Standing { plan: wanted, ends, topology });
        Ok(&self.standing[self.standing.len() - 1].ends)
    }

    fn run(
        &mut self,
        plan: &RunPlan,
        goes_on: bool,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        let blocks = plan.blocks;
        // Otherwise last, since it would disturb the blocks.
        if goes_on && self.ends(plan).is_ok() {
            self.send_notes(plan, reply)?;
            reply(Reply::Chunk(self.symbols_of_modules(plan)?))?;
        }
        let ends = self.ends(plan)?;
        // The random numbers drawn meanwhile depend on the programs that made the settings.
        random::renew().map_err(|e| format!("set the kernel's random numbers: {e}"))?;
        let opened = |e: io::Error| {
            let hint = match e.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => format!(
                    ": topology {} has no route from {} to {}",
                    plan.topology.spec.name, ends.tx_address, ends.to_address
                ),
                _ => String::new(),
            };
            format!("open {} sockets: {e}{hint}", plan.proto)
        };
        let (mut index, mut all) = (0, Vec::new());
        // They are reported after a round, since a message between blocks would disturb them.
        let mut report = |ledgers: Vec<Ledger>| {
            if !goes_on {
                all = ledgers;
                return Ok(false);
            }
            for ledger in ledgers {
                reply(Reply::BlockDone { index, ledger })?;
                index += 1;
            }
            Ok(true)
        };
        let outcome = match plan.from_device {
            None => {
                let mut traffic = Traffic::open(plan, ends).map_err(opened)?;
                let (warm_up, block) = (Traffic::warm_up, Traffic::block);
                rounds(blocks, &mut traffic, warm_up, block, &mut report)
            }
            Some(frames) => {
                let nic = receiver().ok_or("no emulated device to receive frames")?;
                let mut load = FromDevices::open(plan, frames, ends, &nic).map_err(opened)?;
                let (warm_up, block) = (FromDevices::warm_up, FromDevices::block);
                rounds(blocks, &mut load, warm_up, block, &mut report)
            }
        };
        // A workload that can't be measured has no notes.
        if outcome.is_err() && all.is_empty() {
            return outcome;
        }
        self.send_notes(plan, reply)?;
        for (index, ledger) in (0..).zip(all) {
            reply(Reply::BlockDone { index, ledger })?;
        }
        outcome
    }

    /// Symbols of all modules, if some were loaded for the rules of a plan.
    fn symbols_of_modules(&self, plan: &RunPlan) -> io::Result<Vec<u8>> {
        let has_loaded = |notes: BTreeMap<String, String>| notes.contains_key(NFT_MODULES);
        let has_programs = !plan.programs.is_empty();
        match has_programs || self.notes(plan).is_some_and(has_loaded) {
            true => bench::symbols(|line| line.ends_with(b"]")),
            false => Ok(Vec::new()),
        }
    }

    /// Report the notes on the settings of a plan.
    fn send_notes(
        &self,
        plan: &RunPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        match self.notes(plan) {
            Some(notes) => Ok(reply(Reply::Facts(notes))?),
            None => Ok(()),
        }
    }
}

/// The note of modules that were loaded for rules.
const NFT_MODULES: &str = "nft.modules";

/// Note the modules that were loaded for rules.
fn note_modules(topology: &mut Topology) {
    let loaded = requested::loaded();
    if !loaded.is_empty() {
        (topology.notes).insert(NFT_MODULES.into(), loaded.join(" "));
    }
}

/// The error, with the modules that the kernel requested in vain.
fn of_topology(error: TopologyError) -> Refused {
    let refused = Refused::from(error);
    let mut requests = requested::in_vain();
    // Whoever mounts bpffs has the kernel ask for a module that is of no use here (kernel/bpf/inode.c).
    requests.retain(|request| !request.starts_with("bpf_preload"));
    // The kernel requests an expression for one family, and then for all (__nft_expr_type_get in
    // net/netfilter/nf_tables_api.c).
    requests.retain(|request| {
        let expression = request.strip_prefix("nft-expr-");
        !expression.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    requests.dedup();
    match requests {
        requests if requests.is_empty() => refused,
        requests => Refused {
            message: format!(
                "{}\nmodules that the kernel requested in vain: {}",
                refused.message,
                requests.join(", ")
            ),
            ..refused
        },
    }
}

/// Warm up and run blocks, in rounds: as long as `report` returns true, which receives the ledgers of each round, also
/// of one that was ended early.
fn rounds<T>(
    blocks: u32,
    source: &mut T,
    warm_up: impl Fn(&mut T) -> io::Result<()>,
    block: impl Fn(&mut T) -> io::Result<Ledger>,
    report: &mut dyn FnMut(Vec<Ledger>) -> io::Result<bool>,
) -> Result<(), Refused> {
    let _counting = Counting::begin();
    loop {
        warm_up(source).map_err(|e| format!("warm-up: {e}"))?;
        let mut ledgers = Vec::new();
        let mut failed = None;
        for index in 0..blocks {
            match block(source) {
                Ok(ledger) => ledgers.push(ledger),
                Err(error) => {
                    failed = Some(format!("block {index}: {error}"));
                    break;
                }
            }
        }
        let goes_on = report(ledgers)?;
        match failed {
            Some(error) => return Err(error.into()),
            None if !goes_on => return Ok(()),
            None => {}
        }
    }
}

/// The receiver's device, the second of the first wire.
fn receiver() -> Option<Emulated> {
    usb::emulated(1).map(Emulated)
}

/// An emulated device, for the workload.
struct Emulated(&'static usb::EmulatedNic);

impl Device for Emulated {
    fn mac(&self) -> [u8; 6] {
        self.0.mac
    }

    fn hand(&self, bytes: &[u8], frames: FromDevice) -> io::Result<()> {
        self.0.hand(bytes, frames)
    }

    fn taken(&self, fault: RxFault) -> u64 {
        self.0.taken(fault)
    }
}

impl Agent {
    fn time_functions(
        &mut self,
        functions: &[String],
        spec: Option<&TimingSpec>,
        plan: &RunPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        let ends = self.ends(plan)?;
        let clocks = timing::clocks();
        // None: traffic without probes, to compare with.
        let (attached, windows, timed) = match (spec, functions) {
            (None, [one]) => (None, Vec::new(), vec![timing::time(one, plan, ends)]),
            (spec, _) => {
                let (attached, windows) = timing::together(spec, plan, ends)?;
                (attached, windows, Vec::new())
            }
        };
        reply(Reply::Facts(timing::since(clocks)))?;
        if let Some(attached) = attached {
            reply(Reply::Attached(Box::new(attached)))?;
        }
        for window in windows {
            reply(Reply::Window(Box::new(window)))?;
        }
        Ok(reply(Reply::Timed(timed))?)
    }
}
