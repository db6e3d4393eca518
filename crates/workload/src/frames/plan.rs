//! The plan of a generator.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netplumb_model::bench::{FRAME_BYTES_MOST, FrameSize, Frames, Offered};
use netplumb_model::class::Family;
use netplumb_sys::cpus;

use super::error::GeneratorError;
use super::layout::PPS_LEAST;

/// Default batch: as many frames as a NAPI poll handles (NAPI_POLL_WEIGHT).
pub const BATCH: u32 = 64;
/// Default TTL of frames, as the kernel's (IPDEFTTL).
pub const TTL: u8 = 64;
/// Maximum batch (TEST_XDP_MAX_BATCH, net/bpf/test_run.c).
pub const BATCH_MOST: u32 = 256;

/// The sending device, and the addresses of frames.
#[derive(Debug)]
pub struct Exit {
    /// The device's network namespace.
    pub namespace: OwnedFd,
    /// The device's index there.
    pub device: u32,
    /// Source MAC address.
    pub mac: [u8; 6],
    /// Destination MAC address.
    pub to_mac: [u8; 6],
    /// Source IP address; further flows have the following ones.
    pub source: IpAddr,
    /// Destination IP address.
    pub destination: IpAddr,
    /// Source port; further flows have the following ones. With ICMP, the identifier.
    pub source_port: u16,
    /// Destination port. With ICMP, the sequence number.
    pub destination_port: u16,
}

impl Exit {
    /// The same exit, with duplicated descriptors.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn try_clone(&self) -> io::Result<Exit> {
        Ok(Exit { namespace: self.namespace.try_clone()?, ..*self })
    }
}

/// How frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Made in the kernel and redirected to the device, by test runs of an XDP program
    /// with live frames (bpf(2), since Linux 5.18).
    Xdp,
    /// Made in user space and written to packet sockets, bypassing qdiscs (packet(7)).
    Sockets,
}

impl Method {
    /// Its name in facts.
    pub fn name(self) -> &'static str {
        match self {
            Method::Xdp => "xdp test runs",
            Method::Sockets => "packet sockets",
        }
    }
}

/// The plan of a generator.
#[derive(Debug)]
pub struct GeneratorPlan {
    /// Device and addresses.
    pub exit: Exit,
    /// Kind, size and headers of frames.
    pub frames: Frames,
    /// Number of flows per source address, on consecutive ports; 0 for as many as there are ports,
    /// 1 for an address per flow.
    pub flow_ports: u32,
    /// The TTL, or hop limit.
    pub ttl: u8,
    /// The rate, all CPUs together.
    pub offered: Offered,
    /// The CPUs, each with a thread and its share of the rate and of the flows. With fewer flows
    /// than CPUs, some CPUs send the same one.
    pub cpus: Vec<u32>,
    /// Frames per batch, at most [`BATCH_MOST`]. Frames wait for the rest of their batch, even if
    /// they are due: with 64 up to some 3 us.
    pub batch: u32,
    /// Whether frames have timestamps (stamp.h).
    pub stamped: bool,
    /// The method; `None` for test runs if supported, else sockets.
    pub method: Option<Method>,
}

impl GeneratorPlan {
    /// The same plan, with duplicated descriptors.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn try_clone(&self) -> io::Result<GeneratorPlan> {
        Ok(GeneratorPlan { exit: self.exit.try_clone()?, cpus: self.cpus.clone(), ..*self })
    }

    /// The minimum frame length for its headers, and a stamp if it has one.
    pub fn size_bytes_least(&self) -> u32 {
        self.frames.size_bytes_least(self.stamped)
    }

    /// Frames per second on each CPU, if there is a rate.
    pub(super) fn pps_each(&self) -> Option<f64> {
        match self.offered {
            Offered::Most => None,
            Offered::Pps(pps) => Some(pps / self.cpus.len().max(1) as f64),
        }
    }

    /// Number of ports per address.
    pub(super) fn ports(&self) -> u32 {
        let there = 65_536 - u32::from(self.exit.source_port);
        match self.flow_ports {
            0 => there,
            ports => ports,
        }
    }

    /// Number of addresses of its flows.
    pub(super) fn addresses(&self) -> u32 {
        self.frames.flows.saturating_sub(1) / self.ports().max(1) + 1
    }

    /// The flows of the `index`th CPU: the first one, and their number.
    pub(super) fn share(&self, index: u32) -> (u32, u32) {
        let cpus = self.cpus.len().max(1) as u64;
        let flows = u64::from(self.frames.flows);
        if flows < cpus {
            return (index % self.frames.flows.max(1), 1);
        }
        let at = |i: u64| u32::try_from(i * flows / cpus).unwrap_or(u32::MAX);
        let first = at(u64::from(index));
        (first, at(u64::from(index) + 1) - first)
    }

    /// Check the plan's numbers.
    pub(super) fn check(&self) -> Result<(), GeneratorError> {
        let wrong = |what: String| Err(GeneratorError::Input(what));
        let Exit { source, destination, .. } = self.exit;
        let family = |a: IpAddr| if a.is_ipv4() { Family::V4 } else { Family::V6 };
        if family(source) != self.frames.family || family(destination) != self.frames.family {
            return wrong(format!(
                "{} frames can't go from {source} to {destination}: use addresses of that version",
                self.frames.family
            ));
        }
        if let FrameSize::Bytes(bytes) = self.frames.size {
            let least = self.size_bytes_least();
            if !(least..=FRAME_BYTES_MOST).contains(&bytes) {
                return wrong(format!(
                    "invalid size of {} frames over {}{}; expected {least} to {FRAME_BYTES_MOST} \
                     bytes without FCS, not {bytes}",
                    self.frames.kind,
                    self.frames.family,
                    if self.stamped { " with stamps" } else { "" },
                ));
            }
        }
        if self.batch == 0 || self.batch > BATCH_MOST {
            return wrong(format!(
                "invalid batch {}; expected 1 to {BATCH_MOST} frames",
                self.batch
            ));
        }
        self.check_flows()?;
        if let (Offered::Pps(pps), Some(each)) = (self.offered, self.pps_each()) {
            if !pps.is_finite() || pps <= 0.0 {
                return wrong(format!(
                    "invalid rate {pps}; expected a number of frames per second above zero"
                ));
            }
            if each < PPS_LEAST {
                return wrong(format!(
                    "invalid rate {pps}; expected at least {PPS_LEAST} frames per second on each CPU"
                ));
            }
        }
        Ok(())
    }

    fn check_flows(&self) -> Result<(), GeneratorError> {
        let wrong = |what: String| Err(GeneratorError::Input(what));
        let flows = self.frames.flows;
        if flows == 0 {
            return wrong("invalid number of flows 0; expected 1 or more".into());
        }
        let there = 65_536 - u32::from(self.exit.source_port);
        let ports = self.ports();
        if ports > there {
            return wrong(format!(
                "from port {} on there are only {there} ports, and {ports} are needed: use fewer \
                 for each address, or a lower first port",
                self.exit.source_port
            ));
        }
        let more = self.addresses() - 1;
        let (low, to) = (low_half(self.exit.source), low_half(self.exit.destination));
        let Some(last) = low.checked_add(more) else {
            return wrong(format!(
                "from {} on there are too few addresses, and {flows} flows need {}: use more ports \
                 for each address, or a lower first address",
                self.exit.source,
                more + 1
            ));
        };
        if (low..=last).contains(&to)
            && high_half(self.exit.source) == high_half(self.exit.destination)
        {
            return wrong(format!(
                "the {} source addresses of {flows} flows, from {} on, include the destination {}: use other addresses, or more ports for each",
                more + 1,
                self.exit.source,
                self.exit.destination
            ));
        }
        Ok(())
    }

    /// Check that its CPUs are available.
    pub(super) fn check_cpus(&self) -> Result<(), GeneratorError> {
        if self.cpus.is_empty() {
            return Err(GeneratorError::Input("no CPU given for the generator".into()));
        }
        if self.cpus.iter().collect::<BTreeSet<_>>().len() < self.cpus.len() {
            return Err(GeneratorError::Input("duplicate CPU: each runs one thread".into()));
        }
        // If /sys is not mounted, binding a thread shows it.
        let Ok(online) = cpus::online() else {
            return Ok(());
        };
        match self.cpus.iter().find(|cpu| !online.contains(cpu)) {
            None => Ok(()),
            Some(cpu) => Err(GeneratorError::Input(format!(
                "no such CPU {cpu}, or it is offline: this machine has {}",
                online.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

/// The lower 32 bits of an address, which flows increment.
pub(super) fn low_half(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(a) => a.to_bits(),
        IpAddr::V6(a) => (a.to_bits() & 0xffff_ffff) as u32,
    }
}

fn high_half(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(a) => a.to_bits() >> 32,
    }
}
