//! Samples of a guest compared to its executed instructions: their error, and the functions that a
//! timer's samples would blame.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::quantity::{Declared, QuantityId};
use netplumb_model::recording::{Arm, Function, FunctionId, Recording};
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, SAMPLED, USER_MODE};

use crate::analysis::quantity;
use crate::number::{printable, thousands};
use crate::section::{Reader, Section};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Table, Value};

/// Functions that are listed.
const ROWS: usize = 15;
/// The same on the page.
const MOST: usize = 200;
/// The most functions named for a timer's error.
const BLAMED: usize = 5;
/// A timer's least error, as a share of all samples, for a function to be named.
const BLAME: f64 = 0.01;
/// Letters of a name.
const NAME_LETTERS: usize = 44;
/// From here on there is room for intervals.
const WIDE: usize = 90;
/// Standard errors of a 95 % interval (the 97.5th percentile of the normal distribution).
const Z: f64 = 1.959_964;

/// A function's shares by each of the three measures.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares {
    /// Its own instructions as a share of all, if they were counted.
    pub exact: Option<f64>,
    /// Its share of the samples.
    pub sampled: f64,
    /// The 95 % interval of `sampled`.
    pub interval: (f64, f64),
    /// Its share of the samples as a timer would have taken them.
    pub deferred: f64,
}

impl Shares {
    /// Its executed share, counted or else sampled.
    fn executed(&self) -> f64 {
        self.exact.unwrap_or(self.sampled)
    }

    /// The error of a timer.
    fn off(&self) -> f64 {
        self.deferred - self.executed()
    }
}

/// An arm's functions, the largest share first.
#[derive(Debug)]
pub struct ArmSamples<'a> {
    /// The arm that was sampled in a guest.
    pub arm: &'a Arm,
    /// The directions that are counted; all, if none is named.
    pub directions: Vec<Direction>,
    /// How many samples there are.
    pub samples: u64,
    /// Its functions and their shares, the largest first.
    pub functions: Vec<(&'a Function, Shares)>,
}

/// The interval of a share, from `hits` out of `all` samples (Wilson, 1927).
pub fn interval(hits: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (all as f64, hits as f64 / all as f64);
    let z2 = Z * Z / n;
    let middle = share + z2 / 2.0;
    let half = Z * (share * (1.0 - share) / n + z2 / (4.0 * n)).sqrt();
    (((middle - half) / (1.0 + z2)).max(0.0), ((middle + half) / (1.0 + z2)).min(1.0))
}

/// Samples and cost of each function, in a quantity and an arm.
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

/// The arms of a recording that were sampled in guests: by name, or all; in some directions, or
/// in all together with what was in no packet's path.
pub fn beside<'a>(
    recording: &'a Recording,
    directions: &[Direction],
    arms: &[String],
) -> Vec<ArmSamples<'a>> {
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
        let is_asked = arms.is_empty() || arms.contains(&data.name);
        (is_asked && samples > 0).then(|| ArmSamples {
            arm: data,
            directions: directions.to_vec(),
            samples,
            functions,
        })
    };
    recording.arms.iter().enumerate().filter_map(of_arm).collect()
}

/// The samples shown with a part of the recording: all with the part of samples, none with any
/// other.
pub fn of_part<'b, 'a>(part: &Recording, all: &'b [ArmSamples<'a>]) -> &'b [ArmSamples<'a>] {
    let quantity = quantity(part);
    match quantity.is(&SAMPLED) || quantity.is(&DEFERRED) {
        true => all,
        false => &[],
    }
}

type SharesRow<'a> = (&'a Function, Shares);

/// The columns, each declared once.
fn columns<'a>(exact: bool) -> Vec<Column<'a, SharesRow<'a>>> {
    let mut columns = vec![
        Column::code("function", |(f, _): &SharesRow<'a>| {
            Value::Name(f.name.clone(), f.module.clone())
        })
        .hint("its symbol, and the module that it is in")
        .json("name")
        .people(0)
        .page("function"),
        Column::machine(|(f, _): &SharesRow<'a>| Value::words(f.module.as_deref())).json("module"),
    ];
    if exact {
        columns.push(
            Column::figure("exact", |(_, s): &SharesRow<'a>| {
                s.exact.map_or(Value::Missing, Value::Share)
            })
            .hint("what it executed")
            .json("exact")
            .people(1)
            .page("exact"),
        );
    }
    columns.extend([
        Column::figure("samples", |(_, s): &SharesRow<'a>| Value::Share(s.sampled))
            .hint("its share of the samples")
            .json("samples")
            .people(2)
            .page("samples"),
        Column::figure("95% interval", |(_, s): &SharesRow<'a>| {
            let (low, high) = s.interval;
            let text = format!("{:.1}% to {:.1}%", low * 100.0, high * 100.0);
            Value::Formatted(text, Some(high - low))
        })
        .hint("of that share")
        .people(3)
        .from(WIDE)
        .page("interval"),
        Column::machine(|(_, s): &SharesRow<'a>| Value::Number(s.interval.0)).json("samples_low"),
        Column::machine(|(_, s): &SharesRow<'a>| Value::Number(s.interval.1)).json("samples_high"),
        Column::figure("timer", |(_, s): &SharesRow<'a>| Value::Share(s.deferred))
            .hint("its share where samples wait until interrupts are enabled")
            .json("timer")
            .people(4)
            .page("timer"),
        Column::figure("off by", |(_, s): &SharesRow<'a>| {
            Value::Formatted(format!("{:+.1}", s.off() * 100.0), Some(s.off()))
        })
        .hint("percentage points by which a timer is off")
        .off(|(_, s)| s.off().abs() > BLAME)
        .json("off_by")
        .people(5)
        .page("off_by"),
    ]);
    columns
}

/// Functions that a timer's samples blame, in sentences; the worst first.
pub fn blamed(beside: &ArmSamples<'_>) -> Vec<String> {
    let mut blamed: Vec<&SharesRow<'_>> = (beside.functions.iter())
        .filter(|(_, s)| s.off() > BLAME && s.deferred > s.interval.1)
        .collect();
    blamed.sort_by(|(_, a), (_, b)| b.off().total_cmp(&a.off()));
    let sentence = |(function, shares): &&SharesRow<'_>| {
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

impl<'a> ArmSamples<'a> {
    fn is_counted(&self) -> bool {
        self.functions.iter().any(|(_, s)| s.exact.is_some())
    }

    /// The first functions, or with 0 all.
    fn table(&self, top: usize) -> Table<'a, SharesRow<'a>> {
        let top = if top == 0 { usize::MAX } else { top };
        let rows = self.functions.iter().copied().take(top);
        Table::new(columns(self.is_counted()), rows)
    }

    /// The arm and the number of samples.
    fn heading(&self) -> String {
        let whose = match &self.directions[..] {
            [] => "all that was counted in the windows".to_string(),
            some => {
                let words: Vec<&str> = some.iter().map(|d| d.as_str()).collect();
                words.join(" and ")
            }
        };
        format!(
            "What a timer would see of {} ({whose}; {} samples)",
            printable(&self.arm.name, 60),
            thousands(self.samples)
        )
    }
}

/// Counted, sampled and a timer's shares side by side: a section for each arm; none without samples of guests.
pub fn sections<'s>(all: &'s [ArmSamples<'s>]) -> Vec<Section<'s>> {
    let section = |beside: &'s ArmSamples<'s>| {
        let rows = move |reader| {
            beside.table(match reader {
                Reader::People => ROWS,
                Reader::Page => MOST,
                Reader::Program => 0,
            })
        };
        let section = Section::rows(NAME_LETTERS, rows);
        let section = section.heading(beside.heading()).sentences(blamed(beside));
        section.place("sampled", "Samples and a timer")
    };
    all.iter().map(section).collect()
}

/// The same as JSON, with all functions.
pub(crate) fn json(all: &[ArmSamples<'_>]) -> Vec<Value> {
    let one = |(beside, section): (&ArmSamples<'_>, Section<'_>)| {
        let directions = beside.directions.iter();
        let directions = directions.map(|d| Value::Text(d.as_str().into()));
        let sentences = blamed(beside).into_iter().map(Value::Text);
        Value::object([
            ("arm", Value::Text(beside.arm.name.clone())),
            ("directions", Value::List(directions.collect())),
            ("samples", Value::Count(beside.samples)),
            ("functions", Value::List(section.json())),
            ("blamed", Value::List(sentences.collect())),
        ])
    };
    all.iter().zip(sections(all)).map(one).collect()
}

/// The columns, for their reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns(true))
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Family, Link, Proto};
    use netplumb_model::recording::{Block, Cost, Ledger, Node, Total};

    use super::*;
    use crate::page::PagePart;
    use crate::together::CrossQuantity;

    /// Check the interval against published ones (Newcombe 1998, table I, method 3), and that
    /// it is everything without samples.
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

    /// Check that shares are of each quantity's own sum, and that functions that a timer blames are
    /// named, with their executed share.
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
            recording.nodes.push(Node { parent: None, function: id, tail: false });
        }
        for (block, quantity, counts) in
            [(0, of[0], [9_900, 100, 0]), (1, of[1], [990, 10, 0]), (1, of[2], [600, 300, 100])]
        {
            recording.costs.extend((0..).zip(counts).map(|(node, own)| Cost {
                block,
                quantity,
                direction: Direction::Tx,
                context: Context::Task,
                node,
                calls: own,
                own,
            }));
        }
        let total = |quantity: &QuantityId| Total { quantity: *quantity, ..Total::default() };
        recording.blocks = [("exact", &of[..1]), ("samples", &of[1..])]
            .map(|(instrument, of)| Block {
                arm: 0,
                instrument: instrument.into(),
                index: 0,
                ledger: Ledger::default(),
                totals: of.iter().map(total).collect(),
                entered: 0,
                returned: 0,
                duration_ns: 0,
            })
            .to_vec();
        let all = beside(&recording, &[], &[]);
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
        let section = &sections(&all)[0];
        let text = section.terminal(110);
        assert!(text.contains("1,000 samples"), "{text}");
        assert!(text.contains("+29.0"), "{text}");
        assert!(beside(&recording, &[Direction::Rx], &[]).is_empty());
        assert!(beside(&recording, &[], &["tcp".into()]).is_empty());
        assert!(sections(&[]).is_empty());
        // Everywhere else the same figures.
        let mut text = String::new();
        section.markdown(&mut text);
        assert!(text.contains("+29.0") && text.contains("30.0%"), "{text}");
        assert!(text.contains("- A timer would charge 30.0%"), "{text}");
        let document = serde_json::to_value(json(&all)).unwrap();
        let function = &document[0]["functions"][1];
        assert_eq!(function["name"], "_raw_spin_unlock_irqrestore");
        assert_eq!(function["exact"], 0.01);
        assert_eq!(function["timer"], 0.3);
        assert!(function["samples_low"].as_f64().unwrap() < 0.01);
        assert_eq!(document[0]["samples"], 1_000);
        let (_, parts) = section.page();
        let [PagePart::Table(table), PagePart::Sentences { sentences }] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((table.rows.len(), sentences.len()), (3, 2));
        // CSV has a row for each function of a class, with its shares in that.
        let part = recording.part("samples");
        let views = crate::analysis::classes(&part);
        let together = CrossQuantity::from_recording(&recording, None, &[], &[]);
        let csv = crate::functions::csv(&views, None, &together);
        let mut rows = csv.lines().map(|line| line.split(','));
        let head: Vec<&str> = rows.next().unwrap().collect();
        let at = |name: &str| head.iter().position(|column| *column == name).unwrap();
        let row: Vec<&str> = rows
            .map(Iterator::collect)
            .find(|row: &Vec<&str>| row[at("function")] == "_raw_spin_unlock_irqrestore")
            .unwrap();
        let figures = ["exact_share", "samples_share", "timer_share"].map(|name| row[at(name)]);
        assert_eq!(figures, ["0.010000", "0.010000", "0.300000"], "{csv}");
        // With the tables of samples only.
        assert_eq!(of_part(&recording.part("deferred"), &all).len(), 1);
        assert!(of_part(&recording.part("exact"), &all).is_empty());
    }
}
