//! How a driver handles frames that it drops, and how a patch changes that: over USB NICs that the
//! guest emulates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{Place, skip};
use netplumb_model::class::Direction;
use netplumb_model::recording::{NodeId, Recording};

const PACKETS: u64 = 50;
const BLOCKS: u64 = 2;

/// Calls and instructions of each function below usbnet_bh, itself included, of an arm and a
/// direction.
fn below_usbnet_bh(
    recording: &Recording,
    arm: &str,
    direction: Direction,
) -> BTreeMap<String, (u64, u64)> {
    let name = |node: NodeId| {
        let function = recording.nodes[node as usize].function;
        recording.functions[function as usize].name.as_str()
    };
    let is_below = |mut node: NodeId| loop {
        if name(node) == "usbnet_bh" {
            return true;
        }
        match recording.nodes[node as usize].parent {
            Some(parent) => node = parent,
            None => return false,
        }
    };
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for cost in &recording.costs {
        let block = &recording.blocks[cost.block as usize];
        let of_arm = recording.arms[block.arm as usize].name == arm;
        if of_arm && cost.direction == direction && is_below(cost.node) {
            let sum = sums.entry(name(cost.node).to_string()).or_default();
            sum.0 += cost.calls;
            sum.1 += cost.own;
        }
    }
    sums
}

fn insns(sums: &BTreeMap<String, (u64, u64)>) -> u64 {
    sums.values().map(|sum| sum.1).sum()
}

/// By how much each function differs between two arms, per packet: calls and instructions.
fn differences(
    before: &BTreeMap<String, (u64, u64)>,
    after: &BTreeMap<String, (u64, u64)>,
) -> BTreeMap<String, (f64, f64)> {
    let names = before.keys().chain(after.keys());
    let each = |n: u64| n as f64 / (PACKETS * BLOCKS) as f64;
    let difference = |name: &String| {
        let of = |sums: &BTreeMap<_, (u64, u64)>| sums.get(name).copied().unwrap_or_default();
        let (was, is) = (of(before), of(after));
        (each(is.0) - each(was.0), each(is.1) - each(was.1))
    };
    names
        .map(|name| (name.clone(), difference(name)))
        .filter(|(_, difference)| *difference != (0.0, 0.0))
        .collect()
}

/// Check how a driver handles frames from its device: each ledger closes by the driver's counters,
/// although the driver counts some frames in several; work for dropped frames is of the direction
/// `drop`, with the completion of its transfers, and nothing of it is received.
#[test]
fn where_frames_of_a_device_go() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = format!("path -q --sender device --packets {PACKETS} --blocks {BLOCKS}");
    place
        .run(&format!("{words} --link smsc95xx --rx-fault none,bad-size,error-bit -o one.plumb"))
        .code(0);
    place
        .run(&format!(
            "{words} --link smsc95xx --per-transfer 4 --rx-fault none,error-bit -o more.plumb"
        ))
        .code(0);
    place.run(&format!("{words} --link cdc-ncm --per-transfer 1,8 -o ncm.plumb")).code(0);
    place.run(&format!("{words} --link cdc-ncm --rx-fault bad-size -o refused.plumb")).code(0);
    for file in ["one.plumb", "more.plumb", "ncm.plumb", "refused.plumb"] {
        let recording = place.recording(file);
        for (n, block) in recording.blocks.iter().enumerate() {
            let arm = &recording.arms[block.arm as usize];
            let fault = arm.knobs.get("rx_fault").map_or("none", String::as_str);
            let ledger = &block.ledger;
            assert!(ledger.closes(), "{file}, {}: {ledger:?}", arm.name);
            assert_eq!(ledger.offered, PACKETS);
            let dropped: Vec<(&str, u64)> =
                (ledger.dropped.iter()).map(|(c, n)| (c.as_str(), *n)).collect();
            let expected: &[(&str, u64)] = match fault {
                "bad-size" => &[("receiver: rx0 rx_errors", PACKETS)],
                "error-bit" => &[("receiver: rx0 rx_crc_errors", PACKETS)],
                _ => &[],
            };
            assert_eq!(dropped, expected, "{file}, {}", arm.name);
            let directions = |function: &str| -> Vec<Direction> {
                let mut found: Vec<Direction> = (recording.costs.iter())
                    .filter(|cost| cost.block == n as u32)
                    .filter(|cost| {
                        let node = &recording.nodes[cost.node as usize];
                        recording.functions[node.function as usize].name == function
                    })
                    .map(|cost| cost.direction)
                    .collect();
                found.sort_unstable();
                found.dedup();
                found
            };
            let expected = match fault {
                "none" => Direction::Rx,
                _ => Direction::Drop,
            };
            for function in ["usbnet_bh", "rx_complete"] {
                assert_eq!(directions(function), [expected], "{}: {function}", arm.name);
            }
            let received = directions("udp_recvmsg").len();
            assert_eq!(received, usize::from(fault == "none"), "{}", arm.name);
        }
    }
}

/// Check what the patch of experiments/usbnet-review saves, to the instruction and by function:
/// nothing of a frame that is passed on, nothing by building the unmodified source, the same in
/// two runs, of x86-64 and of arm64.
#[test]
fn a_patch_to_usbnet() {
    let kernel = match crate::common::kernel() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    if !kernel.release.starts_with("6.1.") {
        return skip("the patch is for Linux 6.1");
    }
    let place = Place::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/usbnet-review");
    fs::create_dir(place.path("usbnet-review")).unwrap();
    for file in ["return.patch", "filter.patch"] {
        let to = place.path("usbnet-review").join(file);
        fs::copy(shipped.join(file), to).unwrap();
    }
    let text = fs::read_to_string(shipped.with_extension("toml")).unwrap();
    let text = text
        .replace("packets = 1000", &format!("packets = {PACKETS}"))
        .replace("count = 4", &format!("count = {BLOCKS}"))
        .replace("\"exact\", \"samples\"", "\"exact\"")
        .replace("[samples]\nperiod = 300\n", "");
    place.write("x.toml", text);
    let first = place.run("run -q x.toml -o 1.plumb");
    // No apt, no compiler, or only another version in the archive.
    if first.status.code() == Some(3) {
        return skip(first.stderr.trim());
    }
    first.code(0);
    let differs = first.stderr.contains("not the same code");
    assert!(!differs, "{}", first.stderr);
    place.run("run -q x.toml -o 2.plumb").code(0);
    let recordings = [1, 2].map(|n| place.recording(&format!("{n}.plumb")));
    let of = |arm, direction| {
        let [one, other] = (recordings.each_ref()).map(|r| below_usbnet_bh(r, arm, direction));
        assert_eq!(one, other, "{arm}");
        one
    };
    for recording in &recordings {
        for block in &recording.blocks {
            assert!(block.ledger.closes(), "{:?}", block.ledger);
        }
    }
    let drop = |arm| of(arm, Direction::Drop);
    let (before, after) = (drop("before"), drop("after"));
    assert_eq!(drop("unmodified"), before);
    let packets = PACKETS * BLOCKS;
    assert_eq!(insns(&before), 1_121 * packets);
    assert_eq!(insns(&after), 1_003 * packets);
    let saved = [
        ("_raw_spin_lock_irqsave", (-2.0, -32.0)),
        ("_raw_spin_unlock_irqrestore", (-2.0, -20.0)),
        ("skb_dequeue", (-1.0, -30.0)),
        ("skb_queue_tail", (-1.0, -23.0)),
        ("usbnet_bh", (0.0, -13.0)),
    ]
    .map(|(name, difference)| (name.to_string(), difference));
    assert_eq!(differences(&before, &after), saved.clone().into());
    let filtered = differences(&drop("filter before"), &drop("filter after"));
    assert_eq!(filtered, saved.into());
    // Of arm64, as the distribution's compiler of that architecture builds it.
    let (before, after) = (drop("arm64 before"), drop("arm64 after"));
    assert_eq!(drop("arm64 unmodified"), before);
    assert_eq!(insns(&before), 1_268 * packets);
    assert_eq!(insns(&after), 1_156 * packets);
    let rx = |arm| of(arm, Direction::Rx);
    let (good, ncm) = (rx("good before"), rx("ncm before"));
    assert_eq!(good, rx("good after"));
    let over_ncm = differences(&ncm, &rx("ncm after"));
    let fewer: f64 = over_ncm.values().map(|difference| difference.1).sum();
    assert_eq!(fewer, -119.0, "{over_ncm:?}");
    assert_eq!(over_ncm["skb_dequeue"], (-1.0, -30.0));
}
