//! Lines of a function, and its instructions, as JSON. docs/reference/json.md describes it for users.

use netplumb_model::recording::{FunctionId, SourceLine};
use serde::Serialize;

use super::{ClassLines, is_first, why_none};
use crate::analysis::ClassView;
use crate::asm;
use crate::beside::LineTimes;
use crate::json::{QuantityOut, SCHEMA, pretty};
use crate::source::text_of;
use crate::table::Value;

/// What is requested besides the cost of lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinesRequest<'t> {
    /// The instructions that were executed.
    pub asm: bool,
    /// The text of lines, as far as the recording has it.
    pub source: bool,
    /// The time of the same lines.
    pub times: Option<&'t LineTimes>,
}

#[derive(Serialize)]
struct LinesJson {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantity: Option<QuantityOut>,
    lines: Vec<Value>,
}

/// The document, pretty-printed: for each class in which one of the functions ran, or for each arm where
/// code is kept by arm.
pub fn render(
    views: &[ClassView<'_>],
    functions: &[FunctionId],
    asked: LinesRequest<'_>,
) -> String {
    let mut found = Vec::new();
    for &function in functions {
        for view in views {
            let first = is_first(views, view, function);
            found.extend(of_class(view, function, first, asked));
        }
    }
    pretty(&LinesJson {
        schema: SCHEMA,
        quantity: views.first().map(|view| (&view.quantity).into()),
        lines: found,
    })
}

/// The document of a function in a class; `first` if no earlier class of its arm ran it.
fn of_class(
    class: &ClassView<'_>,
    function: FunctionId,
    first: bool,
    asked: LinesRequest<'_>,
) -> Option<Value> {
    let ran = class.functions.iter().find(|f| f.function == function)?;
    let found = ClassLines::from_class(class, function, ran.self_insns);
    if found.of_arm && !first {
        return None;
    }
    let recording = class.recording;
    let of = &recording.functions[function as usize];
    let source = recording.source_of(function);
    let why = match found.lines.is_empty() {
        true => Value::Text(why_none(recording, function, ran.self_insns).into()),
        false => Value::Absent,
    };
    let instructions = match asked.asm && first {
        true => asm::json(class, function),
        false => Vec::new(),
    };
    let lines = found.lines.iter();
    let lines = lines.filter_map(|(at, own)| line(class, (*at, *own), found.whole, asked));
    let known = [
        ("arm", Value::Text(class.arm().name.clone())),
        (
            "class",
            match found.of_arm {
                true => Value::Missing,
                false => Value::Text(class.class.to_string()),
            },
        ),
        ("function", Value::Text(of.name.clone())),
        ("module", Value::words(of.module.as_deref())),
        (
            "source",
            source.map_or(Value::Missing, |(file, line)| {
                Value::object([
                    ("file", Value::Text(file.into())),
                    ("line", Value::Count(line.into())),
                ])
            }),
        ),
        ("per", Value::Text(class.per.word().into())),
        ("per_count", Value::Number(class.per.count())),
        ("self", Value::Count(found.whole)),
        ("lines", Value::List(lines.collect())),
        ("no_lines", why),
    ];
    Some(Value::object(known.into_iter().chain(instructions)))
}

fn line(
    class: &ClassView<'_>,
    (at, own): (SourceLine, u64),
    whole: u64,
    asked: LinesRequest<'_>,
) -> Option<Value> {
    let recording = class.recording;
    let (file, number) = recording.source(at)?;
    let number_of = |value: Option<f64>| value.map_or(Value::Absent, Value::Number);
    let text = asked.source.then(|| text_of(recording, at)).flatten();
    let times = asked.times;
    let is_of = times.filter(|times| times.is_of(class));
    Some(Value::object([
        ("file", Value::Text(file.into())),
        ("line", Value::Count(number.into())),
        ("self", Value::Count(own)),
        ("share", Value::Number(own as f64 / whole.max(1) as f64)),
        ("time_share", number_of(times.map(|times| times.share(recording, at)))),
        ("ns_each", number_of(is_of.and_then(|times| times.per_insn(class, at, own)))),
        ("text", text.map_or(Value::Absent, Value::Text)),
    ]))
}
