//! A comparison of times as JSON. docs/reference/json.md describes it for users.

use netplumb_model::experiment::Idle;
use serde::Serialize;

use super::mixed::ClassBoth;
use super::terminal::sentence;
use super::{ClassDiff, TimesDiff, table};
use crate::diff::facts::Difference;
use crate::diff::json::SCHEMA;
use crate::table::Value;

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
    whole: Option<Value>,
    functions: Vec<Value>,
    stages: Vec<Value>,
    too_small_to_rank: usize,
    /// Whether the sides took turns.
    interleaved: bool,
    timed_on_one_side: &'a [String],
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
        times: diff.classes.iter().map(|c| class_out(diff, c)).collect(),
        side_by_side: &diff.both,
        unpaired: &diff.unpaired,
    };
    // Plain data with string keys always serializes.
    let mut out =
        crate::number::json_text(serde_json::to_string_pretty(&document).unwrap_or_default());
    out.push('\n');
    out
}

fn class_out<'a>(diff: &'a TimesDiff<'_>, class: &'a ClassDiff) -> ClassOut<'a> {
    ClassOut {
        class_before: class.before.to_string(),
        class_after: class.after.to_string(),
        label: &class.label,
        sentence: sentence(class),
        could_not_act: &class.idle,
        per: class.per,
        whole: table::json(diff, class, class.whole()).pop(),
        functions: table::json(diff, class, &class.functions),
        stages: table::json(diff, class, &class.stages),
        too_small_to_rank: class.small,
        interleaved: !class.apart,
        timed_on_one_side: &class.one_side,
    }
}
