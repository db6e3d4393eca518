//! What stages.h declares, made of it when this is built, and the table of stages.

use netplumb_model::class::{Direction, Proto};
use netplumb_model::span::{BUCKETS, StageKind};

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/stages.rs"));
}

pub(super) use made::{
    CALLS, CLASSES, Config, Cpu, NAMESPACES, Packet, Step as StepEvent, Window as WindowState,
};

/// Words of a `struct stages_times`.
pub(super) const TIMES_WORDS: usize = size_of::<made::Times>() / 8;
const _: () = assert!(TIMES_WORDS == 4 + BUCKETS);
/// Families.
pub(super) const FAMILIES: usize = 2;
/// Protocols, as `enum stages_proto` has them.
pub(super) const PROTOS: [Proto; 3] = [Proto::Raw, Proto::Udp, Proto::Tcp];
// The last class is what is counted aside.
const _: () = assert!(PROTOS.len() == made::PROTOS && CLASSES == PROTOS.len() + 1);

/// A row of the table of stages, in the order of `enum stages_stage`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) direction: Direction,
    pub(super) name: &'static str,
    pub(super) kind: StageKind,
}

const fn row(direction: Direction, name: &'static str, kind: StageKind) -> Row {
    Row {
        direction,
        name,
        kind,
    }
}

use Direction::{Forward, Rx, Tx};
use StageKind::{Total, Unaccounted, Wait, Work};

/// All rows. What comes after a way's total is not in it.
pub(super) const ROWS: [Row; made::ROWS] = [
    row(Tx, "system call", Work),
    row(Tx, "enqueue", Work),
    row(Tx, "qdisc wait", Wait),
    row(Tx, "device", Work),
    row(Tx, "driver", Work),
    row(Tx, "unaccounted", Unaccounted),
    row(Tx, "total", Total),
    row(Tx, "completion", Wait),
    row(Rx, "backlog", Wait),
    row(Rx, "gro", Work),
    row(Rx, "protocol", Work),
    row(Rx, "socket lock", Wait),
    row(Rx, "wake-up", Wait),
    row(Rx, "socket queue", Wait),
    row(Rx, "read", Work),
    row(Rx, "return", Work),
    row(Rx, "unaccounted", Unaccounted),
    row(Rx, "total", Total),
    row(Forward, "backlog", Wait),
    row(Forward, "gro", Work),
    row(Forward, "forward", Work),
    row(Forward, "enqueue", Work),
    row(Forward, "qdisc wait", Wait),
    row(Forward, "device", Work),
    row(Forward, "driver", Work),
    row(Forward, "unaccounted", Unaccounted),
    row(Forward, "total", Total),
    row(Forward, "completion", Wait),
];

/// Where packets are counted, in the order of `enum stages_place`: what the ledger
/// calls it after the protocol.
pub(super) const PLACES: [&str; made::PLACES] = [
    "tx queue",
    "tx xmit",
    "tx sent",
    "tx dropped",
    "tx dropped before queue",
    "tx without a call",
    "tx no data",
    "rx arrived",
    "rx merged",
    "rx receive",
    "rx no data",
    "rx socket",
    "rx user",
    "rx dropped",
    "rx answered by the kernel",
    "rx other reader",
    "forward queue",
    "forward xmit",
    "forward sent",
    "forward dropped",
    "tx bytes",
    "rx bytes",
    "rx user bytes",
    "begun before the window",
];

/// `enum stages_loss`: what happened, and what it means.
pub(super) const LOSS_WORDS: [(&str, &str); made::LOSSES] = [
    (
        "packets in flight evicted by others",
        "these packets are in the ledger up to that point, and in no stage",
    ),
    (
        "packets that changed while they were read",
        "these packets are in no stage",
    ),
    (
        "reads of unidentified packets",
        "these packets are in the ledger, and in no stage",
    ),
    ("devices stacked too deep", "these packets are in no stage"),
    (
        "lost events of per-packet traces (ring buffer full)",
        "the traces have gaps",
    ),
];

impl Packet {
    /// Where a packet's slot says that it is under way, if it began no earlier than that: the
    /// protocol's place in [`PROTOS`], the direction, and how many segments.
    pub(super) fn under_way(&self, since_ns: u64) -> Option<(usize, Direction, u64)> {
        let at = |point: usize| self.at[point];
        let (direction, begun_ns) = match usize::from(self.direction) {
            made::RX => (Rx, at(made::AT_FIRST)),
            made::FORWARD => (Forward, at(made::AT_QUEUE)),
            _ => (Tx, at(made::AT_QUEUE)),
        };
        // What was sent is with the hardware, and its way is over.
        let sent = direction != Rx && at(made::AT_SENT) > 0;
        let counts = self.head != 0 && !sent && begun_ns >= since_ns;
        counts.then_some((usize::from(self.proto), direction, u64::from(self.segs)))
    }
}

/// Bytes of `struct stages_told`.
pub(super) const TOLD_BYTES: usize = size_of::<made::Told>();

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a slot is read as the programs write it, and that what was sent, was there
    /// before, or is gone, is not under way.
    #[test]
    fn slots_under_way() {
        let slot = |direction: u8, at: [u64; 7]| Packet {
            head: 64,
            at,
            segs: 3,
            proto: 1,
            direction,
            stretch: 1,
            ..Packet::default()
        };
        let queued = [40, 0, 50, 0, 0, 0, 0];
        let tx = slot(0, queued);
        assert_eq!(tx.under_way(45), Some((1, Tx, 3)));
        assert_eq!(tx.under_way(51), None);
        assert_eq!(Packet { head: 0, ..tx }.under_way(45), None);
        assert_eq!(slot(0, [40, 0, 50, 0, 0, 60, 70]).under_way(45), None);
        assert_eq!(slot(2, queued).under_way(45), Some((1, Forward, 3)));
        // What is received begins with its first moment.
        assert_eq!(slot(1, queued).under_way(45), None);
        assert_eq!(slot(1, queued).under_way(40), Some((1, Rx, 3)));
    }
}
