//! The tables of a comparison: wholes, layers, stages and functions before and after. `columns` and
//! `costs` declare each column once for both judges and every output, `line` has the cells.

mod columns;
mod costs;
mod line;
mod page;

pub(super) use costs::object;
pub(super) use page::{all_layers, arm, from_trees, rows, summary};

use columns::{SAMPLE_NAME_LETTERS, TableSubject, WITH_QUANTILES};
use costs::costs;
use line::{Line, LineSubject, WIDE};

use super::sentence::subject;
use super::{ClassDiff, Diff, DiffRow, Judge, mixed};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Room, Table, Value};
use crate::view::View;

/// The least and the most letters of a name of exact costs.
const NAME_LETTERS: [usize; 2] = [16, 60];
/// Letters of a class.
const CLASS_LETTERS: usize = 200;

/// Lines of some rows of a class.
fn lines<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    kind: &'static str,
    rows: impl IntoIterator<Item = &'a DiffRow>,
) -> Vec<Line<'a>> {
    let line = |row| Line { diff, class, kind, of: LineSubject::Row(row) };
    rows.into_iter().map(line).collect()
}

/// The lines of all classes, or the functions of one layer, as CSV.
pub(super) fn csv(diff: &Diff<'_>, layer: Option<&str>) -> String {
    if !diff.one_clock {
        return mixed::csv(&diff.both);
    }
    let lines = diff.classes.iter().flat_map(|class| {
        let functions = class.functions.iter();
        let functions = functions.filter(|row| layer.is_none_or(|l| row.of == l));
        if diff.judge == Judge::Exact {
            // The verdict is the function's in all its contexts.
            let of_contexts = functions.flat_map(|row| {
                let contexts = row.counts.iter().flat_map(|c| &c.contexts);
                contexts.map(move |(context, changes)| Line {
                    diff,
                    class,
                    kind: "function",
                    of: LineSubject::Context(row, *context, *changes),
                })
            });
            return of_contexts.collect::<Vec<_>>();
        }
        let mut all = Vec::new();
        if layer.is_none() {
            all.extend(lines(diff, class, "total", &class.way));
            all.extend(lines(diff, class, "stage", &class.stages));
            all.extend(lines(diff, class, "all functions", &class.total));
        }
        all.extend(lines(diff, class, "function", functions));
        let inclusive = class.inclusive.iter();
        let inclusive = inclusive.filter(|row| layer.is_none_or(|l| row.of == l));
        all.extend(lines(diff, class, "inclusive", inclusive));
        all
    });
    let shown = TableSubject::new(diff, "function", None);
    Table::new(shown.columns(), lines).csv()
}

/// Some rows of a class as JSON.
pub(super) fn json<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    rows: impl IntoIterator<Item = &'a DiffRow>,
) -> Vec<Value> {
    let shown = TableSubject::new(diff, "function", None);
    Table::new(shown.columns(), lines(diff, class, "function", rows)).json()
}

/// The wholes of several classes as one table: arms of a bench.
pub(super) fn wholes<'a>(diff: &'a Diff<'_>) -> Table<'a, Line<'a>> {
    let classes = diff.classes.iter();
    let lines = classes.flat_map(|class| lines(diff, class, "arm", class.whole()));
    Table::new(TableSubject::new(diff, "arm", None).columns(), lines)
}

/// Functions of a class, different ones first, and their sum; and how many are left out. For exact
/// costs only different ones, and the sums of the others.
pub(super) fn functions<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    layer: Option<&str>,
    top: usize,
) -> (Table<'a, Line<'a>>, usize) {
    let of_layer = |r: &&DiffRow| layer.is_none_or(|l| r.of == l);
    let functions = class.functions.iter().filter(of_layer);
    let (mut rows, others): (Vec<&DiffRow>, Vec<&DiffRow>) =
        functions.partition(|row| row.judged.differs());
    if class.counted.is_none() {
        rows.extend(others);
    }
    let (apart, rows): (Vec<&DiffRow>, Vec<&DiffRow>) =
        rows.into_iter().partition(|row| row.has_same_code());
    let mut rows = rows;
    let top = if top == 0 { rows.len() } else { top };
    let rest = rows.split_off(top.min(rows.len()));
    let mut all = lines(diff, class, "function", rows);
    let mut add = |what: String, delta| {
        all.push(Line { diff, class, kind: "rest", of: LineSubject::Rest(what, delta) });
    };
    let mut left = rest.len();
    if let Some(counted) = &class.counted {
        if !rest.is_empty() {
            let deltas = rest.iter().filter_map(|r| Some(r.judged.exactly()?.delta()));
            let sum = deltas.fold(counted.total.delta().none(), |sum, delta| sum.plus(&delta));
            add(format!("{} more", rest.len()), sum);
        }
        if !apart.is_empty() {
            let deltas = apart.iter().filter_map(|r| Some(r.judged.exactly()?.delta()));
            let sum = deltas.fold(counted.total.delta().none(), |sum, delta| sum.plus(&delta));
            add(format!("{} with the same code", apart.len()), sum);
        }
        let unsure = class.unsure().filter(|(n, _)| *n > 0 && layer.is_none());
        if let Some((count, unsure)) = unsure {
            add(format!("{count} too small to tell"), unsure);
        }
        left = 0;
    }
    let total = class.total.as_ref().filter(|_| layer.is_none());
    all.extend(lines(diff, class, "all functions", total));
    let (noun, of) = diff.noun();
    let shown = TableSubject::new(diff, noun, Some(of));
    (Table::new(shown.columns(), all), left)
}

/// Functions of a class that differ despite the same code in both kernels, if there are any; and how many are
/// left out.
pub(super) fn same_code<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    layer: Option<&str>,
    top: usize,
) -> Option<(Table<'a, Line<'a>>, usize)> {
    let of_layer = |r: &&DiffRow| layer.is_none_or(|l| r.of == l);
    let functions = class.functions.iter().filter(of_layer);
    let mut rows: Vec<&DiffRow> =
        functions.filter(|row| row.judged.differs() && row.has_same_code()).collect();
    let top = if top == 0 { rows.len() } else { top };
    let left = rows.split_off(top.min(rows.len())).len();
    let shown = TableSubject::new(diff, "same code in both kernels", Some("layer"));
    let lines = lines(diff, class, "function", rows);
    (!lines.is_empty()).then(|| (Table::new(shown.columns(), lines), left))
}

/// Inclusive costs of a class's functions, different ones first; and how many are left out.
pub(super) fn inclusive<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    layer: Option<&str>,
    top: usize,
) -> (Table<'a, Line<'a>>, usize) {
    let of_layer = |r: &&DiffRow| layer.is_none_or(|l| r.of == l);
    let (mut rows, others): (Vec<&DiffRow>, Vec<&DiffRow>) =
        (class.inclusive.iter().filter(of_layer)).partition(|row| row.judged.differs());
    rows.extend(others);
    let top = if top == 0 { rows.len() } else { top };
    let left = rows.split_off(top.min(rows.len())).len();
    let shown = TableSubject::new(diff, "with all it calls", Some("layer"));
    let lines = lines(diff, class, "inclusive", rows);
    (Table::new(shown.columns(), lines), left)
}

/// The columns of functions and, for figures that vary, of stages.
#[cfg(test)]
pub(crate) fn declared(diff: &Diff<'_>) -> Vec<Vec<Entry>> {
    let titles: &[_] = match diff.judge {
        Judge::Exact => &[("function", "layer")],
        Judge::Statistical => &[("function", "layer"), ("stage", "kind")],
    };
    let columns = |(title, of): &(&'static str, &'static str)| {
        let mut columns = TableSubject::new(diff, title, Some(of)).columns();
        if diff.judge == Judge::Exact {
            // Below a function.
            columns.extend(costs::inclusive());
            columns.extend(costs::from_tree());
        }
        entries(&columns)
    };
    titles.iter().map(columns).collect()
}

/// The room for names on a terminal.
pub(super) fn room(diff: &Diff<'_>, view: &View) -> Room {
    let below = diff.classes.iter().any(|c| c.root.is_some());
    let (beside, [least, most]) = match diff.judge {
        Judge::Exact if below && view.columns >= WITH_QUANTILES => (92, NAME_LETTERS),
        Judge::Exact if below && view.columns >= costs::WIDER => (82, NAME_LETTERS),
        Judge::Exact if view.columns >= WIDE => (75, NAME_LETTERS),
        Judge::Exact => (42, NAME_LETTERS),
        Judge::Statistical if view.columns >= WITH_QUANTILES => (112, SAMPLE_NAME_LETTERS),
        Judge::Statistical => (78, SAMPLE_NAME_LETTERS),
    };
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    Room::new(view.columns, name)
}

/// The stages of a class, with the whole path.
pub(super) fn stages<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> Table<'a, Line<'a>> {
    let rows = class.stages.iter().chain(&class.way);
    let shown = TableSubject::new(diff, "stage", Some("kind"));
    Table::new(shown.columns(), lines(diff, class, "stage", rows))
}

/// The layers of a class that changed, and the whole.
pub(super) fn layers<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> Table<'a, Line<'a>> {
    let layers = class.layers.iter().filter(|row| row.judged.differs());
    let mut all = lines(diff, class, "layer", layers);
    all.extend(lines(diff, class, "all functions", &class.total));
    let mut columns = TableSubject::new(diff, "layer", None).names();
    columns.extend(costs());
    Table::new(columns, all)
}

/// Some rows of several classes as Markdown.
pub(super) fn markdown_of_classes<'a>(
    diff: &'a Diff<'_>,
    rows: impl IntoIterator<Item = (&'a ClassDiff, &'a DiffRow)>,
    out: &mut String,
) {
    let class = Column::text("class", |l: &Line<'a>| subject(l.class)).letters(CLASS_LETTERS);
    let (title, exact) = match diff.judge {
        Judge::Exact => ("function", true),
        Judge::Statistical => ("what", false),
    };
    let shown = TableSubject::new(diff, title, None);
    let mut columns = vec![class.people(0)];
    columns.extend(shown.names());
    columns.extend(if exact { costs() } else { shown.sample() });
    let rows = rows.into_iter();
    let lines = rows.flat_map(|(class, row)| lines(diff, class, "function", [row]));
    Table::new(columns, lines).markdown(out);
}
