//! The `stages` instrument on real packets, between namespaces that the test makes.
//!
//! Needs root; elsewhere it is skipped.

#![allow(clippy::unwrap_used)]

mod common;
mod cost;
mod ledger;
mod own;
mod pauses;
mod planted;

use std::collections::BTreeMap;

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};

use common::*;

/// Check, for each protocol and version of IP, that every packet is seen at each
/// place, sent and received; that the stages add up to the total to the
/// nanosecond; and that nothing is missed.
#[test]
fn as_root_stages_add_up_and_the_ledger_closes() {
    if cannot() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let topology = Topology::build(&veth(family, false), &[]).unwrap();
        for proto in [Proto::Udp, Proto::Tcp, Proto::Raw] {
            let sockets = sockets(&topology, proto);
            let payload = match proto {
                Proto::Raw => echo(family),
                _ => vec![7; 10],
            };
            let mut live = stages(&spec(&topology, proto));
            live.open().unwrap();
            for _ in 0..PACKETS {
                one(&sockets, &payload);
            }
            let window = live.close().unwrap();
            let text = show(&window);
            adds_up(&window, Direction::Tx);
            adds_up(&window, Direction::Rx);
            assert!(window.stages.iter().all(|s| s.proto == proto && s.family == family));
            assert_eq!(of(&window, Direction::Tx, "total").times.count, PACKETS, "{text}");
            assert_eq!(of(&window, Direction::Rx, "total").times.count, PACKETS, "{text}");
            let mut places = vec!["tx queue", "tx xmit", "tx sent", "rx user"];
            if !live.attached().refused.contains_key("sk_data_ready") {
                places.push("rx socket");
            }
            for place in places {
                assert_eq!(seen(&window, &format!("{proto} {place}")), PACKETS, "{place} {text}");
            }
            // The kernel's answers come in too, where the requests were sent from.
            let answers = seen(&window, &format!("{proto} tx without a call"));
            assert_eq!(answers, if proto == Proto::Raw { PACKETS } else { 0 }, "{text}");
            for place in ["rx arrived", "rx receive"] {
                let count = seen(&window, &format!("{proto} {place}"));
                assert_eq!(count, PACKETS + answers, "{place} {text}");
            }
            // Linux 6.1 frees an ICMPv6 request that it has answered as if it dropped it.
            let as_drops = seen(&window, "raw rx dropped");
            let drops = match as_drops {
                0 => BTreeMap::new(),
                n => BTreeMap::from([("NOT_SPECIFIED".to_string(), n)]),
            };
            assert!(as_drops == 0 || (family, as_drops) == (Family::V6, PACKETS), "{text}");
            assert_eq!(window.drops, drops, "{text}");
            assert_eq!(window.losses, [], "{text}");
            // Nothing is counted between windows, and a new one starts at zero.
            one(&sockets, &payload);
            live.open().unwrap();
            assert_eq!(live.close().unwrap().ledger, BTreeMap::new());
        }
    }
}

/// Check that a traced packet has its steps in order, on its way out and on its way in, each with
/// where it ran.
#[test]
fn as_root_one_packet_is_traced() {
    if cannot() {
        return;
    }
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut spec = spec(&topology, Proto::Udp);
    spec.one_packet = 2;
    let mut live = stages(&spec);
    live.open().unwrap();
    for _ in 0..10 {
        one(&sockets, &[7; 10]);
    }
    let window = live.close().unwrap();
    let text = format!("{:#?}", window.steps);
    for packet in 0..2 {
        let steps: Vec<_> = window.steps.iter().filter(|s| s.packet == packet).collect();
        let names: Vec<_> = steps.iter().map(|s| s.name.as_str()).collect();
        let expected = if live.attached().refused.contains_key("sk_data_ready") {
            &["system call", "device", "driver", "backlog", "sent", "protocol"][..]
        } else {
            &[
                "system call",
                "device",
                "driver",
                "backlog",
                "sent",
                "protocol",
                "socket queue and read",
            ]
        };
        assert_eq!(names, [expected, &["return", "returned"]].concat(), "{text}");
        assert!(steps.windows(2).all(|s| s[0].begin_ns <= s[1].begin_ns), "{text}");
        let context = |name: &str| {
            let step = steps.iter().find(|s| s.name == name);
            step.unwrap().context.to_string()
        };
        assert_eq!(context("driver"), "task", "{text}");
        assert_eq!(context("protocol"), "softirq:NET_RX", "{text}");
        assert_eq!(context("return"), "task", "{text}");
    }
    assert!(window.steps.iter().all(|s| s.packet < 2), "{text}");
}

/// Check that a filter that matches nothing shows nothing, part by part, and that
/// one that matches shows all.
#[test]
fn as_root_filters_hold() {
    if cannot() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let topology = Topology::build(&veth(family, false), &[]).unwrap();
        let sockets = sockets(&topology, Proto::Udp);
        let plain = spec(&topology, Proto::Udp);
        let check = |change: &dyn Fn(&mut netplumb_model::timing::Filter), packets: u64| {
            let mut spec = plain.clone();
            change(&mut spec.filter);
            let mut live = stages(&spec);
            live.open().unwrap();
            for _ in 0..10 {
                one(&sockets, &[7; 10]);
            }
            let window = live.close().unwrap();
            let what = format!("{:?} {}", spec.filter, show(&window));
            assert_eq!(seen(&window, "udp tx sent"), packets, "{what}");
            assert_eq!(seen(&window, "udp rx user"), packets, "{what}");
        };
        let other = match family {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        };
        check(&|_| {}, 10);
        check(&|f| f.protos = vec![Proto::Tcp, Proto::Raw], 0);
        check(&|f| f.protos = vec![], 10);
        check(&|f| f.family = Some(family), 10);
        check(&|f| f.family = Some(other), 0);
        check(&|f| f.port = Some(40_002), 10);
        check(&|f| f.port = Some(40_003), 0);
        check(&|f| f.address = Some(topology.rx_address), 10);
        check(&|f| f.address = Some("198.18.9.9".parse().unwrap()), 0);
        check(&|f| f.address = Some("2001:2::9".parse().unwrap()), 0);
        check(&|f| f.namespaces = vec![1], 0);
        check(&|f| f.interface = Some(4_000_000), 0);
        check(&|f| f.pid = Some(std::process::id()), 10);
        check(&|f| f.pid = Some(1), 0);
    }
}
