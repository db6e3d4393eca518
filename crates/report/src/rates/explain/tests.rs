use std::collections::BTreeMap;
use std::rc::Rc;

use netplumb_model::bench::{BlockRates, CpuUse, Other};
use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::quantity::FigureKey;
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, env};
use netplumb_model::timing::{CPU_TIME, PERIOD};

use super::*;
use crate::rates;

const POLL: u32 = 0;
const DROP: u32 = 1;
const RULES: u32 = 2;
const MAKE: u32 = 3;

/// Two paths, each counted in two blocks of ten packets; a third that could not be.
fn recording() -> Recording {
    let arm = |path: &str| Arm {
        name: path.into(),
        proto: Proto::Udp,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 60,
        knobs: BTreeMap::from([("path".to_string(), path.to_string())]),
        made: None,
    };
    let function = |name: &str, layer: &str| Function {
        name: name.into(),
        module: None,
        layer: Some(layer.into()),
        address: 0,
        size_bytes: 0,
        source: None,
    };
    let mut recording = Recording {
        arms: ["xdp", "nft-raw", "dpdk"].map(arm).into(),
        functions: vec![
            function("veth_poll", "driver"),
            function("bpf_prog_6deef7357e7b4530_xdp_drop", "bpf"),
            function("nft_do_chain", "netfilter"),
            function("xdp_test_run", "bpf"),
        ],
        nodes: (0..4).map(|function| Node { parent: None, function, tail: false }).collect(),
        complete: true,
        ..Recording::default()
    };
    for (key, value) in [
        (env::CLOCK, "rates"),
        ("counted.kernel.release", "6.1.0"),
        ("counted.kernel.mitigations", "off"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    let failed = &mut recording.notes_of(2).failed;
    failed.insert("exact".into(), "in the guest: no testpmd".into());
    let softirq = Context::Softirq(Softirq::NetRx);
    for (arm, costs) in [(0, [(POLL, 100), (DROP, 20)]), (1, [(POLL, 150), (RULES, 2_000)])] {
        for index in 0..2 {
            let block = recording.blocks.len() as u32;
            recording.blocks.push(Block {
                arm,
                instrument: "exact".into(),
                index,
                ledger: Ledger { offered: 10, delivered: 10, ..Ledger::default() },
                totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 0, user: 40 }],
                entered: 0,
                returned: 0,
                duration_ns: 0,
            });
            let mut add = |direction, context, node, self_insns| {
                recording.costs.push(Cost {
                    quantity: 0,
                    block,
                    direction,
                    context,
                    node,
                    calls: 10,
                    own: self_insns,
                });
            };
            for (node, insns) in costs {
                add(Direction::Rx, softirq, node, insns);
            }
            add(Direction::Tx, Context::Task, MAKE, 500);
            add(Direction::Other, Context::OtherTask, POLL, 70);
        }
    }
    recording
}

/// The sections of a recording, on a terminal.
fn printed(recording: &Recording) -> String {
    let paths: Vec<_> = explained(recording).into_iter().map(Rc::new).collect();
    sections(recording, &paths, false).iter().map(|section| section.terminal(110)).collect()
}

/// Check that the path's work is kept apart from the generator's and from unattributed work, and
/// that programs have the names of their sources.
#[test]
fn what_a_packet_costs() {
    let all = explained(&recording());
    let [xdp, nft, dpdk] = &all[..] else {
        panic!("{all:#?}");
    };
    assert_eq!((xdp.path.as_str(), xdp.packets, xdp.handled), ("xdp", 20, 20));
    let parts = [xdp.own, xdp.generator, xdp.other, xdp.user];
    assert_eq!(parts, [12.0, 50.0, 7.0, 4.0]);
    assert_eq!(xdp.own_of_blocks, [12.0, 12.0]);
    assert_eq!(xdp.layers, [("bpf".into(), 2.0), ("driver".into(), 10.0)].into());
    assert_eq!(xdp.functions[1].name, "xdp_drop");
    assert_eq!(nft.own, 215.0);
    assert_eq!(dpdk.failed.as_deref(), Some("in the guest: no testpmd"));
    assert_eq!(short("bpf_prog_6deef7357e7b4530"), "bpf_prog_6deef7357e7b4530");
    assert_eq!(short("bpf_prog_run_xdp"), "bpf_prog_run_xdp");
}

/// Check that the difference to the cheapest path is the sum of the functions' differences.
#[test]
fn what_makes_the_difference() {
    let found = differences(&explained(&recording()));
    let [only] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!((only.path.as_str(), only.than.as_str()), ("nft-raw", "xdp"));
    assert_eq!(only.more, 203.0);
    let functions: Vec<_> = only.functions.iter().map(|f| (f.name.as_str(), f.more)).collect();
    let wanted = [("nft_do_chain", 200.0), ("veth_poll", 5.0), ("xdp_drop", -2.0)];
    assert_eq!(functions, wanted);
    assert!(differences(&[]).is_empty());
}

/// Check that samples are nanoseconds, beside the count of instructions, and that functions
/// that differ by chance are not named.
#[test]
fn where_the_nanoseconds_went() {
    let mut recording = recording();
    for block in &mut recording.blocks {
        block.instrument = "samples".into();
    }
    recording.quantities = vec![(&CPU_TIME).into()];
    let period_ns = 500_000;
    let kernel = env::KERNEL.into();
    recording.environment.insert(kernel, "6.18.0".into());
    recording.set(&PERIOD, FigureKey::ONLY, period_ns as f64);
    let dpdk = recording.arms.iter().position(|a| a.name.starts_with("dpdk"));
    let failed = &mut recording.notes_of(dpdk.unwrap()).failed;
    *failed = BTreeMap::from([("samples".into(), "no testpmd".into())]);
    for cost in &mut recording.costs {
        cost.calls = cost.own;
        cost.own *= period_ns;
    }
    for block in &mut recording.blocks {
        block.ledger.offered = 1_000_000;
        block.ledger.delivered = 1_000_000;
    }
    let all = explained(&recording);
    assert_eq!((all[0].unit, all[0].own), (Unit::Nanoseconds, 60.0));
    // 200 samples of two million packets.
    let poll = &all[0].functions[0];
    assert_eq!((poll.own, poll.calls), (50.0, 1e-4));
    assert!((poll.uncertainty - 1.96 * 50.0 / 200_f64.sqrt()).abs() < 1e-9);
    let text = printed(&recording);
    for words in [
        "by samples of what they did every 500 us",
        "(Linux 6.18.0)",
        "nft-raw against xdp: +1,015 ns a packet: nft_do_chain +1,000, veth_poll +25, xdp_drop -10",
        "dpdk: not sampled: no testpmd",
    ] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    // One sample could easily have been three.
    for cost in recording.costs.iter_mut().filter(|c| c.node == DROP) {
        (cost.calls, cost.own) = (1, period_ns);
    }
    let text = printed(&recording);
    assert!(text.contains("1 other functions -0.5"), "{text}");
    let csv = rates::document(&recording, None, false).csv();
    assert!(csv.contains(",60.000\n") || csv.contains(",50.500\n"), "{csv}");
}

/// A path sampled in one window of a second on two CPUs: a million packets, 300 ns of the
/// path's own, 150 of the generator's, 1,250 of others, by samples of half a millisecond.
fn sampled() -> Recording {
    let mut recording = recording();
    recording.arms.truncate(1);
    let kernel = env::KERNEL.into();
    recording.environment.insert(kernel, "6.18.0".into());
    recording.set(&PERIOD, FigureKey::ONLY, 500_000.0);
    recording.notes.clear();
    recording.blocks.truncate(1);
    recording.blocks[0].instrument = "samples".into();
    recording.quantities = vec![(&CPU_TIME).into()];
    recording.costs.clear();
    for what in [Other::Task("cc1"), Other::Softirq("timer")] {
        let function = recording.functions.len() as u32;
        recording.functions.push(Function {
            name: what.function(),
            layer: None,
            ..recording.functions[0].clone()
        });
        for (parent, function) in [(None, function), (Some(recording.nodes.len() as u32), POLL)] {
            recording.nodes.push(Node { parent, function, tail: false });
        }
    }
    let softirq = Context::Softirq(Softirq::NetRx);
    for (direction, context, node, samples) in [
        (Direction::Rx, softirq, POLL, 500),
        (Direction::Rx, softirq, DROP, 100),
        (Direction::Tx, Context::Task, MAKE, 300),
        // Below the nodes that name it.
        (Direction::Other, Context::OtherTask, 5, 2_400),
        (Direction::Other, Context::Hardirq, 7, 100),
    ] {
        recording.costs.push(Cost {
            quantity: 0,
            block: 0,
            direction,
            context,
            node,
            calls: samples,
            own: samples * 500_000,
        });
    }
    let busy = |cpu: u32, busy: f64| CpuUse { cpu, busy, ..CpuUse::default() };
    let measured = BlockRates {
        window_ns: 1_000_000_000,
        cpus: vec![busy(0, 0.75), busy(1, 1.0)],
        ..rates::tests::block(1_000_000, 0, None)
    };
    let block = &mut recording.blocks[0];
    (block.ledger.offered, block.ledger.delivered) = (1_000_000, 1_000_000);
    block.totals[0].user = 50_000_000;
    block.duration_ns = measured.window_ns;
    measured.add_to(&mut recording, 0);
    recording
}

/// Check that the parts add up: path, user code, generator and others, who are named, are
/// the CPU time of a packet, and with idle time all CPUs' wall time; so do the rows.
#[test]
fn the_parts_add_up() {
    let recording = sampled();
    let all = explained(&recording);
    let [xdp] = &all[..] else { panic!("{all:#?}") };
    assert_eq!([xdp.own, xdp.user, xdp.generator, xdp.other], [300.0, 50.0, 150.0, 1_250.0]);
    assert_eq!(xdp.total, 1_750.0);
    let others: Vec<_> = xdp.others.iter().map(|o| (o.name.as_str(), o.own)).collect();
    assert_eq!(others, [("task cc1", 1_200.0), ("softirq timer", 50.0)]);
    let wall = xdp.wall.unwrap();
    assert_eq!((wall.ns, wall.cpus, wall.idle, wall.busy), (1_000.0, 2, 250.0, 1_750.0));
    assert_eq!(xdp.total + wall.idle, wall.all());
    let text = printed(&recording);
    let row = |name: &str| -> f64 {
        let line = text.lines().map(str::trim).find_map(|l| l.strip_prefix(name));
        let figure = line.unwrap_or_else(|| panic!("no `{name}` in:\n{text}"));
        figure.trim().replace(',', "").parse().unwrap()
    };
    let parts = ["the path", "user code of readers", "generator", "others' load"];
    assert_eq!(parts.map(row).iter().sum::<f64>(), row("CPU time"));
    assert_eq!(row("task cc1") + row("softirq timer"), row("others' load"));
    assert_eq!(row("CPU time") + row("idle, or not sampled"), row("all CPUs' time"));
    assert_eq!(2.0 * row("wall time in these blocks"), row("all CPUs' time"));
    assert_eq!(row("CPU time by /proc/stat in these blocks"), 1_750.0);
    assert!(text.contains("make 2 CPUs x wall time"), "{text}");
}

/// Check that counted arms are in no table of rates, and have their own table.
#[test]
fn apart_from_rates() {
    let recording = recording();
    assert!(rates::arms(&recording).is_empty());
    assert_eq!(rates::blocks_of(&recording).count(), 0);
    let text = printed(&recording);
    for words in [
        "Linux 6.1.0, mitigations off",
        "nft-raw against xdp: +203 instructions a packet: nft_do_chain +200, veth_poll +5.0",
        "dpdk: not counted: in the guest: no testpmd",
    ] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    assert_eq!(printed(&Recording::default()), "");
    let csv = rates::document(&recording, None, false).csv();
    assert_eq!(csv.lines().count(), 5, "{csv}");
}
