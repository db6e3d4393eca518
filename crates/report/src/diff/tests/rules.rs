//! Blocks, verdicts and sentences, on the smallest possible trees.

use netplumb_model::class::{Context, Direction};

use super::build::{Build, PACKETS, RX, change, counted, diff, verdict};
use crate::diff::Verdict;
use crate::diff::exact::{Delta, PerPacket, Spread};
use crate::diff::sentence::{Style, html, sentence, signed};

fn spread(sums: &[u64]) -> Spread {
    let each = |sum: &u64| PerPacket { sum: *sum, packets: PACKETS };
    Spread::from_blocks(sums.iter().map(each).collect()).unwrap()
}

/// Check the range of some blocks, and which of them are outliers.
#[test]
fn spreads() {
    let odd = spread(&[169, 100, 100, 100, 100]);
    assert!(odd.exact());
    assert_eq!((odd.low.sum, odd.odd), (100, vec![0]));
    let two = spread(&[169, 100, 100, 100, 101]);
    assert!(!two.exact());
    assert_eq!((two.low.sum, two.high.sum, two.odd), (100, 169, vec![]));
    // With three blocks there is no odd one.
    assert!(spread(&[100, 100, 169]).odd.is_empty());
    assert!(spread(&[100]).exact());
    // 100 of 200 packets is 50 of 100.
    let each = |sum, packets| PerPacket { sum, packets };
    assert!(Spread::from_blocks(vec![each(100, 200), each(50, 100)]).unwrap().exact());
    assert!(Spread::from_blocks(vec![]).is_none());
}

/// Check when two sides are apart: never by an odd block, never within a range,
/// never by a count that the other side has had too.
#[test]
fn apart() {
    let usual = spread(&[100, 100, 100, 100, 100]);
    let odd = spread(&[169, 100, 100, 100, 100]);
    assert!(!usual.apart(&odd));
    assert!(!odd.apart(&usual));
    assert!(usual.apart(&spread(&[110, 110, 110, 110, 110])));
    assert!(odd.apart(&spread(&[110, 110, 110, 110, 179])));
    assert!(!odd.apart(&spread(&[169, 169, 169, 169, 169])));
    let wide = spread(&[90, 95, 100, 104, 99]);
    assert!(!wide.apart(&usual));
    assert!(!wide.apart(&spread(&[104, 106, 108, 110, 120])));
    assert!(wide.apart(&spread(&[105, 106, 108, 110, 120])));
    assert!((wide.blind(&usual) - 10.0 / PACKETS as f64).abs() < 1e-9);
}

/// Check that changes are exact, signed, and rounded for showing only.
#[test]
fn deltas() {
    let each = |sum, packets| PerPacket { sum, packets };
    let third = Delta::between(each(1, 3), each(2, 3));
    assert_eq!(signed(&third), "+0.33");
    assert_eq!(third.plus(&third).plus(&third).numerator, 9);
    assert_eq!(signed(&third.none()), "0");
    assert_eq!(signed(&Delta::between(each(1_300, 1), each(66, 1))), "-1,234");
    assert_eq!(signed(&Delta::between(each(0, 1_000), each(1, 1_000))), "+<0.01");
    assert_eq!(signed(&Delta::between(each(0, 8), each(100, 8))), "+12.5");
    // A value beyond the type saturates.
    let most = Delta::between(each(0, u64::MAX), each(u64::MAX, 1));
    assert_eq!(most.numerator, i128::MAX);
    assert!(Delta::between(each(0, 10), each(9, 10)).below(1));
    assert!(!Delta::between(each(10, 10), each(0, 10)).below(1));
}

/// Check that a block in which something happened once neither makes a change nor
/// hides one, and that it is reported.
#[test]
fn a_block_that_stands_apart() {
    let plain = Build::send("6.1", &[("send", 100), ("send/core", 50)]);
    let mut build = Build(plain.clone());
    build.once(0, "send/reseed", 1, 13_000);
    let odd = build.0.clone();
    for (before, after) in [(&plain, &odd), (&odd, &plain), (&odd, &odd)] {
        let diff = diff(before, after);
        assert_eq!(counted(&diff.classes[0]).verdict, Verdict::Equal);
        assert_eq!(
            sentence(&diff.classes[0]),
            "UDP send: 150 instructions per packet, no difference"
        );
    }
    let mut dearer = Build(Build::send("6.1", &[("send", 100), ("send/core", 57)]));
    dearer.once(3, "send/reseed", 1, 13_000);
    let diff = diff(&odd, &dearer.0);
    assert_eq!(
        sentence(&diff.classes[0]),
        "UDP send: 150 to 157 instructions per packet, +7 (+4.7%), all of it in core"
    );
}

/// Check that where blocks differ a change within their range does not count, one
/// beyond it does, and one in a function that does not vary is seen all the same.
#[test]
fn blocks_that_differ() {
    let make = |core: u64, refills: [u64; 5]| {
        let mut build = Build(Build::send("6.1", &[("send", 100), ("send/core", core)]));
        for (block, refills) in refills.iter().enumerate() {
            build.once(block as u32, "send/refill", *refills, refills * 400);
        }
        build.0
    };
    let a = make(50, [6, 7, 6, 8, 7]);
    let again = make(50, [7, 6, 8, 6, 7]);
    let same = diff(&a, &again);
    assert_eq!(counted(&same.classes[0]).verdict, Verdict::WithinSpread);
    assert_eq!(same.classes[0].changed().len(), 0);
    assert_eq!(
        sentence(&same.classes[0]),
        "UDP send: 163.6 instructions per packet, no difference beyond the spread of the blocks \
         (which hides up to 4.0)"
    );
    let much = make(50, [16, 17, 16, 18, 17]);
    let seen = diff(&a, &much);
    assert_eq!(counted(&seen.classes[0]).verdict, Verdict::Worse);
    let core = make(52, [7, 6, 8, 6, 6]);
    let part = diff(&a, &core);
    let class = &part.classes[0];
    assert_eq!((counted(class).verdict, counted(class).certain.value()), (Verdict::Worse, 2.0));
    assert_eq!(
        sentence(class),
        "UDP send: 163.6 to 165.2 instructions per packet, of which +2, all of it in core; the \
         rest, -0.40, is within the spread of the blocks"
    );
}

/// Check that less than one instruction per packet is no difference.
#[test]
fn now_and_then() {
    let mut before = Build(Build::send("6.1", &[("send", 100)]));
    let mut after = Build(Build::send("6.1", &[("send", 100)]));
    for block in 0..5 {
        before.once(block, "send/timer", 1, 50);
        after.once(block, "send/timer", 2, 100);
    }
    let diff = diff(&before.0, &after.0);
    assert_eq!(counted(&diff.classes[0]).verdict, Verdict::Negligible);
    assert!(
        sentence(&diff.classes[0])
            .ends_with("no difference of an instruction in every packet (+0.25 on average)")
    );
}

/// Check every wording of a change's place.
#[test]
fn places() {
    let before: Vec<(String, u64)> = (0..8).map(|n| (format!("send/f{n}"), 100)).collect();
    let say = |changes: &[(usize, i64)]| {
        let make = |changed: bool| {
            let paths: Vec<(&str, u64)> = before
                .iter()
                .enumerate()
                .map(|(n, (path, insns))| {
                    let by = changes.iter().find(|c| c.0 == n).map_or(0, |c| c.1);
                    let by = if changed { by } else { 0 };
                    (path.as_str(), (*insns as i64 + by) as u64)
                })
                .collect();
            Build::send("6.1", &paths)
        };
        let (before, after) = (make(false), make(true));
        let diff = diff(&before, &after);
        sentence(&diff.classes[0])
    };
    for (changes, ending) in [
        (&[(0, -16)][..], "-16 (-2.0%), all of it in f0"),
        (&[(0, 70), (1, 5)], "+75 (+9.4%), most of it in f0"),
        (&[(0, 40), (1, 30), (2, 20)], "+90 (+11.2%), most of it in f0 and f1"),
        (&[(0, 40), (1, -4)], "+36 (+4.5%), most of it in f0"),
        (
            &[(0, 50), (1, -49), (2, -8)],
            "-7 (-0.9%): +50 in 1 and -57 in 2 of 3 functions (largest f0 +50)",
        ),
        (
            &[(0, 10), (1, 10), (2, 10), (3, 10), (4, 10)],
            "+50 (+6.2%), spread over 5 functions, mostly network (largest f0 +10)",
        ),
    ] {
        let text = say(changes);
        assert!(text.ends_with(ending), "{text}");
    }
}

/// Check that contexts are separate, and that a change in one is not one in the
/// other.
#[test]
fn contexts() {
    let make = |insns| {
        let mut build = Build::udp("6.1", 5);
        build.every(0, Direction::Rx, Context::Task, "recv", 100);
        build.every(0, Direction::Rx, RX, "poll/recv", insns);
        build.0
    };
    let (before, after) = (make(40), make(60));
    let diff = diff(&before, &after);
    let class = &diff.classes[0];
    let verdicts: Vec<_> = class.contexts.iter().map(|c| (c.name.as_str(), verdict(c))).collect();
    assert_eq!(verdicts, [("task", Verdict::Equal), ("softirq:NET_RX", Verdict::Worse)]);
    let recv = change(class, "recv");
    let by_context: Vec<_> = recv.contexts.iter().map(|(_, c)| c[1].delta().value()).collect();
    assert_eq!(by_context, [0.0, 20.0]);
}

/// Check that nothing of a name can be Markdown or HTML.
#[test]
fn markdown_is_escaped() {
    let style = Style::Markdown;
    assert_eq!(style.name("a`b|c"), "``a`b\\|c``");
    assert_eq!(
        style.text("*a* <b> @me #1 [x](y)", 80),
        "\\*a\\* \\<b\\> @\u{200b}me \\#1 \\[x\\](y)"
    );
    assert_eq!(html("<a> & \"b\""), "&lt;a&gt; &amp; &quot;b&quot;");
}

/// Check that a difference as between boots of the same system is no change, and
/// that a larger one is.
#[test]
fn by_luck() {
    let make = |insns| Build::send("6.1", &[("send", 100), ("send/tcp_ack_update_rtt", insns)]);
    let (before, after, more) = (make(80), make(83), make(85));
    let lucky = diff(&before, &after);
    assert_eq!(counted(&lucky.classes[0]).verdict, Verdict::Luck);
    assert_eq!(
        sentence(&lucky.classes[0]),
        "UDP send: 180 to 183 instructions per packet, no difference beyond what differs between boots (+3)"
    );
    assert_eq!(counted(&diff(&before, &more).classes[0]).verdict, Verdict::Worse);
    // It is distinguished from a real change.
    let with = |insns, core| {
        let paths = [("send", core), ("send/tcp_ack_update_rtt", insns)];
        Build::send("6.1", &paths)
    };
    let (before, after) = (with(80, 100), with(83, 120));
    let both = diff(&before, &after);
    let text = crate::diff::terminal::render(&both, &crate::view::View::default());
    assert!(text.contains("  luck      tcp_ack_update_rtt by +3: "), "{text}");
    assert_eq!(both.classes[0].changed().len(), 1);
}
