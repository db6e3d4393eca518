//! Times as tables for a terminal.

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_model::span::StageKind;

use super::analysis::{Stage, TimedClass};
use super::number::share;
use super::{between, ns, table, trust};
use crate::figures::first_of;
use crate::number::{printable, thousands};
use crate::summary::arm_heading;
use crate::table::Value;
use crate::text::continued;
use crate::view::View;
use crate::{footer, layers};

/// Names of layers are a word.
const WORD_LIMIT: usize = 16;
/// Everything about some classes of a recording: tables, and notes on them. Work for
/// no packet is in the footer, unless there is nothing else.
pub fn render(recording: &Recording, classes: &[TimedClass<'_>], view: &View) -> String {
    let shown = shown(classes);
    let mut out = String::new();
    let mut arms: Vec<usize> = shown.iter().map(|c| c.arm).collect();
    arms.dedup();
    match between::is_of(recording) {
        true if shown.is_empty() => {}
        true => out.push_str(&format!("{}\n", between::events(recording))),
        false => {
            for arm in arms {
                out.push_str(&arm_heading(&recording.arms[arm]));
            }
        }
    }
    for class in &shown {
        out.push('\n');
        out.push_str(&section(class, view));
    }
    if shown.is_empty() {
        out.push_str(nothing(recording));
    }
    out.push('\n');
    out.push_str(&footer::terminal(&trust::footer(recording, classes), view.columns));
    out
}

/// The message if there is nothing to show.
pub(super) fn nothing(recording: &Recording) -> &'static str {
    match between::is_of(recording) {
        true => "Nothing reached the last event in any window.\n",
        false => "No packet was seen: nothing was timed in any window.\n",
    }
}

/// The classes that have a table.
pub(crate) fn shown<'s, 'a>(classes: &'s [TimedClass<'a>]) -> Vec<&'s TimedClass<'a>> {
    let of_packets: Vec<_> =
        classes.iter().filter(|c| c.class.direction != Direction::Other).collect();
    if of_packets.is_empty() { classes.iter().collect() } else { of_packets }
}

/// One class: the stages of its path, its layers and functions.
pub fn section(class: &TimedClass<'_>, view: &View) -> String {
    let mut out = String::new();
    if !class.stages.is_empty() {
        out.push_str(&stages(class, view.columns));
    }
    if let Some(groups) = table::groups_terminal(class, view) {
        out.push('\n');
        out.push_str(&groups);
    }
    if !class.functions.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&of_functions(class, view));
    }
    out
}

fn of_functions(class: &TimedClass<'_>, view: &View) -> String {
    let each = |sum: f64| ns(class.per.each(sum));
    let contexts: Vec<String> =
        class.contexts.iter().map(|(context, sum)| format!("{context} {}", each(*sum))).collect();
    let heading = format!(
        "{}  {} ns per {} in the functions that were timed ({}); {} as read",
        class.label(),
        each(class.total_ns),
        class.per.word(),
        contexts.join(" + "),
        each(class.raw_ns),
    );
    let mut out = continued(&unit(&heading), 2, view.columns);
    out.push('\n');
    if view.layer.is_none() {
        out.push_str(&layers(class, view.columns));
        out.push('\n');
    }
    let (functions, small) = table::functions_terminal(class, view);
    out.push_str(&functions);
    if let Some(small) = small {
        out.push_str(&continued(&format!("  {small}"), 2, view.columns));
        out.push('\n');
    }
    let line = format!("  {}", bottleneck(class, view.layer.as_deref()));
    out.push_str(&continued(&line, 2, view.columns));
    out.push('\n');
    out
}

/// `12.3us ns` is `12.3us`: the unit is there already.
fn unit(text: &str) -> String {
    ["us", "ms", "s"].iter().fold(text.to_string(), |text, u| text.replace(&format!("{u} ns"), u))
}

/// The layers of a class.
fn layers(class: &TimedClass<'_>, columns: usize) -> String {
    let layers = class.layers.iter().filter(|(_, sum)| *sum > 0.0);
    let rows = layers.map(|(layer, sum)| layers::LayerRow {
        layer: layer.clone(),
        each: Value::Ns(class.per.each(*sum)),
        sum: Value::Number(*sum),
        share: match class.total_ns > 0.0 {
            true => sum / class.total_ns,
            false => f64::NAN,
        },
    });
    layers::terminal(rows.collect(), columns)
}

/// Where to look first, in a sentence.
pub fn bottleneck(class: &TimedClass<'_>, layer: Option<&str>) -> String {
    let top = class.functions_of(layer).find(|f| !f.too_small());
    let Some(top) = top else {
        return match layer {
            Some(layer) => format!(
                "No function of layer {} took more of {} than the correction may be off by.",
                printable(layer, WORD_LIMIT),
                class.class
            ),
            None => format!(
                "No function took more of {} than the correction may be off by.",
                class.class
            ),
        };
    };
    let whole = layer.map_or(class.total_ns, |l| class.layer_ns(l));
    let mut text = format!(
        "{}: {} with {} of {} ns per {} ({} of {})",
        first_of(top.self_ns * 100.0 / whole),
        printable(class.name(top.function), 80),
        ns(class.per.each(top.self_ns)),
        ns(class.per.each(whole)),
        class.per.word(),
        share(top.self_ns, whole),
        match layer {
            Some(layer) => format!("the {} layer", printable(layer, WORD_LIMIT)),
            None => "what was timed".into(),
        }
    );
    if layer.is_none()
        && let Some((name, sum)) = class.layers.iter().find(|(n, _)| n != crate::analysis::NO_LAYER)
    {
        text.push_str(&format!(
            "; the largest layer is {} with {} ({})",
            printable(name, WORD_LIMIT),
            ns(class.per.each(*sum)),
            share(*sum, class.total_ns)
        ));
    }
    text.push('.');
    unit(&text)
}

/// The path of a packet: work and wait, and their sum.
fn stages(class: &TimedClass<'_>, columns: usize) -> String {
    let whole = class.whole_ns();
    let packets = class.stages.iter().map(Stage::packets).max().unwrap_or(0);
    let kinds = [StageKind::Work, StageKind::Wait, StageKind::Either, StageKind::Unaccounted];
    let kinds: Vec<String> = (kinds.iter())
        .filter_map(|kind| {
            let of = |s: &&Stage| s.kind == *kind;
            let mut found = class.stages.iter().filter(of).peekable();
            found.peek()?;
            let sum: f64 = found.map(Stage::mean_ns).sum();
            Some(format!("{kind} {}", ns(sum)))
        })
        .collect();
    let heading = format!(
        "{}  {} {} ns ({}), the mean of {}",
        class.label(),
        match class.is_between() {
            true => "it takes",
            false => "a packet's way takes",
        },
        ns(whole),
        kinds.join(" + "),
        thousands(packets)
    );
    let mut out = continued(&unit(&heading), 2, columns);
    out.push('\n');
    out.push_str(&table::stages_terminal(class, columns));
    if let (false, Some((total, parts))) = (class.closes(), class.closure()) {
        let line = format!(
            "  INVALID: the stages come to {}, and the whole way to {}",
            ns(parts),
            ns(total)
        );
        out.push_str(&continued(&line, 2, columns));
        out.push('\n');
    }
    out
}
