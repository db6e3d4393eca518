//! The largest load that loses no more than a goal allows: Multiple Loss Ratio Search,
//! RFC 9971. The names are the RFC's, and so are the sections that are cited.
//!
//! This is its Controller: it says which trial is to be measured next, takes in what
//! came of it, and tells the bounds in the end. How loads are classified is what the
//! RFC lays down (its Appendix A) and makes results comparable; which loads are tried is
//! left to the Controller: see [`Search`].

mod classify;

use std::collections::BTreeMap;

pub use classify::{Class, classify, conditional_pps};

/// What is to be found (RFC 9971, "Search Goal").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Share of packets that may be lost in a trial ("Goal Loss Ratio"): from 0 to below 1.
    pub loss_ratio: f64,
    /// Share of the time in which more may be lost ("Goal Exceed Ratio"): from 0 to below
    /// 1. With more than none, a single bad trial does not decide.
    pub exceed_ratio: f64,
    /// How long a trial is that counts in full, seconds ("Goal Final Trial Duration").
    pub final_trial_s: f64,
    /// How long a load is measured at most until it is decided, seconds ("Goal Duration
    /// Sum"); no less than a trial.
    pub duration_sum_s: f64,
    /// How long the first trials are, seconds ("Goal Initial Trial Duration"); no longer
    /// than the final ones.
    pub initial_trial_s: f64,
    /// How far the bounds may be apart in the end, as a share of the upper one ("Goal
    /// Width").
    pub width: f64,
}

impl Goal {
    /// The throughput of RFC 2544, section 26.1, as RFC 9971 has it ("MLRsearch Compliant
    /// with RFC 2544"): no loss in a single trial of 60 s.
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

    /// For software on a machine with other work: trials of a second, most of which hold
    /// the loss ratio.
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

/// Why a search can't begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchError {
    /// The lowest load is not above 0, or the highest not above the lowest.
    Loads,
    /// There is no goal, or one whose numbers don't fit together.
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

/// What is to be measured (RFC 9971, "Trial Input").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The load to offer, packets a second by all senders together.
    pub load_pps: f64,
    /// For how long, seconds.
    pub duration_s: f64,
}

/// What came of a trial (RFC 9971, "Trial Output").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialResult {
    /// Share of the packets that was lost.
    pub loss_ratio: f64,
    /// How long it took with all that belongs to it, seconds ("Trial Effective
    /// Duration").
    pub effective_s: f64,
}

impl TrialResult {
    /// From counts. What the sender could not offer counts as lost, as the RFC recommends
    /// ("Measurer"): a load that was not there was not carried.
    pub fn of(trial: Trial, forwarded: u64, effective_s: f64) -> TrialResult {
        let intended = trial.load_pps * trial.duration_s;
        let loss_ratio = match intended > 0.0 {
            true => (1.0 - forwarded as f64 / intended).clamp(0.0, 1.0),
            false => 1.0,
        };
        // Less than a packet is none: a load is seldom a whole number of them.
        let lost = loss_ratio * intended;
        TrialResult {
            loss_ratio: if lost < 1.0 { 0.0 } else { loss_ratio },
            effective_s,
        }
    }
}

/// A trial and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The trial.
    pub trial: Trial,
    /// What came of it.
    pub result: TrialResult,
}

/// Why a goal's result is not a regular one (RFC 9971, "Irregular Goal Result").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irregular {
    /// Not even the highest load is too much: the limit lies above it.
    HighestCarried,
    /// Even the lowest load is too much.
    LowestLost,
    /// It was given up before it was found.
    NotFound,
}

/// What was found for a goal (RFC 9971, "Goal Result").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalResult {
    /// The largest load below the upper bound that is carried ("Relevant Lower Bound").
    /// Of an irregular result the largest that is carried, if there is any.
    pub lower_pps: Option<f64>,
    /// The smallest load that is not ("Relevant Upper Bound").
    pub upper_pps: Option<f64>,
    /// What was carried at the lower bound ("Conditional Throughput"): the figure to
    /// compare by.
    pub conditional_pps: Option<f64>,
    /// None of a regular result.
    pub irregular: Option<Irregular>,
}

/// Trials after which a search is given up, whatever the goals: far more than any takes.
const MOST_TRIALS: usize = 2_000;
/// Phases before the last, where a goal's first trials are shorter than its final ones.
const EARLIER_PHASES: u32 = 2;

/// A search under way.
///
/// It goes through the goals one by one, and for each through phases of longer and
/// longer trials and narrower and narrower bounds: short trials find the region, and only
/// what is left of it is measured at length. In each phase it steps up from what is
/// carried, or down from what is not, in steps that double, and halves what is between
/// the bounds once there are two. All trials count for all goals.
#[derive(Debug, Clone)]
pub struct Search {
    goals: Vec<Goal>,
    min_pps: f64,
    max_pps: f64,
    /// By load: bits of a positive number are ordered as it is.
    trials: BTreeMap<u64, Vec<Measured>>,
    count: usize,
    goal: usize,
    phase: u32,
    /// A load that is being measured until it is decided.
    focus: Option<f64>,
    /// Steps that were made in this phase, which is what they grow by.
    steps: i32,
    /// Bounds of the phase before.
    hints: (Option<f64>, Option<f64>),
}

impl Search {
    /// Begin one between two loads, in packets a second. Goals are best in the order of
    /// their loss ratios.
    ///
    /// # Errors
    /// What is asked for can't be searched for.
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

    /// What to measure next; none when the search is over.
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
                return Some(Trial {
                    load_pps,
                    duration_s: goal.final_trial_s,
                });
            }
            self.turn(&goal);
        }
    }

    /// Take in what came of a trial.
    pub fn record(&mut self, trial: Trial, result: TrialResult) {
        self.count += 1;
        let at = self.trials.entry(trial.load_pps.to_bits()).or_default();
        at.push(Measured { trial, result });
    }

    /// Every trial so far, by load.
    pub fn trials(&self) -> impl Iterator<Item = &Measured> {
        self.trials.values().flatten()
    }

    /// What is known by now for each goal, in their order; it is final when there is
    /// nothing to measure any more.
    pub fn result(&self) -> Vec<GoalResult> {
        self.goals
            .iter()
            .map(|goal| self.result_for(goal))
            .collect()
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

    /// The goal as it is in this phase; none when all are done.
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

    /// On to the next phase, or to the next goal.
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

    fn at(&self, load: f64) -> &[Measured] {
        let at = self.trials.get(&load.to_bits());
        at.map_or(&[], Vec::as_slice)
    }

    fn class(&self, load: f64, goal: &Goal) -> Class {
        classify(self.at(load), goal)
    }

    /// The relevant bounds. The lower one is told without an upper one too.
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

    /// The next load of this phase; none when it is over.
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

    /// Where a phase begins that has no bounds yet.
    fn first(&self, goal: &Goal) -> f64 {
        if let Some(hint) = self.hints.0.or(self.hints.1) {
            return hint;
        }
        // The highest load first: what is carried of it is near to what can be.
        let at_most = self.at(self.max_pps);
        let is_low = |m: &Measured| m.result.loss_ratio <= goal.loss_ratio;
        match self.carried_at_most() {
            Some(carried) if !at_most.iter().all(is_low) => carried,
            _ => self.max_pps,
        }
    }

    /// What was carried of the highest load, on the average.
    fn carried_at_most(&self) -> Option<f64> {
        let at_most = self.at(self.max_pps);
        let lost: f64 = at_most.iter().map(|m| m.result.loss_ratio).sum();
        let carried = self.max_pps * (1.0 - lost / at_most.len().max(1) as f64);
        let carried = carried.round().clamp(self.min_pps, self.max_pps);
        (!at_most.is_empty()).then_some(carried)
    }

    /// A step from a bound, up or down; the next one is twice as long.
    fn step(&mut self, from: f64, goal: &Goal, direction: f64) -> f64 {
        let doubled = 2_f64.powi(self.steps.min(30));
        self.steps += 1;
        let factor = (1.0 - goal.width).powf(-direction * doubled);
        let to = (from * factor).round().clamp(self.min_pps, self.max_pps);
        // Never the same load again, where a step is less than a packet.
        match to == from {
            true => from + direction,
            false => to,
        }
    }
}

/// Whether bounds are as near as a goal asks for, or as whole packets allow.
fn is_narrow(lower: f64, upper: f64, width: f64) -> bool {
    upper - lower <= (width * upper).max(1.0)
}

#[cfg(test)]
mod tests;
