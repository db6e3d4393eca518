//! Named causes of loss, from the counters that the kernel keeps.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use crate::ends::inside;

/// Counters of packets that went missing, by cause ("UdpRcvbufErrors").
pub type Drops = BTreeMap<String, u64>;

/// Counters of /proc/net/snmp that count packets lost, not merely odd.
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
];

/// Read the loss counters of a namespace, devices included.
///
/// # Errors
/// The namespace can't be entered; a counter that is not there is none.
pub fn read(namespace: BorrowedFd<'_>) -> io::Result<Drops> {
    inside(namespace, || {
        let mut drops = Drops::new();
        // `thread-self`: /proc/net is that of the whole process.
        let text = |name: &str| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
        };
        snmp(&text("snmp"), &mut drops);
        snmp6(&text("snmp6"), &mut drops);
        devices(&text("dev"), &mut drops);
        Ok(drops)
    })
}

/// What was lost between two readings; causes that did not move are left out.
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

/// Pairs of lines: `Udp: InDatagrams NoPorts ...` and `Udp: 12 0 ...`.
fn snmp(text: &str, drops: &mut Drops) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let mut names = pair[0].split_whitespace();
        let mut values = pair[1].split_whitespace();
        let prefix = names
            .next()
            .unwrap_or_default()
            .trim_end_matches(':')
            .to_string();
        values.next();
        for (name, value) in names.zip(values) {
            let name = format!("{prefix}{name}");
            if let (true, Ok(value)) = (SNMP.contains(&name.as_str()), value.parse()) {
                drops.insert(name, value);
            }
        }
    }
}

fn snmp6(text: &str, drops: &mut Drops) {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(char::is_whitespace)
            && let (true, Ok(value)) = (SNMP.contains(&name), value.trim().parse())
        {
            drops.insert(name.to_string(), value);
        }
    }
}

/// Columns 3 and 4 (receive errors, drops) and 11 and 12 (transmit).
fn devices(text: &str, drops: &mut Drops) {
    for line in text.lines().skip(2) {
        let Some((device, rest)) = line.split_once(':') else {
            continue;
        };
        let columns: Vec<&str> = rest.split_whitespace().collect();
        for (index, what) in [
            (2, "rx errors"),
            (3, "rx drops"),
            (10, "tx errors"),
            (11, "tx drops"),
        ] {
            if let Some(value) = columns.get(index).and_then(|c| c.parse().ok()) {
                drops.insert(format!("{} {what}", device.trim()), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the pairs of lines are read by name, not by place.
    #[test]
    fn snmp_by_name() {
        let mut drops = Drops::new();
        snmp(
            "Udp: InDatagrams NoPorts InErrors\nUdp: 7 3 2\n",
            &mut drops,
        );
        assert_eq!(
            drops,
            Drops::from([("UdpNoPorts".into(), 3), ("UdpInErrors".into(), 2)])
        );
    }

    /// Check that a device's four counters are found, and others left alone.
    #[test]
    fn device_columns() {
        let mut drops = Drops::new();
        devices(
            "h\nh\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
            &mut drops,
        );
        assert_eq!(
            drops.into_iter().collect::<Vec<_>>(),
            [
                ("eth0 rx drops".to_string(), 4),
                ("eth0 rx errors".to_string(), 3),
                ("eth0 tx drops".to_string(), 12),
                ("eth0 tx errors".to_string(), 11),
            ]
        );
    }

    /// Check that only what moved counts.
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
