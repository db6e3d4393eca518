//! What the kernel counts in a namespace by itself: /proc/net, read from within.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use netplumb_sys::netns::Namespace;

/// Counters by name: `Ip.InHdrErrors`, `Ip6.InHdrErrors`, `rx0.rx_dropped`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<String, u64>);

/// Columns of /proc/net/dev (dev_seq_printf_stats, net/core/net-procfs.c).
const DEVICE: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo",
    "tx_collisions",
    "tx_carrier",
    "tx_compressed",
];

impl Counters {
    /// All of a namespace, now.
    pub(crate) fn read(namespace: &Namespace) -> io::Result<Counters> {
        namespace.inside(|| {
            let net = "/proc/thread-self/net";
            let mut counters = Counters::default();
            counters.tables(&fs::read_to_string(format!("{net}/snmp"))?);
            counters.tables(&fs::read_to_string(format!("{net}/netstat"))?);
            // A kernel without IPv6 has none.
            counters.list(&fs::read_to_string(format!("{net}/snmp6")).unwrap_or_default());
            counters.devices(&fs::read_to_string(format!("{net}/dev"))?);
            Ok(counters)
        })
    }

    /// Lines in pairs: names, then values.
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
                    self.0.insert(format!("{table}.{name}"), value);
                }
            }
        }
    }

    /// A name and a value on each line: `Ip6InHdrErrors 0`.
    fn list(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) else {
                continue;
            };
            let table = ["Icmp6", "UdpLite6", "Udp6", "Ip6"]
                .into_iter()
                .find(|table| name.starts_with(table));
            if let Some(table) = table {
                let name = &name[table.len()..];
                self.0.insert(format!("{table}.{name}"), value);
            }
        }
    }

    fn devices(&mut self, text: &str) {
        for line in text.lines() {
            let Some((device, values)) = line.split_once(':') else {
                continue;
            };
            for (name, value) in DEVICE.iter().zip(values.split_whitespace()) {
                if let Ok(value) = value.parse() {
                    self.0.insert(format!("{}.{name}", device.trim()), value);
                }
            }
        }
    }

    /// A counter; none that the kernel does not have counts.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// What was counted from then to now.
    pub(crate) fn since(&self, then: &Counters) -> Counters {
        let counted = |(name, now): (&String, &u64)| {
            let counted = now.saturating_sub(then.get(name));
            (counted > 0).then(|| (name.clone(), counted))
        };
        Counters(self.0.iter().filter_map(counted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that counters are found in what the kernel writes, of all three forms, and
    /// that a difference has what was counted alone.
    #[test]
    fn counters() {
        let mut then = Counters::default();
        then.tables(
            "Ip: Forwarding DefaultTTL InReceives InHdrErrors\nIp: 1 64 100 2\n\
             Tcp: MaxConn\nTcp: -1\n",
        );
        then.list("Ip6InReceives                   \t7\nUdp6RcvbufErrors \t3\nIcmp6InMsgs 1\n");
        then.devices(
            "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n\
             \x20  rx0:  600 10 0 1 0 0 0 0 60 1 0 4 0 0 0 0\n",
        );
        assert_eq!(then.get("Ip.InHdrErrors"), 2);
        assert_eq!(then.get("Ip6.InReceives"), 7);
        assert_eq!(then.get("Udp6.RcvbufErrors"), 3);
        assert_eq!(then.get("rx0.rx_dropped"), 1);
        assert_eq!(then.get("rx0.tx_dropped"), 4);
        assert_eq!(then.get("Tcp.MaxConn"), 0);
        let mut now = then.clone();
        now.0.insert("Ip.InHdrErrors".into(), 5);
        let since = now.since(&then);
        assert_eq!(since.get("Ip.InHdrErrors"), 3);
        assert_eq!(since.0.len(), 1);
    }
}
