//! Data paths: what takes packets off a device, and drops them or sends them on.
//!
//! A path is set up in a namespace with its devices, counts the packets that it
//! handles, and is taken down when it is dropped: links closed, rules and addresses
//! removed, processes ended. What is counted is what *it* did; what came out at the far
//! end, a [`Sink`] counts.

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
/// That of programs/xdp.bpf.c too.
pub use netplumb_model::bench::LOOKUPS_MOST;
pub use planned::{PlannedSite, planned};
pub use sink::Sink;
pub use verify::{Offered, refusal, verify};

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// The permanent address, where it reports one.
    pub permanent_mac: Option<[u8; 6]>,
}

/// Where a path is set up, and which packets are its own: those to the destination's
/// address and port.
#[derive(Debug)]
pub struct Site {
    /// The namespace that both devices are in.
    pub namespace: OwnedFd,
    /// Where packets come in.
    pub ingress: Device,
    /// Where they leave, if they are sent on to another NIC.
    pub egress: Option<Device>,
    /// The link-layer address of the device that they are sent on to.
    pub next_mac: [u8; 6],
    /// Where they are from; with many flows, one of the addresses.
    pub source: IpAddr,
    /// Where they are to.
    pub destination: IpAddr,
    /// The port that they are to; not for ICMP.
    pub port: u16,
    /// What they carry.
    pub kind: FrameKind,
    /// On the user's own interfaces, what is changed there: it is written down first. None
    /// in namespaces that are thrown away.
    pub journal: Option<Arc<Journal>>,
}

impl Site {
    fn namespace(&self) -> Result<Namespace, PathError> {
        use error::Doing;
        let fd = self.namespace.try_clone();
        Ok(Namespace::from(
            fd.doing(|| "open a network namespace".into())?,
        ))
    }

    fn egress(&self) -> Result<&Device, PathError> {
        let missing = || PathError::Asked("forwarding needs a second device".into());
        self.egress.as_ref().ok_or_else(missing)
    }
}

/// Which way packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// What handles them.
    pub path: DataPath,
    /// What is to become of them.
    pub bench: Bench,
    /// CPUs for what runs in user space: one reader for each.
    pub cpus: Vec<u32>,
    /// Whether frames are stamped: the time from when they were to be sent to when they
    /// were there is counted, where the path's program sees each frame.
    pub stamped: bool,
    /// XDP programs that take packets in several buffers: needed where the MTU is too
    /// large for one.
    pub multi_buffer: bool,
    /// For `xdp`: drop those whose source is on a list with room for so many, and let
    /// the others pass.
    pub blocklist: Option<u32>,
    /// For `xdp` and `xdp-skb`: needless map lookups for each packet, to see what they cost, at most
    /// [`LOOKUPS_MOST`].
    pub lookups: u32,
}

impl Way {
    /// A path with nothing special asked of it.
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

/// The link-layer address that frames are to be sent to, for this path to take them.
pub fn frame_mac(path: DataPath, site: &Site) -> [u8; 6] {
    match path {
        // A bridge hands what is to its port's own address to the machine itself.
        DataPath::Bridge => site.next_mac,
        _ => site.ingress.mac,
    }
}

/// A path that stands.
pub trait Standing: Send {
    /// What it handled since it was set up.
    ///
    /// # Errors
    /// The counters can't be read; the path is not what it was.
    fn handled(&mut self) -> Result<Handled, PathError>;

    /// How it is attached, with which versions and rules, as read back; by dotted key.
    fn facts(&self) -> BTreeMap<String, String>;

    /// Put a fresh program in the place of the one that runs, in one step: every packet
    /// meets one of them. For XDP.
    ///
    /// # Errors
    /// There is no program, or the kernel does not replace it.
    fn replace_program(&mut self) -> Result<(), PathError> {
        Err(PathError::Asked(
            "only XDP programs can be replaced while they run".into(),
        ))
    }

    /// What each program handled, the first one first, where they are replaced.
    ///
    /// # Errors
    /// As [`handled`](Self::handled).
    fn by_version(&mut self) -> Result<Vec<Handled>, PathError> {
        Ok(vec![self.handled()?])
    }

    /// The list of sources, if there is one.
    fn blocklist(&self) -> Option<Blocklist> {
        None
    }
}

pub use xdp::Blocklist;

/// Set a path up.
///
/// # Errors
/// Why it can't be, with what to do about it; nothing is left of it then.
pub fn set_up(way: &Way, site: &Site) -> Result<Box<dyn Standing>, PathError> {
    if !DataPath::of(way.bench).contains(&way.path) {
        return Err(PathError::Asked(format!(
            "invalid path `{}` for {}; expected one of {}",
            way.path,
            way.bench,
            DataPath::of(way.bench)
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
