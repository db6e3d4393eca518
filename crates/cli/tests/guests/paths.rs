//! `plumb path` over every link, with its sums checked against each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::Place;
use netplumb_model::class::{Class, Direction, Family, Proto};
use netplumb_model::recording::Recording;
use netplumb_report::analysis::{ClassView, NO_LAYER, classes};

/// More of a path than this may not be in no layer.
const MAX_UNNAMED_PERCENT: f64 = 3.0;

/// What every protocol is measured as, IPv4 and IPv6 alike, without a router.
const CLASSES: &[(Proto, &[Direction])] = &[
    (Proto::Raw, &[Direction::Tx, Direction::Rx, Direction::Echo]),
    (Proto::Udp, &[Direction::Tx, Direction::Rx]),
    (Proto::Tcp, &[Direction::Tx, Direction::Rx, Direction::Ack]),
];

/// Run all six arms over a link, in one guest, and check them.
fn all_arms(link: &str) {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place
        .run(&format!(
            "path --link {link} --proto raw,udp,tcp --family ipv4,ipv6 --packets 20 --blocks 1"
        ))
        .code(0);
    let recording = place.recording("path.plumb");
    check_sums(&recording);
    let mut have: BTreeSet<(Family, Class)> = BTreeSet::new();
    for view in classes(&recording) {
        check_class(&view);
        have.insert((view.arm().family, view.class));
    }
    for family in Family::ALL {
        for (proto, directions) in CLASSES {
            for direction in *directions {
                let class = Class { proto: *proto, direction: *direction };
                assert!(have.contains(&(*family, class)), "no {class} of {family}");
            }
        }
    }
}

/// Check what holds for a whole recording: it is complete, nothing was lost, every packet is
/// accounted for, and the counts of blocks, taken apart from the functions, are their sum.
fn check_sums(recording: &Recording) {
    assert!(recording.complete);
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    assert!(!recording.blocks.is_empty());
    for (id, block) in recording.blocks.iter().enumerate() {
        let arm = &recording.arms[block.arm as usize].name;
        assert!(block.ledger.closes(), "{arm}: {:?}", block.ledger);
        assert_eq!(block.ledger.offered, block.ledger.delivered, "{arm}");
        let of_block = recording.costs.iter().filter(|c| c.block as usize == id);
        let (calls, insns) =
            of_block.fold((0, 0), |(calls, insns), cost| (calls + cost.calls, insns + cost.own));
        assert_eq!(insns, block.kernel(), "self costs of {arm}");
        assert_eq!(calls, block.entered, "calls of {arm}");
        // Calls of the sleeper that were under way when the window began or ended.
        assert!(block.entered - block.returned < 100, "{arm}: {block:?}");
    }
}

/// Check what holds for a class: the sums over its functions, contexts and layers
/// are its total; a node costs what its subtree does; a function is called as
/// often as its callers call it.
fn check_class(view: &ClassView<'_>) {
    let name = format!("{} over {}", view.class, view.arm().name);
    let sum = |insns: Vec<u64>| insns.iter().sum::<u64>();
    assert_eq!(view.total, sum(view.by_block.clone()), "{name}");
    assert_eq!(
        view.total,
        sum(view.functions.iter().map(|f| f.self_insns).collect()),
        "{name}: functions"
    );
    assert_eq!(
        view.total,
        sum(view.layers.iter().map(|(_, insns)| *insns).collect()),
        "{name}: layers"
    );
    assert_eq!(view.total, sum(view.contexts.values().copied().collect()), "{name}: contexts");
    // Each node's cost, given to the root that it is under.
    let nodes = &view.recording.nodes;
    let mut under: BTreeMap<u32, u64> = BTreeMap::new();
    let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
    for (id, node) in &view.nodes {
        let mut root = *id;
        while let Some(parent) = nodes[root as usize].parent {
            root = parent;
        }
        *under.entry(root).or_default() += node.self_insns;
        *calls.entry(nodes[*id as usize].function).or_default() += node.calls;
    }
    for root in view.roots() {
        assert_eq!(view.nodes[&root].inclusive_insns, under[&root], "{name}: root {root}");
    }
    for function in &view.functions {
        assert_eq!(function.calls, calls[&function.function], "{name}");
        assert!(function.inclusive_insns >= function.self_insns, "{name}");
        assert!(function.inclusive_insns <= view.total, "{name}");
    }
    let unnamed = view.layer_insns(NO_LAYER) as f64 * 100.0 / view.total as f64;
    assert!(unnamed <= MAX_UNNAMED_PERCENT, "{name}: {unnamed:.1}% is in no layer");
}

/// Run UDP through a router, and check that the router's work is a separate class.
fn forwarded(link: &str) {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place
        .run(&format!("path --link {link} --forward --family ipv4,ipv6 --packets 20 --blocks 1"))
        .code(0);
    let recording = place.recording("path.plumb");
    check_sums(&recording);
    let views = classes(&recording);
    for view in &views {
        check_class(view);
    }
    for (family, function) in [(Family::V4, "ip_forward"), (Family::V6, "ip6_forward")] {
        let view = views
            .iter()
            .find(|v| v.class.direction == Direction::Forward && v.arm().family == family)
            .unwrap_or_else(|| panic!("nothing was forwarded over {family}"));
        let packets = view.packets;
        let calls =
            view.functions.iter().find(|f| view.name(f.function) == function).map(|f| f.calls);
        assert_eq!(calls, Some(packets), "{function}");
        // The ends are not part of the router.
        for end in ["udp_sendmsg", "udpv6_sendmsg", "udp_recvmsg"] {
            assert!(view.functions.iter().all(|f| view.name(f.function) != end));
        }
    }
}

#[test]
fn usb_net() {
    all_arms("usb-net");
}

#[test]
fn smsc95xx() {
    all_arms("smsc95xx");
}

#[test]
fn cdc_ncm() {
    all_arms("cdc-ncm");
}

#[test]
fn e1000() {
    all_arms("e1000");
}

#[test]
fn lo() {
    all_arms("lo");
}

#[test]
fn veth() {
    all_arms("veth");
}

#[test]
fn virtio_net() {
    all_arms("virtio-net");
}

#[test]
fn forward_veth() {
    forwarded("veth");
}

#[test]
fn forward_virtio_net() {
    forwarded("virtio-net");
}

/// Check that what a flowtable forwards past routing is forwarding: it costs two thirds of what routing does, per
/// packet of either direction, the ends cost what they did, and nothing is worse.
#[test]
fn a_flowtable() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write(
        "flowtable.toml",
        "name = \"flowtable\"\n[blocks]\ncount = 3\n[workload]\npackets = 100\n[knobs]\nproto = \"tcp\"\n\
         link = \"veth\"\nforward = \"on\"\nnft_in = \"router\"\n[[arm]]\nname = \"without\"\n[[arm]]\n\
         name = \"with\"\nknobs.nft = \"\"\"table inet f {\n flowtable fast { hook ingress priority 0; devices = { r0, r1 }; }\n \
         chain forward {\n type filter hook forward priority 0; policy accept;\n \
         ct state established,related flow add @fast\n }\n}\"\"\"\n",
    );
    place.run("run flowtable.toml -o f.plumb").code(0);
    let recording = place.recording("f.plumb");
    let views = classes(&recording);
    let cost = |arm: &str, direction| {
        let mut of_arm = views.iter().filter(|v| v.arm().name == arm);
        let view = of_arm.find(|v| v.class.direction == direction).unwrap();
        (view.total as f64 / view.packets as f64, view.packets)
    };
    let (without, packets) = cost("without", Direction::Forward);
    let (with, as_many) = cost("with", Direction::Forward);
    assert_eq!(packets, as_many);
    // Segments and acknowledgements.
    assert!(packets > 3 * 100, "{packets}");
    // 2,126 of 3,161 on 6.1: a third less.
    let ratio = with / without;
    assert!((0.6..0.75).contains(&ratio), "{with} of {without}");
    let [was, is] = ["without", "with"].map(|arm| cost(arm, Direction::Rx).0);
    assert!((is / was - 1.0).abs() < 0.05, "{was} to {is}");
    let ran = place.run("diff f.plumb:without f.plumb:with --fail-if-worse 5%");
    ran.code(0);
    assert!(ran.stdout.contains("TCP, all classes"), "{}", ran.stdout);
}

/// Check that the agent falls back to the serial port with a kernel that has no
/// driver for its own.
#[test]
fn without_virtio_console() {
    if !crate::common::has_guests() {
        return;
    }
    let cache = crate::common::poorer_cache(&[]);
    let place = Place::new();
    let mut command = place.plumb("path --link lo --packets 20 --blocks 1 --quick");
    crate::common::Running::start(command.env("PLUMB_CACHE", cache.path())).finish().code(0);
    let recording = place.recording("path.plumb");
    assert_eq!(recording.environment["guest.modules"], "");
    assert!(recording.blocks[0].ledger.closes());
    assert!(classes(&recording).len() >= 2);
}
