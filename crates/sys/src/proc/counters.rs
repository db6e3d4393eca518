//! Kernel counters: of the protocols and devices of a namespace, and of the machine's backlogs
//! (/proc/net).
//!
//! Counters of protocols have the names of `nstat`: `IpInDiscards`, `Ip6InDiscards`, `UdpInErrors`,
//! `TcpExtListenDrops`. Others have a prefix: `rx0 rx_dropped`, `rx0 ethtool rx_queue_0_drops` (the
//! driver's), `softnet dropped`, `conntrack insert_failed`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use crate::ethtool::Ethtool;
use crate::netlink::Netlink;
use crate::netns;

/// Columns of /proc/net/softnet_stat that are used (softnet_seq_show in net/core/net-procfs.c).
const SOFTNET: [(usize, &str); 4] =
    [(0, "processed"), (1, "dropped"), (2, "time_squeeze"), (10, "flow_limit_count")];

/// Columns of /proc/net/dev. Some are sums of several counters: `rx_dropped` includes packets that
/// the device missed (dev_seq_printf_stats in net/core/net-procfs.c).
const DEVICE: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_compressed",
    "multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo_errors",
    "collisions",
    "tx_carrier_errors",
    "tx_compressed",
];

/// A reading of counters, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Read the counters of protocols and devices of a namespace.
    ///
    /// # Errors
    /// The namespace can't be entered. Missing counters and files are left out: a kernel without
    /// IPv6 has no snmp6.
    pub fn read(namespace: BorrowedFd<'_>) -> io::Result<Counters> {
        netns::inside(namespace, || {
            let mut counters = Counters::default();
            counters.protocols();
            counters.devices(&text("dev"));
            Ok(counters)
        })
    }

    /// Read all counters of a namespace: its protocols, some of its devices including driver
    /// counters, connection tracking, and the machine's backlogs.
    ///
    /// # Errors
    /// The namespace can't be entered, or has no such device. Missing counters and files are left
    /// out.
    pub fn read_all(namespace: BorrowedFd<'_>, devices: &[&str]) -> io::Result<Counters> {
        // A separate thread, which does not have to return from the namespace.
        netns::apart(namespace, "plumb-counters", || {
            let mut counters = Counters::default();
            let mut netlink = Netlink::open()?;
            let ethtool = Ethtool::open()?;
            for device in devices {
                let of_link = netlink
                    .statistics(device)
                    .map_err(|e| io::Error::new(e.kind(), format!("device {device}: {e}")))?;
                for (name, value) in of_link {
                    counters.0.insert(format!("{device} {name}"), value);
                }
                for (name, value) in ethtool.statistics(device)? {
                    counters.add(format!("{device} ethtool {name}"), value);
                }
            }
            counters.protocols();
            counters.conntrack(&text("stat/nf_conntrack"));
            counters.softnet(&text("softnet_stat"));
            Ok(counters)
        })
    }

    /// Add counters of protocols of this thread's namespace.
    fn protocols(&mut self) {
        self.tables(&text("snmp"));
        self.tables(&text("netstat"));
        self.list(&text("snmp6"));
    }

    /// Add to a counter, which may be new.
    fn add(&mut self, name: String, n: u64) {
        *self.0.entry(name).or_default() += n;
    }

    /// The value of a counter; 0 if the kernel lacks it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<String, u64> {
        &self.0
    }

    /// Counters that increased since an earlier reading, with the increase.
    pub fn since(&self, before: &Counters) -> Counters {
        let grown = self.0.iter().filter_map(|(name, now)| {
            let by = now.checked_sub(before.get(name)).filter(|by| *by > 0)?;
            Some((name.clone(), by))
        });
        Counters(grown.collect())
    }

    /// Pairs of lines: `Udp: InDatagrams NoPorts ...` and `Udp: 12 0 ...`.
    fn tables(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (Some((table, names)), Some((_, values))) =
                (pair[0].split_once(':'), pair[1].split_once(':'))
            else {
                continue;
            };
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // Some are negative: settings, not counts.
                if let Ok(value) = value.parse() {
                    self.0.insert(format!("{table}{name}"), value);
                }
            }
        }
    }

    /// A name and a value on each line: `Ip6InHdrErrors 0`.
    fn list(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
                self.0.insert(name.into(), value);
            }
        }
    }

    /// A line per device, with counters in columns, below two header lines.
    fn devices(&mut self, text: &str) {
        for line in text.lines().skip(2) {
            let Some((device, values)) = line.split_once(':') else {
                continue;
            };
            for (name, value) in DEVICE.iter().zip(values.split_whitespace()) {
                if let Ok(value) = value.parse() {
                    self.0.insert(format!("{} {name}", device.trim()), value);
                }
            }
        }
    }

    /// Columns with names, in hexadecimal, a line for each CPU: added up, except for those that are
    /// the same in each.
    fn conntrack(&mut self, text: &str) {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        for line in lines {
            for (name, value) in names.iter().zip(line.split_whitespace()) {
                let Ok(value) = u64::from_str_radix(value, 16) else {
                    continue;
                };
                let key = format!("conntrack {name}");
                match *name {
                    "entries" => drop(self.0.insert(key, value)),
                    _ => self.add(key, value),
                }
            }
        }
    }

    /// Columns without names, in hexadecimal, a line for each CPU: added up.
    fn softnet(&mut self, text: &str) {
        for line in text.lines() {
            let columns: Vec<&str> = line.split_whitespace().collect();
            for (column, name) in SOFTNET {
                let value = columns.get(column).and_then(|v| u64::from_str_radix(v, 16).ok());
                if let Some(value) = value {
                    self.add(format!("softnet {name}"), value);
                }
            }
        }
    }
}

/// A file of this thread's namespace: /proc/net is the main thread's.
fn text(name: &str) -> String {
    fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that files are parsed by the names in them, in any order, that columns are named, and
    /// that CPUs are added up.
    #[test]
    fn files() {
        let mut all = Counters::default();
        all.tables(
            "Ip: Forwarding InReceives\nIp: 1 9\nTcp: MaxConn\nTcp: -1\n\
             Udp: InDatagrams NoPorts InErrors\nUdp: 7 3 2\n",
        );
        all.tables("TcpExt: SyncookiesSent ListenDrops\nTcpExt: 0 4\nodd\n");
        all.list("Ip6InReceives                   \t5\nUdp6RcvbufErrors \t3\nodd\n");
        all.devices(
            "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n\
             \x20  rx0:  600 10 0 1 0 0 0 0 60 1 0 4 0 0 0 0\n",
        );
        all.conntrack(
            "entries  found insert_failed\n00000010  00000001 00000002\n\
             00000010  00000001 0000000a\n",
        );
        all.softnet(
            "000000ff 00000002 00000001 0 0 0 0 0 0 0 00000003 0 00000000\n\
             00000001 00000003 00000000 0 0 0 0 0 0 0 00000000 0 00000001\n",
        );
        for (name, n) in [
            ("IpForwarding", 1),
            ("IpInReceives", 9),
            ("UdpInDatagrams", 7),
            ("UdpNoPorts", 3),
            ("UdpInErrors", 2),
            ("TcpExtListenDrops", 4),
            ("Ip6InReceives", 5),
            ("Udp6RcvbufErrors", 3),
            ("rx0 rx_bytes", 600),
            ("rx0 rx_dropped", 1),
            ("rx0 tx_dropped", 4),
            ("conntrack entries", 16),
            ("conntrack found", 2),
            ("conntrack insert_failed", 12),
            ("softnet processed", 256),
            ("softnet dropped", 5),
            ("softnet time_squeeze", 1),
            ("softnet flow_limit_count", 3),
        ] {
            assert_eq!(all.all().get(name), Some(&n), "{name}");
        }
        assert!(!all.all().contains_key("TcpMaxConn"));
    }

    /// Check that only increases are returned, including new counters.
    #[test]
    fn growth() {
        let of = |list: &[(&str, u64)]| {
            Counters(list.iter().map(|(n, v)| ((*n).to_string(), *v)).collect())
        };
        let before = of(&[("same", 1), ("more", 2), ("fell", 9), ("gone", 3)]);
        let after = of(&[("same", 1), ("more", 5), ("fell", 1), ("new", 4)]);
        assert_eq!(after.since(&before), of(&[("more", 3), ("new", 4)]));
    }

    /// Check that this kernel's files have the expected names.
    #[test]
    fn of_this_kernel() {
        let mut all = Counters::default();
        all.protocols();
        all.softnet(&text("softnet_stat"));
        for name in ["IpInDiscards", "UdpInErrors", "TcpExtListenDrops", "softnet dropped"] {
            assert!(all.all().contains_key(name), "{name}");
        }
    }
}
