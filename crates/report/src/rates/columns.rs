//! The columns of a bench's rates: what they are called, what they mean, and what stands
//! in them.

use netplumb_model::bench::CpuUse;

use super::ArmRates;
use super::terminal::rate;

/// A column.
pub(super) struct Column {
    /// Its heading.
    pub title: &'static str,
    /// What it is, for who asks.
    pub hint: &'static str,
    /// What stands in it of an arm.
    pub cell: fn(&ArmRates<'_>) -> Cell,
}

/// What stands in a cell.
pub(super) struct Cell {
    /// As it is shown.
    pub text: String,
    /// What it is sorted by; none where there is nothing.
    pub value: Option<f64>,
}

/// In the order in which they stand.
pub(super) const COLUMNS: [Column; 5] = [
    Column {
        title: "packets/s",
        hint: "dropped as asked, or through: the mean of the blocks that count",
        cell: handled,
    },
    Column {
        title: "95 % interval",
        hint: "of that mean, by how much blocks differ",
        cell: interval,
    },
    Column {
        title: "CPU ns/packet",
        hint: "how long CPUs were busy, all together, for each packet handled: CPUs busy / packets/s",
        cell: cpu_ns,
    },
    Column {
        title: "lost",
        hint: "of the packets that were sent, those that neither came through nor were dropped as asked",
        cell: lost,
    },
    Column {
        title: "CPUs busy",
        hint: "1 - (idle + iowait) / wall, all CPUs together; `?` where two ways of telling disagree",
        cell: busy,
    },
];

fn none() -> Cell {
    Cell {
        text: "-".into(),
        value: None,
    }
}

fn handled(arm: &ArmRates<'_>) -> Cell {
    match arm.handled_pps() {
        Some(mean) => Cell {
            text: rate(mean.value),
            value: Some(mean.value),
        },
        None => Cell {
            text: if arm.invalid.is_empty() {
                "-"
            } else {
                "invalid"
            }
            .into(),
            value: None,
        },
    }
}

fn interval(arm: &ArmRates<'_>) -> Cell {
    let Some(mean) = arm.handled_pps() else {
        return none();
    };
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => Cell {
            text: format!("{} to {}", rate(low.max(0.0)), rate(high)),
            value: Some(high - low),
        },
        _ => Cell {
            text: "one block".into(),
            value: None,
        },
    }
}

fn cpu_ns(arm: &ArmRates<'_>) -> Cell {
    arm.cpu_ns_per_packet().map_or_else(none, |ns| Cell {
        text: format!("{ns:.0}"),
        value: Some(ns),
    })
}

fn lost(arm: &ArmRates<'_>) -> Cell {
    arm.lost().map_or_else(none, |lost| Cell {
        text: share(lost),
        value: Some(lost),
    })
}

fn busy(arm: &ArmRates<'_>) -> Cell {
    if arm.valid.is_empty() {
        return none();
    }
    let cpus = arm.cpus();
    let busy: f64 = cpus.iter().map(|c| c.busy).sum();
    let doubt = if cpus.iter().any(CpuUse::is_doubtful) {
        " ?"
    } else {
        ""
    };
    Cell {
        text: format!("{busy:.2}{doubt}"),
        value: Some(busy),
    }
}

/// A share in percent: nothing is `0`, and what is little is not rounded to that.
pub(super) fn share(of: f64) -> String {
    match of {
        s if s.abs() < 1e-9 => "0".into(),
        s if s < 0.000_1 => format!("{:.4} %", s * 100.0),
        s => format!("{:.2} %", s * 100.0),
    }
}
