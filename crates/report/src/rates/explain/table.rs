//! What a packet costs, for a terminal.

use std::collections::BTreeMap;

use comfy_table::Cell;
use netplumb_model::recording::{Recording, env};

use super::{Difference, Explained, Unit, differences, explained};
use crate::number::{printable, thousands};
use crate::terminal::{continued, right, table, trimmed};

/// Paths beside each other in a table.
const BESIDE: usize = 7;
/// Functions of a difference that are told by name.
const TOLD: usize = 8;
/// Names of arms and functions are cut to this.
const NAME_LIMIT: usize = 60;

/// A figure of each packet, with thousands, and a decimal where it is small.
fn figure(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let value = value.abs();
    match value {
        0.0 => "0".into(),
        v if v < 10.0 => format!("{sign}{v:.1}"),
        v => format!("{sign}{}", thousands(v.round() as u64)),
    }
}

fn signed(value: f64) -> String {
    match figure(value) {
        text if value > 0.0 => format!("+{text}"),
        text => text,
    }
}

/// All of it for a terminal; nothing if nothing was counted.
pub fn render(recording: &Recording, columns: usize) -> String {
    let paths = explained(recording);
    [Unit::Instructions, Unit::Nanoseconds]
        .into_iter()
        .map(|unit| {
            let paths: Vec<&Explained> = paths.iter().filter(|p| p.unit == unit).collect();
            of_unit(recording, unit, &paths, columns)
        })
        .collect()
}

/// The paths of one unit.
fn of_unit(recording: &Recording, unit: Unit, paths: &[&Explained], columns: usize) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let (shown, absent): (Vec<&Explained>, Vec<&Explained>) =
        paths.iter().partition(|p| p.packets > 0);
    let mut out = String::from("\n");
    let mut line = |text: &str, indent: usize| {
        out.push_str(&continued(text, indent, columns));
        out.push('\n');
    };
    line(&heading(recording, unit), 2);
    for some in shown.chunks(BESIDE) {
        out.push_str(&by_layer(some, unit, columns));
    }
    let mut line = |text: String| {
        out.push_str(&continued(&text, 4, columns));
        out.push('\n');
    };
    let all: Vec<Explained> = paths.iter().map(|p| (*p).clone()).collect();
    for sentence in sentences_of(&all) {
        line(format!("  {sentence}"));
    }
    for path in shown.iter().filter(|p| p.handled < p.packets) {
        line(format!(
            "  {}: {} of {} packets were handled: what the others cost is in the mean",
            printable(&path.path, NAME_LIMIT),
            thousands(path.handled),
            thousands(path.packets)
        ));
    }
    let verb = match unit {
        Unit::Instructions => "counted",
        Unit::Nanoseconds => "sampled",
    };
    for path in absent {
        let why = path.failed.clone();
        let why = why.unwrap_or_else(|| format!("it was not {verb}"));
        line(format!(
            "  {}: not {verb}: {}",
            printable(&path.path, NAME_LIMIT),
            printable(&why, 300)
        ));
    }
    out
}

/// What the figures of a unit are, and where they are from.
pub(crate) fn heading(recording: &Recording, unit: Unit) -> String {
    let fact = |key: &str| {
        let value = recording.environment.get(key);
        value.map_or_else(|| "?".to_string(), |value| printable(value, 80))
    };
    match unit {
        Unit::Instructions => format!(
            "why: kernel instructions of each packet, counted in a guest (Linux {}, mitigations \
             {}); the path's are what happens on the receiving side",
            fact(&format!("counted.{}", env::KERNEL)),
            fact(&format!("counted.{}", env::MITIGATIONS))
        ),
        Unit::Nanoseconds => format!(
            "where the nanoseconds of each packet went, on all CPUs: samples of what they did, \
             every {} us, in blocks of their own (Linux {})",
            (fact("sampled.period_ns").parse::<u64>().unwrap_or(0) + 500) / 1_000,
            fact(env::KERNEL)
        ),
    }
}

/// How each path differs from the cheapest one, in a sentence each.
pub fn sentences(recording: &Recording) -> Vec<String> {
    sentences_of(&explained(recording))
}

fn sentences_of(paths: &[Explained]) -> Vec<String> {
    differences(paths).into_iter().map(sentence).collect()
}

fn sentence(difference: Difference) -> String {
    // What may be chance is not told by name.
    let (sure, unsure): (Vec<_>, Vec<_>) =
        (difference.functions.iter()).partition(|part| part.more.abs() > part.uncertainty);
    let (told, rest) = sure.split_at(TOLD.min(sure.len()));
    let mut words: Vec<String> = told
        .iter()
        .map(|part| {
            let name = printable(&part.name, NAME_LIMIT);
            format!("{name} {}", signed(part.more))
        })
        .collect();
    let others = rest.len() + unsure.len();
    if others > 0 {
        let sum: f64 = rest.iter().chain(&unsure).map(|part| part.more).sum();
        words.push(format!("{others} other functions {}", signed(sum)));
    }
    format!(
        "{} against {}: {} {} a packet: {}",
        printable(&difference.path, NAME_LIMIT),
        printable(&difference.than, NAME_LIMIT),
        signed(difference.more),
        match difference.unit {
            Unit::Instructions => "instructions",
            Unit::Nanoseconds => "ns",
        },
        words.join(", ")
    )
}

fn by_layer(paths: &[&Explained], unit: Unit, columns: usize) -> String {
    let mut layers: BTreeMap<&str, f64> = BTreeMap::new();
    for (layer, own) in paths.iter().flat_map(|p| &p.layers) {
        *layers.entry(layer).or_default() += own;
    }
    let mut layers: Vec<(&str, f64)> = layers.into_iter().collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let mut table = table(columns);
    let names = paths.iter().map(|p| right(printable(&p.path, NAME_LIMIT)));
    table.set_header([Cell::new("")].into_iter().chain(names));
    let mut row = |name: &str, of: &dyn Fn(&Explained) -> Option<f64>| {
        let cells = paths
            .iter()
            .map(|p| right(of(p).map_or_else(|| "-".into(), figure)));
        table.add_row([Cell::new(name)].into_iter().chain(cells));
    };
    row("the path", &|p| Some(p.own));
    for (layer, _) in &layers {
        row(&format!("  {layer}"), &|p| p.layers.get(*layer).copied());
    }
    row("generator", &|p| Some(p.generator));
    match unit {
        Unit::Instructions => row("timers, idling", &|p| Some(p.other)),
        Unit::Nanoseconds => row("timers, others", &|p| Some(p.other)),
    }
    row("user code", &|p| Some(p.user));
    if paths.iter().any(|p| p.ns.is_some()) {
        row("ns each, as measured", &|p| p.ns);
        row("  the generator alone", &|p| p.generator_ns);
    }
    trimmed(&table)
}
