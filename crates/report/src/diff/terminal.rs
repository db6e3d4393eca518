//! A comparison for a terminal: the sentences, then tables.

use comfy_table::Cell;

use super::facts::trust;
use super::sentence::{Style, figure, percent, sentence, signed, subject, told_apart};
use super::{Change, ClassDiff, Diff, Verdict};
use crate::number::printable;
use crate::terminal::{View, continued, right, table, trimmed};

const NARROW: usize = 80;
const NAME_LIMIT: usize = 60;
const WORD_LIMIT: usize = 16;
/// Notes of one kind, unless all are asked for.
const MANY_NOTES: usize = 4;

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
    out.push('\n');
    for line in trust(diff) {
        out.push_str(&continued(&line, 10, view.columns));
        out.push('\n');
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
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| printable(n, 200));
    if was == is {
        line(&format!("arms of   {was}"), 10);
    } else {
        line(&format!("before    {was}"), 10);
        line(&format!("after     {is}"), 10);
    }
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
    let notes = notes(diff, class, view);
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        out.push_str(&continued(&format!("  {note}"), 12, view.columns));
        out.push('\n');
    }
    out
}

/// What is behind the figures: moves, calls that came or went, names that are
/// new, blocks that stand apart.
fn notes(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> Vec<String> {
    notes_in(
        diff,
        class,
        view.layer.as_deref(),
        view.top == 0,
        Style::Plain,
    )
}

/// The same, in a style; of one layer only, and all of them or a few.
pub(super) fn notes_in(
    diff: &Diff<'_>,
    class: &ClassDiff,
    layer: Option<&str>,
    all: bool,
    style: Style,
) -> Vec<String> {
    let joint = |id: u32| &diff.functions.joints[id as usize];
    let name = |id: u32| style.name(&joint(id).name);
    let shown = |id: u32| layer.is_none_or(|l| joint(id).layer == *l);
    let limit = if all { usize::MAX } else { MANY_NOTES };
    let mut notes = Vec::new();
    let mut several = |all: Vec<String>| {
        let more = all.len().saturating_sub(limit);
        notes.extend(all.into_iter().take(limit));
        if more > 0 {
            notes.push(format!("          and {more} more; --top 0 has them all"));
        }
    };
    several(
        class
            .moves
            .iter()
            .filter(|m| shown(m.from) || shown(m.to))
            .map(|m| {
                let insns = short(m.insns_per_packet);
                let (from, to) = (name(m.from), name(m.to));
                format!(
                    "moved     {insns} from {from} to {to}: {}",
                    style.text(&m.why, 300)
                )
            })
            .collect(),
    );
    several(
        class
            .branches
            .iter()
            .filter(|b| shown(b.callee))
            // A call in many packets, or of less than an instruction in each, is no
            // change of the path.
            .filter(|b| !b.inclusive_insns.delta().below(1) && !b.calls.delta().below(20))
            .map(|b| {
                let came = b.calls.after.sum > 0 || b.inclusive_insns.after.sum > 0;
                let caller = b.caller.map_or("a context".into(), name);
                let verb = match (came, b.caller) {
                    (true, Some(_)) => "now calls",
                    (true, None) => "now begins with",
                    (false, Some(_)) => "no longer calls",
                    (false, None) => "no longer begins with",
                };
                let calls = if came { b.calls.after } else { b.calls.before };
                format!(
                    "path      {caller} {verb} {} ({} with all below it, {} a packet)",
                    name(b.callee),
                    signed(&b.inclusive_insns.delta()),
                    figure(calls)
                )
            })
            .collect(),
    );
    several(
        class
            .functions
            .iter()
            .filter(|f| shown(f.function))
            .filter_map(|f| {
                let joint = joint(f.function);
                let was = style.name(joint.was.as_ref()?);
                let why = style.text(joint.why.as_deref().unwrap_or_default(), 300);
                Some(format!(
                    "name      {was} is {} now: {why}",
                    name(f.function)
                ))
            })
            .collect(),
    );
    for function in class.functions.iter().filter(|f| shown(f.function)) {
        if function.verdict == Verdict::Luck {
            notes.push(format!(
                "luck      {} by {}: it hangs on an address, a clock or a random number, and differs by as much \
                 between boots of the same",
                style.name(&joint(function.function).name),
                signed(&function.self_insns.delta())
            ));
        }
    }
    for (blocks, side) in [
        (&class.blocks_before, "before"),
        (&class.blocks_after, "after"),
    ] {
        for block in &blocks.odd {
            let told = told_apart(blocks.blocks[*block], blocks.low);
            notes.push(format!(
                "apart     block {} {side} has {} a packet, all others {}: what happened once is left out",
                block + 1,
                told.0,
                told.1
            ));
        }
    }
    notes
}

fn short(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
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
        cells[4] = right(class.percent(diff, function));
        if wide {
            let calls = &function.calls;
            cells.push(right(signed(&function.inclusive_insns.delta())));
            cells.push(right(if figure(calls.before) == figure(calls.after) {
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
            sum(format!("{count} too small to tell"), unsure);
        }
        table.add_row(row("  all".into(), &class.total));
    }
    trimmed(&table)
}
