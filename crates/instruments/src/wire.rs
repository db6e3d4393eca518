//! The `wire` instrument: what two hosts and the wire between them do, in virtual time.
//!
//! A TCG plugin (plugins/qemu/wire.c) delivers what each host's NIC sends at the time at which a
//! wire would, and keeps the clocks of both together. The hosts read what it counts.
//!
//! Beside `wire.c`: `wire_end.c` is a NIC that sends over the wire, `wire_line.c` computes when frames arrive,
//! `wire_peer.c` has what both QEMUs exchange, `wire_qemu.c` what is used of QEMU's internals. `netplumb_lab`'s
//! `vm/wire.rs` uses the plugin's ports from the guest, `vm/frames.rs` checks its log.

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::hosts::{self, Side, Wire};
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};

/// Two hosts and the wire between them, in virtual time.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

/// The shared object, compiled from plugins/qemu/wire.c.
pub static PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.so"));

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Throughput, times of turns and CPU use of two hosts and a wire, in virtual time; vm lab only"
    }

    fn quantities(&self) -> &'static [Declared] {
        hosts::ALL
    }

    fn unavailable(&self, lab: Lab) -> Option<(&'static str, &'static str)> {
        let why = "it joins two guests by a wire";
        (lab != Lab::Vm).then_some((why, "use lab = \"vm\" and hosts = 2"))
    }

    fn works(&self, _: Lab, tried: &Tried<'_>) -> Availability {
        match tried.verdict("qemu-wire") {
            no @ Availability::No { .. } => no,
            _ => Availability::yes("two guests and a wire (hosts = 2)"),
        }
    }

    fn attach(
        &self,
        _: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Err(LiveError::Asked(
            "`wire` can't measure the running kernel; use lab = \"vm\" and hosts = 2".into(),
        ))
    }

    fn is_clock(&self) -> bool {
        false
    }
}

/// One end of a wire, for QEMU.
#[derive(Debug)]
pub struct WireEnd {
    /// The port of its NIC, in QEMU.
    pub nic: String,
    /// The seed of jitter and loss of what it sends.
    pub seed: u64,
    /// The descriptor of the log of what it sends.
    pub log: i32,
}

/// Where the other end of a wire is.
#[derive(Debug)]
pub enum WirePeer<'a> {
    /// In another QEMU: the name of this host, for errors, and the descriptor of the socket between both.
    Host(&'a str, i32),
    /// In the same QEMU: ends are given in pairs.
    Here,
}

/// QEMU's arguments for the plugin in descriptor `plugin`, whose wire carries frames with at most `mtu_bytes`
/// of payload, if there is a limit.
pub fn qemu_args(
    wire: Wire,
    mtu_bytes: Option<u32>,
    plugin: i32,
    peer: &WirePeer<'_>,
    ends: &[WireEnd],
) -> Vec<String> {
    let longest = mtu_bytes.map_or(0, |mtu| u64::from(mtu) + hosts::HEADER_BYTES);
    let mut option = format!(
        "file=/proc/self/fd/{plugin},rate={},delay={},jitter={},loss={},overhead={},longest={longest}",
        wire.rate_bps,
        wire.delay_ns,
        wire.jitter_ns,
        wire.loss_ppb,
        hosts::WIRE_OVERHEAD_BYTES,
    );
    if let WirePeer::Host(name, socket) = peer {
        option.push_str(&format!(",host={name},peer={socket}"));
    }
    for (number, WireEnd { nic, seed, log }) in ends.iter().enumerate() {
        option.push_str(&format!(",nic{number}={nic},log{number}={log},random{number}={seed}"));
    }
    vec!["-plugin".into(), option]
}

/// QEMU's arguments for one end of a wire on a trial: which host, the port of its NIC, and the
/// descriptors of the plugin, the socket and the log.
pub fn trial_args(wire: Wire, side: Side, nic: &str, fds: [i32; 3]) -> Vec<String> {
    let [plugin, socket, log] = fds;
    let end = WireEnd { nic: nic.into(), seed: 1, log };
    let peer = WirePeer::Host(side.as_str(), socket);
    qemu_args(wire, None, plugin, &peer, &[end])
}

/// If QEMU ended because the plugin would not have it, or the other way round: why, and what to do.
pub fn describe_refusal(stderr: &[String]) -> Option<String> {
    const NO_WIRE: &str = "netplumb: no wire: ";
    let line = stderr.iter().find_map(|line| line.strip_prefix(NO_WIRE));
    if let Some(why) = line {
        let remedy = match why.contains("delay") {
            true => "",
            false => {
                "; it needs a QEMU that exports its functions, as Debian's do (qemu-system-x86, qemu-system-arm): \
                 install it, or name it with $PLUMB_QEMU. Guests alone, and --lab netns, don't need the wire"
            }
        };
        return Some(format!("no wire: {why}{remedy}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that errors of the plugin come with a remedy.
    #[test]
    fn refusals() {
        let refusal = |line: &str| describe_refusal(&[line.to_string()]);
        let stripped = refusal("netplumb: no wire: this QEMU does not export qemu_find_netdev");
        assert!(stripped.unwrap().contains("$PLUMB_QEMU"));
        let delay =
            refusal("netplumb: no wire: its delay is too short for its rate: at least 9 ns");
        assert!(!delay.unwrap().contains("install"));
        assert_eq!(refusal("qemu-system-x86_64: could not load kernel"), None);
    }

    /// Check that the guest's agent, the log's reader and the plugin agree on numbers, which C
    /// declares.
    #[test]
    fn agrees_with_c() {
        let header = concat!(
            include_str!("../../../plugins/qemu/wire.h"),
            include_str!("../../../plugins/qemu/wire_end.h")
        );
        for line in [
            "#define WIRE_PORT 0x570",
            "#define WIRE_MAGIC 0x4e505731u",
            "WIRE_BEGIN = 1,",
            "WIRE_END = 2,",
            "WIRE_LATCH = 3,",
            "WIRE_OVER = 2,",
            "#define WIRE_ENDS 4",
        ] {
            assert!(header.contains(line), "{line}");
        }
        let values = header.split("enum wire_value {").nth(1).unwrap();
        let names: Vec<&str> = values
            .lines()
            .map_while(|line| line.split_once("};").is_none().then_some(line))
            .filter_map(|line| line.trim().split_once(',').map(|(name, _)| name))
            .collect();
        assert_eq!(names[hosts::Latch::VALUES - 1], "WIRE_LATE");
        assert_eq!(names[0], "WIRE_CLOCK_NS");
    }
}
