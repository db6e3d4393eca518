//! The same answer twice: one experiment in many boots.

// Also in what is no test itself.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{Place, tell};
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::recording::{Recording, env};

/// Enough to show whether counts depend on the boot; `make soak` has more, for what happens in one
/// of many.
const BOOTS: usize = 4;

/// All boots of the UDP experiment, made once for the tests below. Two at a time:
/// the host being busy is part of what must not matter.
fn boots() -> &'static [Recording] {
    static BOOTED: OnceLock<Vec<Recording>> = OnceLock::new();
    BOOTED.get_or_init(|| {
        let boots = netplumb_testkit::tries(BOOTS).max(2);
        let next = AtomicUsize::new(0);
        let workers: Vec<Vec<Recording>> = thread::scope(|scope| {
            let work = || {
                let mut made = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < boots {
                    let place = Place::new();
                    place.run("path --proto udp --link lo --cold -q -o udp.plumb").code(0);
                    made.push(place.recording("udp.plumb"));
                }
                made
            };
            let handles = [scope.spawn(work), scope.spawn(work)];
            handles.map(|h| h.join().unwrap()).into()
        });
        workers.into_iter().flatten().collect()
    })
}

/// One function's share of one block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    block: u32,
    direction: Direction,
    context: Context,
    function: String,
}

/// Calls and instructions of every function in every block.
fn costs(recording: &Recording) -> BTreeMap<Key, (u64, u64)> {
    let mut costs: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for cost in &recording.costs {
        let node = &recording.nodes[cost.node as usize];
        let function = &recording.functions[node.function as usize];
        let key = Key {
            block: cost.block,
            direction: cost.direction,
            context: cost.context,
            function: match &function.module {
                Some(module) => format!("{} [{module}]", function.name),
                None => function.name.clone(),
            },
        };
        let sum = costs.entry(key).or_default();
        sum.0 += cost.calls;
        sum.1 += cost.own;
    }
    costs
}

/// Whether it is a packet's work, which must be the same in every boot.
fn must_be_equal(key: &Key) -> bool {
    key.direction != Direction::Other
        && matches!(key.context, Context::Task | Context::Softirq(Softirq::NetRx))
}

/// Check that every boot gives the same counts, function by function and block by
/// block, in task and NET_RX context. What differs elsewhere is named.
#[test]
fn every_boot_gives_the_same_counts() {
    if !crate::common::has_guests() {
        return;
    }
    let boots: Vec<_> = boots().iter().map(costs).collect();
    let keys: BTreeSet<&Key> = boots.iter().flat_map(BTreeMap::keys).collect();
    let mut equal = BTreeSet::new();
    let mut unequal = Vec::new();
    let mut apart: BTreeMap<(Direction, Context), BTreeSet<&str>> = BTreeMap::new();
    for key in keys {
        let values: BTreeSet<(u64, u64)> =
            boots.iter().map(|b| b.get(key).copied().unwrap_or_default()).collect();
        if values.len() == 1 {
            equal.insert((&key.function, key.direction, key.context));
        } else if must_be_equal(key) {
            unequal.push(format!("{key:?}: calls and instructions {values:?}"));
        } else {
            apart.entry((key.direction, key.context)).or_default().insert(&key.function);
        }
    }
    tell(&format!(
        "{} boots: {} functions by direction and context are equal in every block; {} that must \
         be are not",
        boots.len(),
        equal.len(),
        unequal.len()
    ));
    if apart.is_empty() {
        tell("  elsewhere (interrupts, other tasks, no packet's work) nothing differs either");
    }
    for ((direction, context), functions) in &apart {
        let functions: Vec<&str> = functions.iter().copied().collect();
        tell(&format!("  differs, as it may, in {direction} {context}: {}", functions.join(" ")));
    }
    assert!(equal.len() > 100, "too little was measured: {}", equal.len());
    assert!(unequal.is_empty(), "{}", unequal.join("\n"));
}

/// Check figures that were found by other means, before this program was written: self instructions per packet on
/// Debian 6.1, whichever kernel is Debian's current one.
#[test]
fn known_figures() {
    const KERNEL: &str = "debian:6.1";
    const KNOWN: &[(&str, u64)] =
        &[("udp_sendmsg", 239), ("ip_output", 74), ("ip_finish_output2", 122)];
    let place = Place::new();
    if !crate::common::has_guests() || !crate::common::has_kernels(&place, &[KERNEL]) {
        return;
    }
    place.run(&format!("path --proto udp --link lo --kernel {KERNEL} -q -o udp.plumb")).code(0);
    let recording = place.recording("udp.plumb");
    assert!(recording.environment[env::KERNEL].starts_with("6.1."));
    let packets: u64 = recording.blocks.iter().map(|b| b.ledger.offered).sum();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, (_, insns)) in &costs(&recording) {
        if let Some((name, _)) = KNOWN.iter().find(|(name, _)| *name == key.function) {
            *sums.entry(name).or_default() += insns;
        }
    }
    for (name, insns) in KNOWN {
        assert_eq!(sums.get(name), Some(&(insns * packets)), "{name}");
    }
}
