//! All classes of an arm together, and effects of placement and seeds that look like changes.

use netplumb_model::class::{Context, Direction, Proto};
use netplumb_model::code::{FunctionCode, Instruction};
use netplumb_model::recording::{Derivation, MadeBy, Recording};

use super::build::{Build, PACKETS, RX, arm, counted, diff, row};
use crate::analysis::classes;
use crate::diff::sentence::sentence;
use crate::diff::{Diff, Verdict, csv, json, markdown};

/// A router's work for a segment and its acknowledgement, in instructions each, and the receiver's.
fn routed(forward: u64, receive: u64) -> Recording {
    let mut build = Build::with("6.1", vec![arm("tcp", Proto::Tcp)], 5);
    for block in 0..5 {
        if forward > 0 {
            let packets = 2 * PACKETS;
            let path = "__netif_receive_skb_core.constprop.0";
            build.cost(block, Direction::Forward, RX, path, packets, packets * forward);
        }
    }
    build.every(0, Direction::Rx, RX, "tcp_v4_rcv", receive);
    build.every(0, Direction::Tx, Context::Task, "tcp_sendmsg", 500);
    build.0
}

fn worse(diff: &Diff<'_>) -> bool {
    diff.judged().any(|class| class.worse_by().0 > 0.0)
}

/// Check that forwarding is per packet that was forwarded, acknowledgements among them, and that all classes are added up
/// per packet that was sent.
#[test]
fn forwarded_packets() {
    let (before, after) = (routed(1_000, 1_000), routed(300, 1_000));
    let forward = classes(&before);
    let forward = forward.iter().find(|c| c.class.direction == Direction::Forward);
    assert_eq!(forward.unwrap().packets, 5 * 2 * PACKETS);
    let found = diff(&before, &after);
    let said: Vec<String> = found.with_sums().into_iter().map(sentence).collect();
    assert!(
        said[2].starts_with("TCP forward: 1,000 to 300 instructions per packet, -700 (-70.0%)"),
        "{said:?}"
    );
    assert_eq!(
        said[3],
        "TCP, all classes: 3,500 to 2,100 instructions per packet sent, -1,400 (-40.0%)"
    );
    assert!(!worse(&found) && worse(&diff(&after, &before)));
    for text in [markdown::render(&found, 0), json::render(&found)] {
        assert!(text.contains("all classes: 3,500 to 2,100"), "{text}");
    }
}

/// Check that a class which one side lacks counts as 0, that its arm is judged by all classes together, and that these are
/// no more than their parts.
#[test]
fn a_class_of_one_side() {
    let (before, after) = (routed(1_000, 1_000), routed(0, 1_640));
    let found = diff(&before, &after);
    assert!(found.unpaired.is_empty(), "{:?}", found.unpaired);
    let said: Vec<String> = found.with_sums().into_iter().map(sentence).collect();
    assert!(said.iter().any(|s| s.contains("TCP receive: 1,000 to 1,640")), "{said:?}");
    assert!(
        said.iter().any(|s| s.contains("TCP forward: 2,000 to 0 instructions per packet sent")),
        "{said:?}"
    );
    assert!(said[3].contains("3,500 to 2,140 instructions per packet sent, -1,360"), "{said:?}");
    assert_eq!(found.judged().count(), 1);
    assert!(!worse(&found));
    assert!(worse(&diff(&after, &before)));
    assert!(csv(&found, None).lines().count() > 3);
    // Where both sides have all classes, each is judged.
    assert!(worse(&diff(&routed(1_000, 1_000), &routed(300, 1_640))));
}

/// The same with code: `changed` is of a constant in `tcp_sendmsg`.
fn with_code(mut recording: Recording, changed: u8) -> Recording {
    for function in 0..recording.functions.len() as u32 {
        let name = recording.functions[function as usize].name.clone();
        let constant = if name == "tcp_sendmsg" { changed } else { 1 };
        let insn = Instruction::new(0, &[0x83, 0xc0, constant], 1).unwrap();
        for arm in 0..recording.arms.len() as u32 {
            recording.code.push(FunctionCode {
                arm,
                function,
                address: 0xffff_ffff_8100_0000 + 0x1000 * u64::from(function),
                insns: vec![insn],
            });
        }
    }
    recording
}

fn of_kernel(kernel: &str, send: u64, receive: u64, changed: u8) -> Recording {
    let mut build = Build::with(kernel, vec![arm("tcp", Proto::Tcp)], 5);
    build.every(0, Direction::Rx, RX, "tcp_v4_rcv", receive);
    build.every(0, Direction::Tx, Context::Task, "tcp_sendmsg", send);
    build.every(0, Direction::Tx, Context::Task, "tcp_sendmsg/kfree_skb", 100);
    with_code(build.0, changed)
}

/// Check that a commit of +3 in sending is found, that +80 in code that both kernels share is no verdict on it, and
/// that such functions are listed apart.
#[test]
fn placement() {
    let before = of_kernel("6.1-a", 500, 1_000, 1);
    let after = of_kernel("6.1-b", 503, 1_080, 2);
    let found = diff(&before, &after);
    let [send, receive] = &found.classes[..] else {
        panic!("{:?}", found.classes.len());
    };
    assert_eq!(counted(send).verdict, Verdict::Worse);
    assert_eq!(counted(receive).verdict, Verdict::Placement);
    assert_eq!((receive.worse_by(), receive.may_miss(1.0).is_some()), ((0.0, 0.0), true));
    let said = sentence(receive);
    assert!(said.contains("no code on its path differs: +80 in 1 function"), "{said}");
    assert!(row(receive, "tcp_v4_rcv").has_same_code());
    assert!(!row(send, "tcp_sendmsg").has_same_code());
    let text = crate::diff::terminal::render(&found, &crate::view::View::default());
    assert!(text.contains("same code in both kernels"), "{text}");
    assert!(json::render(&found).contains("\"only_placement\": true"));
    // On one kernel it is a change like any other.
    let same =
        diff(&of_kernel("6.1", 500, 1_000, 1), &of_kernel("6.1", 500, 1_080, 1)).classes.len();
    assert_eq!(same, 2);
    let (before, after) = (of_kernel("6.1", 500, 1_000, 1), of_kernel("6.1", 500, 1_080, 1));
    assert!(worse(&diff(&before, &after)));
}

/// Three seeds of one arm, with the cost of receiving under each.
fn seeded(kernel: &str, costs: [u64; 3]) -> Recording {
    let mut arms = vec![arm("tcp", Proto::Tcp)];
    for seed in ["2", "3"] {
        let mut repeat = arm(&format!("tcp seed={seed}"), Proto::Tcp);
        repeat.knobs.insert("seed".into(), seed.into());
        repeat.made = Some(Derivation { from: "tcp".into(), by: MadeBy::Seed });
        arms.push(repeat);
    }
    let mut build = Build::with(kernel, arms, 5);
    for (n, cost) in (0..).zip(costs) {
        build.every(n, Direction::Rx, RX, "tcp_v4_rcv", cost);
    }
    build.0
}

/// Check that seeds are reported once, with their median, and that a change within their range is no difference.
#[test]
fn several_seeds() {
    let before = seeded("6.1-a", [5_704, 5_771, 5_720]);
    let luck = seeded("6.1-b", [5_784, 5_740, 5_722]);
    let found = diff(&before, &luck);
    assert_eq!((found.classes.len(), found.unpaired.len()), (1, 0));
    assert_eq!(counted(&found.classes[0]).verdict, Verdict::Seeds);
    let said = sentence(&found.classes[0]);
    assert!(said.ends_with("median +2, -31 to +80 over 3 seeds"), "{said}");
    assert!(!worse(&found));
    let more = seeded("6.1-b", [5_804, 5_881, 5_821]);
    let found = diff(&before, &more);
    let (percent, cost) = found.classes[0].worse_by();
    assert_eq!(cost, 100.0);
    assert!(percent > 1.7, "{percent}");
    assert!(sentence(&found.classes[0]).contains("over 3 seeds"));
    // A side with a single seed is compared with each of the other.
    let one = of_seed(&before);
    assert_eq!(diff(&one, &more).classes.len(), 1);
    assert!(worse(&diff(&one, &more)));
}

fn of_seed(recording: &Recording) -> Recording {
    let mut one = recording.clone();
    one.arms.truncate(1);
    one.blocks.retain(|block| block.arm == 0);
    let kept = recording.blocks.iter().enumerate().filter(|(_, b)| b.arm == 0);
    let places: Vec<usize> = kept.map(|(n, _)| n).collect();
    one.costs.retain(|cost| places.contains(&(cost.block as usize)));
    for cost in &mut one.costs {
        let place = places.iter().position(|n| *n == cost.block as usize);
        cost.block = place.unwrap() as u32;
    }
    one
}
