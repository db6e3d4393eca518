//! The results of searches.

use netplumb_model::bench::quantities as q;
use netplumb_model::quantity::{Declared, Subject};
use netplumb_model::recording::Recording;

use super::ArmRow;
use crate::number::rate;
use crate::section::Section;
use crate::table::{Column, Table, Value};

/// Letters of a name, or of a reason.
const NAME_LETTERS: usize = 80;

/// The result of a search for a goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal<'r> {
    /// The share of packets that may be lost.
    pub loss_ratio: f64,
    /// The largest load that reached the goal.
    pub lower_pps: Option<f64>,
    /// The smallest load that did not.
    pub upper_pps: Option<f64>,
    /// The conditional throughput.
    pub throughput_pps: Option<f64>,
    /// The number of trials.
    pub trials: f64,
    /// Why there is no regular result, if there is none.
    pub irregular: Option<&'r str>,
}

/// The results of searches, by arm and goal.
pub(super) fn section<'r>(arms: &[ArmRow<'r>]) -> Section<'r> {
    type GoalRow<'r> = (String, Goal<'r>);
    fn pps<'r>(title: &'static str, of: fn(&Goal<'r>) -> Option<f64>) -> Column<'r, GoalRow<'r>> {
        Column::figure(title, move |(_, goal): &GoalRow<'r>| {
            of(goal).map_or(Value::Missing, |pps| Value::Formatted(rate(pps), Some(pps)))
        })
        .people(1)
    }
    let columns = || {
        vec![
            Column::text("", |(arm, _): &GoalRow<'r>| arm.clone()).letters(NAME_LETTERS).people(0),
            Column::figure("loses at most", |(_, goal): &GoalRow<'r>| {
                Value::Formatted(format!("{} %", goal.loss_ratio * 100.0), None)
            })
            .people(1),
            pps("packets/s", |goal| goal.throughput_pps),
            pps("carried up to", |goal| goal.lower_pps),
            pps("not from", |goal| goal.upper_pps),
            Column::figure("trials", |(_, goal): &GoalRow<'r>| {
                Value::Formatted(goal.trials.to_string(), None)
            })
            .people(1),
            Column::text("", |(_, goal): &GoalRow<'r>| goal.irregular.unwrap_or_default().into())
                .letters(NAME_LETTERS)
                .people(1),
        ]
    };
    let goals = arms.iter().flat_map(|arm| {
        let name = &arm.arm.name;
        arm.goals.iter().map(move |goal| (name.clone(), goal.clone()))
    });
    let goals: Vec<GoalRow<'r>> = goals.collect();
    Section::rows(NAME_LETTERS, move |_| Table::new(columns(), goals.clone()).flush())
        .heading("the largest load that is carried (RFC 9971)")
        // They are among the page's rates.
        .drawn(Vec::new)
}

/// The results of a search for an arm, by goal.
pub(super) fn goals(recording: &Recording, arm: u32) -> Vec<Goal<'_>> {
    let of_arm = |quantity: &Declared, goal: u32| {
        let mut all = recording.scalars_of(quantity);
        let found = all.find(|s| s.of == Subject::Arm(arm) && s.item.number == Some(goal));
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
            irregular: notes.and_then(|n| n.irregular.get(&number)).map(String::as_str),
        })
    };
    (0..).map_while(goal).collect()
}
