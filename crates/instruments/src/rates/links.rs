//! Counters that the kernel keeps anyway: of devices, of their drivers, of the
//! protocols of a namespace, and of the machine's backlogs.
//!
//! They cost nothing, and say of most frames where they went. What two readings differ
//! by is told under names like `rx0 rx_dropped`, `rx0 ethtool rx_queue_0_drops`,
//! `snmp UdpInErrors` or `softnet dropped`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, Stats64};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::ethtool;

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
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("plumb-counters".into());
            let reader = reader.spawn_scoped(scope, || {
                // SAFETY: setns takes a descriptor and a flag, and touches no memory.
                if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                Counters::here(devices)
            })?;
            let failed = |_| io::Error::other("the thread that reads counters failed");
            reader.join().map_err(failed)?
        })
    }

    /// Of the namespace that this thread is in.
    fn here(devices: &[&str]) -> io::Result<Counters> {
        let mut all = BTreeMap::new();
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        for device in devices {
            let stats = ask(&socket, device)
                .map_err(|e| io::Error::new(e.kind(), format!("device {device}: {e}")))?;
            for (name, value) in stats.iter().flat_map(of_link) {
                all.insert(format!("{device} {name}"), value);
            }
            for (name, value) in ethtool::statistics(socket.as_raw_fd(), device)? {
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

/// A device's statistics by rtnetlink (IFLA_STATS64).
fn ask(socket: &Socket, device: &str) -> io::Result<Option<Stats64>> {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(device.to_string()));
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    header.sequence_number = 1;
    let message = RouteNetlinkMessage::GetLink(message);
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut stats = None;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(io::Error::other)?;
            let length = message.header.length as usize;
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    stats = link.attributes.into_iter().find_map(|a| match a {
                        LinkAttribute::Stats64(stats) => Some(stats),
                        _ => None,
                    });
                }
                NetlinkPayload::Error(error) => {
                    return match error.code {
                        None => Ok(stats),
                        Some(_) => Err(error.to_io()),
                    };
                }
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            rest = rest.get(length.max(1).next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
}

/// struct rtnl_link_stats64, by the names of its fields.
fn of_link(stats: &Stats64) -> [(&'static str, u64); 21] {
    [
        ("rx_packets", stats.rx_packets),
        ("tx_packets", stats.tx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("tx_bytes", stats.tx_bytes),
        ("rx_errors", stats.rx_errors),
        ("tx_errors", stats.tx_errors),
        ("rx_dropped", stats.rx_dropped),
        ("tx_dropped", stats.tx_dropped),
        ("multicast", stats.multicast),
        ("collisions", stats.collisions),
        ("rx_length_errors", stats.rx_length_errors),
        ("rx_over_errors", stats.rx_over_errors),
        ("rx_crc_errors", stats.rx_crc_errors),
        ("rx_frame_errors", stats.rx_frame_errors),
        ("rx_fifo_errors", stats.rx_fifo_errors),
        ("rx_missed_errors", stats.rx_missed_errors),
        ("tx_aborted_errors", stats.tx_aborted_errors),
        ("tx_carrier_errors", stats.tx_carrier_errors),
        ("tx_fifo_errors", stats.tx_fifo_errors),
        ("rx_nohandler", stats.rx_nohandler),
        ("rx_otherhost_dropped", stats.rx_otherhost_dropped),
    ]
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
