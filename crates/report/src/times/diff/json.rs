//! A comparison of times as JSON. docs/reference/json.md describes it for users.

use std::collections::BTreeMap;

use netplumb_model::experiment::Idle;
use netplumb_stats::judge::Verdict;
use serde::Serialize;

use super::mixed::ClassBoth;
use super::terminal::sentence;
use super::{BeforeAfter, ClassDiff, QUANTILES, Row, TimesDiff};
use crate::diff::facts::Difference;
use crate::diff::json::SCHEMA;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    before: &'a str,
    after: &'a str,
    differences: &'a [Difference],
    warnings: &'a [String],
    one_clock: bool,
    times: Vec<ClassOut<'a>>,
    side_by_side: &'a [ClassBoth],
    unpaired: &'a [String],
}

#[derive(Serialize)]
struct ClassOut<'a> {
    class_before: String,
    class_after: String,
    label: &'a str,
    sentence: String,
    could_not_act: &'a [Idle],
    per: &'static str,
    whole: Option<RowOut<'a>>,
    functions: Vec<RowOut<'a>>,
    stages: Vec<RowOut<'a>>,
    too_small_to_rank: usize,
    /// Whether the sides took turns.
    interleaved: bool,
    timed_on_one_side: &'a [String],
}

#[derive(Serialize)]
struct RowOut<'a> {
    name: &'a str,
    /// A function's layer or a stage's kind.
    of: &'a str,
    before_ns: f64,
    after_ns: f64,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    p: f64,
    smallest_detectable: Option<f64>,
    noise_hides_any_change: bool,
    verdict: &'static str,
    /// Of one call or packet: before and after.
    percentiles_ns: BTreeMap<&'static str, BeforeAfter>,
}

/// The document, pretty-printed.
pub fn render(diff: &TimesDiff<'_>) -> String {
    let document = Document {
        schema: SCHEMA,
        before: diff.sides.before_name,
        after: diff.sides.after_name,
        differences: &diff.differences,
        warnings: &diff.warnings,
        one_clock: diff.one_clock,
        times: diff.classes.iter().map(class_out).collect(),
        side_by_side: &diff.both,
        unpaired: &diff.unpaired,
    };
    // Plain data with string keys always serializes.
    let mut out =
        crate::number::json_text(serde_json::to_string_pretty(&document).unwrap_or_default());
    out.push('\n');
    out
}

fn class_out(class: &ClassDiff) -> ClassOut<'_> {
    ClassOut {
        class_before: class.before.to_string(),
        class_after: class.after.to_string(),
        label: &class.label,
        sentence: sentence(class),
        could_not_act: &class.idle,
        per: class.per,
        whole: class.whole().map(row),
        functions: class.functions.iter().map(row).collect(),
        stages: class.stages.iter().map(row).collect(),
        too_small_to_rank: class.small,
        interleaved: !class.apart,
        timed_on_one_side: &class.one_side,
    }
}

fn row(row: &Row) -> RowOut<'_> {
    let finite = |value: f64| value.is_finite().then_some(value);
    RowOut {
        name: &row.name,
        of: &row.of,
        before_ns: row.judged.before,
        after_ns: row.judged.after,
        ratio: row.judged.ratio.and_then(|r| finite(r.value)),
        ratio_low: row.judged.ratio.and_then(|r| finite(r.low)),
        ratio_high: row.judged.ratio.and_then(|r| finite(r.high)),
        p: row.judged.p,
        smallest_detectable: row.judged.smallest,
        noise_hides_any_change: row.judged.is_blind(),
        verdict: word(row.judged.verdict),
        percentiles_ns: QUANTILES
            .iter()
            .zip(row.quantiles)
            .map(|((name, _), sides)| (*name, sides))
            .collect(),
    }
}

/// A verdict for programs.
pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::NoDifference => "no_difference_seen",
        Verdict::TooFew => "too_few_blocks",
    }
}
