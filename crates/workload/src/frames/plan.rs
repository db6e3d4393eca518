//! What is to be sent, from where, and how fast.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netplumb_model::bench::{FRAME_BYTES_MOST, FrameSize, Frames, Offered};
use netplumb_model::class::Family;
use netplumb_sys::cpus;

use super::error::GeneratorError;
use super::layout::PPS_LEAST;

/// Frames that the kernel handles at a time by default: as many as a
/// NAPI poll (NAPI_POLL_WEIGHT).
pub const BATCH: u32 = 64;
/// The default TTL of a frame: as the kernel's own (IPDEFTTL).
pub const TTL: u8 = 64;
/// The most that it handles at a time (TEST_XDP_MAX_BATCH, net/bpf/test_run.c).
pub const BATCH_MOST: u32 = 256;

/// Where frames leave, and where they go from there.
#[derive(Debug)]
pub struct Exit {
    /// The device's network namespace.
    pub namespace: OwnedFd,
    /// The device: its index there.
    pub device: u32,
    /// MAC address that frames come from.
    pub mac: [u8; 6],
    /// MAC address that they go to.
    pub to_mac: [u8; 6],
    /// IP address that they come from; a flow set goes on from there.
    pub source: IpAddr,
    /// IP address that they go to.
    pub destination: IpAddr,
    /// Port that they come from, and a flow set goes on from. With ICMP, the identifier.
    pub source_port: u16,
    /// Port that they go to. With ICMP, the sequence number.
    pub destination_port: u16,
}

impl Exit {
    /// A second hold on the same exit.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Exit> {
        Ok(Exit {
            namespace: self.namespace.try_clone()?,
            ..*self
        })
    }
}

/// How frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Made in the kernel and redirected to the device, by test runs of an XDP program
    /// with live frames (bpf(2), since Linux 5.18).
    Xdp,
    /// Made here and written to packet sockets, past queueing disciplines (packet(7)).
    Sockets,
}

impl Method {
    /// What it is called in facts.
    pub fn name(self) -> &'static str {
        match self {
            Method::Xdp => "xdp test runs",
            Method::Sockets => "packet sockets",
        }
    }
}

/// What is to be sent.
#[derive(Debug)]
pub struct GeneratorPlan {
    /// From where to where.
    pub exit: Exit,
    /// What.
    pub frames: Frames,
    /// How many of the flows have one address, on ports that follow each other; 0 for as
    /// many as there are ports. 1 makes each flow an address of its own.
    pub flow_ports: u32,
    /// Routers that they may pass, less one (the TTL, or hop limit).
    pub ttl: u8,
    /// How fast, all CPUs together.
    pub offered: Offered,
    /// On which CPUs, each with a thread and its share of the rate and of the flows. With
    /// fewer flows than CPUs, some CPUs send the same one.
    pub cpus: Vec<u32>,
    /// How many frames are handled at a time, at most [`BATCH_MOST`]. Frames wait for the
    /// rest of their batch, due or not: with 64 up to some 3 us.
    pub batch: u32,
    /// Whether frames tell when they were to be sent (stamp.h).
    pub stamped: bool,
    /// By what; `None` for test runs where these can be had, else sockets.
    pub method: Option<Method>,
}

impl GeneratorPlan {
    /// A second plan of the same.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<GeneratorPlan> {
        Ok(GeneratorPlan {
            exit: self.exit.try_clone()?,
            cpus: self.cpus.clone(),
            ..*self
        })
    }

    /// The shortest frame that has room for its headers, and for a stamp if it gets one.
    pub fn size_bytes_least(&self) -> u32 {
        self.frames.size_bytes_least(self.stamped)
    }

    /// Frames a second on each CPU, if there is a rate.
    pub(super) fn pps_each(&self) -> Option<f64> {
        match self.offered {
            Offered::Most => None,
            Offered::Pps(pps) => Some(pps / self.cpus.len().max(1) as f64),
        }
    }

    /// How many ports an address has.
    pub(super) fn ports(&self) -> u32 {
        let there = 65_536 - u32::from(self.exit.source_port);
        match self.flow_ports {
            0 => there,
            ports => ports,
        }
    }

    /// How many addresses its flows have.
    pub(super) fn addresses(&self) -> u32 {
        self.frames.flows.saturating_sub(1) / self.ports().max(1) + 1
    }

    /// Flows of the CPU that is `index`th of them: the first one, and how many.
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

    /// Whether it makes sense, as far as numbers go.
    pub(super) fn check(&self) -> Result<(), GeneratorError> {
        let wrong = |what: String| Err(GeneratorError::Input(what));
        let Exit {
            source,
            destination,
            ..
        } = self.exit;
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

    /// Whether its CPUs can be had.
    pub(super) fn check_cpus(&self) -> Result<(), GeneratorError> {
        if self.cpus.is_empty() {
            return Err(GeneratorError::Input(
                "no CPU given for the generator".into(),
            ));
        }
        if self.cpus.iter().collect::<BTreeSet<_>>().len() < self.cpus.len() {
            return Err(GeneratorError::Input(
                "duplicate CPU: each runs one thread".into(),
            ));
        }
        // Where /sys is not mounted, binding a thread to it tells.
        let Ok(online) = cpus::online() else {
            return Ok(());
        };
        match self.cpus.iter().find(|cpu| !online.contains(cpu)) {
            None => Ok(()),
            Some(cpu) => Err(GeneratorError::Input(format!(
                "no such CPU {cpu}, or it is offline: this machine has {}",
                online
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }
}

/// The lower 32 bits of an address, which a flow set counts on in.
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
