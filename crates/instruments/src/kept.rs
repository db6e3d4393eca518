//! The calls of a window: how what they took is distributed, the first one, and those that took most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netplumb_model::trace::CallCounts;

/// Calls whose totals are remembered, for the median; of more, their number and sum.
const MAX_TOTALS: usize = 1 << 22;
/// Steps of all calls that are kept in a window.
const MAX_STEPS: usize = 1 << 22;

/// A call that may be kept.
pub(crate) trait Call {
    /// Its number, in the order in which they began.
    fn number(&self) -> u64;
    /// What it took.
    fn total(&self) -> u64;
    /// How many steps it has.
    fn steps(&self) -> usize;
}

/// The calls of a window.
#[derive(Debug)]
pub(crate) struct KeptCalls<C> {
    /// How many there were so far.
    pub(crate) counts: CallCounts,
    /// Calls of whose total the spread knows nothing.
    pub(crate) unranked: u64,
    totals: Vec<u64>,
    first: Option<C>,
    /// Others, by what they took; of two that took the same, the earlier one counts as more.
    most: BTreeMap<(u64, Reverse<u64>), C>,
    steps: usize,
}

// Not derived: calls need no default.
impl<C> Default for KeptCalls<C> {
    fn default() -> Self {
        KeptCalls {
            counts: CallCounts::default(),
            unranked: 0,
            totals: Vec::new(),
            first: None,
            most: BTreeMap::new(),
            steps: 0,
        }
    }
}

impl<C: Call> KeptCalls<C> {
    /// A call has ended, whether or not it is kept.
    pub(crate) fn ended(&mut self, total: u64) {
        self.counts.sum += total;
        match self.totals.len() < MAX_TOTALS {
            true => self.totals.push(total),
            false => self.unranked += 1,
        }
    }

    /// Keep a call that matches, if it is one of the `most` that took most, or the first. Returns
    /// the steps that there is no room for.
    pub(crate) fn keep(&mut self, mut call: C, most: u32) -> u64 {
        self.counts.matched += 1;
        if self.steps + call.steps() > MAX_STEPS {
            return call.steps() as u64;
        }
        self.steps += call.steps();
        // The first stays, whatever it took.
        match &mut self.first {
            Some(first) if call.number() > first.number() => {}
            Some(first) => std::mem::swap(first, &mut call),
            None => {
                self.first = Some(call);
                return 0;
            }
        }
        self.most.insert((call.total(), Reverse(call.number())), call);
        if self.most.len() > most as usize
            && let Some((_, gone)) = self.most.pop_first()
        {
            self.steps -= gone.steps();
        }
        0
    }

    /// All counts, and the calls that were kept, in the order in which they began.
    pub(crate) fn end(self) -> (CallCounts, Vec<C>) {
        let KeptCalls { mut counts, mut totals, first, most, .. } = self;
        totals.sort_unstable();
        let at = |percent: usize| {
            let rank = (totals.len() * percent).div_ceil(100).max(1);
            totals.get(rank - 1).copied()
        };
        counts.spread = (|| Some([*totals.first()?, at(50)?, at(99)?, *totals.last()?]))();
        let mut kept: Vec<C> = most.into_values().collect();
        kept.extend(first);
        kept.sort_by_key(Call::number);
        (counts, kept)
    }
}
