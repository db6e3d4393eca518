//! Times as tables for a terminal.

use comfy_table::Cell;
use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_model::timing::StageKind;

use super::analysis::{PERCENTILES, Stage, TimedClass, TimedFunction, percentile};
use super::trust::footer;
use super::{ns, rounded};
use crate::figures::first_of;
use crate::number::{printable, thousands};
use crate::terminal::{View, arm_heading, bar, continued, right, table, trimmed, wrapped};

/// Room for everything.
const WIDE: usize = 130;
/// Room for most.
const MEDIUM: usize = 96;
/// Names are cut to what the columns beside them leave, and to this.
const NAME_LIMIT: usize = 44;
/// Likewise the names of modules, layers and stages.
const WORD_LIMIT: usize = 16;
/// So many of those too small to rank are told by name.
const SMALL_NAMES: usize = 6;

/// Everything about some classes of a recording: tables, and what to think of them.
/// What was no packet's is in the footer, unless there is nothing else.
pub fn render(recording: &Recording, classes: &[TimedClass<'_>], view: &View) -> String {
    let shown = shown(classes);
    let mut out = String::new();
    let mut arms: Vec<usize> = shown.iter().map(|c| c.arm).collect();
    arms.dedup();
    for arm in arms {
        out.push_str(&arm_heading(&recording.arms[arm]));
    }
    for class in &shown {
        out.push('\n');
        out.push_str(&section(class, view));
    }
    if shown.is_empty() {
        out.push_str("No packet was seen: nothing was timed in any window.\n");
    }
    out.push('\n');
    for line in footer(recording, classes) {
        out.push_str(&wrapped(&line, view.columns));
        out.push('\n');
    }
    out
}

/// The classes that have a table.
pub(crate) fn shown<'s, 'a>(classes: &'s [TimedClass<'a>]) -> Vec<&'s TimedClass<'a>> {
    let of_packets: Vec<_> = classes
        .iter()
        .filter(|c| c.class.direction != Direction::Other)
        .collect();
    if of_packets.is_empty() {
        classes.iter().collect()
    } else {
        of_packets
    }
}

/// One class: the stages of its way, its layers and functions.
pub fn section(class: &TimedClass<'_>, view: &View) -> String {
    let mut out = String::new();
    if !class.stages.is_empty() {
        out.push_str(&stages(class, view.columns));
    }
    if !class.functions.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&of_functions(class, view));
    }
    out
}

/// The class, after the arm where that says more than the protocol.
pub(crate) fn label(class: &TimedClass<'_>) -> String {
    let arm = class.arm();
    if arm.name == arm.proto.as_str() {
        class.class.to_string()
    } else {
        format!("{}, {}", printable(&arm.name, 60), class.class)
    }
}

fn of_functions(class: &TimedClass<'_>, view: &View) -> String {
    let each = |sum: f64| ns(class.per.each(sum));
    let contexts: Vec<String> = class
        .contexts
        .iter()
        .map(|(context, sum)| format!("{context} {}", each(*sum)))
        .collect();
    let heading = format!(
        "{}  {} ns per {} in the functions that were timed ({}); {} as read",
        label(class),
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
    let whole = match &view.layer {
        Some(layer) => class.layer_ns(layer),
        None => class.total_ns,
    };
    out.push_str(&functions(class, view, whole));
    let told = format!("  {}", bottleneck(class, view.layer.as_deref()));
    out.push_str(&continued(&told, 2, view.columns));
    out.push('\n');
    out
}

/// `12.3us ns` is `12.3us`: the unit is there already.
fn unit(text: &str) -> String {
    ["us", "ms", "s"].iter().fold(text.to_string(), |text, u| {
        text.replace(&format!("{u} ns"), u)
    })
}

pub(super) fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1}%", part * 100.0 / whole),
        false => "-".into(),
    }
}

fn layers(class: &TimedClass<'_>, columns: usize) -> String {
    let mut table = table(columns);
    let bar_width = columns.saturating_sub(40).clamp(20, 30);
    for (layer, sum) in class.layers.iter().filter(|(_, sum)| *sum > 0.0) {
        let percent = if class.total_ns > 0.0 {
            sum * 100.0 / class.total_ns
        } else {
            0.0
        };
        table.add_row(vec![
            Cell::new(format!("  {}", printable(layer, WORD_LIMIT))),
            right(ns(class.per.each(*sum))),
            right(share(*sum, class.total_ns)),
            Cell::new(bar(percent.clamp(0.0, 100.0), bar_width)),
        ]);
    }
    trimmed(&table)
}

/// Which columns there is room for.
#[derive(Clone, Copy)]
struct Room {
    wide: bool,
    medium: bool,
    name: usize,
}

impl Room {
    fn of(columns: usize) -> Room {
        let (wide, medium) = (columns >= WIDE, columns >= MEDIUM);
        let beside = match (wide, medium) {
            (true, _) => 104,
            (_, true) => 76,
            _ => 48,
        };
        Room {
            wide,
            medium,
            name: columns.saturating_sub(beside).clamp(16, NAME_LIMIT),
        }
    }
}

fn functions(class: &TimedClass<'_>, view: &View, whole: f64) -> String {
    let room = Room::of(view.columns);
    let mut table = table(view.columns);
    let mut header = vec![Cell::new("  function")];
    if room.wide {
        header.push(Cell::new("layer"));
    }
    header.push(right("calls"));
    if room.wide {
        header.push(right("raw/call"));
    }
    if room.medium {
        header.push(right("mean"));
    }
    for (name, _) in PERCENTILES {
        if room.medium || ["p50", "p99"].contains(&name) {
            header.push(right(name));
        }
    }
    header.push(right("max"));
    if room.wide {
        header.push(right("raw"));
    }
    if room.medium {
        header.push(right("total"));
    }
    header.extend(["self", "share"].map(right));
    table.set_header(header);
    let all: Vec<&TimedFunction> = class.functions_of(view.layer.as_deref()).collect();
    let (small, ranked): (Vec<&TimedFunction>, Vec<&TimedFunction>) =
        all.into_iter().partition(|f| f.too_small());
    let top = if view.top == 0 {
        ranked.len()
    } else {
        view.top
    };
    for function in ranked.iter().take(top) {
        table.add_row(row(class, function, whole, room));
    }
    let mut out = trimmed(&table);
    if ranked.len() > top {
        let rest: f64 = ranked.iter().skip(top).map(|f| f.self_ns).sum();
        out.push_str(&format!(
            "  and {} more functions with {} ({})\n",
            ranked.len() - top,
            ns(class.per.each(rest)),
            share(rest, whole)
        ));
    }
    if !small.is_empty() {
        let line = format!("  {}", too_small(class, &small));
        out.push_str(&continued(&line, 2, view.columns));
        out.push('\n');
    }
    out
}

/// One line for the functions whose own time is within the correction's error.
pub(crate) fn too_small(class: &TimedClass<'_>, small: &[&TimedFunction]) -> String {
    let mut names: Vec<String> = small
        .iter()
        .take(SMALL_NAMES)
        .map(|f| printable(class.name(f.function), 40))
        .collect();
    if small.len() > SMALL_NAMES {
        names.push(format!("{} more", small.len() - SMALL_NAMES));
    }
    let sum: f64 = small.iter().map(|f| f.self_ns).sum();
    format!(
        "too small to rank, their own time being less than what the correction may be off by: {} ({} together)",
        names.join(", "),
        ns(class.per.each(sum))
    )
}

fn row(class: &TimedClass<'_>, function: &TimedFunction, whole: f64, room: Room) -> Vec<Cell> {
    let each = |sum: f64| right(ns(class.per.each(sum)));
    let data = &class.recording.functions[function.function as usize];
    let module = data
        .module
        .as_deref()
        .map_or_else(String::new, |m| format!(" [{}]", printable(m, WORD_LIMIT)));
    let left = room.name.saturating_sub(module.chars().count()).max(8);
    let name = printable(&data.name, left);
    let mut row = vec![Cell::new(format!("  {name}{module}"))];
    if room.wide {
        let layer = class.layer(function.function);
        row.push(Cell::new(printable(layer, WORD_LIMIT)));
    }
    row.push(right(rounded(class.per.each(function.times.count as f64))));
    if room.wide {
        row.push(right(ns(function.raw_mean_ns())));
    }
    if room.medium {
        row.push(right(ns(function.mean_ns())));
    }
    for (name, share) in PERCENTILES {
        if room.medium || ["p50", "p99"].contains(&name) {
            let value = function.percentile(share);
            row.push(right(value.map_or("-".into(), ns)));
        }
    }
    row.push(right(ns(function.max_ns())));
    if room.wide {
        row.push(each(function.raw_ns));
    }
    if room.medium {
        row.push(each(function.corrected_ns));
    }
    row.push(each(function.self_ns));
    row.push(right(share(function.self_ns, whole)));
    row
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
        && let Some((name, sum)) = class
            .layers
            .iter()
            .find(|(n, _)| n != crate::analysis::NO_LAYER)
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

/// The way of a packet: work and wait, and what they add up to.
fn stages(class: &TimedClass<'_>, columns: usize) -> String {
    let whole = whole_ns(class);
    let packets = class.stages.iter().map(Stage::packets).max().unwrap_or(0);
    let kinds: Vec<String> = [StageKind::Work, StageKind::Wait, StageKind::Unaccounted]
        .iter()
        .filter_map(|kind| {
            let of = |s: &&Stage| s.kind == *kind;
            let mut found = class.stages.iter().filter(of).peekable();
            found.peek()?;
            let sum: f64 = found.map(Stage::mean_ns).sum();
            Some(format!("{kind} {}", ns(sum)))
        })
        .collect();
    let heading = format!(
        "{}  a packet's way takes {} ns ({}), the mean of {}",
        label(class),
        ns(whole),
        kinds.join(" + "),
        thousands(packets)
    );
    let mut out = continued(&unit(&heading), 2, columns);
    out.push('\n');
    let medium = columns >= MEDIUM;
    let mut table = table(columns);
    let mut header = vec![Cell::new("  stage"), Cell::new("")];
    if medium {
        header.push(right("packets"));
    }
    for (name, _) in PERCENTILES {
        if medium || ["p50", "p99"].contains(&name) {
            header.push(right(name));
        }
    }
    header.push(right("max"));
    header.extend(["mean", "share"].map(right));
    header.push(Cell::new(""));
    table.set_header(header);
    for stage in &class.stages {
        let mean = stage.mean_ns();
        let kind = match stage.kind {
            StageKind::Work | StageKind::Wait => stage.kind.as_str(),
            StageKind::Unaccounted | StageKind::Total => "",
        };
        let mut row = vec![
            Cell::new(format!("  {}", printable(&stage.name, 30))),
            Cell::new(kind),
        ];
        if medium {
            row.push(right(thousands(stage.times.count)));
        }
        for (name, share) in PERCENTILES {
            if medium || ["p50", "p99"].contains(&name) {
                let value = percentile(&stage.times, share);
                row.push(right(value.map_or("-".into(), ns)));
            }
        }
        row.push(right(stage.max_ns().map_or("-".into(), ns)));
        row.push(right(ns(mean)));
        row.push(right(share(mean, whole)));
        let percent = if whole > 0.0 {
            mean * 100.0 / whole
        } else {
            0.0
        };
        let width = columns.saturating_sub(100).clamp(8, 20);
        let bar = bar(percent.clamp(0.0, 100.0), width);
        row.push(Cell::new(match stage.kind {
            StageKind::Total => String::new(),
            StageKind::Wait => bar.replace('█', "░"),
            StageKind::Work | StageKind::Unaccounted => bar,
        }));
        table.add_row(row);
    }
    out.push_str(&trimmed(&table));
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

/// What the whole way takes: as told or, if it isn't, what its stages come to.
pub(crate) fn whole_ns(class: &TimedClass<'_>) -> f64 {
    match class.closure() {
        Some((total, _)) => total,
        None => class.stages.iter().map(Stage::mean_ns).sum(),
    }
}
