//! What the page is given of benches: charts, and packets as they flow.

use serde::Serialize;

use super::table::{PageCell, PageColumn, PageTable};

/// Of a recording of benches.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageBench {
    /// Every arm.
    pub rates: PageRates,
    /// How long packets took, if that was measured.
    pub latency: Option<PageLatency>,
    /// What was swept, in the order in which it is shown.
    pub charts: Vec<PageChart>,
    /// Ledgers, drawn.
    pub flows: Vec<PageFlow>,
    /// What a packet costs along each path, by unit.
    pub costs: Vec<PageCosts>,
}

/// The rates of all arms: bars, and a table of the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageRates {
    /// What is drawn.
    pub title: String,
    /// Of the table.
    pub columns: Vec<PageColumn>,
    /// Arms without a valid block first, then those that lost packets, the most first,
    /// then the others, the fastest first; arms that could not be measured are last.
    pub arms: Vec<PageArm>,
    /// Footnotes about some of them.
    pub notes: Vec<PageNote>,
}

/// What came of an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageArmState {
    /// It has a rate.
    #[default]
    Measured,
    /// It has no valid block.
    Invalid,
    /// It could not be measured.
    Absent,
}

/// An arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageArm {
    /// Its name.
    pub name: String,
    /// What came of it.
    pub state: PageArmState,
    /// Packets a second that were handled, and the interval.
    pub pps: Option<f64>,
    /// Its lower end.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The share of the packets that was lost; nothing where none was.
    pub lost: f64,
    /// What is written beside its bar: a loss, a doubt, why there is none. May be empty.
    pub mark: String,
    /// By column.
    pub cells: Vec<PageCell>,
}

/// A footnote.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageNote {
    /// The arms that it is about.
    pub arms: Vec<String>,
    /// What it says.
    pub text: String,
}

/// How long packets took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageLatency {
    /// Percentiles of each arm.
    pub table: PageTable,
    /// What these times contain besides the path's own.
    pub note: String,
}

/// What a packet costs along paths, in one unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCosts {
    /// What it is, and where it was measured.
    pub title: String,
    /// "instructions" or "ns", of each packet.
    pub unit: String,
    /// The paths: each list of figures is in this order.
    pub paths: Vec<String>,
    /// Layers of the path, and what is not the path's.
    pub parts: Vec<PageCostPart>,
    /// The same as a table.
    pub layers: PageTable,
    /// Functions of the paths, those that cost most first.
    pub functions: PageTable,
}

/// A part of what a packet costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCostPart {
    /// What it is called.
    pub name: String,
    /// The layer that it is; empty for what is not the path's.
    pub layer: String,
    /// By path.
    pub each: Vec<f64>,
}

/// Lines and points over two axes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageChart {
    /// Its heading.
    pub title: String,
    /// What must be known beside it: how the setting differs from that of what is
    /// published; may be empty.
    pub note: String,
    /// What was varied.
    pub x: PageAxis,
    /// What was measured.
    pub y: PageAxis,
    /// A series of each, in the order of the legend.
    pub series: Vec<PageSeries>,
}

/// An axis.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageAxis {
    /// Of what: "rate".
    pub label: String,
    /// In what: "packets/s"; may be empty.
    pub unit: String,
    /// On a scale of ratios; values that are not above 0 are in the table alone.
    pub log: bool,
    /// Of values that are no numbers, what they are called: 0 is the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSeriesKind {
    /// Points joined by a line, with a band of their intervals.
    #[default]
    Line,
    /// Points that stand alone, with bars of their intervals.
    Points,
    /// What would be if nothing got in the way: a thin dashed line.
    Ideal,
    /// What somebody published: points of a kind of their own, with their labels.
    Published,
}

/// Points that belong together. The same name has the same colour in all charts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageSeries {
    /// What it is: "xdp".
    pub name: String,
    /// How it is drawn.
    pub kind: PageSeriesKind,
    /// By `x`.
    pub points: Vec<PagePoint>,
}

/// A point, in the units of the axes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PagePoint {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// The interval's lower end, if there is one.
    pub low: Option<f64>,
    /// And its upper one.
    pub high: Option<f64>,
    /// What is written beside it; may be empty. Always shown of what is published, of
    /// others when they are pointed at.
    pub label: String,
}

/// A ledger: packets from hop to hop, and the causes of those dropped.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageFlow {
    /// Its heading.
    pub title: String,
    /// Why it is invalid; empty if it balances.
    pub invalid: String,
    /// The hops, in the order of the path.
    pub hops: Vec<PageHop>,
}

/// One hop of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageHop {
    /// "generator to tx0".
    pub name: String,
    /// Packets that entered it.
    pub entered: u64,
    /// Packets that left it for the next one.
    pub left: u64,
    /// Packets dropped here, by cause, the most first.
    pub dropped: Vec<(String, u64)>,
    /// Unaccounted: entered, but neither left nor dropped; negative where more left than entered.
    pub missing: i64,
}
