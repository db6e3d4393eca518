//! Tables for a terminal.

use comfy_table::{Cell, CellAlignment, presets};
use netplumb_model::class::{Link, Proto};
use netplumb_model::recording::{Arm, Recording, THREAD_MODULE};

use crate::analysis::{ClassView, FunctionView, NO_LAYER};
use crate::figures::first_of;
use crate::number::{percent, printable};
use crate::table::{Column, Room, Table, Value};
use crate::times::ns_range;
use crate::trust::footer;
use crate::{functions, layers};

/// What to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// One layer only.
    pub layer: Option<String>,
    /// Functions in a table; 0 for all.
    pub top: usize,
    /// The call graph too.
    pub tree: bool,
    /// Width of the terminal, columns.
    pub columns: usize,
}

impl Default for View {
    fn default() -> Self {
        View {
            layer: None,
            top: 12,
            tree: false,
            columns: 100,
        }
    }
}

/// Names are cut to what the columns beside them leave, and to this.
const NAME_LIMIT: usize = 60;
/// Likewise the names of modules and layers, which are a word.
const WORD_LIMIT: usize = 16;

pub(crate) fn table(columns: usize) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_width(columns.clamp(40, 200) as u16);
    table
}

pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Everything about some classes: tables, and what to think of them.
pub fn render(recording: &Recording, classes: &[ClassView<'_>], view: &View) -> String {
    let mut out = String::new();
    out.push_str(&heading(recording, classes));
    if several_arms(classes) {
        out.push('\n');
        out.push_str(&summary(classes, view.columns));
    }
    for class in classes {
        out.push('\n');
        out.push_str(&class_section(class, view));
        if view.tree {
            out.push('\n');
            out.push_str(&crate::tree::render(class, view.layer.as_deref(), 0.5));
        }
    }
    out.push('\n');
    for line in footer(recording, classes) {
        out.push_str(&wrapped(&line, view.columns));
        out.push('\n');
    }
    out
}

/// A footer line, continued under its text.
pub fn wrapped(line: &str, columns: usize) -> String {
    continued(line, 10, columns)
}

/// A line, continued below its `indent`-th character.
pub fn continued(line: &str, indent: usize, columns: usize) -> String {
    let key_bytes = line
        .char_indices()
        .nth(indent)
        .map_or(line.len(), |(at, _)| at);
    let (key, text) = line.split_at(key_bytes);
    let width = columns.max(40) - indent;
    let mut out = String::from(key);
    let mut used = 0;
    // The first one may be empty, where a blank is the first letter after the indent.
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = 0;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

fn heading(recording: &Recording, classes: &[ClassView<'_>]) -> String {
    let mut arms: Vec<usize> = classes.iter().map(|c| c.arm).collect();
    arms.dedup();
    let mut out = String::new();
    for arm in arms {
        out.push_str(&arm_heading(&recording.arms[arm]));
    }
    out
}

/// What an arm sends, over what.
pub(crate) fn arm_heading(arm: &Arm) -> String {
    if arm.proto == Proto::Command {
        return command_heading(arm);
    }
    format!("{}: {}\n", printable(&arm.name, 80), sent(arm))
}

/// What an arm sends, over what.
pub(crate) fn sent(arm: &Arm) -> String {
    let mut text = match (arm.proto, arm.link) {
        (Proto::Command, _) => format!("{} over {}, {}", arm.name, arm.family, arm.link),
        // What other programs send, nobody made of one size.
        (_, Link::Any) => format!(
            "{} over {}, as other programs sent it",
            arm.proto, arm.family
        ),
        _ => format!(
            "{} over {}, {}, {} bytes",
            arm.proto, arm.family, arm.link, arm.size_bytes
        ),
    };
    if arm.forward {
        text.push_str(", through a router");
    }
    text
}

fn command_heading(arm: &Arm) -> String {
    let peer = arm.knobs.get("peer");
    format!(
        "{}: {} over {}{}{}\n",
        printable(&arm.name, 200),
        arm.link,
        arm.family,
        if arm.forward {
            ", through a router"
        } else {
            ""
        },
        peer.map_or_else(String::new, |p| format!("; peer: {}", printable(p, 200)))
    )
}

/// What each thread of a command cost, with all that it called.
fn threads(class: &ClassView<'_>, view: &View) -> String {
    const THREADS: usize = 12;
    let mut threads: Vec<_> = class
        .functions
        .iter()
        .filter(|f| {
            let function = &class.recording.functions[f.function as usize];
            function.module.as_deref() == Some(THREAD_MODULE)
        })
        .collect();
    threads.sort_by_key(|f| (std::cmp::Reverse(f.inclusive_insns), class.name(f.function)));
    let columns = vec![
        Column::code("thread", |f: &&FunctionView| {
            Value::Name(class.name(f.function).into(), None)
        })
        .people(0),
        Column::figure("inclusive", |f: &&FunctionView| {
            class.each(f.inclusive_insns)
        })
        .people(1),
        Column::figure("share", |f: &&FunctionView| {
            Value::Share(f.inclusive_insns as f64 / class.total.max(1) as f64)
        })
        .people(2),
    ];
    let shown = threads.iter().copied().take(THREADS);
    let mut out = Table::new(columns, shown).terminal(Room::of(view.columns, NAME_LIMIT));
    if threads.len() > THREADS {
        out.push_str(&format!("  and {} more threads\n", threads.len() - THREADS));
    }
    out
}

fn class_section(class: &ClassView<'_>, view: &View) -> String {
    let heading = format!(
        "{}  {} per {} ({})",
        label(class),
        class.with_unit(class.total),
        class.per.word(),
        split(class)
    ) + &interval(class);
    let mut out = continued(&heading, 2, view.columns);
    out.push('\n');
    if view.layer.is_none() {
        out.push_str(&layers::terminal(layers::rows(class), view.columns));
        out.push('\n');
        if class.class.proto == Proto::Command {
            out.push_str(&threads(class, view));
            out.push('\n');
        }
    }
    let shown_total = match &view.layer {
        Some(layer) => class.layer_insns(layer),
        None => class.total,
    };
    if let Some(layer) = &view.layer {
        out.push_str(&format!(
            "  {}: {} per {}, {:.1}% of the {}\n",
            printable(layer, WORD_LIMIT),
            class.told(shown_total),
            class.per.word(),
            percent(shown_total, class.total),
            whole_of(class)
        ));
    }
    out.push_str(&functions::terminal(class, view));
    let bottleneck = format!("  {}", bottleneck(class, view.layer.as_deref()));
    out.push_str(&continued(&bottleneck, 2, view.columns));
    out.push('\n');
    out
}

/// Where the mean over blocks is, of what varies.
fn interval(class: &ClassView<'_>) -> String {
    let mean = class.mean(&class.by_block).filter(|_| !class.is_exact());
    match mean.and_then(|m| Some((m.low?, m.high?))) {
        Some((low, high)) => format!("; 95% interval {}", ns_range(low, high)),
        None => String::new(),
    }
}

/// In which contexts.
pub(crate) fn split(class: &ClassView<'_>) -> String {
    let parts: Vec<String> = class
        .contexts
        .iter()
        .map(|(context, insns)| format!("{context} {}", class.told(*insns)))
        .collect();
    parts.join(" + ")
}

pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share / 100.0 * width as f64 * 8.0).round() as usize;
    let mut out = "█".repeat((eighths / 8).min(width));
    if !eighths.is_multiple_of(8) && eighths / 8 < width {
        out.push(EIGHTHS[eighths % 8]);
    }
    out
}

/// The table without the blanks at the ends of its lines.
pub(crate) fn trimmed(table: &comfy_table::Table) -> String {
    let mut out = String::new();
    for line in table.to_string().lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// What a class is the whole of.
fn whole_of(class: &ClassView<'_>) -> &'static str {
    match class.class.proto {
        Proto::Command => "run",
        Proto::Raw | Proto::Udp | Proto::Tcp => "path",
    }
}

/// Where to look first, in a sentence.
pub fn bottleneck(class: &ClassView<'_>, layer: Option<&str>) -> String {
    let Some(top) = class.functions_of(layer).next() else {
        return match layer {
            Some(layer) => format!(
                "Nothing of {} is in layer {}.",
                class.class,
                printable(layer, WORD_LIMIT)
            ),
            None => format!("{} executed nothing.", class.class),
        };
    };
    let whole = layer.map_or(class.total, |l| class.layer_insns(l));
    let name = printable(class.name(top.function), 80);
    let share = percent(top.self_insns, whole);
    let of = match layer {
        Some(layer) => format!("of the {} layer", printable(layer, WORD_LIMIT)),
        None => format!("of the {}", whole_of(class)),
    };
    let mut text = format!(
        "{}: {name} with {} of {} ({share:.1}% {of})",
        first_of(share),
        class.told(top.self_insns),
        class.with_unit(whole),
    );
    if layer.is_none()
        && let Some((largest, insns)) = class.layers.iter().find(|(name, _)| name != NO_LAYER)
    {
        text.push_str(&format!(
            "; the largest layer is {} with {} ({:.1}%)",
            printable(largest, WORD_LIMIT),
            class.told(*insns),
            percent(*insns, class.total)
        ));
    }
    text.push('.');
    text
}

/// Whether arms share a class: with several of one protocol, a class alone does
/// not tell which.
pub(crate) fn several_arms(classes: &[ClassView<'_>]) -> bool {
    classes.iter().any(|c| {
        classes
            .iter()
            .any(|other| other.class == c.class && other.arm != c.arm)
    })
}

/// The class, after the arm where that says more than the protocol.
pub(crate) fn label(class: &ClassView<'_>) -> String {
    let arm = class.arm();
    let label = if arm.name == arm.proto.as_str() || arm.proto == Proto::Command {
        class.class.to_string()
    } else {
        format!("{}, {}", printable(&arm.name, 60), class.class)
    };
    label + invalid(class)
}

/// What is to stand beside every figure of a class whose packets are not all accounted for.
fn invalid(class: &ClassView<'_>) -> &'static str {
    match class.invalid {
        0 => "",
        // The footer has how many.
        _ => ", INVALID",
    }
}

/// One line for each class: the whole at a glance.
pub fn summary(classes: &[ClassView<'_>], columns: usize) -> String {
    let several = several_arms(classes);
    let title = match several {
        true => "arm, class",
        false => "class",
    };
    let unit = classes.first().map_or("cost", |c| &c.quantity.unit);
    type Row<'r> = &'r ClassView<'r>;
    let all = vec![
        Column::text(title, |class: &Row<'_>| {
            let invalid = invalid(class);
            match several {
                true => {
                    let arm = printable(&class.arm().name, 40);
                    format!("{arm}, {}{invalid}", class.class)
                }
                false => format!("{}{invalid}", class.class),
            }
        })
        .letters(NAME_LIMIT * 2)
        .people(0),
        Column::figure(printable(unit, WORD_LIMIT), |class: &Row<'_>| {
            class.each(class.total)
        })
        .people(1),
        Column::figure("network", |class: &Row<'_>| {
            let network = class.layer_insns("network");
            let share = percent(network, class.total);
            Value::Told(format!("{} ({share:.0}%)", class.told(network)), None)
        })
        .people(2),
        Column::text("largest layer", |class: &Row<'_>| {
            class
                .layers
                .first()
                .map_or("-".into(), |(name, _)| name.clone())
        })
        .letters(WORD_LIMIT)
        .people(3),
        Column::text("largest function", |class: &Row<'_>| {
            let top = class.functions.first();
            top.map_or("-".into(), |f| {
                let name = printable(class.name(f.function), 32);
                format!("{name} {}", class.told(f.self_insns))
            })
        })
        .letters(NAME_LIMIT)
        .people(4),
    ];
    Table::new(all, classes).terminal(Room::of(columns, NAME_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a line keeps its blanks wherever it is continued.
    #[test]
    fn continued_lines() {
        assert_eq!(continued("  tc against xdp", 4, 80), "  tc against xdp");
        assert_eq!(continued("  xdp against tc", 4, 80), "  xdp against tc");
        let long = continued(&format!("key {}", "word ".repeat(10)), 4, 40);
        assert!(long.lines().all(|l| l.chars().count() <= 40), "{long}");
        assert!(long.lines().skip(1).all(|l| l.starts_with("    word")));
    }
}
