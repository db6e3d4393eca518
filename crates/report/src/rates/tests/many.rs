//! A bench of thirty arms: some lose, some are invalid, some can't run here.

use super::*;

const ARMS: usize = 30;

/// Thirty arms of three blocks. Number 7 lost 80 %, 20 to 22 a few packets each by many
/// causes; 12 has no valid block, each for its own reason; 25 to 29 can't run here.
fn recording_of_many() -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    (recording.environment).insert(env::CLOCK.into(), "rates".into());
    for number in 0..ARMS {
        let name = format!("xdp size={}", 60 + number);
        recording.arms.push(Arm {
            name: name.clone(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 60,
            knobs: BTreeMap::from([("path".into(), name.clone())]),
            made: None,
        });
        if number >= 25 {
            let why = "dpdk-testpmd is not installed";
            let failed = &mut recording.notes_of(number).failed;
            failed.insert("rates".into(), why.into());
            continue;
        }
        for index in 0..12 {
            let mut measured = match number {
                7 => block(200_000, 800_000, None),
                20..=22 => block(1_000_000, 40, None),
                _ => block(1_000_000, 0, None),
            };
            if let 20..=22 = number {
                let dropped = &mut measured.hops[1].dropped;
                *dropped = (0..8).map(|n| (format!("cause {n}"), 10)).collect();
            }
            if number == 12 {
                measured.hops[1].left -= index + 1;
            }
            let at = recording.blocks.len() as u32;
            recording.blocks.push(Block {
                arm: number as u32,
                instrument: "rates".into(),
                index: index as u32,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: measured.window_ns,
            });
            measured.add_to(&mut recording, at);
        }
    }
    recording
}

/// Check that thirty arms are a summary, with failures first, and that nothing is left
/// out on request.
#[test]
fn many_arms_are_a_summary() {
    let recording = recording_of_many();
    let text = document(&recording, None, false).terminal(100);
    // A line for each of 25 arms, and some for those that lost or are invalid.
    let lines = text.lines().count();
    assert!(lines < 65, "{lines} lines:\n{text}");
    let rows: Vec<&str> = (text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("xdp size="))
        .filter_map(|rest| rest.split_whitespace().next())
        .take(6)
        .collect();
    assert_eq!(rows, ["72", "67", "80", "81", "82", "60"], "{text}");
    for words in [
        "xdp size=67: 19,200,000 of 24,000,000 lost",
        "xdp size=72: 9 more invalid blocks: --all shows them",
        "xdp size=80: 600 lost by 5 more causes: --all shows them",
        "unavailable:",
        "xdp size=85, xdp size=86, xdp size=87, xdp size=88 and 1 more: dpdk-testpmd",
    ] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    assert!(!text.contains("packets by receive queue"), "{text}");
    let all = document(&recording, None, true).terminal(100);
    for words in [
        "xdp size=72: 1 block invalid: tx0 to the path: 12 of 2000000 went missing",
        "xdp size=80: 120 of 24,000,960 lost, tx0 to the path: cause 7",
        "xdp size=60: 12 valid blocks",
        "packets by receive queue: 0: 8,400,000, 1: 3,600,000",
    ] {
        assert!(all.contains(words), "no `{words}` in:\n{all}");
    }
    assert!(!all.contains("--all shows"), "{all}");
}

/// Check that programs get every arm and every block.
#[test]
fn nothing_is_left_out_for_programs() {
    let recording = recording_of_many();
    let csv = document(&recording, None, false).csv();
    assert_eq!(csv.lines().count(), 1 + 25 * 12);
    let json: serde_json::Value =
        serde_json::from_str(&document(&recording, None, false).json()).unwrap();
    assert_eq!(json["arms"].as_array().unwrap().len(), ARMS);
    let reasons = json["arms"][12]["invalid_blocks"].as_object().unwrap();
    assert_eq!(reasons.len(), 12);
}
