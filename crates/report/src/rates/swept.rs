//! Charts of packets by each setting that was varied, where no experiment has figures.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::experiment::number_of;
use netplumb_model::recording::Recording;

use super::ArmRow;
use crate::chart::{chart, series};
use crate::claims::HANDLED;
use crate::figures::charts::{axis_of, of_mean};
use crate::page::{PageChart, PagePoint, PageSeries, PageSeriesKind};

/// Knobs that have a chart where they vary.
const SWEPT: [&str; 5] = ["cores", "queues", "rate", "size", "flows"];

/// A chart for each.
pub(super) fn charts(arms: &[ArmRow<'_>], recording: &Recording) -> Vec<PageChart> {
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
