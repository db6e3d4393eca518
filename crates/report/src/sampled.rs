//! Samples of a guest beside what it executed: how far they are off, and what a timer's samples
//! would blame.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::quantity::{Declared, QuantityId};
use netplumb_model::recording::{Arm, Function, FunctionId, Recording};
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, SAMPLED, USER_MODE};

use crate::number::{printable, thousands};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Functions that are listed.
const ROWS: usize = 15;
/// Functions that are named for what a timer charges them.
const BLAMED: usize = 5;
/// By so much a timer has to be off, of all samples, for a function to be named.
const BLAME: f64 = 0.01;
/// Letters of a name.
const NAME_LETTERS: usize = 44;
/// From here on there is room for intervals.
const WIDE: usize = 90;
/// Standard errors of a 95 % interval (the 97.5th percentile of the normal distribution).
const Z: f64 = 1.959_964;

/// A function, by each of the three.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares {
    /// What it executed, if that was counted; own instructions as a share of all.
    pub exact: Option<f64>,
    /// Its share of the samples.
    pub sampled: f64,
    /// The 95 % interval of that.
    pub interval: (f64, f64),
    /// Its share of the samples as a timer would have taken them.
    pub deferred: f64,
}

impl Shares {
    /// What it executed, as well as it is known.
    fn executed(&self) -> f64 {
        self.exact.unwrap_or(self.sampled)
    }

    /// By how much a timer is off.
    fn off(&self) -> f64 {
        self.deferred - self.executed()
    }
}

/// An arm's functions, what is charged with most first.
#[derive(Debug)]
pub struct Beside<'a> {
    /// The arm.
    pub arm: &'a Arm,
    /// How many samples there are.
    pub samples: u64,
    /// Its functions.
    pub functions: Vec<(&'a Function, Shares)>,
}

/// The interval of a share of which `hits` of `all` samples were found (Wilson, 1927).
pub fn interval(hits: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (all as f64, hits as f64 / all as f64);
    let z2 = Z * Z / n;
    let middle = share + z2 / 2.0;
    let half = Z * (share * (1.0 - share) / n + z2 / (4.0 * n)).sqrt();
    (
        ((middle - half) / (1.0 + z2)).max(0.0),
        ((middle + half) / (1.0 + z2)).min(1.0),
    )
}

/// Of a quantity in an arm, samples and cost of each function.
type Sums = BTreeMap<FunctionId, (u64, u64)>;

fn sums(recording: &Recording, of: QuantityId, arm: usize, directions: &[Direction]) -> Sums {
    let mut sums = Sums::new();
    for cost in &recording.costs {
        let is_of = cost.quantity == of
            && recording.blocks[cost.block as usize].arm as usize == arm
            && (directions.is_empty() || directions.contains(&cost.direction));
        if is_of {
            let function = recording.nodes[cost.node as usize].function;
            let sum = sums.entry(function).or_default();
            sum.0 += cost.calls;
            sum.1 += cost.own;
        }
    }
    sums
}

/// The arms of a recording that were sampled in guests, in some directions or in all, with what
/// was in no packet's path.
pub fn beside<'a>(recording: &'a Recording, directions: &[Direction]) -> Vec<Beside<'a>> {
    let number = |of: &Declared| {
        let at = recording.quantities.iter().position(|q| q.is(of));
        at.map(|at| at as QuantityId)
    };
    let (Some(sampled), Some(deferred)) = (number(&SAMPLED), number(&DEFERRED)) else {
        return Vec::new();
    };
    let exact = number(&INSTRUCTIONS);
    let of_arm = |(arm, data): (usize, &'a Arm)| {
        let fell = sums(recording, sampled, arm, directions);
        let late = sums(recording, deferred, arm, directions);
        let counted = exact.map(|of| sums(recording, of, arm, directions));
        let counted = counted.filter(|sums| !sums.is_empty());
        let calls = |sums: &Sums| sums.values().map(|sum| sum.0).sum::<u64>();
        let (samples, all_late) = (calls(&fell), calls(&late));
        let executed: u64 = counted.iter().flat_map(Sums::values).map(|sum| sum.1).sum();
        let part = |n: u64, of: u64| n as f64 / of.max(1) as f64;
        let found = |sums: &Sums, function| sums.get(function).copied().unwrap_or_default();
        let mut all: Vec<FunctionId> = fell.keys().chain(late.keys()).copied().collect();
        all.extend(counted.iter().flat_map(Sums::keys));
        all.sort_unstable();
        all.dedup();
        let functions = all.iter().map(|id| {
            let hits = found(&fell, id).0;
            let shares = Shares {
                exact: counted.as_ref().map(|c| part(found(c, id).1, executed)),
                sampled: part(hits, samples),
                interval: interval(hits, samples),
                deferred: part(found(&late, id).0, all_late),
            };
            (&recording.functions[*id as usize], shares)
        });
        let mut functions: Vec<_> = functions.collect();
        let most = |s: &Shares| s.executed().max(s.deferred);
        functions.sort_by(|(a, one), (b, other)| {
            most(other).total_cmp(&most(one)).then(a.name.cmp(&b.name))
        });
        (samples > 0).then_some(Beside {
            arm: data,
            samples,
            functions,
        })
    };
    recording
        .arms
        .iter()
        .enumerate()
        .filter_map(of_arm)
        .collect()
}

type Row<'a> = (&'a Function, Shares);

/// The columns, each declared once.
fn columns<'a>(exact: bool) -> Vec<Column<'a, Row<'a>>> {
    let mut columns = vec![
        Column::code("function", |(f, _): &Row<'a>| {
            Value::Name(f.name.clone(), f.module.clone())
        })
        .people(0),
    ];
    if exact {
        columns.push(
            Column::figure("exact", |(_, s): &Row<'a>| {
                s.exact.map_or(Value::Missing, Value::Share)
            })
            .hint("what it executed")
            .people(1),
        );
    }
    columns.extend([
        Column::figure("samples", |(_, s): &Row<'a>| Value::Share(s.sampled))
            .hint("its share of the samples")
            .people(2),
        Column::figure("95% interval", |(_, s): &Row<'a>| {
            let (low, high) = s.interval;
            let text = format!("{:.1}% to {:.1}%", low * 100.0, high * 100.0);
            Value::Told(text, Some(high - low))
        })
        .hint("of that share")
        .people(3)
        .from(WIDE),
        Column::figure("timer", |(_, s): &Row<'a>| Value::Share(s.deferred))
            .hint("its share where samples wait until interrupts are enabled")
            .people(4),
        Column::figure("off by", |(_, s): &Row<'a>| {
            Value::Told(format!("{:+.1}", s.off() * 100.0), Some(s.off()))
        })
        .hint("percentage points by which a timer is off")
        .people(5),
    ]);
    columns
}

/// What a timer's samples blame, in sentences; the worst first.
pub fn blamed(beside: &Beside<'_>) -> Vec<String> {
    let mut blamed: Vec<&Row<'_>> = (beside.functions.iter())
        .filter(|(_, s)| s.off() > BLAME && s.deferred > s.interval.1)
        .collect();
    blamed.sort_by(|(_, a), (_, b)| b.off().total_cmp(&a.off()));
    let sentence = |(function, shares): &&Row<'_>| {
        let (timer, executed) = (shares.deferred * 100.0, shares.executed() * 100.0);
        if function.name == USER_MODE {
            return format!(
                "A timer would charge {timer:.1}% of what the kernel executes to user mode."
            );
        }
        let name = printable(&function.name, 80);
        format!("A timer would charge {timer:.1}% to {name}; it executes {executed:.1}%.")
    };
    blamed.iter().take(BLAMED).map(sentence).collect()
}

/// What was counted, sampled, and would be sampled by a timer, side by side. None where nothing
/// was sampled in guests.
pub fn render(
    recording: &Recording,
    directions: &[Direction],
    arms: &[String],
    width: usize,
) -> Option<String> {
    let mut all = beside(recording, directions);
    all.retain(|beside| arms.is_empty() || arms.contains(&beside.arm.name));
    let mut out = String::new();
    for beside in &all {
        let exact = beside.functions.iter().any(|(_, s)| s.exact.is_some());
        let whose = match directions {
            [] => "all that was counted in the windows".to_string(),
            some => some
                .iter()
                .map(|d| d.as_str())
                .collect::<Vec<_>>()
                .join(" and "),
        };
        let heading = format!(
            "What a timer would see of {} ({whose}; {} samples)",
            printable(&beside.arm.name, 60),
            thousands(beside.samples)
        );
        out.push_str(&continued(&heading, 2, width));
        out.push('\n');
        let rows = beside.functions.iter().copied().take(ROWS);
        let table = Table::new(columns(exact), rows);
        out.push_str(&table.terminal(Room::of(width, NAME_LETTERS)));
        for sentence in blamed(beside) {
            out.push_str(&continued(&format!("  {sentence}"), 2, width));
            out.push('\n');
        }
    }
    (!all.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Family, Link, Proto};
    use netplumb_model::recording::{Block, Cost, Ledger, Node};

    use super::*;

    /// Check the interval against published ones (Newcombe 1998, table I, method 3), and that
    /// nothing says nothing.
    #[test]
    fn wilson() {
        let near = |(low, high): (f64, f64), expected: (f64, f64)| {
            assert!((low - expected.0).abs() < 5e-5, "{low}");
            assert!((high - expected.1).abs() < 5e-5, "{high}");
        };
        near(interval(81, 263), (0.2553, 0.3662));
        near(interval(15, 148), (0.0624, 0.1605));
        near(interval(0, 20), (0.0, 0.1611));
        near(interval(1, 29), (0.0061, 0.1718));
        assert_eq!(interval(0, 0), (0.0, 1.0));
    }

    /// Check that shares are of each quantity's own sum, and that what a timer blames is named,
    /// with what it executes.
    #[test]
    fn side_by_side() {
        let mut recording = Recording::default();
        let of = [&INSTRUCTIONS, &SAMPLED, &DEFERRED].map(|of| recording.quantity(of));
        recording.arms = vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Lo,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }];
        let names = ["memset", "_raw_spin_unlock_irqrestore", USER_MODE];
        for (id, name) in (0..).zip(names) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node {
                parent: None,
                function: id,
                tail: false,
            });
        }
        for (block, quantity, counts) in [
            (0, of[0], [9_900, 100, 0]),
            (1, of[1], [990, 10, 0]),
            (1, of[2], [600, 300, 100]),
        ] {
            recording
                .costs
                .extend((0..).zip(counts).map(|(node, own)| Cost {
                    block,
                    quantity,
                    direction: Direction::Tx,
                    context: Context::Task,
                    node,
                    calls: own,
                    own,
                }));
        }
        recording.blocks = ["exact", "samples"]
            .map(|instrument| Block {
                arm: 0,
                instrument: instrument.into(),
                index: 0,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 0,
            })
            .to_vec();
        let all = beside(&recording, &[]);
        let (function, shares) = all[0].functions[1];
        assert_eq!(function.name, "_raw_spin_unlock_irqrestore");
        assert_eq!(shares.exact, Some(0.01));
        assert_eq!((shares.sampled, shares.deferred), (0.01, 0.3));
        assert_eq!(
            blamed(&all[0]),
            [
                "A timer would charge 30.0% to _raw_spin_unlock_irqrestore; it executes 1.0%.",
                "A timer would charge 10.0% of what the kernel executes to user mode.",
            ]
        );
        let text = render(&recording, &[], &[], 110).unwrap();
        assert!(text.contains("1,000 samples"), "{text}");
        assert!(text.contains("+29.0"), "{text}");
        assert!(beside(&recording, &[Direction::Rx]).is_empty());
    }
}
