//! Inclusive shares of functions, by every instrument that has them, beside published ones:
//! executed, sampled, and as a timer would sample them.

use netplumb_model::chain;
use netplumb_model::class::{Class, Direction};
use netplumb_model::experiment::{Experiment, Shares};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, SAMPLED};

use crate::number::printable;
use crate::sampled::interval;
use crate::section::Section;
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Table, Value};

/// A timer's least error, as a share of the whole, for a function to be named.
const BLAME: f64 = 0.01;
/// Letters of a name.
const NAME_LETTERS: usize = 60;
/// From here on there is room for intervals.
const WIDE: usize = 90;

/// Shares that an experiment asks for: of functions below another, or in a class.
#[derive(Debug, Clone, PartialEq)]
pub struct SharesOf {
    title: String,
    note: String,
    class: Class,
    within: Option<String>,
    rows: Vec<ShareRow>,
}

/// One function in one arm.
#[derive(Debug, Clone, PartialEq)]
struct ShareRow {
    arm: String,
    of: String,
    exact: Option<f64>,
    sampled: Option<f64>,
    /// The 95 % interval of `sampled`.
    interval: (f64, f64),
    deferred: Option<f64>,
    published: Option<f64>,
}

impl ShareRow {
    /// Its executed share, counted or else sampled, if known.
    fn executed(&self) -> Option<f64> {
        self.exact.or(self.sampled)
    }
}

/// A part of a whole, in the unit of a quantity.
#[derive(Debug, Clone, Copy, Default)]
struct Fraction {
    part: u64,
    whole: u64,
}

impl Fraction {
    fn share(self) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }
}

/// The part of an arm's costs in a direction below a chain, as a fraction of the part below another.
fn part(
    recording: &Recording,
    of: &Declared,
    (arm, direction): (usize, Direction),
    (is_part, is_whole): (&[bool], Option<&[bool]>),
) -> Fraction {
    let mut sum = Fraction::default();
    let number = recording.quantities.iter().position(|q| q.is(of));
    let is_of = |quantity: u32| number == Some(quantity as usize);
    for cost in recording.costs.iter().filter(|c| is_of(c.quantity)) {
        let block = &recording.blocks[cost.block as usize];
        let is_in = is_whole.is_none_or(|is| is[cost.node as usize]);
        if block.arm as usize != arm || cost.direction != direction || !is_in {
            continue;
        }
        // Calls of samples are numbers of samples.
        let n = match number == Some(cost.quantity as usize) && of.name == INSTRUCTIONS.name {
            true => cost.own,
            false => cost.calls,
        };
        sum.whole += n;
        sum.part += n * u64::from(is_part[cost.node as usize]);
    }
    sum
}

fn rows(recording: &Recording, shares: &Shares, arms: &[String]) -> Vec<ShareRow> {
    let mut rows = Vec::new();
    let within = shares.within.as_deref();
    let whole = within.map(|chain| chain::below(recording, chain));
    for (arm, data) in recording.arms.iter().enumerate() {
        let named = shares.arms.is_empty() || shares.arms.contains(&data.name);
        let asked = arms.is_empty() || arms.contains(&data.name);
        if !named || !asked || data.proto != shares.class.proto {
            continue;
        }
        for of in &shares.of {
            let is_part = chain::below(recording, &inside(within, of));
            let at = (arm, shares.class.direction);
            let sets = (&is_part[..], whole.as_deref());
            let [exact, fell, late] =
                [&INSTRUCTIONS, &SAMPLED, &DEFERRED].map(|q| part(recording, q, at, sets));
            if exact.whole + fell.whole == 0 && !is_measured(recording, at) {
                continue;
            }
            let published = shares.published.iter();
            let mut published = published.filter(|p| p.arm == data.name && p.of == *of);
            rows.push(ShareRow {
                arm: data.name.clone(),
                of: of.clone(),
                exact: exact.share(),
                sampled: fell.share(),
                interval: interval(fell.part, fell.whole),
                deferred: late.share(),
                published: published.next().map(|p| p.percent / 100.0),
            });
        }
    }
    rows
}

/// Whether an arm has costs of a direction: then it never calls a function without costs there.
fn is_measured(recording: &Recording, (arm, direction): (usize, Direction)) -> bool {
    recording.costs.iter().any(|cost| {
        let block = &recording.blocks[cost.block as usize];
        block.arm as usize == arm && cost.direction == direction
    })
}

/// A chain below another.
fn inside(within: Option<&str>, of: &str) -> String {
    match within {
        Some(within) if of != within => format!("{within};{of}"),
        _ => of.to_string(),
    }
}

fn share(of: Option<f64>) -> Value {
    of.map_or(Value::Missing, Value::Share)
}

/// The columns, each declared once.
fn columns<'a>(rows: &[ShareRow]) -> Vec<Column<'a, ShareRow>> {
    let has = |of: fn(&ShareRow) -> Option<f64>| rows.iter().any(|row| of(row).is_some());
    let mut columns = vec![
        Column::text("arm", |row: &ShareRow| row.arm.clone())
            .hint("one combination of settings")
            .json("arm")
            .people(0)
            .page("arm"),
        Column::code("function", |row: &ShareRow| Value::Name(row.of.clone(), None))
            .hint("with all that it calls; `a;b` is b where a calls it")
            .json("function")
            .people(1)
            .page("function"),
    ];
    if has(|row| row.exact) {
        columns.push(
            Column::figure("exact", |row: &ShareRow| share(row.exact))
                .hint("what it executed, with all that it called")
                .json("exact")
                .people(2)
                .page("exact"),
        );
    }
    if has(|row| row.sampled) {
        columns.push(
            Column::figure("samples", |row: &ShareRow| share(row.sampled))
                .hint("its share of the samples")
                .json("samples")
                .people(3)
                .page("samples"),
        );
        columns.push(
            Column::figure("95% interval", |row: &ShareRow| {
                let (low, high) = row.interval;
                let text = format!("{:.1}% to {:.1}%", low * 100.0, high * 100.0);
                Value::Formatted(text, Some(high - low))
            })
            .hint("of that share")
            .people(4)
            .from(WIDE)
            .page("interval"),
        );
        let low = Column::machine(|row: &ShareRow| Value::Number(row.interval.0));
        let high = Column::machine(|row: &ShareRow| Value::Number(row.interval.1));
        columns.extend([low.json("samples_low"), high.json("samples_high")]);
        columns.push(
            Column::figure("timer", |row: &ShareRow| share(row.deferred))
                .hint("its share where samples wait until interrupts are enabled")
                .off(|row| {
                    let off = row.deferred.zip(row.executed()).map(|(timer, own)| timer - own);
                    off.is_some_and(|off| off > BLAME)
                })
                .json("timer")
                .people(5)
                .page("timer"),
        );
    }
    if has(|row| row.published) {
        columns.push(
            Column::figure("published", |row: &ShareRow| share(row.published))
                .hint("its share in the publication")
                .json("published")
                .people(6)
                .page("published"),
        );
    }
    columns
}

/// Functions of these that a timer's samples blame, in sentences.
fn blamed(rows: &[ShareRow], whole: &str) -> Vec<String> {
    let sentence = |row: &ShareRow| {
        let (executed, timer) = (row.executed()?, row.deferred?);
        if timer - executed <= BLAME || timer <= row.interval.1 {
            return None;
        }
        let published = match row.published {
            // A function that enables interrupts is blamed only for code that ran before.
            Some(p) if p > timer => format!(
                "; published: {:.1}%, {:.1} points more than that explains",
                p * 100.0,
                (p - timer) * 100.0
            ),
            Some(p) => format!("; published: {:.1}%", p * 100.0),
            None => String::new(),
        };
        Some(format!(
            "{}: a timer would charge {:.1}% of {whole} to {}, which executes {:.1}% of it{published}.",
            printable(&row.arm, NAME_LETTERS),
            timer * 100.0,
            printable(&chain::chain_text(&row.of), NAME_LETTERS),
            executed * 100.0
        ))
    };
    rows.iter().filter_map(sentence).collect()
}

/// The shares that an experiment asks for, of some directions and arms or, where none are named, all;
/// without shares that were not measured.
pub(crate) fn all(
    recording: &Recording,
    experiment: &Experiment,
    directions: &[Direction],
    arms: &[String],
) -> Vec<SharesOf> {
    let asked = |class: Class| directions.is_empty() || directions.contains(&class.direction);
    let one = |shares: &Shares| SharesOf {
        title: shares.title.trim().to_string(),
        note: shares.note.split_whitespace().collect::<Vec<_>>().join(" "),
        class: shares.class,
        within: shares.within.clone(),
        rows: rows(recording, shares, arms),
    };
    let shares = experiment.shares.iter().filter(|s| asked(s.class));
    shares.map(one).filter(|shares| !shares.rows.is_empty()).collect()
}

impl SharesOf {
    /// The whole that they are shares of.
    fn whole(&self) -> String {
        match &self.within {
            Some(within) => format!("what is below {}", chain::chain_text(within)),
            None => self.class.to_string(),
        }
    }

    fn heading(&self) -> String {
        let title = match self.title.as_str() {
            "" => String::new(),
            title => format!("{title}: "),
        };
        format!("{title}shares of {}", self.whole())
    }

    fn table(&self) -> Table<'_, ShareRow> {
        Table::new(columns(&self.rows), self.rows.iter().cloned())
    }

    /// Functions of these that a timer's samples blame, and the experiment's note.
    fn sentences(&self) -> Vec<String> {
        let mut sentences = blamed(&self.rows, &self.whole());
        sentences.extend(Some(self.note.clone()).filter(|note| !note.is_empty()));
        sentences
    }
}

/// Sections of shares.
pub fn sections<'s>(all: &'s [SharesOf]) -> Vec<Section<'s>> {
    let section = |shares: &'s SharesOf| {
        let section = Section::rows(NAME_LETTERS, move |_| shares.table());
        let section = section.heading(shares.heading()).sentences(shares.sentences());
        section.place("shares", "Shares of functions")
    };
    all.iter().map(section).collect()
}

/// The same as JSON.
pub(crate) fn json(all: &[SharesOf]) -> Vec<Value> {
    let one = |shares: &SharesOf| {
        let sentences = blamed(&shares.rows, &shares.whole()).into_iter();
        let sentences = sentences.map(Value::Text);
        Value::object([
            ("title", Value::Text(shares.title.clone())),
            ("note", Value::Text(shares.note.clone())),
            ("class", Value::Text(shares.class.to_string())),
            ("within", Value::words(shares.within.as_deref())),
            ("functions", Value::List(shares.table().json())),
            ("blamed", Value::List(sentences.collect())),
        ])
    };
    all.iter().map(one).collect()
}

/// The columns, for their reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns(&[ShareRow {
        arm: String::new(),
        of: String::new(),
        exact: Some(0.0),
        sampled: Some(0.0),
        interval: (0.0, 0.0),
        deferred: Some(0.0),
        published: Some(0.0),
    }]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netplumb_model::class::{Context, Family, Link, Proto};
    use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node};

    use super::*;
    use crate::page::PagePart;

    /// Check that shares are of each quantity's own sum below the enclosing function, that functions
    /// elsewhere don't count, and the sentences about functions that a timer overrates.
    #[test]
    fn shares_of_a_subtree() {
        let mut recording = Recording::default();
        let of = [&INSTRUCTIONS, &SAMPLED, &DEFERRED].map(|of| recording.quantity(of));
        recording.arms = vec![Arm {
            name: "before".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Smsc95xx,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }];
        // The unlock is below the queue below the poll, and elsewhere.
        for (id, (name, parent)) in (0..).zip([
            ("usbnet_bh", None),
            ("skb_dequeue", Some(0)),
            ("_raw_spin_unlock_irqrestore", Some(1)),
            ("schedule", None),
            ("_raw_spin_unlock_irqrestore", Some(3)),
        ]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node { parent, function: id, tail: false });
        }
        for (block, quantity, counts) in [
            (0, of[0], [700, 200, 100, 500, 500]),
            (1, of[1], [70, 20, 10, 50, 50]),
            (1, of[2], [40, 10, 50, 40, 60]),
        ] {
            recording.costs.extend((0..).zip(counts).map(|(node, own)| Cost {
                block,
                quantity,
                direction: Direction::Drop,
                context: Context::OtherTask,
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
            .into();
        let text = |within: &str| {
            format!(
                "name = \"x\"\n[[arm]]\nname = \"before\"\n[[shares]]\nclass = \"udp drop\"\n\
                 note = \"Of another machine.\"\nof = [\"skb_dequeue\", \"_raw_spin_unlock_irqrestore\"]\n{within}\n\
                 published = [{{ arm = \"before\", of = \"skb_dequeue\", percent = 55.5 }}]\n"
            )
        };
        let rendered = |within: &str| {
            let experiment = Experiment::parse(&text(within)).unwrap();
            sections(&all(&recording, &experiment, &[], &[]))[0].terminal(200)
        };
        let below = rendered("within = \"usbnet_bh\"");
        for expected in [
            "skb_dequeue                  30.0%    30.0%",
            "which executes 30.0% of it; published: 55.5%.",
            "  Of another machine.",
            "to _raw_spin_unlock_irqrestore, which executes 10.0% of it.",
        ] {
            assert!(below.contains(expected), "{expected}: {below}");
        }
        let whole = rendered("");
        assert!(whole.contains("shares of udp drop"), "{whole}");
        assert!(whole.contains("_raw_spin_unlock_irqrestore  30.0%"), "{whole}");
        // The same figures in every other output, and only for the selection.
        let experiment = Experiment::parse(&text("within = \"usbnet_bh\"")).unwrap();
        let all = |directions: &[Direction], arms: &[&str]| {
            let arms: Vec<String> = arms.iter().map(ToString::to_string).collect();
            super::all(&recording, &experiment, directions, &arms)
        };
        let asked = all(&[Direction::Drop], &["before"]);
        let document = serde_json::to_value(json(&asked)).unwrap();
        assert_eq!(document[0]["within"], "usbnet_bh");
        let function = &document[0]["functions"][1];
        assert_eq!(function["function"], "_raw_spin_unlock_irqrestore");
        assert_eq!((&function["exact"], &function["timer"]), (&0.1.into(), &0.5.into()));
        assert_eq!(document[0]["functions"][0]["published"], 0.555);
        let blamed = &document[0]["blamed"];
        assert!(blamed.as_array().is_some_and(|all| all.len() == 2), "{blamed}");
        let mut out = String::new();
        let section = &sections(&asked)[0];
        section.markdown(&mut out);
        assert!(out.contains("## shares of what is below usbnet\\_bh"), "{out}");
        assert!(out.contains("published: 55.5%"), "{out}");
        let (_, parts) = section.page();
        let [PagePart::Table(table), PagePart::Sentences { sentences }] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((table.rows.len(), sentences.len()), (2, 3));
        assert!(all(&[], &["after"]).is_empty());
        assert!(all(&[Direction::Rx], &[]).is_empty());
    }
}
