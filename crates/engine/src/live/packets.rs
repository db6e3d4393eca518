//! Packets of ours between namespaces, block by block.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_lab::vm::process::VmError;
use netplumb_model::experiment::Load;
use netplumb_model::message::RunPlan;
use netplumb_model::quantity::{Figure, Of};
use netplumb_model::recording::{Arm, Recording};
use netplumb_model::timing::{BUSY, DELIVERED, LATENCY_P50, LATENCY_P99, TimingSpec};
use netplumb_workload::drops;
use netplumb_workload::ends::Ends;
use netplumb_workload::packets::Traffic;
use netplumb_workload::timed::TimedBlock;

use super::cpu::Cpus;
use super::schedule::turns;
use super::{LiveEnd, LiveEvent, PROBES_OFF, PacketPlan, Run};
use crate::error::EngineError;
use crate::extras;
use crate::guest::{ends_of, topology_of};
use crate::plan::Plan;

/// Packets before the later blocks of an arm: its sockets are new each time.
const REWARM_PACKETS: u32 = 20;

/// Topologies that stand, each once.
pub(super) struct Standing {
    all: Vec<(TopologyPlan, Topology, Ends)>,
}

impl Standing {
    pub(super) fn new() -> Standing {
        Standing { all: Vec::new() }
    }

    /// The number of a topology, built if it does not stand.
    pub(super) fn build(
        &mut self,
        plan: TopologyPlan,
        tell: &mut dyn FnMut(LiveEvent<'_>),
    ) -> Result<usize, EngineError> {
        if let Some(at) = self.all.iter().position(|(p, _, _)| *p == plan) {
            return Ok(at);
        }
        let topology = Topology::build_named(&plan)?;
        if let Some(names) = &topology.names {
            tell(LiveEvent::Named(names.run()));
        }
        let ends = ends_of(&topology).map_err(EngineError::host("hold a namespace"))?;
        self.all.push((plan, topology, ends));
        Ok(self.all.len() - 1)
    }

    pub(super) fn ends(&self, at: usize) -> &Ends {
        &self.all[at].2
    }

    pub(super) fn topology(&self, at: usize) -> &Topology {
        &self.all[at].1
    }

    /// The numbers by which the kernel knows their namespaces.
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
            // Of several that differ in settings only, the first arm's are told.
            for (key, value) in crate::guest::topology_facts(&prefix, topology) {
                facts.entry(key).or_insert(value);
            }
        }
        facts
    }

    /// What came of the knobs of each arm, by the number of its topology.
    pub(super) fn note(&self, recording: &mut Recording, arm: usize, at: usize) {
        extras::note(recording, arm, &self.all[at].1.notes);
    }
}

/// How packets come.
pub(super) fn load(stream: bool) -> Load {
    match stream {
        true => Load::Stream,
        false => Load::OneAtATime,
    }
}

/// A spec for what runs between namespaces: these, and none but the arms' protocols.
pub(super) fn spec_for(
    spec: &TimingSpec,
    standing: &Standing,
    plans: &[RunPlan],
) -> Result<TimingSpec, EngineError> {
    let mut spec = spec.clone();
    if spec.filter.namespaces.is_empty() {
        spec.filter.namespaces = standing.inodes()?;
    }
    if spec.filter.protos.is_empty() {
        let protos: BTreeSet<_> = plans.iter().map(|p| p.proto).collect();
        spec.filter.protos = protos.into_iter().collect();
    }
    Ok(spec)
}

impl Run<'_> {
    pub(super) fn packets(&mut self, packets: &PacketPlan) -> Result<LiveEnd, EngineError> {
        let plan = Plan {
            arms: packets.arms.clone(),
            packets: packets.packets,
            warmup_packets: packets.warmup_packets,
            blocks: packets.blocks,
            scan: None,
        };
        let mut standing = Standing::new();
        let mut arms = Vec::new();
        for arm in &plan.arms {
            let run = RunPlan {
                block_ns: packets.block.map(|d| d.as_nanos() as u64),
                rate_pps: packets.rate_pps,
                stream: packets.stream,
                aligned: false,
                ..plan.run_plan(arm)
            };
            let at = standing.build(topology_of(&run), self.tell)?;
            arms.push((run, at));
        }
        self.recording.environment.extend(standing.facts());
        self.recording.arms = plan.arms.clone();
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        for (arm, (_, at)) in arms.iter().enumerate() {
            standing.note(self.recording, arm, *at);
            extras::idle(self.recording, arm, load(packets.stream), cpus);
        }
        if packets.measure_cost {
            self.recording.arms.extend(without_probes(&plan.arms));
        }
        let plans: Vec<RunPlan> = arms.iter().map(|(run, _)| run.clone()).collect();
        let spec = spec_for(&self.plan.spec, &standing, &plans)?;
        // At once, whatever comes first: if it can't be, nothing is to be run.
        self.attach(&spec)?;

        let order = turns(
            arms.len(),
            packets.blocks,
            packets.measure_cost,
            self.options.seed,
        );
        let all = order.len() as u32;
        let mut warm = vec![false; arms.len()];
        for (done, turn) in (1..).zip(order) {
            if self.cancelled() {
                return Err(VmError::Interrupted.into());
            }
            match turn.probed {
                true => self.attach(&spec)?,
                false => self.probe = None,
            }
            let (run, at) = &arms[turn.arm];
            let warmup_packets = match std::mem::replace(&mut warm[turn.arm], true) {
                true => run.warmup_packets.min(REWARM_PACKETS),
                false => run.warmup_packets,
            };
            let run = RunPlan {
                warmup_packets,
                ..run.clone()
            };
            let arm = turn.arm + if turn.probed { 0 } else { arms.len() };
            let block = self.block(&run, standing.ends(*at), arm, turn.index);
            if let Err(EngineError::Workload { .. }) = &block
                && let Some(what) = standing.topology(*at).gone(run.link)
            {
                return Err(EngineError::Gone(what));
            }
            block?;
            self.keep(done, Some(all))?;
        }
        Ok(LiveEnd::default())
    }

    fn block(
        &mut self,
        run: &RunPlan,
        ends: &Ends,
        arm: usize,
        index: u32,
    ) -> Result<(), EngineError> {
        let failed = |doing: &'static str| move |source| EngineError::Workload { doing, source };
        let mut traffic = Traffic::open(run, ends).map_err(failed("open the sockets"))?;
        traffic.warm_up().map_err(failed("send the warm-up"))?;
        let cpus = Cpus::read();
        self.open()?;
        let sent = traffic.timed_block(self.options.cancel);
        // The window first: what was seen until an error is not lost.
        let window = self.close()?;
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        let mut sent = sent.map_err(failed("send and receive"))?;
        if let Some(window) = &window {
            drops::explain(&mut sent.ledger, run.proto, &window.drops);
        }
        let block = self.add_block(arm, index, sent.ledger.clone(), sent.duration_ns);
        if let Some(window) = window {
            self.gather(&[block], &window);
        }
        for figure in figures(&sent, busy) {
            self.recording.add_figure(Of::Block(block), figure);
        }
        Ok(())
    }
}

/// What is measured of a block beside what the instrument saw, with and without it.
pub(crate) fn figures(sent: &TimedBlock, busy: Option<f64>) -> Vec<Figure> {
    let rate = sent.ledger.delivered as f64 * 1e9 / sent.duration_ns as f64;
    let latency = |share| sent.latency_ns(share).map(f64::from);
    let all = [
        (&DELIVERED, (sent.duration_ns > 0).then_some(rate)),
        (&BUSY, busy),
        (&LATENCY_P50, latency(0.5)),
        (&LATENCY_P99, latency(0.99)),
    ];
    all.into_iter()
        .filter_map(|(quantity, value)| Some(Figure::new(quantity, value?)))
        .collect()
}

/// The same arms without the instrument. They come after the others: they have no figures
/// but what the workload saw.
pub(super) fn without_probes(arms: &[Arm]) -> Vec<Arm> {
    let bare = |arm: &Arm| {
        let mut bare = arm.clone();
        bare.name = format!("{} {}={}", arm.name, PROBES_OFF.0, PROBES_OFF.1);
        bare.knobs.insert(PROBES_OFF.0.into(), PROBES_OFF.1.into());
        bare
    };
    arms.iter().map(bare).collect()
}
