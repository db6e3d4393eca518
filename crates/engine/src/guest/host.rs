//! One of two hosts: it sends to the other, or receives from it.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use netplumb_lab::vm::random;
use netplumb_lab::vm::wire::{Moment, WirePorts};
use netplumb_model::hosts::{HostBlock, HostLoad, HostPlan, Latch, Side};
use netplumb_model::message::Reply;
use netplumb_sys::sysctl;
use netplumb_workload::ends::Ends;
use netplumb_workload::hosts::{Connection, Done, Receiver};
use std::os::fd::AsFd;

use super::Agent;

/// Between blocks, by the guest's clock: a closed connection has ended by then.
const REST: Duration = Duration::from_millis(1);
/// Maximum time for the other host to end as well.
const PATIENCE: Duration = Duration::from_secs(60);
/// What TCP learned of an earlier connection would be used by the next.
const NO_METRICS: &str = "net.ipv4.tcp_no_metrics_save";

impl Agent {
    /// Be one of two hosts. Nothing is sent to plumb before both have ended.
    pub(super) fn be_host(
        &mut self,
        plan: &HostPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), String> {
        let side = plan.links.host.ok_or("not one of two hosts")?;
        let ends = self.ends(&plan.links)?;
        netplumb_sys::netns::inside(ends.tx_namespace.as_fd(), || sysctl::set(NO_METRICS, "1"))
            .map_err(|e| format!("set {NO_METRICS}: {e}"))?;
        random::renew().map_err(|e| format!("set the kernel's random numbers: {e}"))?;
        let (blocks, last) = match side {
            Side::Tx => send(plan, ends)?,
            Side::Rx => receive(plan, ends)?,
        };
        self.tell_notes(&plan.links, reply)?;
        reply(Reply::HostBlocks(blocks, last)).map_err(|e| e.to_string())
    }
}

/// The loads of a plan, the warm-up first.
fn loads(plan: &HostPlan) -> impl Iterator<Item = (u32, HostLoad)> {
    let all = (0..plan.blocks).map(|_| plan.load);
    (0..).zip(std::iter::once(plan.load.warm_up()).chain(all))
}

fn send(plan: &HostPlan, ends: &Ends) -> Result<(Vec<HostBlock>, Latch), String> {
    open()?.begin();
    let mut blocks = Vec::new();
    for (number, load) in loads(plan) {
        thread::sleep(REST);
        let mut connection = Connection::open(
            ends.tx_namespace.as_fd(),
            ends.tx_address,
            ends.rx_address,
            number,
            plan.buffer_bytes,
        )
        .map_err(|e| format!("connect to the receiver: {e}"))?;
        let block = measure(&mut connection, true, |c| c.send(load))
            .map_err(|e| format!("block {number} (0 is the warm-up): send: {e}"))?;
        blocks.push(block);
    }
    end(blocks)
}

fn receive(plan: &HostPlan, ends: &Ends) -> Result<(Vec<HostBlock>, Latch), String> {
    let receiver = Receiver::open(
        ends.rx_namespace.as_fd(),
        ends.rx_address,
        plan.buffer_bytes,
    )
    .map_err(|e| format!("listen: {e}"))?;
    open()?.begin();
    let mut blocks = Vec::new();
    for (number, load) in loads(plan) {
        let mut connection = receiver
            .accept()
            .map_err(|e| format!("accept the connection of block {number}: {e}"))?;
        let block = measure(&mut connection, false, |c| c.receive(load))
            .map_err(|e| format!("block {number} (0 is the warm-up): receive: {e}"))?;
        blocks.push(block);
    }
    end(blocks)
}

fn open() -> Result<WirePorts, String> {
    WirePorts::open().map_err(|e| format!("find the wire: {e}"))
}

/// A block. The ports are accessible meanwhile, since getting access takes thousands of
/// instructions.
fn measure(
    connection: &mut Connection,
    sends: bool,
    run: impl FnOnce(&mut Connection) -> io::Result<Done>,
) -> io::Result<HostBlock> {
    let interrupts = interrupts()?;
    let ports = WirePorts::open()?;
    ports.mark(Moment::Begin);
    let done = run(connection)?;
    ports.mark(Moment::End);
    let (begin, end) = (ports.latch(Moment::Begin), ports.latch(Moment::End));
    drop(ports);
    Ok(HostBlock {
        begin,
        end,
        bytes: done.bytes,
        turns_ns: done.turns_ns,
        interrupts: self::interrupts()?.saturating_sub(interrupts),
        retransmitted: connection.retransmitted()?,
        buffer_bytes: connection.buffer_bytes(sends)?,
    })
}

/// Disconnect, and return the blocks without the warm-up.
fn end(mut blocks: Vec<HostBlock>) -> Result<(Vec<HostBlock>, Latch), String> {
    let ports = open()?;
    ports
        .end(PATIENCE)
        .map_err(|e| format!("end the wire: {e}"))?;
    ports.mark(Moment::End);
    let last = ports.latch(Moment::End);
    blocks.remove(0);
    Ok((blocks, last))
}

/// Interrupts of the NIC since the guest's boot: e1000 and e1000e name them after the device,
/// virtio-net after its queues.
fn interrupts() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    Ok(interrupts_in(&text))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that interrupts of a NIC are counted, whatever its driver calls them, and no others.
    #[test]
    fn interrupts_of_nics() {
        let text = "           CPU0       \n\
                    \x20 0:         27   IO-APIC   2-edge      timer\n\
                    \x2011:        466   IO-APIC  11-fasteoi   rx0\n\
                    \x2024:         10   PCI-MSI 49152-edge      rx0-rx-0\n\
                    \x2025:          3   PCI-MSI 32768-edge      virtio1-input.0\n\
                    \x2026:          9   PCI-MSI 32769-edge      virtio0-virtqueues\n\
                    LOC:        100   Local timer interrupts\n";
        assert_eq!(interrupts_in(text), 466 + 10 + 3);
    }
}
