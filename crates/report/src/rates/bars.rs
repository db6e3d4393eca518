//! Every arm of a bench on the page: its bar, its line of the table, its footnotes.

use std::cmp::Ordering;
use std::rc::Rc;

use netplumb_model::bench::CpuUse;

use super::columns::{columns, mark, some_lost, state};
use super::{ArmRates, ArmRow, bound_share, latency};
use crate::number::{printable, thousands};
use crate::page::{PageArm, PageArmState, PageCell, PageNote, PageRates};
use crate::table::Table;

const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 600;

/// The rates of some arms, and the results of searches for others.
pub(super) fn rates(arms: &[ArmRow<'_>], searched: &[ArmRow<'_>]) -> PageRates {
    let mut rows: Vec<PageArm> = arms.iter().map(of_arm).collect();
    rows.extend(searched.iter().flat_map(|arm| found(arm)));
    rows.sort_by(first);
    let mut notes = Notes::default();
    for arm in arms.iter().chain(searched) {
        notes.add_arm(arm, searched.iter().any(|s| Rc::ptr_eq(s, arm)));
    }
    PageRates {
        title: match searched.is_empty() || !arms.is_empty() {
            true => "Packets handled each second, with the 95 % interval".into(),
            false => "The largest load that is carried (RFC 9971)".into(),
        },
        columns: Table::new(columns(), []).page_columns(),
        arms: rows,
        notes: notes.all,
    }
}

/// Invalid arms first, then arms that lost packets; arms that could not run here are last.
fn first(a: &PageArm, b: &PageArm) -> Ordering {
    let rank = |arm: &PageArm| match arm.state {
        PageArmState::Invalid => 0,
        PageArmState::Measured if arm.lost > 0.0 => 1,
        PageArmState::Measured => 2,
        PageArmState::Absent => 3,
    };
    let pps = |arm: &PageArm| arm.pps.unwrap_or(0.0);
    (rank(a).cmp(&rank(b)))
        .then_with(|| b.lost.total_cmp(&a.lost))
        .then_with(|| pps(b).total_cmp(&pps(a)))
}

fn of_arm(arm: &ArmRow<'_>) -> PageArm {
    let mean = arm.handled_pps();
    PageArm {
        name: printable(&arm.arm.name, NAME_LETTERS),
        state: state(arm),
        pps: mean.map(|m| m.value),
        low: mean.and_then(|m| m.low).map(|low| low.max(0.0)),
        high: mean.and_then(|m| m.high),
        lost: some_lost(arm),
        mark: mark(arm),
        cells: Table::new(columns(), [arm.clone()]).page_rows().pop().unwrap_or_default(),
    }
}

/// The result of a search: the interval is between a load that was carried and one that was not.
fn found(arm: &ArmRates<'_>) -> Vec<PageArm> {
    (arm.goals.iter())
        .map(|goal| {
            let lost = goal.loss_ratio * 100.0;
            let pps = goal.throughput_pps;
            let mut mark = format!("with {lost} % lost at most");
            if let Some(why) = goal.irregular {
                mark.push_str(&format!(": {}", printable(why, NAME_LETTERS)));
            }
            let rate = |pps: Option<f64>| pps.map_or("-".into(), crate::number::rate);
            let cell = |text: String, value: Option<f64>| PageCell { text, value, off: false };
            let (low, high) = (goal.lower_pps, goal.upper_pps);
            let name = printable(&format!("{}, {lost} % lost", arm.arm.name), NAME_LETTERS);
            PageArm {
                state: match pps {
                    Some(_) => PageArmState::Measured,
                    None => PageArmState::Invalid,
                },
                pps,
                low,
                high,
                lost: 0.0,
                cells: vec![
                    cell(name.clone(), None),
                    cell(rate(pps), pps),
                    cell(format!("{} to {}", rate(low), rate(high)), None),
                    cell("-".into(), None),
                    cell(format!("{lost} % at most"), Some(lost / 100.0)),
                    cell("-".into(), None),
                    cell(mark.clone(), None),
                ],
                name,
                mark,
            }
        })
        .collect()
}

/// Footnotes, each once for all of its arms.
#[derive(Default)]
struct Notes {
    all: Vec<PageNote>,
}

impl Notes {
    fn add(&mut self, arm: &ArmRates<'_>, text: String) {
        let name = printable(&arm.arm.name, NAME_LETTERS);
        let text = printable(&text, TEXT_LETTERS);
        match self.all.iter_mut().find(|note| note.text == text) {
            Some(note) if note.arms.contains(&name) => {}
            Some(note) => note.arms.push(name),
            None => self.all.push(PageNote { arms: vec![name], text }),
        }
    }

    fn add_arm(&mut self, arm: &ArmRates<'_>, searched: bool) {
        let blocks: usize = arm.invalid.values().sum();
        // Trials lose packets on purpose.
        if let (Some(why), false) = (arm.invalid.keys().next(), searched) {
            let word = match (blocks, arm.invalid.len()) {
                (1, _) => "1 block invalid".into(),
                (_, 1) => format!("{blocks} blocks invalid"),
                _ => format!("{blocks} blocks invalid; one of them"),
            };
            self.add(arm, format!("{word}: {why}"));
        }
        if let Some(diagnosis) = arm.diagnosis {
            self.add(arm, format!("where they went: {diagnosis}"));
        }
        if let Some(why) = arm.failed {
            self.add(arm, format!("not measured: {why}"));
        }
        if searched {
            return;
        }
        for hop in arm.hops() {
            for (cause, n) in hop.dropped.iter().filter(|(_, n)| **n > 0) {
                self.add(
                    arm,
                    format!(
                        "{} of {} lost, {}: {cause}",
                        thousands(*n),
                        thousands(hop.entered),
                        hop.name
                    ),
                );
            }
        }
        if arm.is_generator_bound() {
            self.add(
                arm,
                format!(
                    "generator-bound: within {} of what the generator makes by itself: the path may \
                     be faster",
                    bound_share()
                ),
            );
        }
        if arm.cpus().iter().any(CpuUse::is_doubtful) {
            self.add(
                arm,
                "`?`: two ways of telling how busy a CPU was disagree by more than 2 points".into(),
            );
        }
        if arm.lacks_latency() {
            self.add(arm, latency::ABSENT.into());
        }
    }
}
