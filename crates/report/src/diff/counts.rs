//! Classes whose costs repeat exactly: sums are kept as they were counted and compared as
//! fractions of packets, so the changes of the functions of a class add up to that of the class.
//! Blocks of one side that differ among themselves set the bar that a change has to clear: see
//! [`Spread`].

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Class, Context, Direction};
use netplumb_model::recording::{Arm, FunctionId};
use netplumb_model::symbol::base_name;

use super::arms::{ArmPair, Pairs};
use super::exact::Spread;
use super::functions::{Functions, JointId};
use super::moves::Scene;
use super::row::{Change, Counts, Judged, Row, Verdict};
use super::side::{By, Index, Side};
use super::tree::unite;
use super::{ClassDiff, Counted, Sides, facts, renames, sentence};
use crate::analysis::{is_class, quantity};

/// Functions that branch on an address, a clock or a random number: their costs were seen to differ
/// between boots of the same system, with equal blocks in each boot.
/// docs/limits.md, "What differs between boots".
const BY_LUCK: [&str; 12] = [
    "__check_object_size",
    "__kmem_cache_free",
    "__mod_timer",
    "__usecs_to_jiffies",
    "add_interrupt_randomness",
    "crng_make_state",
    "get_random_u32",
    "kfree",
    "minmax_running_min",
    "tcp_ack_update_rtt",
    "tcp_event_data_recv",
    "tcp_send_delayed_ack",
];
/// The largest such difference, in instructions per packet.
const LUCK_INSNS: f64 = 4.0;

/// All classes of some pairs, and what is on one side only.
pub(super) fn classes(
    sides: Sides<'_>,
    (index_before, index_after): (&Index<'_>, &Index<'_>),
    paired: &Pairs,
    labels: &[String],
    directions: &[Direction],
) -> (Functions, Vec<ClassDiff>, Vec<String>) {
    let mut unpaired = Vec::new();
    let mut functions = Functions::default();
    let mut classes = Vec::new();
    for (&arms, label) in paired.pairs.iter().zip(labels) {
        // All directions, asked for or not, say which function is which.
        let mut found = Vec::new();
        let by = By::of((sides.before, arms.before), (sides.after, arms.after));
        for &direction in Direction::ALL {
            let is_class = [sides.before, sides.after].map(|r| is_class(r, direction));
            if is_class != [true; 2] {
                continue;
            }
            let asked = directions.is_empty() || directions.contains(&direction);
            let before = Side::new(index_before, arms.before, direction, by);
            let after = Side::new(index_after, arms.after, direction, by);
            match (before, after) {
                (Some(before), Some(after)) if before.is_nothing() && after.is_nothing() => {}
                (Some(before), Some(after)) => {
                    found.push((arms, label.clone(), direction, before, after))
                }
                (Some(side), None) if asked => {
                    let of = (sides.before, arms.before, direction);
                    unpaired.push(sentence::one_side(of, &side, sides.before_name));
                }
                (None, Some(side)) if asked => {
                    let of = (sides.after, arms.after, direction);
                    unpaired.push(sentence::one_side(of, &side, sides.after_name));
                }
                _ => {}
            }
        }
        match_functions(sides, arms, &found, &mut functions);
        classes.extend(
            found
                .iter()
                .filter(|one| directions.is_empty() || directions.contains(&one.2))
                .map(|one| class(sides, one, &functions)),
        );
    }
    (functions, classes, unpaired)
}

/// Say which function of a pair is which.
fn match_functions<'a>(
    sides: Sides<'a>,
    arms: ArmPair,
    found: &[Compared<'a>],
    functions: &mut Functions,
) {
    let entered = |which: for<'s> fn(&'s Compared<'a>) -> &'s Side<'a>| -> BTreeSet<FunctionId> {
        found.iter().flat_map(|c| which(c).entered()).collect()
    };
    let same_kernel = facts::same_kernel(sides, arms);
    functions.add_pair(
        (sides.before, &entered(|c| &c.3)),
        (sides.after, &entered(|c| &c.4)),
        same_kernel,
    );
    if same_kernel {
        return;
    }
    let what = match facts::same_arch(sides, arms) {
        true => "renamed",
        false => "its counterpart there",
    };
    renames::join(functions, what, &|functions| {
        found
            .iter()
            .map(|(.., before, after)| {
                let trees = unite(Some(before), Some(after), functions);
                (trees, (before.packets, after.packets))
            })
            .collect()
    });
}

/// A pair of arms and its label, a direction, and the two sides.
type Compared<'a> = (ArmPair, String, Direction, Side<'a>, Side<'a>);

fn class(
    sides: Sides<'_>,
    (arms, label, direction, before, after): &Compared<'_>,
    functions: &Functions,
) -> ClassDiff {
    let trees = unite(Some(before), Some(after), functions);
    let total = Change {
        before: before.each(before.sum()),
        after: after.each(after.sum()),
    };
    let change = |(was, is): (u64, u64)| Change {
        before: before.each(was),
        after: after.each(is),
    };
    let mut contexts = Vec::new();
    let mut layers: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut sums: BTreeMap<JointId, FunctionSums> = BTreeMap::new();
    for tree in &trees {
        let mut whole = (0_u64, 0_u64);
        for node in &tree.nodes {
            let own = (node.before.self_insns, node.after.self_insns);
            add(&mut whole, own);
            let layer = &functions.joints[node.function as usize].layer;
            add(layers.entry(layer).or_default(), own);
            let sum = sums.entry(node.function).or_default();
            let sum = sum.entry(tree.context).or_default();
            add(&mut sum[0], (node.before.calls, node.after.calls));
            add(&mut sum[1], own);
            if node.outermost {
                let inclusive = (node.inclusive_before, node.inclusive_after);
                add(&mut sum[2], inclusive);
            }
        }
        let blocks = (
            before.of_context(tree.context),
            after.of_context(tree.context),
        );
        let whole = change(whole);
        let name = tree.context.to_string();
        contexts.push(Row::new(
            &name,
            "",
            Judged::Exactly(whole, verdict(&whole, blocks)),
        ));
    }
    let mut layers: Vec<(&str, Change)> = layers
        .into_iter()
        .map(|(layer, sums)| (layer, change(sums)))
        .filter(|(_, c)| c.before.sum > 0 || c.after.sum > 0)
        .collect();
    layers.sort_by_key(|(_, c)| std::cmp::Reverse((c.delta().size(), c.after.sum)));
    let layers = layers.into_iter().map(|(layer, sums)| {
        let verdict = match sums.delta().numerator {
            0 => Verdict::Equal,
            n if n < 0 => Verdict::Better,
            _ => Verdict::Worse,
        };
        Row::new(layer, "", Judged::Exactly(sums, verdict))
    });
    let layers = layers.collect();
    let mut changes: Vec<(Counts, Verdict)> = sums
        .into_iter()
        .map(|(function, by_context)| {
            let mut all = [(0, 0); 3];
            for sums in by_context.values() {
                for (all, one) in all.iter_mut().zip(sums) {
                    add(all, *one);
                }
            }
            let joint = &functions.joints[function as usize];
            let own = change(all[1]);
            let blocks = (
                before.of_function(&joint.before),
                after.of_function(&joint.after),
            );
            let verdict = match verdict(&own, blocks) {
                seen if seen.differs() && by_luck(&joint.name, &own) => Verdict::Luck,
                seen => seen,
            };
            let contexts = by_context.into_iter();
            let contexts = contexts.map(|(context, sums)| (context, sums.map(change)));
            let counts = Counts {
                function,
                calls: change(all[0]),
                own,
                inclusive: change(all[2]),
                contexts: contexts.collect(),
            };
            (counts, verdict)
        })
        .collect();
    let joint = |counts: &Counts| &functions.joints[counts.function as usize];
    changes.sort_by(|a, b| {
        let key = |(counts, verdict): &(Counts, Verdict)| {
            let size = counts.own.delta().size();
            (verdict.differs(), size, counts.own.after.sum)
        };
        let names = || joint(&a.0).name.cmp(&joint(&b.0).name);
        key(b).cmp(&key(a)).then_with(names)
    });
    let same_kernel = facts::same_kernel(sides, *arms);
    let scene = Scene {
        functions,
        trees: &trees,
        changes: &changes,
        packets: (before.packets, after.packets),
        same_kernel,
    };
    let moves = scene.moves();
    let branches = scene.branches(&moves);
    // What changed for certain, where the whole can't tell.
    let sure = changes
        .iter()
        .filter(|(_, verdict)| verdict.differs())
        .fold(total.delta().none(), |sum, (counts, _)| {
            sum.plus(&counts.own.delta())
        });
    let mut whole = verdict(
        &total,
        (Some(before.total.clone()), Some(after.total.clone())),
    );
    let mut certain = total.delta();
    if whole == Verdict::WithinSpread && !sure.below(1) {
        whole = match sure.numerator < 0 {
            true => Verdict::Better,
            false => Verdict::Worse,
        };
        certain = sure;
    }
    // Where no function changed for certain, a little of the whole is luck too.
    let none = changes.iter().all(|(_, verdict)| !verdict.differs());
    if whole.differs() && none && total.delta().value().abs() <= LUCK_INSNS {
        whole = Verdict::Luck;
    }
    let arm = (
        &sides.before.arms[arms.before],
        &sides.after.arms[arms.after],
    );
    debug_assert_eq!(
        (changes.iter()).fold(total.delta().none(), |sum, (f, _)| sum.plus(&f.own.delta())),
        total.delta(),
        "the changes of functions add up to that of the class"
    );
    let class = |arm: &Arm| Class {
        proto: arm.proto,
        direction: *direction,
    };
    let rows = changes.into_iter().map(|(counts, verdict)| {
        let joint = joint(&counts);
        let judged = Judged::Exactly(counts.own, verdict);
        Row {
            counts: Some(counts),
            ..Row::new(&joint.name, &joint.layer, judged)
        }
    });
    let classes = [class(arm.0), class(arm.1)];
    let by = By::of((sides.before, arms.before), (sides.after, arms.after));
    let per = match by {
        By::Ledger => arm.1.proto.unit(),
        By::Kib => "KiB",
    };
    let of = (per, quantity(sides.after).unit);
    ClassDiff {
        total: Some(Row::new("all", "", Judged::Exactly(total, whole))),
        contexts,
        layers,
        functions: rows.collect(),
        apart: facts::apart(sides, *arms),
        counted: Some(Counted {
            total,
            verdict: whole,
            certain,
            blocks: [before.total.clone(), after.total.clone()],
            same_kernel,
            moves,
            branches,
        }),
        trees,
        ..ClassDiff::empty(sides, *arms, classes, label.clone(), of)
    }
}

/// Whether a function's change is of the kind and size that a boot decides.
fn by_luck(name: &str, change: &Change) -> bool {
    BY_LUCK.contains(&base_name(name)) && change.delta().value().abs() <= LUCK_INSNS
}

/// Calls, self and inclusive instructions, before and after, by context.
type FunctionSums = BTreeMap<Context, [(u64, u64); 3]>;

fn add(sum: &mut (u64, u64), more: (u64, u64)) {
    sum.0 = sum.0.saturating_add(more.0);
    sum.1 = sum.1.saturating_add(more.1);
}

/// What a change is, given the blocks of both sides. Less than an instruction in
/// every packet is not the path that changed, but something that happens now and
/// then.
fn verdict(change: &Change, (before, after): (Option<Spread>, Option<Spread>)) -> Verdict {
    let delta = change.delta();
    let (Some(before), Some(after)) = (before, after) else {
        return Verdict::WithinSpread;
    };
    if delta.numerator == 0 && before.exact() && after.exact() {
        Verdict::Equal
    } else if !before.apart(&after) {
        Verdict::WithinSpread
    } else if delta.below(1) {
        Verdict::Negligible
    } else if delta.numerator < 0 {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}
