//! Counters that the kernel keeps anyway: of devices, of their drivers, of the
//! protocols of a namespace, and of the machine's backlogs.
//!
//! They cost nothing, and say of most frames where they went. What two readings differ
//! by is told under names like `rx0 rx_dropped`, `rx0 ethtool rx_queue_0_drops`,
//! `snmp UdpInErrors` or `softnet dropped`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use netplumb_sys::ethtool::Ethtool;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns;

/// Columns of /proc/net/softnet_stat that tell something, from the first on
/// (softnet_seq_show in net/core/net-procfs.c).
const SOFTNET: [(usize, &str); 4] = [
    (0, "processed"),
    (1, "dropped"),
    (2, "time_squeeze"),
    (10, "flow_limit_count"),
];

/// A reading of counters, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Of a namespace and some of its devices. `softnet` is the whole machine's.
    ///
    /// # Errors
    /// The namespace can't be entered, or has no such device. A counter that is not
    /// there is none, and so are all of a file that is not.
    pub fn read(namespace: BorrowedFd<'_>, devices: &[&str]) -> io::Result<Counters> {
        // A thread of its own, so that nobody has to come back from the namespace.
        netns::apart(namespace, "plumb-counters", || Counters::here(devices))
    }

    /// Of the namespace that this thread is in.
    fn here(devices: &[&str]) -> io::Result<Counters> {
        let mut all = BTreeMap::new();
        let mut netlink = Netlink::open()?;
        let ethtool = Ethtool::open()?;
        for device in devices {
            let of_link = netlink
                .statistics(device)
                .map_err(|e| io::Error::new(e.kind(), format!("device {device}: {e}")))?;
            for (name, value) in of_link {
                all.insert(format!("{device} {name}"), value);
            }
            for (name, value) in ethtool.statistics(device)? {
                *all.entry(format!("{device} ethtool {name}")).or_default() += value;
            }
        }
        // `thread-self`: /proc/net is that of the whole process.
        let text = |name: &str| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        };
        pairs("snmp", &text("snmp"), &mut all);
        pairs("netstat", &text("netstat"), &mut all);
        lines("snmp", &text("snmp6"), &mut all);
        conntrack(&text("stat/nf_conntrack"), &mut all);
        softnet(&text("softnet_stat"), &mut all);
        Ok(Counters(all))
    }

    /// What grew since an earlier reading, and by how much.
    pub fn since(&self, before: &Counters) -> BTreeMap<String, u64> {
        let grown = self.0.iter().filter_map(|(name, now)| {
            let was = before.0.get(name).copied().unwrap_or(0);
            Some((name.clone(), now.checked_sub(was).filter(|by| *by > 0)?))
        });
        grown.collect()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<String, u64> {
        &self.0
    }
}

/// Pairs of lines: `Udp: InDatagrams NoPorts ...` and `Udp: 12 0 ...`.
fn pairs(file: &str, text: &str, all: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let mut names = pair[0].split_whitespace();
        let mut values = pair[1].split_whitespace();
        let protocol = names.next().unwrap_or_default().trim_end_matches(':');
        values.next();
        for (name, value) in names.zip(values) {
            if let Ok(value) = value.parse() {
                all.insert(format!("{file} {protocol}{name}"), value);
            }
        }
    }
}

/// A name and a number a line.
fn lines(file: &str, text: &str, all: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(char::is_whitespace)
            && let Ok(value) = value.trim().parse()
        {
            all.insert(format!("{file} {name}"), value);
        }
    }
}

/// Columns with names, in hexadecimal, a line for each CPU: added up, but for what is
/// the same in each.
fn conntrack(text: &str, all: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    for line in lines {
        for (name, value) in names.iter().zip(line.split_whitespace()) {
            let Ok(value) = u64::from_str_radix(value, 16) else {
                continue;
            };
            let sum = all.entry(format!("conntrack {name}")).or_default();
            match *name {
                "entries" => *sum = value,
                _ => *sum += value,
            }
        }
    }
}

/// Columns without names, in hexadecimal, a line for each CPU: added up.
fn softnet(text: &str, all: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        for (column, name) in SOFTNET {
            let value = columns
                .get(column)
                .and_then(|v| u64::from_str_radix(v, 16).ok());
            if let Some(value) = value {
                *all.entry(format!("softnet {name}")).or_default() += value;
            }
        }
    }
}

#[cfg(test)]
mod tests;
