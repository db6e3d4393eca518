//! Two benches, or two arms of one, compared: by the time that a packet takes, so that
//! less is faster.

use comfy_table::Cell;
use netplumb_model::bench::Measured;
use netplumb_stats::judge::{Judged, Pair, judge};

use serde::Serialize;

use super::ArmRates;
use super::terminal::rate;
use crate::json::SCHEMA;
use crate::markdown::code;
use crate::number::printable;
use crate::terminal::{right, table, trimmed};
use crate::times::diff::json::word;

/// Names are cut to this.
const NAME_LIMIT: usize = 44;
/// The seed of the intervals.
const SEED: u64 = 1;

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
        .zip(judge(&pairs, SEED))
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
    rates: Vec<RowOut<'a>>,
}

#[derive(Serialize)]
struct RowOut<'a> {
    name: &'a str,
    before_pps: f64,
    after_pps: f64,
    before_ns: f64,
    after_ns: f64,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    smallest_detectable: Option<f64>,
    interleaved: bool,
    verdict: &'a str,
}

fn row_out(row: &Row) -> RowOut<'_> {
    let judged = &row.judged;
    RowOut {
        name: &row.name,
        before_pps: row.pps[0],
        after_pps: row.pps[1],
        before_ns: judged.before,
        after_ns: judged.after,
        ratio: judged.ratio.map(|r| r.value),
        ratio_low: judged.ratio.map(|r| r.low),
        ratio_high: judged.ratio.map(|r| r.high),
        smallest_detectable: judged.smallest,
        interleaved: !row.apart,
        verdict: word(judged.verdict),
    }
}

/// The comparison as JSON. docs/reference/json.md describes it.
pub fn json(rows: &[Row]) -> String {
    let document = Document {
        schema: SCHEMA,
        document: "diff",
        clock: "rates",
        rates: rows.iter().map(row_out).collect(),
    };
    // Plain data with string keys always serializes.
    let mut out = serde_json::to_string_pretty(&document).unwrap_or_default();
    out.push('\n');
    out
}

/// The comparison as CSV, a line for each pair.
pub fn csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        // Writing to memory does not fail.
        let _ = writer.serialize(row_out(row));
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The comparison as a table of Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = "| | packets/s before | after | ratio of ns a packet | 95 % interval | |\n\
                   |---|--:|--:|--:|--:|---|\n"
        .to_string();
    for row in rows {
        let judged = &row.judged;
        let ratio = judged.ratio;
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            code(&row.name, NAME_LIMIT),
            rate(row.pps[0]),
            rate(row.pps[1]),
            ratio.map_or("-".into(), |r| format!("{:.3}", r.value)),
            ratio.map_or("-".into(), |r| format!("{:.3} to {:.3}", r.low, r.high)),
            judged.verdict.as_str(),
        ));
    }
    out
}

/// The comparison as a table.
pub fn render(rows: &[Row], columns: usize) -> String {
    let mut table = table(columns);
    table.set_header(vec![
        Cell::new(""),
        right("before"),
        right("after"),
        right("ns before"),
        right("after"),
        right("ratio"),
        right("95 % interval"),
        right("could see"),
        Cell::new(""),
    ]);
    for row in rows {
        let judged = &row.judged;
        let ratio = judged.ratio;
        table.add_row(vec![
            Cell::new(printable(&row.name, NAME_LIMIT)),
            right(rate(row.pps[0])),
            right(rate(row.pps[1])),
            right(format!("{:.1}", judged.before)),
            right(format!("{:.1}", judged.after)),
            right(ratio.map_or("-".into(), |r| format!("{:.3}", r.value))),
            right(ratio.map_or("-".into(), |r| format!("{:.3} to {:.3}", r.low, r.high))),
            right(
                judged
                    .smallest
                    .map_or("-".into(), |s| format!("{:.1} %", s * 100.0)),
            ),
            Cell::new(judged.verdict.as_str()),
        ]);
    }
    let mut out = trimmed(&table);
    out.push_str(
        "\nThe ratio is of ns a packet: below 1 is faster. Blocks are the unit; of the differences \
         found,\nat most one in twenty is false.\n",
    );
    out
}
