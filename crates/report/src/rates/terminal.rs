//! A bench as a table for a terminal.

use std::collections::BTreeMap;

use comfy_table::Cell;
use netplumb_model::bench::{CpuUse, SEARCH};
use netplumb_model::recording::{Recording, env};
use netplumb_stats::histogram;

use super::{ArmRates, arms, bound_share, explain};
use crate::number::{printable, thousands};
use crate::terminal::{bar, continued, right, table, trimmed};

/// Names of arms are cut to this.
const NAME_LIMIT: usize = 44;
/// With fewer columns there are no bars.
const ROOM_FOR_BARS: usize = 100;

/// A rate, in the unit that leaves it one to three digits before the point.
pub(crate) fn rate(pps: f64) -> String {
    match pps {
        p if p >= 1e6 => format!("{:.2} M", p / 1e6),
        p if p >= 1e3 => format!("{:.1} k", p / 1e3),
        p => format!("{p:.0}"),
    }
}

/// Everything about a bench: a table of its arms, the ways that packets took, and what
/// to think of it.
pub fn render(recording: &Recording, columns: usize) -> String {
    let arms = arms(recording);
    let (shown, absent): (Vec<_>, Vec<_>) = arms.iter().partition(|a| a.failed.is_none());
    let mut out = String::new();
    if let Some(setting) = recording.environment.get("bench.setting") {
        out.push_str(&paragraph(&printable(setting, 400), columns));
        out.push_str("\n\n");
    }
    // Of a search, blocks are trials, and lose packets on purpose.
    let (searched, shown): (Vec<_>, Vec<_>) =
        (shown.into_iter()).partition(|a| !goals(recording, &a.arm.name).is_empty());
    if !shown.is_empty() {
        out.push_str(&rates(&shown, columns));
    }
    for arm in &searched {
        out.push_str(&invalid(arm, columns));
    }
    for arm in &shown {
        out.push_str(&losses(arm, columns));
    }
    out.push_str(&found(recording, columns));
    let with_latency: Vec<_> = shown.iter().filter(|a| a.latency().is_some()).collect();
    if !with_latency.is_empty() {
        out.push_str("\nfrom when a packet was to be sent to when it was there, ns\n");
        out.push_str(&latencies(&with_latency, columns));
    }
    for arm in shown.iter().filter(|a| a.lacks_latency()) {
        let name = printable(&arm.arm.name, NAME_LIMIT);
        let line = format!(
            "  {name}: how long packets take can't be told: this path has no program of ours \
             that sees each"
        );
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out.push_str(&explain::render(recording, columns));
    if !absent.is_empty() {
        out.push_str("\nnot here:\n");
        for arm in absent {
            let why = arm.failed.unwrap_or_default();
            let line = format!(
                "  {}: {}",
                printable(&arm.arm.name, NAME_LIMIT),
                printable(why, 600)
            );
            out.push_str(&continued(&line, 4, columns));
            out.push('\n');
        }
    }
    out.push('\n');
    for line in footer(recording, &shown, &searched) {
        out.push_str(&paragraph(&line, columns));
        out.push('\n');
    }
    out
}

/// A line that goes on below its third character.
fn paragraph(line: &str, columns: usize) -> String {
    let text = continued(&format!("  {line}"), 2, columns);
    text.trim_start().to_string()
}

fn rates(arms: &[&ArmRates<'_>], columns: usize) -> String {
    let most = (arms.iter())
        .filter_map(|a| a.handled_pps())
        .map(|m| m.value)
        .fold(0.0, f64::max);
    let mut table = table(columns);
    let mut heading = vec![
        Cell::new(""),
        right("packets/s"),
        right("95 % interval"),
        right("ns each"),
        right("lost"),
        right("CPUs busy"),
    ];
    let bars = columns >= ROOM_FOR_BARS;
    if bars {
        heading.push(Cell::new(""));
    }
    table.set_header(heading);
    for arm in arms {
        let mut row = vec![Cell::new(printable(&arm.arm.name, NAME_LIMIT))];
        match arm.handled_pps() {
            Some(mean) => {
                let interval = match (mean.low, mean.high) {
                    (Some(low), Some(high)) => format!("{} to {}", rate(low.max(0.0)), rate(high)),
                    _ => "one block".into(),
                };
                let loss = arm.mean(|m| m.loss()).map_or(0.0, |m| m.value);
                let cpus = arm.cpus();
                let busy: f64 = cpus.iter().map(|c| c.busy).sum();
                let doubt = if cpus.iter().any(CpuUse::is_doubtful) {
                    " ?"
                } else {
                    ""
                };
                row.push(right(rate(mean.value)));
                row.push(right(interval));
                row.push(right(
                    arm.ns_per_packet()
                        .map_or("-".into(), |ns| format!("{ns:.0}")),
                ));
                row.push(right(share(loss)));
                row.push(right(format!("{busy:.2}{doubt}")));
                if bars {
                    let mut text = bar(mean.value * 100.0 / most.max(1.0), 20);
                    if arm.is_generator_bound() {
                        text.push_str(" generator-bound");
                    }
                    row.push(Cell::new(text));
                }
            }
            None => row.push(right(if arm.invalid.is_empty() {
                "-"
            } else {
                "invalid"
            })),
        }
        table.add_row(row);
    }
    trimmed(&table)
}

/// What became of packets that were neither dropped as asked nor came through, and blocks
/// that say nothing.
fn losses(arm: &ArmRates<'_>, columns: usize) -> String {
    let name = printable(&arm.arm.name, NAME_LIMIT);
    let mut out = String::new();
    let mut tell = |line: String| {
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    };
    for hop in arm.hops() {
        for (cause, n) in hop.dropped.iter().filter(|(_, n)| **n > 0) {
            tell(format!(
                "  {name}: {} of {} lost, {}: {}",
                thousands(*n),
                thousands(hop.entered),
                printable(&hop.name, 80),
                printable(cause, 120)
            ));
        }
    }
    out.push_str(&invalid(arm, columns));
    let mut tell = |line: String| {
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    };
    if let Some(diagnosis) = arm.diagnosis {
        tell(format!(
            "  {name}: where they went: {}",
            printable(diagnosis, 600)
        ));
    }
    out
}

/// Blocks that say nothing, and why.
fn invalid(arm: &ArmRates<'_>, columns: usize) -> String {
    let name = printable(&arm.arm.name, NAME_LIMIT);
    let mut out = String::new();
    for (why, times) in &arm.invalid {
        let blocks = if *times == 1 {
            "1 block".into()
        } else {
            format!("{times} blocks")
        };
        let line = format!("  {name}: {blocks} invalid: {}", printable(why, 300));
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out
}

/// What searches found.
fn found(recording: &Recording, columns: usize) -> String {
    let all: Vec<_> = recording
        .arms
        .iter()
        .flat_map(|arm| goals(recording, &arm.name))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mut table = table(columns);
    table.set_header(vec![
        Cell::new(""),
        right("loses at most"),
        right("packets/s"),
        right("carried up to"),
        right("not from"),
        right("trials"),
        Cell::new(""),
    ]);
    for goal in all {
        let pps = |key: &str| {
            let value = goal.get(key).and_then(|v| v.parse::<f64>().ok());
            right(value.map_or("-".into(), rate))
        };
        let word = |key: &str| goal.get(key).map(|v| printable(v, 80)).unwrap_or_default();
        let loss = goal.get("loss_ratio").and_then(|v| v.parse::<f64>().ok());
        table.add_row(vec![
            Cell::new(word("arm")),
            right(loss.map_or("-".into(), |l| format!("{} %", l * 100.0))),
            pps("throughput_pps"),
            pps("lower_pps"),
            pps("upper_pps"),
            right(word("trials")),
            Cell::new(word("irregular")),
        ]);
    }
    format!(
        "\nthe largest load that is carried (RFC 9971)\n{}",
        trimmed(&table)
    )
}

/// What a search found for an arm, by goal.
pub(super) fn goals<'a>(recording: &'a Recording, arm: &'a str) -> Vec<BTreeMap<&'a str, &'a str>> {
    let mut goals: Vec<BTreeMap<&str, &str>> = Vec::new();
    for number in 0.. {
        let prefix = format!("{SEARCH}.{arm}.{number}.");
        let facts = recording.environment.iter();
        let mut goal: BTreeMap<&str, &str> = facts
            .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value.as_str())))
            .collect();
        if goal.is_empty() {
            break;
        }
        goal.insert("arm", arm);
        goals.push(goal);
    }
    goals
}

fn latencies(arms: &[&&ArmRates<'_>], columns: usize) -> String {
    const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    let mut table = table(columns);
    let mut heading = vec![Cell::new(""), right("packets")];
    heading.extend(SHARES.iter().map(|(name, _)| right(*name)));
    heading.push(right("max"));
    table.set_header(heading);
    for arm in arms {
        let Some(times) = arm.latency() else { continue };
        let mut row = vec![
            Cell::new(printable(&arm.arm.name, NAME_LIMIT)),
            right(thousands(times.count)),
        ];
        for (_, share) in SHARES {
            let at = histogram::quantile(&times.buckets, share, times.min_ns, times.max_ns);
            row.push(right(
                at.map_or("-".into(), |ns| thousands(ns.round() as u64)),
            ));
        }
        row.push(right(thousands(times.max_ns)));
        table.add_row(row);
    }
    trimmed(&table)
}

fn share(of: f64) -> String {
    match of {
        s if s.abs() < 1e-9 => "0".into(),
        s if s < 0.000_1 => format!("{:.4} %", s * 100.0),
        s => format!("{:.2} %", s * 100.0),
    }
}

/// How it was measured, and what to doubt.
pub(super) fn footer(
    recording: &Recording,
    shown: &[&ArmRates<'_>],
    searched: &[&ArmRates<'_>],
) -> Vec<String> {
    let arms: Vec<&ArmRates<'_>> = shown.iter().chain(searched).copied().collect();
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 300));
    let blocks: usize = arms.iter().map(|a| a.valid.len()).sum();
    let invalid: usize = arms.iter().flat_map(|a| a.invalid.values()).sum();
    let mut lines = vec![format!(
        "{blocks} blocks count, {invalid} don't. Of those that do, every packet is accounted for: offered = \
         delivered + dropped by cause, on every hop, from the first packet to the last."
    )];
    if arms.iter().any(|a| a.is_generator_bound()) {
        lines.push(format!(
            "generator-bound: within {} of what the generator makes by itself: the path may be faster.",
            bound_share()
        ));
    }
    if let Some(programs) = fact("swap.programs") {
        let met = match invalid {
            // A packet that met none or two would be missing, or come out of nowhere.
            0 if blocks > 0 => "every packet met one of them, and only one",
            _ => "whether every packet met one of them can't be said, as blocks don't add up",
        };
        lines.push(format!(
            "{programs} programs took turns in each block, each put in the place of the one before \
             while packets ran: {met}."
        ));
    }
    for arm in arms.iter().filter(|a| a.queues().len() > 1) {
        let queues = arm.queues();
        let all = queues.values().sum::<u64>().max(1) as f64;
        let share = |n: Option<&u64>| *n.unwrap_or(&0) as f64 * 100.0 / all;
        lines.push(format!(
            "{}: packets came by {} receive queues, {:.0} to {:.0} % by each",
            printable(&arm.arm.name, NAME_LIMIT),
            queues.len(),
            share(queues.values().min()),
            share(queues.values().max()),
        ));
    }
    if let Some(updates) = fact("blocklist.updates_per_s") {
        lines.push(format!(
            "the list of sources changed {updates} times a second while packets ran"
        ));
    }
    let behind: u64 = (arms.iter().flat_map(|a| &a.valid))
        .flat_map(|m| &m.generated)
        .map(|g| g.behind)
        .sum();
    if behind > 0 {
        lines.push(format!(
            "the generator fell behind: {} packets that were due were never made",
            thousands(behind)
        ));
    }
    if let Some(nics) = fact(env::NICS) {
        let foreign: u64 = (arms.iter().flat_map(|a| &a.valid))
            .map(|m| m.handled.foreign)
            .sum();
        lines.push(match foreign {
            0 => format!("interfaces of this machine: {nics}"),
            _ => format!(
                "interfaces of this machine: {nics}. {} packets came in there that were not the \
                 generator's: they are in no figure, and cost time",
                thousands(foreign)
            ),
        });
    }
    if let Some(generator) = fact("generator.method") {
        lines.push(format!("generator: {generator}"));
    }
    let mut cpu = "CPUs busy: 1 - (idle + iowait) / wall, all CPUs together".to_string();
    if let Some(second) = fact("cpu.second") {
        cpu.push_str(&format!("; checked by {second}"));
    }
    let doubtful = |a: &&&ArmRates<'_>| a.cpus().iter().any(CpuUse::is_doubtful);
    let doubted = arms.iter().filter(doubtful).count();
    if doubted > 0 {
        cpu.push_str(&format!(
            "; `?`: the two disagree by more than 2 points ({doubted} of {} rows)",
            arms.len()
        ));
    }
    let steal = (arms.iter().flat_map(|a| a.cpus()))
        .map(|c| c.steal)
        .fold(0.0, f64::max);
    if steal > 0.005 {
        cpu.push_str(&format!(
            "; up to {:.0} % of a CPU was stolen by the machine below",
            steal * 100.0
        ));
    }
    if let Some(accounting) = fact("cpu.accounting") {
        cpu.push_str(&format!("; accounting: {accounting}"));
    }
    lines.push(cpu);
    for loss in &recording.losses {
        lines.push(format!(
            "not counted well: {} {}: {}",
            thousands(loss.count),
            printable(&loss.cause, 120),
            printable(&loss.meaning, 200)
        ));
    }
    let machine: Vec<String> = [env::KERNEL, "machine.cpus", "lab"]
        .iter()
        .filter_map(|k| fact(k))
        .collect();
    if !machine.is_empty() {
        lines.push(format!("kernel, CPUs, lab: {}", machine.join(", ")));
    }
    lines
}
