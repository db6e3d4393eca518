use std::os::fd::AsFd;

use super::super::sandbox::{attached, wait, with, xdp};
use super::*;
use crate::capability::program::returning;

/// Check that files are read by the names in them, and CPUs' lines added up.
#[test]
fn files() {
    let mut all = BTreeMap::new();
    pairs(
        "snmp",
        "Ip: Forwarding InReceives\nIp: 1 9\nUdp: InDatagrams NoPorts InErrors\nUdp: 7 3 2\n",
        &mut all,
    );
    lines(
        "snmp",
        "Ip6InReceives                   \t5\nodd\n",
        &mut all,
    );
    conntrack(
        "entries  found insert_failed\n00000010  00000001 00000002\n00000010  00000001 0000000a\n",
        &mut all,
    );
    softnet(
        "000000ff 00000002 00000001 0 0 0 0 0 0 0 00000003 0 00000000\n\
         00000001 00000003 00000000 0 0 0 0 0 0 0 00000000 0 00000001\n",
        &mut all,
    );
    let told: Vec<_> = all.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(
        told,
        [
            ("conntrack entries", 16),
            ("conntrack found", 2),
            ("conntrack insert_failed", 12),
            ("snmp Ip6InReceives", 5),
            ("snmp IpForwarding", 1),
            ("snmp IpInReceives", 9),
            ("snmp UdpInDatagrams", 7),
            ("snmp UdpInErrors", 2),
            ("snmp UdpNoPorts", 3),
            ("softnet dropped", 5),
            ("softnet flow_limit_count", 3),
            ("softnet processed", 256),
            ("softnet time_squeeze", 1),
        ]
    );
}

/// Check that only what grew is told, a counter that is new included.
#[test]
fn growth() {
    let of =
        |list: &[(&str, u64)]| Counters(list.iter().map(|(n, v)| ((*n).to_string(), *v)).collect());
    let before = of(&[("same", 1), ("more", 2), ("fell", 9), ("gone", 3)]);
    let after = of(&[("same", 1), ("more", 5), ("fell", 1), ("new", 4)]);
    let grown = after.since(&before);
    assert_eq!(
        grown,
        BTreeMap::from([("more".to_string(), 3), ("new".to_string(), 4)])
    );
}

/// Check that frames are counted by both devices and by the driver, to the packet; and
/// that a device which is not there is named.
#[test]
fn as_root_frames_are_counted() {
    const FRAMES: u32 = 200;
    with(|sandbox| {
        let _dropping = attached(&xdp(&returning(1)), sandbox.pair.right);
        let read = || Counters::read(sandbox.namespace.as_fd(), &["plumb0", "plumb1"]).unwrap();
        let before = read();
        sandbox.send(FRAMES);
        let grown = || read().since(&before);
        wait(|| grown().get("plumb1 rx_packets") == Some(&u64::from(FRAMES)));
        let grown = grown();
        let sum = |part: &str| -> u64 {
            let named = grown.iter().filter(|(name, _)| name.contains(part));
            named.map(|(_, n)| n).sum()
        };
        let frames = u64::from(FRAMES);
        assert_eq!(sum("plumb0 tx_packets"), frames, "{grown:?}");
        assert_eq!(sum("plumb1 rx_packets"), frames, "{grown:?}");
        assert_eq!(sum("_xdp_drops"), frames, "{grown:?}");
        let error = Counters::read(sandbox.namespace.as_fd(), &["plumb9"]).unwrap_err();
        assert!(error.to_string().contains("plumb9"), "{error}");
    });
}
