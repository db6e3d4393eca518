//! A comparison for a terminal: the sentences, then tables.

use comfy_table::Cell;

use super::sentence::{figure, percent, sentence, signed, subject};
use super::{Change, ClassDiff, Diff, Verdict};
use crate::number::printable;
use crate::terminal::{View, continued, right, table, trimmed};

const NARROW: usize = 80;
const NAME_LIMIT: usize = 60;
const WORD_LIMIT: usize = 16;

/// The whole.
pub fn render(diff: &Diff<'_>, view: &View) -> String {
    let mut out = head(diff, view.columns);
    for class in &diff.classes {
        if view.layer.is_none() && !class.verdict.differs() && class.changed().next().is_none() {
            // The sentence said it all.
            continue;
        }
        out.push('\n');
        out.push_str(&section(diff, class, view));
    }
    out
}

/// What is said before any table: differences, and a sentence for each class.
pub fn head(diff: &Diff<'_>, columns: usize) -> String {
    let mut out = String::new();
    let mut line = |text: &str, indent: usize| {
        out.push_str(&continued(text, indent, columns));
        out.push('\n');
    };
    line(
        &format!("before    {}", printable(diff.sides.before_name, 200)),
        10,
    );
    line(
        &format!("after     {}", printable(diff.sides.after_name, 200)),
        10,
    );
    for difference in &diff.differences {
        line(&format!("differs   {difference}"), 10);
    }
    for warning in &diff.warnings {
        line(&format!("beware    {warning}"), 10);
    }
    line("", 0);
    for class in &diff.classes {
        line(&sentence(diff, class), 2);
    }
    for text in &diff.unpaired {
        line(text, 2);
    }
    out
}

fn section(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> String {
    let mut out = format!("{}\n", subject(class));
    let contexts: Vec<String> = class
        .contexts
        .iter()
        .map(|(context, change, verdict)| match verdict {
            Verdict::Equal => format!("{context} {}, equal", figure(change.after)),
            _ => format!(
                "{context} {} to {} ({})",
                figure(change.before),
                figure(change.after),
                signed(&change.delta())
            ),
        })
        .collect();
    out.push_str(&continued(
        &format!("  {}", contexts.join("; ")),
        2,
        view.columns,
    ));
    out.push('\n');
    if view.layer.is_none() {
        out.push('\n');
        out.push_str(&layers(class, view));
    }
    out.push('\n');
    out.push_str(&functions(diff, class, view));
    out
}

fn layers(class: &ClassDiff, view: &View) -> String {
    let mut table = table(view.columns);
    table.set_header(vec![
        Cell::new("  layer"),
        right("before"),
        right("after"),
        right("change"),
        right(""),
    ]);
    for (layer, change) in &class.layers {
        if change.delta().numerator != 0 {
            table.add_row(row(format!("  {}", printable(layer, WORD_LIMIT)), change));
        }
    }
    table.add_row(row("  all".into(), &class.total));
    trimmed(&table)
}

fn row(name: String, change: &Change) -> Vec<Cell> {
    vec![
        Cell::new(name),
        right(figure(change.before)),
        right(figure(change.after)),
        right(signed(&change.delta())),
        right(percent(change)),
    ]
}

fn functions(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> String {
    let wide = view.columns >= NARROW;
    let mut table = table(view.columns);
    let mut header = vec![
        Cell::new("  function"),
        right("before"),
        right("after"),
        right("change"),
        right(""),
    ];
    if wide {
        header.extend([right("inclusive"), right("calls"), Cell::new("layer")]);
    }
    table.set_header(header);
    let of_layer = |joint: u32| {
        view.layer
            .as_ref()
            .is_none_or(|layer| diff.functions.joints[joint as usize].layer == *layer)
    };
    let changed: Vec<_> = class.changed().filter(|f| of_layer(f.function)).collect();
    let top = if view.top == 0 {
        changed.len()
    } else {
        view.top
    };
    let room = view
        .columns
        .saturating_sub(if wide { 75 } else { 42 })
        .clamp(16, NAME_LIMIT);
    for function in changed.iter().take(top) {
        let joint = &diff.functions.joints[function.function as usize];
        let mut cells = row(
            format!("  {}", printable(&joint.name, room)),
            &function.self_insns,
        );
        if wide {
            let calls = &function.calls;
            cells.push(right(signed(&function.inclusive_insns.delta())));
            cells.push(right(if calls.delta().numerator == 0 {
                figure(calls.after)
            } else {
                format!("{} → {}", figure(calls.before), figure(calls.after))
            }));
            cells.push(Cell::new(printable(&joint.layer, WORD_LIMIT)));
        }
        table.add_row(cells);
    }
    let mut sum = |name: String, delta: super::Delta| {
        table.add_row(vec![
            Cell::new(format!("  {name}")),
            right(""),
            right(""),
            right(signed(&delta)),
        ]);
    };
    if changed.len() > top {
        let rest = changed
            .iter()
            .skip(top)
            .fold(class.nothing(), |sum, f| sum.plus(&f.self_insns.delta()));
        sum(format!("{} more", changed.len() - top), rest);
    }
    if view.layer.is_none() {
        let (count, unsure) = class.unsure();
        if count > 0 {
            sum(format!("{count} within the spread"), unsure);
        }
        table.add_row(row("  all".into(), &class.total));
    }
    trimmed(&table)
}
