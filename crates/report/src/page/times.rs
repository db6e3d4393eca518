//! What the page is given of times. All times are nanoseconds.

use serde::Serialize;

use super::table::{PageCell, PageColumn};

/// Of a recording of times as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageTimed {
    /// What the probes cost; empty for stages.
    pub calibration: Vec<PageCalibration>,
    /// What the workload sent and received.
    pub packets: Vec<PageLedger>,
    /// Packets that were seen at each place.
    pub seen: Vec<PageCount>,
    /// Packets that the kernel dropped, by its reason.
    pub drops: Vec<PageCount>,
    /// What was missed; what it means for the figures is told.
    pub losses: Vec<PageCount>,
    /// What could not be watched, and why; what was left out for the budget.
    pub refused: Vec<[String; 2]>,
}

/// The probes' cost, on one CPU or on all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCalibration {
    /// By what functions were timed.
    pub mechanism: String,
    /// So many functions.
    pub functions: u64,
    /// "all", which is the median, or the CPU's number.
    pub cpu: String,
    /// On a function with so many arguments.
    pub arguments: u8,
    /// What is read for a function that does nothing.
    pub bias_ns: f64,
    /// What a pair takes altogether.
    pub pair_ns: f64,
    /// Half the width of the 95 % interval of either.
    pub uncertainty_ns: f64,
}

/// What the workload sent and received of an arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageLedger {
    /// The arm.
    pub arm: String,
    /// Sent.
    pub offered: u64,
    /// Received.
    pub delivered: u64,
    /// Neither, by cause.
    pub dropped: Vec<PageCount>,
    /// Whether that is all of them.
    pub closes: bool,
}

/// So many of something.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCount {
    /// Of what.
    pub what: String,
    /// How many.
    pub count: f64,
    /// What it means; may be empty.
    pub means: String,
}

/// Of one arm and class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageTimes {
    /// Own time of all functions for each packet, as read.
    pub raw_ns: f64,
    /// The same, corrected.
    pub total_ns: f64,
    /// The functions that were timed, the largest own time first.
    pub functions: Vec<PageTimedFunction>,
    /// The way's stages, in their order; the one of kind "total" is the whole.
    pub stages: Vec<PageStage>,
    /// Why the stages are not the whole way; empty if they add up.
    pub open: String,
    /// Of a comparison: its rows.
    pub compared: Vec<PageCompared>,
    /// Of a comparison of two instruments: what both saw.
    pub both: Vec<PageBoth>,
    /// The columns of a comparison's rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<PageColumn>,
    /// The columns of stages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stage_columns: Vec<PageColumn>,
    /// What else there is to say under the tables.
    pub notes: Vec<String>,
}

/// A function that was timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageTimedFunction {
    /// Index of the function.
    pub function: u32,
    /// Whether its own time is less than the correction may be off by.
    pub small: bool,
    /// Per packet, its own, corrected.
    pub self_ns: f64,
    /// Of calls, less the mean correction: p50, p90, p99, p99.9, max.
    pub percentiles_ns: [Option<f64>; 5],
    /// What was taken from each call, on the average.
    pub shift_ns: f64,
    /// Its calls as read: bucket and count.
    pub buckets: Vec<(u16, u64)>,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}

/// A stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageStage {
    /// What it is called.
    pub name: String,
    /// "work", "wait", "unaccounted" or "total".
    pub kind: String,
    /// Packets that went through it.
    pub packets: u64,
    /// And those that didn't.
    pub passed_over: u64,
    /// What it took of each packet of the way.
    pub mean_ns: f64,
    /// Of packets that went through it: p50, p90, p99, p99.9, max.
    pub percentiles_ns: [Option<f64>; 5],
    /// The same as a histogram.
    pub buckets: Vec<(u16, u64)>,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}

/// A quantity before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCompared {
    /// "whole", "stage" or "function".
    pub what: String,
    /// Its name.
    pub name: String,
    /// Mean of blocks.
    pub before_ns: f64,
    /// And after.
    pub after_ns: f64,
    /// The ratio, and its 95 % interval.
    pub ratio: Option<[f64; 3]>,
    /// In words.
    pub verdict: String,
    /// "less", "more" or nothing: which way it differs.
    pub way: String,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}

/// A function on two clocks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageBoth {
    /// Its name.
    pub name: String,
    /// Instructions of its own.
    pub insns: f64,
    /// And nanoseconds.
    pub ns: f64,
    /// Its row of the table.
    pub cells: Vec<PageCell>,
}
