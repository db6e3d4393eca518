//! Tables of all arms of a bench.

use super::NAME_LIMIT;
use crate::rates::ArmRates;
use crate::rates::columns::columns as of_rates;
use crate::table::bar;
use crate::table::{Column, Room, Table, Value};

/// Bars need this many columns, plus [`ROOM_FOR_VALID`] if there is a column of valid blocks.
const ROOM_FOR_BARS: usize = 100;
const ROOM_FOR_VALID: usize = 15;
/// Columns of a bar.
const BAR: usize = 20;

type ArmRow<'r> = &'r ArmRates<'r>;

/// A line for each arm, those with losses and without a block that counts first.
pub(super) fn rates<'r>(arms: &[ArmRow<'r>], columns: usize) -> String {
    let mut arms = arms.to_vec();
    arms.sort_by(|a, b| a.by_trouble(b));
    let some_invalid = arms.iter().any(|a| !a.invalid.is_empty());
    let most = (arms.iter()).filter_map(|a| a.handled_pps()).map(|m| m.value).fold(0.0, f64::max);
    let mut all = of_rates();
    if some_invalid {
        let valid = Column::figure("valid blocks", |arm: &ArmRow<'r>| {
            Value::Formatted(valid_blocks(arm), None)
        });
        all.push(valid.people(2));
    }
    let room = ROOM_FOR_BARS + if some_invalid { ROOM_FOR_VALID } else { 0 };
    let bars = Column::text("", move |arm: &ArmRow<'r>| {
        let Some(mean) = arm.handled_pps() else {
            return String::new();
        };
        let mut text = bar(mean.value * 100.0 / most.max(1.0), BAR);
        if arm.is_generator_bound() {
            text.push_str(" generator-bound");
        }
        text
    });
    all.push(bars.people(3).from(room));
    let room = Room::new(columns, NAME_LIMIT);
    Table::new(all, arms).flush().terminal(room)
}

fn valid_blocks(arm: &ArmRates<'_>) -> String {
    let invalid: usize = arm.invalid.values().sum();
    format!("{} of {}", arm.valid.len(), arm.valid.len() + invalid)
}
