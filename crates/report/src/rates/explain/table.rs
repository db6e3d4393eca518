//! What a packet costs along paths beside each other.

use std::collections::BTreeMap;
use std::rc::Rc;

use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::PERIOD;

use super::page::costs;
use super::{Difference, Explained, Unit, Wall, differences};
use crate::number::{printable, thousands};
use crate::scalars::of_run;
use crate::section::Section;
use crate::table::{Column, Table, Value};

/// The most paths beside each other in a table.
const BESIDE: usize = 7;
/// The most other work that is listed by name.
const OTHERS: usize = 5;
/// The most functions of a difference that are listed by name.
const MOST_NAMED: usize = 8;
/// Names of arms and functions are cut to this.
const NAME_LIMIT: usize = 60;

/// The name of a row, and its figure for each path.
type PathsRow = (String, Vec<Option<f64>>);

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

/// Counted and sampled costs, of the first paths or of all.
pub(in crate::rates) fn sections<'r>(
    recording: &'r Recording,
    paths: &[Rc<Explained>],
    all: bool,
) -> Vec<Section<'r>> {
    [Unit::Instructions, Unit::Nanoseconds]
        .into_iter()
        .flat_map(|unit| {
            let of_unit = paths.iter().filter(|path| path.unit == unit).cloned();
            sections_of(recording, unit, of_unit.collect(), all)
        })
        .collect()
}

/// The paths of one unit: tables of some of them beside each other.
fn sections_of<'r>(
    recording: &'r Recording,
    unit: Unit,
    paths: Vec<Rc<Explained>>,
    all: bool,
) -> Vec<Section<'r>> {
    if paths.is_empty() {
        return Vec::new();
    }
    let (measured, absent): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.packets > 0);
    let some = if all { measured.len() } else { BESIDE.min(measured.len()) };
    let shown = &measured[..some];
    let mut sections: Vec<Section<'r>> = (shown.chunks(BESIDE))
        .map(|some| {
            let some = some.to_vec();
            Section::rows(NAME_LIMIT, move |_| by_layer(&some, unit)).drawn(Vec::new)
        })
        .collect();
    let sentences = below(shown, &absent, measured.len() - some, unit);
    if sections.is_empty() {
        sections.push(Section::words(Vec::new()));
    }
    let last = sections.pop().map(|last| last.sentences(sentences));
    sections.extend(last);
    let mut sections = sections.into_iter();
    let first = sections.next().map(|first| {
        let first = first.heading(heading(recording, unit)).place("why", "Why");
        first.drawn(move || costs(recording, unit, &measured).into_iter().collect())
    });
    first.into_iter().chain(sections).collect()
}

/// What is to be read with the table of some paths.
fn below(
    shown: &[Rc<Explained>],
    absent: &[Rc<Explained>],
    more: usize,
    unit: Unit,
) -> Vec<String> {
    let explained: Vec<Explained> = shown.iter().map(|path| (**path).clone()).collect();
    let mut out = sentences(&explained);
    if more > 0 {
        let s = if more == 1 { "" } else { "s" };
        out.push(format!("{more} more path{s}: --all shows them"));
    }
    if let Some(wall) = shown.iter().find_map(|p| p.wall) {
        out.push(format!(
            "CPU time adds up over CPUs; wall time is one by the rate. CPU time and idle time \
             make {} CPUs x wall time.",
            wall.cpus
        ));
    }
    for path in shown.iter().filter(|p| p.handled < p.packets) {
        out.push(format!(
            "{}: {} of {} packets were handled: what the others cost is in the mean",
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
        let name = printable(&path.path, NAME_LIMIT);
        out.push(format!("{name}: not {verb}: {}", printable(&why, 300)));
    }
    out
}

/// The meaning of a unit's figures, and their source.
pub(super) fn heading(recording: &Recording, unit: Unit) -> String {
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
            "where the nanoseconds of each packet went: CPU time of all CPUs, by samples of what \
             they did every {} us, in blocks of their own (Linux {})",
            (of_run(recording, &PERIOD).unwrap_or(0.0) / 1e3).round(),
            fact(env::KERNEL)
        ),
    }
}

/// How each path differs from the cheapest one, in a sentence each.
pub(in crate::rates) fn sentences(paths: &[Explained]) -> Vec<String> {
    differences(paths).into_iter().map(sentence).collect()
}

fn sentence(difference: Difference) -> String {
    // Functions that differ by chance are not named.
    let (sure, unsure): (Vec<_>, Vec<_>) =
        (difference.functions.iter()).partition(|part| part.more.abs() > part.uncertainty);
    let (named, rest) = sure.split_at(MOST_NAMED.min(sure.len()));
    let mut words: Vec<String> = named
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

fn by_layer<'t>(paths: &[Rc<Explained>], unit: Unit) -> Table<'t, PathsRow> {
    let mut layers: BTreeMap<&str, f64> = BTreeMap::new();
    for (layer, own) in paths.iter().flat_map(|p| &p.layers) {
        *layers.entry(layer).or_default() += own;
    }
    let mut layers: Vec<(&str, f64)> = layers.into_iter().collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let mut all =
        vec![Column::text("", |(name, _): &PathsRow| name.clone()).letters(NAME_LIMIT).people(0)];
    all.extend(paths.iter().enumerate().map(|(n, path)| {
        Column::figure(printable(&path.path, NAME_LIMIT), move |(_, of): &PathsRow| {
            of[n].map_or(Value::Missing, |value| Value::Formatted(figure(value), Some(value)))
        })
        .people(1)
    }));
    let mut rows: Vec<PathsRow> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&Explained) -> Option<f64>| {
        rows.push((name.into(), paths.iter().map(|p| of(p)).collect()));
    };
    row(
        match unit {
            Unit::Instructions => "instructions",
            Unit::Nanoseconds => "CPU time",
        },
        &|p| Some(p.total),
    );
    row("  the path", &|p| Some(p.own));
    for (layer, _) in &layers {
        row(&format!("    {layer}"), &|p| p.layers.get(*layer).copied());
    }
    row("  user code of readers", &|p| Some(p.user));
    row("  generator", &|p| Some(p.generator));
    match unit {
        Unit::Instructions => row("  timers, idling", &|p| Some(p.other)),
        Unit::Nanoseconds => {
            row("  others' load", &|p| Some(p.other));
            let names = most_of_others(paths);
            for name in &names {
                row(&format!("    {}", printable(name, NAME_LIMIT)), &|p| {
                    let found = p.others.iter().find(|other| other.name == *name);
                    found.map(|other| other.own)
                });
            }
            if paths.iter().any(|p| p.others.iter().any(|o| !names.contains(&&*o.name))) {
                row("    the rest of them", &|p| {
                    let rest = p.others.iter().filter(|o| !names.contains(&&*o.name));
                    Some(rest.map(|other| other.own).sum())
                });
            }
        }
    }
    if paths.iter().any(|p| p.wall.is_some()) {
        let wall = |of: fn(&Wall) -> f64| move |p: &Explained| p.wall.as_ref().map(of);
        row("idle, or not sampled", &wall(|w| w.idle));
        row("all CPUs' time", &wall(Wall::all));
        row("wall time in these blocks", &wall(|w| w.ns));
        row("CPU time by /proc/stat in these blocks", &wall(|w| w.busy));
    }
    if paths.iter().any(|p| p.ns.is_some()) {
        row("CPU ns/packet in the table above", &|p| p.ns);
        row("  of the generator alone", &|p| p.generator_ns);
    }
    Table::new(all, rows).flush()
}

/// What ran beside the packets, the most of it by name.
fn most_of_others(paths: &[Rc<Explained>]) -> Vec<&str> {
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for other in paths.iter().flat_map(|p| &p.others) {
        let own = most.entry(&other.name).or_default();
        *own = own.max(other.own);
    }
    let mut names: Vec<(&str, f64)> = most.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    names.into_iter().take(OTHERS).map(|(name, _)| name).collect()
}
