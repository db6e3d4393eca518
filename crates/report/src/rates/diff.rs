//! Two benches, or two arms of one, compared: by the time that a packet takes, so that
//! less is faster.

use netplumb_model::bench::Measured;
use netplumb_stats::judge::{FALSE_RATE, Judged, Pair, judge};

use serde::Serialize;

use super::ArmRates;
use super::terminal::rate;
use crate::diff::json::SCHEMA;
use crate::interval;
use crate::markdown::prose;
use crate::number::json_text;
use crate::table::{Column, Room, Table, Value};
use crate::terminal::continued;
use crate::times::diff::table::{is_blind, of_judged, verdict};

/// Names are cut to this.
const NAME_LIMIT: usize = 44;
/// Text to this.
const PROSE_LIMIT: usize = 600;

/// Two arms that are compared.
#[derive(Debug)]
pub struct Sides<'a> {
    /// What they are called together.
    pub name: String,
    /// Before.
    pub before: &'a ArmRates<'a>,
    /// After.
    pub after: &'a ArmRates<'a>,
    /// Whether one was measured after the other, and not in turns.
    pub apart: bool,
}

/// What came of a comparison.
#[derive(Debug)]
pub struct Row {
    /// What was compared.
    pub name: String,
    /// Packets a second, before and after.
    pub pps: [f64; 2],
    /// In nanoseconds a packet.
    pub judged: Judged,
    /// Whether one was measured after the other, and not in turns.
    pub apart: bool,
}

/// Judge them, together.
pub fn rows(sides: &[Sides<'_>]) -> Vec<Row> {
    let ns = |arm: &ArmRates<'_>| -> Vec<f64> {
        let blocks = arm.valid.iter().map(Measured::handled_pps);
        blocks.map(|pps| 1e9 / pps.max(1e-9)).collect()
    };
    let pairs: Vec<Pair> = sides
        .iter()
        .map(|s| Pair {
            before: ns(s.before),
            after: ns(s.after),
            shared: [0.0; 2],
            apart: s.apart,
        })
        .collect();
    let pps = |arm: &ArmRates<'_>| arm.handled_pps().map_or(0.0, |m| m.value);
    sides
        .iter()
        .zip(judge(&pairs))
        .map(|(s, judged)| Row {
            name: s.name.clone(),
            pps: [pps(s.before), pps(s.after)],
            judged,
            apart: s.apart,
        })
        .collect()
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    document: &'a str,
    clock: &'a str,
    rates: Vec<Value>,
}

/// A row, whose columns are each declared here.
type Line<'a> = &'a Row;

/// What there is to be shown of rows.
fn table(rows: &[Row]) -> Table<'_, Line<'_>> {
    fn figure<'a>(key: &'static str, of: fn(&Row) -> f64) -> Column<'a, Line<'a>> {
        Column::machine(move |row: &Line<'a>| Value::Number(of(row))).key(key)
    }
    fn told<'a>(title: &'static str, of: fn(&Row) -> Option<String>) -> Column<'a, Line<'a>> {
        Column::figure(title, move |row: &Line<'a>| {
            of(row).map_or(Value::Missing, |text| Value::Told(text, None))
        })
    }
    let mut columns: Vec<Column<'_, Line<'_>>> = vec![
        Column::code("", |row: &Line<'_>| Value::Name(row.name.clone(), None))
            .key("name")
            .people(0),
        figure("before_pps", |row| row.pps[0]),
        figure("after_pps", |row| row.pps[1]),
        figure("before_ns", |row| row.judged.before),
        figure("after_ns", |row| row.judged.after),
        told("packets/s before", |row| Some(rate(row.pps[0])))
            .hint("that were handled")
            .people(1),
        told("after", |row| Some(rate(row.pps[1]))).people(2),
        told("ns before", |row| Some(format!("{:.1}", row.judged.before)))
            .hint("wall time of a packet")
            .people(3),
        told("after", |row| Some(format!("{:.1}", row.judged.after))).people(4),
        told("ratio", |row| {
            Some(format!("{:.3}", row.judged.ratio?.value))
        })
        .hint("of the ns of a packet")
        .people(5),
        told("95 % interval", |row| {
            Some(interval::told(row.judged.ratio?, thousandths))
        })
        .hint("of the ratio")
        .people(6),
        told("could see", |row| {
            let percent = row.judged.smallest? * 100.0;
            Some(format!("{percent:.1} %"))
        })
        .hint("the smallest change that would be found in four of five such runs")
        .people(7),
        Column::text("verdict", |row: &Line<'_>| {
            row.judged.verdict.as_str().into()
        })
        .people(8),
    ];
    fn judged<'l>(row: &'l Line<'_>) -> &'l Judged {
        &row.judged
    }
    columns.extend(of_judged(judged, None));
    columns.extend([
        is_blind(judged).key("noise_hides_any_change"),
        Column::machine(|row: &Line<'_>| Value::Flag(!row.apart)).key("interleaved"),
        verdict(judged),
    ]);
    Table::new(columns, rows)
}

/// The comparison as JSON. docs/reference/json.md describes it.
pub fn json(rows: &[Row]) -> String {
    let document = Document {
        schema: SCHEMA,
        document: "diff",
        clock: "rates",
        rates: table(rows).json(),
    };
    // Plain data with string keys always serializes.
    let mut out = json_text(serde_json::to_string_pretty(&document).unwrap_or_default());
    out.push('\n');
    out
}

/// The comparison as CSV, a line for each pair.
pub fn csv(rows: &[Row]) -> String {
    table(rows).csv()
}

/// The comparison as a table of Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::new();
    table(rows).markdown(&mut out);
    for text in noise(rows) {
        out.push_str(&format!("Beware: {}.\n", prose(&text, PROSE_LIMIT)));
    }
    out
}

fn thousandths(ratio: f64) -> String {
    format!("{ratio:.3}")
}

/// What noise hides, a line for those that took turns and one for the others.
fn noise(rows: &[Row]) -> impl Iterator<Item = String> {
    [false, true].into_iter().filter_map(|apart| {
        let of = rows.iter().filter(move |row| row.apart == apart);
        interval::noise(of.map(|row| (row.name.as_str(), &row.judged)), apart)
    })
}

/// The comparison as a table.
pub fn render(rows: &[Row], columns: usize) -> String {
    let mut out = table(rows).flush().terminal(Room::of(columns, NAME_LIMIT));
    let each = format!(
        "The ratio is of wall ns a packet (1/rate): below 1 is faster. Blocks are the unit; of the differences found, \
         at most {:.0} % are false.",
        FALSE_RATE * 100.0
    );
    let beware = noise(rows).map(|text| format!("Beware: {text}."));
    out.push('\n');
    for line in [each].into_iter().chain(beware) {
        out.push_str(&continued(&line, 2, columns));
        out.push('\n');
    }
    out
}
