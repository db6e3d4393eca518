//! Two recordings of two hosts beside each other. Their figures are the same in every run, so there is
//! nothing to be tested: each is equal, or it differs by so much.

use std::collections::BTreeSet;

use netplumb_model::hosts::{BUSY, INSTRUMENT, THROUGHPUT, TURN, TURNS};
use netplumb_model::recording::Recording;
use serde::Serialize;

use super::NAME_LETTERS;
use crate::diff::Sides;
use crate::diff::arms::ArmPair;
use crate::diff::json::SCHEMA;
use crate::json::pretty;
use crate::number::{counted, printable};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// The fact with the hash of every frame's time.
const FRAMES: &str = "wire.frames";

/// A figure on both sides.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    arms: String,
    /// With its label: "CPU use of sender".
    figure: String,
    /// Without: "CPU use".
    quantity: String,
    unit: String,
    before: f64,
    after: f64,
}

impl Row {
    fn is_equal(&self) -> bool {
        self.before == self.after
    }

    /// By how much, of the figure before; none if that was 0.
    fn change(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.after / self.before - 1.0)
    }

    /// By how much it got worse, in percent: where a side is the better one.
    fn worse_percent(&self) -> Option<f64> {
        let sign = match self.quantity.as_str() {
            name if [THROUGHPUT.name, TURNS.name].contains(&name) => -1.0,
            name if [TURN.name, BUSY.name].contains(&name) => 1.0,
            _ => return None,
        };
        Some(sign * self.change()? * 100.0)
    }
}

/// What two recordings of two hosts, or arms of one, have in common.
#[derive(Debug)]
pub struct Compared {
    rows: Vec<Row>,
    /// The pairs, each with whether the times of all frames are equal.
    pairs: Vec<(String, Option<bool>)>,
    names: [String; 2],
}

/// Compare pairs of arms.
pub fn compare(sides: Sides<'_>, pairs: &[ArmPair]) -> Compared {
    let mut rows = Vec::new();
    let mut told = Vec::new();
    for pair in pairs {
        let name =
            |recording: &Recording, arm: usize| printable(&recording.arms[arm].name, NAME_LETTERS);
        let (was, is) = (
            name(sides.before, pair.before),
            name(sides.after, pair.after),
        );
        let arms = if was == is {
            was
        } else {
            format!("{was} → {is}")
        };
        let hash = |recording: &Recording, arm: usize| {
            let notes = recording.notes.get(&(arm as u32))?;
            notes.facts.get(FRAMES).cloned()
        };
        let hashes = hash(sides.before, pair.before).zip(hash(sides.after, pair.after));
        told.push((arms.clone(), hashes.map(|(was, is)| was == is)));
        let after = means(sides.after, pair.after);
        for (figure, quantity, unit, before) in means(sides.before, pair.before) {
            let found = after.iter().find(|(name, ..)| *name == figure);
            if let Some((.., after)) = found {
                rows.push(Row {
                    arms: arms.clone(),
                    figure,
                    quantity,
                    unit,
                    before,
                    after: *after,
                });
            }
        }
    }
    Compared {
        rows,
        pairs: told,
        names: [sides.before_name, sides.after_name].map(|name| printable(name, 120)),
    }
}

/// The means over the blocks of an arm: the figure, its quantity and unit.
fn means(recording: &Recording, arm: usize) -> Vec<(String, String, String, f64)> {
    let mut all = Vec::new();
    for (id, quantity) in recording.quantities.iter().enumerate() {
        let is_its = |block: Option<u32>| {
            let block = block.and_then(|block| recording.blocks.get(block as usize));
            block.is_some_and(|block| block.arm as usize == arm)
        };
        let its = recording.scalars.iter();
        let its = its.filter(|s| s.quantity as usize == id && is_its(s.block()));
        let its: Vec<(Option<&str>, f64)> =
            its.map(|s| (s.item.label.as_deref(), s.value)).collect();
        let labels: BTreeSet<Option<&str>> = its.iter().map(|(label, _)| *label).collect();
        for label in labels {
            let values: Vec<f64> = (its.iter().filter(|(of, _)| *of == label))
                .map(|(_, value)| *value)
                .collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let figure = match label {
                Some(label) => format!("{} of {}", quantity.name, label),
                None => quantity.name.clone(),
            };
            all.push((
                printable(&figure, NAME_LETTERS),
                quantity.name.clone(),
                printable(&quantity.unit, 20),
                mean,
            ));
        }
    }
    all
}

fn columns<'r>() -> Vec<Column<'r, &'r Row>> {
    let change = |row: &&Row| match (row.is_equal(), row.change()) {
        (true, _) => Value::Told("equal".into(), Some(0.0)),
        (false, Some(change)) => Value::Told(format!("{:+.2}%", change * 100.0), Some(change)),
        (false, None) => Value::Told("from nothing".into(), None),
    };
    vec![
        Column::text("arm", |row: &&Row| row.arms.clone())
            .people(0)
            .key("arm"),
        Column::text("figure", |row: &&Row| row.figure.clone())
            .people(1)
            .key("figure"),
        Column::text("unit", |row: &&Row| row.unit.clone())
            .people(2)
            .key("unit"),
        Column::figure("before", |row: &&Row| Value::Number(row.before))
            .people(3)
            .key("before"),
        Column::figure("after", |row: &&Row| Value::Number(row.after))
            .people(4)
            .key("after"),
        Column::figure("change", change).people(5).key("change"),
    ]
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    document: &'static str,
    clock: &'static str,
    before: &'a str,
    after: &'a str,
    figures: Vec<Value>,
}

impl Compared {
    /// Whether nothing could be compared.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What got worse by more than a limit in percent: of throughput, turns and CPU use.
    pub fn worse_than(&self, percent: f64) -> Vec<String> {
        let worse = self.rows.iter().filter_map(|row| {
            let by = row.worse_percent().filter(|by| *by > percent)?;
            Some(format!("{}: {} by {by:.2}%", row.arms, row.figure))
        });
        worse.collect()
    }

    fn changed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_equal())
    }

    /// What is equal, in sentences.
    fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (arms, frames) in &self.pairs {
            let of = self.rows.iter().filter(|row| row.arms == *arms);
            let (equal, different): (Vec<&Row>, Vec<&Row>) = of.partition(|row| row.is_equal());
            let equal = match (equal.len(), different.len()) {
                (0, 0) => "no figure in common".to_string(),
                (equal, 0) => format!("all {} are equal", counted(equal, "figure")),
                (equal, different) => format!(
                    "{different} of {} differ",
                    counted(equal + different, "figure")
                ),
            };
            let frames = match frames {
                Some(true) => ", and so are the times of all frames",
                Some(false) => "; frames have other times",
                None => "",
            };
            all.push(format!("{arms}: {equal}{frames}"));
        }
        all
    }

    /// For a terminal: what differs.
    pub fn terminal(&self, columns: usize) -> String {
        let [before, after] = &self.names;
        let mut out = format!("Two hosts, before: {before}, after: {after}\n\n");
        for sentence in self.sentences() {
            out.push_str(&continued(&sentence, 3, columns));
            out.push('\n');
        }
        if self.changed().next().is_some() {
            out.push('\n');
            let room = Room::of(columns, NAME_LETTERS);
            out.push_str(&Table::new(self::columns(), self.changed()).terminal(room));
        }
        out.push_str(
            "\nThese figures are the same in every run of a plan, so each difference is one of what was compared.\n",
        );
        out
    }

    /// As CSV, all figures.
    pub fn csv(&self) -> String {
        Table::new(columns(), self.rows.iter()).csv()
    }

    /// As JSON, all figures.
    pub fn json(&self) -> String {
        let [before, after] = &self.names;
        pretty(&Document {
            schema: SCHEMA,
            document: "diff",
            clock: INSTRUMENT,
            before,
            after,
            figures: Table::new(columns(), self.rows.iter()).json(),
        })
    }

    /// As Markdown, what differs.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Two hosts compared\n\n");
        for sentence in self.sentences() {
            out.push_str(&format!("{}\n\n", crate::text::prose(&sentence, 400)));
        }
        Table::new(columns(), self.changed()).markdown(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::recording;
    use super::*;

    /// Check that what is equal is called so, that how much others differ by is said, and that
    /// which side is worse depends on the figure.
    #[test]
    fn equal_or_not() {
        let (before, mut after) = (recording(), recording());
        fn sides<'r>(before: &'r Recording, after: &'r Recording) -> Sides<'r> {
            Sides {
                before,
                after,
                before_name: "a",
                after_name: "b",
            }
        }
        let pairs: Vec<ArmPair> = (0..before.arms.len())
            .map(|n| ArmPair {
                before: n,
                after: n,
            })
            .collect();
        let same = compare(sides(&before, &after), &pairs);
        assert!(same.changed().next().is_none());
        assert!(same.terminal(100).contains("are equal"));
        assert_eq!(same.worse_than(0.0), [""; 0]);
        for scalar in &mut after.scalars {
            if after.quantities[scalar.quantity as usize].name == THROUGHPUT.name {
                scalar.value *= 0.9;
            }
        }
        let other = compare(sides(&before, &after), &pairs);
        let text = other.terminal(120);
        assert!(text.contains("-10.00%"), "{text}");
        assert_eq!(other.changed().count(), before.arms.len());
        assert_eq!(other.worse_than(9.0).len(), before.arms.len());
        assert_eq!(other.worse_than(11.0), [""; 0]);
        assert!(other.csv().lines().count() > other.changed().count() + 1);
        assert!(other.markdown().contains("-10.00%"));
        assert!(
            other.json().contains("\"change\": -0.0999"),
            "{}",
            other.json()
        );
    }
}
