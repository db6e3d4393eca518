//! One of two hosts: it sends to the other, or receives from it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use netplumb_lab::vm::disk::{self, Standing};
use netplumb_lab::vm::files::NGINX;
use netplumb_lab::vm::random;
use netplumb_lab::vm::wire::{Moment, WirePorts};
use netplumb_model::experiment::DISK_FOLDER;
use netplumb_model::hosts::{HostBlock, HostLoad, KernelIdle, Latch, Side};
use netplumb_model::message::{HostPlan, Refused, Reply};
use netplumb_model::web::{PageCache, WebLoad, WebPlan};
use netplumb_sys::ethtool::Ethtool;
use netplumb_sys::sysctl;
use netplumb_workload::ends::Ends;
use netplumb_workload::hosts::{Connections, Edges, Receiver};
use netplumb_workload::mark::{self, Counting, mark};
use netplumb_workload::web::{Clients, Server};

use super::disk::drop_caches;
use super::{Agent, furnish};

/// Between blocks, by the guest's clock: a closed connection has ended by then.
const REST: Duration = Duration::from_millis(1);
/// Maximum time for the other host to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// What TCP learned of an earlier connection would be used by the next.
const NO_METRICS: &str = "net.ipv4.tcp_no_metrics_save";

impl Agent {
    /// Be one of two hosts. Nothing is sent to plumb before both have ended.
    pub(super) fn be_host(
        &mut self,
        plan: &HostPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        let side = plan.links.host.ok_or("not one of two hosts")?;
        let ends = self.ends(&plan.links)?;
        netplumb_sys::netns::inside(ends.tx_namespace.as_fd(), || sysctl::set(NO_METRICS, "1"))
            .map_err(|e| format!("set {NO_METRICS}: {e}"))?;
        random::renew().map_err(|e| format!("set the kernel's random numbers: {e}"))?;
        let _counting = Counting::begin();
        let (blocks, last) = match side {
            Side::Tx => send(plan, ends)?,
            Side::Rx => receive(plan, ends)?,
        };
        self.send_notes(&plan.links, reply)?;
        let blocks = blocks.into_iter().map(|b| Reply::HostBlock(Box::new(b)));
        let mut all = blocks.chain([Reply::HostEnd(Box::new(last))]);
        Ok(all.try_for_each(reply)?)
    }
}

/// The loads of a plan, the warm-up first.
fn loads(plan: &HostPlan) -> impl Iterator<Item = (u32, HostLoad)> {
    let all = (0..plan.blocks).map(|_| plan.load);
    (0..).zip(std::iter::once(plan.load.warm_up()).chain(all))
}

fn send(plan: &HostPlan, ends: &Ends) -> Result<(Vec<HostBlock>, Latch), String> {
    // Set up the server before both hosts keep in step, as it takes time.
    let served = plan.web.as_ref().map(|web| serve(web, plan, ends)).transpose()?;
    let disk = served.as_ref().and_then(|(_, disk)| disk.as_ref());
    open()?.begin();
    let mut blocks = Vec::new();
    for (number, load) in loads(plan) {
        thread::sleep(REST);
        let mut connections = Connections::open(ends, number, load, plan.buffer_bytes)
            .map_err(|e| format!("connect to the receiver: {e}"))?;
        if plan.web.as_ref().is_some_and(|web| web.page_cache != PageCache::Warm) {
            drop_caches().map_err(|e| format!("drop the caches of files: {e}"))?;
        }
        let mut measuring = Measuring::new(Side::Tx, ends);
        let read_before = disk.and_then(Standing::done);
        let resent_before = served.as_ref().map(|_| resent(ends)).transpose()?;
        let block = connections.send(load, &mut measuring);
        let read = disk.and_then(Standing::done).zip(read_before);
        let block = block.and_then(|done| measuring.block(done, &connections));
        let block = block.map_err(|e| format!("block {number} (0 is the warm-up): send: {e}"))?;
        let block = HostBlock {
            disk_bytes: read.map(|(done, before)| done.since(before).read_bytes),
            ..block
        };
        blocks.push(match resent_before {
            None => block,
            // What both hosts sent over the connection to coordinate is not what the server sent.
            Some(before) => HostBlock {
                retransmitted: resent(ends)?.saturating_sub(before),
                segments: None,
                buffer_bytes: None,
                ..block
            },
        });
    }
    end(blocks)
}

/// Segments that the sender's kernel has sent again, whoever's they were.
fn resent(ends: &Ends) -> Result<u64, String> {
    // The columns of a protocol are named in the line before (net/ipv4/proc.c).
    let snmp = netplumb_sys::netns::inside(ends.tx_namespace.as_fd(), || {
        fs::read_to_string("/proc/thread-self/net/snmp")
    });
    let snmp = snmp.map_err(|e| format!("read /proc/thread-self/net/snmp: {e}"))?;
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next(), lines.next());
    let names = names.unwrap_or_default().split_whitespace();
    let mut both = names.zip(values.unwrap_or_default().split_whitespace());
    let found = both.find(|(name, _)| *name == "RetransSegs");
    let value = found.and_then(|(_, value)| value.parse().ok());
    value.ok_or_else(|| "/proc/thread-self/net/snmp has no RetransSegs".into())
}

/// Start a web server, on its disk if it has one.
fn serve(
    web: &WebPlan,
    plan: &HostPlan,
    ends: &Ends,
) -> Result<(Server, Option<Standing>), String> {
    let HostLoad::Web(load) = plan.load else {
        return Err("a web server without requests".into());
    };
    furnish::with_files().map_err(|e| format!("prepare for the web server: {e}"))?;
    let standing = web.disk.as_ref().map(disk::make).transpose()?;
    if let Some(standing) = &standing {
        standing.before_open()?;
    }
    if let Some(bytes) = plan.buffer_bytes {
        // nginx can't go beyond it.
        sysctl::set("net.core.wmem_max", &bytes.to_string())
            .map_err(|e| format!("set net.core.wmem_max: {e}"))?;
    }
    let root = match web.disk {
        Some(_) => Path::new(DISK_FOLDER).join("www"),
        None => PathBuf::from("/run/www"),
    };
    let of = (web, load.directories);
    let folder = Path::new("/run/nginx");
    let server = Server::start(Path::new(NGINX), folder, &root, of, plan.buffer_bytes, ends, None);
    Ok((server.map_err(|e| e.to_string())?, standing))
}

fn receive(plan: &HostPlan, ends: &Ends) -> Result<(Vec<HostBlock>, Latch), String> {
    let receiver = Receiver::open(ends.rx_namespace.as_fd(), ends.rx_address, plan.buffer_bytes)
        .map_err(|e| format!("listen: {e}"))?;
    open()?.begin();
    let mut blocks = Vec::new();
    for (number, load) in loads(plan) {
        let mut connections = receiver
            .accept(load)
            .map_err(|e| format!("accept the connections of block {number}: {e}"))?;
        let mut measuring = Measuring::new(Side::Rx, ends);
        let block = match load {
            HostLoad::Web(load) => fetch(load, plan, ends, &mut connections, measuring),
            _ => (connections.receive(load, &mut measuring))
                .and_then(|done| measuring.block(done, &connections)),
        };
        blocks.push(block.map_err(|e| format!("block {number} (0 is the warm-up): receive: {e}"))?);
    }
    end(blocks)
}

/// Ask a web server for files.
fn fetch(
    load: WebLoad,
    plan: &HostPlan,
    ends: &Ends,
    control: &mut Connections,
    mut measuring: Measuring,
) -> io::Result<HostBlock> {
    let mut clients = Clients::open(ends, load, plan.buffer_bytes)?;
    let done = clients.fetch(control, load, &mut measuring)?;
    Ok(HostBlock { segments: Some(clients.segments()?), ..measuring.block(done, control)? })
}

fn open() -> Result<WirePorts, String> {
    WirePorts::open().map_err(|e| format!("find the wire: {e}"))
}

/// Measures a block: the marks of the wire and of `exact` are as close to its packets as possible.
struct Measuring {
    side: Side,
    /// Accessible meanwhile, since getting access takes thousands of instructions.
    ports: Option<WirePorts>,
    /// The counters of its NIC, if they can be asked for.
    nic: Option<Ethtool>,
    /// The kernel's counters before the block.
    before: KernelCounters,
    block: HostBlock,
}

impl Measuring {
    fn new(side: Side, ends: &Ends) -> Measuring {
        let namespace = match side {
            Side::Tx => &ends.tx_namespace,
            Side::Rx => &ends.rx_namespace,
        };
        Measuring {
            side,
            ports: None,
            nic: netplumb_sys::netns::inside(namespace.as_fd(), Ethtool::open).ok(),
            before: KernelCounters::default(),
            block: HostBlock::default(),
        }
    }

    /// The kernel's and the NIC's counters.
    fn count(&self) -> io::Result<KernelCounters> {
        Ok(KernelCounters { missed: self.missed(), ..KernelCounters::now()? })
    }

    /// Frames that the NIC dropped on RX ring overflow, if its driver counts them. The driver reads the NIC in time
    /// only when it is asked for all its counters.
    fn missed(&self) -> Option<u64> {
        let counters = self.nic.as_ref()?.statistics(&format!("{}0", self.side));
        counters.ok()?.get("rx_missed_errors").copied()
    }

    /// The host's results of the block, including what its sockets counted.
    fn block(
        self,
        done: netplumb_workload::hosts::Done,
        connections: &Connections,
    ) -> io::Result<HostBlock> {
        Ok(HostBlock {
            bytes: done.bytes,
            turns_ns: done.turns_ns,
            failed: done.failed,
            retransmitted: connections.retransmitted()?,
            segments: Some(connections.segments(self.side == Side::Tx)?),
            buffer_bytes: Some(connections.buffer_bytes(self.side == Side::Tx)?),
            ..self.block
        })
    }
}

impl Edges for Measuring {
    fn prepare(&mut self) -> io::Result<()> {
        let ports = WirePorts::open()?;
        self.before = self.count()?;
        ports.mark(Moment::Before);
        self.ports = Some(ports);
        Ok(())
    }

    fn begin(&mut self) {
        if let Some(ports) = &self.ports {
            ports.mark(Moment::Begin);
        }
        mark::<{ mark::WINDOW_BEGIN }>();
        match self.side {
            Side::Tx => mark::<{ mark::TX_BEGIN }>(),
            Side::Rx => mark::<{ mark::RX_BEGIN }>(),
        }
    }

    fn end(&mut self) {
        match self.side {
            Side::Tx => mark::<{ mark::TX_END }>(),
            Side::Rx => mark::<{ mark::RX_END }>(),
        }
        mark::<{ mark::WINDOW_END }>();
        if let Some(ports) = &self.ports {
            ports.mark(Moment::End);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(ports) = &self.ports {
            ports.mark(Moment::After);
        }
        let after = self.count()?;
        self.block.interrupts = after.interrupts.saturating_sub(self.before.interrupts);
        self.block.polls = after.polls.saturating_sub(self.before.polls);
        let missed = after.missed.zip(self.before.missed);
        self.block.missed = missed.map(|(after, before)| after.saturating_sub(before));
        if let Some(ports) = self.ports.take() {
            self.block.begin = ports.latch(Moment::Begin);
            self.block.end = ports.latch(Moment::End);
            let idle_ns = after.idle_ns.zip(self.before.idle_ns);
            self.block.kernel_idle = idle_ns.map(|(after, before)| KernelIdle {
                before: ports.latch(Moment::Before),
                after: ports.latch(Moment::After),
                idle_ns: after.saturating_sub(before),
            });
        }
        Ok(())
    }
}

/// Disconnect, and return the blocks without the warm-up.
fn end(mut blocks: Vec<HostBlock>) -> Result<(Vec<HostBlock>, Latch), String> {
    let ports = open()?;
    ports
        .end(PATIENCE)
        .map_err(|e| {
            format!(
                "end the wire: {e}; run it again, with fewer connections or bytes, and if it hangs each time, see whether \
                 `plumb doctor` finds the wire to work"
            )
        })?;
    ports.mark(Moment::End);
    let last = ports.latch(Moment::End);
    blocks.remove(0);
    Ok((blocks, last))
}

/// The kernel's counters since its boot.
#[derive(Debug, Clone, Copy, Default)]
struct KernelCounters {
    /// Interrupts of the NIC.
    interrupts: u64,
    /// Runs of the softirq that polls it.
    polls: u64,
    /// Time in which the CPU was idle, if the kernel has it.
    idle_ns: Option<u64>,
    /// Frames that the NIC had no room for, if it counts them.
    missed: Option<u64>,
}

impl KernelCounters {
    fn now() -> io::Result<KernelCounters> {
        Ok(KernelCounters {
            interrupts: interrupts_in(&fs::read_to_string("/proc/interrupts")?),
            polls: polls_in(&fs::read_to_string("/proc/softirqs")?),
            idle_ns: fs::read_to_string("/proc/timer_list").ok().and_then(|text| idle_in(&text)),
            missed: None,
        })
    }
}

/// Idle time of the only CPU (kernel/time/timer_list.c): `/proc/stat` has it in ticks.
fn idle_in(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.trim().strip_prefix(".idle_sleeptime"))?;
    let mut words = rest.split_whitespace();
    (words.next() == Some(":")).then(|| words.next()?.parse().ok())?
}

/// Interrupts of the NIC: e1000 and e1000e name them after the device, virtio-net after its queues.
fn interrupts_in(text: &str) -> u64 {
    let is_its = |name: &str| {
        let of_virtio = name.starts_with("virtio") && name.contains("put.");
        of_virtio || ["tx0", "rx0"].iter().any(|device| name.starts_with(device))
    };
    let count = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace().skip(1);
        let count = words.next()?.parse().ok()?;
        words.last().is_some_and(is_its).then_some(count)
    };
    text.lines().filter_map(count).sum()
}

/// Runs of NET_RX.
fn polls_in(text: &str) -> u64 {
    let line = (text.lines()).find_map(|line| line.trim_start().strip_prefix("NET_RX:"));
    let counts = line.unwrap_or_default().split_whitespace();
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that interrupts of a NIC are counted, whatever its driver calls them, and no others;
    /// and runs of the softirq that polls it.
    #[test]
    fn counted_by_the_kernel() {
        let text = "           CPU0       \n\
                    \x20 0:         27   IO-APIC   2-edge      timer\n\
                    \x2011:        466   IO-APIC  11-fasteoi   rx0\n\
                    \x2024:         10   PCI-MSI 49152-edge      rx0-rx-0\n\
                    \x2025:          3   PCI-MSI 32768-edge      virtio1-input.0\n\
                    \x2026:          9   PCI-MSI 32769-edge      virtio0-virtqueues\n\
                    LOC:        100   Local timer interrupts\n";
        assert_eq!(interrupts_in(text), 466 + 10 + 3);
        let text = "                    CPU0       \n\
                    \x20         HI:          1\n\
                    \x20     NET_TX:          2\n\
                    \x20     NET_RX:       1017\n";
        assert_eq!(polls_in(text), 1_017);
        let text = "  .idle_sleeps    : 2817\n  .idle_entrytime : 34 nsecs\n\
                    \x20 .idle_sleeptime : 34212446821 nsecs\n";
        assert_eq!(idle_in(text), Some(34_212_446_821));
        assert_eq!(idle_in(".idle_sleeptime of none"), None);
    }
}
