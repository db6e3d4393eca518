//! Tables for a terminal.

use comfy_table::presets;
use comfy_table::{Cell, CellAlignment, Table};
use netplumb_model::class::{Link, Proto};
use netplumb_model::recording::{Arm, Recording, THREAD_MODULE};

use crate::analysis::{ClassView, NO_LAYER, unit};
use crate::figures::first_of;
use crate::number::{per_packet, percent, printable};
use crate::trust::footer;

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

/// A narrower terminal wraps by itself.
const NARROWEST: usize = 60;
/// From here on there is room for every column.
const WIDE: usize = 80;
/// Names are cut to what the columns beside them leave, and to this.
const NAME_LIMIT: usize = 60;
/// Likewise the names of modules and layers, which are a word.
const WORD_LIMIT: usize = 16;

pub(crate) fn table(columns: usize) -> Table {
    let mut table = Table::new();
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
    let mut table = table(view.columns);
    table.set_header(vec![
        Cell::new("  thread"),
        right("inclusive"),
        right("share"),
    ]);
    for thread in threads.iter().take(THREADS) {
        table.add_row(vec![
            Cell::new(format!(
                "  {}",
                printable(class.name(thread.function), NAME_LIMIT)
            )),
            right(per_packet(thread.inclusive_insns, class.packets)),
            right(format!(
                "{:.1}%",
                percent(thread.inclusive_insns, class.total)
            )),
        ]);
    }
    let mut out = trimmed(&table);
    if threads.len() > THREADS {
        out.push_str(&format!("  and {} more threads\n", threads.len() - THREADS));
    }
    out
}

fn class_section(class: &ClassView<'_>, view: &View) -> String {
    let packets = class.packets;
    let heading = format!(
        "{}  {} instructions per {} ({})",
        label(class),
        per_packet(class.total, packets),
        class.class.proto.unit(),
        split(class)
    );
    let mut out = continued(&heading, 2, view.columns);
    out.push('\n');
    if view.layer.is_none() {
        out.push_str(&layers(class, view));
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
            per_packet(shown_total, packets),
            class.class.proto.unit(),
            percent(shown_total, class.total),
            whole_of(class)
        ));
    }
    out.push_str(&functions(class, view, shown_total));
    let bottleneck = format!("  {}", bottleneck(class, view.layer.as_deref()));
    out.push_str(&continued(&bottleneck, 2, view.columns));
    out.push('\n');
    out
}

/// In which contexts.
pub(crate) fn split(class: &ClassView<'_>) -> String {
    let parts: Vec<String> = class
        .contexts
        .iter()
        .map(|(context, insns)| format!("{context} {}", per_packet(*insns, class.packets)))
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

fn layers(class: &ClassView<'_>, view: &View) -> String {
    let mut table = table(view.columns);
    // A layer, a count and a share stand before it.
    let bar_width = view.columns.saturating_sub(40).clamp(20, 30);
    for (layer, insns) in &class.layers {
        let share = percent(*insns, class.total);
        table.add_row(vec![
            Cell::new(format!("  {}", printable(layer, WORD_LIMIT))),
            right(per_packet(*insns, class.packets)),
            right(format!("{share:.1}%")),
            Cell::new(bar(share, bar_width)),
        ]);
    }
    trimmed(&table)
}

fn functions(class: &ClassView<'_>, view: &View, whole: u64) -> String {
    let mut table = table(view.columns);
    let wide = view.columns >= WIDE;
    let mut header = vec![Cell::new("  function")];
    if wide {
        header.push(Cell::new("layer"));
    }
    header.extend(["self", "share", "inclusive", "calls"].map(right));
    table.set_header(header);
    // Beside the name: four numbers, the layer, and the blanks between.
    let beside = if wide { 40 + WORD_LIMIT } else { 40 };
    let name_limit = view
        .columns
        .saturating_sub(beside)
        .clamp(NARROWEST - 40, NAME_LIMIT);
    let all: Vec<_> = class.functions_of(view.layer.as_deref()).collect();
    let top = if view.top == 0 { all.len() } else { view.top };
    for function in all.iter().take(top) {
        let module = class.recording.functions[function.function as usize]
            .module
            .as_deref();
        let module =
            module.map_or_else(String::new, |m| format!(" [{}]", printable(m, WORD_LIMIT)));
        let room = name_limit.saturating_sub(module.chars().count()).max(8);
        let name = printable(class.name(function.function), room);
        let mut row = vec![Cell::new(format!("  {name}{module}"))];
        if wide {
            let layer = class.layer(function.function);
            row.push(Cell::new(printable(layer, WORD_LIMIT)));
        }
        row.extend([
            right(per_packet(function.self_insns, class.packets)),
            right(format!("{:.1}%", percent(function.self_insns, whole))),
            right(per_packet(function.inclusive_insns, class.packets)),
            right(per_packet(function.calls, class.packets)),
        ]);
        table.add_row(row);
    }
    let mut out = trimmed(&table);
    if all.len() > top {
        let rest: u64 = all.iter().skip(top).map(|f| f.self_insns).sum();
        out.push_str(&format!(
            "  and {} more functions with {} ({:.1}%)\n",
            all.len() - top,
            per_packet(rest, class.packets),
            percent(rest, whole)
        ));
    }
    out
}

/// The table without the blanks at the ends of its lines.
pub(crate) fn trimmed(table: &Table) -> String {
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
        "{}: {name} with {} of {} {} ({share:.1}% {of})",
        first_of(share),
        per_packet(top.self_insns, class.packets),
        per_packet(whole, class.packets),
        unit(class.recording),
    );
    if layer.is_none()
        && let Some((largest, insns)) = class.layers.iter().find(|(name, _)| name != NO_LAYER)
    {
        text.push_str(&format!(
            "; the largest layer is {} with {} ({:.1}%)",
            printable(largest, WORD_LIMIT),
            per_packet(*insns, class.packets),
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
    let mut table = table(columns);
    let several = several_arms(classes);
    table.set_header(vec![
        Cell::new(if several { "  arm, class" } else { "  class" }),
        right("instructions"),
        right("network"),
        Cell::new("largest layer"),
        Cell::new("largest function"),
    ]);
    for class in classes {
        let network = class.layer_insns("network");
        let largest = class.layers.first().map_or("-", |(name, _)| name);
        let top = class.functions.first();
        table.add_row(vec![
            Cell::new(if several {
                format!(
                    "  {}, {}{}",
                    printable(&class.arm().name, 40),
                    class.class,
                    invalid(class)
                )
            } else {
                format!("  {}{}", class.class, invalid(class))
            }),
            right(per_packet(class.total, class.packets)),
            right(format!(
                "{} ({:.0}%)",
                per_packet(network, class.packets),
                percent(network, class.total)
            )),
            Cell::new(printable(largest, WORD_LIMIT)),
            Cell::new(top.map_or("-".into(), |f| {
                format!(
                    "{} {}",
                    printable(class.name(f.function), 32),
                    per_packet(f.self_insns, class.packets)
                )
            })),
        ]);
    }
    trimmed(&table)
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
