//! Tables for a terminal.

use netplumb_model::class::{Direction, Proto};
use netplumb_model::recording::{Recording, THREAD_MODULE};

use crate::analysis::{ClassView, FunctionView, NO_LAYER};
use crate::figures::first_of;
use crate::network::Network;
use crate::number::{percent, printable};
use crate::per::{Per, offered};
use crate::summary::arm_heading;
use crate::summary::{label, several_arms, split, summary};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;
use crate::times::{ns_range, rounded};
use crate::view::View;
use crate::{all_classes, disks, footer, functions, layers, trust};

/// Names are cut to what the columns beside them leave, and to this.
const NAME_LIMIT: usize = 60;
/// Likewise the names of modules and layers, which are a word.
const WORD_LIMIT: usize = 16;

/// Everything about some classes: tables, and notes on them.
pub fn render(recording: &Recording, classes: &[ClassView<'_>], view: &View) -> String {
    let mut out = String::new();
    out.push_str(&heading(recording, classes));
    if several_arms(classes) {
        out.push('\n');
        out.push_str(&summary(classes, view.columns));
    }
    if let Some(disks) = disks::section(recording, classes) {
        out.push('\n');
        out.push_str(&disks.terminal(view.columns));
    }
    let sums = all_classes::sums(recording, classes);
    for (n, class) in classes.iter().enumerate() {
        out.push('\n');
        out.push_str(&class_section(class, view));
        if view.tree {
            out.push('\n');
            out.push_str(&crate::tree::render(class, view.layer.as_deref(), 0.5));
        }
        let is_last = classes.get(n + 1).is_none_or(|next| next.arm != class.arm);
        for sum in sums.iter().filter(|sum| is_last && sum.is_of(class.arm)) {
            out.push('\n');
            out.push_str(&continued(&sum.sentence(), 2, view.columns));
            out.push('\n');
        }
    }
    out.push('\n');
    out.push_str(&footer::terminal(&trust::footer(recording, classes), view.columns));
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

/// The inclusive cost of each thread of a command.
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
        Column::figure("inclusive", |f: &&FunctionView| class.each(f.inclusive_insns)).people(1),
        Column::figure("share", |f: &&FunctionView| {
            Value::Share(f.inclusive_insns as f64 / class.total.max(1) as f64)
        })
        .people(2),
    ];
    let shown = threads.iter().copied().take(THREADS);
    let mut out = Table::new(columns, shown).terminal(Room::new(view.columns, NAME_LIMIT));
    if threads.len() > THREADS {
        out.push_str(&format!("  and {} more threads\n", threads.len() - THREADS));
    }
    out
}

/// The functions with the largest cost in their callees.
fn callers(class: &ClassView<'_>, view: &View) -> String {
    const CALLERS: usize = 12;
    let mut callers: Vec<_> = class
        .functions
        .iter()
        .filter(|f| {
            let function = &class.recording.functions[f.function as usize];
            function.module.as_deref() != Some(THREAD_MODULE) && f.inclusive_insns > f.self_insns
        })
        .collect();
    callers.sort_by_key(|f| (std::cmp::Reverse(f.inclusive_insns), class.name(f.function)));
    let columns = vec![
        Column::code("with what it calls", |f: &&FunctionView| {
            let function = &class.recording.functions[f.function as usize];
            Value::Name(function.name.clone(), function.module.clone())
        })
        .people(0),
        Column::figure("inclusive", |f: &&FunctionView| class.each(f.inclusive_insns)).people(1),
        Column::figure("share", |f: &&FunctionView| {
            Value::Share(f.inclusive_insns as f64 / class.total.max(1) as f64)
        })
        .people(2),
    ];
    let top = match view.top {
        0 => callers.len(),
        top => top.min(CALLERS),
    };
    let shown = callers.iter().copied().take(top);
    Table::new(columns, shown).terminal(Room::new(view.columns, NAME_LIMIT))
}

fn class_section(class: &ClassView<'_>, view: &View) -> String {
    let per_kib = class.cost_per_kib_text(class.total);
    let per_kib = per_kib.map_or_else(String::new, |each| format!(", {each} per KiB"));
    let heading = format!(
        "{}  {} per {}{per_kib} ({})",
        label(class),
        class.with_unit(class.total),
        class.per.word(),
        split(class)
    ) + &forwarded(class)
        + &interval(class);
    let mut out = continued(&heading, 2, view.columns);
    out.push('\n');
    if view.layer.is_none() {
        out.push_str(&layers::terminal(layers::rows(class), view.columns));
        if let Some(network) = Network::from_class(class) {
            out.push_str(&continued(
                &format!("   {}", network.shares_text(class)),
                5,
                view.columns,
            ));
            out.push('\n');
        }
        out.push('\n');
        if matches!(class.class.proto, Proto::Command | Proto::Work) {
            out.push_str(&threads(class, view));
            out.push('\n');
        }
        if class.class.proto == Proto::Work {
            out.push_str(&callers(class, view));
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
            class.cost_text(shown_total),
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

/// How many packets are forwarded for one that is sent, where that is not one: TCP's acknowledgements, or several hops.
fn forwarded(class: &ClassView<'_>) -> String {
    let sent = offered(class.recording, &class.blocks);
    match (class.class.direction, class.per) {
        (Direction::Forward, Per::Packet(n)) if n != sent && sent > 0 => {
            format!("; {} forwarded for each packet sent", rounded(n as f64 / sent as f64))
        }
        _ => String::new(),
    }
}

/// The interval of the mean over blocks, if costs vary.
fn interval(class: &ClassView<'_>) -> String {
    let mean = class.mean(&class.by_block).filter(|_| !class.is_exact());
    match mean.and_then(|m| Some((m.low?, m.high?))) {
        Some((low, high)) if class.quantity.unit == "ns" => {
            format!("; 95% interval {}", ns_range(low, high))
        }
        Some((low, high)) => format!("; 95% interval {} to {}", rounded(low), rounded(high)),
        None => String::new(),
    }
}

/// The name of a class's whole.
fn whole_of(class: &ClassView<'_>) -> &'static str {
    match class.class.proto {
        _ if class.recording.root().is_some() => "subtree",
        Proto::Command => "run",
        Proto::Work => "time",
        Proto::Raw | Proto::Udp | Proto::Tcp => "path",
    }
}

/// Where to look first, in a sentence.
pub fn bottleneck(class: &ClassView<'_>, layer: Option<&str>) -> String {
    let Some(top) = class.functions_of(layer).next() else {
        return match layer {
            Some(layer) => {
                format!("Nothing of {} is in layer {}.", class.class, printable(layer, WORD_LIMIT))
            }
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
        class.cost_text(top.self_insns),
        class.with_unit(whole),
    );
    if layer.is_none()
        && let Some((largest, insns)) = class.layers.iter().find(|(name, _)| name != NO_LAYER)
    {
        text.push_str(&format!(
            "; the largest layer is {} with {} ({:.1}%)",
            printable(largest, WORD_LIMIT),
            class.cost_text(*insns),
            percent(*insns, class.total)
        ));
    }
    text.push('.');
    text
}
