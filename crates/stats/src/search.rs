//! The highest load within the loss ratio of a goal: Multiple Loss Ratio Search, RFC 9971. Names
//! and cited sections are the RFC's.
//!
//! This is its Controller: it chooses the next trial, processes its result, and returns the bounds
//! in the end. The classification of loads is defined by the RFC (its Appendix A), which makes
//! results comparable; the choice of loads is left to the Controller: see [`Search`].

mod classify;

use std::collections::BTreeMap;

pub use classify::{Class, classify, conditional_pps};

/// A goal of the search (RFC 9971, "Search Goal").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Maximum loss ratio of a trial ("Goal Loss Ratio"): from 0 to below 1.
    pub loss_ratio: f64,
    /// Share of the time in which the loss ratio may be exceeded ("Goal Exceed Ratio"): from 0 to
    /// below 1. Above 0, a single bad trial does not decide.
    pub exceed_ratio: f64,
    /// Duration of a full-length trial, in seconds ("Goal Final Trial Duration").
    pub final_trial_s: f64,
    /// Maximum time to classify a load, in seconds ("Goal Duration Sum"); at least a trial's.
    pub duration_sum_s: f64,
    /// Duration of the first trials, in seconds ("Goal Initial Trial Duration"); at most the final trials'.
    pub initial_trial_s: f64,
    /// Maximum final distance of the bounds, as a share of the upper one ("Goal Width").
    pub width: f64,
}

impl Goal {
    /// The throughput of RFC 2544, section 26.1, as in RFC 9971 ("MLRsearch Compliant with RFC 2544"): no loss in a
    /// single trial of 60 s.
    pub fn rfc2544() -> Goal {
        Goal {
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            final_trial_s: 60.0,
            duration_sum_s: 60.0,
            initial_trial_s: 1.0,
            width: 0.005,
        }
    }

    /// For software on a machine with other load: trials of a second; most have to meet the loss ratio.
    pub fn repeated(loss_ratio: f64) -> Goal {
        Goal {
            loss_ratio,
            exceed_ratio: 0.5,
            final_trial_s: 1.0,
            duration_sum_s: 5.0,
            initial_trial_s: 0.25,
            width: 0.01,
        }
    }

    fn is_sound(&self) -> bool {
        (0.0..1.0).contains(&self.loss_ratio)
            && (0.0..1.0).contains(&self.exceed_ratio)
            && self.initial_trial_s > 0.0
            && self.final_trial_s >= self.initial_trial_s
            && self.duration_sum_s >= self.final_trial_s
            && self.duration_sum_s.is_finite()
            && self.width > 0.0
            && self.width < 1.0
    }
}

/// Why a search can't be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchError {
    /// The lowest load is not above 0, or the highest not above the lowest.
    Loads,
    /// The goals are missing or inconsistent.
    Goals,
}

impl std::fmt::Display for SearchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SearchError::Loads => {
                "invalid range of loads; expected at least 1 packet/s, and a maximum above the \
                 minimum"
            }
            SearchError::Goals => {
                "invalid goal; expected ratios of at least 0 and below 1, a width above 0, an \
                 initial trial no longer than the final one, and a sum of durations no shorter \
                 than that"
            }
        })
    }
}

impl std::error::Error for SearchError {}

/// A trial to measure (RFC 9971, "Trial Input").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The load to offer, in packets per second, by all senders together.
    pub load_pps: f64,
    /// The duration, in seconds.
    pub duration_s: f64,
}

/// The result of a trial (RFC 9971, "Trial Output").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialResult {
    /// The loss ratio.
    pub loss_ratio: f64,
    /// Its duration including overhead, in seconds ("Trial Effective Duration").
    pub effective_s: f64,
}

impl TrialResult {
    /// From counts. What the sender could not offer counts as lost, as the RFC recommends
    /// ("Measurer").
    pub fn from_counts(trial: Trial, forwarded: u64, effective_s: f64) -> TrialResult {
        let intended = trial.load_pps * trial.duration_s;
        let loss_ratio = match intended > 0.0 {
            true => (1.0 - forwarded as f64 / intended).clamp(0.0, 1.0),
            false => 1.0,
        };
        // Losses below one packet are ignored: a load is rarely a whole number of packets.
        let lost = loss_ratio * intended;
        TrialResult { loss_ratio: if lost < 1.0 { 0.0 } else { loss_ratio }, effective_s }
    }
}

/// A trial with its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTrial {
    /// The load and duration that were tried.
    pub trial: Trial,
    /// Its loss ratio and effective duration.
    pub result: TrialResult,
}

/// Why a goal's result is not a regular one (RFC 9971, "Irregular Goal Result").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irregular {
    /// Even the highest load meets the goal: the limit is above it.
    HighestCarried,
    /// Even the lowest load exceeds the goal.
    LowestLost,
    /// The search was stopped before it was found.
    NotFound,
}

/// The result for a goal (RFC 9971, "Goal Result").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalResult {
    /// The highest load below the upper bound that meets the goal ("Relevant Lower Bound"). For an
    /// irregular result the highest that meets it, if any.
    pub lower_pps: Option<f64>,
    /// The lowest load that does not ("Relevant Upper Bound").
    pub upper_pps: Option<f64>,
    /// The forwarding rate at the lower bound ("Conditional Throughput"): the figure for
    /// comparisons.
    pub conditional_pps: Option<f64>,
    /// None for a regular result.
    pub irregular: Option<Irregular>,
}

/// Maximum number of trials, far more than any search needs.
const MOST_TRIALS: usize = 2_000;
/// Phases before the last, if a goal's first trials are shorter than its final ones.
const EARLIER_PHASES: u32 = 2;

/// The state of a search.
///
/// It processes the goals in order, and each in phases of longer trials and narrower bounds: short
/// trials find the region, and only the rest is measured with long ones. In each phase it moves up
/// from a lower bound, or down from an upper bound, in steps that double, and bisects when there
/// are two bounds. All trials count for all goals.
#[derive(Debug, Clone)]
pub struct Search {
    goals: Vec<Goal>,
    min_pps: f64,
    max_pps: f64,
    /// By load: the bits of positive numbers have the same order.
    trials: BTreeMap<u64, Vec<MeasuredTrial>>,
    count: usize,
    goal: usize,
    phase: u32,
    /// The load that is being measured until it is classified.
    focus: Option<f64>,
    /// Number of steps in this phase, which determines their size.
    steps: i32,
    /// Bounds of the phase before.
    hints: (Option<f64>, Option<f64>),
}

impl Search {
    /// Start a search between two loads, in packets per second. Goals should be in the order of
    /// their loss ratios.
    ///
    /// # Errors
    /// The loads or goals are invalid.
    pub fn new(goals: Vec<Goal>, min_pps: f64, max_pps: f64) -> Result<Search, SearchError> {
        let (min_pps, max_pps) = (min_pps.round(), max_pps.round());
        if !(min_pps >= 1.0 && max_pps > min_pps && max_pps.is_finite()) {
            return Err(SearchError::Loads);
        }
        if goals.is_empty() || !goals.iter().all(Goal::is_sound) {
            return Err(SearchError::Goals);
        }
        Ok(Search {
            goals,
            min_pps,
            max_pps,
            trials: BTreeMap::new(),
            count: 0,
            goal: 0,
            phase: 0,
            focus: None,
            steps: 0,
            hints: (None, None),
        })
    }

    /// The next trial; none when the search is complete.
    pub fn next_trial(&mut self) -> Option<Trial> {
        loop {
            let goal = self.current()?;
            if self.count >= MOST_TRIALS {
                return None;
            }
            let decided = |load: f64| self.class(load, &goal) != Class::Undecided;
            let load = match self.focus.filter(|load| !decided(*load)) {
                Some(load) => Some(load),
                None => self.choose(&goal),
            };
            if let Some(load_pps) = load {
                self.focus = load;
                return Some(Trial { load_pps, duration_s: goal.final_trial_s });
            }
            self.turn(&goal);
        }
    }

    /// Add the result of a trial.
    pub fn record(&mut self, trial: Trial, result: TrialResult) {
        self.count += 1;
        let at = self.trials.entry(trial.load_pps.to_bits()).or_default();
        at.push(MeasuredTrial { trial, result });
    }

    /// Every trial so far, by load.
    pub fn trials(&self) -> impl Iterator<Item = &MeasuredTrial> {
        self.trials.values().flatten()
    }

    /// The current result for each goal, in their order; final when no trial follows.
    pub fn result(&self) -> Vec<GoalResult> {
        self.goals.iter().map(|goal| self.result_for(goal)).collect()
    }

    fn result_for(&self, goal: &Goal) -> GoalResult {
        let (lower, upper) = self.bounds(goal);
        let irregular = match (lower, upper) {
            (Some(lower), Some(upper)) if is_narrow(lower, upper, goal.width) => None,
            (Some(lower), None) if lower >= self.max_pps => Some(Irregular::HighestCarried),
            (None, Some(upper)) if upper <= self.min_pps => Some(Irregular::LowestLost),
            _ => Some(Irregular::NotFound),
        };
        GoalResult {
            lower_pps: lower,
            upper_pps: upper,
            conditional_pps: lower.map(|load| conditional_pps(load, self.at(load), goal)),
            irregular,
        }
    }

    /// The goal with the settings of this phase; none when all are complete.
    fn current(&self) -> Option<Goal> {
        let goal = *self.goals.get(self.goal)?;
        let left = self.phases().saturating_sub(1 + self.phase);
        if left == 0 {
            return Some(goal);
        }
        // Between the initial trials and the final ones in equal steps of a ratio.
        let share = f64::from(left) / f64::from(EARLIER_PHASES);
        let shorter = (goal.initial_trial_s / goal.final_trial_s).powf(share);
        Some(Goal {
            final_trial_s: goal.final_trial_s * shorter,
            duration_sum_s: goal.duration_sum_s * shorter,
            width: (goal.width * f64::from(1_u32 << left)).min(0.5),
            ..goal
        })
    }

    fn phases(&self) -> u32 {
        let goal = self.goals.get(self.goal);
        let is_staged = goal.is_some_and(|g| g.initial_trial_s < g.final_trial_s);
        1 + if is_staged { EARLIER_PHASES } else { 0 }
    }

    /// Go to the next phase, or to the next goal.
    fn turn(&mut self, goal: &Goal) {
        self.hints = self.bounds(goal);
        self.focus = None;
        self.steps = 0;
        self.phase += 1;
        if self.phase >= self.phases() {
            self.goal += 1;
            self.phase = 0;
        }
    }

    fn at(&self, load: f64) -> &[MeasuredTrial] {
        let at = self.trials.get(&load.to_bits());
        at.map_or(&[], Vec::as_slice)
    }

    fn class(&self, load: f64, goal: &Goal) -> Class {
        classify(self.at(load), goal)
    }

    /// The relevant bounds. There may be a lower one without an upper one.
    fn bounds(&self, goal: &Goal) -> (Option<f64>, Option<f64>) {
        let mut lower = None;
        for (load, trials) in &self.trials {
            let load = f64::from_bits(*load);
            match classify(trials, goal) {
                Class::Upper => return (lower, Some(load)),
                Class::Lower => lower = Some(load),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }

    /// The next load of this phase; none when it is complete.
    fn choose(&mut self, goal: &Goal) -> Option<f64> {
        let open = |load: &f64| self.class(*load, goal) == Class::Undecided;
        match self.bounds(goal) {
            (None, None) => Some(self.first(goal)),
            (None, Some(upper)) => {
                let hint = self.hints.0.or_else(|| self.carried_at_most());
                let hint = hint.filter(|load| *load < upper && open(load));
                let at_end = upper <= self.min_pps;
                hint.or_else(|| (!at_end).then(|| self.step(upper, goal, -1.0)))
            }
            (Some(lower), None) => {
                let hint = self.hints.1.filter(|load| *load > lower && open(load));
                let at_end = lower >= self.max_pps;
                hint.or_else(|| (!at_end).then(|| self.step(lower, goal, 1.0)))
            }
            (Some(lower), Some(upper)) => {
                let middle = (lower * upper).sqrt().round();
                let is_between = lower < middle && middle < upper;
                (is_between && !is_narrow(lower, upper, goal.width)).then_some(middle)
            }
        }
    }

    /// The first load of a phase without bounds.
    fn first(&self, goal: &Goal) -> f64 {
        if let Some(hint) = self.hints.0.or(self.hints.1) {
            return hint;
        }
        // The highest load first: its forwarding rate is close to the limit.
        let at_most = self.at(self.max_pps);
        let is_low = |m: &MeasuredTrial| m.result.loss_ratio <= goal.loss_ratio;
        match self.carried_at_most() {
            Some(carried) if !at_most.iter().all(is_low) => carried,
            _ => self.max_pps,
        }
    }

    /// The mean forwarding rate at the highest load.
    fn carried_at_most(&self) -> Option<f64> {
        let at_most = self.at(self.max_pps);
        let lost: f64 = at_most.iter().map(|m| m.result.loss_ratio).sum();
        let carried = self.max_pps * (1.0 - lost / at_most.len().max(1) as f64);
        let carried = carried.round().clamp(self.min_pps, self.max_pps);
        (!at_most.is_empty()).then_some(carried)
    }

    /// A step from a bound, up or down; the next one is twice as large.
    fn step(&mut self, from: f64, goal: &Goal, direction: f64) -> f64 {
        let doubled = 2_f64.powi(self.steps.min(30));
        self.steps += 1;
        let factor = (1.0 - goal.width).powf(-direction * doubled);
        let to = (from * factor).round().clamp(self.min_pps, self.max_pps);
        // Never the same load again, if a step is less than a packet.
        match to == from {
            true => from + direction,
            false => to,
        }
    }
}

/// Whether the bounds are as close as the goal requires, or as whole packets allow.
fn is_narrow(lower: f64, upper: f64, width: f64) -> bool {
    upper - lower <= (width * upper).max(1.0)
}

#[cfg(test)]
mod tests;
