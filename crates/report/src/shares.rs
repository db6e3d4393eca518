//! Shares of functions with all that they call, by every instrument that has them, beside
//! published ones: what was executed, what samples say, and what a timer's samples would.

use netplumb_model::chain;
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Experiment, Shares};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, SAMPLED};

use crate::number::printable;
use crate::sampled::interval;
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// By so much a timer has to be off, of all that is shared, for a function to be named.
const BLAME: f64 = 0.01;
/// Letters of a name.
const NAME_LETTERS: usize = 60;
/// From here on there is room for intervals.
const WIDE: usize = 90;

/// One function in one arm.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    arm: String,
    of: String,
    exact: Option<f64>,
    sampled: Option<f64>,
    /// The 95 % interval of that.
    interval: (f64, f64),
    deferred: Option<f64>,
    published: Option<f64>,
}

impl Row {
    /// What it executes, as well as that is known.
    fn executed(&self) -> Option<f64> {
        self.exact.or(self.sampled)
    }
}

/// A part of a whole, in the unit of a quantity.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    part: u64,
    whole: u64,
}

impl Part {
    fn share(self) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }
}

/// What of an arm's costs in some direction is below a chain, of what is below another.
fn part(
    recording: &Recording,
    of: &Declared,
    (arm, direction): (usize, Direction),
    (is_part, is_whole): (&[bool], Option<&[bool]>),
) -> Part {
    let mut sum = Part::default();
    let number = recording.quantities.iter().position(|q| q.is(of));
    let is_of = |quantity: u32| number == Some(quantity as usize);
    for cost in recording.costs.iter().filter(|c| is_of(c.quantity)) {
        let block = &recording.blocks[cost.block as usize];
        let is_in = is_whole.is_none_or(|is| is[cost.node as usize]);
        if block.arm as usize != arm || cost.direction != direction || !is_in {
            continue;
        }
        // Calls of samples are how many there are.
        let n = match number == Some(cost.quantity as usize) && of.name == INSTRUCTIONS.name {
            true => cost.own,
            false => cost.calls,
        };
        sum.whole += n;
        sum.part += n * u64::from(is_part[cost.node as usize]);
    }
    sum
}

fn rows(recording: &Recording, shares: &Shares) -> Vec<Row> {
    let mut rows = Vec::new();
    let within = shares.within.as_deref();
    let whole = within.map(|chain| chain::below(recording, chain));
    for (arm, data) in recording.arms.iter().enumerate() {
        let named = shares.arms.is_empty() || shares.arms.contains(&data.name);
        if !named || data.proto != shares.class.proto {
            continue;
        }
        for of in &shares.of {
            let is_part = chain::below(recording, &inside(within, of));
            let at = (arm, shares.class.direction);
            let sets = (&is_part[..], whole.as_deref());
            let [exact, fell, late] =
                [&INSTRUCTIONS, &SAMPLED, &DEFERRED].map(|q| part(recording, q, at, sets));
            if exact.whole + fell.whole == 0 {
                continue;
            }
            let published = shares.published.iter();
            let mut published = published.filter(|p| p.arm == data.name && p.of == *of);
            rows.push(Row {
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
fn columns<'a>(rows: &[Row]) -> Vec<Column<'a, Row>> {
    let has = |of: fn(&Row) -> Option<f64>| rows.iter().any(|row| of(row).is_some());
    let mut columns = vec![
        Column::text("arm", |row: &Row| row.arm.clone()).people(0),
        Column::code("function", |row: &Row| Value::Name(row.of.clone(), None)).people(1),
    ];
    if has(|row| row.exact) {
        columns.push(
            Column::figure("exact", |row: &Row| share(row.exact))
                .hint("what it executed, with all that it called")
                .people(2),
        );
    }
    if has(|row| row.sampled) {
        columns.push(
            Column::figure("samples", |row: &Row| share(row.sampled))
                .hint("its share of the samples")
                .people(3),
        );
        columns.push(
            Column::figure("95% interval", |row: &Row| {
                let (low, high) = row.interval;
                let text = format!("{:.1}% to {:.1}%", low * 100.0, high * 100.0);
                Value::Told(text, Some(high - low))
            })
            .hint("of that share")
            .people(4)
            .from(WIDE),
        );
        columns.push(
            Column::figure("timer", |row: &Row| share(row.deferred))
                .hint("its share where samples wait until interrupts are enabled")
                .people(5),
        );
    }
    if has(|row| row.published) {
        columns.push(
            Column::figure("published", |row: &Row| share(row.published))
                .hint("its share in the publication")
                .people(6),
        );
    }
    columns
}

/// What a timer's samples blame, of these, in sentences.
fn blamed(rows: &[Row], whole: &str) -> Vec<String> {
    let sentence = |row: &Row| {
        let (executed, timer) = (row.executed()?, row.deferred?);
        if timer - executed <= BLAME || timer <= row.interval.1 {
            return None;
        }
        let published = match row.published {
            Some(p) => format!("; published: {:.1}%", p * 100.0),
            None => String::new(),
        };
        Some(format!(
            "{}: a timer would charge {:.1}% of {whole} to {}, which executes {:.1}% of it{published}.",
            printable(&row.arm, NAME_LETTERS),
            timer * 100.0,
            printable(&chain::told(&row.of), NAME_LETTERS),
            executed * 100.0
        ))
    };
    rows.iter().filter_map(sentence).collect()
}

/// The shares that an experiment asks for. None where it asks for none, or nothing was measured.
pub fn render(recording: &Recording, experiment: &Experiment, width: usize) -> Option<String> {
    let mut out = String::new();
    for shares in &experiment.shares {
        let rows = rows(recording, shares);
        if rows.is_empty() {
            continue;
        }
        let whole = match &shares.within {
            Some(within) => format!("what is below {}", chain::told(within)),
            None => shares.class.to_string(),
        };
        let title = match shares.title.as_str() {
            "" => String::new(),
            title => format!("{}: ", title.trim()),
        };
        let heading = format!("{title}shares of {whole}");
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&continued(&printable(&heading, 400), 2, width));
        out.push('\n');
        let sentences = blamed(&rows, &whole);
        let table = Table::new(columns(&rows), rows);
        out.push_str(&table.terminal(Room::of(width, NAME_LETTERS)));
        for sentence in sentences {
            out.push_str(&continued(&format!("  {sentence}"), 2, width));
            out.push('\n');
        }
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netplumb_model::class::{Context, Family, Link, Proto};
    use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node};

    use super::*;

    /// Check that shares are of each quantity's own sum below the function that they are within,
    /// that functions elsewhere don't count, and what is said of those that a timer overrates.
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
            recording.nodes.push(Node {
                parent,
                function: id,
                tail: false,
            });
        }
        for (block, quantity, counts) in [
            (0, of[0], [700, 200, 100, 500, 500]),
            (1, of[1], [70, 20, 10, 50, 50]),
            (1, of[2], [40, 10, 50, 40, 60]),
        ] {
            recording
                .costs
                .extend((0..).zip(counts).map(|(node, own)| Cost {
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
                 of = [\"skb_dequeue\", \"_raw_spin_unlock_irqrestore\"]\n{within}\n\
                 published = [{{ arm = \"before\", of = \"skb_dequeue\", percent = 55.5 }}]\n"
            )
        };
        let told = |within: &str| {
            let experiment = Experiment::parse(&text(within)).unwrap();
            render(&recording, &experiment, 200).unwrap()
        };
        let below = told("within = \"usbnet_bh\"");
        for expected in [
            "skb_dequeue                  30.0%    30.0%",
            "which executes 30.0% of it; published: 55.5%.",
            "to _raw_spin_unlock_irqrestore, which executes 10.0% of it.",
        ] {
            assert!(below.contains(expected), "{expected}: {below}");
        }
        let whole = told("");
        assert!(whole.contains("shares of udp drop"), "{whole}");
        assert!(
            whole.contains("_raw_spin_unlock_irqrestore  30.0%"),
            "{whole}"
        );
    }
}
