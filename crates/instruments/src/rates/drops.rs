//! Drops that no counter explains, from tracepoints (rates/drops.bpf.c): `kfree_skb` with its
//! reason, and XDP's.
//!
//! It costs time for each dropped frame, and nothing for others; a bench attaches it after a block
//! that does not balance, and runs that again.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use libbpf_rs::btf::types;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_sys::bpf::types::{has_tracepoint, of_kernel};
use netplumb_sys::bpf::{Opened, map};
use netplumb_sys::errno;
use netplumb_sys::plain::Plain;

use super::RATES;
use crate::live::LiveError;
use crate::reasons::Reasons;

/// The programs, compiled from rates/drops.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o"));

/// Prefix of the programs' names, before the tracepoint's.
const PREFIX: &str = "drops_";
/// On old kernels only: elsewhere it is not missing.
const OLD: &str = "xdp_redirect_map_err";

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/drops.rs"));
}

/// The tracepoints of events.
const EVENTS: [(usize, &str); 7] = [
    (made::KFREE_SKB, "kfree_skb"),
    (made::XDP_EXCEPTION, "xdp_exception"),
    (made::XDP_BULK_TX, "xdp_bulk_tx"),
    (made::XDP_DEVMAP_XMIT, "xdp_devmap_xmit"),
    (made::XDP_REDIRECT_ERR, "xdp_redirect_err"),
    (made::XDP_CPUMAP_ENQUEUE, "xdp_cpumap_enqueue"),
    (made::XDP_CPUMAP_KTHREAD, "xdp_cpumap_kthread"),
];
/// The reason without information: the place where the packet was freed is shown instead.
/// XDP_DROP has it where a driver has made an skb before (veth_xdp_rcv_skb).
const UNKNOWN: &str = "SKB_DROP_REASON_NOT_SPECIFIED";

/// Frames dropped at one place, for one cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The namespace, by the inode of its file; 0 where it is not known.
    pub namespace_inode: u32,
    /// The device's index in that namespace; 0 where it is not known.
    pub interface: u32,
    /// Its name; empty where it is not known.
    pub device: String,
    /// The tracepoint, and the reason that it gave ("kfree_skb NETFILTER_DROP").
    pub cause: String,
}

impl fmt::Display for Place {
    /// "at rx0: xdp_exception XDP_ABORTED".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.device.as_str(), self.interface) {
            ("", 0) => f.write_str(&self.cause),
            ("", interface) => write!(f, "at device {interface}: {}", self.cause),
            (device, _) => write!(f, "at {device}: {}", self.cause),
        }
    }
}

/// Dropped frames, by place.
pub type Went = BTreeMap<Place, u64>;

/// The attached programs.
#[derive(Debug)]
pub struct Drops {
    reasons: Reasons,
    without: BTreeMap<String, String>,
    drops: MapHandle,
    lost: MapHandle,
    // Dropped before the object.
    _links: Vec<Link>,
    _object: Object,
}

impl Drops {
    /// Attach to the existing tracepoints.
    ///
    /// # Errors
    /// The kernel has no type information, this user may not load programs, or there is
    /// none of the tracepoints.
    pub fn attach() -> Result<Drops, LiveError> {
        let btf = of_kernel().map_err(LiveError::programs(RATES))?;
        let mut without = BTreeMap::new();
        let mut open = Opened::new(OBJECT).map_err(LiveError::programs(RATES))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            let has = has_tracepoint(&btf, tracepoint);
            if !has && tracepoint != OLD {
                let why = "this kernel has no such tracepoint".to_string();
                without.insert(tracepoint.to_string(), why);
            }
            program.set_autoload(has);
        }
        let reasons = Reasons::from_btf(&btf);
        let has_reasons = btf.type_by_name::<types::Enum<'_>>("skb_drop_reason");
        let config = made::Config {
            has_reasons: u32::from(has_reasons.is_some()),
            reason_consumed: reasons.number("SKB_CONSUMED").unwrap_or(0),
            reason_unknown: reasons.number(UNKNOWN).unwrap_or(0),
        };
        open.set_constants(config.bytes()).map_err(LiveError::programs(RATES))?;
        let object = open.load().map_err(LiveError::programs(RATES))?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|p| p.autoload()) {
            match program.attach_trace() {
                Ok(link) => links.push(link),
                Err(error) => {
                    let name = program.name().to_string_lossy().into_owned();
                    let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
                    without.insert(tracepoint.to_string(), error.to_string());
                }
            }
        }
        if links.is_empty() {
            return Err(LiveError::CannotRun {
                reason: "no tracepoint for lost frames can be attached to".into(),
                remedy: "see `plumb doctor` for what this kernel allows".into(),
            });
        }
        Ok(Drops {
            reasons,
            without,
            drops: map(&object, "drops").map_err(LiveError::programs(RATES))?,
            lost: map(&object, ".bss").map_err(LiveError::programs(RATES))?,
            _links: links,
            _object: object,
        })
    }

    /// Tracepoints that could not be attached to, with the reason.
    pub fn without(&self) -> &BTreeMap<String, String> {
        &self.without
    }

    /// Drops since it was attached, in these namespaces (by inode) and in unknown ones; in all, if
    /// none is given. Frames beyond the size of the map have the cause `other places`.
    ///
    /// # Errors
    /// The map can't be read.
    pub fn read(&self, namespaces: &[u32]) -> Result<Went, LiveError> {
        let failed = || LiveError::system("read the counts of lost frames");
        let mut went = Went::new();
        // Read when it is needed: it is large.
        let symbols = OnceCell::new();
        for key in self.drops.keys() {
            let value = self.drops.lookup(&key, MapFlags::ANY).map_err(failed())?;
            let Some(frames) = value.as_deref().and_then(number) else {
                continue;
            };
            let Some(key) = made::Key::read(&key) else {
                continue;
            };
            let place = self.place(&key, &symbols);
            let known = place.namespace_inode;
            if known == 0 || namespaces.is_empty() || namespaces.contains(&known) {
                *went.entry(place).or_default() += frames;
            }
        }
        let key = 0_u32.to_ne_bytes();
        let lost = self.lost.lookup(&key, MapFlags::ANY).map_err(failed())?;
        match lost.as_deref().and_then(number) {
            Some(frames) if frames > 0 => {
                let place = Place {
                    namespace_inode: 0,
                    interface: 0,
                    device: String::new(),
                    cause: "other places".into(),
                };
                went.insert(place, frames);
            }
            _ => {}
        }
        Ok(went)
    }

    /// The place of a key.
    fn place(&self, key: &made::Key, symbols: &OnceCell<SymbolTable>) -> Place {
        let name = key.device.split(|b| *b == 0).next().unwrap_or_default();
        let mut cause = cause(key.event, key.detail, &self.reasons);
        if key.location != 0 {
            let symbols = symbols.get_or_init(|| {
                let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
                SymbolTable::parse(&text).unwrap_or_default()
            });
            if let Some(symbol) = symbols.lookup(key.location) {
                cause = format!("{cause} in {}", symbol.name);
            }
        }
        Place {
            namespace_inode: key.namespace_inum,
            interface: key.ifindex,
            device: String::from_utf8_lossy(name).into_owned(),
            cause,
        }
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

fn cause(event: u32, detail: u32, reasons: &Reasons) -> String {
    let found = EVENTS.iter().find(|(number, _)| *number == event as usize);
    let Some((_, tracepoint)) = found else {
        return format!("event {event}");
    };
    match *tracepoint {
        "kfree_skb" => format!("{tracepoint} {}", reasons.name(detail)),
        "xdp_exception" => format!("{tracepoint} {}", action(detail)),
        _ if detail == 0 => (*tracepoint).to_string(),
        _ => format!("{tracepoint}: {}", errno::of_frames(detail as i32)),
    }
}

/// `enum xdp_action` of include/uapi/linux/bpf.h.
fn action(number: u32) -> String {
    const ACTIONS: [&str; 5] = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"];
    match ACTIONS.get(number as usize) {
        Some(name) => (*name).to_string(),
        None => format!("by the invalid action {number}"),
    }
}

#[cfg(test)]
mod tests;
