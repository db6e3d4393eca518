//! Why a rate is what it is: what a packet costs along each path, by layer, and the
//! functions that make the difference.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::Cell;
use netplumb_model::bench::COUNTED;
use netplumb_model::class::Direction;
use netplumb_model::recording::{Arm, FunctionId, Recording, env};
use serde::Serialize;

use super::ArmRates;
use crate::analysis::{NO_LAYER, class, classes};
use crate::number::{printable, thousands};
use crate::terminal::{continued, right, table, trimmed};

/// Paths beside each other in a table.
const BESIDE: usize = 7;
/// Functions of a difference that are told by name.
const TOLD: usize = 8;
/// Names of arms and functions are cut to this.
const NAME_LIMIT: usize = 60;
/// What is added to the name of an arm whose instructions are counted.
const SUFFIX: &str = ", counted";

/// Whether instructions were counted of an arm, and no rate measured.
pub fn is_counted(arm: &Arm) -> bool {
    arm.knobs.contains_key(COUNTED)
}

/// What a packet costs along one path, in kernel instructions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explained {
    /// The arm's name, without what says that it was counted.
    pub path: String,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// Packets that were counted, all blocks together.
    pub packets: u64,
    /// Of these, those that were dropped as asked or came through.
    pub handled: u64,
    /// The path's own work, each packet.
    pub insns: f64,
    /// That of each block.
    pub insns_of_blocks: Vec<f64>,
    /// Making a packet and giving it to the device.
    pub generator_insns: f64,
    /// No packet's: timers, other tasks, waiting.
    pub other_insns: f64,
    /// User code of who reads.
    pub user_insns: f64,
    /// Nanoseconds of a packet where its rate was measured, the generator's with it if
    /// they share a CPU; none if no rate was, or several.
    #[serde(skip)]
    pub ns: Option<f64>,
    /// Of the generator by itself.
    #[serde(skip)]
    pub generator_ns: Option<f64>,
    /// The path's own work by layer.
    pub layers: BTreeMap<String, f64>,
    /// The same by function.
    pub functions: Vec<Function>,
}

/// A function of a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Function {
    #[serde(skip)]
    id: FunctionId,
    /// Its symbol.
    pub name: String,
    /// Its layer.
    pub layer: String,
    /// Calls of each packet.
    pub calls: f64,
    /// Its own instructions of each packet.
    pub insns: f64,
}

/// How one path differs from the cheapest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The path.
    pub path: String,
    /// The cheapest one.
    pub than: String,
    /// Instructions of each packet that it has more.
    pub insns: f64,
    /// Functions that make it, the largest part first.
    pub functions: Vec<(String, f64)>,
}

/// All paths whose instructions were counted, in their order.
pub fn explained(recording: &Recording) -> Vec<Explained> {
    if !recording.arms.iter().any(is_counted) {
        return Vec::new();
    }
    let views = classes(recording);
    let rates = super::arms(recording);
    let arms = recording.arms.iter().enumerate();
    arms.filter(|(_, arm)| is_counted(arm))
        .map(|(number, arm)| {
            let name = arm.name.strip_suffix(SUFFIX).unwrap_or(&arm.name);
            let blocks = recording.blocks.iter().filter(|b| b.arm as usize == number);
            let sum = |of: fn(&netplumb_model::recording::Block) -> u64| -> u64 {
                blocks.clone().map(of).sum()
            };
            let packets = sum(|b| b.ledger.offered);
            let each = |insns: u64| insns as f64 / packets.max(1) as f64;
            let timed = timed(&rates, arm);
            let mut out = Explained {
                path: name.into(),
                ns: timed.and_then(ArmRates::ns_per_packet),
                generator_ns: timed.and_then(ArmRates::generator_ns),
                failed: (recording.environment)
                    .get(&format!("{}.{}", env::FAILED, arm.name))
                    .cloned(),
                packets,
                handled: sum(|b| b.ledger.delivered),
                user_insns: each(sum(|b| b.user_insns)),
                other_insns: each(class(recording, number, Direction::Other).total),
                ..Explained::default()
            };
            let mut by_block: Vec<u64> = vec![0; blocks.clone().count()];
            let mut functions: BTreeMap<FunctionId, (u64, u64)> = BTreeMap::new();
            for view in views.iter().filter(|v| v.arm == number) {
                if view.class.direction == Direction::Tx {
                    out.generator_insns += each(view.total);
                    continue;
                }
                out.insns += each(view.total);
                for (sum, insns) in by_block.iter_mut().zip(&view.by_block) {
                    *sum += insns;
                }
                for (layer, insns) in &view.layers {
                    *out.layers.entry(layer.clone()).or_default() += each(*insns);
                }
                for f in &view.functions {
                    let sum = functions.entry(f.function).or_default();
                    sum.0 += f.calls;
                    sum.1 += f.self_insns;
                }
            }
            let of_block = by_block.iter().zip(blocks.clone());
            out.insns_of_blocks = of_block
                .map(|(insns, b)| *insns as f64 / b.ledger.offered.max(1) as f64)
                .collect();
            out.functions = functions
                .into_iter()
                .filter(|(_, (_, insns))| *insns > 0)
                .map(|(id, (calls, insns))| {
                    let function = &recording.functions[id as usize];
                    Function {
                        id,
                        name: short(&function.name).into(),
                        layer: function.layer.clone().unwrap_or_else(|| NO_LAYER.into()),
                        calls: each(calls),
                        insns: each(insns),
                    }
                })
                .collect();
            out.functions
                .sort_by(|a, b| b.insns.total_cmp(&a.insns).then(a.name.cmp(&b.name)));
            out
        })
        .collect()
}

/// The rates of the path that an arm was counted of, if one arm alone has such.
fn timed<'a, 'r>(rates: &'a [ArmRates<'r>], counted: &Arm) -> Option<&'a ArmRates<'r>> {
    let path = |arm: &Arm| arm.knobs.get("path").cloned();
    let mut same = (rates.iter())
        .filter(|r| !is_counted(r.arm) && !r.valid.is_empty() && path(r.arm) == path(counted));
    same.next().filter(|_| same.next().is_none())
}

/// A program of BPF by the name that it has in its source: the kernel puts a hash of its
/// code before that.
fn short(name: &str) -> &str {
    let hashed = name.strip_prefix("bpf_prog_").and_then(|rest| {
        let (hash, own) = rest.split_once('_')?;
        let is_hash = hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        (is_hash && !own.is_empty()).then_some(own)
    });
    hashed.unwrap_or(name)
}

/// How each path differs from the cheapest one.
pub fn differences(paths: &[Explained]) -> Vec<Difference> {
    let measured = || paths.iter().filter(|p| p.packets > 0);
    let Some(least) = measured().min_by(|a, b| a.insns.total_cmp(&b.insns)) else {
        return Vec::new();
    };
    let of = |path: &Explained| -> BTreeMap<FunctionId, (String, f64)> {
        let functions = path.functions.iter();
        functions
            .map(|f| (f.id, (f.name.clone(), f.insns)))
            .collect()
    };
    let before = of(least);
    measured()
        .filter(|path| path.path != least.path)
        .map(|path| {
            let after = of(path);
            let ids: BTreeSet<FunctionId> = before.keys().chain(after.keys()).copied().collect();
            let mut functions: Vec<(String, f64)> = ids
                .into_iter()
                .filter_map(|id| {
                    let (one, other) = (before.get(&id), after.get(&id));
                    let name = one.or(other).map(|(name, _)| name.clone())?;
                    let insns = |f: Option<&(String, f64)>| f.map_or(0.0, |(_, insns)| *insns);
                    let more = insns(other) - insns(one);
                    (more != 0.0).then_some((name, more))
                })
                .collect();
            functions.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
            Difference {
                path: path.path.clone(),
                than: least.path.clone(),
                insns: path.insns - least.insns,
                functions,
            }
        })
        .collect()
}

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
    let (shown, absent): (Vec<_>, Vec<_>) = paths.iter().partition(|p| p.packets > 0);
    if paths.is_empty() {
        return String::new();
    }
    let fact = |key: &str| {
        let value = recording.environment.get(&format!("counted.{key}"));
        value.map_or_else(|| "?".to_string(), |value| printable(value, 80))
    };
    let heading = format!(
        "why: kernel instructions of each packet, counted in a guest (Linux {}, mitigations {}); \
         the path's are what happens on the receiving side",
        fact(env::KERNEL),
        fact(env::MITIGATIONS)
    );
    let mut out = String::from("\n");
    out.push_str(&continued(&heading, 2, columns));
    out.push('\n');
    for some in shown.chunks(BESIDE) {
        out.push_str(&by_layer(some, columns));
    }
    for sentence in sentences_of(&paths) {
        out.push_str(&continued(&format!("  {sentence}"), 4, columns));
        out.push('\n');
    }
    for path in shown.iter().filter(|p| p.handled < p.packets) {
        let line = format!(
            "  {}: {} of {} packets were handled: what the others cost is in the mean",
            printable(&path.path, NAME_LIMIT),
            thousands(path.handled),
            thousands(path.packets)
        );
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    for path in absent {
        let why = path.failed.as_deref().unwrap_or("it was not counted");
        let line = format!(
            "  {}: not counted: {}",
            printable(&path.path, NAME_LIMIT),
            printable(why, 300)
        );
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out
}

/// How each path differs from the cheapest one, in a sentence each.
pub fn sentences(recording: &Recording) -> Vec<String> {
    sentences_of(&explained(recording))
}

fn sentences_of(paths: &[Explained]) -> Vec<String> {
    let sentence = |difference: Difference| {
        let functions = &difference.functions;
        let (told, rest) = functions.split_at(TOLD.min(functions.len()));
        let mut words: Vec<String> = told
            .iter()
            .map(|(name, insns)| format!("{} {}", printable(name, NAME_LIMIT), signed(*insns)))
            .collect();
        if !rest.is_empty() {
            let sum: f64 = rest.iter().map(|(_, insns)| insns).sum();
            words.push(format!("{} other functions {}", rest.len(), signed(sum)));
        }
        format!(
            "{} against {}: {} instructions a packet: {}",
            printable(&difference.path, NAME_LIMIT),
            printable(&difference.than, NAME_LIMIT),
            signed(difference.insns),
            words.join(", ")
        )
    };
    differences(paths).into_iter().map(sentence).collect()
}

fn by_layer(paths: &[&Explained], columns: usize) -> String {
    let mut layers: BTreeMap<&str, f64> = BTreeMap::new();
    for (layer, insns) in paths.iter().flat_map(|p| &p.layers) {
        *layers.entry(layer).or_default() += insns;
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
    row("the path", &|p| Some(p.insns));
    for (layer, _) in &layers {
        row(&format!("  {layer}"), &|p| p.layers.get(*layer).copied());
    }
    row("generator", &|p| Some(p.generator_insns));
    row("timers, idling", &|p| Some(p.other_insns));
    row("user code", &|p| Some(p.user_insns));
    if paths.iter().any(|p| p.ns.is_some()) {
        row("ns each, as measured", &|p| p.ns);
        row("  the generator alone", &|p| p.generator_ns);
    }
    trimmed(&table)
}

#[cfg(test)]
mod tests;
