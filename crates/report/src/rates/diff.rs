//! Two benches, or two arms of one, compared: by the time that a packet takes, so that
//! less is faster.

use comfy_table::Cell;
use netplumb_model::bench::Measured;
use netplumb_stats::judge::{FALSE_RATE, Judged, Pair, judge};

use serde::Serialize;

use super::ArmRates;
use super::terminal::rate;
use crate::diff::json::SCHEMA;
use crate::interval;
use crate::markdown::{code, prose};
use crate::number::{json_text, printable};
use crate::sheet::tamed;
use crate::terminal::{continued, right, table, trimmed};
use crate::times::diff::json::word;

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
    noise_hides_any_change: bool,
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
        ratio_high: judged.ratio.map(|r| r.high).filter(|high| high.is_finite()),
        smallest_detectable: judged.smallest,
        noise_hides_any_change: judged.is_blind(),
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
    let mut out = json_text(serde_json::to_string_pretty(&document).unwrap_or_default());
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
    tamed(&writer.into_inner().unwrap_or_default())
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
            ratio.map_or("-".into(), |r| interval::told(r, thousandths)),
            judged.verdict.as_str(),
        ));
    }
    for text in noise(rows) {
        out.push_str(&format!("\nBeware: {}.\n", prose(&text, PROSE_LIMIT)));
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
            right(ratio.map_or("-".into(), |r| interval::told(r, thousandths))),
            right(
                judged
                    .smallest
                    .map_or("-".into(), |s| format!("{:.1} %", s * 100.0)),
            ),
            Cell::new(judged.verdict.as_str()),
        ]);
    }
    let mut out = trimmed(&table);
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
