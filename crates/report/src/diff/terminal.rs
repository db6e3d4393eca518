//! A comparison for a terminal: the sentences, then tables.

use super::sentence::{Style, distinct_texts, figure, sentence, signed, subject, words};
use super::trust::trust;
use super::{
    ClassDiff, Diff, ExactVerdict, Judged, Verdict, calls, mixed, table, tree_of, with_trees,
};
use crate::footer::{self, Note};
use crate::number::{plural, printable};
use crate::table::Room;
use crate::text::continued;
use crate::view::View;

/// The most notes of one kind, unless all are requested.
const MANY_NOTES: usize = 4;
/// The most names of functions that only one side measured.
const ONE_SIDED: usize = 6;
/// Calls of less than this are left out of graphs, in percent of either side.
const SMALL_PERCENT: f64 = 0.5;
/// Letters of a name where two instruments stand side by side.
const NAME_LETTERS: usize = 40;

/// All of it.
pub fn render(diff: &Diff<'_>, view: &View) -> String {
    let mut out = head(diff, view.columns);
    for class in &diff.both {
        out.push_str(&format!("\n{}, per {}\n", words(class.class), class.per));
        let table = mixed::table(class, view.top);
        out.push_str(&table.terminal(Room::new(view.columns, NAME_LETTERS)));
        let shown = if view.top == 0 { usize::MAX } else { view.top };
        out.push_str(&more(class.functions.len().saturating_sub(shown), "function"));
    }
    if is_bench(diff) {
        out.push('\n');
        out.push_str(&table::wholes(diff).terminal(table::room(diff, view)));
    }
    for class in diff.classes.iter().filter(|_| !is_bench(diff)) {
        let differs = |c: &ExactVerdict| c.verdict.differs() || !class.changed().is_empty();
        if view.layer.is_none() && class.counted.as_ref().is_some_and(|c| !differs(c)) {
            // The sentence has everything.
            continue;
        }
        out.push('\n');
        out.push_str(&section(diff, class, view));
    }
    if view.tree && !is_bench(diff) {
        with_trees(diff, |trees| {
            for class in &diff.classes {
                let Some(tree) = tree_of(trees, class) else {
                    continue;
                };
                let heading =
                    format!("\nCall graphs of {}, {}\n", subject(class), class.per_what());
                out.push_str(&heading);
                out.push_str(&calls::render(trees, tree, SMALL_PERCENT));
            }
        });
    }
    out.push('\n');
    out.push_str(&footer::terminal(&trust(diff), view.columns));
    out
}

/// Whether benches are compared, whose arms are all in one table.
pub(super) fn is_bench(diff: &Diff<'_>) -> bool {
    diff.classes.iter().any(|class| class.rates.is_some())
}

fn more(left: usize, noun: &str) -> String {
    match left {
        0 => String::new(),
        n => format!("  and {n} more {}\n", plural(n, noun)),
    }
}

/// The note on sides that two instruments measured.
pub(super) fn two_clocks(diff: &Diff<'_>) -> Option<&'static str> {
    match (diff.one_clock, diff.both.is_empty()) {
        (true, _) => None,
        (_, true) => {
            Some("Two instruments: no function is on both sides, and there is nothing to compare.")
        }
        (_, false) => {
            Some("Two instruments: what both saw stands side by side, and there is no verdict.")
        }
    }
}

/// The part before any table: differences, and a sentence for each class.
pub fn head(diff: &Diff<'_>, columns: usize) -> String {
    let mut out = String::new();
    let mut line = |text: &str, indent: usize| {
        out.push_str(&continued(text, indent, columns));
        out.push('\n');
    };
    let sides = diff.sides;
    let [was, is] = [sides.before_name, sides.after_name].map(|n| printable(n, 200));
    if was == is {
        line(&format!("arms of   {was}"), 10);
    } else {
        line(&format!("before    {was}"), 10);
        line(&format!("after     {is}"), 10);
    }
    if let Some(root) = sides.after.root() {
        let root = printable(root, 80);
        line(&format!("below     {root}, its outermost calls from everywhere"), 10);
    }
    if let Some(name) = diff.quantity() {
        line(&format!("quantity  {name}"), 10);
    }
    for difference in &diff.differences {
        line(&format!("differs   {difference}"), 10);
    }
    for warning in &diff.warnings {
        line(&format!("beware    {warning}"), 10);
    }
    let sentences = diff.with_sums().into_iter().filter(|_| !is_bench(diff));
    let said: Vec<String> = (two_clocks(diff).map(String::from).into_iter())
        .chain(sentences.map(sentence))
        .chain(diff.unpaired.iter().cloned())
        .collect();
    if !said.is_empty() {
        line("", 0);
    }
    for text in said {
        line(&text, 2);
    }
    out
}

fn section(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> String {
    let mut out = format!("{}\n", subject(class));
    let line = |out: &mut String, text: &str, indent: usize| {
        out.push_str(&continued(&format!("  {text}"), indent, view.columns));
        out.push('\n');
    };
    if !class.contexts.is_empty() {
        line(&mut out, &contexts(class), 2);
    }
    if view.layer.is_none() && class.counted.is_some() {
        out.push('\n');
        out.push_str(&table::layers(diff, class).terminal(Room::new(view.columns, 16)));
    }
    if view.layer.is_none() && !class.stages.is_empty() {
        out.push_str(&table::stages(diff, class).terminal(table::room(diff, view)));
    }
    let layer = view.layer.as_deref();
    let of_layer = |r: &super::DiffRow| layer.is_none_or(|l| r.of == l);
    if class.counted.is_some() || class.functions.iter().any(of_layer) {
        if class.counted.is_some() {
            out.push('\n');
        }
        let (table, left) = table::functions(diff, class, layer, view.top);
        out.push_str(&table.terminal(table::room(diff, view)));
        out.push_str(&more(left, diff.noun().0));
    }
    if let Some((table, left)) = table::same_code(diff, class, layer, view.top) {
        out.push('\n');
        out.push_str(&table.terminal(table::room(diff, view)));
        out.push_str(&more(left, diff.noun().0));
    }
    if class.inclusive.iter().any(of_layer) {
        out.push('\n');
        let (table, left) = table::inclusive(diff, class, layer, view.top);
        out.push_str(&table.terminal(table::room(diff, view)));
        out.push_str(&more(left, diff.noun().0));
    }
    for text in left_out(class, &|name| name.into()) {
        line(&mut out, &text, 2);
    }
    let notes = notes(class, diff, layer, view.top == 0, Style::Plain);
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        line(&mut out, &note.line(), 12);
    }
    out
}

/// The figures of each context.
fn contexts(class: &ClassDiff) -> String {
    let text = |row: &super::DiffRow| match &row.judged {
        Judged::Exactly(change, Verdict::Equal) => {
            format!("{} {}, equal", row.name, figure(change.after))
        }
        Judged::Exactly(change, _) => format!(
            "{} {} to {} ({})",
            row.name,
            figure(change.before),
            figure(change.after),
            signed(&change.delta())
        ),
        Judged::Statistically(_) => row.name.clone(),
    };
    let text: Vec<String> = class.contexts.iter().map(text).collect();
    text.join("; ")
}

/// Notes on what no table has.
pub(super) fn left_out(class: &ClassDiff, name: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut out = Vec::new();
    if class.small > 0 {
        out.push(format!("{} too small to rank on both sides", class.small));
    }
    let names: Vec<String> = class.one_side.iter().take(ONE_SIDED).map(|n| name(n)).collect();
    if !names.is_empty() {
        let more = match class.one_side.len() - names.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let names = names.join(", ");
        out.push(format!(
            "{} on one side only, in no figure here: {names}{more}",
            if class.is_events() { "counted" } else { "timed" }
        ));
    }
    out
}

/// The background of the figures: moves, calls that came or went, new names, outlier blocks. In a
/// style; for one layer only, and all of them or a few.
pub(super) fn notes(
    class: &ClassDiff,
    diff: &Diff<'_>,
    layer: Option<&str>,
    all: bool,
    style: Style,
) -> Vec<Note> {
    let Some(counted) = &class.counted else {
        return Vec::new();
    };
    let joint = |id: u32| &diff.functions.joints[id as usize];
    let name = |id: u32| style.name(&joint(id).name);
    let shown = |id: u32| layer.is_none_or(|l| joint(id).layer == *l);
    let limit = if all { usize::MAX } else { MANY_NOTES };
    let mut notes = Vec::new();
    let mut several = |topic, all: Vec<String>| {
        let more = all.len().saturating_sub(limit);
        let shown = all.into_iter().take(limit);
        notes.extend(shown.map(|text| Note::new(topic, text)));
        if more > 0 {
            notes.push(Note::new("", format!("and {more} more; --top 0 shows all")));
        }
    };
    several(
        "moved",
        counted
            .moves
            .iter()
            .filter(|m| shown(m.from) || shown(m.to))
            .map(|m| {
                let insns = short(m.insns_per_packet);
                let (from, to) = (name(m.from), name(m.to));
                format!("{insns} from {from} to {to}: {}", style.text(&m.why, 300))
            })
            .collect(),
    );
    several(
        "path",
        counted
            .branches
            .iter()
            .filter(|b| shown(b.callee))
            // A call once in many packets, or of less than an instruction in each, is not
            // a change of the path.
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
                    "{caller} {verb} {} ({} with all below it, {} a {})",
                    name(b.callee),
                    signed(&b.inclusive_insns.delta()),
                    figure(calls),
                    class.per
                )
            })
            .collect(),
    );
    several(
        "name",
        class
            .counts()
            .filter(|(f, _)| shown(f.function))
            .filter_map(|(f, _)| {
                let joint = joint(f.function);
                let was = style.name(joint.was.as_ref()?);
                let why = style.text(joint.why.as_deref().unwrap_or_default(), 300);
                Some(format!("{was} is {} now: {why}", name(f.function)))
            })
            .collect(),
    );
    for (function, row) in class.counts().filter(|(f, _)| shown(f.function)) {
        if matches!(row.judged, Judged::Exactly(_, Verdict::Luck)) {
            notes.push(Note::new(
                "luck",
                format!(
                    "{} by {}: its path depends on an address, a clock or a random number, and differs by \
                     as much between boots of the same system",
                    style.name(&row.name),
                    signed(&function.own.delta())
                ),
            ));
        }
    }
    for (blocks, side) in counted.blocks.iter().zip(["before", "after"]) {
        for block in &blocks.odd {
            let (own, others) = distinct_texts(blocks.blocks[*block], blocks.low);
            notes.push(Note::new(
                "apart",
                format!(
                    "block {} {side} has {own} a {}, all others {others}: what happened once is left out",
                    block + 1,
                    class.per
                ),
            ));
        }
    }
    notes
}

fn short(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
