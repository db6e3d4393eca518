//! Per-packet traces.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Softirq};
use netplumb_model::timing::Step;

use super::layout::StepEvent;

/// `enum stages_event`.
mod event {
    pub(super) const CALL: u32 = 0;
    pub(super) const QUEUE: u32 = 1;
    pub(super) const ENQUEUED: u32 = 2;
    pub(super) const DEQUEUED: u32 = 3;
    pub(super) const START: u32 = 4;
    pub(super) const SENT: u32 = 5;
    pub(super) const FREED: u32 = 6;
    pub(super) const NETIF_RX: u32 = 7;
    pub(super) const GRO: u32 = 8;
    pub(super) const RECEIVE: u32 = 9;
    pub(super) const OWNER: u32 = 10;
    pub(super) const SOCKET: u32 = 11;
    pub(super) const COPY: u32 = 12;
    pub(super) const RETURN: u32 = 13;
    pub(super) const DROP: u32 = 14;
}

/// Softirqs by the kernel's number.
fn context(step: &StepEvent) -> Context {
    if step.in_task != 0 {
        return Context::Task;
    }
    let softirq = Softirq::ALL.get(step.softirq as usize);
    Context::Softirq(*softirq.unwrap_or(&Softirq::NetRx))
}

/// What begins with an event, as far as the next one shows.
fn name(event: u32, next: Option<u32>) -> &'static str {
    match (event, next) {
        (event::CALL, _) => "system call",
        (event::QUEUE, Some(event::ENQUEUED)) => "enqueue",
        (event::QUEUE | event::DEQUEUED, _) => "device",
        (event::ENQUEUED, _) => "qdisc wait",
        (event::START, _) => "driver",
        (event::SENT, Some(event::FREED)) => "completion",
        (event::SENT, _) => "sent",
        (event::FREED, _) => "freed",
        (event::NETIF_RX, _) => "backlog",
        (event::GRO, _) => "gro",
        (event::RECEIVE, Some(event::QUEUE)) => "forward",
        (event::RECEIVE, Some(event::OWNER)) => "socket lock",
        (event::RECEIVE | event::OWNER, _) => "protocol",
        (event::SOCKET, _) => "socket queue and read",
        (event::COPY, _) => "return",
        (event::RETURN, _) => "returned",
        (event::DROP, _) => "dropped",
        _ => "unknown",
    }
}

/// Whether an event is on transmit.
fn outward(event: u32) -> bool {
    event <= event::FREED
}

/// Whether a step may go on from one event to another: on its way out, or on its
/// way in. A packet is on both while the driver of a veth hands it over.
fn follows(event: u32, next: u32) -> bool {
    match event {
        event::FREED | event::RETURN | event::DROP => false,
        event::SENT => next == event::FREED,
        event::RECEIVE if next == event::QUEUE => true,
        _ => next == event::DROP || outward(event) == outward(next),
    }
}

/// The steps of all packets, from the events in the ring.
pub(super) fn steps(events: &[StepEvent]) -> Vec<Step> {
    let mut packets: BTreeMap<u32, Vec<&StepEvent>> = BTreeMap::new();
    for event in events {
        packets.entry(event.packet).or_default().push(event);
    }
    let mut steps = Vec::new();
    for (packet, (_, mut events)) in (0_u32..).zip(packets) {
        events.sort_by_key(|e| (e.at_ns, e.event));
        for (i, e) in events.iter().enumerate() {
            let next = events[i + 1..].iter().find(|n| follows(e.event, n.event));
            let end = e.command.iter().position(|b| *b == 0);
            let command = &e.command[..end.unwrap_or(e.command.len())];
            steps.push(Step {
                packet,
                name: name(e.event, next.map(|n| n.event)).to_string(),
                begin_ns: e.at_ns,
                duration_ns: next.map_or(0, |n| n.at_ns - e.at_ns),
                cpu: e.cpu,
                thread: e.tid,
                command: String::from_utf8_lossy(command).into_owned(),
                context: context(e),
            });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_steps(events: &[(u32, u64)]) -> Vec<(String, u64, u64)> {
        let events: Vec<_> = events
            .iter()
            .map(|&(event, at_ns)| StepEvent { event, at_ns, packet: 7, ..StepEvent::default() })
            .collect();
        steps(&events).into_iter().map(|s| (s.name, s.begin_ns, s.duration_ns)).collect()
    }

    fn step(name: &str, begin_ns: u64, duration_ns: u64) -> (String, u64, u64) {
        (name.to_string(), begin_ns, duration_ns)
    }

    /// Check that a packet over a veth is on both ways while the driver has it.
    #[test]
    fn the_ways_overlap() {
        use event::*;
        assert_eq!(
            named_steps(&[
                (CALL, 0),
                (QUEUE, 10),
                (START, 12),
                (NETIF_RX, 15),
                (SENT, 20),
                (RECEIVE, 30),
                (SOCKET, 40),
                (COPY, 50),
                (RETURN, 60),
            ]),
            [
                step("system call", 0, 10),
                step("device", 10, 2),
                step("driver", 12, 8),
                step("backlog", 15, 15),
                step("sent", 20, 0),
                step("protocol", 30, 10),
                step("socket queue and read", 40, 10),
                step("return", 50, 10),
                step("returned", 60, 0),
            ]
        );
    }

    /// Check that a router's work is a step of its own, and a qdisc's wait.
    #[test]
    fn a_packet_is_forwarded() {
        use event::*;
        assert_eq!(
            named_steps(&[
                (NETIF_RX, 0),
                (RECEIVE, 5),
                (QUEUE, 9),
                (ENQUEUED, 10),
                (DEQUEUED, 90),
                (START, 91),
                (DROP, 95)
            ]),
            [
                step("backlog", 0, 5),
                step("forward", 5, 4),
                step("enqueue", 9, 1),
                step("qdisc wait", 10, 80),
                step("device", 90, 1),
                step("driver", 91, 4),
                step("dropped", 95, 0),
            ]
        );
    }
}
