//! A comparison for a terminal: the sentences, then tables.

use super::facts::{Difference, trust};
use super::sentence::{Style, figure, sentence, signed, subject, told_apart};
use super::{ClassDiff, Diff, Sides, Verdict, table};
use crate::number::printable;
use crate::terminal::{View, continued};

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
    let sentences = diff.classes.iter().map(|class| sentence(diff, class));
    let said = sentences.chain(diff.unpaired.iter().cloned());
    head_of(
        diff.sides,
        (&diff.differences, &diff.warnings),
        said,
        columns,
    )
}

/// The same of any comparison.
pub(crate) fn head_of(
    sides: Sides<'_>,
    (differences, warnings): (&[Difference], &[String]),
    said: impl Iterator<Item = String>,
    columns: usize,
) -> String {
    let mut out = String::new();
    let mut line = |text: &str, indent: usize| {
        out.push_str(&continued(text, indent, columns));
        out.push('\n');
    };
    let [was, is] = [sides.before_name, sides.after_name].map(|n| printable(n, 200));
    if was == is {
        line(&format!("arms of   {was}"), 10);
    } else {
        line(&format!("before    {was}"), 10);
        line(&format!("after     {is}"), 10);
    }
    for difference in differences {
        line(&format!("differs   {difference}"), 10);
    }
    for warning in warnings {
        line(&format!("beware    {warning}"), 10);
    }
    line("", 0);
    for text in said {
        line(&text, 2);
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
        out.push_str(&table::layers(diff, class, view));
    }
    out.push('\n');
    out.push_str(&table::terminal(diff, class, view));
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
