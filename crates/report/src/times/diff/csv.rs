//! A comparison of times as CSV (RFC 4180): one line for each whole, stage and
//! function; of two clocks, one for each function that both saw.

use super::json::word;
use super::{BeforeAfter, ClassDiff, Row, TimesDiff};
use crate::sheet::Sheet;

const HEADER: [&str; 21] = [
    "arm_before",
    "arm_after",
    "class_before",
    "class",
    "kind",
    "name",
    "of",
    "per",
    "before_ns",
    "after_ns",
    "change_ns",
    "ratio",
    "ratio_low",
    "ratio_high",
    "smallest_detectable",
    "verdict",
    "interleaved",
    "p50_before_ns",
    "p50_after_ns",
    "p99_before_ns",
    "p99_after_ns",
];

const OF_TWO_CLOCKS: [&str; 9] = [
    "class",
    "function",
    "per",
    "calls",
    "self_insns",
    "inclusive_insns",
    "timed_calls",
    "self_ns",
    "total_ns",
];

/// The rows of all classes, or the functions of one layer.
pub fn render(diff: &TimesDiff<'_>, layer: Option<&str>) -> String {
    if diff.one_clock {
        let mut sheet = Sheet::new(HEADER);
        let mut write = |row: Vec<String>| sheet.row(row);
        for class in &diff.classes {
            let whole = class.way.iter().map(|r| ("total", r));
            let all = class.total.iter().map(|r| ("all functions", r));
            let stages = class.stages.iter().map(|r| ("stage", r));
            for (kind, row) in whole.chain(stages).chain(all) {
                if layer.is_none() {
                    write(record(diff, class, kind, row));
                }
            }
            for row in &class.functions {
                if layer.is_none_or(|l| row.of == l) {
                    write(record(diff, class, "function", row));
                }
            }
        }
        sheet.finish()
    } else {
        let mut sheet = Sheet::new(OF_TWO_CLOCKS);
        for class in &diff.both {
            for function in &class.functions {
                let figures = [
                    function.calls,
                    function.self_insns,
                    function.inclusive_insns,
                    function.timed_calls,
                    function.self_ns,
                    function.total_ns,
                ];
                let mut row = vec![class.class.to_string(), function.name.clone()];
                row.push(class.per.into());
                row.extend(figures.map(|f| format!("{f:.3}")));
                sheet.row(row);
            }
        }
        sheet.finish()
    }
}

fn record(diff: &TimesDiff<'_>, class: &ClassDiff, kind: &str, row: &Row) -> Vec<String> {
    let judged = &row.judged;
    let told = |value: Option<f64>, digits: usize| match value.filter(|v| v.is_finite()) {
        Some(value) => format!("{value:.digits$}"),
        None => String::new(),
    };
    let mut record = vec![
        diff.sides.before.arms[class.arms.before].name.clone(),
        diff.sides.after.arms[class.arms.after].name.clone(),
        class.before.to_string(),
        class.after.to_string(),
        kind.into(),
        row.name.clone(),
        row.of.clone(),
        class.per.into(),
        told(Some(judged.before), 3),
        told(Some(judged.after), 3),
        told(Some(row.delta()), 3),
        told(judged.ratio.map(|r| r.value), 5),
        told(judged.ratio.map(|r| r.low), 5),
        told(judged.ratio.map(|r| r.high), 5),
        told(judged.smallest, 5),
        word(judged.verdict).into(),
        if class.apart { "no" } else { "yes" }.into(),
    ];
    let quantiles: [BeforeAfter; 2] = row.quantiles;
    record.extend(quantiles.iter().flatten().map(|q| told(*q, 1)));
    record
}
