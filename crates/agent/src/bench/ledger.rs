//! The ledger of a block: where every packet went, hop by hop, from counters that were read when
//! all was quiet.

use std::collections::BTreeMap;

use netplumb_model::bench::{Bench, Generated, Handled, Hop, RING_FULL};
use netplumb_workload::drops;

/// The hops of a bench.
pub(super) struct Way<'a> {
    pub(super) bench: Bench,
    /// The generator's device, and the one that the path receives from.
    pub(super) devices: [&'a str; 2],
    /// The path's name.
    pub(super) path: &'a str,
    /// Whether the devices may have packets from elsewhere: drops are then counted only up to the
    /// number of missing packets.
    pub(super) shared: bool,
    /// The device that the path forwards by, if another one.
    pub(super) egress: Option<&'a str>,
    /// The device that receives forwarded packets, if any.
    pub(super) sink: Option<&'a str>,
    /// Whether a NAPI thread polls the receiving device.
    pub(super) threaded: bool,
    /// Whether drivers had time to update their counters: packets that a device has not counted by
    /// then, it never received.
    pub(super) settled: bool,
}

impl Way<'_> {
    /// The hops, from the counters of the generator, the path and the sink, and the increase of
    /// kernel counters.
    pub(super) fn hops(
        &self,
        generated: &[Generated],
        path: &Handled,
        sink: Option<&Handled>,
        grew: &BTreeMap<String, u64>,
    ) -> Vec<Hop> {
        let sum = |of: fn(&Generated) -> u64| generated.iter().map(of).sum::<u64>();
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for (why, n) in generated.iter().flat_map(|g| &g.refused) {
            let why = match why.as_str() {
                "ring full" if self.threaded => RING_FULL,
                why => why,
            };
            *refused.entry(why.to_string()).or_default() += n;
        }
        let [from, to] = self.devices;
        let sent = sum(|g| g.sent);
        let mut hops = vec![Hop {
            name: format!("generator to {to} by {from}"),
            entered: sum(|g| g.frames),
            left: sent,
            dropped: refused,
        }];
        let name = match (self.bench, self.sink) {
            (Bench::Forward, Some(sink)) => format!("{to} to {sink} by {}", self.path),
            _ => format!("{to} to {}", self.path),
        };
        let mut hop = Hop {
            name,
            entered: sent,
            left: sink.map_or_else(|| path.total(), Handled::total),
            dropped: BTreeMap::new(),
        };
        let lost = path.lost.iter().filter(|(_, n)| **n > 0);
        let lost = lost.map(|(cause, n)| (cause.clone(), *n));
        if !self.shared {
            hop.dropped.extend(lost.clone());
        }
        // The kernel may have seen losses that the path did not: but only up to the missing
        // packets, and not ones that the path has counted by the same counter.
        let reported = |cause: &str| path.lost.get(cause).copied().unwrap_or(0);
        let grown = drops::losses(grew).into_iter().map(|(cause, n)| {
            let n = n.saturating_sub(reported(&cause));
            (cause, n)
        });
        let mut known = lost.filter(|_| self.shared).chain(grown);
        while hop.missing() > 0
            && let Some((cause, n)) = known.next()
        {
            let n = n.min(hop.missing().unsigned_abs());
            if n > 0 {
                *hop.dropped.entry(cause).or_default() += n;
            }
        }
        let count = |device: &str, counter| grew.get(&format!("{device} {counter}")).copied();
        let cables = [
            (from, Some(sent), Some(to)),
            (
                self.egress.unwrap_or_default(),
                self.egress.and_then(|egress| count(egress, "tx_packets")),
                self.sink.filter(|_| self.egress.is_some()),
            ),
        ];
        for (from, sent, to) in cables {
            let came = to.and_then(|to| count(to, "rx_packets"));
            let (true, Some(sent), Some(came)) = (self.shared && self.settled, sent, came) else {
                continue;
            };
            let never = sent.saturating_sub(came).min(hop.missing().max(0) as u64);
            if never > 0 {
                let to = to.unwrap_or_default();
                let cause = format!("sent by {from} and never received by {to}");
                hop.dropped.insert(cause, never);
            }
        }
        hops.push(hop);
        hops
    }
}

/// Packets by receive queue of a device, from the increase of its driver's counters. Names differ
/// between drivers: `rx_queue_0_xdp_packets` (veth), `rx_queue_0_packets` (ixgbe, ice, virtio_net
/// before Linux 6.8), `rx0_packets` (mlx5, virtio_net).
pub(super) fn queues(device: &str, grew: &BTreeMap<String, u64>) -> BTreeMap<u32, u64> {
    let mut queues: BTreeMap<u32, u64> = BTreeMap::new();
    for (counter, n) in grew {
        let name = (counter.strip_prefix(device)).and_then(|c| c.strip_prefix(" ethtool rx"));
        let Some(name) = name else { continue };
        let name = name.strip_prefix("_queue_").unwrap_or(name);
        let digits = name.bytes().take_while(u8::is_ascii_digit).count();
        let (number, what) = name.split_at(digits);
        if let (Ok(queue), "_packets" | "_xdp_packets") = (number.parse(), what) {
            // A driver may have both counters for the same packets.
            let most = queues.entry(queue).or_default();
            *most = (*n).max(*most);
        }
    }
    queues
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use netplumb_model::bench::BlockRates;
    use netplumb_sys::netns::{self, Namespace};
    use netplumb_sys::proc::counters::Counters;

    use super::*;

    /// Check in a namespace that IPv6 datagrams without a receiver are dropped with a cause.
    #[test]
    fn as_root_ipv6_losses_have_their_causes() {
        let lost = std::thread::spawn(|| {
            netns::enter_new().ok()?;
            let ip = |words: &str| {
                let words = words.split(' ');
                let status = std::process::Command::new("ip").args(words).status();
                assert!(status.unwrap().success());
            };
            ip("link set lo up");
            let own = Namespace::current().unwrap();
            let read = || Counters::read(own.as_fd()).unwrap();
            let before = read();
            let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
            for _ in 0..5 {
                socket.send_to(b"x", "[::1]:9").unwrap();
            }
            Some(read().since(&before))
        });
        let Some(grew) = lost.join().unwrap() else {
            netplumb_testkit::skip("a network namespace takes root");
            return;
        };
        let grew = grew.all();
        let generated = [Generated { frames: 5, sent: 5, ..Generated::default() }];
        let way = Way {
            bench: Bench::Drop,
            devices: ["tx0", "rx0"],
            path: "socket",
            shared: false,
            egress: None,
            sink: None,
            threaded: false,
            settled: false,
        };
        let hops = way.hops(&generated, &Handled::default(), None, grew);
        let expected = [("no socket at this port (Udp6NoPorts)".to_string(), 5)];
        assert_eq!(hops[1].dropped, BTreeMap::from(expected), "{grew:?}");
        assert_eq!(hops[1].missing(), 0);
    }

    /// Check packets by receive queue with the names of several drivers.
    #[test]
    fn by_queue() {
        let grew = [
            ("r0 ethtool rx_queue_0_xdp_packets", 5),
            ("r0 ethtool rx_queue_10_xdp_packets", 7),
            ("r0 ethtool rx_queue_0_xdp_bytes", 500),
            ("r0 ethtool tx_queue_0_xdp_xmit", 9),
            ("r0 ethtool rx_packets", 12),
            ("r01 ethtool rx1_packets", 3),
        ];
        let grew = grew.map(|(name, n)| (name.to_string(), n)).into();
        assert_eq!(queues("r0", &grew), BTreeMap::from([(0, 5), (10, 7)]));
        assert_eq!(queues("r01", &grew), BTreeMap::from([(1, 3)]));
    }

    /// Check that a path's losses and the counter that they are from explain packets once.
    #[test]
    fn what_a_path_reported_is_not_reported_again() {
        let full = "receive buffer full (UdpRcvbufErrors)".to_string();
        let path = Handled {
            packets: BTreeMap::from([(1, 90)]),
            lost: BTreeMap::from([(full.clone(), 4)]),
            ..Handled::default()
        };
        let generated = [Generated { frames: 100, sent: 100, ..Generated::default() }];
        let grew = [("UdpInErrors", 4), ("UdpRcvbufErrors", 4)];
        let grew = grew.map(|(name, n)| (name.to_string(), n)).into();
        let mut way = Way {
            bench: Bench::Drop,
            devices: ["tx0", "rx0"],
            path: "socket",
            shared: false,
            egress: None,
            sink: None,
            threaded: false,
            settled: false,
        };
        for shared in [false, true] {
            way.shared = shared;
            let hops = way.hops(&generated, &path, None, &grew);
            assert_eq!(hops[1].dropped, BTreeMap::from([(full.clone(), 4)]));
            assert_eq!(hops[1].missing(), 6);
        }
    }

    /// Check that refused frames are dropped on the first hop, packets counted by the kernel on the
    /// second, and that both balance.
    #[test]
    fn every_packet_is_somewhere() {
        let generated = [Generated {
            cpu: 1,
            frames: 100,
            sent: 90,
            refused: BTreeMap::from([("ENOSPC".into(), 10)]),
            ..Generated::default()
        }];
        let path = Handled {
            packets: BTreeMap::from([(1, 70)]),
            lost: BTreeMap::from([("receive buffer full".into(), 15), ("none".into(), 0)]),
            ..Handled::default()
        };
        let grew = BTreeMap::from([
            ("IpInHdrErrors".to_string(), 2),
            ("rx0 rx_dropped".to_string(), 3),
            ("rx0 rx_packets".to_string(), 90),
            ("IpInReceives".to_string(), 90),
        ]);
        let way = Way {
            bench: Bench::Drop,
            devices: ["tx0", "rx0"],
            path: "socket",
            shared: false,
            egress: None,
            sink: None,
            threaded: false,
            settled: false,
        };
        let hops = way.hops(&generated, &path, None, &grew);
        assert_eq!(hops.iter().map(Hop::missing).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(hops[1].dropped.len(), 3);
        // With packets from elsewhere, counters exceed the missing packets.
        let shared = Way { shared: true, ..way };
        let mut more = path.clone();
        more.lost.insert("receive buffer full".into(), 1_000);
        let others = shared.hops(&generated, &more, None, &grew);
        assert_eq!(others.iter().map(Hop::missing).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(others[1].dropped.len(), 1);
        // Packets that the device at the other end of the cable has not counted were lost on the
        // cable, and no others.
        let cable = Way { settled: true, ..shared };
        let grew = BTreeMap::from([("rx0 rx_packets".to_string(), 84)]);
        let lost = cable.hops(&generated, &path, None, &grew);
        assert_eq!(lost[1].missing(), 0);
        let never = "sent by tx0 and never received by rx0";
        assert_eq!(lost[1].dropped.get(never), Some(&5));
        let grew = BTreeMap::from([("rx0 rx_packets".to_string(), 88)]);
        assert_eq!(cable.hops(&generated, &path, None, &grew)[1].missing(), 3);
        let measured = BlockRates { hops, ..BlockRates::default() };
        let whole = measured.ledger();
        assert!(whole.closes(), "{whole:?}");
        assert_eq!((whole.offered, whole.delivered), (100, 70));
    }
}
