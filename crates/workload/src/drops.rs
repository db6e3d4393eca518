//! Causes of loss, from kernel counters.

mod causes;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use netplumb_model::class::{Family, Proto};
use netplumb_model::recording::Ledger;
use netplumb_sys::ethtool::Ethtool;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::inside;
use netplumb_sys::proc::counters::Counters;

use causes::{FILTERS, QDISC, TX_DROPPED};

pub(crate) use causes::SOCKET;

/// Counters of packets that went missing, by cause ("UdpRcvbufErrors").
pub type Drops = BTreeMap<String, u64>;

/// Read the loss counters of a namespace, devices included.
///
/// # Errors
/// The namespace can't be entered. Missing counters are left out.
pub fn read(namespace: BorrowedFd<'_>) -> io::Result<Drops> {
    Ok(of_loss(Counters::read(namespace)?.all()))
}

/// Read the loss counters of the devices of a namespace, including the ones that `/proc/net/dev`
/// only has sums of: errors of received frames.
///
/// # Errors
/// The namespace can't be entered, or a query failed.
pub fn of_devices(namespace: BorrowedFd<'_>) -> io::Result<Drops> {
    inside(namespace, || {
        let mut netlink = Netlink::open()?;
        let mut counters = Drops::new();
        for device in netlink.devices()? {
            for (name, n) in netlink.statistics(&device.name)? {
                counters.insert(format!("{} {name}", device.name), n);
            }
        }
        Ok(of_loss(&counters))
    })
}

/// Frames that XDP programs dropped, by device of a namespace, where its driver counts them.
///
/// # Errors
/// The namespace can't be entered, or its devices can't be listed.
pub fn of_programs(namespace: BorrowedFd<'_>) -> io::Result<Drops> {
    inside(namespace, || {
        let (devices, ethtool) = (Netlink::open()?.devices()?, Ethtool::open()?);
        let dropped = |device: &str| -> u64 {
            // veth: `rx_queue_0_xdp_drops`; virtio-net: `rx0_xdp_drops`, others alike. lo has none.
            let counters = ethtool.statistics(device).unwrap_or_default();
            counters.iter().filter(|(name, _)| name.ends_with("xdp_drops")).map(|(_, n)| n).sum()
        };
        let devices = devices.iter().filter(|device| device.xdp.is_some());
        Ok(devices.map(|d| (format!("{} dropped by XDP", d.name), dropped(&d.name))).collect())
    })
}

/// The loss counters among all counters.
fn of_loss(counters: &Drops) -> Drops {
    let lost = counters.iter().filter(|(name, _)| causes::cause_of(name).is_some());
    lost.map(|(name, n)| (name.clone(), *n)).collect()
}

/// The meaning of a counter's cause, with the counter: "receive buffer full (UdpRcvbufErrors)";
/// none of a counter that counts no losses.
pub fn meaning(counter: &str) -> Option<String> {
    let cause = causes::cause_of(counter)?;
    Some(format!("{} ({counter})", cause.meaning))
}

/// Losses among counters that grew, each packet once, by the meaning of its cause.
pub fn losses(grew: &Drops) -> Drops {
    let by_counter = causes(&of_loss(grew)).into_iter();
    let by_meaning = by_counter.filter_map(|(counter, n)| Some((meaning(&counter)?, n)));
    by_meaning.collect()
}

/// Loss counters of one protocol in one family: "Udp", or "Ip", including "IpExt".
pub fn of_protocol(protocol: &str, family: Family, grew: &Drops) -> Drops {
    let is_its_own = |name: &str| {
        name.strip_prefix(protocol)
            .is_some_and(|rest| rest.starts_with('6') == (family == Family::V6))
    };
    let mut own = of_loss(grew);
    own.retain(|name, _| is_its_own(name));
    own
}

/// Packets that a device dropped instead of sending: the meaning of the cause, and their number.
pub fn not_sent(device: &str, grew: &Counters) -> (String, u64) {
    let counter = format!("{device} {TX_DROPPED}");
    let packets = grew.get(&counter);
    (meaning(&counter).unwrap_or(counter), packets)
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
    for cause in causes::CAUSES.iter().filter(|c| !c.includes.is_empty()) {
        let is_included = |name: &str| {
            causes::cause_of(name).is_some_and(|of| causes::is_among(of, cause.includes))
        };
        // By version of IP: packets of one are not packets of the other.
        let mut known: BTreeMap<Option<Family>, u64> = BTreeMap::new();
        for (name, n) in causes.iter().filter(|(name, _)| is_included(name)) {
            *known.entry(causes::family(name)).or_default() += n;
        }
        let own = |name: &str| causes::cause_of(name) == Some(cause);
        for (name, n) in causes.iter_mut().filter(|(name, _)| own(name)) {
            let of_name = causes::family(name);
            for (family, known) in &mut known {
                if of_name.is_some() && family.is_some() && of_name != *family {
                    continue;
                }
                let again = (*known).min(*n);
                *known -= again;
                *n -= again;
            }
        }
    }
    causes.retain(|_, n| *n > 0);
    causes
}

/// Add causes for the missing packets of a ledger, from the kernel's reasons for freeing packets,
/// as an instrument saw them in the same window, each after its protocol ("udp NO_SOCKET"). Packets
/// that a counter has counted are not counted again, and other protocols are ignored.
pub fn explain(ledger: &mut Ledger, proto: Proto, reasons: &Drops) {
    let sum: u64 = ledger.dropped.values().sum();
    let mut missing = ledger.offered.saturating_sub(ledger.delivered + sum);
    let mut dropped = ledger.dropped.clone();
    let of_proto = format!("{proto} ");
    let reasons = reasons.iter();
    for (reason, &seen) in reasons.filter_map(|(r, n)| Some((r.strip_prefix(&of_proto)?, n))) {
        let mut left = seen;
        let means = |cause: &str| {
            let reasons = causes::cause_of(cause).map_or(&[][..], |cause| cause.reasons);
            reasons.iter().any(|begin| reason.starts_with(begin))
        };
        for (_, n) in dropped.iter_mut().filter(|(cause, _)| means(cause)) {
            let known = left.min(*n);
            *n -= known;
            left -= known;
        }
        let n = left.min(missing);
        if n > 0 {
            missing -= n;
            *ledger.dropped.entry(format!("kfree_skb: {reason}")).or_default() += n;
        }
    }
}

/// The losses between two readings; causes without change are left out.
pub fn since(before: &Drops, after: &Drops) -> Drops {
    after
        .iter()
        .map(|(cause, n)| (cause.clone(), n.saturating_sub(*before.get(cause).unwrap_or(&0))))
        .filter(|(_, n)| *n > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that counters of losses are selected, including the four of a device.
    #[test]
    fn among_all_counters() {
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
            ("eth0 rx_errors", 3),
            ("eth0 rx_dropped", 4),
            ("eth0 tx_errors", 11),
            ("eth0 tx_dropped", 12),
        ];
        assert_eq!(of_loss(&counters), drops(&expected));
    }

    fn drops(of: &[(&str, u64)]) -> Drops {
        of.iter().map(|(cause, n)| (cause.to_string(), *n)).collect()
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

    /// Check that a packet too large for the next link, which IPv6 counts twice (ip6_forward,
    /// net/ipv6/ip6_output.c), is one packet, that counters of one family are not the
    /// other's, and what they mean.
    #[test]
    fn of_one_protocol() {
        let grew = drops(&[
            ("Icmp6OutErrors", 1),
            ("Ip6FragFails", 5),
            ("Ip6InReceives", 50),
            ("Ip6InTooBigErrors", 5),
            ("IpExtInNoRoutes", 2),
            ("IpFragFails", 3),
            ("Udp6NoPorts", 4),
        ]);
        let lost = |protocol, family| losses(&of_protocol(protocol, family, &grew));
        let v6 = [("larger than the next MTU (Ip6InTooBigErrors)", 5)];
        assert_eq!(lost("Ip", Family::V6), drops(&v6));
        let v4 = [
            ("larger than the next MTU (IpFragFails)", 3),
            ("no route on input (IpExtInNoRoutes)", 2),
        ];
        assert_eq!(lost("Ip", Family::V4), drops(&v4));
        let udp = [("no socket at this port (Udp6NoPorts)", 4)];
        assert_eq!(lost("Udp", Family::V6), drops(&udp));
        assert_eq!(lost("Udp", Family::V4), drops(&[]));
    }

    /// Check that reasons close a ledger, that a reason that a counter has covers is not added
    /// again, and that no more is explained than is missing.
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
        let counted = ("sender: tx0 qdisc drops", 6);
        let mut both = ledger(&[counted]);
        explain(&mut both, Proto::Tcp, &drops(&[("tcp QDISC_DROP", 6), ("tcp TCP_OLD_DATA", 30)]));
        assert!(both.closes());
        let expected = [counted, ("kfree_skb: TCP_OLD_DATA", 4)];
        assert_eq!(both.dropped, drops(&expected));
        let mut none = ledger(&[counted]);
        explain(&mut none, Proto::Udp, &drops(&[("udp QDISC_DROP", 6)]));
        assert!(!none.closes());
        // A gap of one protocol is not explained by losses of another.
        let mut other = ledger(&[]);
        explain(&mut other, Proto::Udp, &drops(&[("tcp NETFILTER_DROP", 10)]));
        assert_eq!(other, ledger(&[]));
    }

    /// Check that only changed counters are included.
    #[test]
    fn differences() {
        let before = Drops::from([("a".into(), 1), ("b".into(), 2)]);
        let after = Drops::from([("a".into(), 1), ("b".into(), 5), ("c".into(), 1)]);
        assert_eq!(since(&before, &after), Drops::from([("b".into(), 3), ("c".into(), 1)]));
    }
}
