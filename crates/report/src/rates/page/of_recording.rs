//! The page of a recording of benches: its file's figures as charts, or the swept knobs;
//! and every arm's ledger as a flow.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::experiment::{Experiment, number_of};
use netplumb_model::recording::Recording;

use super::arms::{latencies, rates};
use super::costs::costs;
use super::{Around, chart, flow, series};
use crate::claims::{self, HANDLED};
use crate::figures::charts::{self, axis_of, of_mean};
use crate::figures::sweeps::Plotted;
use crate::html::report_page;
use crate::number::rate;
use crate::number::{counted, printable};
use crate::page::{Page, PageBench, PageChart, PageFlow, PagePoint, PageSeries, PageSeriesKind};
use crate::rates::columns::share;
use crate::rates::terminal::footer;
use crate::rates::{ArmRates, arms, blocks, explain};
use crate::together::CrossQuantity;

const TEXT_LETTERS: usize = 600;
/// Arms that have a sentence each at the top, and losses that are named there.
const FEW: usize = 3;
/// Knobs that have a chart where they vary.
const SWEPT: [&str; 5] = ["cores", "queues", "rate", "size", "flows"];

/// The page of a recording. `file` is the experiment's, if it was one.
pub fn of_recording(recording: &Recording, file: Option<&Experiment>) -> Page {
    let all = arms(recording);
    let trust = footer(recording, &all);
    // In a search, blocks are trials, and lose packets on purpose.
    let (searched, arms): (Vec<_>, Vec<_>) = all.into_iter().partition(|a| !a.goals.is_empty());
    let figures = file.map_or_else(Vec::new, |file| {
        let all = file.figures.iter();
        all.map(|f| charts::figure(&Plotted::from_figure(file, f), recording)).collect()
    });
    let bench = PageBench {
        rates: rates(&arms, &searched),
        latency: latencies(&arms),
        charts: match file {
            Some(file) if !file.figures.is_empty() => Vec::new(),
            _ => swept(&arms, recording),
        },
        flows: (invalid(recording, &searched).into_iter())
            .chain(arms.iter().flat_map(flows))
            .collect(),
        costs: costs(recording),
    };
    let text = |text: &str| printable(&text.trim().replace('\n', " "), TEXT_LETTERS);
    // Facts and warnings are the same as for any recording.
    let plain = report_page(recording, &[], None, &CrossQuantity::default());
    let title = match file {
        Some(file) if !file.title.is_empty() => text(&file.title),
        Some(file) => text(&file.name),
        None => "How fast packets go".into(),
    };
    let mut warnings = plain.warnings;
    warnings.extend(arms.iter().filter_map(absent));
    let around = Around {
        title,
        question: file.map_or_else(String::new, |f| text(&f.question)),
        headline: (summary(&arms).into_iter())
            .chain(searched.iter().flat_map(found))
            .chain(explain::sentences(recording))
            .collect(),
        warnings,
        facts: plain.facts,
        trust,
    };
    let judged = file.map_or_else(Vec::new, |file| claims::judge_blocks(file, recording));
    Page { claims: claims::page(judged), figures, ..super::page(around, bench) }
}

/// The results: for few arms a sentence each; for many the fastest and the slowest, and
/// arms that lost packets. All of them are drawn, and in a table.
fn summary(arms: &[ArmRates<'_>]) -> Vec<String> {
    let mut measured: Vec<(&ArmRates<'_>, f64)> =
        (arms.iter()).filter_map(|arm| Some((arm, arm.handled_pps()?.value))).collect();
    if measured.len() <= FEW {
        return (measured.iter()).filter_map(|(arm, _)| sentence(arm)).collect();
    }
    measured.sort_by(|a, b| b.1.total_cmp(&a.1));
    let ends = [("Fastest", measured.first()), ("slowest", measured.last())];
    let extremes: Vec<String> = (ends.iter())
        .filter_map(|(word, arm)| Some(format!("{word}: {}", sentence(arm.as_ref()?.0)?)))
        .collect();
    let mut lines = vec![format!("{} arms. {}", arms.len(), extremes.join("; "))];
    let mut lost: Vec<(&str, f64)> = (measured.iter())
        .filter_map(|(arm, _)| Some((arm.arm.name.as_str(), arm.lost()?)))
        .filter(|(_, lost)| *lost >= 1e-9)
        .collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !lost.is_empty() {
        let named: Vec<String> = (lost.iter().take(FEW))
            .map(|(name, lost)| format!("{} {}", printable(name, 80), share(*lost)))
            .collect();
        let more = match lost.len().saturating_sub(FEW) {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        lines.push(format!("Lost packets: {}{more}", named.join(", ")));
    }
    lines
}

/// "socket: 16.40 M packets/s (16.1 M to 16.7 M), 3.20 % lost".
fn sentence(arm: &ArmRates<'_>) -> Option<String> {
    let mean = arm.handled_pps()?;
    let interval = match (mean.low, mean.high) {
        (Some(low), Some(high)) => format!(" ({} to {})", rate(low.max(0.0)), rate(high)),
        _ => String::new(),
    };
    let lost = match arm.lost() {
        Some(lost) if lost >= 1e-9 => format!(", {} lost", share(lost)),
        _ => String::new(),
    };
    let bound = if arm.is_generator_bound() { ", generator-bound" } else { "" };
    Some(format!(
        "{}: {} packets/s{interval}{lost}{bound}",
        printable(&arm.arm.name, 80),
        rate(mean.value)
    ))
}

/// The result of a search: "xdp: 9.80 M packets/s with 0 % lost (RFC 9971)".
fn found(arm: &ArmRates<'_>) -> Vec<String> {
    let name = &arm.arm.name;
    arm.goals
        .iter()
        .filter_map(|goal| {
            let pps = goal.throughput_pps?;
            let lost = goal.loss_ratio * 100.0;
            let odd = goal.irregular;
            let odd = odd.map_or_else(String::new, |why| format!(": {}", printable(why, 80)));
            Some(format!(
                "{}: {} packets/s with {lost} % lost at most (RFC 9971){odd}",
                printable(name, 80),
                rate(pps)
            ))
        })
        .collect()
}

/// Why an arm has no figure.
fn absent(arm: &ArmRates<'_>) -> Option<String> {
    let why = match (arm.failed, arm.invalid.keys().next()) {
        (Some(why), _) => why,
        (None, Some(why)) if arm.valid.is_empty() => why,
        _ => return None,
    };
    let name = printable(&arm.arm.name, 80);
    Some(format!("{name}: {}", printable(why, TEXT_LETTERS)))
}

/// The path of an arm's packets in the blocks that count.
fn flows(arm: &ArmRates<'_>) -> Option<PageFlow> {
    let blocks = arm.valid.len();
    let counted = counted(blocks, "block");
    let title = format!("{}: all packets of {counted}", arm.arm.name);
    (blocks > 0).then(|| flow(&title, "", &arm.hops()))
}

/// The first block of each arm that does not count: its ledger shows why.
fn invalid(recording: &Recording, searched: &[ArmRates<'_>]) -> Vec<PageFlow> {
    let mut found: BTreeMap<u32, PageFlow> = BTreeMap::new();
    for (block, measured) in blocks(recording) {
        let is_trial = |name: &str| searched.iter().any(|s| s.arm.name == name);
        let arm = recording.arms.get(block.arm as usize);
        let arm = arm.filter(|arm| !is_trial(&arm.name));
        if let (Some(arm), Some(why)) = (arm, measured.invalid()) {
            let title = format!("{}: block {}", arm.name, block.index + 1);
            let made = || flow(&title, &why, &measured.hops);
            found.entry(block.arm).or_insert_with(made);
        }
    }
    found.into_values().collect()
}

/// Without a file: a chart of packets by each setting that was varied.
fn swept(arms: &[ArmRates<'_>], recording: &Recording) -> Vec<PageChart> {
    let mut charts = Vec::new();
    for key in SWEPT {
        let mut lines: BTreeMap<Vec<(&str, &str)>, Vec<PagePoint>> = BTreeMap::new();
        let mut values = BTreeSet::new();
        for arm in arms {
            let at = arm.arm.knobs.get(key).and_then(|value| number(key, value));
            let (Some(x), Some(mean)) = (at, arm.handled_pps()) else {
                continue;
            };
            let others = arm.arm.knobs.iter().filter(|(name, _)| *name != key);
            let others = others.map(|(name, value)| (name.as_str(), value.as_str()));
            values.insert(x.to_bits());
            lines.entry(others.collect()).or_default().push(PagePoint {
                label: if arm.is_generator_bound() {
                    "generator-bound".into()
                } else {
                    String::new()
                },
                ..of_mean(x, &mean)
            });
        }
        if values.len() < 2 {
            continue;
        }
        let varied = varied(lines.keys());
        let all: Vec<PageSeries> = lines
            .into_iter()
            .map(|(others, points)| {
                let named = others.iter().filter(|(name, _)| varied.contains(*name));
                let words: Vec<String> = named
                    .map(|(name, value)| match *name {
                        "path" => (*value).to_string(),
                        name => format!("{name}={value}"),
                    })
                    .collect();
                series(&words.join(" "), PageSeriesKind::Line, points)
            })
            .collect();
        let axes = [axis_of(key, recording, &all), axis_of(HANDLED, recording, &[])];
        charts.push(chart(&format!("Packets handled, by {key}"), "", axes, all));
    }
    charts
}

/// Settings that are not the same in all, and the path.
fn varied<'a>(lines: impl Iterator<Item = &'a Vec<(&'a str, &'a str)>>) -> BTreeSet<String> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, value) in lines.flatten() {
        values.entry(name).or_default().insert(value);
    }
    let more = values.into_iter().filter(|(name, all)| *name == "path" || all.len() > 1);
    more.map(|(name, _)| name.to_string()).collect()
}

/// A setting as a number; none of `imix` and `max`.
fn number(knob: &str, value: &str) -> Option<f64> {
    match (knob, value) {
        ("size", "imix") => None,
        _ => number_of(knob, value),
    }
}
