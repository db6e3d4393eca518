//! What the HTML page is given: one value for a report, one for a comparison,
//! serialised as JSON, compressed, and read by `web/`.
//!
//! Numbers are sums over all blocks; the page divides by packets. Trees are in
//! columns, a parent before its children, because 100,000 rows of objects are ten
//! times as large and as slow. `web/src/data.ts` says the same in TypeScript.

mod bench;
mod table;
mod times;

use serde::Serialize;

use crate::footer::Note;

pub use crate::trace::page::{PageCall, PageTraced};
pub use bench::{
    PageArm, PageArmState, PageAxis, PageBench, PageChart, PageCostPart, PageCosts, PageFlow,
    PageHop, PageLatency, PageNote, PagePoint, PageRates, PageSeries, PageSeriesKind,
};
pub use table::{PageCell, PageColumn, PageRow, PageTable};
pub use times::{PageCompared, PageLedger, PageStage, PageTimed, PageTimedFunction, PageTimes};

/// Raised with any change that an older page could not read.
pub const SCHEMA: u32 = 2;

/// Everything on a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Of the first of several pages in one file: the names of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<String>,
    /// Whether there are two sides, before and after; if not, `after` is all.
    pub diff: bool,
    /// Its heading.
    pub title: String,
    /// The question that was asked; may be empty.
    pub question: String,
    /// What came of it, in sentences: the first thing to read.
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
    /// The figures that an experiment is about, drawn before all else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<PageChart>,
    /// Every function that a tree names, by index.
    pub functions: Vec<PageFunction>,
    /// A line for each class, in their order; nothing where these have nothing in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PageTable>,
    /// Each arm and class by itself.
    pub classes: Vec<PageClass>,
    /// Of samples of guests: what a timer would see, for each arm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<PageSampled>,
    /// Shares that an experiment asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<PageShares>,
    /// Where single samples were kept: by thread, and over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<PageThreads>,
    /// Of calls that were traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traced: Vec<PageTraced>,
    /// Source lines and instructions of functions that cost most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<PageCode>,
    /// Of counts of events: these, and ratios.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PageTable>,
    /// What these tables are called if they are of something else; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub events_called: String,
    /// Of times between events: how long, over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat: Option<PageHeat>,
    /// Of recordings of times: what was counted beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<PageTimed>,
    /// Of recordings of benches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bench: Option<PageBench>,
}

/// What was executed of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCode {
    /// The arm.
    pub arm: String,
    /// Index of the function.
    pub function: u32,
    /// Its name, and its module.
    pub name: String,
    /// Its own cost, in words.
    pub each: String,
    /// Its instructions.
    pub instructions: PageTable,
    /// Its lines, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<PageTable>,
}

/// What a timer's samples would be of an arm, beside what it executed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageSampled {
    /// Functions.
    pub table: PageTable,
    /// What a timer would blame, in sentences.
    pub blamed: Vec<String>,
}

/// Times between events over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageHeat {
    /// What they are of.
    pub title: String,
    /// How long a column is.
    pub column_ns: u64,
    /// What is not empty.
    pub cells: Vec<PageHeatCell>,
}

/// So many times in a while.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageHeatCell {
    /// When, in columns.
    pub column: u64,
    /// How long: four buckets of a histogram, by the number of the first.
    pub bucket: u16,
    /// How many.
    pub count: u64,
}

/// Samples by thread, and over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageThreads {
    /// Threads.
    pub table: PageTable,
    /// How long a piece of time is.
    pub piece_ns: u64,
    /// What costs are in.
    pub unit: String,
    /// The largest threads, and all others together.
    pub lines: Vec<PageThreadLine>,
    /// The largest processes, with what their threads did, for the page to show one alone.
    pub processes: Vec<PageProcess>,
}

/// A process of which samples were taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageProcess {
    /// The name of its first thread, else of the largest.
    pub name: String,
    /// Its number; 0 is the idle task.
    pub pid: u32,
    /// All of its threads, the largest first.
    pub threads: Vec<PageThreadWork>,
}

/// What a thread did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageThreadWork {
    /// Its name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// Its part of trees that it has samples in.
    pub parts: Vec<PageThreadPart>,
}

/// A thread's part of a tree: columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageThreadPart {
    /// Index of the class.
    pub class: usize,
    /// Index of the context in the class.
    pub context: usize,
    /// Rows of the tree.
    pub row: Vec<usize>,
    /// Samples of each.
    pub calls: Vec<u64>,
    /// What they stand for.
    pub self_insns: Vec<u64>,
}

/// A thread over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageThreadLine {
    /// Its name, and its number.
    pub name: String,
    /// What its samples stand for, in each piece.
    pub costs: Vec<u64>,
}

/// Shares of functions, by every instrument that has them, beside published ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageShares {
    /// Functions of arms.
    pub table: PageTable,
    /// What a timer would blame, in sentences.
    pub blamed: Vec<String>,
}

/// One fact of the environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fact {
    /// Dotted key.
    pub key: String,
    /// Its value; of a comparison, after.
    pub value: String,
    /// Before, if that is different.
    pub before: Option<String>,
}

/// A claim, judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageClaim {
    /// The statement.
    pub says: String,
    /// "holds", "does not hold", "not shown", "answer", "not measured".
    pub verdict: String,
    /// Why.
    pub because: String,
}

/// A function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageFunction {
    /// Its symbol; of a comparison, after.
    pub name: String,
    /// Module, or the ELF file of a user function.
    pub module: Option<String>,
    /// Layer, or "(no layer)".
    pub layer: String,
    /// Of a comparison: what it was called before, if not the same.
    pub was: Option<String>,
    /// Where it is defined, as `FILE:LINE`; of a comparison, after.
    pub source: Option<String>,
}

/// One arm and class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub could_not_act: Vec<String>,
    /// How many of these were offered, after.
    pub packets: u64,
    /// And before.
    pub packets_before: u64,
    /// The costs, one tree for each context.
    pub contexts: Vec<PageTree>,
    /// Its layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<PageTable>,
    /// What somebody published for it.
    pub published: Option<PagePublished>,
    /// Of a comparison: cost that went from one function to another.
    pub moves: Vec<PageMove>,
    /// The columns of the table of functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<PageColumn>,
    /// What the table has that the trees don't tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<PageRow>,
    /// What costs are divided by where that is no whole number: seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<f64>,
    /// Of a recording of times: what it has beside costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<PageTimes>,
}

/// The calling-context tree of one context, in columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
pub struct PagePublished {
    /// Where it stands.
    pub figure: String,
    /// The layer that it is about; none for the whole path.
    pub layer: Option<String>,
    /// The layer's total, microseconds.
    pub total_us: f64,
    /// The function that took most.
    pub top_function: String,
    /// What that took, microseconds.
    pub top_us: f64,
}

/// Cost that left one function and turned up in another.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageMove {
    /// Index of the function that lost it.
    pub from: u32,
    /// Index of the function that has it now.
    pub to: u32,
    /// Instructions per packet.
    pub insns_per_packet: f64,
    /// Why it is held to be the same cost ("inlined into its caller").
    pub why: String,
}
