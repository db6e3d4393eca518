//! Verdicts on made-up profiles whose truth is known: samples that fall on functions, in blocks that vary by more than
//! samples do, on machines that drift.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::counts::Counting;
use crate::judge::{Judged, Pair, Verdict, judge};

/// Functions of a profile.
const FUNCTIONS: usize = 100;
/// Samples of a side, as in the reviews that this is for.
const SAMPLES: f64 = 600_000.0;

/// A machine, and how its profiles vary.
#[derive(Debug, Clone, Copy)]
struct How {
    /// Blocks of each side.
    blocks: usize,
    /// Samples that come together: bursts of one function.
    burst: f64,
    /// The variation of each function's share from block to block, relative to it.
    noise: f64,
    /// Correlation of that from block to block.
    correlation: f64,
    /// A step of a function's share from block to block, as a part of it.
    walk: f64,
    /// One in this many functions takes such steps.
    walkers: usize,
    /// Whether one side is measured after the other.
    apart: bool,
    samples: f64,
}

const CALM: How = How {
    blocks: 5,
    burst: 1.0,
    noise: 0.0,
    correlation: 0.0,
    walk: 0.0,
    walkers: 1,
    apart: false,
    samples: SAMPLES,
};

struct Machine(Pcg64Mcg);

impl Machine {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn normal(&mut self) -> f64 {
        let uniform = self.uniform();
        Normal::standard().inverse_cdf(uniform)
    }

    /// A number of events, drawn with this expectation.
    fn poisson(&mut self, expected: f64) -> f64 {
        if expected > 200.0 {
            let about = expected + expected.sqrt() * self.normal();
            return about.round().max(0.0);
        }
        let (mut product, mut events) = (self.uniform(), 0.0);
        let least = (-expected).exp();
        while product > least {
            product *= self.uniform();
            events += 1.0;
        }
        events
    }

    /// Shares of functions: a few large ones, and many small; function 10 has 3 %.
    fn shares() -> Vec<f64> {
        let mut shares: Vec<f64> = (0..FUNCTIONS).map(|n| 0.94_f64.powi(n as i32)).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share *= 0.97 / sum);
        shares[10] = 0.03;
        shares
    }

    /// The samples of both sides' blocks. The side after has `factor` times as many in a function.
    fn compare(&mut self, how: How, planted: Option<(usize, f64)>) -> Vec<Judged> {
        let shares = Machine::shares();
        let mut walks = vec![0.0; FUNCTIONS];
        let mut noise: Vec<f64> = (0..FUNCTIONS).map(|_| self.normal()).collect();
        let mut hits = vec![[Vec::new(), Vec::new()]; FUNCTIONS];
        for block in 0..2 * how.blocks {
            let side = match how.apart {
                true => usize::from(block >= how.blocks),
                false => (block + block / 2) % 2,
            };
            for function in 0..FUNCTIONS {
                if function % how.walkers == 0 {
                    walks[function] += how.walk * self.normal();
                }
                let fresh = (1.0 - how.correlation.powi(2)).sqrt() * self.normal();
                noise[function] = how.correlation * noise[function] + fresh;
                let varied = (walks[function] + how.noise * noise[function]).exp();
                let factor = match planted {
                    Some((f, factor)) if f == function && side == 1 => factor,
                    _ => 1.0,
                };
                let expected = how.samples / how.blocks as f64 * shares[function] * varied * factor;
                let found = how.burst * self.poisson(expected / how.burst);
                hits[function][side].push(found);
            }
        }
        let of_block = |side: usize, block: usize| -> f64 {
            hits.iter().map(|sides| sides[side][block]).sum()
        };
        let totals: Vec<Vec<f64>> =
            (0..2).map(|side| (0..how.blocks).map(|b| of_block(side, b)).collect()).collect();
        let all: f64 = totals.iter().flatten().sum();
        let pairs: Vec<Pair> = hits
            .iter()
            .map(|sides| {
                let figures = |side: usize| -> Vec<f64> {
                    let of = sides[side].iter().zip(&totals[side]);
                    of.map(|(hits, all)| hits / all).collect()
                };
                let sum: f64 = sides.iter().flatten().sum();
                let share = sum / all;
                let variance = |side: usize| -> Vec<f64> {
                    let of = totals[side].iter();
                    of.map(|all| share * (1.0 - share) / all).collect()
                };
                Pair {
                    before: figures(0),
                    after: figures(1),
                    apart: how.apart,
                    counting: Some(Counting {
                        variance: [variance(0), variance(1)],
                        samples: sum / (2 * how.blocks) as f64,
                    }),
                    ..Pair::default()
                }
            })
            .collect();
        judge(&pairs)
    }
}

/// Machines as they are found.
fn machines() -> Vec<(&'static str, How)> {
    let mut all = Vec::new();
    for (blocks, apart) in [(3, false), (5, false), (10, false), (3, true), (5, true), (20, true)] {
        let how = How { blocks, apart, ..CALM };
        let few = How { samples: 20_000.0, ..how };
        let noise = How { noise: 0.03, ..how };
        let correlated = How { correlation: 0.7, ..noise };
        let drift = How { walk: 0.01, ..how };
        let some_drift = How { walk: 0.03, walkers: 7, ..how };
        all.extend([
            ("calm", how),
            ("few samples", few),
            ("bursts", How { burst: 4.0, ..how }),
            ("noise", noise),
            ("correlated noise", correlated),
            ("drift", drift),
            ("drift of some", some_drift),
        ]);
    }
    all
}

/// Tries with each machine: more for the figures of docs/adr/0017-samples-compared.md.
fn tries() -> usize {
    let asked = std::env::var("PLUMB_TRIES");
    asked.ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// Whether the blocks determine the possible difference of sides. With a handful of blocks, a function that drifts from
/// one run to the next while most others don't looks like a change.
fn can_tell(name: &str, how: How) -> bool {
    !(name == "drift of some" && how.apart)
}

/// Check that at least nineteen of twenty A/A pairs have no flagged function, on any machine whose blocks can tell.
#[test]
fn nothing_is_flagged_where_nothing_changed() {
    let tries = tries();
    let mut machine = Machine(Pcg64Mcg::seed_from_u64(11));
    let mut wrong = Vec::new();
    for (name, how) in machines() {
        let flagged = (0..tries)
            .filter(|_| {
                let judged = machine.compare(how, None);
                judged.iter().any(|j| j.verdict.differs())
            })
            .count();
        let line = format!("{name}: {flagged} of {tries} flagged, {how:?}");
        println!("{line}");
        if can_tell(name, how) && flagged > tries / 20 {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Check that a change of 10 % in a function of 3 % is found with 600,000 samples a side, where these
/// vary by no more than samples do; of blocks that take turns, also on machines that drift. That
/// few others are flagged with it; and that the interval has the change in it.
#[test]
fn a_tenth_of_three_percent_is_found() {
    let tries = tries().div_ceil(2);
    let mut machine = Machine(Pcg64Mcg::seed_from_u64(12));
    let mut wrong = Vec::new();
    for (name, how) in machines() {
        let (mut found, mut others, mut covered) = (0, 0, 0);
        let mut smallest: Vec<f64> = Vec::new();
        for _ in 0..tries {
            let judged = machine.compare(how, Some((10, 0.9)));
            let planted = &judged[10];
            found += usize::from(planted.verdict == Verdict::Faster);
            smallest.extend(planted.smallest);
            // The others have a little more of the whole.
            let truth = 0.9 / (1.0 - 0.1 * 0.03);
            covered +=
                usize::from(planted.ratio.is_some_and(|r| (r.low..=r.high).contains(&truth)));
            let other = |(f, j): &(usize, &Judged)| *f != 10 && j.verdict.differs();
            others += judged.iter().enumerate().filter(other).count();
        }
        smallest.sort_by(f64::total_cmp);
        let middle = smallest[smallest.len() / 2];
        let line = format!(
            "{name}: {found} of {tries}, could see {middle:.3}, {others} others, covered {covered}, \
             {how:?}"
        );
        println!("{line}");
        let can = name == "calm" || !how.apart && how.blocks >= 5 && name == "drift";
        let good = others <= tries / 10 && covered >= tries * 17 / 20;
        if can_tell(name, how) && !good || can && found < tries * 17 / 20 {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
