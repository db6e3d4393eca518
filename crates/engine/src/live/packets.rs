//! Packets between namespaces, block by block.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_lab::cancel::Cancel;
use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_model::class::Proto;
use netplumb_model::message::RunPlan;
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::TimingSpec;
use netplumb_workload::drops;
use netplumb_workload::ends::Ends;
use netplumb_workload::packets::Traffic;

use super::plan::PacketPlan;
use super::{LiveEnd, LiveEvent, Probes};
use crate::error::EngineError;
use crate::extras;
use crate::kinds::check_pairs;
use crate::outside::load;
use crate::plan::Plan;
use crate::schedule::{Turn, interleaved};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use netplumb_agent::ends::{ends_of, topology_of};
use netplumb_agent::outside::{Cpus, figures};

/// Warm-up packets before later blocks of an arm, whose sockets are new each time.
const REWARM_PACKETS: u32 = 20;

/// The topologies that are set up, each once.
pub(super) struct Standing {
    all: Vec<(TopologyPlan, Topology, Ends)>,
}

impl Standing {
    pub(super) fn new() -> Standing {
        Standing { all: Vec::new() }
    }

    /// The index of a topology, set up if necessary.
    pub(super) fn build(
        &mut self,
        plan: TopologyPlan,
        tell: &mut dyn FnMut(LiveEvent<'_>),
    ) -> Result<usize, EngineError> {
        if let Some(at) = self.all.iter().position(|(p, _, _)| *p == plan) {
            return Ok(at);
        }
        tell(LiveEvent::Step("setting up network namespaces".into()));
        let topology = Topology::build_named(&plan)?;
        if let Some(names) = &topology.names {
            tell(LiveEvent::Named(names.run()));
        }
        let ends = ends_of(&topology).map_err(EngineError::host("open a network namespace"))?;
        self.all.push((plan, topology, ends));
        Ok(self.all.len() - 1)
    }

    pub(super) fn ends(&self, at: usize) -> &Ends {
        &self.all[at].2
    }

    pub(super) fn topology(&self, at: usize) -> &Topology {
        &self.all[at].1
    }

    /// Inodes of their namespaces.
    pub(super) fn inodes(&self) -> Result<Vec<u32>, EngineError> {
        let mut inodes = BTreeSet::new();
        for (_, topology, _) in &self.all {
            for namespace in topology.all() {
                let inode = namespace.inode();
                inodes.insert(inode.map_err(EngineError::host("number a namespace"))?);
            }
        }
        Ok(inodes.into_iter().collect())
    }

    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        for (plan, topology, _) in &self.all {
            let prefix = format!("net.{}.{}", plan.link, plan.family);
            // Of several topologies that differ only in settings, record the facts of the first.
            for (key, value) in netplumb_agent::facts::topology(&prefix, topology) {
                facts.entry(key).or_insert(value);
            }
        }
        facts
    }

    /// Note the effects of each arm's knobs; `topologies` has the index of its topology.
    pub(super) fn note(&self, recording: &mut Recording, arm: usize, at: usize) {
        extras::note(recording, arm, &self.all[at].1.notes);
    }
}

/// Run blocks of all arms, in turns.
pub(super) fn run(
    packets: &PacketPlan,
    mut probes: Probes<'_, '_>,
    keeper: &mut Keeper<'_>,
) -> Result<LiveEnd, EngineError> {
    let plan = Plan {
        arms: packets.arms.clone(),
        packets: packets.packets,
        warmup_packets: packets.warmup_packets,
        blocks: packets.blocks,
        scan: None,
        topologies: packets.topologies.clone(),
    };
    let mut standing = Standing::new();
    let mut arms = Vec::new();
    for (number, arm) in plan.arms.iter().enumerate() {
        let run = RunPlan {
            block_ns: packets.block.map(|d| d.as_nanos() as u64),
            rate_pps: packets.rate_pps,
            stream: packets.stream,
            aligned: false,
            ..plan.run_plan(arm)
        };
        let built = standing.build(topology_of(&run), &mut **probes.tell.borrow_mut());
        arms.push(match built {
            Ok(at) => Some((run, at)),
            Err(error) if plan.arms.len() > 1 && error.is_of_one_arm() => {
                let failed = &mut keeper.recording.notes_of(number).failed;
                let names = probes.names().into_iter();
                failed.extend(names.map(|by| (by.into(), error.to_string())));
                None
            }
            Err(error) => return Err(error),
        });
    }
    let recording = &mut *keeper.recording;
    recording.environment.extend(standing.facts());
    recording.arms = packets.all_arms();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    for (arm, built) in arms.iter().enumerate() {
        if let Some((_, at)) = built {
            standing.note(recording, arm, *at);
            extras::idle(recording, arm, (load(packets.stream), cpus), None);
        }
    }
    let plans: Vec<RunPlan> = arms.iter().flatten().map(|(run, _)| run.clone()).collect();
    if plans.is_empty() {
        return Ok(LiveEnd::default());
    }
    let within = Within { inodes: standing.inodes()?, protos: protos(&plans) };
    // Attach all at once first: if one can't be attached, nothing is run.
    for by in (0..probes.specs.len()).rev() {
        probes.attach(Some(by), &|spec| within.spec(spec), recording)?;
    }
    // With --measure-cost, the last number means no instrument.
    let instruments = probes.specs.len() + usize::from(packets.measure_cost);
    let seed = probes.options.seed;
    let long = keeper.long().copied();
    let first = long.map_or(0, |long| long.next(keeper.recording, None));
    // Whole rounds, so that no arm has more blocks than another.
    let rounds = (first..).take_while(|round| match &long {
        Some(long) => !long.is_over(),
        None => *round < packets.blocks,
    });
    let built: Vec<bool> = arms.iter().map(Option::is_some).collect();
    let turns = interleaved(arms.len(), instruments, rounds, seed).filter(|turn| built[turn.arm]);
    let all = (plans.len() * instruments) as u32 * packets.blocks;
    let names: Vec<String> = probes.names().into_iter().map(String::from).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tell = probes.tell;
    let mut site = OneAtATime::new(Namespaces {
        warm: vec![false; arms.len()],
        arms,
        standing,
        within,
        cancel: probes.options.cancel,
        probes,
    });
    site::run(&mut site, turns, &names, keeper, &mut |recording, over| {
        (tell.borrow_mut())(match &long {
            Some(long) => LiveEvent::Passed(recording, long.pace()),
            None => LiveEvent::Block(recording, over, Some(all)),
        });
    })?;
    check_pairs(keeper.recording, &names)?;
    Ok(LiveEnd::default())
}

/// The default filter of an instrument.
#[derive(Debug)]
pub(super) struct Within {
    inodes: Vec<u32>,
    protos: Vec<Proto>,
}

impl Within {
    /// All packets of the namespaces.
    pub(super) fn from_standing(standing: &Standing) -> Result<Within, EngineError> {
        Ok(Within { inodes: standing.inodes()?, protos: Vec::new() })
    }

    pub(super) fn spec(&self, spec: &TimingSpec) -> TimingSpec {
        let mut spec = spec.clone();
        if spec.filter.namespaces.is_empty() {
            spec.filter.namespaces.clone_from(&self.inodes);
        }
        if spec.filter.protos.is_empty() {
            spec.filter.protos.clone_from(&self.protos);
        }
        spec
    }
}

fn protos(plans: &[RunPlan]) -> Vec<Proto> {
    let protos: BTreeSet<_> = plans.iter().map(|p| p.proto).collect();
    protos.into_iter().collect()
}

/// The site: namespaces of this machine.
struct Namespaces<'a, 't> {
    // Dropped before what they observe.
    probes: Probes<'a, 't>,
    /// Of each arm its plan and the index of its topology, unless that could not be set up.
    arms: Vec<Option<(RunPlan, usize)>>,
    standing: Standing,
    within: Within,
    /// Whether each arm had packets before.
    warm: Vec<bool>,
    cancel: &'a Cancel,
}

impl Alone for Namespaces<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let by = Some(turn.by).filter(|by| *by < self.probes.specs.len());
        let within = &self.within;
        let recording = &mut *keeper.recording;
        self.probes.attach(by, &|spec| within.spec(spec), recording)?;
        let Some((run, at)) = &self.arms[turn.arm] else {
            return Ok(Ended::Measured);
        };
        let warmup_packets = match std::mem::replace(&mut self.warm[turn.arm], true) {
            true => run.warmup_packets.min(REWARM_PACKETS),
            false => run.warmup_packets,
        };
        let run = RunPlan { warmup_packets, ..run.clone() };
        let ends = self.standing.ends(*at);
        let arm = turn.arm + if by.is_some() { 0 } else { self.arms.len() };
        for index in turn.blocks.clone() {
            let to = (arm, index);
            let block = block(&mut self.probes, &run, ends, to, self.cancel, recording);
            if let Err(EngineError::Workload { .. }) = &block
                && let Some(what) = self.standing.topology(*at).gone(&topology_of(&run))
            {
                return Err(EngineError::Gone(what));
            }
            if let Err(error) = block {
                return Ended::by(error, self.arms.len() > 1 && !keeper.is_cancelled());
            }
        }
        Ok(Ended::Measured)
    }
}

/// Run a block.
fn block(
    probes: &mut Probes<'_, '_>,
    run: &RunPlan,
    ends: &Ends,
    (arm, index): (usize, u32),
    cancel: &Cancel,
    recording: &mut Recording,
) -> Result<(), EngineError> {
    let failed = |doing: &'static str| move |source| EngineError::Workload { doing, source };
    let name = recording.arms[arm].name.clone();
    let tell = |step: String| (probes.tell.borrow_mut())(LiveEvent::Step(step));
    let mut traffic = Traffic::open(run, ends).map_err(failed("open the sockets"))?;
    tell(format!("warming up for {name}"));
    traffic.warm_up().map_err(failed("send the warm-up"))?;
    tell(format!("measuring {name}"));
    let cpus = Cpus::read();
    probes.open()?;
    let sent = traffic.timed_block(cancel);
    // The window first, so that results before an error are kept.
    let window = probes.close()?;
    let busy = cpus.and_then(|cpus| cpus.busy_since());
    let mut sent = sent.map_err(failed("send and receive"))?;
    if let Some(window) = &window {
        drops::explain(&mut sent.ledger, run.proto, &window.drops);
    }
    recording.blocks.push(Block {
        arm: arm as u32,
        instrument: probes.name().into(),
        index,
        ledger: sent.ledger.clone(),
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: sent.duration_ns,
    });
    let block = recording.blocks.len() as u32 - 1;
    if let Some(window) = window {
        probes.gather(recording, &[block], &window);
    }
    for figure in figures(&sent, busy) {
        recording.add_figure(Subject::Block(block), figure);
    }
    Ok(())
}
