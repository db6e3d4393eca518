//! Wires in QEMU: the plugin for the ends that are in a guest, and what follows their logs.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};

use netplumb_instruments::wire::{self, WireEnd, WirePeer};
use netplumb_lab::vm::process::Extra;
use netplumb_lab::vm::{frames, link};
use netplumb_model::hosts::Wire;
use netplumb_model::recording::Arm;
use netplumb_sys::memory::memfd;

use crate::error::EngineError;
use crate::measure;

/// Where the other end of an end in a guest is.
pub(crate) enum Other<'a> {
    /// In another guest: the name of this host, and the socket to the other.
    Host(&'a str, OwnedFd),
    /// In the same guest.
    Here,
}

/// The plugin for ends with these ports and seeds, and a log of each.
pub(crate) fn plug(
    arm: &Arm,
    wire: Wire,
    ends: &[(String, u64)],
    other: Other<'_>,
) -> Result<(Vec<File>, Extra), EngineError> {
    let plugin = memfd("netplumb-wire", wire::PLUGIN)
        .map_err(EngineError::host("hold the plugin of the wire"))?;
    let mut logs = Vec::new();
    let mut wire_ends = Vec::new();
    let mut fds = Vec::new();
    for (nic, seed) in ends {
        let (ours, log) = measure::pipe().map_err(EngineError::host("make a pipe"))?;
        logs.push(ours);
        wire_ends.push(WireEnd { nic: nic.clone(), seed: *seed, log: log.as_raw_fd() });
        fds.push(log);
    }
    let peer = match &other {
        Other::Host(name, socket) => WirePeer::Host(name, socket.as_raw_fd()),
        Other::Here => WirePeer::Here,
    };
    let mtu_bytes = arm.read("mtu_bytes");
    let args = wire::qemu_args(wire, mtu_bytes, plugin.as_raw_fd(), &peer, &wire_ends);
    if let Other::Host(_, socket) = other {
        fds.push(socket);
    }
    fds.push(plugin);
    let extra = Extra { args, fds, cpu: None };
    Ok((logs, extra))
}

/// What follows the logs of a guest that has both ends of a wire, or of two with a router between.
#[derive(Debug)]
pub(crate) struct Wires(Vec<JoinHandle<Result<frames::Followed, String>>>);

impl Wires {
    /// The wires of an arm, and what QEMU needs for them; nothing if they are QEMU's own.
    pub(crate) fn from_arm(arm: &Arm, links: usize) -> Result<(Wires, Extra), EngineError> {
        let Some(wire) = Wire::of_one_guest(arm) else {
            return Ok((Wires(Vec::new()), Extra::default()));
        };
        let ports = link::ports(if links > 1 { 2 } else { 1 });
        let seed: u64 = arm.read("seed").unwrap_or(1);
        // Each direction has losses of its own.
        let ends: Vec<_> =
            (ports.into_iter().zip(0..)).map(|(port, number)| (port, seed << 2 | number)).collect();
        let (logs, extra) = plug(arm, wire, &ends, Other::Here)?;
        let threads = logs.into_iter().zip(ends).map(|(log, (port, _))| {
            let seen = AtomicU64::new(0);
            thread::spawn(move || frames::follow(log, &port, wire, frames::Ends::Together, &seen))
        });
        Ok((Wires(threads.collect()), extra))
    }

    /// Check, once the guest has ended, that all frames were where they are on a wire.
    ///
    /// # Errors
    /// They were not.
    pub(crate) fn check(self) -> Result<(), EngineError> {
        for thread in self.0 {
            let followed = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            followed.map_err(EngineError::Guest)?;
        }
        Ok(())
    }
}
