//! The search for good settings by successive halving (Jamieson and Talwalkar, AISTATS 2016): many are
//! measured briefly, the better half of them for twice as long, and so on. Then the best one's neighbours are
//! tried, one setting at a time, until none is better.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A choice: for each dimension the number of a level. All zeros is the default.
pub type Point = Vec<usize>;

/// Measures points, at a scale; none for a point that can't be measured.
type Measure<'m, M, E> = &'m mut dyn FnMut(&[Point], u32) -> Result<Vec<Option<M>>, E>;

/// What to search, and how thoroughly.
#[derive(Debug, Clone, Copy)]
pub struct Halving<'a> {
    /// The number of levels of each dimension.
    pub levels: &'a [usize],
    /// How many points to begin with, the default included.
    pub candidates: usize,
    /// The number of points measured before time is checked again. Points measured together share the machine's state,
    /// and are compared without it.
    pub at_once: usize,
    /// Whether measurements vary: then the best is measured again beside those that may be better.
    pub varies: bool,
    /// The seed of the points drawn.
    pub seed: u64,
}

/// A point that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried<M> {
    /// Its levels, by number.
    pub point: Point,
    /// How long: 1 << scale.
    pub scale: u32,
    /// The measurement, at the largest scale so far.
    pub measured: M,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult<M> {
    /// All that was tried; the default is the first.
    pub tried: Vec<Tried<M>>,
    /// Those that can't be measured, which are not tried again.
    pub left_out: BTreeSet<Point>,
    /// The number of the best point among the longest measured.
    pub best: usize,
    /// The largest scale.
    pub scale: u32,
    /// Whether it was ended before no neighbour was better.
    pub ended_early: bool,
}

/// As many points survive the halving; their neighbours come next.
const SURVIVORS: usize = 3;

impl<M> SearchResult<M> {
    fn number(&self, point: &[usize]) -> Option<usize> {
        self.tried.iter().position(|tried| tried.point == point)
    }

    /// Those that were measured at the largest scale, by number.
    pub fn longest(&self) -> impl Iterator<Item = (usize, &Tried<M>)> {
        let all = self.tried.iter().enumerate();
        all.filter(|(_, tried)| tried.scale == self.scale)
    }
}

impl Halving<'_> {
    /// The points to begin with: the default, each other level alone, then some that are drawn.
    fn first(&self) -> Vec<Point> {
        let default = vec![0; self.levels.len()];
        let mut all = vec![default.clone()];
        all.extend(neighbours(&default, self.levels));
        all.truncate(self.candidates.max(1));
        let possible = self.levels.iter().try_fold(1_usize, |n, l| n.checked_mul((*l).max(1)));
        let wanted = self.candidates.min(possible.unwrap_or(usize::MAX));
        let mut known: BTreeSet<Point> = all.iter().cloned().collect();
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        while all.len() < wanted {
            let draw = |levels: &usize| (random.next_u64() % (*levels).max(1) as u64) as usize;
            let point: Point = self.levels.iter().map(draw).collect();
            if known.insert(point.clone()) {
                all.push(point);
            }
        }
        all
    }

    /// Search. `better` orders measurements, the best first; `has_time` is called before each few measurements, which
    /// are of one scale. The default has to be measured: `measure` fails where it can't be.
    ///
    /// # Errors
    /// The first of a measurement.
    pub fn search<M: Clone, E>(
        &self,
        better: &dyn Fn(&M, &M) -> Ordering,
        has_time: &mut dyn FnMut() -> bool,
        measure: Measure<'_, M, E>,
    ) -> Result<SearchResult<M>, E> {
        let mut found = SearchResult {
            tried: Vec::new(),
            left_out: BTreeSet::new(),
            best: 0,
            scale: 0,
            ended_early: false,
        };
        let mut left = self.first();
        loop {
            let scale = found.scale;
            let mut done = self.add(&mut found, &left, scale, has_time, measure)?;
            let by =
                |a: &usize, b: &usize| better(&found.tried[*a].measured, &found.tried[*b].measured);
            done.sort_by(by);
            match done.first() {
                Some(best) => found.best = *best,
                // No time was left for this scale, or nothing could be measured.
                None => found.scale = found.scale.saturating_sub(1),
            }
            // The default may be beside the survivors.
            if done.len() <= SURVIVORS + 1 || found.ended_early {
                break;
            }
            done.truncate(done.len().div_ceil(2).max(SURVIVORS));
            left = done.iter().map(|n| found.tried[*n].point.clone()).collect();
            // Its reference is measured as long.
            if !done.contains(&0) {
                left.insert(0, found.tried[0].point.clone());
            }
            found.scale += 1;
        }
        while !found.ended_early {
            let Some(best) = found.tried.get(found.best) else {
                break;
            };
            let best = best.point.clone();
            let mut new = neighbours(&best, self.levels);
            new.retain(|point| {
                let known = found.number(point).map(|n| found.tried[n].scale);
                known != Some(found.scale) && !found.left_out.contains(point)
            });
            if new.is_empty() {
                break;
            }
            if self.varies {
                new.insert(0, best);
            }
            let scale = found.scale;
            let done = self.add(&mut found, &new, scale, has_time, measure)?;
            let standing = found.best;
            for number in done {
                let (this, best) = (&found.tried[number], &found.tried[found.best]);
                if better(&this.measured, &best.measured) == Ordering::Less {
                    found.best = number;
                }
            }
            if found.best == standing {
                break;
            }
        }
        Ok(found)
    }

    /// Measure points while there is time; returns the numbers of the measured ones.
    fn add<M, E>(
        &self,
        found: &mut SearchResult<M>,
        points: &[Point],
        scale: u32,
        has_time: &mut dyn FnMut() -> bool,
        measure: Measure<'_, M, E>,
    ) -> Result<Vec<usize>, E> {
        let mut done = Vec::new();
        for some in points.chunks(self.at_once.max(1)) {
            // The default is always measured, as the reference.
            if !found.tried.is_empty() && !has_time() {
                found.ended_early = true;
                break;
            }
            for (point, measured) in some.iter().zip(measure(some, scale)?) {
                let Some(measured) = measured else {
                    found.left_out.insert(point.clone());
                    continue;
                };
                let tried = Tried { point: point.clone(), scale, measured };
                match found.number(point) {
                    Some(number) => {
                        found.tried[number] = tried;
                        done.push(number);
                    }
                    None => {
                        done.push(found.tried.len());
                        found.tried.push(tried);
                    }
                }
            }
        }
        Ok(done)
    }
}

/// The points that differ in one dimension.
fn neighbours(point: &[usize], levels: &[usize]) -> Vec<Point> {
    let mut all = Vec::new();
    for (dimension, levels) in levels.iter().enumerate() {
        for level in (0..*levels).filter(|level| *level != point[dimension]) {
            let mut other = point.to_vec();
            other[dimension] = level;
            all.push(other);
        }
    }
    all
}

/// The numbers of the points that no other beats in every respect: less is better in each.
pub fn front(all: &[Vec<f64>]) -> Vec<usize> {
    let beats = |a: &[f64], b: &[f64]| {
        let pairs = || a.iter().zip(b);
        pairs().all(|(a, b)| a <= b) && pairs().any(|(a, b)| a < b)
    };
    let is_beaten = |this: &[f64]| all.iter().any(|other| beats(other, this));
    (0..all.len()).filter(|n| !is_beaten(&all[*n])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valley whose lowest point is known, with measurements that are off by less the longer they take.
    fn cost(point: &[usize], scale: u32) -> f64 {
        let best = [2, 0, 3, 1];
        let away = |(level, best): (&usize, usize)| (*level as f64 - best as f64).powi(2);
        let far: f64 = point.iter().zip(best).map(away).sum();
        let noise = (point.iter().enumerate().map(|(n, l)| (n + 3) * l).sum::<usize>() % 7) as f64;
        far + 0.2 * noise / f64::from(1 << (2 * scale))
    }

    fn search(candidates: usize, time: usize) -> (SearchResult<f64>, Vec<(usize, u32)>) {
        let halving =
            Halving { levels: &[4, 2, 5, 3], candidates, at_once: 4, varies: false, seed: 1 };
        let mut asked = 0;
        let mut batches = Vec::new();
        let found = halving.search(
            &|a: &f64, b: &f64| a.total_cmp(b),
            &mut || {
                asked += 1;
                asked <= time
            },
            &mut |points, scale| {
                batches.push((points.len(), scale));
                Ok::<_, ()>(points.iter().map(|p| Some(cost(p, scale))).collect())
            },
        );
        (found.unwrap(), batches)
    }

    /// Check that the best of 120 points is found from few, with fewer measurements the longer they take, and
    /// that the default is measured at every scale.
    #[test]
    fn the_best_is_found() {
        let (found, batches) = search(16, usize::MAX);
        assert_eq!(found.tried[found.best].point, [2, 0, 3, 1]);
        assert!(!found.ended_early);
        assert!(found.tried.len() < 60, "{}", found.tried.len());
        assert_eq!(found.tried[0].point, [0; 4]);
        assert_eq!(found.tried[0].scale, found.scale);
        let at =
            |scale: u32| batches.iter().filter(|(_, s)| *s == scale).map(|(n, _)| n).sum::<usize>();
        assert_eq!(at(0), 16);
        assert!((8..10).contains(&at(1)), "{batches:?}");
        assert_eq!(search(16, usize::MAX), search(16, usize::MAX));
    }

    /// Check that a search without time returns the default, and reports that it was ended.
    #[test]
    fn without_time() {
        let (found, _) = search(16, 0);
        assert!(found.ended_early && !found.tried.is_empty());
        assert_eq!(found.tried[0].point, [0; 4]);
        let (found, _) = search(1000, usize::MAX);
        assert_eq!(found.tried.len(), 120);
    }

    /// Check that points that can't be measured are requested once and don't count as tried, and that the best of the
    /// others is found.
    #[test]
    fn what_cannot_be_measured() {
        let halving =
            Halving { levels: &[4, 2, 5, 3], candidates: 16, at_once: 4, varies: false, seed: 1 };
        let mut refused = Vec::new();
        let found = halving.search(
            &|a: &f64, b: &f64| a.total_cmp(b),
            &mut || true,
            &mut |points, scale| {
                let measure = |point: &Point| {
                    let can = point[2] != 3;
                    if !can {
                        refused.push(point.clone());
                    }
                    can.then(|| cost(point, scale))
                };
                Ok::<_, ()>(points.iter().map(measure).collect())
            },
        );
        let found = found.unwrap();
        assert!(found.tried.iter().all(|tried| tried.point[2] != 3));
        let best = &found.tried[found.best].point;
        assert_eq!(best[2], 2, "{best:?}");
        let once: BTreeSet<Point> = refused.iter().cloned().collect();
        assert!(!once.is_empty() && once.len() == refused.len());
        assert_eq!(once, found.left_out);
    }

    /// Check that a front has what nothing beats, equal ones included.
    #[test]
    fn fronts() {
        let all = [[1.0, 5.0], [2.0, 2.0], [3.0, 3.0], [5.0, 1.0], [2.0, 2.0]];
        let all: Vec<Vec<f64>> = all.iter().map(|p| p.to_vec()).collect();
        assert_eq!(front(&all), [0, 1, 3, 4]);
        assert_eq!(front(&[]), [0; 0]);
    }

    /// Check that the best of a valley is found in most tries where blocks are noisy and their means are
    /// compared, more of them the longer a point stays, all points of a round together.
    #[test]
    fn the_best_in_noise() {
        let mut well = 0;
        for seed in 1..=20 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let halving = Halving {
                levels: &[4, 2, 5, 3],
                candidates: 16,
                at_once: usize::MAX,
                varies: true,
                seed: 1,
            };
            let mut noisy = |point: &[usize], scale: u32| {
                let blocks = 3 << scale;
                let mut noise = || (random.next_u64() % 2001) as f64 / 1000.0 - 1.0;
                let sum: f64 = (0..blocks).map(|_| cost(point, 9) + noise()).sum();
                sum / f64::from(blocks)
            };
            let found = halving.search(
                &|a: &f64, b: &f64| a.total_cmp(b),
                &mut || true,
                &mut |points, scale| {
                    Ok::<_, ()>(points.iter().map(|p| Some(noisy(p, scale))).collect())
                },
            );
            let found = found.unwrap();
            let best = &found.tried[found.best].point;
            well += usize::from(cost(best, 9) <= cost(&[2, 0, 3, 1], 9) + 0.01);
        }
        assert!(well >= 15, "{well} of 20");
    }
}
