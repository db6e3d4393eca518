//! Properties of every comparison, on random recordings.

use netplumb_model::class::{Context, Direction, Proto};
use netplumb_model::recording::Recording;

use super::build::{Build, RX, arm, counted, diff, verdict};
use crate::diff::exact::Delta;
use crate::diff::{Diff, DiffRow, Verdict};

/// Small random numbers, the same in every run (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const NAMES: [&str; 9] =
    ["a", "b.isra.0", "b.isra.1", "c.cold", "c", "d [m]", "d", "e", "f.constprop.0"];

/// Any tree, blocks of any number of packets, costs in any of them.
fn recording(random: &mut Random) -> Recording {
    let arms = vec![arm("udp", Proto::Udp), arm("tcp", Proto::Tcp)];
    let blocks = 1 + random.below(6) as u32;
    let kernel = ["6.1", "6.2"][random.below(2) as usize];
    let mut build = Build::with(kernel, arms, blocks);
    for block in &mut build.0.blocks {
        block.ledger.offered = 1 + random.below(300);
        block.ledger.delivered = block.ledger.offered;
    }
    let mut paths = Vec::new();
    for _ in 0..1 + random.below(25) {
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        let path = match paths.len() {
            0 => name.to_string(),
            n => format!("{}/{name}", paths[random.below(n as u64) as usize]),
        };
        paths.push(path);
    }
    let usual: Vec<u64> = paths.iter().map(|_| random.below(200)).collect();
    for block in 0..build.0.blocks.len() as u32 {
        let packets = build.0.blocks[block as usize].ledger.offered;
        for (n, path) in paths.iter().enumerate() {
            let context = [Context::Task, RX][n % 2];
            let direction = [Direction::Tx, Direction::Rx, Direction::Other][n % 3];
            let extra = if random.below(20) == 0 { random.below(999) } else { 0 };
            build.cost(block, direction, context, path, packets, usual[n] * packets + extra);
        }
    }
    build.0
}

fn each(run: impl Fn(&Recording, &Recording)) {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut compared = 0;
    for _ in 0..400 {
        let (a, b) = (recording(&mut random), recording(&mut random));
        compared += diff(&a, &b).classes.len();
        run(&a, &b);
    }
    assert!(compared > 400, "{compared}");
}

fn sum(deltas: impl Iterator<Item = Delta>, total: Delta) -> Delta {
    deltas.fold(total.none(), |sum, d| sum.plus(&d))
}

/// Check that the changes of functions add up to the class's change, to the
/// instruction, and so do the changes of layers, of contexts, of each context's
/// functions, and of the trees' nodes.
#[test]
fn changes_add_up() {
    each(|a, b| {
        for class in &diff(a, b).classes {
            let total = counted(class).total.delta();
            let functions = class.counts().map(|(f, _)| f.own.delta());
            assert_eq!(sum(functions, total), total);
            let of = |row: &DiffRow| row.judged.exactly().unwrap().delta();
            assert_eq!(sum(class.layers.iter().map(of), total), total);
            assert_eq!(sum(class.contexts.iter().map(of), total), total);
            for row in &class.contexts {
                let of_context = class.counts().flat_map(|(f, _)| &f.contexts);
                let of_context =
                    of_context.filter(|c| c.0.to_string() == row.name).map(|c| c.1[1].delta());
                assert_eq!(sum(of_context, total), of(row));
            }
            let changed = class.changed().into_iter().map(of);
            assert_eq!(sum(changed, total).plus(&class.unsure().unwrap().1), total);
            let roots = class.trees.iter().flat_map(|t| &t.nodes).filter(|n| n.parent.is_none());
            let (before, after) =
                roots.fold((0, 0), |(b, a), n| (b + n.inclusive_before, a + n.inclusive_after));
            assert_eq!(
                (before, after),
                (counted(class).total.before.sum, counted(class).total.after.sum)
            );
        }
    });
}

/// Check that nothing differs from itself.
#[test]
fn nothing_differs_from_itself() {
    each(|a, _| {
        let diff = diff(a, a);
        assert!(diff.differences.is_empty());
        assert!(diff.unpaired.is_empty());
        for class in &diff.classes {
            assert!(!counted(class).verdict.differs());
            assert_eq!(counted(class).total.delta().numerator, 0);
            assert_eq!(class.changed().len(), 0);
            assert!(counted(class).moves.is_empty() && counted(class).branches.is_empty());
            assert!(class.contexts.iter().all(|c| !c.judged.differs()));
        }
    });
}

fn opposite(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Better => Verdict::Worse,
        Verdict::Worse => Verdict::Better,
        same => same,
    }
}

/// Check that swapping the sides gives the opposite everywhere.
#[test]
fn the_other_way_round() {
    type RowFields = Vec<(String, String, i128, String)>;
    let rows = |diff: &Diff<'_>, turned: bool| -> RowFields {
        let mut rows = RowFields::new();
        for class in &diff.classes {
            let mut add = |what: String, delta: Delta, verdict: Verdict| {
                let (numerator, verdict) = match turned {
                    true => (-delta.numerator, opposite(verdict)),
                    false => (delta.numerator, verdict),
                };
                rows.push((class.class(), what, numerator, format!("{verdict:?}")));
            };
            add("all".into(), counted(class).total.delta(), counted(class).verdict);
            for (function, row) in class.counts() {
                let joint = &diff.functions.joints[function.function as usize];
                let module = joint.module.as_deref();
                let (was, is) = (joint.was.as_ref().unwrap_or(&joint.name), &joint.name);
                let (one, other) = if turned { (is, was) } else { (was, is) };
                // For a function on both sides only the module after is known.
                let module = match joint.status() {
                    "both" => None,
                    _ => module,
                };
                let name = format!("{one} {other} {module:?} {}", joint.status() == "both");
                add(name, function.own.delta(), verdict(row));
            }
        }
        rows.sort();
        rows
    };
    each(|a, b| assert_eq!(rows(&diff(a, b), false), rows(&diff(b, a), true)));
}

/// Check that every rendering of anything ends, and none has a control character.
#[test]
fn renderings_of_anything() {
    each(|a, b| {
        let diff = diff(a, b);
        let view = crate::view::View::default();
        let text = crate::diff::terminal::render(&diff, &view);
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        for text in [text, crate::diff::markdown::render(&diff, 5), crate::diff::csv(&diff, None)] {
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        }
        let page = crate::diff::page::page(&diff);
        for tree in page.classes.iter().flat_map(|c| &c.contexts) {
            let rows = tree.parent.len();
            for column in
                [&tree.calls, &tree.self_insns, &tree.calls_before, &tree.self_insns_before]
            {
                assert_eq!(column.len(), rows);
            }
            for (row, parent) in tree.parent.iter().enumerate() {
                assert!(*parent >= -1 && *parent < row as i64);
            }
        }
    });
}
