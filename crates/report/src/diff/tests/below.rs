//! Comparisons below a function.

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::Recording;

use super::build::{Build, PACKETS, RX, change, counted, diff, row};
use crate::analysis::classes;
use crate::diff::json;
use crate::diff::sentence::{Style, sentence, sentence_in};
use crate::diff::terminal;
use crate::together::CrossQuantity;
use crate::view::View;
use crate::{folded, functions};

/// The cost of a dropped packet in a USB network driver, before or after a patch that removes two
/// queues.
fn driver(patched: bool) -> Recording {
    let mut build = Build::udp("6.1", 5);
    let bh = "tasklet_action/usbnet_bh";
    let (own, dequeue, lock, queue) = match patched {
        false => (400, 60, 64, 23),
        true => (387, 30, 32, 0),
    };
    for (context, above) in [(RX, bh), (Context::Task, "do_softirq/tasklet_action/usbnet_bh")] {
        let mut every = |path: &str, insns| {
            let path = format!("{above}{path}");
            build.every(0, Direction::Rx, context, &path, insns);
        };
        every("", own);
        every("/skb_dequeue", dequeue);
        every("/skb_dequeue/_raw_spin_lock_irqsave", lock);
        if queue > 0 {
            every("/skb_queue_tail", queue);
        }
    }
    // The same functions elsewhere do not count.
    build.each(0, "udp_sendmsg/skb_dequeue", 1_000);
    // Work for no packet.
    build.cost(0, Direction::Other, RX, bh, 3, 300);
    build.0
}

/// Check the sentence, the sums of all places together, calls, and that the rest of the recording is
/// left out.
#[test]
fn a_function_and_what_it_calls() {
    let (before, after) = (driver(false), driver(true));
    let parts = [&before, &after].map(|r| r.below("usbnet_bh"));
    let found = diff(&parts[0], &parts[1]);
    let class = &found.classes[0];
    assert_eq!(class.root.as_deref(), Some("usbnet_bh"));
    // Two contexts of (400 + 60 + 64 + 23), then of (387 + 30 + 32).
    assert_eq!(counted(class).total.before.value(), 1_094.0);
    assert_eq!(
        sentence(class),
        "UDP receive: usbnet_bh takes 196 fewer instructions per packet (-17.9%): 1,094 \u{2192} 898, \
         most of it in _raw_spin_lock_irqsave and skb_dequeue"
    );
    assert!(sentence_in(class, Style::Markdown).contains("`usbnet_bh` takes 196 fewer"));
    assert_eq!(change(class, "skb_dequeue").inclusive.before.value(), 248.0);
    let queue = change(class, "skb_queue_tail");
    assert_eq!(queue.calls.before.sum, 2 * 5 * PACKETS);
    assert_eq!(queue.calls.after.sum, 0);
    assert!(row(class, "skb_queue_tail").judged.differs());
    assert!(class.functions.iter().all(|row| row.name != "udp_sendmsg"));
    let view = View { top: 0, columns: 120, ..View::default() };
    let text = terminal::render(&found, &view);
    for expected in ["below     usbnet_bh", "incl. before", "2 \u{2192} 0", "calls from everywhere"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(json::render(&found).contains("usbnet_bh takes 196 fewer"));
    // The function's work for no packet is a separate class here.
    assert!(found.classes.iter().any(|c| c.before.direction == Direction::Other));
    let whole = diff(&before, &after);
    assert!(whole.classes.iter().all(|c| c.before.direction != Direction::Other));
    assert!(whole.classes.iter().all(|c| c.root.is_none()));
}

/// Check that every table and tree begins with the function, and has calls per call of it.
#[test]
fn a_report() {
    let part = driver(false).below("usbnet_bh");
    let views = classes(&part);
    assert_eq!(views[0].total, 1_094 * 5 * PACKETS);
    assert_eq!(views[0].root_calls, Some(2 * 5 * PACKETS));
    for line in folded::render(&views).lines() {
        let frame = line.split(';').nth(3).unwrap();
        assert!(frame.starts_with("usbnet_bh"), "{line}");
    }
    let text = functions::csv(&views, None, &CrossQuantity::default());
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let at = |key: &str| headers.iter().position(|h| h == key).unwrap();
    let (name, calls) = (at("function"), at("calls_per_root_call"));
    for record in reader.records() {
        let record = record.unwrap();
        if record[name] == *"skb_dequeue" {
            assert_eq!(&record[calls], "1.0000");
        }
    }
    let view = View { columns: 120, ..View::default() };
    let text = crate::terminal::render(&part, &views, &view);
    assert!(text.contains("udp rx below usbnet_bh  1,094 instructions per packet"), "{text}");
    assert!(text.contains("% of the subtree"), "{text}");
}

/// Check that a function that one side no longer calls costs 0 there, in sentence, table and verdict,
/// with a note about it; and that a function that neither side calls makes no class.
#[test]
fn a_function_that_one_side_lacks() {
    let (before, after) = (driver(false), driver(true));
    let parts = [&before, &after].map(|r| r.below("skb_queue_tail"));
    let found = diff(&parts[0], &parts[1]);
    let [class] = &found.classes[..] else {
        panic!("{:?}", found.classes);
    };
    assert_eq!(counted(class).total.before.value(), 46.0);
    assert_eq!(counted(class).total.after.value(), 0.0);
    assert!(found.unpaired.is_empty(), "{:?}", found.unpaired);
    assert_eq!(
        sentence(class),
        "UDP receive: skb_queue_tail takes 46 fewer instructions per packet (-100.0%): 46 \u{2192} 0, \
         all of it in skb_queue_tail"
    );
    assert!(
        (found.warnings.iter())
            .any(|text| text.contains("has no call of skb_queue_tail: what is below it is 0 there")),
        "{:?}",
        found.warnings
    );
    // The other way round it is new.
    let found = diff(&parts[1], &parts[0]);
    assert_eq!(counted(&found.classes[0]).total.before.value(), 0.0);
    assert!(found.classes[0].functions[0].judged.is_worse());
}
