//! Cost that went from one function to another, and calls that came or went.
//!
//! Three rules, each of which states its reason:
//!
//! - A function is gone, and the nearest caller that is still there grew by about
//!   its own cost: it was inlined. The other way round, it was taken out. Only
//!   between different kernels.
//! - One function lost what another gained, and their common caller, or whichever
//!   of the two calls the other, costs with all below it what it did before.
//! - A branch of the tree is there on one side only: a call that is no longer
//!   made, or newly made, is reported with all that was below it.

use std::collections::{BTreeMap, BTreeSet};

use super::exact::PerPacket;
use super::functions::{Functions, JointId};
use super::row::{Change, Counts, Verdict};
use super::tree::{UnionNode, UnionTree};
use crate::number::printable;

/// Cost that moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// The function that lost the cost.
    pub from: JointId,
    /// The function that gained it.
    pub to: JointId,
    /// Instructions per packet, as `from` had them.
    pub insns_per_packet: f64,
    /// Why it is treated as the same cost.
    pub why: String,
}

/// A call that one side alone makes, with all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The calling function; none where a context begins.
    pub caller: Option<JointId>,
    /// The called function.
    pub callee: JointId,
    /// The number of calls before and after.
    pub calls: Change,
    /// Instructions of the callee and all below it, on this caller's behalf.
    pub inclusive_insns: Change,
}

/// The cost of a call beyond the callee's work: arguments, saved registers, the
/// call and the return. Inlining may save this much per call.
const CALL_INSNS: f64 = 12.0;
/// Other changes by inlining, as a part of the cost.
const INLINED_WITHIN: f64 = 0.25;
/// Cost that moved may differ by this part.
const MOVED_WITHIN: f64 = 0.1;
/// The common caller's cost may differ by this part of what moved.
const KEPT_WITHIN: f64 = 0.1;
/// Smaller costs are not considered, in instructions per packet.
const LEAST_INSNS: f64 = 4.0;
/// The most functions that are searched for cost that moved between them.
const MOST_FUNCTIONS: usize = 200;

/// The parts of a class that these rules use.
pub(super) struct Scene<'a> {
    pub(super) functions: &'a Functions,
    pub(super) trees: &'a [UnionTree],
    pub(super) changes: &'a [(Counts, Verdict)],
    /// Packets before and after.
    pub(super) packets: (u64, u64),
    /// Whether both sides ran the same kernel.
    pub(super) same_kernel: bool,
}

impl Scene<'_> {
    fn name(&self, id: JointId) -> String {
        printable(&self.functions.joints[id as usize].name, 60)
    }

    fn change(&self, id: JointId) -> Option<&Counts> {
        let mut changes = self.changes.iter().map(|(counts, _)| counts);
        changes.find(|c| c.function == id)
    }

    fn before(&self, sum: u64) -> f64 {
        sum as f64 / self.packets.0.max(1) as f64
    }

    fn after(&self, sum: u64) -> f64 {
        sum as f64 / self.packets.1.max(1) as f64
    }

    /// Everything that moved, the largest first.
    pub(super) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if !self.same_kernel {
            moves.extend(self.absorbed(true));
            moves.extend(self.absorbed(false));
        }
        let moved: BTreeSet<JointId> = moves.iter().flat_map(|m| [m.from, m.to]).collect();
        moves.extend(self.swapped(&moved));
        moves.sort_by(|a, b| b.insns_per_packet.total_cmp(&a.insns_per_packet));
        moves
    }

    /// Functions that became part of a caller or, if not `inlined`, were taken out
    /// of one.
    fn absorbed(&self, inlined: bool) -> Vec<Move> {
        let alone = |id: JointId| {
            let joint = &self.functions.joints[id as usize];
            if inlined { joint.is_gone() } else { joint.is_new() }
        };
        let both = |id: JointId| {
            let joint = &self.functions.joints[id as usize];
            !joint.before.is_empty() && !joint.after.is_empty()
        };
        // By absorbing function: the cost and calls of each absorbed function.
        let mut absorbers: BTreeMap<JointId, BTreeMap<JointId, (f64, f64)>> = BTreeMap::new();
        for tree in self.trees {
            for node in tree.nodes.iter().filter(|n| alone(n.function)) {
                let mut above = node.parent;
                while let Some(id) = above.filter(|id| alone(tree.nodes[*id as usize].function)) {
                    above = tree.nodes[id as usize].parent;
                }
                let Some(absorber) = above.map(|id| tree.nodes[id as usize].function) else {
                    continue;
                };
                if !both(absorber) {
                    continue;
                }
                let (own, calls) = match inlined {
                    true => (self.before(node.before.self_insns), self.before(node.before.calls)),
                    false => (self.after(node.after.self_insns), self.after(node.after.calls)),
                };
                let part = absorbers.entry(absorber).or_default().entry(node.function).or_default();
                part.0 += own;
                part.1 += calls;
            }
        }
        let mut moves = Vec::new();
        for (absorber, parts) in absorbers {
            let Some(change) = self.change(absorber) else {
                continue;
            };
            let (was, is) = (change.calls.before.value(), change.calls.after.value());
            if (was - is).abs() > 0.01 * was.max(is) {
                continue;
            }
            let grew = change.own.delta().value() * if inlined { 1.0 } else { -1.0 };
            let fits = |own: f64, calls: f64| {
                let least = (own * (1.0 - INLINED_WITHIN) - CALL_INSNS * calls).max(0.3 * own);
                own >= LEAST_INSNS && grew >= least && grew <= own * (1.0 + INLINED_WITHIN)
            };
            let all = parts.values().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
            let fitting: Vec<(JointId, f64)> = if fits(all.0, all.1) {
                parts.iter().map(|(id, p)| (*id, p.0)).collect()
            } else {
                // Not all of them together, but perhaps one.
                let mut one: Vec<(JointId, f64)> = parts
                    .iter()
                    .filter(|(_, p)| fits(p.0, p.1))
                    .map(|(id, p)| (*id, p.0))
                    .collect();
                one.sort_by(|a, b| (a.1 - grew).abs().total_cmp(&(b.1 - grew).abs()));
                one.truncate(1);
                one
            };
            for (function, own) in fitting {
                let (name, into) = (self.name(function), self.name(absorber));
                let (from, to, why) = match inlined {
                    true => (
                        function,
                        absorber,
                        format!(
                            "inlined into {into}: {name} is gone, and {into} grew by {grew:.0}"
                        ),
                    ),
                    false => (
                        absorber,
                        function,
                        format!(
                            "taken out of {into}: {name} is new, and {into} shrank by {grew:.0}"
                        ),
                    ),
                };
                moves.push(Move { from, to, insns_per_packet: own, why });
            }
        }
        moves
    }

    /// Pairs where one function lost what the other gained.
    fn swapped(&self, moved: &BTreeSet<JointId>) -> Vec<Move> {
        let callers = self.callers();
        let none = BTreeSet::new();
        let callers_of = |id: JointId| callers.get(&id).unwrap_or(&none);
        let size = |c: &Counts| c.own.delta().value();
        let looked_at: Vec<&Counts> = self
            .changes
            .iter()
            .filter(|(c, verdict)| verdict.differs() && !moved.contains(&c.function))
            .map(|(counts, _)| counts)
            .filter(|c| size(c).abs() >= LEAST_INSNS)
            .take(MOST_FUNCTIONS)
            .collect();
        let mut pairs = Vec::new();
        for lost in looked_at.iter().filter(|c| size(c) < 0.0) {
            for gained in looked_at.iter().filter(|c| size(c) > 0.0) {
                let amount = -size(lost);
                let off = (size(gained) - amount).abs();
                if off > MOVED_WITHIN * amount {
                    continue;
                }
                // One calls the other, or one function calls both.
                let (a, b) = (lost.function, gained.function);
                let mut above: Vec<JointId> =
                    callers_of(a).intersection(callers_of(b)).copied().collect();
                above.extend(callers_of(b).contains(&a).then_some(a));
                above.extend(callers_of(a).contains(&b).then_some(b));
                let kept = above.into_iter().find_map(|id| {
                    let inclusive = self.change(id)?.inclusive;
                    (inclusive.delta().value().abs() <= KEPT_WITHIN * amount)
                        .then_some((id, inclusive))
                });
                if let Some((above, inclusive)) = kept {
                    pairs.push((off, amount, a, b, above, inclusive));
                }
            }
        }
        pairs.sort_by(|x, y| y.1.total_cmp(&x.1).then(x.0.total_cmp(&y.0)));
        let mut used = BTreeSet::new();
        let mut moves = Vec::new();
        for (_, amount, from, to, above, inclusive) in pairs {
            if used.contains(&from) || used.contains(&to) {
                continue;
            }
            used.extend([from, to]);
            moves.push(Move {
                from,
                to,
                insns_per_packet: amount,
                why: format!(
                    "{} with all below it costs what it did, {:.0} and {:.0}",
                    self.name(above),
                    inclusive.before.value(),
                    inclusive.after.value()
                ),
            });
        }
        moves
    }

    fn callers(&self) -> BTreeMap<JointId, BTreeSet<JointId>> {
        let mut callers: BTreeMap<JointId, BTreeSet<JointId>> = BTreeMap::new();
        for tree in self.trees {
            for node in &tree.nodes {
                if let Some(parent) = node.parent {
                    let caller = tree.nodes[parent as usize].function;
                    callers.entry(node.function).or_default().insert(caller);
                }
            }
        }
        callers
    }

    /// Calls that one side alone makes, the largest first. Calls explained by inlining
    /// are left out.
    pub(super) fn branches(&self, moves: &[Move]) -> Vec<Branch> {
        let there = |node: &UnionNode| {
            (
                node.before.calls > 0 || node.inclusive_before > 0,
                node.after.calls > 0 || node.inclusive_after > 0,
            )
        };
        let is_moved = |a: Option<JointId>, b: JointId| {
            moves.iter().any(|m| a == Some(m.from) && b == m.to || a == Some(m.to) && b == m.from)
        };
        let mut branches: BTreeMap<(Option<JointId>, JointId, bool), [u64; 2]> = BTreeMap::new();
        for tree in self.trees {
            for node in &tree.nodes {
                let (before, after) = there(node);
                let parent = node.parent.map(|p| &tree.nodes[p as usize]);
                // The topmost node that is on one side only.
                let topmost = parent.is_none_or(|p| there(p) == (true, true));
                let caller = parent.map(|p| p.function);
                if before == after || !topmost || is_moved(caller, node.function) {
                    continue;
                }
                let sums = branches.entry((caller, node.function, after)).or_default();
                let (sum, inclusive) = match after {
                    true => (node.after, node.inclusive_after),
                    false => (node.before, node.inclusive_before),
                };
                sums[0] = sums[0].saturating_add(sum.calls);
                sums[1] = sums[1].saturating_add(inclusive);
            }
        }
        let change = |sum: u64, after: bool| Change {
            before: PerPacket { sum: if after { 0 } else { sum }, packets: self.packets.0 },
            after: PerPacket { sum: if after { sum } else { 0 }, packets: self.packets.1 },
        };
        let mut branches: Vec<Branch> = branches
            .into_iter()
            .map(|((caller, callee, after), sums)| Branch {
                caller,
                callee,
                calls: change(sums[0], after),
                inclusive_insns: change(sums[1], after),
            })
            .collect();
        branches.sort_by_key(|b| std::cmp::Reverse(b.inclusive_insns.delta().size()));
        branches
    }
}
