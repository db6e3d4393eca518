//! The search itself, wherever it measures.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use netplumb_engine::EngineError;
use netplumb_model::tune::{
    Choice, Confirmed, Dimension, Goal, Hold, Setting, SettingsBlocks, Tried, Tuned, chosen,
    name_of,
};
use netplumb_stats::halving::{Halving, Point, SearchResult, front};
use netplumb_stats::judge::MIN_BLOCKS;
use netplumb_stats::welch::Mean;

use super::TuneArgs;

/// Maximum number of settings that are shown in addition to the best and the default.
const FRONT_MOST: usize = 12;
/// The same where they are measured once more.
const CONFIRMED_MOST: usize = 3;

/// Where it is measured.
pub(super) trait Place {
    /// Measure points, which take turns, for longer the larger the scale is; none for a point that a device refuses. A
    /// refused default is an error.
    fn measure(
        &mut self,
        points: &[Point],
        scale: u32,
    ) -> Result<Vec<Option<SettingsBlocks>>, EngineError>;
}

/// Settings that devices refused during the search: levels of dimensions, and combinations of levels that each were
/// accepted.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    levels: BTreeSet<(usize, usize)>,
    points: BTreeSet<Point>,
    accepted: BTreeSet<(usize, usize)>,
    /// A sentence each.
    pub(super) why: Vec<String>,
}

/// Its levels that are not the default.
fn set(point: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let levels = point.iter().copied().enumerate();
    levels.filter(|(_, level)| *level != 0)
}

impl LeftOut {
    /// Refusals before the search, which are in none of its dimensions.
    pub(super) fn before(why: Vec<String>) -> LeftOut {
        LeftOut { why, ..LeftOut::default() }
    }

    /// Whether a point has a refused level or is a refused combination.
    pub(super) fn has(&self, point: &[usize]) -> bool {
        self.points.contains(point) || set(point).any(|level| self.levels.contains(&level))
    }

    /// A point was measured.
    pub(super) fn accept(&mut self, point: &[usize]) {
        self.accepted.extend(set(point));
    }

    /// A point was refused. If all but one of its levels were accepted in others, it is that one.
    pub(super) fn refuse(&mut self, dimensions: &[Dimension], point: &[usize], why: &str) {
        let unknown: Vec<(usize, usize)> =
            set(point).filter(|level| !self.accepted.contains(level)).collect();
        let name = match unknown[..] {
            [(dimension, level)] => {
                self.levels.insert((dimension, level));
                dimensions[dimension][level].name.clone()
            }
            _ => {
                self.points.insert(point.to_vec());
                name_of(&chosen(dimensions, point))
            }
        };
        self.why.push(format!("{name}: {why}"));
    }

    /// How many combinations there are without the levels that were refused.
    fn possible(&self, dimensions: &[Dimension]) -> usize {
        let left = |(number, levels): (usize, &Dimension)| {
            let refused = self.levels.iter().filter(|level| level.0 == number);
            levels.len() - refused.count()
        };
        dimensions.iter().enumerate().map(left).product()
    }
}

/// Searches the combinations of an interface's settings.
pub(super) struct Search<'a> {
    pub(super) args: &'a TuneArgs,
    pub(super) dimensions: &'a [Dimension],
    /// Whether figures differ from run to run.
    pub(super) varies: bool,
}

impl Search<'_> {
    pub(super) fn settings(&self, point: &[usize]) -> Vec<Setting> {
        chosen(self.dimensions, point)
    }

    pub(super) fn run(
        &self,
        place: &mut dyn Place,
    ) -> Result<SearchResult<SettingsBlocks>, EngineError> {
        let levels: Vec<usize> = self.dimensions.iter().map(Vec::len).collect();
        let halving = Halving {
            levels: &levels,
            candidates: self.args.candidates as usize,
            // Varying figures are only compared with ones measured at the same time.
            at_once: if self.varies { usize::MAX } else { 4 },
            varies: self.varies,
            seed: 1,
        };
        let begun = Instant::now();
        let budget: Duration = self.args.budget.0;
        halving.search(
            &|a, b| order(&self.args.hold, self.args.goal, a, b),
            &mut || begun.elapsed() < budget,
            &mut |points, scale| place.measure(points, scale),
        )
    }

    /// The best, the default, and those that no other beats, among the ones measured the longest; the best by goal
    /// first.
    pub(super) fn last(&self, found: &SearchResult<SettingsBlocks>) -> Vec<usize> {
        let longest: Vec<(usize, Vec<f64>)> = (found.longest())
            .map(|(number, tried)| {
                let costs = Goal::ALL.iter().map(|goal| tried.measured.cost(*goal));
                (number, costs.collect())
            })
            .collect();
        let costs: Vec<Vec<f64>> = longest.iter().map(|(_, costs)| costs.clone()).collect();
        let mut last: Vec<usize> = front(&costs).into_iter().map(|n| longest[n].0).collect();
        let by = |a: &usize, b: &usize| {
            let of = |n: usize| &found.tried[n].measured;
            order(&self.args.hold, self.args.goal, of(*a), of(*b)).then(a.cmp(b))
        };
        last.sort_by(by);
        last.truncate(if self.varies { CONFIRMED_MOST } else { FRONT_MOST });
        last.extend([0, found.best]);
        last.sort_by(by);
        last.dedup();
        last
    }

    /// The result, with the last ones' figures from since then.
    pub(super) fn tuned(
        &self,
        found: &SearchResult<SettingsBlocks>,
        last: &[usize],
        again: Option<&[SettingsBlocks]>,
        at: Tried,
        nic: &str,
        left_out: LeftOut,
    ) -> Tuned {
        let choice = |at: usize| {
            let tried = &found.tried[last[at]];
            let measured = again.map_or(&tried.measured, |again| &again[at]);
            Choice { settings: self.settings(&tried.point), measured: measured.clone() }
        };
        // It was chosen before it was measured again: chance that favoured it then does not now.
        let of = |number: usize| last.iter().position(|n| *n == number).unwrap_or(0);
        let (default, best) = (choice(of(0)), choice(of(found.best)));
        let confirmed =
            again.and_then(|_| confirm(self.args.goal, &default.measured, &best.measured));
        Tuned {
            goal: self.args.goal,
            hold: self.args.hold.clone(),
            at,
            default: default.measured,
            best,
            confirmed,
            front: (0..last.len()).map(choice).collect(),
            tried: found.tried.len(),
            possible: left_out.possible(self.dimensions),
            ended_early: found.ended_early,
            nic: nic.into(),
            left_out: left_out.why,
            kept: None,
        }
    }
}

/// The last ones, by their places, that are still on the front after they were measured again, and always the ones with
/// the numbers `always`: what is shown, recorded and written.
pub(super) fn unbeaten(
    hold: &[Hold],
    always: [usize; 2],
    last: &[usize],
    again: &[SettingsBlocks],
) -> Vec<usize> {
    let stays = |at: &usize| always.contains(&last[*at]) || !is_beaten(hold, &again[*at], again);
    (0..last.len()).filter(stays).collect()
}

/// The items at some places.
pub(super) fn of_places<T: Clone>(places: &[usize], all: &[T]) -> Vec<T> {
    places.iter().map(|at| all[*at].clone()).collect()
}

/// Points that meet the conditions come first, then by goal.
fn order(hold: &[Hold], goal: Goal, a: &SettingsBlocks, b: &SettingsBlocks) -> Ordering {
    let by_goal = || a.cost(goal).total_cmp(&b.cost(goal));
    missed(hold, a).total_cmp(&missed(hold, b)).then_with(by_goal)
}

/// How much a point misses the conditions by; 0 if it meets all.
fn missed(hold: &[Hold], measured: &SettingsBlocks) -> f64 {
    hold.iter().map(|hold| hold.missed(measured)).sum()
}

/// Whether the best differs from the default by more than chance: by the ratios of the runs of each turn, which share
/// what else the machine did. Their logarithm varies alike in both directions.
fn confirm(goal: Goal, default: &SettingsBlocks, best: &SettingsBlocks) -> Option<Confirmed> {
    let (before, after) = (default.values(goal), best.values(goal));
    let logarithms: Vec<f64> = (before.iter().zip(&after))
        .filter(|(before, after)| **before > 0.0 && **after > 0.0)
        .map(|(before, after)| (after / before).ln())
        .collect();
    let mean = Mean::from_values(&logarithms)?;
    let (low, high) = (mean.low?, mean.high?);
    let is_better = match goal {
        Goal::Throughput => low > 0.0,
        Goal::Latency | Goal::Cpu => high < 0.0,
    };
    Some(Confirmed {
        ratio: [mean.value, low, high].map(f64::exp),
        is_better: is_better && logarithms.len() >= MIN_BLOCKS,
        blocks: logarithms.len(),
    })
}

/// Whether one of them is better in some respect by more than chance, and worse in none, and meets the conditions that
/// this one meets.
fn is_beaten(hold: &[Hold], this: &SettingsBlocks, others: &[SettingsBlocks]) -> bool {
    let better = |goal: Goal, this: &SettingsBlocks, other: &SettingsBlocks| {
        confirm(goal, this, other).is_some_and(|confirmed| confirmed.is_better)
    };
    others.iter().any(|other| {
        let goals = || Goal::ALL.iter().copied();
        missed(hold, other) <= missed(hold, this)
            && goals().any(|goal| better(goal, this, other))
            && !goals().any(|goal| better(goal, other, this))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_model::tune::{Figures, of_namespaces};

    fn measured(throughputs: &[f64]) -> SettingsBlocks {
        let figures = |bps: &f64| Figures {
            throughput_bps: *bps,
            latency_ns: 1.0,
            busy: [0.5, 0.5],
            cpus: 1.0,
        };
        SettingsBlocks { blocks: throughputs.iter().map(figures).collect() }
    }

    /// Check that a level which a device refuses is known from the first point that has no other unknown one, and is
    /// named once; and that for accepted levels only their combination is refused.
    #[test]
    fn what_devices_refuse() {
        let dimensions = of_namespaces();
        let mut left_out = LeftOut::default();
        left_out.accept(&[1, 0, 0, 0, 2]);
        left_out.refuse(&dimensions, &[1, 0, 0, 1, 0], "the driver refuses it");
        assert!(left_out.has(&[0, 1, 0, 1, 3]) && !left_out.has(&[1, 0, 0, 0, 2]));
        assert_eq!(left_out.why, ["MTU of 9000: the driver refuses it"]);
        left_out.refuse(&dimensions, &[0, 1, 1, 0, 0], "not together");
        assert!(left_out.has(&[0, 1, 1, 0, 0]) && !left_out.has(&[0, 1, 0, 0, 0]));
        assert_eq!(left_out.why[1], "GRO, no checksum offload: not together");
        let all: usize = dimensions.iter().map(Vec::len).product();
        assert_eq!(left_out.possible(&dimensions), all / 2);
    }

    /// Check that among those measured again the beaten ones go, and the best and the default stay.
    #[test]
    fn what_stays() {
        let again = [
            measured(&[150.0, 148.0, 153.0, 149.0, 151.0]),
            measured(&[50.0, 48.0, 53.0, 49.0, 51.0]),
            measured(&[25.0, 26.0, 24.0, 25.5, 24.5]),
        ];
        // The best is the first of them, and the default the last.
        let places = unbeaten(&[], [0, 7], &[7, 3, 0], &again);
        assert_eq!(places, [0, 2]);
        assert_eq!(of_places(&places, &["best", "beaten", "default"]), ["best", "default"]);
    }

    /// Check that a gain within chance does not count, but one beyond does, and that a loss is not
    /// a gain.
    #[test]
    fn gains() {
        let default = measured(&[100.0, 104.0, 97.0, 101.0, 99.0]);
        // A machine that is slow now and then is so for both.
        let of = [100.0, 20.0, 97.0, 30.0, 99.0];
        let uneven = confirm(
            Goal::Throughput,
            &measured(&of),
            &measured(&of.map(|bps| bps * 1.5 + bps % 7.0)),
        );
        assert!(uneven.unwrap().is_better, "{uneven:?}");
        for (best, is_better) in [
            (measured(&[103.0, 98.0, 101.0, 99.0, 102.0]), false),
            (measured(&[150.0, 148.0, 153.0, 149.0, 151.0]), true),
            (measured(&[50.0, 48.0, 53.0, 49.0, 51.0]), false),
        ] {
            let confirmed = confirm(Goal::Throughput, &default, &best).unwrap();
            assert_eq!(confirmed.is_better, is_better, "{confirmed:?}");
            assert!(
                confirmed.ratio[1] <= confirmed.ratio[0]
                    && confirmed.ratio[0] <= confirmed.ratio[2]
            );
        }
    }

    /// Check that a plainly worse point is beaten, though it was ahead by chance in another respect, and that equals
    /// are not.
    #[test]
    fn beaten_by_more_than_chance() {
        let latency = |mut measured: SettingsBlocks, ns: [f64; 5]| {
            for (block, ns) in measured.blocks.iter_mut().zip(ns) {
                block.latency_ns = ns;
            }
            measured
        };
        let fast = measured(&[100.0, 104.0, 97.0, 101.0, 99.0]);
        let fast = latency(fast, [20.1, 19.9, 20.0, 20.2, 19.8]);
        let slow = measured(&[25.0, 26.0, 24.0, 25.5, 24.5]);
        let by_chance = latency(slow.clone(), [19.9, 20.0, 19.8, 20.1, 19.9]);
        let sooner = latency(slow, [10.0, 10.1, 9.9, 10.2, 9.8]);
        let all = [fast.clone(), by_chance.clone()];
        assert!(is_beaten(&[], &by_chance, &all) && !is_beaten(&[], &fast, &all));
        assert!(!is_beaten(&[], &sooner, &[fast.clone(), sooner.clone()]));
        assert!(!is_beaten(&[], &fast, &[fast.clone(), fast.clone()]));
        // A point that meets the conditions is not beaten by one that does not.
        let hold = ["latency<20us".parse().unwrap()];
        let within = latency(by_chance.clone(), [19.9e3; 5]);
        let over = latency(fast.clone(), [20.1e3; 5]);
        assert!(!is_beaten(&hold, &within, &[over]));
    }

    /// Check that points that meet the conditions come first, whatever the goal.
    #[test]
    fn what_holds_comes_first() {
        let hold = ["throughput>900M".parse().unwrap()];
        let (less, more) = (measured(&[800e6]), measured(&[950e6]));
        assert_eq!(order(&hold, Goal::Latency, &more, &less), Ordering::Less);
        assert_eq!(order(&[], Goal::Latency, &more, &less), Ordering::Equal);
    }
}
