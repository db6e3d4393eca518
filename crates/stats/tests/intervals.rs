//! The quality of intervals and verdicts with few blocks, on made-up blocks whose truth is known: normal ones, and
//! skewed ones, as times are.

#![allow(clippy::unwrap_used)]

use std::f64::consts::TAU;
use std::io::Write;

use netplumb_stats::judge::{Judged, Pair, Verdict, judge};
use netplumb_stats::welch::Mean;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Repetitions of each case. Where 95 % is the truth, a share of these is off by more than [`ERROR`] in one of a
/// thousand.
const TRIES: usize = 4_000;
const ERROR: f64 = 0.011;
const LEVEL: f64 = 0.95;

/// The distribution of blocks.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Normal,
    /// The logarithm is normal: a long upper end.
    Lognormal,
}

/// Blocks of one mean, with a standard deviation that is a share of it.
fn blocks(random: &mut Pcg64Mcg, shape: Shape, many: usize, mean: f64, spread: f64) -> Vec<f64> {
    let mut uniform = || ((random.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    // Box and Muller.
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos();
    let one = |z: f64| match shape {
        Shape::Normal => mean * (1.0 + spread * z),
        Shape::Lognormal => {
            let sigma = (1.0 + spread * spread).ln().sqrt();
            mean * (sigma * z - sigma * sigma / 2.0).exp()
        }
    };
    (0..many).map(|_| one(normal())).collect()
}

fn judged(before: Vec<f64>, after: Vec<f64>) -> Judged {
    judge(&[Pair { before, after, ..Pair::default() }])[0]
}

/// All that is simulated: shapes, and the spread of each side.
const EVEN: [(Shape, f64); 5] = [
    (Shape::Normal, 0.02),
    (Shape::Normal, 0.2),
    (Shape::Lognormal, 0.1),
    (Shape::Lognormal, 0.2),
    (Shape::Lognormal, 0.3),
];

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Check that the 95 % interval on a ratio holds the truth in 95 of 100 cases or more
/// with three, five and ten blocks a side, or one side more than the other, and that no
/// end is below nothing.
#[test]
fn ratios_are_covered() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for (many, others) in [(3, 3), (5, 5), (10, 10), (3, 10), (10, 3)] {
        for (shape, spread) in EVEN {
            let truth = 1.3;
            let covered = (0..TRIES)
                .filter(|_| {
                    let before = blocks(&mut random, shape, many, 100.0, spread);
                    let after = blocks(&mut random, shape, others, 100.0 * truth, spread);
                    let ratio = judged(before, after).ratio.unwrap();
                    assert!(ratio.low >= 0.0, "{ratio:?}");
                    ratio.low <= truth && truth <= ratio.high
                })
                .count();
            let share = covered as f64 / TRIES as f64;
            let case = format!("{many} and {others} blocks, {shape:?} {spread}: {share:.3}");
            tell(&case);
            assert!(share >= LEVEL - ERROR, "{case}");
        }
    }
}

/// Check that it holds nearly as often where one side varies by much and the other by little: skewed blocks of one side
/// alone are the hardest case.
#[test]
fn sides_that_vary_unlike_each_other() {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    for many in [3, 5, 10] {
        for (shape, least) in [(Shape::Normal, 0.95), (Shape::Lognormal, 0.94)] {
            for spreads in [[0.05, 0.3], [0.3, 0.05]] {
                let covered = (0..TRIES)
                    .filter(|_| {
                        let before = blocks(&mut random, shape, many, 100.0, spreads[0]);
                        let after = blocks(&mut random, shape, many, 80.0, spreads[1]);
                        let ratio = judged(before, after).ratio.unwrap();
                        ratio.low <= 0.8 && 0.8 <= ratio.high
                    })
                    .count();
                let share = covered as f64 / TRIES as f64;
                let case = format!("{many} blocks, {shape:?} {spreads:?}: {share:.3}");
                tell(&case);
                assert!(share >= least - ERROR, "{case}");
            }
        }
    }
}

/// Check that the same compared with the same is called different in no more than one of
/// twenty tries, and that a change is found: how often, by its size, is written.
#[test]
fn verdicts() {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    // Of a change by half, with blocks that vary by a tenth: the least that is to be found.
    for (many, least) in [(3, 0.50), (5, 0.95), (10, 0.99)] {
        for (shape, spread) in EVEN {
            let mut differ = |factor: f64| {
                let found = (0..TRIES)
                    .filter(|_| {
                        let before = blocks(&mut random, shape, many, 100.0, spread);
                        let after = blocks(&mut random, shape, many, 100.0 * factor, spread);
                        judged(before, after).verdict.differs()
                    })
                    .count();
                found as f64 / TRIES as f64
            };
            let none = differ(1.0);
            let power = [1.2, 1.5, 2.0].map(&mut differ);
            let case = format!(
                "{many} blocks, {shape:?} {spread}: {none:.3} where nothing differs; {:.2} of 20 %, \
                 {:.2} of 50 %, {:.2} of 100 %",
                power[0], power[1], power[2]
            );
            tell(&case);
            assert!(none <= 1.0 - LEVEL, "{case}");
            assert!(spread > 0.1 || power[1] >= least, "{case}");
        }
    }
}

/// Check that an interval without an upper end is reported to hide any change: and that this is so
/// where blocks vary by a third and more, and not where they are stable.
#[test]
fn noise_is_reported() {
    let mut random = Pcg64Mcg::seed_from_u64(4);
    let mut blind = |spread: f64| {
        let blind_runs = (0..500)
            .filter(|_| {
                let mut side = || blocks(&mut random, Shape::Lognormal, 3, 100.0, spread);
                let (before, after) = (side(), side());
                let judged = judged(before, after);
                let open = judged.ratio.unwrap().high.is_infinite();
                assert!(!open || judged.is_blind() || judged.verdict != Verdict::NoDifference);
                judged.is_blind()
            })
            .count();
        blind_runs as f64 / 500.0
    };
    assert!(blind(0.02) < 0.02);
    assert!(blind(0.6) > 0.8);
}

/// Check that the interval on one mean, of a bench's blocks, holds it: Student's does for
/// normal blocks, and nearly so for skewed ones; rates are never below nothing.
#[test]
fn means_are_covered() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    for many in [3, 5, 10] {
        for (shape, spread) in EVEN {
            let covered = (0..TRIES)
                .filter(|_| {
                    let mean = Mean::from_values(&blocks(&mut random, shape, many, 100.0, spread))
                        .unwrap();
                    assert!(mean.low.unwrap() >= 0.0, "{mean:?}");
                    mean.low.unwrap() <= 100.0 && 100.0 <= mean.high.unwrap()
                })
                .count();
            let share = covered as f64 / TRIES as f64;
            let case = format!("{many} blocks, {shape:?} {spread}: {share:.3}");
            tell(&case);
            // Of one side alone, nothing makes up for a long upper end.
            let least = if spread > 0.2 { 0.94 } else { LEVEL };
            assert!(share >= least - ERROR, "{case}");
        }
    }
}
