//! Losses that are planted are causes in the ledger of a run between namespaces.

use std::process::Command;

use crate::common::{Place, Ran, Running, skip, tell};
use crate::live::run_name;
use netplumb_testkit::has_root;

/// A ruleset of the receiver that drops one packet in twenty.
const RULES: &str = "table ip planted {
 chain input {
  type filter hook input priority 0;
  udp dport 40002 numgen inc mod 20 == 0 drop
 }
}
";

/// Dropped packets by cause, over all blocks; every ledger closes.
fn dropped(place: &Place, ran: &Ran) -> Vec<(String, u64)> {
    let recording = place.recording("run.plumb");
    let mut all = std::collections::BTreeMap::new();
    for block in &recording.blocks {
        assert!(block.ledger.closes(), "{:?}", block.ledger);
        assert!(block.ledger.delivered > 0, "{:?}", block.ledger);
        for (cause, n) in &block.ledger.dropped {
            *all.entry(cause.clone()).or_default() += n;
        }
    }
    assert!(!ran.stdout.contains("INVALID"), "{}", ran.stdout);
    all.into_iter().collect()
}

/// Check that packets dropped by a ruleset, which no kernel counter shows, are listed by the drop
/// reason that the instrument saw, and that ledgers close.
#[test]
fn as_root_a_ruleset_that_drops() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    place.write("rules.nft", RULES);
    let words = "path --lab netns --clock stages --rate 200 --duration 10s --blocks 5 -o run.plumb";
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("attached in");
    let receiver = format!("{}-rx", run_name(running.said()));
    let planted = Command::new("ip")
        .args(["netns", "exec", &receiver, "nft", "-f"])
        .arg(place.path("rules.nft"))
        .output();
    if !planted.is_ok_and(|p| p.status.success()) {
        running.signal(libc::SIGINT);
        running.finish();
        return skip("no nft, or no numgen in this kernel");
    }
    let ran = running.finish();
    ran.code(0);
    let causes = dropped(&place, &ran);
    tell(&format!("{causes:?}"));
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(causes[0].0, "kfree_skb: NETFILTER_DROP");
    assert!(causes[0].1 > 0);
}

/// Check that a queueing discipline that is full is named once, though protocol and device
/// count its drops too, and that what waited in it when a block ended is not lost.
#[test]
fn as_root_a_full_queue() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words =
        "path --lab netns --clock stages --stream --duration 2s --blocks 4 -o run.plumb --qdisc";
    let mut command = place.plumb(words);
    command.arg("tbf rate 2mbit burst 1600 limit 20000");
    let ran = Running::start(&mut command).finish();
    if ran.status.code() == Some(3) {
        return skip(&format!("no stages or no sch_tbf: {}", ran.stderr.trim()));
    }
    ran.code(0);
    let causes = dropped(&place, &ran);
    tell(&format!("{causes:?}"));
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(causes[0].0.ends_with("tx0 qdisc drops"), "{causes:?}");
}
