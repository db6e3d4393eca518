//! The data of the HTML page: one value for a report, one for a comparison,
//! serialised as JSON, compressed, and read by `web/`.
//!
//! Numbers are sums over all blocks; the page divides by packets. Trees are in
//! columns, a parent before its children, because 100,000 rows of objects are ten
//! times as large and as slow. `types.rs` makes `web/src/types.ts` of these declarations.
//!
//! Both sides are tested with `testdata/page*.json`. In `web/src`, `plot.ts` has scales and axes (d3), `barlist.ts`
//! bars, which are HTML so that names wrap and are links, `graph.ts` the call graph (dagre).

mod bench;
mod section;
mod table;
mod times;
#[cfg(test)]
mod types;

use serde::Serialize;

use crate::footer::Note;

pub use crate::trace::page::{PageCall, PageTraced};
pub use bench::{
    PageArm, PageArmState, PageAxis, PageChart, PageCostPart, PageCosts, PageFlow, PageHop,
    PageNote, PagePoint, PageRates, PageSeries, PageSeriesKind,
};
pub use section::{PagePart, PageSection};
pub use table::{PageCell, PageColumn, PageRow, PageTable};
pub use times::{PageCompared, PageLedger, PageStage, PageTimedFunction, PageTimes};

/// Incremented with any change that an older page could not read.
pub const SCHEMA: u32 = 5;

/// Everything on a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The names of all pages, in the first of several in one file.
    pub views: Vec<String>,
    /// Whether there are two sides, before and after; if not, `after` is all.
    pub diff: bool,
    /// The heading of the page.
    pub title: String,
    /// The question that was asked; may be empty.
    pub question: String,
    /// The results in sentences: the first thing to read.
    pub headline: Vec<String>,
    /// What must be known before the figures are believed: differences of kernels,
    /// clocks or machines, a run cut short.
    pub warnings: Vec<String>,
    /// The unit of cost: "instructions".
    pub unit: String,
    /// Where and how it was measured.
    pub facts: Vec<Fact>,
    /// The trust footer.
    pub trust: Vec<Note>,
    /// Claims and their verdicts.
    pub claims: Vec<PageClaim>,
    /// The experiment's main figures, drawn before all else.
    pub figures: Vec<PageChart>,
    /// Every function that a tree names, by index.
    pub functions: Vec<PageFunction>,
    /// A line for each class, in their order; none where their figures can't be compared.
    pub summary: Option<PageTable>,
    /// Each arm and class by itself.
    pub classes: Vec<PageClass>,
    /// What else was measured.
    pub sections: Vec<PageSection>,
}

/// The executed code of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCode {
    /// The arm's name.
    pub arm: String,
    /// Index of the function.
    pub function: u32,
    /// Its name, and its module.
    pub name: String,
    /// Its own cost, in words.
    pub each: String,
    /// One instruction a row.
    pub instructions: PageTable,
    /// One source line a row, where lines are known.
    pub lines: Option<PageTable>,
}

/// Times between events over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageHeat {
    /// The events, from the first to the last.
    pub title: String,
    /// How long a column is.
    pub column_ns: u64,
    /// All cells that are not empty.
    pub cells: Vec<PageHeatCell>,
}

/// How many times of about one length are in a column.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageHeatCell {
    /// Index of the column, in time.
    pub column: u64,
    /// The length: four buckets of a histogram, by the number of the first.
    pub bucket: u16,
    /// The number of times.
    pub count: u64,
}

/// Samples by thread, and over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageThreads {
    /// Threads.
    pub table: PageTable,
    /// The length of a piece of time.
    pub piece_ns: u64,
    /// The unit of costs.
    pub unit: String,
    /// The largest threads, and all others together.
    pub lines: Vec<PageThreadLine>,
    /// The largest processes, with what their threads did, for the page to show one alone.
    pub processes: Vec<PageProcess>,
}

/// A process that has samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageProcess {
    /// The name of its first thread, else of the largest.
    pub name: String,
    /// Its number; 0 is the idle task.
    pub pid: u32,
    /// All of its threads, the largest first.
    pub threads: Vec<PageThreadWork>,
}

/// The work of a thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageThreadWork {
    /// As in `comm`.
    pub name: String,
    /// The kernel's thread ID.
    pub tid: u32,
    /// Its parts of the trees in which it has samples.
    pub parts: Vec<PageThreadPart>,
}

/// A thread's part of a tree: columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageThreadPart {
    /// Index of the class.
    pub class: usize,
    /// Index of the context in the class.
    pub context: usize,
    /// Rows of the tree.
    pub row: Vec<usize>,
    /// Samples of each.
    pub calls: Vec<u64>,
    /// The cost that these samples stand for.
    pub self_insns: Vec<u64>,
}

/// A thread over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageThreadLine {
    /// Its name, and its number.
    pub name: String,
    /// The cost that its samples stand for, in each piece.
    pub costs: Vec<u64>,
}

/// One fact of the environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Fact {
    /// Dotted key.
    pub key: String,
    /// Its value; of a comparison, after.
    pub value: String,
    /// The value before, if it differs.
    pub before: Option<String>,
}

/// A claim, judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageClaim {
    /// The claim's statement, as in the experiment file.
    pub says: String,
    /// "holds", "does not hold", "not shown", "answer", "not measured".
    pub verdict: String,
    /// Why.
    pub because: String,
}

/// A function, which trees and tables refer to by index.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageFunction {
    /// Its symbol; of a comparison, after.
    pub name: String,
    /// Module, or the ELF file of a user function.
    pub module: Option<String>,
    /// Layer, or "(no layer)".
    pub layer: String,
    /// In a comparison: its symbol before, if that differs.
    pub was: Option<String>,
    /// Where it is defined, as `FILE:LINE`; of a comparison, after.
    pub source: Option<String>,
}

/// One arm and class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageClass {
    /// The arm; of a comparison "before → after".
    pub arm: String,
    /// Protocol and direction ("udp tx").
    pub class: String,
    /// What the costs are divided by ("packet", "run").
    pub per: String,
    /// The class in a sentence.
    pub sentence: String,
    /// Of a comparison: settings that differ and could not act, in words.
    pub could_not_act: Vec<String>,
    /// The number of these, after.
    pub packets: u64,
    /// The number before.
    pub packets_before: u64,
    /// The costs, one tree for each context.
    pub contexts: Vec<PageTree>,
    /// Cost by layer.
    pub layers: Option<PageTable>,
    /// A published figure for it.
    pub published: Option<PagePublished>,
    /// Of a comparison: cost that went from one function to another.
    pub moves: Vec<PageMove>,
    /// The columns of the table of functions.
    pub columns: Vec<PageColumn>,
    /// Cells of the table that are not computed from trees.
    pub rows: Vec<PageRow>,
    /// The divisor of costs where it is not a whole number: seconds.
    pub count: Option<f64>,
    /// Data beside costs, in a recording of times.
    pub times: Option<PageTimes>,
}

/// The calling-context tree of one context, in columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageTree {
    /// Whose time it was ("task", "softirq:NET_RX").
    pub context: String,
    /// Row of the parent, -1 for none; less than the row's own.
    pub parent: Vec<i64>,
    /// Index of the function.
    pub function: Vec<u32>,
    /// Times entered, after.
    pub calls: Vec<u64>,
    /// Instructions of its own, after.
    pub self_insns: Vec<u64>,
    /// Times entered, before; empty unless this is a comparison.
    pub calls_before: Vec<u64>,
    /// Instructions of its own, before; empty unless this is a comparison.
    pub self_insns_before: Vec<u64>,
}

/// A figure that somebody published.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PagePublished {
    /// Where it was published.
    pub figure: String,
    /// The layer that it is about; none for the whole path.
    pub layer: Option<String>,
    /// The layer's total, microseconds.
    pub total_us: f64,
    /// The function with the largest time.
    pub top_function: String,
    /// Its time, microseconds.
    pub top_us: f64,
}

/// Cost that left one function and turned up in another.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageMove {
    /// Index of the function that lost it.
    pub from: u32,
    /// Index of the function that has it now.
    pub to: u32,
    /// Instructions per packet.
    pub insns_per_packet: f64,
    /// Why it is treated as the same cost ("inlined into its caller").
    pub why: String,
}
