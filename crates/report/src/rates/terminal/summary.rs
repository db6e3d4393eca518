//! Tables of all arms of a bench.

use comfy_table::Cell;

use super::NAME_LIMIT;
use crate::number::{printable, thousands};
use crate::rates::ArmRates;
use crate::rates::columns::COLUMNS;
use crate::rates::latency::{TITLES, percentiles};
use crate::terminal::{bar, right, table, trimmed};

/// With fewer columns there are no bars: so many, and more if there is one of valid blocks.
const ROOM_FOR_BARS: usize = 100;
const ROOM_FOR_VALID: usize = 15;

/// A line for each arm, those with losses and without a block that counts first.
pub(super) fn rates(arms: &[&ArmRates<'_>], columns: usize) -> String {
    let mut arms = arms.to_vec();
    arms.sort_by(|a, b| a.by_trouble(b));
    let some_invalid = arms.iter().any(|a| !a.invalid.is_empty());
    let most = (arms.iter())
        .filter_map(|a| a.handled_pps())
        .map(|m| m.value)
        .fold(0.0, f64::max);
    let mut table = table(columns);
    let mut heading = vec![Cell::new("")];
    heading.extend(COLUMNS.iter().map(|column| right(column.title)));
    if some_invalid {
        heading.push(right("valid blocks"));
    }
    let room = ROOM_FOR_BARS + if some_invalid { ROOM_FOR_VALID } else { 0 };
    let bars = columns >= room;
    if bars {
        heading.push(Cell::new(""));
    }
    table.set_header(heading);
    for arm in &arms {
        let mut row = vec![Cell::new(printable(&arm.arm.name, NAME_LIMIT))];
        let mut cells = COLUMNS.iter().map(|column| (column.cell)(arm).text);
        match arm.handled_pps() {
            Some(mean) => {
                row.extend(cells.map(right));
                if some_invalid {
                    row.push(right(valid_blocks(arm)));
                }
                if bars {
                    let mut text = bar(mean.value * 100.0 / most.max(1.0), 20);
                    if arm.is_generator_bound() {
                        text.push_str(" generator-bound");
                    }
                    row.push(Cell::new(text));
                }
            }
            // The first says that there is none; of the others nothing is known.
            None => {
                row.extend(cells.next().map(right));
                if some_invalid {
                    row.extend(cells.map(|_| Cell::new("")));
                    row.push(right(valid_blocks(arm)));
                }
            }
        }
        table.add_row(row);
    }
    trimmed(&table)
}

fn valid_blocks(arm: &ArmRates<'_>) -> String {
    let invalid: usize = arm.invalid.values().sum();
    format!("{} of {}", arm.valid.len(), arm.valid.len() + invalid)
}

/// How long packets took.
pub(super) fn latencies(arms: &[&ArmRates<'_>], columns: usize) -> String {
    let mut table = table(columns);
    let mut heading = vec![Cell::new(""), right("packets")];
    heading.extend(TITLES.map(right));
    table.set_header(heading);
    for arm in arms {
        let Some(times) = arm.latency() else { continue };
        let mut row = vec![
            Cell::new(printable(&arm.arm.name, NAME_LIMIT)),
            right(thousands(times.count)),
        ];
        let figure = |ns: Option<f64>| ns.map_or("-".into(), |ns| thousands(ns.round() as u64));
        row.extend(percentiles(&times).map(|ns| right(figure(ns))));
        table.add_row(row);
    }
    trimmed(&table)
}
