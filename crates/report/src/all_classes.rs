//! All classes of an arm together, per packet sent: what a packet costs from end to end, wherever the work is counted.

use std::collections::BTreeSet;

use netplumb_model::class::{Direction, Proto};
use netplumb_model::recording::Recording;
use serde::Serialize;

use crate::analysis::{ClassView, is_class, is_of_connections};
use crate::number::{per_packet, printable};
use crate::per::offered;

/// The classes of an arm, added up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArmSum {
    /// Its name.
    pub(crate) arm: String,
    /// The protocol of its packets.
    class: Proto,
    /// Packets sent.
    pub(crate) packets: u64,
    /// Of all classes.
    pub(crate) total: u64,
    /// The same per packet sent.
    per_packet: f64,
    /// Each class's part per packet sent.
    parts: Vec<Part>,
    #[serde(skip)]
    index: usize,
    #[serde(skip)]
    unit: String,
    #[serde(skip)]
    per: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Part {
    class: Direction,
    total: u64,
    per_packet: f64,
}

/// The sums of the arms that have several classes, all of them in `classes`. There are none for times, which don't add up
/// exactly, nor for a function's subtree.
pub(crate) fn sums(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<ArmSum> {
    let arms: BTreeSet<usize> = classes.iter().map(|class| class.arm).collect();
    arms.into_iter().filter_map(|arm| sum(recording, classes, arm)).collect()
}

fn sum(recording: &Recording, classes: &[ClassView<'_>], arm: usize) -> Option<ArmSum> {
    let own: Vec<&ClassView<'_>> = classes.iter().filter(|class| class.arm == arm).collect();
    let first = own.first().filter(|first| first.is_exact() && recording.root().is_none())?;
    let proto = first.class.proto;
    let costs = recording.costs.iter().filter(|cost| {
        let block = recording.blocks.get(cost.block as usize);
        cost.own > 0 && block.is_some_and(|block| block.arm as usize == arm)
    });
    let all: BTreeSet<Direction> =
        costs.map(|cost| cost.direction).filter(|d| is_class(recording, *d)).collect();
    let packets = offered(recording, &first.blocks);
    let is_sum = matches!(proto, Proto::Raw | Proto::Udp | Proto::Tcp)
        && own.len() > 1
        && own.len() == all.len();
    if !is_sum || packets == 0 {
        return None;
    }
    let each = |total: u64| total as f64 / packets as f64;
    let total = own.iter().map(|class| class.total).sum();
    let part = |class: &&ClassView<'_>| Part {
        class: class.class.direction,
        total: class.total,
        per_packet: each(class.total),
    };
    Some(ArmSum {
        arm: recording.arms[arm].name.clone(),
        class: proto,
        packets,
        total,
        per_packet: each(total),
        parts: own.iter().map(part).collect(),
        index: arm,
        unit: first.quantity.unit.clone(),
        per: match is_of_connections(&recording.arms[arm]) {
            true => "connection",
            false => "packet sent",
        },
    })
}

impl ArmSum {
    /// Whether it is of this arm.
    pub(crate) fn is_of(&self, arm: usize) -> bool {
        self.index == arm
    }

    /// "udp, all classes: 9,997 instructions per packet sent: tx 4,276 + rx 2,911 + forward 2,810".
    pub(crate) fn sentence(&self) -> String {
        let each = |total: u64| per_packet(total, self.packets);
        let parts: Vec<String> =
            self.parts.iter().map(|part| format!("{} {}", part.class, each(part.total))).collect();
        let arm = match self.arm == self.class.as_str() {
            true => self.class.to_string(),
            false => format!("{}, {}", printable(&self.arm, 60), self.class),
        };
        format!(
            "{arm}, all classes: {} {} per {} ({})",
            each(self.total),
            printable(&self.unit, 16),
            self.per,
            parts.join(" + ")
        )
    }
}
