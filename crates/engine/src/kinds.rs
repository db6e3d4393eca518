//! Arms of packets that nobody has asked for: of those that there were, by kind.

use std::collections::BTreeSet;

use netplumb_model::class::{Family, Proto};
use netplumb_model::quantity::{Item, Of};
use netplumb_model::recording::{Arm, Block, Ledger, Recording};
use netplumb_model::timing::{FOLLOWED, Window};

/// What windows are of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowOf<'a> {
    /// What the arms of its packets are like, but for these.
    pub(crate) like: &'a Arm,
    /// Whose windows they are.
    pub(crate) instrument: &'a str,
    /// The version of IP that was asked for.
    pub(crate) family: Option<Family>,
}

/// A block for each protocol and version of IP that a window saw, each in an arm of its
/// own that has the link and the knobs of what it is like. Their numbers.
pub(crate) fn add_kinds(
    recording: &mut Recording,
    of: &WindowOf<'_>,
    window: &Window,
    index: u32,
    duration_ns: u64,
) -> Vec<u32> {
    let mut blocks = Vec::new();
    for (proto, family) in kinds(window, of.family) {
        let arm = arm_of(recording, of.like, proto, family);
        let packets = window
            .stages
            .iter()
            .filter(|s| (s.proto, s.family) == (proto, family))
            .map(|s| s.times.count)
            .max();
        recording.blocks.push(Block {
            arm: arm as u32,
            instrument: of.instrument.into(),
            index,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns,
        });
        let block = recording.blocks.len() as u32 - 1;
        blocks.push(block);
        // Nobody but the instrument counts them: no ledger has what was offered.
        if let Some(packets) = packets.filter(|n| *n > 0) {
            recording.add(Of::Block(block), &FOLLOWED, Item::ONLY, packets as f64);
        }
    }
    blocks
}

/// The arm of a kind of packets, which may be the first of its kind.
fn arm_of(recording: &mut Recording, like: &Arm, proto: Proto, family: Family) -> usize {
    let arms = &mut recording.arms;
    let known = arms
        .iter()
        .position(|a| (a.proto, a.family) == (proto, family));
    known.unwrap_or_else(|| {
        arms.push(Arm {
            name: format!("{proto} {family}"),
            proto,
            family,
            ..like.clone()
        });
        arms.len() - 1
    })
}

/// The kinds of packets that a window saw. Functions don't tell the version of IP: it is
/// the one that was asked for, or that of the stages, or 4.
fn kinds(window: &Window, asked: Option<Family>) -> BTreeSet<(Proto, Family)> {
    let stages = window.stages.iter().filter(|s| s.times.count > 0);
    let mut kinds: BTreeSet<(Proto, Family)> = stages.map(|s| (s.proto, s.family)).collect();
    for of in window.functions.iter().filter(|f| f.times.count > 0) {
        let node = window.nodes.get(of.node as usize);
        if let Some(proto) = node.and_then(|n| n.proto)
            && !kinds.iter().any(|(known, _)| *known == proto)
        {
            kinds.insert((proto, asked.unwrap_or(Family::V4)));
        }
    }
    // What tells no protocols is about whatever ran.
    let has_costs = |window: &Window| window.costs.as_ref().is_some_and(|c| !c.costs.is_empty());
    if kinds.is_empty() && has_costs(window) {
        kinds.insert((Proto::Command, asked.unwrap_or(Family::V4)));
    }
    kinds
}
