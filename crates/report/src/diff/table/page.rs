//! Tables of a comparison that only the page has.

use std::collections::BTreeSet;

use super::columns::TableSubject;
use super::costs::{costs, from_tree};
use super::line::{Columns, Line, LineSubject};
use super::lines;
use crate::diff::{ClassDiff, Diff, DiffRow, Judge};
use crate::page::{PageColumn, PageTable};
use crate::summary::drawn;
use crate::table::{Column, Table};

/// Columns that the first screen has room for.
const FIRST_SCREEN: [&str; 6] = ["before", "after", "difference", "change", "interval", "verdict"];

/// The arms of a class, "before → after" where they differ.
pub(in crate::diff) fn arm(diff: &Diff<'_>, class: &ClassDiff) -> String {
    let was = &diff.sides.before.arms[class.arms.before].name;
    let is = &diff.sides.after.arms[class.arms.after].name;
    match was == is {
        true => is.clone(),
        false => format!("{was} → {is}"),
    }
}

/// A line for each class; none where a class has no whole, or the sides have two
/// instruments.
pub(in crate::diff) fn summary(diff: &Diff<'_>) -> Option<PageTable> {
    let whole = |class: &ClassDiff| class.whole().is_some();
    if diff.classes.is_empty() || !diff.both.is_empty() || !diff.classes.iter().all(whole) {
        return None;
    }
    let all = diff.classes.iter();
    let all = all.flat_map(|class| lines(diff, class, "class", class.whole()));
    let mut columns: Columns<'_> = vec![
        Column::text("class", |l: &Line<'_>| l.class.class())
            .hint("protocol and direction")
            .page("class"),
    ];
    let is_named = |class: &ClassDiff| arm(diff, class) != class.after.proto.as_str();
    if diff.classes.iter().any(is_named) {
        let arm = Column::text("arm", |l: &Line<'_>| arm(l.diff, l.class));
        columns.push(arm.hint("one combination of settings").page("arm"));
    }
    let caption = match diff.judge {
        Judge::Exact => {
            columns.extend(costs());
            let most = Column::text("most changed function", most_changed);
            columns.push(most.hint("with the change of its own cost").rank(6).page("function"));
            let of = |c: &ClassDiff| format!("; {}", c.per_what());
            let all: BTreeSet<String> = diff.classes.iter().map(of).collect();
            let of = all.first().filter(|_| all.len() == 1);
            format!("Every arm and class{}", of.map_or("", |of| of))
        }
        Judge::Statistical => {
            let shown = TableSubject::new(diff, "class", None);
            let sample = shown.sample().into_iter();
            columns.extend(sample.map(|column| column.page_only(&FIRST_SCREEN)));
            columns.push(drawn().rank(5));
            "Every class; the whole path, or all functions that both sides timed".into()
        }
    };
    Some(Table::new(columns, all).page(&caption))
}

/// "nft_do_chain -116".
fn most_changed(line: &Line<'_>) -> String {
    let changed = line.class.changed();
    let Some(row) = changed.first() else {
        return "nothing changed".into();
    };
    let of =
        Line { diff: line.diff, class: line.class, kind: "function", of: LineSubject::Row(row) };
    format!("{} {}", row.name, of.signed().cell_text())
}

/// All layers of a class that was counted.
pub(in crate::diff) fn all_layers(diff: &Diff<'_>, class: &ClassDiff) -> PageTable {
    let mut columns = TableSubject::new(diff, "layer", None).names();
    columns.extend(costs());
    let rows = lines(diff, class, "layer", &class.layers);
    let caption = format!("Layers of {}, {}", class.class(), class.per_what());
    Table::new(columns, rows).page(&caption)
}

/// The columns of functions that the page sums up over trees.
pub(in crate::diff) fn from_trees(diff: &Diff<'_>) -> Vec<PageColumn> {
    let mut columns = TableSubject::new(diff, "function", Some("layer")).columns();
    columns.extend(from_tree());
    let columns = columns.into_iter().map(Column::drawn_by_page).collect();
    Table::new(columns, []).page_columns()
}

/// Any rows of a class for the page, under the heading of `title` and `of`.
pub(in crate::diff) fn rows<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    (title, of): (&'static str, &'static str),
    rows: &[&'a DiffRow],
) -> Table<'a, Line<'a>> {
    let shown = TableSubject::new(diff, title, Some(of));
    Table::new(shown.columns(), lines(diff, class, title, rows.iter().copied()))
}
