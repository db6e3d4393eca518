//! Arms for the observed packets, by protocol and address family.

use std::collections::BTreeSet;

use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Recording};
use netplumb_model::spans;
use netplumb_model::timing::{FOLLOWED, Window};

use crate::error::EngineError;

/// The arms and the instrument of windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowOf<'a> {
    /// The template of arms for its packets.
    pub(crate) like: &'a Arm,
    /// Name of the instrument that recorded the windows.
    pub(crate) instrument: &'a str,
    /// The requested address family.
    pub(crate) family: Option<Family>,
    /// The arm for figures that are about no packets, if there is one already.
    pub(crate) arm: Option<u32>,
}

/// Whether an instrument is about packets, so that its windows have a protocol; otherwise it is
/// about all work.
pub(crate) fn is_of_packets(instrument: &str) -> bool {
    registry::find(instrument).is_none_or(Instrument::is_clock)
}

/// An error if times between events were to be measured, and no first one reached the last.
pub(crate) fn check_pairs(recording: &Recording, names: &[&str]) -> Result<(), EngineError> {
    let is_its = |block: u32| {
        let block = recording.blocks.get(block as usize);
        block.is_some_and(|block| block.instrument == spans::INSTRUMENT)
    };
    match names.contains(&spans::INSTRUMENT) && !recording.spans.iter().any(|s| is_its(s.block)) {
        true => Err(EngineError::NothingSeen { command: None }),
        false => Ok(()),
    }
}

/// Add a block for each protocol and address family that a window saw, each in an arm of its own with the link and the
/// knobs of the template; or one block in an arm like the template, for all that is not about packets. Returns their
/// indices.
pub(crate) fn add_kinds(
    recording: &mut Recording,
    of: &WindowOf<'_>,
    window: &Window,
    index: u32,
    duration_ns: u64,
) -> Vec<u32> {
    let mut blocks = Vec::new();
    let kinds = match is_of_packets(of.instrument) {
        true => kinds(window, of.family, of.like.proto),
        false => BTreeSet::from([(of.like.proto, of.family.unwrap_or(Family::V4))]),
    };
    for (proto, family) in kinds {
        let arm = match of.arm.filter(|_| proto == of.like.proto) {
            Some(arm) => arm as usize,
            None => arm_of(recording, of.like, proto, family),
        };
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
        // Only the instrument counts them: the number of offered packets is unknown.
        if let Some(packets) = packets.filter(|n| *n > 0) {
            recording.add(Subject::Block(block), &FOLLOWED, FigureKey::ONLY, packets as f64);
        }
    }
    blocks
}

/// The arm of a kind of packets, added if it is new.
fn arm_of(recording: &mut Recording, like: &Arm, proto: Proto, family: Family) -> usize {
    let arms = &mut recording.arms;
    let known = arms.iter().position(|a| (a.proto, a.family) == (proto, family));
    known.unwrap_or_else(|| {
        arms.push(Arm {
            name: match proto == like.proto {
                true => like.name.clone(),
                false => format!("{proto} {family}"),
            },
            proto,
            family,
            // A command chooses its packets' way itself.
            link: match proto {
                Proto::Command => like.link,
                _ => Link::Any,
            },
            ..like.clone()
        });
        arms.len() - 1
    })
}

/// The kinds of packets that a window saw. Functions have no address family: the requested one is
/// used, or the stages' one, or IPv4. Packets without a protocol are `whole`.
fn kinds(window: &Window, asked: Option<Family>, whole: Proto) -> BTreeSet<(Proto, Family)> {
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
    // Results without protocols are about all work.
    let has_costs = |window: &Window| window.costs.iter().any(|c| !c.costs.is_empty());
    if kinds.is_empty() && has_costs(window) {
        kinds.insert((whole, asked.unwrap_or(Family::V4)));
    }
    kinds
}
