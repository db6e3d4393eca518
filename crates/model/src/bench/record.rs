//! A block of a bench in a recording: its counts are scalars, its path is hops, its latencies are a
//! stage.
//!
//! Counters are read while packets run, at slightly different moments: at ten million packets a second a tenth of a
//! millisecond is a thousand packets. So rates cover a window, and the ledger covers all packets from the first to the
//! last, when none is under way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::quantities as q;
use super::{CpuUse, Generated, Handled, Hop, Limit};
use crate::class::Direction;
use crate::quantity::{Declared, Figure, FigureKey, Scalar, Subject};
use crate::recording::{BlockHop, Ledger, Recording};
use crate::span::{Span, SpanOf, Stage, StageKind, Times};

/// Name of the stage with the one-way latencies.
pub const LATENCY: &str = "one way";

/// The results of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockRates {
    /// Duration of the window.
    pub window_ns: u64,
    /// Counters of the generator in the window, by CPU.
    pub generated: Vec<Generated>,
    /// Counters of the data path in the window.
    pub handled: Handled,
    /// The hops of all packets, from the first to the last one.
    pub hops: Vec<Hop>,
    /// Packets by receive queue of the path's device, if its driver counts them.
    pub queues: BTreeMap<u32, u64>,
    /// CPU use in the window.
    pub cpus: Vec<CpuUse>,
    /// The rate of the generator alone.
    pub limit: Limit,
    /// Figures of the whole run that came with this block.
    #[serde(default)]
    pub of_run: Vec<Figure>,
}

/// The drop cause of frames for which the ring of a NAPI thread was full.
pub const RING_FULL: &str = "ring full (threaded NAPI)";
/// Share of packets refused by a full ring from which on the rate depends on the ring.
const OVERRUN: f64 = 0.01;

impl BlockRates {
    /// Packets offered per second.
    pub fn offered_pps(&self) -> f64 {
        self.per_second(self.generated.iter().map(|g| g.frames).sum())
    }

    /// Packets accepted by the device per second.
    pub fn sent_pps(&self) -> f64 {
        self.per_second(self.generated.iter().map(|g| g.sent).sum())
    }

    /// Packets handled per second.
    pub fn handled_pps(&self) -> f64 {
        self.per_second(self.handled.total())
    }

    /// Bytes handled per second, without FCS; none if unknown.
    pub fn handled_bytes_per_s(&self) -> Option<f64> {
        (self.handled.bytes > 0).then(|| self.per_second(self.handled.bytes))
    }

    /// Wall time per packet handled, in nanoseconds: 1 / rate.
    pub fn wall_ns_per_packet(&self) -> Option<f64> {
        let packets = self.handled.total();
        (packets > 0).then(|| self.window_ns as f64 / packets as f64)
    }

    /// CPU time per packet handled, in nanoseconds: all CPUs together, with the path, the
    /// generator, and other load. None if CPU use is unknown.
    pub fn cpu_ns_per_packet(&self) -> Option<f64> {
        let wall_ns = self.wall_ns_per_packet()?;
        (!self.cpus.is_empty()).then(|| wall_ns * self.busy_cpus())
    }

    /// CPU use of the CPUs that neither sent nor handled packets; none if packets are not counted
    /// by CPU.
    pub fn busy_elsewhere(&self) -> Option<f64> {
        if self.handled.cpu_unknown > 0 {
            return None;
        }
        let sends = |cpu: u32| self.generated.iter().any(|g| g.cpu == cpu && g.frames > 0);
        let handles = |cpu: u32| self.handled.packets.get(&cpu).is_some_and(|n| *n > 0);
        let others = self.cpus.iter();
        let others = others.filter(|c| !sends(c.cpu) && !handles(c.cpu));
        Some(others.map(|c| c.busy).sum())
    }

    /// CPUs of the path: those that handled packets, and those that did not send any.
    fn path_cpus(&self) -> impl Iterator<Item = &CpuUse> {
        let sends = |cpu: u32| self.generated.iter().any(|g| g.cpu == cpu && g.frames > 0);
        let handles = |cpu: u32| self.handled.packets.get(&cpu).is_some_and(|n| *n > 0);
        let cpus = self.cpus.iter();
        cpus.filter(move |c| handles(c.cpu) || !sends(c.cpu))
    }

    /// The path's CPU use, in CPUs, without other programs' share.
    pub fn path_busy_cpus(&self) -> f64 {
        let own = |c: &CpuUse| (c.busy - c.others.unwrap_or(0.0)).max(0.0);
        self.path_cpus().map(own).sum()
    }

    /// Other programs' use of the path's CPUs, in CPUs; none if that was not measured.
    pub fn path_others(&self) -> Option<f64> {
        let known: Vec<f64> = self.path_cpus().filter_map(|c| c.others).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Number of busy CPUs.
    pub fn busy_cpus(&self) -> f64 {
        self.cpus.iter().map(|c| c.busy).sum()
    }

    /// Share of the packets sent that were not handled.
    pub fn loss(&self) -> f64 {
        let entered = self.hops.first().map_or(0, |hop| hop.entered);
        let left = self.hops.last().map_or(0, |hop| hop.left);
        match entered {
            0 => 0.0,
            _ => 1.0 - left as f64 / entered as f64,
        }
    }

    /// The ledger over all hops.
    pub fn ledger(&self) -> Ledger {
        let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, n) in self.hops.iter().flat_map(|hop| &hop.dropped) {
            let sum = dropped.entry(cause.clone()).or_default();
            *sum = sum.saturating_add(*n);
        }
        Ledger {
            offered: self.hops.first().map_or(0, |hop| hop.entered),
            delivered: self.hops.last().map_or(0, |hop| hop.left),
            dropped,
        }
    }

    /// Whether the generator limited the rate; none if the rate of the generator alone is unknown.
    pub fn is_generator_bound(&self) -> Option<bool> {
        self.limit.bounds(self.handled_pps())
    }

    /// The rate of the generator alone, if it is consistent with the rate of the block.
    pub fn limit_pps(&self) -> Option<f64> {
        self.limit.beside(self.handled_pps()).pps()
    }

    /// Why the block is invalid, if it is: packets are unaccounted for, or none arrived.
    pub fn invalid(&self) -> Option<String> {
        for hop in &self.hops {
            let missing = hop.missing();
            if missing != 0 {
                let what = match missing {
                    1.. => format!("{missing} of {} went missing", hop.entered),
                    _ => format!("unaccounted: {} more received than sent", -missing),
                };
                return Some(format!("{}: {what}", hop.name));
            }
        }
        if let Some(hop) = self.hops.iter().find(|h| h.entered > 0 && h.left == 0) {
            let causes: Vec<_> = hop.dropped.iter().collect();
            let worst = causes.iter().max_by_key(|(_, n)| **n);
            let why = worst.map_or_else(String::new, |(cause, _)| format!(": {cause}"));
            return Some(format!("{}: none of {} arrived{why}", hop.name, hop.entered));
        }
        if let Some(overrun) = self.overrun() {
            return Some(overrun);
        }
        (self.handled.total() == 0).then(|| "no packet was handled".into())
    }

    /// Under maximum load with a full ring before the path, the rate depends on how often the
    /// path's thread was scheduled, not on the speed of the path.
    fn overrun(&self) -> Option<String> {
        if self.limit == Limit::NotAsked {
            return None;
        }
        for hop in &self.hops {
            let refused = hop.dropped.get(RING_FULL).copied().unwrap_or(0);
            if refused as f64 > OVERRUN * hop.entered as f64 {
                return Some(format!(
                    "{}: the ring before the path was full for {refused} of {}: lower --rate, or \
                     search for the rate without loss (--search)",
                    hop.name, hop.entered
                ));
            }
        }
        None
    }

    fn per_second(&self, packets: u64) -> f64 {
        packets as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    /// Add it to a block of a recording, by index.
    pub fn add_to(&self, recording: &mut Recording, block: u32) {
        let mut add = |quantity: &Declared, item: FigureKey, value: f64| {
            recording.add(Subject::Block(block), quantity, item, value);
        };
        for g in &self.generated {
            let of_cpu = FigureKey::number(g.cpu);
            for (quantity, value) in [
                (&q::GENERATED, g.frames),
                (&q::SENT, g.sent),
                (&q::GENERATED_BYTES, g.bytes),
                (&q::IDLE_RUNS, g.idle),
                (&q::BEHIND, g.behind),
                (&q::BATCHES, g.batches),
            ] {
                add(quantity, of_cpu.clone(), value as f64);
            }
            for (why, n) in &g.refused {
                add(&q::REFUSED, FigureKey::numbered(g.cpu, why), *n as f64);
            }
        }
        let handled = &self.handled;
        for (cpu, n) in &handled.packets {
            add(&q::HANDLED, FigureKey::number(*cpu), *n as f64);
        }
        if handled.cpu_unknown > 0 {
            add(&q::HANDLED_CPU_UNKNOWN, FigureKey::ONLY, handled.cpu_unknown as f64);
        }
        add(&q::HANDLED_BYTES, FigureKey::ONLY, handled.bytes as f64);
        add(&q::FOREIGN, FigureKey::ONLY, handled.foreign as f64);
        for (why, n) in &handled.lost {
            add(&q::LOST, FigureKey::label(why), *n as f64);
        }
        if let Some((all, useful)) = handled.polls {
            add(&q::POLLS, FigureKey::ONLY, all as f64);
            add(&q::USEFUL_POLLS, FigureKey::ONLY, useful as f64);
        }
        for (queue, n) in &self.queues {
            add(&q::BY_QUEUE, FigureKey::number(*queue), *n as f64);
        }
        for c in &self.cpus {
            let of_cpu = || FigureKey::number(c.cpu);
            for (quantity, share) in [
                (&q::BUSY, Some(c.busy)),
                (&q::BUSY_SECOND, c.second),
                (&q::BUSY_OTHERS, c.others),
                (&q::STEAL, Some(c.steal)),
                (&q::SOFTIRQ, Some(c.softirq)),
            ] {
                if let Some(share) = share {
                    add(quantity, of_cpu(), share);
                }
            }
        }
        match self.limit {
            Limit::NotAsked => {}
            Limit::Unknown => add(&q::LIMIT, FigureKey::ONLY, f64::NAN),
            Limit::Pps(limit) => add(&q::LIMIT, FigureKey::ONLY, limit),
        }
        for figure in &self.of_run {
            recording.set_figure(figure.clone());
        }
        let hops = self.hops.iter().cloned();
        recording.hops.extend(hops.map(|hop| BlockHop { block, hop }));
        if let Some(times) = &handled.latency {
            let stage =
                Stage { order: 0, name: LATENCY.into(), kind: StageKind::Total, passed_over: 0 };
            recording.spans.push(Span {
                block,
                direction: Direction::Forward,
                of: SpanOf::Stage(stage),
                times: times.clone(),
            });
        }
    }

    /// All blocks of a recording, in their order.
    pub fn all_of(recording: &Recording) -> Vec<BlockRates> {
        let mut all: Vec<BlockRates> = recording
            .blocks
            .iter()
            .map(|block| BlockRates { window_ns: block.duration_ns, ..BlockRates::default() })
            .collect();
        let takes: Vec<Option<Take>> = (recording.quantities.iter())
            .map(|quantity| {
                let known = TAKES.iter().find(|(declared, _)| quantity.is(declared));
                known.map(|(_, take)| *take)
            })
            .collect();
        for scalar in &recording.scalars {
            let measured = scalar.block().and_then(|at| all.get_mut(at as usize));
            let take = takes.get(scalar.quantity as usize).copied().flatten();
            if let (Some(measured), Some(take)) = (measured, take) {
                take(measured, scalar);
            }
        }
        for BlockHop { block, hop } in &recording.hops {
            if let Some(measured) = all.get_mut(*block as usize) {
                measured.hops.push(hop.clone());
            }
        }
        for (span, stage) in recording.stages() {
            let measured = all.get_mut(span.block as usize);
            if let Some(measured) = measured.filter(|_| stage.name == LATENCY) {
                measured.handled.latency = Some(span.times.clone());
            }
        }
        all
    }

    /// The counters of the generator on a CPU.
    fn generator(&mut self, scalar: &Scalar) -> &mut Generated {
        let cpu = scalar.item.number.unwrap_or_default();
        let at = match self.generated.iter().position(|g| g.cpu == cpu) {
            Some(at) => at,
            None => {
                self.generated.push(Generated { cpu, ..Generated::default() });
                self.generated.len() - 1
            }
        };
        &mut self.generated[at]
    }

    /// The use of a CPU.
    fn cpu(&mut self, scalar: &Scalar) -> &mut CpuUse {
        let cpu = scalar.item.number.unwrap_or_default();
        let at = match self.cpus.binary_search_by_key(&cpu, |c| c.cpu) {
            Ok(at) => at,
            Err(at) => {
                let new = CpuUse { cpu, ..CpuUse::default() };
                self.cpus.insert(at, new);
                at
            }
        };
        &mut self.cpus[at]
    }
}

/// Adds a scalar to the results of a block.
type Take = fn(&mut BlockRates, &Scalar);

/// A count: whole, and far below 2^53.
fn count(scalar: &Scalar) -> u64 {
    scalar.value as u64
}

fn label(scalar: &Scalar) -> String {
    scalar.item.label.clone().unwrap_or_default()
}

fn number(scalar: &Scalar) -> u32 {
    scalar.item.number.unwrap_or_default()
}

/// How scalars of each quantity are read.
const TAKES: &[(Declared, Take)] = &[
    (q::GENERATED, |m, s| m.generator(s).frames = count(s)),
    (q::SENT, |m, s| m.generator(s).sent = count(s)),
    (q::GENERATED_BYTES, |m, s| m.generator(s).bytes = count(s)),
    (q::IDLE_RUNS, |m, s| m.generator(s).idle = count(s)),
    (q::BEHIND, |m, s| m.generator(s).behind = count(s)),
    (q::BATCHES, |m, s| m.generator(s).batches = count(s)),
    (q::REFUSED, |m, s| {
        m.generator(s).refused.insert(label(s), count(s));
    }),
    (q::HANDLED, |m, s| {
        m.handled.packets.insert(number(s), count(s));
    }),
    (q::HANDLED_CPU_UNKNOWN, |m, s| {
        m.handled.cpu_unknown += count(s);
    }),
    (q::HANDLED_BYTES, |m, s| m.handled.bytes = count(s)),
    (q::FOREIGN, |m, s| m.handled.foreign = count(s)),
    (q::LOST, |m, s| {
        m.handled.lost.insert(label(s), count(s));
    }),
    (q::POLLS, |m, s| {
        m.handled.polls.get_or_insert_default().0 = count(s);
    }),
    (q::USEFUL_POLLS, |m, s| {
        m.handled.polls.get_or_insert_default().1 = count(s);
    }),
    (q::BY_QUEUE, |m, s| {
        m.queues.insert(number(s), count(s));
    }),
    (q::BUSY, |m, s| m.cpu(s).busy = s.value),
    (q::BUSY_SECOND, |m, s| m.cpu(s).second = Some(s.value)),
    (q::BUSY_OTHERS, |m, s| m.cpu(s).others = Some(s.value)),
    (q::STEAL, |m, s| m.cpu(s).steal = s.value),
    (q::SOFTIRQ, |m, s| m.cpu(s).softirq = s.value),
    (q::LIMIT, |m, s| m.limit = Limit::at_pps(s.value)),
];

/// Counters since set-up, as differences over a window.
pub trait Since {
    /// The difference to `before`.
    #[must_use]
    fn since(&self, before: &Self) -> Self;
}

fn grown<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let grown = |(key, n): (&K, &u64)| {
        let before = before.get(key).copied().unwrap_or(0);
        (key.clone(), n.saturating_sub(before))
    };
    now.iter().map(grown).filter(|(_, n)| *n > 0).collect()
}

impl Since for Generated {
    fn since(&self, before: &Generated) -> Generated {
        Generated {
            cpu: self.cpu,
            frames: self.frames.saturating_sub(before.frames),
            sent: self.sent.saturating_sub(before.sent),
            bytes: self.bytes.saturating_sub(before.bytes),
            refused: grown(&self.refused, &before.refused),
            idle: self.idle.saturating_sub(before.idle),
            behind: self.behind.saturating_sub(before.behind),
            batches: self.batches.saturating_sub(before.batches),
        }
    }
}

impl Since for Handled {
    fn since(&self, before: &Handled) -> Handled {
        let polls = self.polls.map(|(all, useful)| {
            let (all_before, useful_before) = before.polls.unwrap_or_default();
            (all.saturating_sub(all_before), useful.saturating_sub(useful_before))
        });
        Handled {
            packets: grown(&self.packets, &before.packets),
            cpu_unknown: self.cpu_unknown.saturating_sub(before.cpu_unknown),
            bytes: self.bytes.saturating_sub(before.bytes),
            lost: grown(&self.lost, &before.lost),
            foreign: self.foreign.saturating_sub(before.foreign),
            polls,
            latency: match (&self.latency, &before.latency) {
                (Some(now), Some(before)) => Some(times_since(now, before)),
                (now, _) => now.clone(),
            },
        }
    }
}

/// The minimum and maximum are counted from set-up: for the difference they are unknown.
fn times_since(now: &Times, before: &Times) -> Times {
    let counted: BTreeMap<u16, u64> = before.buckets.iter().copied().collect();
    let left = |&(bucket, n): &(u16, u64)| {
        let n = n.saturating_sub(counted.get(&bucket).copied().unwrap_or(0));
        (n > 0).then_some((bucket, n))
    };
    Times {
        count: now.count.saturating_sub(before.count),
        total_ns: now.total_ns.saturating_sub(before.total_ns),
        min_ns: now.min_ns,
        max_ns: now.max_ns,
        buckets: now.buckets.iter().filter_map(left).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Block, Ledger};

    fn measured() -> BlockRates {
        BlockRates {
            window_ns: 2_000_000_000,
            generated: vec![Generated {
                cpu: 1,
                frames: 100,
                sent: 90,
                bytes: 6_000,
                refused: BTreeMap::from([("no space. left".into(), 10)]),
                idle: 3,
                behind: 2,
                batches: 7,
            }],
            handled: Handled {
                packets: BTreeMap::from([(0, 60), (1, 17)]),
                cpu_unknown: 3,
                bytes: 4_800,
                lost: BTreeMap::from([("ring. full".into(), 10)]),
                foreign: 2,
                polls: Some((10, 4)),
                latency: Some(Times {
                    count: 1,
                    total_ns: 5,
                    min_ns: 5,
                    max_ns: 5,
                    buckets: vec![(5, 1)],
                }),
            },
            hops: vec![
                Hop {
                    name: "generator to tx0".into(),
                    entered: 100,
                    left: 90,
                    dropped: BTreeMap::from([("no space. left".into(), 10)]),
                },
                Hop {
                    name: "tx0 to xdp".into(),
                    entered: 90,
                    left: 80,
                    dropped: BTreeMap::from([("ring. full".into(), 10)]),
                },
            ],
            queues: BTreeMap::from([(0, 50), (3, 40)]),
            cpus: vec![CpuUse {
                cpu: 0,
                busy: 0.5,
                second: Some(0.53),
                others: Some(0.2),
                steal: 0.1,
                softirq: 0.2,
            }],
            limit: Limit::Pps(41.0),
            of_run: Vec::new(),
        }
    }

    /// Check that a block is read from a recording as it was written, beside another.
    #[test]
    fn there_and_back() {
        let mut recording = Recording::default();
        let blocks = [measured(), BlockRates { window_ns: 5, ..BlockRates::default() }];
        for (number, block) in blocks.iter().enumerate() {
            recording.blocks.push(Block {
                arm: 0,
                instrument: "rates".into(),
                index: number as u32,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: block.window_ns,
            });
            block.add_to(&mut recording, number as u32);
        }
        assert_eq!(BlockRates::all_of(&recording), blocks);
    }

    /// Check the figures that follow from counts.
    #[test]
    fn figures() {
        let m = measured();
        assert_eq!(m.invalid(), None);
        assert_eq!(m.offered_pps(), 50.0);
        assert_eq!(m.handled_pps(), 40.0);
        assert_eq!(m.handled_bytes_per_s(), Some(2_400.0));
        assert_eq!(m.wall_ns_per_packet(), Some(2.5e7));
        assert_eq!(m.cpu_ns_per_packet(), Some(1.25e7));
        assert_eq!(m.busy_elsewhere(), None);
        assert!((m.loss() - 0.2).abs() < 1e-12);
        assert_eq!(m.is_generator_bound(), Some(true));
        assert!(m.cpus[0].is_doubtful());
    }

    /// Check that CPU time per packet follows from busy CPUs, however many CPUs handled packets: a CPU that handled a
    /// few and idled adds next to nothing.
    #[test]
    fn cpu_time_is_not_counted_twice() {
        let busy = |cpu: u32, busy: f64| CpuUse { cpu, busy, ..CpuUse::default() };
        let mut m = BlockRates {
            window_ns: 1_000_000_000,
            cpus: vec![busy(0, 0.01), busy(1, 1.0)],
            ..measured()
        };
        m.handled.cpu_unknown = 0;
        m.handled.packets = BTreeMap::from([(1, 1_000_000)]);
        let alone = m.cpu_ns_per_packet().unwrap();
        assert!((alone - 1010.0).abs() < 1e-6, "{alone}");
        assert!((m.busy_elsewhere().unwrap() - 0.01).abs() < 1e-12);
        m.handled.packets = BTreeMap::from([(0, 7), (1, 999_993)]);
        assert_eq!(m.cpu_ns_per_packet(), Some(alone));
        assert_eq!(m.busy_elsewhere(), Some(0.0));
        assert_eq!(m.wall_ns_per_packet(), Some(1000.0));
    }

    /// Check that a block is invalid if packets are missing, if more arrived than were sent, or if
    /// none arrived.
    #[test]
    fn invalid_blocks_say_why() {
        let mut m = measured();
        m.hops[1].left = 79;
        assert_eq!(m.invalid().unwrap(), "tx0 to xdp: 1 of 90 went missing");
        m.hops[1].left = 81;
        assert_eq!(m.invalid().unwrap(), "tx0 to xdp: unaccounted: 1 more received than sent");
        m.hops[1] = Hop::default();
        m.hops[0].left = 0;
        m.hops[0].dropped = BTreeMap::from([("ENXIO".into(), 100)]);
        let said = m.invalid().unwrap();
        assert_eq!(said, "generator to tx0: none of 100 arrived: ENXIO");
        assert!(BlockRates::default().invalid().is_some());
    }

    /// Check that no rate is given if a thread's ring was full under maximum load, and that a lower load, or few
    /// refused packets, count as losses.
    #[test]
    fn a_full_ring_is_no_rate() {
        let mut m = measured();
        let full = |n: u64| BTreeMap::from([(RING_FULL.to_string(), n)]);
        m.limit = Limit::Pps(1e6);
        (m.hops[0].left, m.hops[0].dropped) = (60, full(40));
        m.hops[1] = Hop::default();
        assert!(m.invalid().unwrap().contains("full for 40 of 100"));
        m.limit = Limit::NotAsked;
        assert_eq!(m.invalid(), None);
        m.limit = Limit::Unknown;
        (m.hops[0].left, m.hops[0].dropped) = (99, full(1));
        assert_eq!(m.invalid(), None);
    }

    /// Check the differences over a window.
    #[test]
    fn what_grew() {
        let m = measured();
        let grew = m.handled.since(&m.handled);
        assert_eq!((grew.total(), grew.bytes, grew.polls), (0, 0, Some((0, 0))));
        assert_eq!(grew.latency.unwrap().buckets, []);
        assert_eq!(m.handled.since(&Handled::default()), m.handled);
        let g = &m.generated[0];
        assert_eq!(g.since(&Generated { cpu: 1, ..Generated::default() }), *g);
        assert_eq!(g.since(g).refused, BTreeMap::new());
    }
}
