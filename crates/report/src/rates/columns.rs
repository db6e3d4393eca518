//! The columns of a bench's rates: what they are called, what they mean, and what stands
//! in them.

use netplumb_model::bench::CpuUse;

use super::ArmRates;
use crate::number::rate;
use crate::table::{Column, Value};

/// A row.
type Row<'r> = &'r ArmRates<'r>;

/// In the order in which they stand; the arm's name comes before them.
pub(super) fn columns<'r>() -> Vec<Column<'r, Row<'r>>> {
    let column = |title: &'static str, cell: fn(&ArmRates<'_>) -> Value| {
        Column::figure(title, move |arm: &Row<'r>| cell(arm))
            .people(1)
            .page("")
    };
    vec![
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
    ]
}

fn handled(arm: &ArmRates<'_>) -> Value {
    match arm.handled_pps() {
        Some(mean) => Value::Told(rate(mean.value), Some(mean.value)),
        None if arm.invalid.is_empty() => Value::Missing,
        None => Value::Told("invalid".into(), None),
    }
}

fn interval(arm: &ArmRates<'_>) -> Value {
    let Some(mean) = arm.handled_pps() else {
        return Value::Missing;
    };
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => {
            let text = format!("{} to {}", rate(low.max(0.0)), rate(high));
            Value::Told(text, Some(high - low))
        }
        _ => Value::Told("one block".into(), None),
    }
}

fn cpu_ns(arm: &ArmRates<'_>) -> Value {
    let ns = arm.cpu_ns_per_packet();
    ns.map_or(Value::Missing, |ns| {
        Value::Told(format!("{ns:.0}"), Some(ns))
    })
}

fn lost(arm: &ArmRates<'_>) -> Value {
    let lost = arm.lost();
    lost.map_or(Value::Missing, |lost| Value::Told(share(lost), Some(lost)))
}

fn busy(arm: &ArmRates<'_>) -> Value {
    if arm.valid.is_empty() {
        return Value::Missing;
    }
    let cpus = arm.cpus();
    let busy: f64 = cpus.iter().map(|c| c.busy).sum();
    let doubt = if cpus.iter().any(CpuUse::is_doubtful) {
        " ?"
    } else {
        ""
    };
    Value::Told(format!("{busy:.2}{doubt}"), Some(busy))
}

/// A share in percent: nothing is `0`, and what is little is not rounded to that.
pub(super) fn share(of: f64) -> String {
    match of {
        s if s.abs() < 1e-9 => "0".into(),
        s if s < 0.000_1 => format!("{:.4} %", s * 100.0),
        s => format!("{:.2} %", s * 100.0),
    }
}
