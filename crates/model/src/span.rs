//! Spans: the time from one event to the next, as a distribution. A function's entry and
//! exit are two events, and so are two stages of the path of a packet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction, words};
use crate::tree::NodeId;

/// Sub-buckets of an octave, as a power of two.
pub const SUB_BITS: u32 = 4;
/// Buckets of a histogram: times below 16 ns have one each, above that each octave
/// has 16, up to 2^35 - 1 ns, 34 s.
pub const BUCKETS: usize = 512;

/// A log-linear histogram of nanoseconds: counts by bucket, ascending, none zero.
///
/// Bucket `b` below 16 is the value `b`. Above, with `o = b / 16 + 3` and
/// `s = b % 16`, it holds `(16 + s) << (o - 4)` up to the next bucket's first. The
/// last bucket also takes what is longer.
pub type Buckets = Vec<(u16, u64)>;

/// How a distribution of times is summed up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, as read.
    pub total_ns: u64,
    /// The shortest; 0 where there are none.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All of them, as read.
    pub buckets: Buckets,
}

impl Times {
    /// Add those of another distribution.
    pub fn add(&mut self, more: &Times) {
        if more.count == 0 {
            return;
        }
        self.min_ns = match self.count {
            0 => more.min_ns,
            _ => self.min_ns.min(more.min_ns),
        };
        self.max_ns = self.max_ns.max(more.max_ns);
        self.count = self.count.saturating_add(more.count);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
        let mut buckets: BTreeMap<u16, u64> = self.buckets.iter().copied().collect();
        for (bucket, count) in &more.buckets {
            let sum = buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.buckets = buckets.into_iter().collect();
    }
}

words! {
    /// What a stage is.
    StageKind, "kind of stage",
    /// The CPU works on the packet.
    Work = "work",
    /// It waits for something.
    Wait = "wait",
    /// What no stage explains.
    Unaccounted = "unaccounted",
    /// The whole way, which the others add up to.
    Total = "total",
}

/// The time from one event to the next, in one block: how it is distributed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// What was done with the packet.
    pub direction: Direction,
    /// From which event to which.
    pub of: SpanOf,
    /// As read.
    pub times: Times,
}

/// Which events a span lies between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpanOf {
    /// Entry and exit of a function.
    Call(Call),
    /// The beginning of a stage and that of the next.
    Stage(Stage),
}

/// Entry and exit of a function, in one calling context. What interrupted a call is not in
/// its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Whose time it was.
    pub context: Context,
    /// The node, with the functions that called it above.
    pub node: NodeId,
    /// The sum of the times less the probes' own cost: the reading's bias for each call, and
    /// a pair's cost for each timed call below it.
    pub corrected_ns: f64,
    /// Half the width of the 95 % interval of that, from the calibration's.
    pub uncertainty_ns: f64,
}

/// A stage of the path of packets: `tx`, `rx` or `forward`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its place on the path, from 0.
    pub order: u16,
    /// What it is called.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Of all packets on this path, those that did not meet it.
    pub passed_over: u64,
}

impl Span {
    /// The call that it is the time of, if it is of one.
    pub fn call(&self) -> Option<&Call> {
        match &self.of {
            SpanOf::Call(call) => Some(call),
            SpanOf::Stage(_) => None,
        }
    }

    /// The stage that it is the time of, if it is of one.
    pub fn stage(&self) -> Option<&Stage> {
        match &self.of {
            SpanOf::Stage(stage) => Some(stage),
            SpanOf::Call(_) => None,
        }
    }
}
