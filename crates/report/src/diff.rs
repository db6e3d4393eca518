//! Two recordings, or two arms of one, subtracted: what got cheaper or dearer,
//! function by function, and whether the blocks could tell.
//!
//! Sums are kept as they were counted and compared as fractions of packets, so
//! the changes of the functions of a class add up to that of the class. Blocks of
//! one side that differ among themselves set the bar that a change has to clear:
//! see [`exact::Spread`].

pub mod arms;
pub mod exact;
pub mod facts;
pub mod functions;
pub mod json;
pub mod labels;
pub mod markdown;
pub mod moves;
pub mod page;
mod renames;
pub mod sentence;
mod side;
mod table;
pub mod terminal;
pub mod tree;
mod within;

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Class, Context, Direction};
use netplumb_model::experiment::Idle;
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_model::symbol::base_name;

use crate::acting;
use crate::number::printable;
use arms::{ArmPair, Pairs};
use exact::{Delta, PerPacket, Spread};
use functions::{Functions, JointId};
use moves::{Branch, Move, Scene};
pub use side::Sum;
use side::{Index, Side};
use tree::{UnionTree, unite};
pub use within::of_arms;

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a> {
    /// What was.
    pub before: &'a Recording,
    /// What is; may be the same recording, of which other arms are meant.
    pub after: &'a Recording,
    /// What the side before is called in text.
    pub before_name: &'a str,
    /// And the side after.
    pub after_name: &'a str,
}

/// A comparison.
#[derive(Debug, Clone)]
pub struct Diff<'a> {
    /// Of what.
    pub sides: Sides<'a>,
    /// Every function of any class.
    pub functions: Functions,
    /// One for each pair of arms and direction that both have.
    pub classes: Vec<ClassDiff>,
    /// Arms and directions that one side alone has, in words.
    pub unpaired: Vec<String>,
    /// How the sides differ by themselves, to be said first.
    pub differences: Vec<facts::Difference>,
    /// What else must be known: a run cut short, one block only.
    pub warnings: Vec<String>,
}

/// What a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer instructions.
    Better,
    /// More.
    Worse,
    /// Not one instruction.
    Equal,
    /// Some, but no more than blocks of one side differ by.
    WithinSpread,
    /// Some, but so few that they are not in every packet's path.
    Negligible,
    /// Some, but no more than boots of the same differ by.
    Luck,
}

/// Functions that take another way when an address, a clock or a random number is
/// another: seen between boots of the same, whose blocks were each equal.
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
/// And by up to so many instructions per packet.
const LUCK_INSNS: f64 = 4.0;

impl Verdict {
    /// In a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Equal | Verdict::WithinSpread | Verdict::Negligible | Verdict::Luck => {
                "no difference"
            }
        }
    }

    /// For programs, in full.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Equal => "equal",
            Verdict::WithinSpread => "within_spread",
            Verdict::Negligible => "negligible",
            Verdict::Luck => "luck",
        }
    }

    /// Whether there is a difference.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }
}

/// Before and after, of sums of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What was.
    pub before: PerPacket,
    /// What is.
    pub after: PerPacket,
}

impl Change {
    /// By how much.
    pub fn delta(&self) -> Delta {
        Delta::between(self.before, self.after)
    }

    /// In percent of what was; none where that is nothing.
    pub fn percent(&self) -> Option<f64> {
        (self.before.sum > 0).then(|| self.delta().value() * 100.0 / self.before.value())
    }
}

/// One pair of arms and direction.
#[derive(Debug, Clone)]
pub struct ClassDiff {
    /// The arms.
    pub arms: ArmPair,
    /// The class before.
    pub before: Class,
    /// And after: another protocol if arms of two were paired.
    pub after: Class,
    /// Whether both sides ran the same kernel, so far as is known.
    pub same_kernel: bool,
    /// What tells the arms apart from other pairs ("link lo → veth; 1024 bytes"); may be
    /// empty.
    pub label: String,
    /// Settings in which the arms differ and that could act in neither.
    pub idle: Vec<Idle>,
    /// Whether the arms differ in nothing else.
    pub idle_alone: bool,
    /// All of it.
    pub total: Change,
    /// What that comes to.
    pub verdict: Verdict,
    /// The change that the verdict is about: that of the total or, where the
    /// blocks differ too much to tell, that of the functions which did change.
    pub certain: Delta,
    /// The blocks before.
    pub blocks_before: Spread,
    /// And after.
    pub blocks_after: Spread,
    /// By context, with a verdict each.
    pub contexts: Vec<(Context, Change, Verdict)>,
    /// By layer, the largest change first.
    pub layers: Vec<(String, Change)>,
    /// By function, the largest change first.
    pub functions: Vec<FunctionChange>,
    /// Cost that went from one function to another.
    pub moves: Vec<Move>,
    /// Calls that one side alone makes.
    pub branches: Vec<Branch>,
    /// The call trees, one for each context.
    pub trees: Vec<UnionTree>,
}

/// One function of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionChange {
    /// Which.
    pub function: JointId,
    /// Times entered.
    pub calls: Change,
    /// Instructions of its own.
    pub self_insns: Change,
    /// With those of all that it called.
    pub inclusive_insns: Change,
    /// Of its own instructions.
    pub verdict: Verdict,
    /// The same by context: calls, self and inclusive.
    pub contexts: Vec<(Context, [Change; 3])>,
}

impl ClassDiff {
    /// Nothing, with this class's packets.
    fn nothing(&self) -> Delta {
        self.total.delta().none()
    }

    /// Functions whose own cost changed.
    pub fn changed(&self) -> impl Iterator<Item = &FunctionChange> {
        self.functions.iter().filter(|f| f.verdict.differs())
    }

    /// What those come to that changed by no more than the blocks of one side do,
    /// and how many they are.
    pub fn unsure(&self) -> (usize, Delta) {
        let unsure = self
            .functions
            .iter()
            .filter(|f| !f.verdict.differs() && f.verdict != Verdict::Equal);
        unsure.fold((0, self.nothing()), |(count, sum), f| {
            (count + 1, sum.plus(&f.self_insns.delta()))
        })
    }

    /// A function's change in percent; of one that the other kernel's path does not
    /// have, that it is new or gone.
    pub fn percent(&self, diff: &Diff<'_>, function: &FunctionChange) -> String {
        let joint = &diff.functions.joints[function.function as usize];
        match joint.status() {
            status @ ("gone" | "new") if !self.same_kernel => status.into(),
            _ => sentence::percent(&function.self_insns),
        }
    }

    /// What is called after its arm's label.
    pub fn class(&self) -> String {
        if self.before == self.after {
            self.before.to_string()
        } else {
            format!("{} → {}", self.before, self.after)
        }
    }

    /// Where blocks of one side differ: the smallest change of the whole, in
    /// instructions per packet, that would have been seen for certain.
    pub fn blind(&self) -> Option<f64> {
        let spread = !self.blocks_before.exact() || !self.blocks_after.exact();
        spread.then(|| self.blocks_before.blind(&self.blocks_after))
    }
}

/// As CSV (RFC 4180): one line for each class, context and function, or for the functions of
/// one layer.
pub fn csv(diff: &Diff<'_>, layer: Option<&str>) -> String {
    table::csv(diff, layer)
}

/// Compare pairs of arms, in some directions or, if none is named, in all.
pub fn compare<'a>(sides: Sides<'a>, paired: &Pairs, directions: &[Direction]) -> Diff<'a> {
    let labels = labels::where_needed(sides, &paired.pairs);
    let before = Index::new(sides.before);
    if std::ptr::eq(sides.before, sides.after) {
        return compare_indexed(sides, (&before, &before), paired, &labels, directions);
    }
    let after = Index::new(sides.after);
    compare_indexed(sides, (&before, &after), paired, &labels, directions)
}

fn compare_indexed<'a>(
    sides: Sides<'a>,
    (index_before, index_after): (&Index<'a>, &Index<'a>),
    paired: &Pairs,
    labels: &[String],
    directions: &[Direction],
) -> Diff<'a> {
    let pairs = &paired.pairs;
    let mut unpaired = Vec::new();
    let alone = [
        (sides.before, &paired.left_before, sides.before_name),
        (sides.after, &paired.left_after, sides.after_name),
    ];
    for (recording, left, name) in alone {
        for arm in left {
            let arm = printable(&recording.arms[*arm].name, 80);
            unpaired.push(format!("arm {arm}: only in {}", printable(name, 120)));
        }
    }
    let mut functions = Functions::default();
    let mut classes = Vec::new();
    for (&arms, label) in pairs.iter().zip(labels) {
        // All directions, asked for or not, say which function is which.
        let mut found = Vec::new();
        for &direction in Direction::ALL {
            if direction == Direction::Other {
                continue;
            }
            let asked = directions.is_empty() || directions.contains(&direction);
            let before = Side::new(index_before, arms.before, direction);
            let after = Side::new(index_after, arms.after, direction);
            match (before, after) {
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
    Diff {
        sides,
        functions,
        classes,
        unpaired,
        differences: facts::differences(sides, pairs),
        warnings: facts::warnings(sides, pairs),
    }
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
    renames::join(functions, &|functions| {
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
        contexts.push((tree.context, whole, verdict(&whole, blocks)));
    }
    let mut layers: Vec<(String, Change)> = layers
        .into_iter()
        .map(|(layer, sums)| (layer.to_string(), change(sums)))
        .filter(|(_, c)| c.before.sum > 0 || c.after.sum > 0)
        .collect();
    layers.sort_by_key(|(_, c)| std::cmp::Reverse((c.delta().size(), c.after.sum)));
    let mut changes: Vec<FunctionChange> = sums
        .into_iter()
        .map(|(function, by_context)| {
            let mut all = [(0, 0); 3];
            for sums in by_context.values() {
                for (all, one) in all.iter_mut().zip(sums) {
                    add(all, *one);
                }
            }
            let joint = &functions.joints[function as usize];
            let self_insns = change(all[1]);
            let blocks = (
                before.of_function(&joint.before),
                after.of_function(&joint.after),
            );
            FunctionChange {
                function,
                calls: change(all[0]),
                self_insns,
                inclusive_insns: change(all[2]),
                verdict: match verdict(&self_insns, blocks) {
                    seen if seen.differs() && by_luck(&joint.name, &self_insns) => Verdict::Luck,
                    seen => seen,
                },
                contexts: by_context
                    .into_iter()
                    .map(|(context, sums)| (context, sums.map(change)))
                    .collect(),
            }
        })
        .collect();
    changes.sort_by(|a, b| {
        let key = |f: &FunctionChange| {
            let size = f.self_insns.delta().size();
            (f.verdict.differs(), size, f.self_insns.after.sum)
        };
        let name = |f: &FunctionChange| &functions.joints[f.function as usize].name;
        key(b).cmp(&key(a)).then_with(|| name(a).cmp(name(b)))
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
        .filter(|f| f.verdict.differs())
        .fold(total.delta().none(), |sum, f| {
            sum.plus(&f.self_insns.delta())
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
    let none = changes.iter().all(|f| !f.verdict.differs());
    if whole.differs() && none && total.delta().value().abs() <= LUCK_INSNS {
        whole = Verdict::Luck;
    }
    let arm = (
        &sides.before.arms[arms.before],
        &sides.after.arms[arms.after],
    );
    let (idle, idle_alone) =
        acting::between((sides.before, arms.before), (sides.after, arms.after));
    let diff = ClassDiff {
        arms: *arms,
        before: Class {
            proto: arm.0.proto,
            direction: *direction,
        },
        after: Class {
            proto: arm.1.proto,
            direction: *direction,
        },
        same_kernel,
        label: label.clone(),
        idle,
        idle_alone,
        total,
        verdict: whole,
        certain,
        blocks_before: before.total.clone(),
        blocks_after: after.total.clone(),
        contexts,
        layers,
        functions: changes,
        moves,
        branches,
        trees,
    };
    debug_assert_eq!(
        diff.functions
            .iter()
            .fold(diff.nothing(), |sum, f| sum.plus(&f.self_insns.delta())),
        diff.total.delta(),
        "the changes of functions add up to that of the class"
    );
    diff
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

#[cfg(test)]
mod tests;
