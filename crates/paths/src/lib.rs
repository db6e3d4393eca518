//! Data paths: what receives packets from a device, and drops or forwards them.
//!
//! A path is set up in a namespace with its devices, counts the packets that it handles, and is
//! torn down when it is dropped: links closed, rules and addresses removed, processes ended. Its
//! counters are the path's own; a [`Sink`] counts what arrives at the far end.

mod af_xdp;
mod bpf;
mod changes;
mod dpdk;
mod error;
mod forward;
mod iptables;
mod layout;
mod lost;
mod needs;
mod nft;
mod planned;
mod reader;
mod sink;
mod socket;
mod tc;
mod tool;
mod verify;
mod xdp;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netplumb_knobs::Journal;
use netplumb_model::bench::{Bench, DataPath, FrameKind, Handled};
use netplumb_sys::netns::Namespace;

pub use error::PathError;
pub use needs::needs;
/// Also the limit of programs/xdp.bpf.c.
pub use netplumb_model::bench::LOOKUPS_MOST;
pub use planned::{PlannedSite, planned};
pub use sink::Sink;
pub use verify::{Offered, refusal, verify};

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// As in `ip link`.
    pub name: String,
    /// Its ifindex in its namespace.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The permanent MAC address, if it reports one.
    pub permanent_mac: Option<[u8; 6]>,
}

/// Where a path is set up, and which packets belong to it: those to the destination's address and
/// port.
#[derive(Debug)]
pub struct Site {
    /// The namespace of both devices.
    pub namespace: OwnedFd,
    /// The receiving device.
    pub ingress: Device,
    /// The device that forwards them, if another one.
    pub egress: Option<Device>,
    /// The MAC address of the next hop.
    pub next_mac: [u8; 6],
    /// The source address; with many flows, one of them.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The destination port; not for ICMP.
    pub port: u16,
    /// The payload protocol.
    pub kind: FrameKind,
    /// The journal of changes, on interfaces of this machine. None in temporary namespaces.
    pub journal: Option<Arc<Journal>>,
}

impl Site {
    fn namespace(&self) -> Result<Namespace, PathError> {
        use error::Doing;
        let fd = self.namespace.try_clone();
        Ok(Namespace::from(fd.doing(|| "open a network namespace".into())?))
    }

    fn egress(&self) -> Result<&Device, PathError> {
        let missing = || PathError::Asked("forwarding needs a second device".into());
        self.egress.as_ref().ok_or_else(missing)
    }
}

/// The configuration of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The data path.
    pub path: DataPath,
    /// Whether they are dropped or forwarded.
    pub bench: Bench,
    /// CPUs for user-space readers: one for each.
    pub cpus: Vec<u32>,
    /// Whether frames have timestamps: latency is then measured, where the path's program sees each
    /// frame.
    pub stamped: bool,
    /// Use XDP programs with multi-buffer support, as needed if the MTU is too large for one
    /// buffer.
    pub multi_buffer: bool,
    /// For `xdp`: drop packets whose source is on a block list of this size, and pass the others.
    pub blocklist: Option<u32>,
    /// For `xdp` and `xdp-skb`: additional map lookups per packet, to measure their cost, at most
    /// [`LOOKUPS_MOST`].
    pub lookups: u32,
}

impl Way {
    /// A path with default settings.
    pub fn new(path: DataPath, bench: Bench) -> Way {
        Way {
            path,
            bench,
            cpus: vec![0],
            stamped: false,
            multi_buffer: false,
            blocklist: None,
            lookups: 0,
        }
    }
}

/// The destination MAC address of frames for this path.
pub fn frame_mac(path: DataPath, site: &Site) -> [u8; 6] {
    match path {
        // A bridge delivers frames to its port's own address locally.
        DataPath::Bridge => site.next_mac,
        _ => site.ingress.mac,
    }
}

/// A path that is set up.
pub trait Standing: Send {
    /// The packets that it handled since it was set up.
    ///
    /// # Errors
    /// The counters can't be read, or the path was changed.
    fn handled(&mut self) -> Result<Handled, PathError>;

    /// How it is attached, with which versions and rules, as read back; by dotted key.
    fn facts(&self) -> BTreeMap<String, String>;

    /// Replace the program by a new one, atomically: every packet is handled by one of them. For
    /// XDP.
    ///
    /// # Errors
    /// There is no program, or the kernel can't replace it.
    fn replace_program(&mut self) -> Result<(), PathError> {
        Err(PathError::Asked("only XDP programs can be replaced while they run".into()))
    }

    /// The packets that each of the replaced programs handled, the first one first.
    ///
    /// # Errors
    /// As [`handled`](Self::handled).
    fn by_version(&mut self) -> Result<Vec<Handled>, PathError> {
        Ok(vec![self.handled()?])
    }

    /// The block list, if there is one.
    fn blocklist(&self) -> Option<Blocklist> {
        None
    }
}

pub use xdp::Blocklist;

/// Set up a path.
///
/// # Errors
/// The path is not supported: the reason and a remedy. Nothing is left behind.
pub fn set_up(way: &Way, site: &Site) -> Result<Box<dyn Standing>, PathError> {
    if !DataPath::for_bench(way.bench).contains(&way.path) {
        return Err(PathError::Asked(format!(
            "invalid path `{}` for {}; expected one of {}",
            way.path,
            way.bench,
            DataPath::for_bench(way.bench)
                .iter()
                .map(|p| p.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    needs(way.path, way.bench)?;
    if site.journal.is_some() {
        planned::can_on_own(way.path, site.destination.is_ipv6())?;
    }
    use DataPath as P;
    Ok(match way.path {
        P::Xdp | P::XdpSkb | P::XdpTx | P::XdpRedirect => Box::new(xdp::Xdp::set_up(way, site)?),
        P::Tc => Box::new(tc::Tc::set_up(way, site)?),
        P::NftRaw | P::NftConntrack => Box::new(nft::Nft::set_up(way.path, site)?),
        P::Socket => Box::new(socket::Socket::set_up(way, site)?),
        P::AfXdp => Box::new(af_xdp::AfXdp::set_up(way, site)?),
        P::Route | P::Bridge | P::NftFlowtable => {
            Box::new(forward::Forward::set_up(way.path, site)?)
        }
        P::IptablesRaw => Box::new(iptables::Iptables::set_up(site)?),
        P::Dpdk => Box::new(dpdk::Dpdk::set_up(way, site)?),
    })
}
