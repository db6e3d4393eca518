//! Spans: the time from one event to the next, as a distribution. A function's entry and
//! exit are two events, and so are two stages of the path of a packet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction, words};
use crate::tree::NodeId;

/// Sub-buckets of an octave, as a power of two.
pub const SUB_BITS: u32 = 4;
/// Buckets of a histogram: times below 16 ns have one each; above, each octave has 16, up to 2^35 -
/// 1 ns, 34 s.
pub const BUCKETS: usize = 512;

/// A log-linear histogram of nanoseconds: counts by bucket, ascending, none zero.
///
/// Bucket `b` below 16 is the value `b`. Above, with `o = b / 16 + 3` and `s = b % 16`, it begins
/// at `(16 + s) << (o - 4)` and ends where the next one begins. The last bucket also has all longer
/// times.
pub type Buckets = Vec<(u16, u64)>;

/// The longest time of a bucket.
pub fn upper(bucket: u16) -> u64 {
    const SUB: u64 = 1 << SUB_BITS;
    let bucket = u64::from(bucket);
    match bucket < SUB {
        true => bucket,
        false => ((SUB + 1 + bucket % SUB) << (bucket / SUB - 1)) - 1,
    }
}

/// A distribution of times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The number of times.
    pub count: u64,
    /// The sum, raw.
    pub total_ns: u64,
    /// The minimum; 0 if there are none.
    pub min_ns: u64,
    /// The maximum; 0 if there are none.
    pub max_ns: u64,
    /// The histogram, raw.
    pub buckets: Buckets,
}

impl Times {
    /// Add another distribution.
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
    /// The kind of a stage.
    StageKind, "kind of stage",
    /// A CPU works on the packet.
    Work = "work",
    /// The packet waits.
    Wait = "wait",
    /// Work, waiting or both: it is not known.
    Either = "work or wait",
    /// Time in no other stage.
    Unaccounted = "unaccounted",
    /// The total, which the others add up to.
    Total = "total",
}

/// The distribution of the time from one event to the next, in a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The direction of the packet.
    pub direction: Direction,
    /// The events that the time is between.
    pub of: SpanOf,
    /// The distribution: of calls as read, of stages of packets less the time of the programs themselves.
    pub times: Times,
}

/// The events that a span is between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpanOf {
    /// Entry and exit of a function.
    Call(Call),
    /// The beginnings of a stage and of the next.
    Stage(Stage),
}

/// Entry and exit of a function, in one calling context. Interruptions are excluded from its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
    /// The node in the calling-context tree.
    pub node: NodeId,
    /// The sum of the times minus the cost of probes: the bias for each call, and the cost of a
    /// pair for each timed call below it.
    pub corrected_ns: f64,
    /// Half the width of its 95 % interval, from the calibration.
    pub uncertainty_ns: f64,
}

/// A stage of the path of packets: `tx`, `rx` or `forward`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its place on the path, from 0.
    pub order: u16,
    /// The name that reports use.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Packets on this path that skipped it.
    pub passed_over: u64,
}

impl Span {
    /// The call, if it is the time of one.
    pub fn call(&self) -> Option<&Call> {
        match &self.of {
            SpanOf::Call(call) => Some(call),
            SpanOf::Stage(_) => None,
        }
    }

    /// The stage, if it is the time of one.
    pub fn stage(&self) -> Option<&Stage> {
        match &self.of {
            SpanOf::Stage(stage) => Some(stage),
            SpanOf::Call(_) => None,
        }
    }
}
