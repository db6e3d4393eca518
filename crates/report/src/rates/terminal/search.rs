//! What searches found.

use comfy_table::Cell;
use netplumb_model::bench::quantities as q;
use netplumb_model::quantity::{Declared, Of};
use netplumb_model::recording::Recording;

use super::rate;
use crate::number::printable;
use crate::rates::ArmRates;
use crate::terminal::{right, table, trimmed};

/// What a search found of a goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal<'r> {
    /// The share of packets that may be lost.
    pub loss_ratio: f64,
    /// The largest load that reached the goal.
    pub lower_pps: Option<f64>,
    /// The least that did not.
    pub upper_pps: Option<f64>,
    /// The conditional throughput.
    pub throughput_pps: Option<f64>,
    /// Trials that it took.
    pub trials: f64,
    /// Why there is no regular result, if there is none.
    pub irregular: Option<&'r str>,
}

/// What searches found.
pub(super) fn found(arms: &[ArmRates<'_>], columns: usize) -> String {
    if arms.iter().all(|arm| arm.goals.is_empty()) {
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
    for arm in arms {
        for goal in &arm.goals {
            let pps = |value: Option<f64>| right(value.map_or("-".into(), rate));
            table.add_row(vec![
                Cell::new(printable(&arm.arm.name, 80)),
                right(format!("{} %", goal.loss_ratio * 100.0)),
                pps(goal.throughput_pps),
                pps(goal.lower_pps),
                pps(goal.upper_pps),
                right(goal.trials.to_string()),
                Cell::new(printable(goal.irregular.unwrap_or_default(), 80)),
            ]);
        }
    }
    format!(
        "\nthe largest load that is carried (RFC 9971)\n{}",
        trimmed(&table)
    )
}

/// What a search found for an arm, by goal.
pub(in crate::rates) fn goals(recording: &Recording, arm: u32) -> Vec<Goal<'_>> {
    let of_arm = |quantity: &Declared, goal: u32| {
        let mut all = recording.scalars_of(quantity);
        let found = all.find(|s| s.of == Of::Arm(arm) && s.item.number == Some(goal));
        found.map(|s| s.value)
    };
    let notes = recording.notes.get(&arm);
    let goal = |number: u32| {
        Some(Goal {
            loss_ratio: of_arm(&q::GOAL_LOSS, number)?,
            lower_pps: of_arm(&q::GOAL_LOWER, number),
            upper_pps: of_arm(&q::GOAL_UPPER, number),
            throughput_pps: of_arm(&q::GOAL_THROUGHPUT, number),
            trials: of_arm(&q::GOAL_TRIALS, number).unwrap_or_default(),
            irregular: notes
                .and_then(|n| n.irregular.get(&number))
                .map(String::as_str),
        })
    };
    (0..).map_while(goal).collect()
}
