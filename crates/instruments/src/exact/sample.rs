//! Samples of what a guest executes, drawn on the host from the stream: the guest executes the
//! same with and without.
//!
//! Every instruction is as likely to be sampled as any other. The gaps are exponential, so that
//! samples form a Poisson process: how many fall on a function depends on nothing but how much it
//! executes, and one function's are independent of another's, which is what the intervals of
//! shares assume. A fixed gap beats with a load that repeats; one that is drawn evenly still has
//! a longest and a shortest.
//!
//! Each sample is seen twice: where it falls, and where a timer's interrupt would have found it.
//! While interrupts are off it waits, and lands where they come on again: behind the instruction
//! after `sti`, where `iret` returns to, or in user mode.

use super::interrupts::{Before, Change, Interrupts};

/// How to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampling {
    /// Instructions from one sample to the next, on average.
    pub period: u64,
    /// Where random numbers begin: each is an independent sampling of the same run.
    pub seeds: Vec<u64>,
}

impl Sampling {
    /// The same for a guest whose first block is the one of this number in a recording: a guest that
    /// starts again would have the same samples again.
    pub fn from_block(&self, number: u32) -> Sampling {
        let begin = |seed: &u64| seed.wrapping_add(u64::from(number) << 32);
        Sampling { period: self.period, seeds: self.seeds.iter().map(begin).collect() }
    }
}

/// Samples of one seed in one stretch of code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    /// The seed, by its number.
    pub(super) by: u16,
    /// Samples that fell there.
    pub(super) fell: u32,
    /// Samples that a timer would have taken there.
    pub(super) deferred: u32,
}

/// Draws samples from the instructions of the stream.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) interrupts: Interrupts,
    period: u64,
    draws: Vec<Draw>,
    /// Whether a window is open.
    open: bool,
    /// Instructions of the window so far.
    at: u64,
    /// The number of the instruction that the next sample falls on.
    next: u64,
    /// Samples that wait for interrupts, of all seeds.
    waiting: u64,
    /// What was drawn in the current stretch of code, one for each seed.
    drawn: Vec<Drawn>,
}

/// The samples of one seed.
#[derive(Debug)]
struct Draw {
    random: Random,
    next: u64,
    /// How far behind the beginning of that instruction, in 2^-32 of one.
    fraction: u32,
    waiting: u64,
}

impl Sampler {
    pub(super) fn new(sampling: &Sampling) -> Sampler {
        let draw =
            |seed: &u64| Draw { random: Random(*seed), next: u64::MAX, fraction: 0, waiting: 0 };
        Sampler {
            interrupts: Interrupts::default(),
            period: sampling.period.max(1),
            draws: sampling.seeds.iter().map(draw).collect(),
            open: false,
            at: 0,
            next: u64::MAX,
            waiting: 0,
            drawn: Vec::new(),
        }
    }

    /// How many seeds there are.
    pub(super) fn seeds(&self) -> usize {
        self.draws.len()
    }

    /// A window opens.
    pub(super) fn open(&mut self) {
        self.open = true;
        (self.at, self.waiting) = (0, 0);
        for draw in &mut self.draws {
            (draw.next, draw.fraction, draw.waiting) = (0, 0, 0);
            draw.go_on(self.period);
        }
        self.find_next();
    }

    /// It closes.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.waiting = 0;
        self.next = u64::MAX;
    }

    fn find_next(&mut self) {
        let next = self.draws.iter().map(|draw| draw.next).min();
        self.next = next.unwrap_or(u64::MAX);
    }

    /// `insns` instructions ran in one function, from number `first` of its block; `changes` are
    /// the block's. Returns how many had interrupts off.
    pub(super) fn run(&mut self, first: u32, insns: u32, changes: &[(u16, Change)]) -> u32 {
        let mut off = 0;
        let stop = first.saturating_add(insns);
        let mut at = first;
        let mut changes = changes.iter().filter(|(n, _)| u32::from(*n) >= first);
        let mut change = changes.next();
        while at < stop {
            let here = change.filter(|(n, _)| u32::from(*n) < stop);
            let mut end = here.map_or(stop, |(n, _)| u32::from(*n) + 1);
            if self.interrupts.in_shadow() {
                end = end.min(at + 1);
            }
            if !self.interrupts.are_on() {
                off += end - at;
            }
            self.stretch(u64::from(end - at));
            match here {
                Some((n, what)) if end == u32::from(*n) + 1 => {
                    self.interrupts.change(*what);
                    change = changes.next();
                }
                _ => self.interrupts.pass(),
            }
            at = end;
        }
        off
    }

    /// Instructions with the same state of interrupts.
    fn stretch(&mut self, insns: u64) {
        if !self.open {
            return;
        }
        let come = self.interrupts.come();
        if come && self.waiting > 0 {
            self.land();
        }
        let end = self.at + insns;
        self.at = end;
        if self.next >= end {
            return;
        }
        for (by, draw) in (0..).zip(&mut self.draws) {
            let mut fell = 0;
            while draw.next < end {
                fell += 1;
                draw.go_on(self.period);
            }
            if fell == 0 {
                continue;
            }
            if !come {
                draw.waiting += u64::from(fell);
                self.waiting += u64::from(fell);
            }
            let deferred = if come { fell } else { 0 };
            add(&mut self.drawn, by, fell, deferred);
        }
        self.find_next();
    }

    /// Waiting samples are taken here.
    fn land(&mut self) {
        for (by, draw) in (0..).zip(&mut self.draws) {
            let landed = std::mem::take(&mut draw.waiting);
            if landed > 0 {
                add(&mut self.drawn, by, 0, landed as u32);
            }
        }
        self.waiting = 0;
    }

    /// Take what was drawn since this was asked last.
    pub(super) fn take(&mut self, each: impl FnMut(Drawn)) {
        self.drawn.drain(..).for_each(each);
    }

    /// Whether something was drawn.
    pub(super) fn has_drawn(&self) -> bool {
        !self.drawn.is_empty()
    }

    /// The kernel is about to be entered: whether waiting samples are taken before that.
    pub(super) fn lands_before_entry(&mut self) -> bool {
        let lands = self.waiting > 0 && self.interrupts.come();
        if lands {
            self.land();
        }
        lands
    }

    /// The kernel is entered.
    pub(super) fn enter(&mut self, from_user: bool) -> Before {
        self.interrupts.enter(from_user)
    }

    /// User code runs: waiting samples are taken there.
    pub(super) fn user(&mut self) {
        self.interrupts.user();
        if self.waiting > 0 {
            self.land();
        }
    }
}

fn add(drawn: &mut Vec<Drawn>, by: u16, fell: u32, deferred: u32) {
    match drawn.iter_mut().find(|one| one.by == by) {
        Some(one) => {
            one.fell += fell;
            one.deferred += deferred;
        }
        None => drawn.push(Drawn { by, fell, deferred }),
    }
}

impl Draw {
    /// The next sample.
    fn go_on(&mut self, period: u64) {
        let (whole, part) = self.random.exponential();
        // (whole + part) * period, in 2^-32 of an instruction.
        let gap = ((u128::from(whole) << 32) + u128::from(part)) * u128::from(period)
            + u128::from(self.fraction);
        self.fraction = gap as u32;
        self.next = self.next.saturating_add((gap >> 32) as u64);
    }
}

/// Random numbers that are the same everywhere (splitmix64, by Sebastiano Vigna).
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn number(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// An exponential variate of mean 1: its whole part, and the rest in 2^-32. By comparisons
    /// alone (von Neumann, 1951), since a logarithm may differ from one CPU to the next.
    fn exponential(&mut self) -> (u32, u32) {
        let mut whole = 0;
        loop {
            let part = self.number();
            let (mut last, mut falling) = (part, 1);
            loop {
                let next = self.number();
                if next >= last {
                    break;
                }
                last = next;
                falling += 1;
            }
            if falling % 2 == 1 {
                return (whole, part);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(period: u64, seeds: &[u64]) -> Sampler {
        let mut sampler = Sampler::new(&Sampling { period, seeds: seeds.to_vec() });
        sampler.interrupts.user();
        sampler.open();
        sampler
    }

    fn taken(sampler: &mut Sampler) -> (u32, u32) {
        let mut sums = (0, 0);
        sampler.take(|d| {
            sums.0 += d.fell;
            sums.1 += d.deferred;
        });
        sums
    }

    /// Check that gaps are exponential: their mean is the period, their variance its square,
    /// and e^-1 of them are longer.
    #[test]
    fn gaps() {
        let mut random = Random(7);
        let gap = |_| {
            let (whole, part) = random.exponential();
            f64::from(whole) + f64::from(part) / 4_294_967_296.0
        };
        let gaps: Vec<f64> = (0..200_000).map(gap).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
        let longer = gaps.iter().filter(|g| **g > 1.0).count() as f64 / n;
        // Four standard errors.
        assert!((mean - 1.0).abs() < 0.009, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        assert!((longer - 0.367_88).abs() < 0.005, "{longer}");
    }

    /// Check that the number of samples follows from the period, however the code is cut, that
    /// a seed gives the same ones again, and another seed others.
    #[test]
    fn periods_and_seeds() {
        let of = |seed: u64, cut: u32| {
            let mut sampler = sampler(100, &[seed]);
            let mut places = Vec::new();
            for n in 0..1_000_000 / cut {
                sampler.run(0, cut, &[]);
                let (fell, deferred) = taken(&mut sampler);
                assert_eq!(fell, deferred);
                places.extend((0..fell).map(|_| n * cut / 500));
            }
            places
        };
        let whole = of(1, 500);
        assert!((9_600..10_400).contains(&whole.len()), "{}", whole.len());
        assert_eq!(of(1, 5), whole);
        assert_eq!(of(1, 500), whole);
        assert_ne!(of(2, 500), whole);
    }

    /// Check that a period of one instruction samples each once, on average.
    #[test]
    fn every_instruction() {
        let mut sampler = sampler(1, &[3]);
        sampler.run(0, 100_000, &[]);
        let (fell, _) = taken(&mut sampler);
        assert!((98_000..102_000).contains(&fell), "{fell}");
    }

    /// Check that samples wait while interrupts are off and that none is lost: they land behind
    /// the instruction after `sti`.
    #[test]
    fn deferred() {
        let mut sampler = sampler(2, &[5]);
        // cli is the third instruction.
        assert_eq!(sampler.run(0, 100, &[(2, Change::Off)]), 97);
        let (before, on_time) = taken(&mut sampler);
        assert!(before > 20 && on_time <= 9);
        // sti is the last one.
        assert_eq!(sampler.run(0, 50, &[(49, Change::On)]), 50);
        let (during, none) = taken(&mut sampler);
        assert_eq!(none, 0);
        // One block of one instruction: the shadow.
        assert_eq!(sampler.run(0, 1, &[]), 0);
        let (shadow, none) = taken(&mut sampler);
        assert_eq!(none, 0);
        sampler.run(0, 1, &[]);
        let (fell, landed) = taken(&mut sampler);
        assert_eq!(landed, before - on_time + during + shadow + fell);
    }

    /// Check that a window begins anew, and that nothing is drawn between two.
    #[test]
    fn windows() {
        let mut sampler = sampler(10, &[1, 2]);
        sampler.interrupts.change(Change::Off);
        sampler.run(0, 1_000, &[]);
        assert!(taken(&mut sampler).0 > 0);
        sampler.close();
        sampler.user();
        sampler.run(0, 1_000, &[]);
        assert!(!sampler.has_drawn());
        sampler.open();
        sampler.run(0, 1_000, &[]);
        let (fell, deferred) = taken(&mut sampler);
        assert_eq!(fell, deferred);
    }
}
