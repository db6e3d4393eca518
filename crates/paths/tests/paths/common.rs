//! Namespaces joined by veth, and frames made by hand.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netplumb_model::bench::Stamp;
use netplumb_model::bench::{FrameKind, Handled};
use netplumb_paths::{Device, Site};
use netplumb_sys::netns::Namespace;

pub(crate) const PORT: u16 = 9_009;
/// Frames of a test.
pub(crate) const FRAMES: u64 = 2_000;
/// Frames sent at once: a veth's ring holds 256 (VETH_RING_SIZE).
const BURST: u64 = 50;

/// A generator's namespace, one under test, and a sink's: tx0 - rx0, out0 - sink0.
pub(crate) struct Wires {
    pub(crate) tx: Namespace,
    pub(crate) middle: Namespace,
    pub(crate) sink: Namespace,
    pub(crate) v6: bool,
    pub(crate) kind: FrameKind,
    /// testpmd takes all of a CPU, on which another path's reader would be too slow.
    _turn: MutexGuard<'static, ()>,
}

/// Tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const TX: [u8; 6] = [2, 0x4e, 0x50, 1, 0, 1];
const RX: [u8; 6] = [2, 0x4e, 0x50, 1, 0, 2];
const OUT: [u8; 6] = [2, 0x4e, 0x50, 2, 0, 1];
const SINK: [u8; 6] = [2, 0x4e, 0x50, 2, 0, 2];

impl Wires {
    pub(crate) fn new(v6: bool) -> Wires {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let [tx, middle, sink] = [(); 3].map(|()| Namespace::new().unwrap());
        for namespace in [&tx, &middle, &sink] {
            // No chatter but ours.
            let off = if v6 { "0" } else { "1" };
            for (key, value) in [
                ("all.disable_ipv6", off),
                ("default.disable_ipv6", off),
                ("default.accept_dad", "0"),
                ("default.router_solicitations", "0"),
            ] {
                let key = format!("net.ipv6.conf.{key}");
                namespace.set_sysctl(&key, value).unwrap();
            }
        }
        tx.add_veth(("tx0", TX), ("rx0", RX), &middle, Some(1)).unwrap();
        middle.add_veth(("out0", OUT), ("sink0", SINK), &sink, Some(1)).unwrap();
        for namespace in [&tx, &middle, &sink] {
            for device in namespace.device_states().unwrap() {
                if device.name.ends_with('0') && device.mac.first() == Some(&2) {
                    namespace.set_up(device.index, None).unwrap();
                }
            }
        }
        let wires = Wires { tx, middle, sink, v6, kind: FrameKind::Udp, _turn: turn };
        let start = Instant::now();
        while !wires.running() {
            assert!(start.elapsed() < Duration::from_secs(5), "no carrier");
            std::thread::sleep(Duration::from_millis(2));
        }
        wires
    }

    fn running(&self) -> bool {
        [&self.tx, &self.middle, &self.sink].iter().all(|n| {
            let devices = n.device_states().unwrap();
            devices.iter().all(|d| !d.up || d.running)
        })
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        match self.v6 {
            false => ("198.18.1.1".parse().unwrap(), "198.18.2.1".parse().unwrap()),
            true => ("2001:2:0:1::1".parse().unwrap(), "2001:2:0:2::1".parse().unwrap()),
        }
    }

    fn device(namespace: &Namespace, name: &str) -> Device {
        let devices = namespace.device_states().unwrap();
        let found = devices.into_iter().find(|d| d.name == name).unwrap();
        Device {
            name: found.name,
            index: found.index,
            mac: found.mac.try_into().unwrap(),
            permanent_mac: None,
        }
    }

    fn at(&self, namespace: &Namespace, ingress: &str, egress: Option<&str>) -> Site {
        let (source, destination) = self.addresses();
        Site {
            namespace: namespace.try_clone().unwrap(),
            ingress: Wires::device(namespace, ingress),
            egress: egress.map(|name| Wires::device(namespace, name)),
            next_mac: SINK,
            source,
            destination,
            port: PORT,
            kind: self.kind,
            journal: None,
        }
    }

    /// Where paths are set up.
    pub(crate) fn site(&self) -> Site {
        self.at(&self.middle, "rx0", Some("out0"))
    }

    /// Where forwarded frames come out.
    pub(crate) fn sink_site(&self) -> Site {
        self.at(&self.sink, "sink0", None)
    }

    /// Where returned frames come out.
    pub(crate) fn generator_site(&self) -> Site {
        self.at(&self.tx, "tx0", None)
    }

    /// The number that the namespace's own chatter does not have.
    pub(crate) fn frame(&self, to_mac: [u8; 6]) -> Frame {
        let (source, destination) = self.addresses();
        Frame { to_mac, source, destination, port: PORT, kind: self.kind, ttl: 64, stamp: None }
    }

    /// Send frames out of tx0, a few at a time.
    pub(crate) fn send(&self, frames: impl Iterator<Item = Vec<u8>>) {
        let index = Wires::device(&self.tx, "tx0").index;
        let socket = self.tx.inside(packet_socket).unwrap();
        for (sent, frame) in (1_u64..).zip(frames) {
            send(&socket, index, &frame).unwrap();
            if sent % BURST == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    pub(crate) fn send_same(&self, frame: &Frame, count: u64) {
        let bytes = frame.bytes();
        self.send((0..count).map(|_| bytes.clone()));
    }

    /// What the devices count, for when a test fails.
    pub(crate) fn counters(&self) -> String {
        let mut text = String::new();
        for (namespace, device) in [
            (&self.tx, "tx0"),
            (&self.middle, "rx0"),
            (&self.middle, "out0"),
            (&self.sink, "sink0"),
        ] {
            for command in ["ip -s link show dev", "ethtool -S"] {
                let mut words = command.split_whitespace();
                let mut run = Command::new(words.next().unwrap());
                run.args(words).arg(device);
                if let Ok(output) = namespace.inside(|| run.output()) {
                    text += &String::from_utf8_lossy(&output.stdout);
                }
            }
        }
        text
    }

    /// All that the namespace under test has, in words.
    pub(crate) fn state(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for command in [
            "ip -d address",
            "ip route show table all",
            "ip neighbour",
            "nft list ruleset",
            "iptables-legacy-save",
            "ethtool -k rx0",
            "sysctl net.ipv4.ip_forward net.ipv4.conf.all.rp_filter net.ipv4.conf.rx0.rp_filter \
             net.ipv6.conf.all.forwarding",
            "tc qdisc show",
        ] {
            let mut words = command.split_whitespace();
            let mut run = Command::new(words.next().unwrap());
            run.args(words).stderr(Stdio::null());
            let output = self.middle.inside(|| run.output());
            let Ok(output) = output else { continue };
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                // What goes by in the meantime: ages, promiscuity, learned peers; and
                // what iptables makes of an empty table.
                let line = line.split(" promiscuity ").next().unwrap();
                if !line.contains("fe80:") && !line.starts_with(['#', ':', '*', 'C']) {
                    lines.insert(format!("{command}: {line}"));
                }
            }
        }
        lines
    }
}

/// A frame, without the checksum at its end.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) to_mac: [u8; 6],
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
    pub(crate) kind: FrameKind,
    pub(crate) ttl: u8,
    /// When it was to be sent.
    pub(crate) stamp: Option<u64>,
}

impl Frame {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let v6 = self.destination.is_ipv6();
        let mut payload = vec![0_u8; 18];
        if let Some(due) = self.stamp {
            let stamp = Stamp { sequence: 0, due_ns: due };
            payload[..16].copy_from_slice(&stamp.bytes());
        }
        let (number, mut l4, checksum_at) = match self.kind {
            FrameKind::Udp => {
                let mut header = 4_000_u16.to_be_bytes().to_vec();
                header.extend(self.port.to_be_bytes());
                header.extend((8 + payload.len() as u16).to_be_bytes());
                header.extend([0, 0]);
                (17, header, 6)
            }
            FrameKind::TcpSyn => {
                let mut header = 4_000_u16.to_be_bytes().to_vec();
                header.extend(self.port.to_be_bytes());
                header.extend([0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0]);
                (6, header, 16)
            }
            FrameKind::Icmp if v6 => (58, vec![128, 0, 0, 0, 0, 1, 0, 1], 2),
            FrameKind::Icmp => (1, vec![8, 0, 0, 0, 0, 1, 0, 1], 2),
        };
        l4.extend(payload);
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let ends = [octets(self.source), octets(self.destination)].concat();
        let mut summed = l4.clone();
        if number != 1 {
            summed.extend(&ends);
            summed.extend([0, number]);
            summed.extend((l4.len() as u16).to_be_bytes());
        }
        let sum = checksum(&summed).to_be_bytes();
        l4[checksum_at..checksum_at + 2].copy_from_slice(&sum);

        let mut frame = self.to_mac.to_vec();
        frame.extend(TX);
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((l4.len() as u16).to_be_bytes());
            frame.extend([number, self.ttl]);
            frame.extend(ends);
        } else {
            frame.extend([0x08, 0x00]);
            let mut header = vec![0x45, 0];
            header.extend((20 + l4.len() as u16).to_be_bytes());
            header.extend([0, 0, 0x40, 0, self.ttl, number, 0, 0]);
            header.extend(ends);
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            frame.extend(header);
        }
        frame.extend(l4);
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers, and gives a descriptor of our own.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send(socket: &OwnedFd, index: u32, frame: &[u8]) -> io::Result<()> {
    // SAFETY: an all-zero address is a valid value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = index as i32;
    // SAFETY: frame and address are of the lengths given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether a namespace is as it was; what differs, if it isn't.
pub(crate) fn assert_same(before: &BTreeSet<String>, wires: &Wires, what: &str) {
    let now = wires.state();
    let differs: Vec<_> = before.symmetric_difference(&now).collect();
    assert!(differs.is_empty(), "{what}: {differs:#?}");
}

/// Poll until this many packets are reported, or it is clear that they won't be.
pub(crate) fn settle(mut ask: impl FnMut() -> Handled, packets: u64) -> Handled {
    let start = Instant::now();
    loop {
        let handled = ask();
        let lost: u64 = handled.lost.values().sum();
        if handled.total() + lost >= packets || start.elapsed() > Duration::from_secs(3) {
            return handled;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
