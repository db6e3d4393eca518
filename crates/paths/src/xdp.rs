//! XDP programs that drop, send back, or redirect.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use netplumb_model::bench::{Bench, DataPath, Handled};
use netplumb_sys::plain::Plain;

use crate::bpf::{Attached, Load, Mode, Program};
use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::layout::Config;
use crate::lost::Lost;
use crate::{Device, LOOKUPS_MOST, Site, Standing, Way};

pub(crate) static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o"));

/// Sources added to the block list per system call.
const BATCH: usize = 4096;

/// A path made of one XDP program.
#[derive(Debug)]
pub(crate) struct Xdp {
    // Dropped in this order.
    link: Attached,
    /// The program that passes everything on the egress device.
    _passing: Option<(Attached, Program)>,
    lost: Option<Lost>,
    versions: Vec<Program>,
    changes: Changes,
    config: Config,
    way: Way,
    mode: Mode,
    sources: Option<Blocklist>,
}

impl Xdp {
    pub(crate) fn set_up(way: &Way, site: &Site) -> Result<Xdp, PathError> {
        if way.lookups > LOOKUPS_MOST {
            return Err(PathError::Asked(format!(
                "invalid number of lookups {}; expected at most {LOOKUPS_MOST} per packet",
                way.lookups
            )));
        }
        let config = Config {
            lookups: way.lookups as u16, // at most LOOKUPS_MOST
            ..Config::new(site, way.stamped && way.bench == Bench::Drop)
        };
        let mode = match way.path {
            DataPath::XdpSkb => Mode::Skb,
            _ => Mode::Native,
        };
        let mut changes = Changes::at(site)?;
        let first = program(way, &config)?;
        let sources = match way.blocklist {
            Some(_) => Some(Blocklist { map: Arc::new(first.map("sources")?) }),
            None => None,
        };
        let mut lost = None;
        if way.bench == Bench::Forward {
            lost = Some(Lost::watch(&changes.namespace, &site.ingress)?);
        }
        if way.path == DataPath::XdpRedirect {
            let to = site.egress()?.index;
            let map = first.map("egress")?;
            // A device's index is looked up in the current namespace (dev_map_update_elem,
            // kernel/bpf/devmap.c).
            changes
                .namespace
                .inside(|| {
                    map.update(&0_u32.to_ne_bytes(), &to.to_ne_bytes(), MapFlags::ANY)
                        .map_err(|error| io::Error::other(error.to_string()))
                })
                .doing(|| "name the device to redirect to".into())?;
        }
        if mode == Mode::Skb {
            changes.gro(&site.ingress)?;
        }
        let link = attach(&first, &changes, &site.ingress, mode)?;
        // For veth, the far end has to accept XDP frames, for others the device itself. A device
        // without support for programs may still transmit them.
        let mut passing = None;
        if way.path == DataPath::XdpRedirect && site.journal.is_some() {
            let pass = load(way, &config, "xdp_pass", None)?;
            match attach(&pass, &changes, site.egress()?, mode) {
                Ok(link) => passing = Some((link, pass)),
                Err(PathError::CannotRun { reason, .. }) => {
                    changes.note("path.egress", format!("without a program: {reason}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Xdp {
            link,
            _passing: passing,
            lost,
            versions: vec![first],
            changes,
            config,
            way: way.clone(),
            mode,
            sources,
        })
    }
}

fn program(way: &Way, config: &Config) -> Result<Program, PathError> {
    let (program, map) = match (way.path, way.blocklist) {
        (DataPath::XdpTx, _) => ("xdp_tx", None),
        (DataPath::XdpRedirect, _) => ("xdp_redirect", Some(("egress", 1))),
        (_, Some(entries)) => ("xdp_blocklist", Some(("sources", entries.max(1)))),
        _ if way.lookups > 0 => ("xdp_drop", Some(("sources", 1))),
        _ => ("xdp_drop", None),
    };
    load(way, config, program, map)
}

fn load(
    way: &Way,
    config: &Config,
    program: &str,
    map: Option<(&str, u32)>,
) -> Result<Program, PathError> {
    Load {
        image: IMAGE,
        program,
        constants: config.bytes(),
        map,
        multi_buffer: way.multi_buffer,
        ..Load::default()
    }
    .program()
}

/// Attach an XDP program; errors are explained.
pub(crate) fn attach(
    program: &Program,
    changes: &Changes,
    device: &Device,
    mode: Mode,
) -> Result<Attached, PathError> {
    let name = &device.name;
    let error = match Attached::attach(program.fd()?, &changes.namespace, device.index, Some(mode))
    {
        Ok(attached) => return Ok(attached),
        Err(error) => error,
    };
    // veth_xdp_set() in drivers/net/veth.c, dev_xdp_attach() in net/core/dev.c.
    Err(match error.raw_os_error() {
        Some(libc::ERANGE) => PathError::cannot(
            format!(
                "no XDP program can be attached to {name}: its peer's MTU is too large for one buffer"
            ),
            "set the MTU of both ends to 1500, or use multi-buffer programs (--multi-buffer)",
        ),
        Some(libc::EOPNOTSUPP) => PathError::cannot(
            format!("XDP is not supported by the driver of {name}"),
            "the path `xdp-skb` works on any device",
        ),
        Some(libc::ENOSPC) => PathError::cannot(
            format!(
                "{name} has too few receive queues for its peer's transmit queues, or this machine's CPUs"
            ),
            "give it as many receive queues as its peer has transmit queues",
        ),
        Some(libc::EBUSY | libc::EEXIST) => PathError::cannot(
            format!("{name} already has an XDP program"),
            format!("detach it (`ip link set dev {name} xdp off`), or use another device"),
        ),
        Some(libc::EINVAL) => PathError::cannot(
            format!("the kernel can't attach an XDP link to {name}"),
            "it needs Linux 5.9, and a device that is not part of a bond",
        ),
        Some(libc::ENODEV | libc::ENOENT) => {
            PathError::cannot(format!("no such device {name}"), "`ip link` lists them")
        }
        _ => match Err::<(), _>(error).doing(|| format!("attach a program to {name}")) {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays one"),
        },
    })
}

impl Standing for Xdp {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let mut all = Handled::default();
        for handled in self.by_version()? {
            add(&mut all, handled);
        }
        if let Some(lost) = &self.lost {
            let lost = lost.frames()?;
            for (cpu, frames) in lost.by_cpu {
                let packets = all.packets.entry(cpu).or_default();
                *packets = packets.saturating_sub(frames);
            }
            all.packets.retain(|_, packets| *packets > 0);
            all.lost.extend(lost.by_cause);
        }
        Ok(all)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let mut fact = |key: &str, value: String| facts.insert(format!("path.{key}"), value);
        fact("attached", format!("xdp, {}", self.mode.word()));
        let ids: Vec<String> =
            self.versions.iter().filter_map(|v| v.id().map(|id| id.to_string())).collect();
        fact("program_ids", ids.join(" "));
        if self.way.lookups > 0 {
            fact("lookups", self.way.lookups.to_string());
        }
        let buffers = if self.way.multi_buffer { "several" } else { "one" };
        fact("buffers", buffers.into());
        if self.way.stamped {
            let unstamped: u64 = self.versions.iter().map(Program::unstamped).sum();
            fact("unstamped", unstamped.to_string());
        }
        if let Some(lost) = &self.lost {
            facts.extend(lost.facts.clone());
        }
        facts
    }

    fn replace_program(&mut self) -> Result<(), PathError> {
        if self.way.blocklist.is_some() || self.way.path == DataPath::XdpRedirect {
            return Err(PathError::Asked(
                "a program with its own maps can't be replaced: use `xdp` or `xdp-tx`".into(),
            ));
        }
        let next = program(&self.way, &self.config)?;
        self.link.update(next.fd()?).doing(|| "replace the program".into())?;
        self.versions.push(next);
        Ok(())
    }

    fn by_version(&mut self) -> Result<Vec<Handled>, PathError> {
        self.versions.iter().map(Program::handled).collect()
    }

    fn blocklist(&self) -> Option<Blocklist> {
        self.sources.clone()
    }
}

/// Add the counters of another program.
pub(crate) fn add(all: &mut Handled, more: Handled) {
    for (cpu, packets) in more.packets {
        *all.packets.entry(cpu).or_default() += packets;
    }
    all.bytes += more.bytes;
    all.foreign += more.foreign;
    for (cause, packets) in more.lost {
        *all.lost.entry(cause).or_default() += packets;
    }
    let Some(times) = more.latency else {
        return;
    };
    let into = all.latency.get_or_insert_default();
    if times.count > 0 {
        into.min_ns = match into.count {
            0 => times.min_ns,
            _ => into.min_ns.min(times.min_ns),
        };
    }
    into.max_ns = into.max_ns.max(times.max_ns);
    into.count += times.count;
    into.total_ns += times.total_ns;
    let mut buckets: BTreeMap<u16, u64> = into.buckets.iter().copied().collect();
    for (bucket, count) in times.buckets {
        *buckets.entry(bucket).or_default() += count;
    }
    into.buckets = buckets.into_iter().collect();
}

/// The block list: sources whose packets are dropped; can be updated while the program runs, from
/// any thread.
#[derive(Debug, Clone)]
pub struct Blocklist {
    map: Arc<MapHandle>,
}

impl Blocklist {
    /// Add sources to the list.
    ///
    /// # Errors
    /// It is full; the sources before the first failing one were added.
    pub fn add(&self, sources: &[IpAddr]) -> io::Result<()> {
        for sources in sources.chunks(BATCH) {
            let keys: Vec<u8> = sources.iter().flat_map(|s| key(*s)).collect();
            let values = vec![1; sources.len()];
            self.map
                .update_batch(
                    &keys,
                    &values,
                    sources.len() as u32, // at most BATCH
                    MapFlags::ANY,
                    MapFlags::ANY,
                )
                .map_err(|error| full(&error))?;
        }
        Ok(())
    }

    /// Remove sources from the list; missing ones are ignored.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn remove(&self, sources: &[IpAddr]) -> io::Result<()> {
        for source in sources.iter().collect::<BTreeSet<_>>() {
            match self.map.delete(&key(*source)) {
                Ok(()) => {}
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        Ok(())
    }

    /// Whether a source is on the list.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn has(&self, source: IpAddr) -> io::Result<bool> {
        let found = self.map.lookup(&key(source), MapFlags::ANY);
        found.map(|value| value.is_some()).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// A full map returns E2BIG, one that can't grow ENOMEM.
fn full(error: &libbpf_rs::Error) -> io::Error {
    io::Error::other(format!("can't add to the list of sources: {error}"))
}

/// The key in the program's map: the address, big-endian, IPv4 in the first four bytes.
fn key(source: IpAddr) -> [u8; 16] {
    match source {
        IpAddr::V4(v4) => {
            let mut key = [0; 16];
            key[..4].copy_from_slice(&v4.octets());
            key
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}
