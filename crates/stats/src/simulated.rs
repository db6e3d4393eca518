//! Verdicts on made-up runs whose truth is known.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::judge::{Judged, Pair, Verdict, judge};

/// Functions of a run, and its blocks.
const FUNCTIONS: usize = 100;
const BLOCKS: usize = 5;

struct Machine(Pcg64Mcg);

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine(Pcg64Mcg::seed_from_u64(seed))
    }

    fn normal(&mut self) -> f64 {
        let uniform = ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        Normal::standard().inverse_cdf(uniform)
    }

    /// A run: some functions cost tens of nanoseconds, some thousands. Blocks are
    /// slower or faster as a whole, and each function for itself, never by so little
    /// as by so much: times have a long upper end.
    fn run(&mut self, planted: &[(usize, f64)]) -> Vec<Vec<f64>> {
        let mut costs: Vec<f64> = (0..FUNCTIONS).map(|n| 20.0 * 1.06_f64.powi(n as i32)).collect();
        for (function, factor) in planted {
            costs[*function] *= factor;
        }
        let mut blocks = vec![Vec::new(); FUNCTIONS];
        for _ in 0..BLOCKS {
            let whole = 0.01 * self.normal();
            for (function, cost) in costs.iter().enumerate() {
                let own = 0.02 * self.normal();
                blocks[function].push(cost * (whole + own).exp());
            }
        }
        blocks
    }

    fn compare(&mut self, planted: &[(usize, f64)]) -> Vec<Judged> {
        let (before, after) = (self.run(&[]), self.run(planted));
        let pairs: Vec<Pair> = before
            .into_iter()
            .zip(after)
            .map(|(before, after)| Pair { before, after, ..Pair::default() })
            .collect();
        judge(&pairs)
    }
}

/// Check that identical runs are judged different in at most one of twenty tries.
#[test]
fn nothing_is_found_where_nothing_is() {
    const TRIES: usize = 60;
    let mut machine = Machine::new(1);
    let flagged = (0..TRIES)
        .filter(|_| {
            let judged = machine.compare(&[]);
            judged.iter().any(|j| j.verdict.differs())
        })
        .count();
    assert!(flagged <= TRIES / 20, "{flagged} of {TRIES}");
}

/// Check that a planted change is found, in its direction, at its size, and nothing
/// else with it but what the false-discovery rate allows.
#[test]
fn what_is_planted_is_found() {
    const TRIES: usize = 40;
    let mut machine = Machine::new(2);
    let (mut found, mut covered, mut others) = (0, 0, 0);
    for _ in 0..TRIES {
        let judged = machine.compare(&[(40, 1.2), (70, 0.8)]);
        let right = judged[40].verdict == Verdict::Slower && judged[70].verdict == Verdict::Faster;
        found += usize::from(right);
        for (function, truth) in [(40, 1.2), (70, 0.8)] {
            let ratio = judged[function].ratio.unwrap();
            covered += usize::from(ratio.low <= truth && truth <= ratio.high);
        }
        others += judged
            .iter()
            .enumerate()
            .filter(|(f, j)| ![40, 70].contains(f) && j.verdict.differs())
            .count();
    }
    assert!(found >= TRIES * 19 / 20, "{found} of {TRIES}");
    assert!(covered >= TRIES * 2 * 9 / 10, "{covered} of {}", TRIES * 2);
    assert!(others <= TRIES / 10, "{others} false ones");
}

/// Check that a change of the smallest size that a run claims to detect is detected in about four of five.
#[test]
fn the_smallest_change_is_seen() {
    const TRIES: usize = 40;
    let mut machine = Machine::new(4);
    let smallest: f64 =
        (0..TRIES).map(|_| machine.compare(&[])[50].smallest.unwrap()).sum::<f64>() / TRIES as f64;
    let seen = (0..TRIES)
        .filter(|_| {
            let judged = machine.compare(&[(50, 1.0 + smallest)]);
            judged[50].verdict == Verdict::Slower
        })
        .count();
    let share = seen as f64 / TRIES as f64;
    assert!((0.6..=1.0).contains(&share), "{share} at {smallest}");
}

/// Functions of two runs, one after the other, on a machine that drifts: by block it
/// gets slower or faster as a whole, and each function for itself.
struct Drifting {
    /// Blocks of each run.
    blocks: usize,
    /// A step of the whole, as a share.
    whole: f64,
    /// And of each function.
    own: f64,
}

impl Machine {
    fn drifting(&mut self, how: &Drifting, planted: &[(usize, f64)], apart: bool) -> Vec<Pair> {
        let mut walk = 0.0;
        let mut walks = [0.0; FUNCTIONS];
        let mut pairs = vec![Pair::default(); FUNCTIONS];
        for block in 0..2 * how.blocks {
            walk += how.whole * self.normal();
            let noise = 0.01 * self.normal();
            for (n, pair) in pairs.iter_mut().enumerate() {
                walks[n] += how.own * self.normal();
                let cost = 20.0 * 1.06_f64.powi(n as i32);
                let is = (walk + walks[n] + noise + 0.02 * self.normal()).exp();
                let factor = planted.iter().find(|(f, _)| *f == n).map_or(1.0, |p| p.1);
                pair.apart = apart;
                match block < how.blocks {
                    true => pair.before.push(cost * is),
                    false => pair.after.push(cost * is * factor),
                }
            }
        }
        pairs
    }
}

/// Check that identical runs on a slowly drifting machine are judged different in at most one of twenty tries, whether
/// all drifts or each function for itself; and that this is due to the allowance for drift.
#[test]
fn drift_is_no_change() {
    const TRIES: usize = 20;
    for (n, (whole, own, blocks)) in
        [(0.02, 0.0, 5), (0.0, 0.02, 5), (0.02, 0.0, 20), (0.01, 0.01, 20)].into_iter().enumerate()
    {
        let how = Drifting { blocks, whole, own };
        let mut machine = Machine::new(5 + n as u64);
        let flagged =
            |pairs: &[Pair]| usize::from(judge(pairs).iter().any(|j| j.verdict.differs()));
        let (mut with, mut without) = (0, 0);
        for n in 0..TRIES {
            let mut pairs = machine.drifting(&how, &[], true);
            with += flagged(&pairs);
            // As if they had taken turns; some tries are enough to see it.
            if n < TRIES / 2 {
                pairs.iter_mut().for_each(|p| p.apart = false);
                without += flagged(&pairs);
            }
        }
        let message = format!("{blocks} blocks, drift {whole} and {own}: {with} and {without}");
        assert!(with <= TRIES / 20, "{message}");
        assert!(blocks == 5 || without >= TRIES / 8, "{message}");
    }
}

/// Check that a planted change is found on such a machine, and little else.
#[test]
fn a_change_beyond_drift_is_found() {
    const TRIES: usize = 20;
    for (blocks, factor) in [(5, 1.7), (10, 1.5), (20, 1.4)] {
        let how = Drifting { blocks, whole: 0.005, own: 0.005 };
        let mut machine = Machine::new(9);
        let (mut found, mut others) = (0, 0);
        for _ in 0..TRIES {
            let judged = judge(&machine.drifting(&how, &[(40, factor)], true));
            found += usize::from(judged[40].verdict == Verdict::Slower);
            let differ = judged.iter().filter(|j| j.verdict.differs()).count();
            others += differ - usize::from(judged[40].verdict.differs());
        }
        assert!(found >= TRIES * 19 / 20, "{blocks} blocks: {found} of {TRIES}");
        assert!(others <= TRIES / 10, "{blocks} blocks: {others} false ones");
    }
}
