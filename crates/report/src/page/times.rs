//! The page's data about times. All times are nanoseconds.

use serde::Serialize;

use super::table::{PageCell, PageColumn, PageTable};

/// The packets that an arm's workload sent and received.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageLedger {
    /// The arm's name.
    pub arm: String,
    /// Packets sent.
    pub offered: u64,
    /// Packets received.
    pub delivered: u64,
    /// Packets dropped, by cause.
    pub dropped: Vec<(String, u64)>,
    /// Whether these add up.
    pub closes: bool,
}

/// The times of one arm and class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
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
    /// Of a comparison of two instruments: the functions that both saw.
    pub both: Option<PageTable>,
    /// The columns of a comparison's rows.
    pub columns: Vec<PageColumn>,
    /// What a stage's times are of, if not of packets.
    pub each: Option<String>,
    /// The columns of stages.
    pub stage_columns: Vec<PageColumn>,
    /// Notes under the tables.
    pub notes: Vec<String>,
}

/// A function that was timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageTimedFunction {
    /// Index of the function.
    pub function: u32,
    /// Whether its own time is less than the correction may be off by.
    pub small: bool,
    /// The mean correction subtracted from each call.
    pub shift_ns: f64,
    /// Its calls as read: bucket and count.
    pub buckets: Vec<(u16, u64)>,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}

/// A stage of a packet's path, or "total".
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageStage {
    /// The name of the stage, as in the recording.
    pub name: String,
    /// "work", "wait", "unaccounted" or "total".
    pub kind: String,
    /// Its times, for packets that went through it: bucket and count.
    pub buckets: Vec<(u16, u64)>,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}

/// A quantity before and after: the data drawn beside its row.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCompared {
    /// "whole", "stage", "function" or "inclusive": a function with all that it calls.
    pub what: String,
    /// The ratio, and its 95 % interval.
    pub ratio: Option<[f64; 3]>,
    /// "less", "more" or nothing: which way it differs.
    pub way: String,
    /// Its row of the table, but for what the page draws by itself.
    pub cells: Vec<PageCell>,
}
