//! Causes of loss, from kernel counters.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use netplumb_model::class::Proto;
use netplumb_model::recording::Ledger;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::inside;
use netplumb_sys::proc::counters::Counters;

/// Drop counters, by cause ("UdpRcvbufErrors").
pub type Drops = BTreeMap<String, u64>;

/// Drop counters of devices, and the names of the causes.
const DEVICE: &[(&str, &str)] = &[
    ("rx_errors", "rx errors"),
    ("rx_dropped", "rx drops"),
    ("tx_errors", "tx errors"),
    ("tx_dropped", "tx drops"),
];

/// Counters of protocols that count lost packets.
const SNMP: &[&str] = &[
    "IpInHdrErrors",
    "IpInAddrErrors",
    "IpInUnknownProtos",
    "IpInDiscards",
    "IpOutDiscards",
    "IpOutNoRoutes",
    "IpReasmFails",
    "IpFragFails",
    "IcmpInErrors",
    "IcmpOutErrors",
    "TcpInErrs",
    "UdpNoPorts",
    "UdpInErrors",
    "UdpRcvbufErrors",
    "UdpInCsumErrors",
    "UdpSndbufErrors",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6InNoRoutes",
    "Ip6InAddrErrors",
    "Ip6InDiscards",
    "Ip6OutDiscards",
    "Ip6OutNoRoutes",
    "Ip6ReasmFails",
    "Ip6FragFails",
    "Udp6NoPorts",
    "Udp6InErrors",
    "Udp6RcvbufErrors",
    "Udp6InCsumErrors",
    "Udp6SndbufErrors",
];

/// Counters, by suffix, that count the same packets: those counted by an earlier one are also
/// counted by the later ones (net/ipv4/udp.c, __udp_queue_rcv_skb; net/ipv4/ip_output.c,
/// ip_send_skb; net/core/sock.c, sock_queue_rcv_skb).
const NESTED: [&[&[&str]]; 2] = [
    &[
        &[QDISC],
        &["OutDiscards"],
        &["UdpSndbufErrors", "Udp6SndbufErrors"],
    ],
    &[
        &["RcvbufErrors", "InCsumErrors"],
        &["UdpInErrors", "Udp6InErrors"],
        &[SOCKET],
    ],
];
/// The cause of drops by a device's qdisc.
const QDISC: &str = "qdisc drops";
/// The cause of drops by its filters.
const FILTERS: &str = "tc filter drops";
/// The cause of drops by the receiver's socket.
pub(crate) const SOCKET: &str = "socket drops";

/// Drop reasons of kfree_skb that a counter counts as well: prefix of the reason, and suffixes of
/// counters.
const REASONS: [(&str, &[&str]); 6] = [
    ("QDISC_", &[QDISC]),
    ("TC_", &[FILTERS]),
    ("SOCKET_RCVBUFF", &["RcvbufErrors", "UdpInErrors", SOCKET]),
    ("SOCKET_FILTER", &[SOCKET]),
    ("UDP_CSUM", &["InCsumErrors"]),
    ("NO_SOCKET", &["NoPorts"]),
];

/// Read the loss counters of a namespace, devices included.
///
/// # Errors
/// The namespace can't be entered. Missing counters are left out.
pub fn read(namespace: BorrowedFd<'_>) -> io::Result<Drops> {
    Ok(of_loss(Counters::read(namespace)?.all()))
}

/// Counters of losses, by the names of causes.
fn of_loss(counters: &Drops) -> Drops {
    let cause = |name: &str| match name.split_once(' ') {
        None => SNMP.contains(&name).then(|| name.to_string()),
        Some((device, name)) => {
            let (_, what) = DEVICE.iter().find(|(known, _)| *known == name)?;
            Some(format!("{device} {what}"))
        }
    };
    let causes = counters
        .iter()
        .filter_map(|(name, n)| Some((cause(name)?, *n)));
    causes.collect()
}

/// Packets dropped by the qdiscs of a namespace, by device; and the number of packets in them.
///
/// # Errors
/// The namespace can't be entered, or a query failed.
pub fn of_qdiscs(namespace: BorrowedFd<'_>) -> io::Result<(Drops, u64)> {
    let all = inside(namespace, || Netlink::open()?.qdiscs())?;
    let mut drops = Drops::new();
    for one in &all {
        let what = if one.is_filter { FILTERS } else { QDISC };
        drops.insert(format!("{} {what}", one.device), one.drops);
    }
    Ok((drops, all.iter().map(|one| one.waiting).sum()))
}

/// The increase of counters, with each packet once, by the most specific counter. Names may have a
/// prefix for their end ("sender: "): each end is treated separately, since its packets are
/// different ones.
pub fn causes(moved: &Drops) -> Drops {
    let end = |name: &str| name.split_once(": ").map_or("", |(end, _)| end).to_string();
    let mut ends: BTreeMap<String, Drops> = BTreeMap::new();
    for (name, n) in moved {
        let of = ends.entry(end(name)).or_default();
        of.insert(name.clone(), *n);
    }
    ends.values().flat_map(of_end).collect()
}

fn of_end(moved: &Drops) -> Drops {
    let mut causes = moved.clone();
    for levels in NESTED {
        // Packets counted by earlier levels.
        let mut told = 0;
        for level in levels {
            let of_level = |name: &str| level.iter().any(|end| name.ends_with(end));
            let (mut known, mut new) = (told, 0);
            for (_, n) in causes.iter_mut().filter(|(name, _)| of_level(name)) {
                let again = known.min(*n);
                known -= again;
                *n -= again;
                new += *n;
            }
            told += new;
        }
    }
    causes.retain(|_, n| *n > 0);
    causes
}

/// Add causes for the missing packets of a ledger, from the kernel's reasons for freeing packets,
/// as an instrument saw them in the same window, each after its protocol ("udp NO_SOCKET"). Packets
/// that a counter has counted are not counted again, and those of other protocols are ignored.
pub fn explain(ledger: &mut Ledger, proto: Proto, reasons: &Drops) {
    let sum: u64 = ledger.dropped.values().sum();
    let mut missing = ledger.offered.saturating_sub(ledger.delivered + sum);
    let mut told = ledger.dropped.clone();
    let of_proto = format!("{proto} ");
    let reasons = reasons.iter();
    for (reason, &seen) in reasons.filter_map(|(r, n)| Some((r.strip_prefix(&of_proto)?, n))) {
        let mut left = seen;
        let same = REASONS
            .iter()
            .filter(|(begin, _)| reason.starts_with(begin));
        for end in same.flat_map(|(_, ends)| *ends) {
            for (_, n) in told.iter_mut().filter(|(cause, _)| cause.ends_with(end)) {
                let known = left.min(*n);
                *n -= known;
                left -= known;
            }
        }
        let n = left.min(missing);
        if n > 0 {
            missing -= n;
            *ledger
                .dropped
                .entry(format!("kfree_skb: {reason}"))
                .or_default() += n;
        }
    }
}

/// The losses between two readings; causes without change are left out.
pub fn since(before: &Drops, after: &Drops) -> Drops {
    after
        .iter()
        .map(|(cause, n)| {
            (
                cause.clone(),
                n.saturating_sub(*before.get(cause).unwrap_or(&0)),
            )
        })
        .filter(|(_, n)| *n > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that counters of losses are selected, including the four of a device.
    #[test]
    fn losses() {
        let counters = drops(&[
            ("UdpInDatagrams", 7),
            ("UdpNoPorts", 3),
            ("Ip6InDiscards", 2),
            ("eth0 rx_packets", 9),
            ("eth0 rx_errors", 3),
            ("eth0 rx_dropped", 4),
            ("eth0 tx_errors", 11),
            ("eth0 tx_dropped", 12),
        ]);
        let expected = [
            ("UdpNoPorts", 3),
            ("Ip6InDiscards", 2),
            ("eth0 rx errors", 3),
            ("eth0 rx drops", 4),
            ("eth0 tx errors", 11),
            ("eth0 tx drops", 12),
        ];
        assert_eq!(of_loss(&counters), drops(&expected));
    }

    fn drops(of: &[(&str, u64)]) -> Drops {
        of.iter()
            .map(|(cause, n)| (cause.to_string(), *n))
            .collect()
    }

    /// Check that a packet counted by several counters is counted once, by the most specific one.
    #[test]
    fn nested_counters() {
        let moved = drops(&[
            ("IpOutDiscards", 7),
            ("UdpSndbufErrors", 9),
            ("tx0 qdisc drops", 7),
            ("UdpInErrors", 5),
            ("UdpRcvbufErrors", 3),
            ("UdpInCsumErrors", 1),
            ("socket drops", 4),
            ("UdpNoPorts", 2),
        ]);
        let expected = [
            ("UdpInCsumErrors", 1),
            ("UdpInErrors", 1),
            ("UdpNoPorts", 2),
            ("UdpRcvbufErrors", 3),
            ("UdpSndbufErrors", 2),
            ("tx0 qdisc drops", 7),
        ];
        assert_eq!(causes(&moved), drops(&expected));
        // At another end, these are different packets.
        let moved = drops(&[
            ("router: r0 qdisc drops", 5),
            ("sender: UdpSndbufErrors", 5),
            ("sender: tx0 qdisc drops", 2),
        ]);
        let expected = [
            ("router: r0 qdisc drops", 5),
            ("sender: UdpSndbufErrors", 3),
            ("sender: tx0 qdisc drops", 2),
        ];
        assert_eq!(causes(&moved), drops(&expected));
    }

    /// Check that reasons balance a ledger, that packets counted by a counter are not counted
    /// twice, and that no more packets are explained than are missing.
    #[test]
    fn reasons_explain() {
        let ledger = |dropped: &[(&str, u64)]| Ledger {
            offered: 100,
            delivered: 90,
            dropped: drops(dropped),
        };
        let mut one = ledger(&[]);
        explain(&mut one, Proto::Udp, &drops(&[("udp NETFILTER_DROP", 10)]));
        assert!(one.closes());
        assert_eq!(one.dropped, drops(&[("kfree_skb: NETFILTER_DROP", 10)]));
        let told = ("sender: tx0 qdisc drops", 6);
        let mut both = ledger(&[told]);
        explain(
            &mut both,
            Proto::Tcp,
            &drops(&[("tcp QDISC_DROP", 6), ("tcp TCP_OLD_DATA", 30)]),
        );
        assert!(both.closes());
        let expected = [told, ("kfree_skb: TCP_OLD_DATA", 4)];
        assert_eq!(both.dropped, drops(&expected));
        let mut none = ledger(&[told]);
        explain(&mut none, Proto::Udp, &drops(&[("udp QDISC_DROP", 6)]));
        assert!(!none.closes());
        // A gap of one protocol is not explained by losses of another.
        let mut other = ledger(&[]);
        explain(
            &mut other,
            Proto::Udp,
            &drops(&[("tcp NETFILTER_DROP", 10)]),
        );
        assert_eq!(other, ledger(&[]));
    }

    /// Check that only changed counters are included.
    #[test]
    fn differences() {
        let before = Drops::from([("a".into(), 1), ("b".into(), 2)]);
        let after = Drops::from([("a".into(), 1), ("b".into(), 5), ("c".into(), 1)]);
        assert_eq!(
            since(&before, &after),
            Drops::from([("b".into(), 3), ("c".into(), 1)])
        );
    }
}
