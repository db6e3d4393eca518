//! Packets, windows, and checks of both.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use netplumb_instruments::live::Live;
use netplumb_instruments::registry::attach;
use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::span::StageKind;
use netplumb_model::timing::{Filter, Selection, StageTimes, TimingSpec, Window};
use netplumb_model::topology::ArmTopology;
use netplumb_testkit::has_root;
pub(crate) use netplumb_testkit::skip;
use netplumb_workload::ends::{Ends, Sockets};

pub(crate) const PACKETS: u64 = 400;

/// Whether the tests can run here.
pub(crate) fn cannot() -> bool {
    if !has_root() {
        return true;
    }
    false
}

/// Serializes tests that load the machine or look closely.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that failed held it.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn veth(family: Family, forward: bool) -> TopologyPlan {
    TopologyPlan {
        host: None,
        link: Link::Veth,
        family,
        topology: if forward { ArmTopology::forward() } else { ArmTopology::direct() },
        queues: None,
        mtu_bytes: None,
        sysctl: BTreeMap::new(),
        offload: BTreeMap::new(),
        nics: Default::default(),
        nft: None,
        qdisc: None,
        programs: Vec::new(),
    }
}

pub(crate) fn sockets(topology: &Topology, proto: Proto) -> Sockets {
    let ends = Ends {
        tx_namespace: topology.tx.try_clone().unwrap(),
        rx_namespace: topology.rx.try_clone().unwrap(),
        between: Vec::new(),
        tx_address: topology.tx_address,
        rx_address: topology.rx_address,
        to_address: topology.to_address,
    };
    // A child that another test starts has what we have open for a moment, and so the
    // ports of what we have closed.
    let begun = std::time::Instant::now();
    loop {
        match ends.open(proto) {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse
                    && begun.elapsed().as_secs() < 2 =>
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

pub(crate) fn spec(topology: &Topology, proto: Proto) -> TimingSpec {
    let namespace = |n: &netplumb_sys::netns::Namespace| n.inode().unwrap();
    let mut namespaces = vec![namespace(&topology.tx), namespace(&topology.rx)];
    namespaces.extend(topology.between.iter().map(|(_, between)| namespace(between)));
    TimingSpec {
        instrument: "stages".into(),
        roles: Default::default(),
        filter: Filter { protos: vec![proto], namespaces, ..Filter::default() },
        selection: Selection::default(),
        mechanism: None,
        one_packet: 0,
        profile: None,
        events: None,
        spans: None,
        calls: None,
    }
}

pub(crate) fn stages(spec: &TimingSpec) -> Box<dyn Live> {
    attach(spec, &|_, _| None).unwrap()
}

/// Send once; how many bytes went.
pub(crate) fn send(sockets: &Sockets, payload: &[u8]) -> isize {
    let fd = sockets.tx.as_raw_fd();
    // SAFETY: the buffer outlives the call, and the length is its own.
    unsafe { libc::send(fd, payload.as_ptr().cast(), payload.len(), 0) }
}

/// Receive once; how many bytes came.
pub(crate) fn receive(sockets: &Sockets, flags: i32) -> isize {
    let mut buffer = [0_u8; 65_536];
    let fd = sockets.rx.as_raw_fd();
    // SAFETY: the buffer outlives the call, and the length is its own.
    unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) }
}

/// One packet there, and out of the socket.
pub(crate) fn one(sockets: &Sockets, payload: &[u8]) {
    let sent = send(sockets, payload);
    assert_eq!(sent, payload.len() as isize, "{}", std::io::Error::last_os_error());
    let got = receive(sockets, 0);
    assert!(got > 0, "{}", std::io::Error::last_os_error());
}

/// An echo request, checksummed for IPv4; the kernel does it for IPv6.
pub(crate) fn echo(family: Family) -> Vec<u8> {
    let mut packet = vec![if family == Family::V4 { 8 } else { 128 }, 0, 0, 0, 1, 2, 0, 1];
    packet.extend([7; 10]);
    if family == Family::V4 {
        let sum: u32 = packet.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
        let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

pub(crate) fn way(window: &Window, direction: Direction) -> Vec<&StageTimes> {
    let stages = window.stages.iter();
    stages.filter(|s| s.direction == direction).collect()
}

pub(crate) fn of<'a>(window: &'a Window, direction: Direction, name: &str) -> &'a StageTimes {
    let mut stages = window.stages.iter();
    let found = stages.find(|s| s.direction == direction && s.name == name);
    found.unwrap_or_else(|| panic!("no stage {direction} {name}: {window:#?}"))
}

/// The stages up to the total add up to it, to the nanosecond.
pub(crate) fn adds_up(window: &Window, direction: Direction) {
    let stages = way(window, direction);
    let total = stages.iter().find(|s| s.kind == StageKind::Total).unwrap();
    let parts = stages.iter().filter(|s| s.order < total.order);
    assert_eq!(
        parts.map(|s| s.times.total_ns).sum::<u64>(),
        total.times.total_ns,
        "{direction}: {stages:#?}"
    );
    for stage in &stages {
        let buckets: u64 = stage.times.buckets.iter().map(|b| b.1).sum();
        assert_eq!(buckets, stage.times.count, "{}", stage.name);
        if stage.order <= total.order {
            assert_eq!(stage.times.count + stage.passed_over, total.times.count, "{}", stage.name);
        }
    }
}

pub(crate) fn show(window: &Window) -> String {
    let mut text = String::new();
    for s in &window.stages {
        let mean = s.times.total_ns / s.times.count.max(1);
        text += &format!(
            "{} {} {:8} {:14} {:6} x {:8} ns  min {:8} max {:8}  passed over {}\n",
            s.proto,
            s.family,
            s.direction,
            s.name,
            s.times.count,
            mean,
            s.times.min_ns,
            s.times.max_ns,
            s.passed_over
        );
    }
    text + &format!("{:?}\n{:?}\n{:?}\n", window.ledger, window.drops, window.losses)
}

/// How often a ledger has something.
pub(crate) fn seen(window: &Window, what: &str) -> u64 {
    window.ledger.get(what).copied().unwrap_or(0)
}
