//! dpdk-testpmd, on devices of the kernel by AF_XDP, or else by AF_PACKET.
//!
//! Its forwarding threads poll all the time. Statistics come from its telemetry socket
//! (doc/guides/howto/telemetry.rst of DPDK), which takes a millisecond.

mod process;
mod telemetry;

use std::collections::BTreeMap;
use std::fs;

use netplumb_model::bench::{Bench, Handled};
use netplumb_sys::proc::{self, counters::Counters};
use netplumb_workload::drops;

use self::process::Process;
use self::telemetry::Port;
use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::tc::Tc;
use crate::tool::Tool;
use crate::{Device, Site, Standing, Way};

/// Memory without huge pages.
const MEMORY_MIB: &str = "512";
/// Number of packet buffers.
const PACKETS: &str = "32768";

/// Find testpmd.
pub(crate) fn tool() -> Result<Tool, PathError> {
    Tool::find("dpdk-testpmd", "dpdk-dev")
}

/// How it uses the kernel's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    AfXdp,
    AfPacket,
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Driver::AfXdp => "net_af_xdp",
            Driver::AfPacket => "net_af_packet",
        }
    }
}

/// Running testpmd.
#[derive(Debug)]
pub(crate) struct Dpdk {
    // Dropped in this order: the process, then its leftovers.
    process: Process,
    /// Drops the kernel's packets and counts them: a packet socket gets a copy of each.
    copies: Option<Tc>,
    changes: Changes,
    before: Counters,
    driver: Driver,
    instead: Option<String>,
    bench: Bench,
    egress: Option<Device>,
    cpus: Vec<u32>,
}

impl Dpdk {
    pub(crate) fn set_up(way: &Way, site: &Site) -> Result<Dpdk, PathError> {
        if way.cpus.is_empty() {
            return Err(PathError::Asked("no CPU given for testpmd".into()));
        }
        let tool = tool()?;
        let egress = match way.bench {
            Bench::Forward => Some(site.egress()?.clone()),
            Bench::Drop => None,
        };
        let mut changes = Changes::at(site)?;
        for device in [Some(&site.ingress), egress.as_ref()].into_iter().flatten() {
            changes.as_it_was(device)?;
        }
        let queues = queues(&changes, &site.ingress, egress.as_ref())?;
        let mut driver = Driver::AfXdp;
        let mut instead = None;
        let start = |driver, changes: &Changes| {
            let arguments = arguments(way, site, egress.as_ref(), driver, queues);
            Process::start(&tool, &changes.namespace, &arguments, way.cpus.len())
        };
        let process = match start(driver, &changes) {
            Ok(process) => process,
            Err(error) => {
                instead = Some(error.to_string());
                driver = Driver::AfPacket;
                changes.gro(&site.ingress)?;
                start(driver, &changes)?
            }
        };
        let copies = match driver {
            Driver::AfXdp => None,
            Driver::AfPacket => {
                changes.note("path.copies", "the kernel's are dropped at tc");
                let plain = Way::new(way.path, way.bench);
                Some(Tc::set_up(&plain, site)?)
            }
        };
        let version = process.version.clone();
        changes.note("path.dpdk", version);
        changes.note("path.queues", queues.to_string());
        let before = changes.counters()?;
        Ok(Dpdk {
            process,
            copies,
            changes,
            before,
            driver,
            instead,
            bench: way.bench,
            egress,
            cpus: way.cpus.clone(),
        })
    }
}

/// All ports need the same number of queues, in both directions.
fn queues(changes: &Changes, ingress: &Device, egress: Option<&Device>) -> Result<u32, PathError> {
    let ask = |device: &Device| {
        let queues = changes.namespace.queues(&device.name);
        queues.doing(|| format!("query the queues of {}", device.name))
    };
    let come = ask(ingress)?;
    let mut queues = come.receive;
    if let Some(egress) = egress {
        let out = ask(egress)?;
        queues = queues.min(out.receive).min(out.send).min(come.send);
    }
    if queues < come.receive {
        return Err(PathError::cannot(
            format!(
                "{} has {} receive queues, but testpmd needs {queues}: as many as every device has, in both directions",
                ingress.name, come.receive
            ),
            "give all devices as many queues (`ethtool -L`)",
        ));
    }
    Ok(queues.max(1))
}

/// Whether there are enough free huge pages.
fn has_huge_pages() -> bool {
    let free = fs::read_to_string("/proc/meminfo")
        .is_ok_and(|text| proc::number(&text, "HugePages_Free").is_some_and(|n| n >= 256));
    let mounted = fs::read_to_string("/proc/mounts").is_ok_and(|m| m.contains(" hugetlbfs "));
    free && mounted
}

fn arguments(
    way: &Way,
    site: &Site,
    egress: Option<&Device>,
    driver: Driver,
    queues: u32,
) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|w| (*w).to_string()));
    if !has_huge_pages() {
        add(&["--no-huge", "-m", MEMORY_MIB]);
    }
    add(&["--no-pci", "--log-level=lib.eal:4"]);
    // Threads by number, each on its CPU; the first one waits for commands, on any CPU.
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = format!("0@(0-{})", all - 1);
    for (number, cpu) in (1..).zip(&way.cpus) {
        threads += &format!(",{number}@{cpu}");
    }
    add(&[&format!("--lcores={threads}")]);
    for (number, device) in (0..).zip([Some(&site.ingress), egress].into_iter().flatten()) {
        let (driver, name) = (driver.name(), &device.name);
        let count = match driver {
            "net_af_xdp" => "queue_count",
            _ => "qpairs",
        };
        add(&[&format!("--vdev={driver}{number},iface={name},{count}={queues}")]);
    }
    add(&["--", "-i", "--auto-start"]);
    add(&[&format!("--total-num-mbufs={PACKETS}")]);
    add(&[&format!("--nb-cores={}", way.cpus.len())]);
    add(&[&format!("--rxq={queues}"), &format!("--txq={queues}")]);
    match way.bench {
        Bench::Drop => add(&["--forward-mode=rxonly"]),
        Bench::Forward => {
            let mac: Vec<String> = site.next_mac.iter().map(|b| format!("{b:02x}")).collect();
            add(&["--forward-mode=mac"]);
            add(&[&format!("--eth-peer=1,{}", mac.join(":"))]);
        }
    }
    arguments
}

impl Standing for Dpdk {
    fn handled(&mut self) -> Result<Handled, PathError> {
        self.process.check()?;
        let ask = |port| {
            let counters = self.process.port(port);
            counters.doing(|| "read testpmd's counters".into())
        };
        let come: Port = ask(0)?;
        let mut lost = BTreeMap::new();
        let mut cause = |cause: &str, packets: u64| {
            if packets > 0 {
                lost.insert(cause.to_string(), packets);
            }
        };
        cause("the ring was full: testpmd is too slow (imissed)", come.imissed);
        cause("testpmd had no memory for it (rx_nombuf)", come.rx_nombuf);
        cause("received with an error (ierrors)", come.ierrors);
        if let Some(copies) = &mut self.copies {
            // DPDK does not read the socket's statistics.
            let seen = come.ipackets + come.imissed + come.rx_nombuf + come.ierrors;
            cause(
                "the packet socket had no room for it: testpmd is too slow",
                copies.handled()?.total().saturating_sub(seen),
            );
        }
        let (mut packets, mut bytes) = (come.ipackets, come.ibytes);
        if let (Bench::Forward, Some(egress)) = (self.bench, &self.egress) {
            let out = ask(1)?;
            let counted = self.changes.counters()?.since(&self.before);
            let (why, refused) = drops::not_sent(&egress.name, &counted);
            (packets, bytes) = (out.opackets.saturating_sub(refused), out.obytes);
            cause("the ring to send by was full (oerrors)", out.oerrors);
            cause(&why, refused);
        }
        let (packets, cpu_unknown) = match self.cpus[..] {
            [cpu] => (BTreeMap::from([(cpu, packets)]), 0),
            _ => (BTreeMap::new(), packets),
        };
        Ok(Handled { packets, cpu_unknown, bytes, lost, ..Handled::default() })
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let mut fact = |key: &str, value: String| facts.insert(format!("path.{key}"), value);
        let mut attached = format!("dpdk-testpmd, {}", self.driver.name());
        if let Some(why) = &self.instead {
            attached = format!("{attached}: with AF_XDP it does not start ({why})");
        }
        fact("attached", attached);
        let pages = match has_huge_pages() {
            true => "huge pages",
            false => "ordinary pages (--no-huge): there are too few huge ones",
        };
        fact("memory", pages.into());
        facts
    }
}
