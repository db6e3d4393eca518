//! The columns of a bench's rates: their names, their meaning, and their cells.

use netplumb_model::bench::CpuUse;

use super::{ArmRates, ArmRow};
use crate::number::{printable, rate};
use crate::page::PageArmState;
use crate::table::{Column, Table, Value, bar};

/// Bars need this many columns, plus [`ROOM_FOR_VALID`] if there is a column of valid blocks.
const ROOM_FOR_BARS: usize = 100;
const ROOM_FOR_VALID: usize = 15;
/// Columns of a bar.
const BAR: usize = 20;
/// Letters of a note.
const TEXT_LETTERS: usize = 600;

/// The arm's name, without a heading on a terminal.
pub(super) fn name<'r>() -> [Column<'r, ArmRow<'r>>; 2] {
    let name = |arm: &ArmRow<'r>| Value::Name(arm.arm.name.clone(), None);
    [
        Column::code("", name).people(0),
        Column::machine(name).title("arm").hint("one combination of settings").words().page("arm"),
    ]
}

/// All columns, in their order.
pub(crate) fn columns<'r>() -> Vec<Column<'r, ArmRow<'r>>> {
    let column = |title: &'static str, cell: fn(&ArmRates<'_>) -> Value| {
        Column::figure(title, move |arm: &ArmRow<'r>| cell(arm)).people(1).page("")
    };
    let mut columns = Vec::from(name());
    columns.extend([
        column("packets/s", handled)
            .hint("dropped as asked, or through: the mean of the blocks that count"),
        column("95 % interval", interval).hint("of that mean, by how much blocks differ"),
        column("CPU ns/packet", cpu_ns).hint(
            "how long CPUs were busy, all together, for each packet handled: CPUs busy / packets/s",
        ),
        column("lost", lost).hint(
            "of the packets that were sent, those that neither came through nor were dropped as asked",
        ),
        column("CPUs busy", busy).hint(
            "1 - (idle + iowait) / wall, all CPUs together; `?` where two ways of telling disagree",
        ),
        Column::machine(|arm: &ArmRow<'r>| Value::Text(mark(arm)))
            .title("note")
            .hint("losses, doubts, or why there is no figure")
            .words()
            .rank(2)
            .page("note"),
    ]);
    columns
}

/// The outcome of an arm.
pub(super) fn state(arm: &ArmRates<'_>) -> PageArmState {
    match (arm.valid.is_empty(), arm.invalid.is_empty()) {
        (false, _) => PageArmState::Measured,
        (true, false) => PageArmState::Invalid,
        (true, true) => PageArmState::Absent,
    }
}

/// The share of lost packets: 0 if it rounds to 0.
pub(super) fn some_lost(arm: &ArmRates<'_>) -> f64 {
    arm.lost().filter(|lost| *lost >= 1e-9).unwrap_or(0.0)
}

/// The remark beside an arm's figures; may be empty.
pub(super) fn mark(arm: &ArmRates<'_>) -> String {
    let why = |why: &str| printable(why, TEXT_LETTERS);
    match state(arm) {
        PageArmState::Invalid => {
            let cause = arm.invalid.keys().next();
            format!("invalid: {}", why(cause.map_or("", String::as_str)))
        }
        PageArmState::Absent => {
            format!("not measured: {}", why(arm.failed.unwrap_or("there is no block of it")))
        }
        PageArmState::Measured => {
            let mut marks = Vec::new();
            let lost = some_lost(arm);
            if lost > 0.0 {
                marks.push(format!("{} lost", share(lost)));
            }
            if !arm.invalid.is_empty() {
                let invalid: usize = arm.invalid.values().sum();
                let all = invalid + arm.valid.len();
                marks.push(format!("{invalid} of {all} blocks invalid"));
            }
            if arm.is_generator_bound() {
                marks.push("generator-bound".into());
            }
            marks.join(", ")
        }
    }
}

fn handled(arm: &ArmRates<'_>) -> Value {
    match arm.handled_pps() {
        Some(mean) => Value::Formatted(rate(mean.value), Some(mean.value)),
        None if arm.invalid.is_empty() => Value::Missing,
        None => Value::Formatted("invalid".into(), None),
    }
}

fn interval(arm: &ArmRates<'_>) -> Value {
    let Some(mean) = arm.handled_pps() else {
        return Value::Missing;
    };
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => {
            let text = format!("{} to {}", rate(low.max(0.0)), rate(high));
            Value::Formatted(text, Some(high - low))
        }
        _ => Value::Formatted("one block".into(), None),
    }
}

fn cpu_ns(arm: &ArmRates<'_>) -> Value {
    let ns = arm.cpu_ns_per_packet();
    ns.map_or(Value::Missing, |ns| Value::Formatted(format!("{ns:.0}"), Some(ns)))
}

fn lost(arm: &ArmRates<'_>) -> Value {
    let lost = arm.lost();
    lost.map_or(Value::Missing, |lost| Value::Formatted(share(lost), Some(lost)))
}

fn busy(arm: &ArmRates<'_>) -> Value {
    if arm.valid.is_empty() {
        return Value::Missing;
    }
    let cpus = arm.cpus();
    let busy: f64 = cpus.iter().map(|c| c.busy).sum();
    let doubt = if cpus.iter().any(CpuUse::is_doubtful) { " ?" } else { "" };
    Value::Formatted(format!("{busy:.2}{doubt}"), Some(busy))
}

/// A share in percent: only 0 is `0`; a small share is not rounded to it.
pub(super) fn share(of: f64) -> String {
    match of {
        s if s.abs() < 1e-9 => "0".into(),
        s if s < 0.000_1 => format!("{:.4} %", s * 100.0),
        s => format!("{:.2} %", s * 100.0),
    }
}

/// A line for each arm, those with losses and without a block that counts first.
pub(super) fn table<'r>(arms: &[ArmRow<'r>]) -> Table<'r, ArmRow<'r>> {
    let mut arms = arms.to_vec();
    arms.sort_by(|a, b| a.by_trouble(b));
    let some_invalid = arms.iter().any(|a| !a.invalid.is_empty());
    let most = (arms.iter()).filter_map(|a| a.handled_pps()).map(|m| m.value).fold(0.0, f64::max);
    let mut all = columns();
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
    Table::new(all, arms).flush()
}

fn valid_blocks(arm: &ArmRates<'_>) -> String {
    let invalid: usize = arm.invalid.values().sum();
    format!("{} of {}", arm.valid.len(), arm.valid.len() + invalid)
}
