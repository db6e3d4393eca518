//! The tables of times: of functions and of stages, each column declared once.

use netplumb_model::span::{StageKind, Times};
use netplumb_model::spans::By;

use super::analysis::{PERCENTILES, Stage, TimedClass, TimedFunction, TimedGroup, percentile};
use super::ns;
use super::number::share;
use crate::analysis::NO_LAYER;
use crate::number::{counted, printable};
use crate::page::{PageCell, PageColumn, PageTable};
use crate::summary::{class_columns, drawn};
use crate::table::{Column, Room, Shade, Table, Value};
use crate::view::View;

/// Room for everything.
const WIDE: usize = 130;
/// Room for most.
const MEDIUM: usize = 96;
/// Letters of modules and layers, which are a word.
const WORD_LETTERS: usize = 16;
/// The least and the most letters of a function's name.
const NAME_LETTERS: [usize; 2] = [16, 44];
/// Letters of a stage's.
const STAGE_LETTERS: usize = 30;
/// The least and the most letters of two events with the text between them, and the room beside them: in a
/// narrow terminal, and with all percentiles.
const EVENTS_LETTERS: [usize; 2] = [16, 60];
const BESIDE_EVENTS: [usize; 2] = [56, 80];
/// From here on there is room for bars beside them.
const BARS_OF_EVENTS: usize = 140;

/// A function, a stage, or a group of times between events.
#[derive(Clone, Copy)]
enum TimedItem<'a> {
    Function(&'a TimedFunction),
    Stage(&'a Stage),
    Group(&'a TimedGroup),
}

/// A row of a table of times, for one item of a class.
#[derive(Clone, Copy)]
pub(crate) struct TimesRow<'a> {
    class: &'a TimedClass<'a>,
    of: TimedItem<'a>,
    /// The whole that shares are relative to.
    whole: f64,
}

impl<'a> TimesRow<'a> {
    /// Its name, and a function's module.
    fn name(&self) -> (&'a str, Option<&'a str>) {
        match self.of {
            TimedItem::Function(f) => {
                let data = &self.class.recording.functions[f.function as usize];
                (&data.name, data.module.as_deref())
            }
            TimedItem::Stage(stage) => (&stage.name, None),
            TimedItem::Group(group) => (&group.name, None),
        }
    }

    fn layer(&self) -> Option<&'a str> {
        match self.of {
            TimedItem::Function(f) => {
                let data = &self.class.recording.functions[f.function as usize];
                data.layer.as_deref()
            }
            TimedItem::Stage(_) | TimedItem::Group(_) => None,
        }
    }

    fn times(&self) -> &'a Times {
        match self.of {
            TimedItem::Function(f) => &f.times,
            TimedItem::Stage(stage) => &stage.times,
            TimedItem::Group(group) => &group.times,
        }
    }

    /// The time that a share of calls or packets stays below.
    fn percentile(&self, share: f64) -> Value {
        known(match self.of {
            TimedItem::Function(f) => f.percentile(share),
            TimedItem::Stage(_) | TimedItem::Group(_) => percentile(self.times(), share),
        })
    }

    fn max(&self) -> Value {
        known(match self.of {
            TimedItem::Function(f) => Some(f.max_ns()),
            TimedItem::Stage(stage) => stage.max_ns(),
            TimedItem::Group(group) => Some(group.times.max_ns as f64),
        })
    }

    /// The mean of a call, or of a packet that went through: as read, and corrected.
    fn mean(&self) -> [Value; 2] {
        match self.of {
            TimedItem::Function(f) => [f.raw_mean_ns(), f.mean_ns()],
            TimedItem::Stage(_) | TimedItem::Group(_) => {
                let times = self.times();
                [times.total_ns as f64 / times.count.max(1) as f64; 2]
            }
        }
        .map(Value::Ns)
    }

    /// Its time per packet, run or second, in the given measure of a function.
    fn each(&self, of: fn(&TimedFunction) -> f64) -> f64 {
        match self.of {
            TimedItem::Function(f) => self.class.per.each(of(f)),
            TimedItem::Stage(stage) => stage.mean_ns(),
            TimedItem::Group(group) => {
                group.times.total_ns as f64 / group.times.count.max(1) as f64
            }
        }
    }

    fn share(&self) -> f64 {
        // No share of 0.
        match (self.whole > 0.0, self.of) {
            (true, TimedItem::Group(group)) => group.times.total_ns as f64 / self.whole,
            (true, _) => self.each(|f| f.self_ns) / self.whole,
            (false, _) => f64::NAN,
        }
    }

    /// All of a function's calls together.
    fn sum(&self, of: fn(&TimedFunction) -> f64) -> Value {
        match self.of {
            TimedItem::Function(f) => Value::Number(of(f)),
            TimedItem::Stage(_) | TimedItem::Group(_) => Value::Absent,
        }
    }

    fn function(&self, of: impl Fn(&'a TimedFunction) -> Value) -> Value {
        match self.of {
            TimedItem::Function(f) => of(f),
            TimedItem::Stage(_) | TimedItem::Group(_) => Value::Absent,
        }
    }

    fn stage(&self, of: impl Fn(&'a Stage) -> Value) -> Value {
        match self.of {
            TimedItem::Function(_) | TimedItem::Group(_) => Value::Absent,
            TimedItem::Stage(stage) => of(stage),
        }
    }
}

fn known(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Ns)
}

fn counts(all: &[u64]) -> Value {
    Value::List(all.iter().copied().map(Value::Count).collect())
}

/// Percentiles, and the longest; there is room for the first and third anywhere.
fn percentiles<'a>(rank: u8) -> Vec<Column<'a, TimesRow<'a>>> {
    let mut columns: Vec<Column<'a, TimesRow<'a>>> = (PERCENTILES.iter())
        .map(|(name, share)| {
            let few = ["p50", "p99"].contains(name);
            Column::figure(*name, |r: &TimesRow<'a>| r.percentile(*share))
                .hint(format!("{} of a hundred are shorter", &name[1..]))
                .unit("ns")
                .csv(format!("{}_ns", name.replace('.', "_")))
                .digits(1)
                .people(rank)
                .from(if few { 0 } else { MEDIUM })
                .page(*name)
        })
        .collect();
    columns.push(
        Column::figure("max", TimesRow::max)
            .hint("the longest")
            .unit("ns")
            .csv("max_ns")
            .digits(1)
            .people(rank)
            .page("max"),
    );
    columns
}

/// As read: without a correction.
fn distribution(row: &TimesRow<'_>) -> Value {
    let times = row.times();
    let percentiles = PERCENTILES.iter().map(|(name, share)| {
        let value = percentile(times, *share).map_or(Value::Missing, Value::Number);
        (*name, value)
    });
    let bucket = |(bucket, count): &(u16, u64)| {
        Value::List(vec![Value::Count(u64::from(*bucket)), Value::Count(*count)])
    };
    Value::object([
        ("min_ns", Value::Count(times.min_ns)),
        ("percentiles_ns", Value::object(percentiles)),
        ("max_ns", Value::Count(times.max_ns)),
        ("buckets", Value::List(times.buckets.iter().map(bucket).collect())),
    ])
}

/// The columns that identify a function or stage.
fn of_name<'a>() -> Vec<Column<'a, TimesRow<'a>>> {
    vec![
        Column::machine(|r: &TimesRow<'a>| Value::Text(r.class.arm().name.clone())).csv("arm"),
        Column::machine(|r: &TimesRow<'a>| Value::Text(r.class.class.to_string())).csv("class"),
        Column::machine(|r: &TimesRow<'a>| match r.of {
            TimedItem::Function(_) => Value::Text("function".into()),
            TimedItem::Stage(stage) => Value::Text(stage.kind.to_string()),
            TimedItem::Group(group) => Value::Text(group.by.to_string()),
        })
        .csv("kind"),
        Column::code("function", |r: &TimesRow<'a>| {
            let (name, module) = r.name();
            Value::Name(name.into(), module.map(Into::into))
        })
        .hint("its symbol, and the module that it is in")
        .csv("name")
        .json("name")
        .people(0)
        .page_own("function"),
        Column::machine(|r: &TimesRow<'a>| Value::words(r.name().1))
            .title("module")
            .hint("the module that it is in")
            .key("module")
            .words()
            .rank(2)
            .page("module"),
        Column::machine(|r: &TimesRow<'a>| Value::words(r.layer())).key("layer"),
        Column::text("layer", |r: &TimesRow<'a>| r.layer().unwrap_or(NO_LAYER).into())
            .hint("the part of the network stack that it is in")
            .people(1)
            .from(WIDE)
            .letters(WORD_LETTERS)
            .page("layer"),
    ]
}

/// The columns of functions, which CSV also has for stages.
pub(crate) fn functions<'a>() -> Vec<Column<'a, TimesRow<'a>>> {
    let mut columns = of_name();
    columns.extend([
        Column::machine(|r: &TimesRow<'a>| {
            r.function(|f| Value::words(f.mechanism.map(|m| m.as_str())))
        })
        .title("by")
        .hint("by what it was timed")
        .json("mechanism")
        .words()
        .rank(13)
        .page("by"),
        Column::machine(|r: &TimesRow<'a>| Value::Count(r.times().count))
            .csv("count")
            .json("calls"),
        Column::figure("calls", |r: &TimesRow<'a>| {
            Value::Number(r.class.per.each(r.times().count as f64))
        })
        .hint("per packet, run or second")
        .people(3)
        .page("calls"),
        Column::machine(|r: &TimesRow<'a>| r.sum(|f| f.raw_ns)).json("raw_ns"),
        Column::machine(|r: &TimesRow<'a>| r.sum(|f| f.corrected_ns)).json("corrected_ns"),
        Column::machine(|r: &TimesRow<'a>| r.sum(|f| f.self_ns)).json("self_ns"),
        Column::machine(|r: &TimesRow<'a>| r.sum(|f| f.uncertainty_ns)).json("self_uncertainty_ns"),
        Column::machine(|r: &TimesRow<'a>| r.function(|f| Value::Flag(f.too_small())))
            .json("too_small_to_rank"),
    ]);
    columns.extend(percentiles(7));
    columns.extend([
        Column::figure("raw/call", |r: &TimesRow<'a>| r.mean()[0].clone())
            .hint("the mean of a call as read, with the probes' cost")
            .unit("ns")
            .key("raw_ns_per_call")
            .digits(1)
            .people(4)
            .from(WIDE)
            .not_in_markdown()
            .page("raw_mean"),
        Column::figure("mean", |r: &TimesRow<'a>| r.mean()[1].clone())
            .hint("of a call, corrected")
            .unit("ns")
            .key("corrected_ns_per_call")
            .digits(1)
            .people(5)
            .from(MEDIUM)
            .page("mean"),
        Column::machine(|r: &TimesRow<'a>| {
            r.function(|f| {
                let own = f.self_by_block.iter();
                Value::List(own.copied().map(Value::Number).collect())
            })
        })
        .json("self_ns_by_block"),
        Column::machine(|r: &TimesRow<'a>| r.function(|f| counts(&f.calls_by_block)))
            .json("calls_by_block"),
        Column::machine(distribution).json("times"),
        Column::figure("raw", |r: &TimesRow<'a>| Value::Ns(r.each(|f| f.raw_ns)))
            .hint("with all that it called, as read")
            .unit("ns")
            .csv("raw_ns")
            .digits(3)
            .people(8)
            .from(WIDE)
            .page("raw"),
        Column::figure("total", |r: &TimesRow<'a>| Value::Ns(r.each(|f| f.corrected_ns)))
            .hint("with all that it called, corrected")
            .unit("ns")
            .csv("corrected_ns")
            .digits(3)
            .people(9)
            .from(MEDIUM)
            .page("total"),
        Column::figure("self", |r: &TimesRow<'a>| Value::Ns(r.each(|f| f.self_ns)))
            .hint("in its own code and what was not timed below it, corrected")
            .unit("ns")
            .csv("self_ns")
            .digits(3)
            .people(10)
            .page("self"),
        Column::machine(|r: &TimesRow<'a>| {
            r.function(|f| Value::Ns(r.class.per.each(f.uncertainty_ns)))
        })
        .title("\u{b1}")
        .hint("what the correction may make self be off by (95%)")
        .unit("ns")
        .csv("self_uncertainty_ns")
        .digits(3)
        .rank(11)
        .page("uncertainty"),
        Column::figure("share", |r: &TimesRow<'a>| Value::Share(r.share()))
            .hint("of self in all that was timed")
            .people(12)
            .page("share"),
        Column::machine(|r: &TimesRow<'a>| match r.of {
            TimedItem::Function(_) => Value::Text(r.class.per.word().into()),
            TimedItem::Stage(_) | TimedItem::Group(_) => Value::Text(r.class.each_of().into()),
        })
        .csv("per"),
        Column::machine(|_: &TimesRow<'a>| Value::Absent)
            .title("distribution")
            .hint("of calls as read: how many took how long")
            .rank(14)
            .page_own("distribution"),
    ]);
    columns
}

/// The columns of stages: of a packet's path, or `between` events, whose names have at most this many letters.
pub(crate) fn stages<'a>(between: Option<usize>) -> Vec<Column<'a, TimesRow<'a>>> {
    let (count, name, kind, mean) = match between {
        None => (
            "packets",
            "a part of the path between two tracepoints",
            "work: a CPU processes the packet; wait: the packet is queued",
            "of all packets on the path; zero for those that skipped the stage",
        ),
        Some(_) => (
            "count",
            "from one event to the next that was reached",
            "work: a CPU is busy with it; wait: it is queued, or sleeps",
            "of all that ended; zero for those that went another way",
        ),
    };
    let mut columns: Vec<Column<'a, TimesRow<'a>>> = vec![
        Column::text("stage", |r: &TimesRow<'a>| r.name().0.into())
            .hint(name)
            .json("name")
            .page_own("stage"),
        // Where there is less room.
        Column::text("stage", move |r: &TimesRow<'a>| {
            let whole = r.name().0;
            between.map_or_else(|| whole.to_string(), |letters| events_within(whole, letters))
        })
        .hint(name)
        .people(0)
        .letters(between.unwrap_or(STAGE_LETTERS)),
        Column::machine(|r: &TimesRow<'a>| r.stage(|s| Value::Text(s.kind.to_string())))
            .json("kind"),
        Column::text("kind", |r: &TimesRow<'a>| match r.of {
            TimedItem::Stage(stage) if matches!(stage.kind, StageKind::Work | StageKind::Wait) => {
                stage.kind.to_string()
            }
            // A function has no kind.
            _ => String::new(),
        })
        .hint(kind)
        .people(1)
        .page("kind"),
        Column::figure(count, |r: &TimesRow<'a>| Value::Count(r.times().count))
            .hint("that went through it")
            .json(count)
            .people(2)
            .from(MEDIUM)
            .page("packets"),
        Column::machine(|r: &TimesRow<'a>| r.stage(|s| Value::Count(s.passed_over)))
            .title("passed over")
            .hint("on this path, and not through the stage")
            .json("passed_over")
            .rank(6)
            .page("passed_over"),
        Column::machine(|r: &TimesRow<'a>| {
            r.stage(|s| Value::Number(s.own_ns / s.packets().max(1) as f64))
        })
        .json("own_ns_per_packet"),
        Column::machine(|r: &TimesRow<'a>| r.stage(|s| Value::Number(s.mean_ns())))
            .json("ns_per_packet"),
        Column::machine(|r: &TimesRow<'a>| {
            let number = |mean: &Option<f64>| mean.map_or(Value::Missing, Value::Number);
            r.stage(|s| Value::List(s.by_block.iter().map(number).collect()))
        })
        .json("ns_per_packet_by_block"),
        Column::machine(distribution).json("times"),
    ];
    columns.extend(percentiles(3));
    columns.extend([
        Column::figure("mean", |r: &TimesRow<'a>| Value::Ns(r.each(|f| f.self_ns)))
            .hint(mean)
            .unit("ns")
            .people(4)
            .page("mean"),
        Column::figure("share", |r: &TimesRow<'a>| Value::Share(r.share()))
            .hint("of the whole path")
            .people(5)
            .page("share"),
        Column::machine(|_: &TimesRow<'a>| Value::Absent)
            .title("distribution")
            .hint("how many packets took how long")
            .rank(7)
            .page_own("distribution"),
        Column::bars(|r: &TimesRow<'a>| match r.of {
            TimedItem::Stage(s) if s.kind == StageKind::Total => Value::Text(String::new()),
            TimedItem::Stage(s) if s.kind == StageKind::Wait => Value::Bar(r.share(), Shade::Light),
            TimedItem::Group(_) => Value::Text(String::new()),
            _ => Value::Bar(r.share(), Shade::Full),
        })
        .from(between.map_or(0, |_| BARS_OF_EVENTS)),
    ]);
    columns
}

/// The names of two events with the text between them, in at most `letters`: their ends distinguish them.
fn events_within(whole: &str, letters: usize) -> String {
    const BETWEEN: &str = " → ";
    let length = |text: &str| text.chars().count();
    let Some((from, to)) = whole.split_once(BETWEEN).filter(|_| length(whole) > letters) else {
        return whole.into();
    };
    let room = letters.saturating_sub(length(BETWEEN));
    let half = room / 2;
    // A short one leaves the other more.
    let of_from = half.max(room.saturating_sub(length(to))).min(length(from));
    let end = |text: &str, most: usize| match length(text) <= most {
        true => text.to_string(),
        false => {
            let rest = text.chars().skip(length(text) + 1 - most.max(1));
            std::iter::once('…').chain(rest).collect()
        }
    };
    format!("{}{BETWEEN}{}", end(from, of_from), end(to, room - of_from))
}

/// The letters of names, where stages are between events.
fn of_events(class: &TimedClass<'_>) -> Option<usize> {
    class.is_between().then_some(EVENTS_LETTERS[1])
}

fn rows_of_functions<'a>(
    class: &'a TimedClass<'a>,
    layer: Option<&'a str>,
) -> impl Iterator<Item = TimesRow<'a>> {
    let whole = layer.map_or(class.total_ns, |l| class.layer_ns(l));
    class.functions_of(layer).map(move |f| TimesRow {
        class,
        of: TimedItem::Function(f),
        whole: class.per.each(whole),
    })
}

fn rows_of_stages<'a>(class: &'a TimedClass<'a>) -> impl Iterator<Item = TimesRow<'a>> {
    class.stages.iter().map(move |stage| TimesRow {
        class,
        of: TimedItem::Stage(stage),
        whole: class.whole_ns(),
    })
}

/// The columns of groups of times between events.
pub(crate) fn groups<'a>(by: By) -> Vec<Column<'a, TimesRow<'a>>> {
    let mut columns: Vec<Column<'a, TimesRow<'a>>> = vec![
        Column::text(by.as_str(), |r: &TimesRow<'a>| r.name().0.into())
            .hint("of the first event")
            .json("name")
            .people(0)
            .letters(STAGE_LETTERS)
            .page("name"),
        Column::machine(move |_: &TimesRow<'a>| Value::Text(by.to_string())).json("by"),
        Column::figure("count", |r: &TimesRow<'a>| Value::Count(r.times().count))
            .hint("that ended")
            .json("count")
            .people(1)
            .page("count"),
        Column::machine(|r: &TimesRow<'a>| Value::Count(r.times().total_ns)).json("total_ns"),
        Column::machine(distribution).json("times"),
    ];
    columns.extend(percentiles(2));
    columns.extend([
        Column::figure("mean", |r: &TimesRow<'a>| Value::Ns(r.each(|f| f.self_ns)))
            .hint("of those that ended")
            .unit("ns")
            .people(3)
            .page("mean"),
        Column::figure("share", |r: &TimesRow<'a>| Value::Share(r.share()))
            .hint("of the time of all")
            .people(4)
            .page("share"),
    ]);
    columns
}

fn table_of_groups<'a>(class: &'a TimedClass<'a>) -> Option<Table<'a, TimesRow<'a>>> {
    let by = class.groups.first()?.by;
    Some(Table::new(groups(by), rows_of_groups(class)))
}

fn rows_of_groups<'a>(class: &'a TimedClass<'a>) -> impl Iterator<Item = TimesRow<'a>> {
    let whole: u64 = class.groups.iter().map(|group| group.times.total_ns).sum();
    class.groups.iter().map(move |group| TimesRow {
        class,
        of: TimedItem::Group(group),
        whole: whole as f64,
    })
}

/// Groups of a class for a terminal, the first ones.
pub(super) fn groups_terminal(class: &TimedClass<'_>, view: &View) -> Option<String> {
    let by = class.groups.first()?.by;
    let most = if view.top == 0 { usize::MAX } else { view.top };
    let table = Table::new(groups(by), rows_of_groups(class).take(most));
    let mut out = table.terminal(Room::new(view.columns, STAGE_LETTERS));
    if class.groups.len() > most {
        out.push_str(&format!("  and {} more\n", class.groups.len() - most));
    }
    Some(out)
}

/// The same as Markdown.
pub(super) fn groups_markdown(class: &TimedClass<'_>, out: &mut String) {
    if let Some(table) = table_of_groups(class) {
        table.markdown(out);
    }
}

/// The same for the page.
pub(super) fn groups_page(class: &TimedClass<'_>) -> Option<PageTable> {
    let by = class.groups.first()?.by;
    Some(table_of_groups(class)?.page(&format!("{}, by {by}; ns", class.label())))
}

/// The same as JSON.
pub(super) fn groups_json(class: &TimedClass<'_>) -> Vec<Value> {
    table_of_groups(class).map_or_else(Vec::new, |table| table.json())
}

/// A line for each class and function and, unless one layer is selected, for each stage, as CSV.
pub fn csv(classes: &[TimedClass<'_>], layer: Option<&str>) -> String {
    let rows = classes.iter().flat_map(|class| {
        let stages = layer.is_none().then(|| rows_of_stages(class));
        let groups = layer.is_none().then(|| rows_of_groups(class));
        rows_of_functions(class, layer)
            .chain(stages.into_iter().flatten())
            .chain(groups.into_iter().flatten())
    });
    Table::new(functions(), rows).csv()
}

/// The functions and the stages of a class as JSON.
pub(super) fn json(class: &TimedClass<'_>) -> [Vec<Value>; 2] {
    [
        Table::new(functions(), rows_of_functions(class, None)).json(),
        Table::new(stages(of_events(class)), rows_of_stages(class)).json(),
    ]
}

/// The first functions of a class, the number and time of the rest, and a note on functions too
/// small to rank.
struct First<'a> {
    table: Table<'a, TimesRow<'a>>,
    rest: Option<(String, String)>,
    small: Option<String>,
}

fn first<'a>(class: &'a TimedClass<'a>, view: &'a View) -> First<'a> {
    let (small, mut ranked): (Vec<TimesRow<'a>>, Vec<TimesRow<'a>>) =
        rows_of_functions(class, view.layer.as_deref()).partition(|r| match r.of {
            TimedItem::Function(f) => f.too_small(),
            TimedItem::Stage(_) | TimedItem::Group(_) => false,
        });
    let top = if view.top == 0 { ranked.len() } else { view.top };
    let rest = ranked.split_off(top.min(ranked.len()));
    let sum: f64 = rest.iter().map(|r| r.each(|f| f.self_ns)).sum();
    let whole = rest.first().map_or(0.0, |r| r.whole);
    let small: Vec<&TimedFunction> = (small.iter())
        .filter_map(|r| match r.of {
            TimedItem::Function(f) => Some(f),
            TimedItem::Stage(_) | TimedItem::Group(_) => None,
        })
        .collect();
    First {
        table: Table::new(functions(), ranked),
        rest: (!rest.is_empty()).then(|| {
            let cost = format!("{} ({})", ns(sum), share(sum, whole));
            (counted(rest.len(), "more function"), cost)
        }),
        small: (!small.is_empty()).then(|| too_small(class, &small)),
    }
}

/// The functions of a class for a terminal, and a note on functions too small to
/// rank.
pub(super) fn functions_terminal(class: &TimedClass<'_>, view: &View) -> (String, Option<String>) {
    let first = first(class, view);
    let beside = match (view.columns >= WIDE, view.columns >= MEDIUM) {
        (true, _) => 104,
        (_, true) => 76,
        _ => 48,
    };
    let [least, most] = NAME_LETTERS;
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    let mut out = first.table.terminal(Room::new(view.columns, name));
    if let Some((more, cost)) = first.rest {
        out.push_str(&format!("  and {more} with {cost}\n"));
    }
    (out, first.small)
}

/// The same as Markdown.
pub(super) fn functions_markdown(
    class: &TimedClass<'_>,
    view: &View,
    out: &mut String,
) -> Option<String> {
    let first = first(class, view);
    first.table.markdown(out);
    if let Some((more, cost)) = first.rest {
        out.push_str(&format!("And {more} with {cost}.\n\n"));
    }
    first.small
}

/// The stages of a class for a terminal.
pub(super) fn stages_terminal(class: &TimedClass<'_>, columns: usize) -> String {
    let room = Room { bar: columns.saturating_sub(100).clamp(8, 20), ..Room::new(columns, 0) };
    let [least, most] = EVENTS_LETTERS;
    let beside = match columns {
        0..MEDIUM => BESIDE_EVENTS[0],
        MEDIUM..BARS_OF_EVENTS => BESIDE_EVENTS[1],
        _ => BESIDE_EVENTS[1] + 2 + room.bar,
    };
    let letters = columns.saturating_sub(beside).clamp(least, most);
    let between = class.is_between().then_some(letters);
    Table::new(stages(between), rows_of_stages(class)).terminal(room)
}

/// The same as Markdown.
pub(super) fn stages_markdown(class: &TimedClass<'_>, out: &mut String) {
    Table::new(stages(of_events(class)), rows_of_stages(class)).markdown(out);
}

/// The table of functions on the page: its columns, and the cells of each.
pub(super) fn page(class: &TimedClass<'_>) -> (Vec<PageColumn>, Vec<Vec<PageCell>>) {
    let table = Table::new(functions(), rows_of_functions(class, None));
    (table.page_columns(), table.page_rows())
}

/// The same of stages.
pub(super) fn stages_page(class: &TimedClass<'_>) -> (Vec<PageColumn>, Vec<Vec<PageCell>>) {
    let table = Table::new(stages(of_events(class)), rows_of_stages(class));
    (table.page_columns(), table.page_rows())
}

/// A line for each class, for the page; none where only some have stages.
pub(super) fn classes_page(classes: &[&TimedClass<'_>]) -> Option<PageTable> {
    type Class<'a> = &'a TimedClass<'a>;
    let staged = classes.iter().filter(|c| !c.stages.is_empty()).count();
    if classes.is_empty() || staged != 0 && staged != classes.len() {
        return None;
    }
    let mut columns = class_columns(classes.iter().map(|c| c.arm()), |c: &Class<'_>| {
        (c.arm(), c.class.to_string())
    });
    let (caption, title, hint) = match staged > 0 {
        true if classes.iter().all(|class| class.is_between()) => {
            ("From the first event to the last; ns", "mean", "of all that ended")
        }
        true => ("A packet's path, class by class; ns", "mean", "of a packet's path"),
        false => (
            "Every arm and class; ns",
            "ns",
            "own time of all functions, corrected; per packet, run or second",
        ),
    };
    columns.push(
        Column::figure(title, |c: &Class<'_>| match c.stages.is_empty() {
            true => Value::Ns(c.per.each(c.total_ns)),
            false => Value::Ns(c.whole_ns()),
        })
        .hint(hint)
        .unit("ns")
        .rank(2)
        .page("cost"),
    );
    columns.push(drawn());
    if staged > 0 {
        let total = |c: &Class<'_>, share: f64| {
            let total = c.stages.iter().find(|s| s.kind == StageKind::Total);
            known(total.and_then(|s| percentile(&s.times, share)))
        };
        columns.extend(PERCENTILES.iter().map(|(name, share)| {
            Column::figure(*name, move |c: &Class<'_>| total(c, *share))
                .hint("of packets on the whole path")
                .unit("ns")
                .rank(4)
                .page(*name)
        }));
    } else {
        columns.extend([
            Column::text("largest layer", |c: &Class<'_>| {
                let largest = c.layers.first();
                largest.map_or("-".into(), |(name, sum)| format!("{name} {}", ns(c.per.each(*sum))))
            })
            .hint("with its own time")
            .rank(4)
            .page("layer"),
            Column::text("largest function", |c: &Class<'_>| {
                let largest = c.functions.first();
                largest.map_or("-".into(), |f| {
                    format!("{} {}", c.name(f.function), ns(c.per.each(f.self_ns)))
                })
            })
            .hint("with its own time")
            .rank(4)
            .page("function"),
        ]);
    }
    Some(Table::new(columns, classes.iter().copied()).page(caption))
}

/// The most functions too small to rank that are named.
const SMALL_NAMES: usize = 6;

/// One line for the functions whose own time is within the correction's error.
fn too_small(class: &TimedClass<'_>, small: &[&TimedFunction]) -> String {
    let mut names: Vec<String> =
        small.iter().take(SMALL_NAMES).map(|f| printable(class.name(f.function), 40)).collect();
    if small.len() > SMALL_NAMES {
        names.push(format!("{} more", small.len() - SMALL_NAMES));
    }
    let sum: f64 = small.iter().map(|f| f.self_ns).sum();
    format!(
        "too small to rank, their own time being less than what the correction may be off by: {} ({} together)",
        names.join(", "),
        ns(class.per.each(sum))
    )
}
