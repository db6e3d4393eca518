//! The table of a class's functions, whatever their costs are of: its columns, each
//! declared once.

use std::collections::BTreeMap;

use netplumb_model::quantity::{Calls, Quantity, Repeats};
use netplumb_model::recording::{Function, SourceLine};
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_stats::welch::Mean;

use crate::analysis::{ClassView, FunctionView, NO_LAYER, name_beside_unit};
use crate::number::{counted, percent};
use crate::page::{PageColumn, PageRow};
use crate::sampled::Shares;
use crate::source::of_class;
use crate::table::{Column, Room, Table, Value};
use crate::times::rounded;
use crate::together::CrossQuantity;
use crate::view::View;

/// Letters of modules and layers, which are a word.
const WORD_LETTERS: usize = 16;
/// From here on there is room for layers.
const WIDE: usize = 80;
/// And for intervals.
const WIDER: usize = 96;
/// The least and the most letters of a name.
const NAME_LETTERS: [usize; 2] = [20, 60];

/// A function of a class, as a row of its table.
pub(crate) struct FunctionRow<'a> {
    class: &'a ClassView<'a>,
    function: &'a FunctionView,
    /// The whole that shares are relative to.
    whole: u64,
    /// The cost of its lines.
    lines: BTreeMap<SourceLine, u64>,
    /// Its shares of samples, of executed instructions and of a timer's samples, if a guest was sampled.
    beside: Option<Shares>,
}

impl FunctionRow<'_> {
    fn data(&self) -> &Function {
        &self.class.recording.functions[self.function.function as usize]
    }

    /// Its own cost as a mean over blocks.
    fn mean(&self) -> Option<Mean> {
        self.class.mean_of(self.function.function)
    }
}

/// The name of a quantity in columns of CSV: `insns`, `ns`.
pub(crate) fn suffix(quantity: &Quantity) -> String {
    match quantity.unit.as_str() {
        "instructions" => "insns".into(),
        unit => {
            let tame = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            unit.chars().map(tame).collect()
        }
    }
}

/// The columns that identify a function.
fn of_function<'a>() -> Vec<Column<'a, FunctionRow<'a>>> {
    vec![
        Column::machine(|r: &FunctionRow<'a>| Value::Text(r.class.arm().name.clone())).csv("arm"),
        Column::machine(|r: &FunctionRow<'a>| Value::Text(r.class.class.to_string())).csv("class"),
        Column::machine(|r: &FunctionRow<'a>| Value::Count(r.class.packets)).csv("packets"),
        Column::code("function", |r: &FunctionRow<'a>| {
            Value::Name(r.data().name.clone(), r.data().module.clone())
        })
        .hint("its symbol, and the module that it is in")
        .csv("function")
        .json("name")
        .people(0)
        .page_own("function"),
        Column::machine(|r: &FunctionRow<'a>| Value::words(r.data().module.as_deref()))
            .title("module")
            .hint("the module that it is in; of a command, the file")
            .key("module")
            .rank(2)
            .page_own("module"),
        Column::machine(|r: &FunctionRow<'a>| Value::words(r.data().layer.as_deref())).key("layer"),
        Column::text("layer", |r: &FunctionRow<'a>| {
            r.data().layer.as_deref().unwrap_or(NO_LAYER).into()
        })
        .hint("the part of the network stack that it is in")
        .people(1)
        .from(WIDE)
        .letters(WORD_LETTERS)
        .page_own("layer"),
    ]
}

/// Its total costs.
fn sums<'a>(quantity: &Quantity) -> Vec<Column<'a, FunctionRow<'a>>> {
    let of = suffix(quantity);
    let calls = quantity.calls.title();
    vec![
        Column::machine(|r: &FunctionRow<'a>| Value::Count(r.function.calls)).key(calls),
        Column::machine(|r: &FunctionRow<'a>| Value::Count(r.function.self_insns))
            .csv(format!("self_{of}"))
            .json("self"),
        Column::machine(|r: &FunctionRow<'a>| Value::Count(r.function.inclusive_insns))
            .csv(format!("inclusive_{of}"))
            .json("inclusive"),
    ]
}

/// Its cost per packet, run or second.
fn each<'a>(quantity: &Quantity) -> Vec<Column<'a, FunctionRow<'a>>> {
    let unit = quantity.unit.clone();
    let calls = quantity.calls.title();
    let hint = match quantity.calls {
        Calls::Samples => "how often a sample found it running",
        Calls::Entries => "entries",
        Calls::Times => "how many ended",
        Calls::Events => "how many there were",
    };
    vec![
        Column::figure("self", |r: &FunctionRow<'a>| r.class.each(r.function.self_insns))
            .hint("in its own code")
            .unit(unit.clone())
            .people(4)
            .page_own("self"),
        Column::figure("inclusive", |r: &FunctionRow<'a>| r.class.each(r.function.inclusive_insns))
            .hint("with all that it calls; recursion counts once")
            .unit(unit)
            .people(7)
            .page_own("inclusive"),
        Column::figure(calls, |r: &FunctionRow<'a>| r.class.calls(r.function.calls))
            .hint(hint)
            .people(9)
            .page_own("calls"),
    ]
}

/// Its cost per KiB of payload, between two hosts.
fn per_kib<'a>(quantity: &Quantity) -> Column<'a, FunctionRow<'a>> {
    Column::figure("per KiB", |r: &FunctionRow<'a>| {
        let each = r.class.per_kib(r.function.self_insns);
        each.unwrap_or(Value::Missing)
    })
    .hint("self, for each KiB of payload that two hosts sent")
    .unit(quantity.unit.clone())
    .key(format!("self_{}_per_kib", suffix(quantity)))
    .digits(4)
    .people(5)
    .page("self_per_kib")
}

/// Calls per call of the recording's root function.
fn per_root<'a>() -> Column<'a, FunctionRow<'a>> {
    Column::figure("per call", |r: &FunctionRow<'a>| match r.class.root_calls {
        Some(roots) if roots > 0 => Value::Each(r.function.calls, roots),
        _ => Value::Missing,
    })
    .hint("calls in each call of the function that the tree is below")
    .key("calls_per_root_call")
    .digits(4)
    .people(10)
    .page("per_call")
}

/// The interval of its cost, if costs vary.
fn varying<'a>(quantity: &Quantity) -> Vec<Column<'a, FunctionRow<'a>>> {
    let of = suffix(quantity);
    let end = |r: &FunctionRow<'a>, end: fn(&Mean) -> Option<f64>| {
        r.mean().as_ref().and_then(end).map_or(Value::Missing, Value::Number)
    };
    vec![
        Column::machine(|r: &FunctionRow<'a>| {
            Value::Number(r.class.per.each(r.function.self_insns as f64))
        })
        .csv(format!("self_{of}_each"))
        .json("self_each")
        .digits(3),
        Column::machine(move |r: &FunctionRow<'a>| end(r, |m| m.low))
            .csv(format!("self_{of}_low"))
            .json("self_low")
            .digits(3),
        Column::machine(move |r: &FunctionRow<'a>| end(r, |m| m.high))
            .csv(format!("self_{of}_high"))
            .json("self_high")
            .digits(3),
        Column::figure("95% interval", |r: &FunctionRow<'a>| {
            let ends = r.mean().and_then(|m| Some((m.low?, m.high?)));
            match ends {
                Some((low, high)) if r.class.quantity.unit == "ns" => Value::NsRange(low, high),
                Some((low, high)) => {
                    let text = format!("{} to {}", rounded(low), rounded(high));
                    Value::Formatted(text, Some(high - low))
                }
                None => Value::Missing,
            }
        })
        .hint("of self, by how much blocks differ")
        .unit(quantity.unit.clone())
        .people(5)
        .from(WIDER)
        .page("interval"),
        Column::machine(|r: &FunctionRow<'a>| Value::Text(r.class.per.word().into())).csv("per"),
    ]
}

/// Shares of the class as executed, as sampled and as with a timer, for samples of a guest in CSV.
/// Elsewhere they have a table of their own.
fn beside<'a>() -> Vec<Column<'a, FunctionRow<'a>>> {
    let column = |of: fn(&Shares) -> Option<f64>| {
        Column::machine(move |r: &FunctionRow<'a>| {
            let share = r.beside.as_ref().and_then(of);
            share.map_or(Value::Missing, Value::Number)
        })
        .digits(6)
    };
    vec![
        column(|s| s.exact).csv("exact_share"),
        column(|s| Some(s.sampled)).csv("samples_share"),
        column(|s| Some(s.interval.0)).csv("samples_share_low"),
        column(|s| Some(s.interval.1)).csv("samples_share_high"),
        column(|s| Some(s.deferred)).csv("timer_share"),
    ]
}

/// All columns, for all of a recording or the part below a function, and for packets with a known payload:
/// a column added here is in every table of functions.
pub(crate) fn columns<'a>(
    quantity: &Quantity,
    below: bool,
    payload: bool,
) -> Vec<Column<'a, FunctionRow<'a>>> {
    let mut columns = of_function();
    if name_beside_unit(quantity).is_some() {
        columns.push(
            Column::machine(|r: &FunctionRow<'a>| Value::Text(r.class.quantity.name.clone()))
                .csv("quantity"),
        );
        columns.extend(beside());
    }
    columns.extend(sums(quantity));
    match quantity.repeats {
        Repeats::Statistically => columns.extend(varying(quantity)),
        Repeats::Exactly => columns.push(
            Column::machine(|r: &FunctionRow<'a>| {
                Value::Each(r.function.self_insns, r.class.packets)
            })
            .csv(format!("self_{}_per_packet", suffix(quantity)))
            .digits(4),
        ),
    }
    columns.extend(each(quantity));
    columns.extend(payload.then(|| per_kib(quantity)));
    // Samples are not calls.
    columns.extend((below && quantity.calls == Calls::Entries).then(per_root));
    columns.extend([
        Column::figure("share", |r: &FunctionRow<'a>| {
            Value::Share(r.function.self_insns as f64 / r.whole.max(1) as f64)
        })
        .hint("of self in the path")
        .key("share")
        .digits(6)
        .people(6)
        .page_own("share"),
        Column::machine(source)
            .title("source")
            .hint("where it is defined")
            .json("source")
            .rank(3)
            .page_own("source"),
        Column::machine(|r: &FunctionRow<'a>| {
            Value::Share(r.function.inclusive_insns as f64 / r.whole.max(1) as f64)
        })
        .title("incl. share")
        .hint("of inclusive in the path")
        .rank(8)
        .page_own("inclusive_share"),
        Column::machine(lines).json("lines"),
        Column::machine(|r: &FunctionRow<'a>| Value::Count(r.class.invalid as u64))
            .csv("invalid_blocks"),
    ]);
    columns
}

fn columns_of<'a>(class: &ClassView<'_>) -> Vec<Column<'a, FunctionRow<'a>>> {
    columns(&class.quantity, class.root_calls.is_some(), class.payload_bytes.is_some())
}

/// Where a function is defined.
fn source(row: &FunctionRow<'_>) -> Value {
    let source = row.class.recording.source_of(row.function.function);
    source.map_or(Value::Absent, |(file, line)| {
        let (file, line) = (Value::Text(file.into()), Value::Count(line.into()));
        Value::object([("file", file), ("line", line)])
    })
}

/// The cost of its lines.
fn lines(row: &FunctionRow<'_>) -> Value {
    let lines = row.lines.iter().filter_map(|(source, insns)| {
        let (file, line) = row.class.recording.source(*source)?;
        let (file, line) = (Value::Text(file.into()), Value::Count(line.into()));
        let insns = Value::Count(*insns);
        Some(Value::object([("file", file), ("line", line), ("self", insns)]))
    });
    match lines.collect::<Vec<_>>() {
        none if none.is_empty() => Value::Absent,
        all => Value::List(all),
    }
}

/// Functions of a class, or of one of its layers, as shares of a whole.
fn rows<'a>(
    class: &'a ClassView<'a>,
    layer: Option<&'a str>,
    whole: u64,
) -> impl Iterator<Item = FunctionRow<'a>> {
    class.functions_of(layer).map(move |function| FunctionRow {
        class,
        function,
        whole,
        lines: BTreeMap::new(),
        beside: None,
    })
}

/// The functions of some classes, or of one layer, as CSV (RFC 4180); sampled ones also have what all
/// quantities together show.
pub fn csv(classes: &[ClassView<'_>], layer: Option<&str>, together: &CrossQuantity<'_>) -> String {
    let quantity = classes.first().map_or_else(|| (&INSTRUCTIONS).into(), |c| c.quantity.clone());
    let below = classes.iter().any(|c| c.root_calls.is_some());
    let payload = classes.iter().any(|c| c.payload_bytes.is_some());
    let rows = classes.iter().flat_map(|class| {
        let guests = name_beside_unit(&class.quantity).is_some();
        let found = if guests { together.of_class(class) } else { BTreeMap::new() };
        rows(class, layer, class.total).map(move |mut row| {
            let function = row.data();
            let key = (&*function.name, function.module.as_deref());
            row.beside = found.get(&key).copied();
            row
        })
    });
    Table::new(columns(&quantity, below, payload), rows).csv()
}

/// The functions of a class as JSON.
pub(crate) fn json<'a>(class: &'a ClassView<'a>) -> Vec<Value> {
    let mut lines = of_class(class);
    let rows = rows(class, None, class.total).map(|mut row| {
        row.lines = lines.remove(&row.function.function).unwrap_or_default();
        row
    });
    Table::new(columns_of(class), rows).json()
}

/// The first functions of a class, or of one of its layers, and the sum of the others.
struct First<'a> {
    table: Table<'a, FunctionRow<'a>>,
    /// How many more there are, their cost, and its share.
    rest: Option<(usize, String, f64)>,
}

fn first<'a>(class: &'a ClassView<'a>, view: &'a View) -> First<'a> {
    let layer = view.layer.as_deref();
    let whole = layer.map_or(class.total, |l| class.layer_insns(l));
    let mut all: Vec<FunctionRow<'_>> = rows(class, layer, whole).collect();
    let top = if view.top == 0 { all.len() } else { view.top };
    let rest = all.split_off(top.min(all.len()));
    let cost: u64 = rest.iter().map(|r| r.function.self_insns).sum();
    First {
        table: Table::new(columns_of(class), all),
        rest: (!rest.is_empty()).then(|| (rest.len(), class.cost_text(cost), percent(cost, whole))),
    }
}

/// The functions of a class, or of the selected layer, for a terminal.
pub(crate) fn terminal(class: &ClassView<'_>, view: &View) -> String {
    let first = first(class, view);
    // Beside the name: figures, the layer, and the blanks between.
    let beside = match (view.columns >= WIDE, view.columns >= WIDER && !class.is_exact()) {
        (_, true) => 56 + WORD_LETTERS,
        (true, _) => 40 + WORD_LETTERS,
        _ => 40,
    };
    let [least, most] = NAME_LETTERS;
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    let mut out = first.table.terminal(Room::new(view.columns, name));
    if let Some((more, cost, share)) = first.rest {
        let more = counted(more, "more function");
        out.push_str(&format!("  and {more} with {cost} ({share:.1}%)\n"));
    }
    out
}

/// The same as Markdown.
pub(crate) fn markdown(class: &ClassView<'_>, view: &View, out: &mut String) {
    let first = first(class, view);
    first.table.markdown(out);
    if let Some((more, cost, share)) = first.rest {
        let more = counted(more, "more function");
        out.push_str(&format!("And {more} with {cost} ({share:.1}%).\n\n"));
    }
}

/// The table of a class's functions on the page: its columns, and the cells that trees don't give.
pub(crate) fn page(class: &ClassView<'_>) -> (Vec<PageColumn>, Vec<PageRow>) {
    let table = Table::new(columns_of(class), rows(class, None, class.total));
    let rows = table.page_rows().into_iter().zip(&class.functions);
    let rows = rows.filter(|(cells, _)| !cells.is_empty());
    let rows = rows.map(|(cells, function)| PageRow { function: function.function, cells });
    (table.page_columns(), rows.collect())
}
