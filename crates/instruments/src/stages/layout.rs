//! The twins of what stages.h declares, and the table of stages.

use netplumb_model::class::{Direction, Proto};
use netplumb_model::timing::{BUCKETS, StageKind};

/// Words of a `struct stages_times`.
pub(super) const TIMES_WORDS: usize = 4 + BUCKETS;
/// Families.
pub(super) const FAMILIES: usize = 2;
/// Protocols, as `enum stages_proto` has them.
pub(super) const PROTOS: [Proto; 3] = [Proto::Raw, Proto::Udp, Proto::Tcp];
/// Protocols, and what is counted aside (`STAGES_ASIDE`).
pub(super) const CLASSES: usize = PROTOS.len() + 1;
/// Room for places in `places`.
const PLACES_ROOM: usize = 32;
/// Namespaces that a filter can name.
pub(super) const NAMESPACES: usize = 8;
/// System call numbers that are looked at.
pub(super) const CALLS: usize = 512;
/// `enum stages_loss`.
const LOSSES: usize = 5;

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
pub(super) const ROWS: [Row; 28] = [
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
pub(super) const PLACES: [&str; 24] = [
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
pub(super) const LOSS_WORDS: [(&str, &str); LOSSES] = [
    (
        "packets under way displaced by others",
        "these packets are in the ledger up to there, and in no stage",
    ),
    (
        "packets that changed while they were read",
        "these packets are in no stage",
    ),
    (
        "packets read without it being known which they were",
        "these packets are in the ledger, and in no stage",
    ),
    (
        "devices on top of one another too deep",
        "these packets are in no stage",
    ),
    (
        "steps of single packets without room in the ring",
        "the packets told one by one miss steps",
    ),
];

/// `struct stages_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Config {
    pub(super) protos: u32,
    pub(super) family: u32,
    pub(super) port: u32,
    pub(super) interface: u32,
    pub(super) pid: u32,
    pub(super) namespaces: u32,
    pub(super) cgroup: u64,
    pub(super) has_address: u32,
    pub(super) address: [u32; 4],
    pub(super) one_packet: u32,
    pub(super) has_data_ready: u32,
    pub(super) namespace_inum: [u32; NAMESPACES],
    pub(super) has_pauses: u32,
    pub(super) sends: [u64; CALLS / 64],
    pub(super) receives: [u64; CALLS / 64],
}

/// `struct stages_window`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowState {
    pub(super) opened_ns: u64,
    pub(super) active: u64,
    pub(super) admits: u64,
    pub(super) settled_ns: u64,
    pub(super) aside: u64,
    pub(super) stretch: u64,
}

/// `struct stages_packet`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Packet {
    head: u64,
    at: [u64; 7],
    words: [u64; 2],
}

/// `enum stages_point`, as far as it is read here.
const AT_QUEUE: usize = 2;
const AT_SENT: usize = 6;
/// `enum stages_direction`.
const RX: u64 = 1;
const FORWARD: u64 = 2;

impl Packet {
    /// Where a packet's slot says that it is under way, if it began no earlier than that: the
    /// protocol's place in [`PROTOS`], the direction, and how many segments.
    pub(super) fn under_way(&self, since_ns: u64) -> Option<(usize, Direction, u64)> {
        // segs, proto, family, direction, flags, stretch: sixteen bits and bytes.
        let word = self.words[1].to_le_bytes();
        let segments = u64::from(u16::from_le_bytes([word[0], word[1]]));
        let (direction, begun_ns) = match u64::from(word[4]) {
            RX => (Rx, self.at[0]),
            FORWARD => (Forward, self.at[AT_QUEUE]),
            _ => (Tx, self.at[AT_QUEUE]),
        };
        // What was sent is with the hardware, and its way is over.
        let sent = direction != Rx && self.at[AT_SENT] > 0;
        let counts = self.head != 0 && !sent && begun_ns >= since_ns;
        counts.then_some((usize::from(word[2]), direction, segments))
    }
}

/// `struct stages_cpu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpu {
    head: [u64; 4],
    driving: [[u64; 3]; 4],
    segments: u64,
    parent: Packet,
    scratch: [u64; 2],
    pub(super) hits: u64,
    stretch: u64,
    pub(super) places: [[u64; PLACES_ROOM]; CLASSES],
    pub(super) losses: [u64; LOSSES],
}

/// `struct stages_told`.
pub(super) const TOLD_BYTES: usize = 24;

/// `struct stages_step`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepEvent {
    pub(super) at_ns: u64,
    pub(super) packet: u32,
    pub(super) event: u32,
    pub(super) cpu: u32,
    pub(super) tid: u32,
    pub(super) in_task: u32,
    pub(super) softirq: u32,
    pub(super) command: [u8; 16],
}

/// What is made of words alone, without padding: any bytes are a value of it.
///
/// # Safety
/// The type is `repr(C)`, of integers and arrays of these, and has no padding.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: u32 and u64 alone, each at a multiple of its size.
unsafe impl Plain for Config {}
// SAFETY: u64 alone.
unsafe impl Plain for WindowState {}
// SAFETY: u64 alone.
unsafe impl Plain for Cpu {}
// SAFETY: u64 alone.
unsafe impl Plain for Packet {}
// SAFETY: u64, u32 and bytes, each at a multiple of its size, 56 bytes in all.
unsafe impl Plain for StepEvent {}

/// The bytes of a value.
pub(super) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the pointer and the size are one value's, and it has no padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A value from its bytes; none if there are too few.
pub(super) fn value<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and any bytes are a value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

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
            words: [0, u64::from_le_bytes([3, 0, 1, 0, direction, 0, 1, 0])],
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
