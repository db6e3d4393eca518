//! The columns of counts and ratios, each declared once.

use netplumb_model::events::{Mode, with_mode};
use netplumb_stats::welch::Mean;

use super::counted::focus;
use super::rows::{Divided, EventRow, unit};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Value};
use crate::times::{ns, rounded};

/// Letters of an event's note.
const NOTE_LETTERS: usize = 200;
/// From here on there is room for the meaning of an event.
pub(super) const WIDE: usize = 90;

/// A figure in the unit of its event.
fn figure(value: f64, is_time: bool) -> Value {
    match is_time {
        true => Value::Formatted(with_unit(value), Some(value)),
        false => Value::Formatted(rounded(value), Some(value)),
    }
}

/// Nanoseconds with their unit.
pub(crate) fn with_unit(value: f64) -> String {
    match ns(value) {
        long if long.ends_with('s') => long,
        short => format!("{short} ns"),
    }
}

fn ends(mean: &Mean, figure_text: impl Fn(f64) -> String) -> Value {
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => {
            Value::Formatted(format!("{} to {}", figure_text(low), figure_text(high)), Some(low))
        }
        _ => Value::Missing,
    }
}

fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Number)
}

/// The columns of some rows.
pub(super) fn counts<'r>(rows: &[EventRow<'r>]) -> Vec<Column<'r, EventRow<'r>>> {
    let first = rows.iter().find(|row| row.counted.is_some());
    let mut arms = rows.iter().map(|row| row.arm).filter(|arm| !arm.is_empty());
    let several = arms.any(|arm| Some(arm) != first.map(|r| r.arm));
    let by_cpu = (rows.iter()).any(|row| row.counted.as_ref().is_some_and(|c| c.cpu.is_some()));
    let by_task = (rows.iter()).any(|row| row.counted.as_ref().is_some_and(|c| c.task.is_some()));
    let by_layer = (rows.iter()).any(|row| row.counted.as_ref().is_some_and(|c| c.layer.is_some()));
    let intervals = rows.iter().any(EventRow::has_interval);
    let shared = rows.iter().any(|row| row.share().is_some());
    let per = first.and_then(EventRow::per).unwrap_or("second");
    event_columns(per, several, [by_cpu, by_task, by_layer], intervals, shared)
}

fn event_columns<'r>(
    per: &'static str,
    several: bool,
    [by_cpu, by_task, by_layer]: [bool; 3],
    intervals: bool,
    shared: bool,
) -> Vec<Column<'r, EventRow<'r>>> {
    let mut columns = Vec::new();
    let arm = Column::text("arm", |row: &EventRow<'r>| row.arm.into())
        .hint("one combination of settings")
        .key("arm");
    columns.push(match several {
        true => arm.people(0).page("arm"),
        false => arm,
    });
    columns.push(
        Column::code("event", |row: &EventRow<'r>| Value::Name(row.name.into(), None))
            .hint("its name")
            .key("event")
            .people(1)
            .page("event"),
    );
    let cpu = |row: &EventRow<'r>| match row.counted.as_ref().and_then(|c| c.cpu) {
        Some(cpu) => Value::Formatted(cpu.to_string(), Some(f64::from(cpu))),
        None => Value::Formatted("all".into(), None),
    };
    if by_cpu {
        columns.push(
            Column::figure("CPU", cpu)
                .hint("where it happened; all of them together")
                .people(2)
                .page("cpu"),
        );
    }
    let task = |row: &EventRow<'r>| row.counted.as_ref().and_then(|c| c.task.clone());
    if by_task {
        columns.push(
            Column::text("task", move |row: &EventRow<'r>| {
                task(row).map_or("all".into(), |task| task.into_owned())
            })
            .hint("the name of the threads that it happened in; all of them together")
            .people(2)
            .page("task"),
        );
    }
    let layer = |row: &EventRow<'r>| row.counted.as_ref().and_then(|c| c.layer);
    if by_layer {
        columns.push(
            Column::text("layer", move |row: &EventRow<'r>| {
                layer(row).map_or("all".into(), Into::into)
            })
            .hint("the layer of the code that caused it; all of them together")
            .people(2)
            .page("layer"),
        );
    }
    columns.extend([
        Column::machine(|row: &EventRow<'r>| {
            let cpu = row.counted.as_ref().and_then(|c| c.cpu);
            cpu.map_or(Value::Missing, |cpu| Value::Count(cpu.into()))
        })
        .key("cpu"),
        Column::machine(move |row: &EventRow<'r>| {
            task(row).map_or(Value::Missing, |task| Value::Text(task.into_owned()))
        })
        .key("task"),
        Column::machine(move |row: &EventRow<'r>| Value::words(layer(row))).key("layer"),
        Column::machine(|row: &EventRow<'r>| Value::Text(focus(row.name).into())).key("focus"),
        Column::machine(|row: &EventRow<'r>| Value::Text(unit(row.is_time()).into())).key("unit"),
        Column::figure("count", |row: &EventRow<'r>| match &row.counted {
            Some(counted) if counted.is_time => figure(counted.total(), true),
            Some(counted) => Value::Count(counted.total() as u64),
            None => Value::Formatted("not counted".into(), None),
        })
        .hint("how often it happened in all blocks; of a clock, its time")
        .people(3)
        .page("count"),
        Column::machine(|row: &EventRow<'r>| match &row.counted {
            Some(counted) => Value::Count(counted.total() as u64),
            None => Value::Missing,
        })
        .key("count"),
        Column::machine(|row: &EventRow<'r>| Value::words(row.per())).key("per"),
        Column::machine(|row: &EventRow<'r>| number(row.mean().map(|mean| mean.value))).key("mean"),
        Column::machine(|row: &EventRow<'r>| number(row.mean().and_then(|mean| mean.low)))
            .key("mean_low"),
        Column::machine(|row: &EventRow<'r>| number(row.mean().and_then(|mean| mean.high)))
            .key("mean_high"),
    ]);
    // Of one run it is the count itself.
    if intervals || per != "run" {
        columns.push(
            Column::figure(format!("per {per}"), |row: &EventRow<'r>| match row.mean() {
                Some(mean) => figure(mean.value, row.is_time()),
                None => Value::Missing,
            })
            .hint("the mean over blocks, per run, packet or second")
            .people(4)
            .page("mean"),
        );
    }
    if intervals {
        columns.push(
            Column::figure("95% interval", |row: &EventRow<'r>| match row.mean() {
                Some(mean) if row.is_time() => ends(&mean, with_unit),
                Some(mean) => ends(&mean, rounded),
                None => Value::Missing,
            })
            .hint("of that mean, by how much blocks differ")
            .people(5)
            .page("interval"),
        );
    }
    let rate = Column::figure("per second", |row: &EventRow<'r>| match row.per_second() {
        Some(rate) if row.is_time() => {
            let cpus = rate / 1e9;
            Value::Formatted(format!("{cpus:.3} CPUs"), Some(rate))
        }
        Some(rate) => figure(rate, false),
        None => Value::Missing,
    })
    .hint("by the length of the blocks; of a clock, CPUs that are busy");
    if per != "second" {
        columns.push(rate.people(6).page("rate"));
    }
    columns.push(Column::machine(|row: &EventRow<'r>| number(row.per_second())).key("per_second"));
    for (key, end) in [("enabled_ns", 0), ("running_ns", 1)] {
        let time = move |row: &EventRow<'r>| {
            let times = row.counted.as_ref().and_then(|c| c.counted_ns);
            times.map_or(Value::Missing, |times| Value::Count(times[end] as u64))
        };
        columns.push(Column::machine(time).key(key));
    }
    if shared {
        columns.push(
            Column::figure("counted", |row: &EventRow<'r>| {
                row.share().map_or(Value::Missing, Value::Share)
            })
            .hint("the part of the time in which it was counted; counts are not scaled to the rest")
            .people(7)
            .page("counted"),
        );
    }
    let note = |row: &EventRow<'r>| match (row.why, with_mode(row.name)) {
        (Some(why), _) => why.to_string(),
        (None, _) if row.is_shared() => "counted part of the time, and not scaled".into(),
        (None, Some((event, Mode::All))) => event.about.into(),
        (None, Some((event, Mode::User))) => format!("{}, in user mode", event.about),
        (None, Some((event, Mode::Kernel))) => format!("{}, in the kernel", event.about),
        (None, None) => String::new(),
    };
    columns.extend([
        Column::text("note", note)
            .hint("what it is, or why it was not counted")
            .letters(NOTE_LETTERS)
            .people(8)
            .from(WIDE)
            .page("note"),
        Column::machine(|row: &EventRow<'r>| Value::words(row.why)).key("not_counted"),
    ]);
    columns
}

/// The columns of ratios.
pub(super) fn ratios<'r>(rows: &[Divided]) -> Vec<Column<'r, Divided>> {
    let several = rows.iter().any(|row| row.arm != rows[0].arm);
    of_ratios(several)
}

fn of_ratios<'r>(several: bool) -> Vec<Column<'r, Divided>> {
    let arm = Column::text("arm", |row: &Divided| row.arm.clone())
        .hint("one combination of settings")
        .key("arm");
    let figure_text = |value: f64, unit: &str| match unit {
        "ns" => with_unit(value),
        "/s" => format!("{}/s", rounded(value)),
        _ => match value.abs() {
            small if small < 10.0 => format!("{value:.4}"),
            _ => rounded(value),
        },
    };
    let mean =
        |of: fn(&Mean) -> Option<f64>| move |row: &Divided| number(row.mean.as_ref().and_then(of));
    vec![
        match several {
            true => arm.people(0).page("arm"),
            false => arm,
        },
        Column::code("ratio", |row: &Divided| Value::Name(row.ratio.clone(), None))
            .hint("one event divided by another")
            .key("ratio")
            .people(1)
            .page("ratio"),
        Column::machine(|row: &Divided| Value::Text(row.unit.into())).key("unit"),
        Column::figure("value", move |row: &Divided| match &row.mean {
            Some(mean) => Value::Formatted(figure_text(mean.value, row.unit), Some(mean.value)),
            None => Value::Missing,
        })
        .hint("of the sums over all blocks; a clock below is in seconds")
        .people(2)
        .page("value"),
        Column::figure("95% interval", move |row: &Divided| match &row.mean {
            Some(mean) => ends(mean, |value| figure_text(value, row.unit)),
            None => Value::Missing,
        })
        .hint("by how much blocks differ")
        .people(3)
        .page("interval"),
        Column::machine(mean(|mean| Some(mean.value))).key("value"),
        Column::machine(mean(|mean| mean.low)).key("low"),
        Column::machine(mean(|mean| mean.high)).key("high"),
    ]
}

/// The columns, for their reference.
#[cfg(test)]
pub(crate) fn declared() -> [Vec<Entry>; 2] {
    [entries(&event_columns("packet", true, [true; 3], true, true)), entries(&of_ratios(true))]
}
