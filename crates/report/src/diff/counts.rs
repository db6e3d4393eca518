//! Classes whose costs repeat exactly: sums are kept as they were counted and compared as
//! fractions of packets, so the changes of a class's functions add up to the class's change.
//! Blocks of one side that differ among themselves set the bar that a change has to clear: see
//! [`Spread`].

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Class, Context, Direction};
use netplumb_model::recording::{Arm, FunctionId};
use netplumb_model::symbol::base_name;

use super::arms::{ArmPair, Pairs};
use super::code::{Codes, Split};
use super::exact::Spread;
use super::functions::{Functions, JointId};
use super::moves::Scene;
use super::row::{Change, Counts, DiffRow, Judged, Verdict};
use super::seeds::{self, Seeds};
use super::side::{By, Index, Side};
use super::tree::unite;
use super::{ClassDiff, ExactVerdict, Sides, facts, renames, sentence};
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

/// All classes of some pairs.
pub(super) struct PairClasses {
    pub(super) functions: Functions,
    pub(super) classes: Vec<ClassDiff>,
    /// Each pair's classes together.
    pub(super) sums: Vec<ClassDiff>,
    /// Classes on one side only, in words.
    pub(super) unpaired: Vec<String>,
}

/// Compare all classes of some pairs.
pub(super) fn classes(
    sides: Sides<'_>,
    indexes: (&Index<'_>, &Index<'_>),
    paired: &Pairs,
    labels: &[String],
    directions: &[Direction],
) -> PairClasses {
    let mut all = PairClasses {
        functions: Functions::default(),
        classes: Vec::new(),
        sums: Vec::new(),
        unpaired: Vec::new(),
    };
    let asked = |direction: Direction| directions.is_empty() || directions.contains(&direction);
    for (&pair, label) in paired.pairs.iter().zip(labels) {
        let mut seeds: Vec<Pair<'_>> = (seeds::pairs(sides, pair).into_iter().enumerate())
            .map(|(n, arms)| {
                let unpaired = if n == 0 { Some(&mut all.unpaired) } else { None };
                Pair::new(sides, indexes, arms, asked, unpaired)
            })
            .collect();
        let changes: BTreeMap<Direction, Vec<Change>> = (seeds.iter())
            .flat_map(|seed| seed.found.iter().map(Compared::change))
            .fold(BTreeMap::new(), |mut all, (direction, change)| {
                all.entry(direction).or_insert_with(Vec::new).push(change);
                all
            });
        let of_all: Vec<Change> =
            (seeds.iter()).filter_map(|seed| Some(seed.all(asked)?.0)).collect();
        // The typical seed is shown.
        let mut order: Vec<usize> = (0..seeds.len()).collect();
        order.sort_by(|a, b| seeds[*a].delta().total_cmp(&seeds[*b].delta()));
        let typical = seeds.swap_remove(order[(order.len() - 1) / 2]);
        // All directions count for matching functions, requested or not.
        match_functions(sides, typical.arms, &typical.found, &mut all.functions);
        let codes = match facts::same_kernel(sides, typical.arms) {
            true => None,
            false => Codes::from_sides(sides, typical.arms),
        };
        let here = Here { sides, arms: typical.arms, label, by: typical.by, codes };
        let found = typical.found.iter().filter(|one| asked(one.direction));
        let classes: Vec<ClassDiff> = found
            .map(|one| {
                let seeds = changes.get(&one.direction).cloned().unwrap_or_default();
                class(&here, one, &all.functions, Seeds::from_changes(seeds))
            })
            .collect();
        if classes.len() > 1
            && let Some((total, blocks)) = typical.all(asked)
        {
            all.sums.push(sum(&here, &classes, (total, blocks), Seeds::from_changes(of_all)));
        }
        all.classes.extend(classes);
    }
    all
}

/// The sides of a pair of arms, by direction.
struct Pair<'a> {
    arms: ArmPair,
    by: By,
    found: Vec<Compared<'a>>,
}

impl<'a> Pair<'a> {
    fn new(
        sides: Sides<'a>,
        (index_before, index_after): (&Index<'a>, &Index<'a>),
        arms: ArmPair,
        asked: impl Fn(Direction) -> bool,
        unpaired: Option<&mut Vec<String>>,
    ) -> Pair<'a> {
        let by = By::for_arms((sides.before, arms.before), (sides.after, arms.after));
        let mut found = Vec::new();
        let mut alone = Vec::new();
        for &direction in Direction::ALL {
            let is_class = [sides.before, sides.after].map(|r| is_class(r, direction));
            if is_class != [true; 2] {
                continue;
            }
            let places = ((index_before, arms.before), (index_after, arms.after));
            let by = by.of_direction(direction, places.0, places.1);
            let before = Side::new(index_before, arms.before, direction, by);
            let after = Side::new(index_after, arms.after, direction, by);
            match (before, after) {
                (Some(before), Some(after)) if before.is_nothing() && after.is_nothing() => {}
                (Some(before), Some(after)) => {
                    found.push(Compared { direction, by, before, after })
                }
                (Some(side), None) if asked(direction) && !side.is_nothing() => {
                    let of = (sides.before, arms.before, direction);
                    alone.push(sentence::one_side(of, &side, sides.before_name));
                }
                (None, Some(side)) if asked(direction) && !side.is_nothing() => {
                    let of = (sides.after, arms.after, direction);
                    alone.push(sentence::one_side(of, &side, sides.after_name));
                }
                _ => {}
            }
        }
        if let Some(unpaired) = unpaired {
            unpaired.append(&mut alone);
        }
        Pair { arms, by, found }
    }

    /// The approximate change of the whole.
    fn delta(&self) -> f64 {
        let deltas = self.found.iter().map(|one| one.change().1.delta().value());
        deltas.sum()
    }

    /// All classes together; none where there is none, or they have other blocks.
    fn all(&self, asked: impl Fn(Direction) -> bool) -> Option<(Change, [Spread; 2])> {
        let found = || self.found.iter().filter(|one| asked(one.direction));
        let before: Vec<&Side<'_>> = found().map(|one| &one.before).collect();
        let after: Vec<&Side<'_>> = found().map(|one| &one.after).collect();
        let blocks = [Side::all(&before)?, Side::all(&after)?];
        let [before, after] = [blocks[0].sum(), blocks[1].sum()];
        Some((Change { before, after }, blocks))
    }
}

/// A direction, and the two sides.
struct Compared<'a> {
    direction: Direction,
    by: By,
    before: Side<'a>,
    after: Side<'a>,
}

impl Compared<'_> {
    fn change(&self) -> (Direction, Change) {
        let change = Change { before: self.before.whole(), after: self.after.whole() };
        (self.direction, change)
    }
}

/// The pair whose classes are compared.
struct Here<'a> {
    sides: Sides<'a>,
    arms: ArmPair,
    label: &'a str,
    by: By,
    codes: Option<Codes<'a>>,
}

impl Here<'_> {
    /// The verdict on a whole, and how much of it other seeds confirm. Between kernels whose code on the path is the
    /// same, one seed shows nothing.
    fn by_seeds(
        &self,
        verdict: Verdict,
        seeds: Option<Seeds>,
        code: Option<Split>,
    ) -> (Verdict, Option<(Seeds, f64)>) {
        let Some(seeds) = seeds else {
            let is_placement = code.is_some_and(|code| code.is_placement());
            return match verdict.differs() && is_placement {
                true => (Verdict::Placement, None),
                false => (verdict, None),
            };
        };
        let same_kernel = facts::same_kernel(self.sides, self.arms);
        let other = code.map(|code| code.other.1.value());
        let (verdict, certain) = seeds.judge(verdict, same_kernel, other);
        (verdict, Some((seeds, certain)))
    }

    /// The name for a workload's packets where packets of a class may be others.
    fn per_sent(&self) -> &'static str {
        match (self.by, self.sides.after.arms[self.arms.after].proto.unit()) {
            (By::Kib, _) => "KiB",
            (_, "packet") => "packet sent",
            (_, unit) => unit,
        }
    }
}

/// All classes of a pair together.
fn sum(
    here: &Here<'_>,
    classes: &[ClassDiff],
    (total, blocks): (Change, [Spread; 2]),
    seeds: Option<Seeds>,
) -> ClassDiff {
    let of_both = (Some(blocks[0].clone()), Some(blocks[1].clone()));
    let mut whole = verdict(&total, of_both);
    let counted = || classes.iter().filter_map(|class| class.counted.as_ref());
    // Parts that do not differ make no difference together.
    if whole.differs() && counted().all(|counted| !counted.verdict.differs()) {
        let of_parts = |verdict| counted().any(|counted| counted.verdict == verdict);
        let ways = [Verdict::Placement, Verdict::Seeds, Verdict::Luck];
        let found = ways.into_iter().find(|verdict| of_parts(*verdict));
        whole = found.unwrap_or(Verdict::WithinSpread);
    }
    let seeded;
    (whole, seeded) = here.by_seeds(whole, seeds, None);
    let class = |arm: &Arm| Class { proto: arm.proto, direction: Direction::Other };
    let (sides, arms) = (here.sides, here.arms);
    let both = [class(&sides.before.arms[arms.before]), class(&sides.after.arms[arms.after])];
    let of = (here.per_sent(), quantity(sides.after).unit);
    ClassDiff {
        of_classes: classes.len(),
        total: Some(DiffRow::new("all", "", Judged::Exactly(total, whole))),
        apart: facts::apart(sides, arms),
        counted: Some(ExactVerdict {
            total,
            verdict: whole,
            certain: total.delta(),
            blocks,
            same_kernel: facts::same_kernel(sides, arms),
            code: None,
            seeds: seeded,
            moves: Vec::new(),
            branches: Vec::new(),
        }),
        ..ClassDiff::empty(sides, arms, both, here.label.into(), of)
    }
}

/// Match the functions of a pair.
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
        (sides.before, &entered(|c| &c.before)),
        (sides.after, &entered(|c| &c.after)),
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
            .map(|one| {
                let trees = unite(Some(&one.before), Some(&one.after), functions);
                (trees, (one.before.packets, one.after.packets))
            })
            .collect()
    });
}

fn class(
    here: &Here<'_>,
    compared: &Compared<'_>,
    functions: &Functions,
    seeds: Option<Seeds>,
) -> ClassDiff {
    let (sides, arms) = (here.sides, here.arms);
    let (direction, before, after) = (compared.direction, &compared.before, &compared.after);
    let trees = unite(Some(before), Some(after), functions);
    let total = Change { before: before.each(before.sum()), after: after.each(after.sum()) };
    let change = |(was, is): (u64, u64)| Change { before: before.each(was), after: after.each(is) };
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
        let blocks = (before.of_context(tree.context), after.of_context(tree.context));
        let whole = change(whole);
        let name = tree.context.to_string();
        contexts.push(DiffRow::new(&name, "", Judged::Exactly(whole, verdict(&whole, blocks))));
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
        DiffRow::new(layer, "", Judged::Exactly(sums, verdict))
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
            let blocks = (before.of_function(&joint.before), after.of_function(&joint.after));
            let verdict = match verdict(&own, blocks) {
                seen if seen.differs() && by_luck(&joint.name, &own) => Verdict::Luck,
                seen => seen,
            };
            let contexts = by_context.into_iter();
            let contexts = contexts.map(|(context, sums)| (context, sums.map(change)));
            let counts = Counts {
                function,
                same_code: here.codes.as_ref().and_then(|codes| codes.same(joint)),
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
    let same_kernel = facts::same_kernel(sides, arms);
    let scene = Scene {
        functions,
        trees: &trees,
        changes: &changes,
        packets: (before.packets, after.packets),
        same_kernel,
    };
    let moves = scene.moves();
    let branches = scene.branches(&moves);
    // The certain part of the change, where the whole is uncertain.
    let sure = changes
        .iter()
        .filter(|(_, verdict)| verdict.differs())
        .fold(total.delta().none(), |sum, (counts, _)| sum.plus(&counts.own.delta()));
    let mut whole = verdict(&total, (Some(before.total.clone()), Some(after.total.clone())));
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
    let code = here.codes.as_ref().map(|_| {
        let costs = |counts: &Counts| counts.own.before.sum > 0 || counts.own.after.sum > 0;
        let functions = changes.iter().filter(|(counts, _)| costs(counts));
        Split::from_functions(
            functions.map(|(counts, verdict)| (counts.same_code, counts.own.delta(), *verdict)),
            total.delta().none(),
        )
    });
    let seeded;
    (whole, seeded) = here.by_seeds(whole, seeds, code);
    let arm = (&sides.before.arms[arms.before], &sides.after.arms[arms.after]);
    debug_assert_eq!(
        (changes.iter()).fold(total.delta().none(), |sum, (f, _)| sum.plus(&f.own.delta())),
        total.delta(),
        "the changes of functions add up to the change of the class"
    );
    let class = |arm: &Arm| Class { proto: arm.proto, direction };
    let rows = changes.into_iter().map(|(counts, verdict)| {
        let joint = joint(&counts);
        let judged = Judged::Exactly(counts.own, verdict);
        DiffRow { counts: Some(counts), ..DiffRow::new(&joint.name, &joint.layer, judged) }
    });
    let classes = [class(arm.0), class(arm.1)];
    let per = match compared.by {
        // Forwarded packets include others.
        By::Sent => here.per_sent(),
        By::Ledger | By::Forwarded => arm.1.proto.unit(),
        By::Kib => "KiB",
    };
    let of = (per, quantity(sides.after).unit);
    ClassDiff {
        total: Some(DiffRow::new("all", "", Judged::Exactly(total, whole))),
        contexts,
        layers,
        functions: rows.collect(),
        apart: facts::apart(sides, arms),
        counted: Some(ExactVerdict {
            total,
            verdict: whole,
            certain,
            blocks: [before.total.clone(), after.total.clone()],
            same_kernel,
            code,
            seeds: seeded,
            moves,
            branches,
        }),
        trees,
        ..ClassDiff::empty(sides, arms, classes, here.label.into(), of)
    }
}

/// Whether a function's change is of a kind and size that differs between boots.
fn by_luck(name: &str, change: &Change) -> bool {
    BY_LUCK.contains(&base_name(name)) && change.delta().value().abs() <= LUCK_INSNS
}

/// Calls, self and inclusive instructions, before and after, by context.
type FunctionSums = BTreeMap<Context, [(u64, u64); 3]>;

fn add(sum: &mut (u64, u64), more: (u64, u64)) {
    sum.0 = sum.0.saturating_add(more.0);
    sum.1 = sum.1.saturating_add(more.1);
}

/// The verdict on a change, given the blocks of both sides. Less than an instruction
/// per packet is not a change of the path, but of something that happens now and then.
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
