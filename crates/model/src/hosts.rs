//! Two hosts and a wire between them, in virtual time: their settings in an arm, their load, and their quantities.
//!
//! Each host is a guest with a CPU of its own whose clock counts instructions. The wire is modelled
//! by a plugin of QEMU (plugins/qemu/wire.c).

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::quantity::{Declared, Kind, Repeats};
use crate::recording::Arm;
use crate::web::WebLoad;

words! {
    /// One of two hosts.
    Side, "host",
    /// The host that sends.
    Tx = "tx",
    /// The host that receives.
    Rx = "rx",
}

impl Side {
    /// In words.
    pub fn called(self) -> &'static str {
        match self {
            Side::Tx => "sender",
            Side::Rx => "receiver",
        }
    }
}

/// A guest that is one of two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostOf {
    /// Which of the two hosts.
    pub side: Side,
    /// The speed of its CPU: an instruction takes 1 << shift nanoseconds.
    pub icount_shift: u8,
    /// Whether its NIC delays interrupts.
    pub throttles: bool,
}

/// The name of the instrument of two guests.
pub const INSTRUMENT: &str = "wire";
/// The instrument of two namespaces of this machine, timed by this machine's clock.
pub const CLOCKED: &str = "sockets";

/// Whether an instrument is one of two hosts.
pub fn is_of_hosts(instrument: &str) -> bool {
    [INSTRUMENT, CLOCKED].contains(&instrument)
}

/// A quantity of two hosts as namespaces of this machine have it: it varies from block to block.
pub const fn clocked(quantity: &Declared) -> Declared {
    Declared { instrument: CLOCKED, repeats: Repeats::Statistically, ..*quantity }
}

const fn count(name: &'static str, unit: &'static str) -> Declared {
    Declared::new(INSTRUMENT, name, unit, Kind::Count).exactly()
}

const fn each(name: &'static str, unit: &'static str) -> Declared {
    count(name, unit).by_label("host")
}

/// What is by something else.
const fn ratio(name: &'static str, unit: &'static str) -> Declared {
    Declared::new(INSTRUMENT, name, unit, Kind::Rate).exactly().by_label("host")
}

/// Bytes of the payload that arrived, by the time from the sender's first to the receiver's last.
pub const THROUGHPUT: Declared =
    Declared::new(INSTRUMENT, "throughput", "bit/s", Kind::Rate).exactly();
/// Turns by time.
pub const TURNS: Declared = Declared::new(INSTRUMENT, "turns", "turns/s", Kind::Rate).exactly();
/// Time from a request to the whole answer: of all turns of a block.
pub const TURN: Declared =
    Declared::new(INSTRUMENT, "turn", "ns", Kind::Duration).exactly().by_label("of all turns");
/// The figures over all turns of a block.
pub const TURN_LABELS: [&str; 5] = ["mean", "least", "median", "99%", "most"];
/// The part of the time in which a host's CPU executed instructions.
pub const BUSY: Declared =
    Declared::new(INSTRUMENT, "CPU use", "CPUs", Kind::Share).exactly().by_label("host");
/// The part of the time in which a host's CPU was idle by the kernel's own account (`idle_sleeptime`).
pub const KERNEL_IDLE: Declared =
    Declared::new(INSTRUMENT, "idle by the kernel", "share", Kind::Share)
        .exactly()
        .by_label("host");
/// The part of the time in which the sender's direction of the wire was occupied.
pub const WIRE_USE: Declared =
    Declared::new(INSTRUMENT, "wire use", "share", Kind::Share).exactly();
/// Instructions that a host executed, of kernel and programs.
pub const INSTRUCTIONS: Declared = each("instructions", "instructions");
/// Interrupts of a host's NIC.
pub const INTERRUPTS: Declared = each("interrupts", "interrupts");
/// Runs of the softirq NET_RX, in which a host polls its NIC.
pub const POLLS: Declared = each("polls", "runs");
/// Frames that came to a host, by its NIC's interrupts.
pub const FRAMES_PER_INTERRUPT: Declared = ratio("frames per interrupt", "frames");
/// The same by runs of the softirq that polls.
pub const FRAMES_PER_POLL: Declared = ratio("frames per poll", "frames");
/// Instructions that a host executed, by bytes of payload.
pub const INSTRUCTIONS_PER_BYTE: Declared = ratio("instructions per byte", "instructions");
/// Frames that a host put on the wire.
pub const FRAMES: Declared = each("frames", "frames");
/// Their bytes, with preamble, FCS and gap.
pub const WIRE_BYTES: Declared = each("bytes on the wire", "bytes");
/// Frames that the wire lost.
pub const LOST: Declared = each("frames lost", "frames");
/// Frames that a host's NIC had no room for, and kept until it had.
pub const HELD: Declared = each("frames held", "frames");
/// Frames that a host's NIC had no room for, and dropped, by its own count (`rx_missed_errors`).
pub const MISSED: Declared = each("frames dropped by the NIC", "frames");
/// The longest time that a frame waited for the wire, since the run's beginning.
pub const LONGEST_WAIT: Declared =
    Declared::new(INSTRUMENT, "longest wait for the wire", "ns", Kind::Duration)
        .exactly()
        .by_label("host");
/// A web server's disk reads, in bytes per byte of payload; read-ahead counts, too.
pub const FROM_DISK: Declared =
    Declared::new(INSTRUMENT, "read from disk", "share", Kind::Share).exactly();
/// Segments that the sender sent again.
pub const RETRANSMITTED: Declared = count("retransmitted", "segments");
/// Segments with data: of the sender those that it sent, those sent again included; of the receiver those
/// that came to it.
pub const SEGMENTS: Declared = each("segments", "segments");
/// The socket buffer that the kernel gave, on request or by default: the sender's for sending, the receiver's for
/// receiving.
pub const BUFFER: Declared = each("socket buffer", "bytes");

/// Where instructions of both hosts are counted by function: the bytes of payload of a block, which its
/// costs are for as they are for its frames.
pub const PAYLOAD: Declared = Declared::new("exact", "payload", "bytes", Kind::Count).exactly();
/// The kernel's instructions of a host, counted apart from its functions.
pub const COUNTED_IN_KERNEL: Declared =
    Declared::new("exact", "in the kernel", "instructions", Kind::Count).exactly().by_label("host");
/// The instructions of a host's programs.
pub const COUNTED_IN_PROGRAMS: Declared =
    Declared::new("exact", "in programs", "instructions", Kind::Count).exactly().by_label("host");

/// The labels that figures of a quantity have; nothing if there is one figure.
pub fn labels_of(quantity: &Declared) -> Vec<&'static str> {
    match quantity.label {
        None => Vec::new(),
        Some(_) if quantity.name == TURN.name => TURN_LABELS.to_vec(),
        Some(_) => Side::ALL.iter().map(|side| side.called()).collect(),
    }
}

/// All that two namespaces have.
pub const ALL_CLOCKED: &[Declared] = &[
    clocked(&THROUGHPUT),
    clocked(&TURNS),
    clocked(&TURN),
    clocked(&BUSY),
    clocked(&RETRANSMITTED),
    clocked(&SEGMENTS),
    clocked(&BUFFER),
];

/// All of them.
pub const ALL: &[Declared] = &[
    THROUGHPUT,
    TURNS,
    TURN,
    BUSY,
    KERNEL_IDLE,
    WIRE_USE,
    INSTRUCTIONS,
    INSTRUCTIONS_PER_BYTE,
    INTERRUPTS,
    FRAMES_PER_INTERRUPT,
    POLLS,
    FRAMES_PER_POLL,
    FRAMES,
    WIRE_BYTES,
    LOST,
    HELD,
    MISSED,
    LONGEST_WAIT,
    RETRANSMITTED,
    SEGMENTS,
    BUFFER,
    FROM_DISK,
];

/// The wire between two hosts, in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Bits per second.
    pub rate_bps: u64,
    /// Time from one end to the other.
    pub delay_ns: u64,
    /// Its maximum variation: up to this much is added for each frame.
    pub jitter_ns: u64,
    /// Frames lost, of a billion.
    pub loss_ppb: u64,
}

/// The knobs of a wire.
pub const WIRE_KEYS: [&str; 4] = ["wire_rate", "wire_delay", "wire_jitter", "wire_loss"];

/// A wire's overhead per frame: preamble (8), FCS (4) and gap (12).
pub const WIRE_OVERHEAD_BYTES: u64 = 24;
/// The header of a frame.
pub const HEADER_BYTES: u64 = 14;

impl Wire {
    /// The wire of an arm.
    pub fn from_arm(arm: &Arm) -> Wire {
        let read = |key: &str, parse: fn(&str) -> Result<u64, String>| {
            // Levels have been checked.
            arm.level(key).and_then(|level| parse(level).ok()).unwrap_or(0)
        };
        Wire {
            rate_bps: read("wire_rate", rate_of),
            delay_ns: read("wire_delay", time_of),
            jitter_ns: read("wire_jitter", time_of),
            loss_ppb: read("wire_loss", loss_of),
        }
    }

    /// The wire between NICs of one guest, if an arm has one; else they are on a hub of QEMU, which hands
    /// frames over at once.
    pub fn of_one_guest(arm: &Arm) -> Option<Wire> {
        let has = |key: &&str| arm.knobs.contains_key(*key);
        WIRE_KEYS.iter().any(has).then(|| Wire::from_arm(arm))
    }

    /// Check that two hosts can be kept together: between two of their barriers passes less time
    /// than the shortest frame takes.
    ///
    /// # Errors
    /// The delay is too short for the rate.
    pub fn check(&self) -> Result<(), String> {
        // As in plugins/qemu/wire.c: LEAST_STEP_NS and SLACK_NS.
        const LEAST_NS: f64 = 200.0 + 64.0;
        let shortest_ns = self.occupied_ns(46) + self.delay_ns as f64;
        match shortest_ns >= LEAST_NS {
            true => Ok(()),
            false => Err(format!(
                "a delay of {} ns is too short for this rate; expected at least {:.0} ns",
                self.delay_ns,
                (LEAST_NS - self.occupied_ns(46)).ceil()
            )),
        }
    }

    /// How long a frame with this much payload occupies the wire.
    pub fn occupied_ns(&self, mtu_bytes: u64) -> f64 {
        let bits = 8 * (mtu_bytes + HEADER_BYTES + WIRE_OVERHEAD_BYTES);
        bits as f64 * 1e9 / self.rate_bps as f64
    }
}

/// A number with one of these units, in multiples of the first.
fn number(text: &str, units: &[(&str, f64)], what: &str) -> Result<f64, String> {
    let wrong = || {
        let text: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
        format!("invalid {what} `{text}`")
    };
    let at = text.find(|c: char| c.is_ascii_alphabetic() || c == '%');
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    match number.is_finite() && number >= 0.0 {
        true => Ok(number * factor),
        false => Err(wrong()),
    }
}

/// Bits per second: "1G", "100M", "2.5Gbit".
///
/// # Errors
/// Another text.
pub fn rate_of(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, f64)] =
        &[("M", 1e6), ("Mbit", 1e6), ("G", 1e9), ("Gbit", 1e9), ("k", 1e3), ("kbit", 1e3)];
    let with_example = |why: String| {
        format!("{why}; expected bits per second like 1G, 2.5G or 100M, from 100k to 100G")
    };
    let rate = number(text, UNITS, "rate").map_err(with_example)?;
    match (1e5..=1e11).contains(&rate) {
        true => Ok(rate.round() as u64),
        false => Err(format!("invalid rate `{text}`; expected 100k to 100G")),
    }
}

/// A time up to a second: "1us", "250ns", "0".
///
/// # Errors
/// Another text.
pub fn time_of(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    if text.trim() == "0" {
        return Ok(0);
    }
    let with_example = |why: String| format!("{why}; expected like 1us, 250ns or 10ms");
    let time = number(text, UNITS, "time").map_err(with_example)?;
    match time <= 1e9 {
        true => Ok(time.round() as u64),
        false => Err(format!("invalid time `{text}`; expected at most 1s")),
    }
}

/// A share of frames, in a billion of them: "0.1%", "0".
///
/// # Errors
/// Another text.
pub fn loss_of(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    let with_example = |why: String| format!("{why}; expected a percentage like 0.1%");
    let loss = number(text, &[("%", 1e7)], "loss").map_err(with_example)?;
    match loss <= 5e8 {
        true => Ok(loss.round() as u64),
        false => Err(format!("invalid loss `{text}`; expected at most 50%")),
    }
}

words! {
    /// Whose program sends between two namespaces.
    #[derive(Default)]
    Client, "client",
    /// Our own.
    #[default]
    Plumb = "plumb",
    /// iperf3 at both ends of a stream.
    Iperf3 = "iperf3",
    /// wrk asks the web server.
    Wrk = "wrk",
}

/// The load between two hosts in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostLoad {
    /// Bytes in one direction, over connections of their own, as fast as they go.
    Stream {
        /// How many, over all connections.
        bytes: u64,
        /// How many are given to each send.
        write_bytes: u32,
        /// How many connections share them.
        connections: u32,
    },
    /// Requests and answers, each after the other, over a connection of their own.
    Request {
        /// How many requests.
        turns: u32,
        /// Size of each, and of each answer.
        size_bytes: u32,
    },
    /// ICMP echoes, each after the other; the receiver's kernel answers.
    Echo {
        /// How many.
        turns: u32,
        /// Size of each, after the ICMP header.
        size_bytes: u32,
    },
    /// Files of a web server, which is the sender.
    Web(WebLoad),
}

impl HostLoad {
    /// The most connections that share a stream.
    pub const MAX_CONNECTIONS: u32 = 64;

    /// The number of its TCP connections; for echoes and a web server, the one that keeps both hosts in step.
    pub fn connections(self) -> u32 {
        match self {
            HostLoad::Stream { connections, .. } => connections.max(1),
            HostLoad::Request { .. } | HostLoad::Echo { .. } | HostLoad::Web(_) => 1,
        }
    }

    /// A small one of the same kind, to warm up.
    #[must_use]
    pub fn warm_up(self) -> HostLoad {
        const BYTES: u64 = 256 << 10;
        const TURNS: u32 = 10;
        const REQUESTS: u32 = 100;
        match self {
            HostLoad::Stream { bytes, write_bytes, connections } => {
                HostLoad::Stream { bytes: bytes.min(BYTES), write_bytes, connections }
            }
            HostLoad::Echo { turns, size_bytes } => {
                HostLoad::Echo { turns: turns.min(TURNS), size_bytes }
            }
            HostLoad::Request { turns, size_bytes } => {
                HostLoad::Request { turns: turns.min(TURNS), size_bytes }
            }
            HostLoad::Web(load) => {
                HostLoad::Web(WebLoad { requests: load.requests.min(REQUESTS), ..load })
            }
        }
    }
}

/// A wire plugin's values at one time, for one host, in the order of `enum wire_value` (plugins/qemu/wire.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latch {
    /// Time since both hosts were connected, by the clock that both have.
    pub clock_ns: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Frames put on the wire.
    pub frames: u64,
    /// Their bytes, with preamble, FCS and gap.
    pub bytes: u64,
    /// How long they occupied it.
    pub busy_ns: u64,
    /// Lost by the wire.
    pub lost: u64,
    /// Frames longer than its MTU, also lost.
    pub too_long: u64,
    /// Frames that arrived.
    pub arrived: u64,
    /// Received frames that the NIC held because its ring was full.
    pub held: u64,
    /// Frames sent while there was no wire.
    pub unconnected: u64,
    /// Frames on the way to this host.
    pub under_way: u64,
    /// The longest that a frame waited for the wire.
    pub longest_wait_ns: u64,
    /// Frames that came after their time.
    pub late: u64,
}

impl Latch {
    /// How many values it has.
    pub const VALUES: usize = 13;

    /// From the plugin's values.
    pub fn from_values(values: [u64; Latch::VALUES]) -> Latch {
        let [
            clock_ns,
            instructions,
            frames,
            bytes,
            busy_ns,
            lost,
            too_long,
            arrived,
            held,
            unconnected,
            under_way,
            longest_wait_ns,
            late,
        ] = values;
        Latch {
            clock_ns,
            instructions,
            frames,
            bytes,
            busy_ns,
            lost,
            too_long,
            arrived,
            held,
            unconnected,
            under_way,
            longest_wait_ns,
            late,
        }
    }
}

/// The kernel's own account of its idle time around a block, and when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelIdle {
    /// Before the beginning.
    pub before: Latch,
    /// After the end.
    pub after: Latch,
    /// The kernel's own figure of idle time between both.
    pub idle_ns: u64,
}

impl KernelIdle {
    /// Its idle time between two moments of a CPU on which an instruction takes `1 << icount_shift` ns: what it was
    /// idle before and after is known by the clock and the instructions, and left out.
    pub fn between_ns(&self, begin: &Latch, end: &Latch, icount_shift: u8) -> u64 {
        let idle = |from: &Latch, to: &Latch| {
            let passed = to.clock_ns.saturating_sub(from.clock_ns);
            let executed = to.instructions.saturating_sub(from.instructions);
            passed.saturating_sub(executed << icount_shift)
        };
        let outside = idle(&self.before, begin) + idle(end, &self.after);
        self.idle_ns.saturating_sub(outside)
    }
}

/// A block, as one host saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostBlock {
    /// At its beginning.
    pub begin: Latch,
    /// At its end.
    pub end: Latch,
    /// Bytes of payload that it sent, or received: of the requests.
    pub bytes: u64,
    /// The time of each turn.
    pub turns_ns: Vec<u64>,
    /// Interrupts of its NIC.
    pub interrupts: u64,
    /// Runs of the softirq NET_RX, in which NICs are polled.
    pub polls: u64,
    /// Frames that the host's NIC dropped because its ring was full, if it counts them.
    pub missed: Option<u64>,
    /// Its idle time as the kernel counts it, if it does.
    pub kernel_idle: Option<KernelIdle>,
    /// Segments that it sent again.
    pub retransmitted: u64,
    /// Segments with data: of the sender those that it sent, each time, of the receiver those that came.
    /// None of a web server, whose sockets are its own.
    pub segments: Option<u64>,
    /// The size of its socket's buffer; none of a web server.
    pub buffer_bytes: Option<u64>,
    /// Bytes that its disk read, if it has one.
    pub disk_bytes: Option<u64>,
    /// Requested bytes that did not arrive as they should, by cause.
    pub failed: Vec<(String, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a frame of MTU 1500 takes 12.304 us at 1 Gbit/s.
    #[test]
    fn a_full_frame() {
        let wire = Wire { rate_bps: 1_000_000_000, delay_ns: 0, jitter_ns: 0, loss_ppb: 0 };
        assert_eq!(wire.occupied_ns(1_500), 12_304.0);
    }

    /// Check that the kernel's idle time of a block is without what it was idle before and after.
    #[test]
    fn idle_of_a_block() {
        let at = |clock_ns, instructions| Latch { clock_ns, instructions, ..Latch::default() };
        let idle = KernelIdle { before: at(1_000, 100), after: at(30_000, 2_100), idle_ns: 22_000 };
        // Before: 9,000 ns, 500 instructions of 4 ns each; after: 1,000 ns, all busy.
        let between = idle.between_ns(&at(10_000, 600), &at(29_000, 1_850), 2);
        assert_eq!(between, 22_000 - 7_000);
    }

    /// Check that rates, times and losses are read with their units, and that others are refused
    /// with an example.
    #[test]
    fn units() {
        assert_eq!(rate_of("1G"), Ok(1_000_000_000));
        assert_eq!(rate_of("2.5Gbit"), Ok(2_500_000_000));
        assert_eq!(rate_of("100M"), Ok(100_000_000));
        for wrong in ["", "1", "1T", "-1G", "1k", "fast", "200G"] {
            assert!(rate_of(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
        assert_eq!(time_of("1us"), Ok(1_000));
        assert_eq!(time_of("1.5 us"), Ok(1_500));
        assert_eq!(time_of("0"), Ok(0));
        for wrong in ["", "1", "5", "2s", "-1us"] {
            assert!(time_of(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
        assert_eq!(loss_of("0.1%"), Ok(1_000_000));
        assert_eq!(loss_of("0"), Ok(0));
        for wrong in ["", "0.1", "60%", "%"] {
            assert!(loss_of(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
