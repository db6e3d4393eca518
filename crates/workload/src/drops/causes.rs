//! Why packets are dropped: a row for each cause that the kernel counts. The ledgers of single
//! packets, of paths and of benches go by it, and know no counter of their own.

/// The counter of a cause, by its name in `netplumb_sys::proc::counters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    /// A protocol, in IPv4 and in IPv6.
    Protocol(&'static str, &'static str),
    /// A device: the name follows the device's.
    Device(&'static str),
    /// Something that a namespace, or the machine, has one of.
    One(&'static str),
}

/// A cause of drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) counter: Counter,
    /// The cause in a reader's words.
    pub(super) meaning: &'static str,
    /// The first names of causes above this one whose packets its counter counts too.
    pub(super) includes: &'static [&'static str],
    /// How reasons of kfree_skb begin that mean the same packets.
    pub(super) reasons: &'static [&'static str],
}

/// What queueing disciplines of a device dropped is called; of filters, and of the receiver's
/// socket, likewise. These are read from netlink and from the socket, not from a file.
pub(super) const QDISC: &str = "qdisc drops";
pub(super) const FILTERS: &str = "tc filter drops";
pub(crate) const SOCKET: &str = "socket drops";

const fn row(counter: Counter, meaning: &'static str) -> Cause {
    Cause { counter, meaning, includes: &[], reasons: &[] }
}

impl Cause {
    const fn includes(mut self, includes: &'static [&'static str]) -> Cause {
        self.includes = includes;
        self
    }

    const fn reasons(mut self, reasons: &'static [&'static str]) -> Cause {
        self.reasons = reasons;
        self
    }
}

use Counter::{Device, One, Protocol};
use netplumb_model::class::Family;

/// Every cause. One that includes others comes after them (udp_queue_rcv_one_skb and
/// __udp_queue_rcv_skb in net/ipv4/udp.c; ip_send_skb, net/ipv4/ip_output.c; ip6_forward,
/// net/ipv6/ip6_output.c; sock_queue_rcv_skb, net/core/sock.c). The names of reasons are in
/// include/net/dropreason-core.h.
pub(super) const CAUSES: &[Cause] = &[
    // IP (RFC 4293, net/ipv4/proc.c, net/ipv6/proc.c).
    row(Protocol("IpInHdrErrors", "Ip6InHdrErrors"), "TTL expired, or bad header")
        .reasons(&["IP_INHDR", "IP_CSUM"]),
    row(Protocol("IpInAddrErrors", "Ip6InAddrErrors"), "invalid address")
        .reasons(&["IP_INADDRERRORS"]),
    row(Protocol("IpInUnknownProtos", "Ip6InUnknownProtos"), "unknown protocol")
        .reasons(&["IP_NOPROTO"]),
    row(Protocol("IpExtInNoRoutes", "Ip6InNoRoutes"), "no route on input")
        .reasons(&["IP_INNOROUTES"]),
    row(Protocol("IpExtInTruncatedPkts", "Ip6InTruncatedPkts"), "truncated")
        .reasons(&["PKT_TOO_SMALL"]),
    row(Protocol("IpInDiscards", "Ip6InDiscards"), "discarded on input"),
    row(Protocol("IpOutNoRoutes", "Ip6OutNoRoutes"), "no route on output")
        .reasons(&["IP_OUTNOROUTES"]),
    row(Device(QDISC), "dropped by the qdisc").reasons(&["QDISC_"]),
    row(Device(FILTERS), "dropped by a tc filter").reasons(&["TC_"]),
    row(Protocol("IpOutDiscards", "Ip6OutDiscards"), "discarded on output").includes(&[QDISC]),
    row(Protocol("IpReasmFails", "Ip6ReasmFails"), "reassembly failed"),
    // IPv6 only.
    row(One("Ip6InTooBigErrors"), "larger than the next MTU").reasons(&["PKT_TOO_BIG"]),
    row(Protocol("IpFragFails", "Ip6FragFails"), "larger than the next MTU")
        .includes(&["Ip6InTooBigErrors"])
        .reasons(&["PKT_TOO_BIG"]),
    // The protocols above it (RFC 4113 and net/ipv4/udp.c for UDP).
    row(Protocol("IcmpInErrors", "Icmp6InErrors"), "bad ICMP message"),
    row(Protocol("IcmpOutErrors", "Icmp6OutErrors"), "ICMP message not sent"),
    row(Protocol("TcpInErrs", "TcpInErrs"), "bad TCP segment").reasons(&["TCP_CSUM"]),
    row(Protocol("UdpNoPorts", "Udp6NoPorts"), "no socket at this port").reasons(&["NO_SOCKET"]),
    row(Protocol("UdpRcvbufErrors", "Udp6RcvbufErrors"), "receive buffer full")
        .reasons(&["SOCKET_RCVBUFF"]),
    row(Protocol("UdpInCsumErrors", "Udp6InCsumErrors"), "bad checksum").reasons(&["UDP_CSUM"]),
    row(Protocol("UdpMemErrors", "Udp6MemErrors"), "no memory for sockets").reasons(&["PROTO_MEM"]),
    row(Protocol("UdpInErrors", "Udp6InErrors"), "not taken by the socket")
        .includes(&["UdpRcvbufErrors", "UdpInCsumErrors", "UdpMemErrors"])
        .reasons(&["SOCKET_RCVBUFF"]),
    row(Protocol("UdpSndbufErrors", "Udp6SndbufErrors"), "send buffer full")
        .includes(&[QDISC, "IpOutDiscards"]),
    row(One(SOCKET), "dropped by the socket")
        .includes(&["UdpRcvbufErrors", "UdpInCsumErrors", "UdpMemErrors", "UdpInErrors"])
        .reasons(&["SOCKET_RCVBUFF", "SOCKET_FILTER"]),
    // Devices (Documentation/networking/statistics.rst), and the layers between them and IP.
    row(Device("rx_fifo_errors"), "the receive ring of the device was full"),
    row(Device("rx_crc_errors"), "wrong check sequence"),
    row(Device("rx_length_errors"), "wrong length"),
    row(Device("rx_errors"), "received with an error")
        .includes(&["rx_crc_errors", "rx_length_errors"]),
    row(Device("rx_missed_errors"), "missed by the device"),
    row(Device("rx_dropped"), "dropped by the device on reception"),
    row(Device("tx_errors"), "not sent by the device"),
    row(Device(TX_DROPPED), "dropped by the device on transmission"),
    row(One("softnet dropped"), "the backlog of the CPU was full").reasons(&["CPU_BACKLOG"]),
];
/// Packets that a device dropped instead of sending.
pub(super) const TX_DROPPED: &str = "tx_dropped";

/// The version of IP whose packets a counter counts; none for both.
pub(super) fn family(counter: &str) -> Option<Family> {
    match cause_of(counter)?.counter {
        Protocol(v4, v6) if v4 != v6 => Some(match counter.ends_with(v6) {
            true => Family::V6,
            false => Family::V4,
        }),
        _ => None,
    }
}

/// The cause that a counter counts, which may begin with whose it is ("sender: tx0
/// tx_dropped").
pub(super) fn cause_of(counter: &str) -> Option<&'static Cause> {
    let counter = match counter.split_once(": ") {
        Some((_, counter)) => counter,
        None => counter,
    };
    let of_device = counter.split_once(' ').map(|(_, name)| name);
    CAUSES.iter().find(|cause| match cause.counter {
        Protocol(v4, v6) => counter == v4 || counter == v6,
        Device(name) => of_device == Some(name),
        One(name) => counter == name,
    })
}

/// Whether the first name of a cause's counter is among these.
pub(super) fn is_among(cause: &Cause, names: &[&str]) -> bool {
    let (Protocol(name, _) | Device(name) | One(name)) = cause.counter;
    names.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use netplumb_sys::netns::Namespace;
    use netplumb_sys::proc::counters::Counters;

    use super::*;

    /// Check that causes are each declared once, and after the ones that they include.
    #[test]
    fn rows() {
        let mut above: Vec<&str> = Vec::new();
        for cause in CAUSES {
            for name in cause.includes {
                assert!(above.contains(name), "{name} below {cause:?}");
            }
            let (Protocol(name, _) | Device(name) | One(name)) = cause.counter;
            assert!(!above.contains(&name), "{name} twice");
            above.push(name);
            if let Protocol(v4, v6) = cause.counter {
                assert_eq!((cause_of(v4), cause_of(v6)), (Some(cause), Some(cause)));
            }
        }
    }

    /// Check that every counter is one that a kernel has: this one's.
    #[test]
    fn counters_are_known() {
        let own = Namespace::current().unwrap();
        let Ok(counters) = Counters::read_all(own.as_fd(), &["lo"]) else {
            netplumb_testkit::skip("no counters: not root");
            return;
        };
        let has = |name: &str| {
            let read = |name: &str| counters.all().contains_key(name);
            // Not read from a file.
            [QDISC, FILTERS, SOCKET].contains(&name) || read(name) || read(&format!("lo {name}"))
        };
        let has_v6 = has("Ip6InReceives");
        for cause in CAUSES {
            let (v4, v6) = match cause.counter {
                Protocol(v4, v6) => (v4, v6),
                Device(name) => (name, name),
                One(name) => (name, name),
            };
            assert!(has(v4) || v4.starts_with("Ip6"), "{v4}");
            assert!(has(v6) || !has_v6, "{v6}");
        }
    }
}
