//! What searches found.

use std::collections::BTreeMap;

use comfy_table::Cell;
use netplumb_model::bench::SEARCH;
use netplumb_model::recording::Recording;

use super::rate;
use crate::number::printable;
use crate::terminal::{right, table, trimmed};

/// What searches found.
pub(super) fn found(recording: &Recording, columns: usize) -> String {
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
pub(in crate::rates) fn goals<'a>(
    recording: &'a Recording,
    arm: &'a str,
) -> Vec<BTreeMap<&'a str, &'a str>> {
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
