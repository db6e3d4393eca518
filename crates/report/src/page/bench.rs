//! The page's data about benches: charts, and the flow of packets.

use serde::Serialize;

use super::table::{PageCell, PageColumn, PageTable};

/// The rates of all arms: bars, and a table of the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageRates {
    /// The heading of the bars.
    pub title: String,
    /// Of the table.
    pub columns: Vec<PageColumn>,
    /// Arms without a valid block first, then those that lost packets, the most first,
    /// then the others, the fastest first; arms that could not be measured are last.
    pub arms: Vec<PageArm>,
    /// Footnotes about some of them.
    pub notes: Vec<PageNote>,
}

/// The outcome of an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
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

/// An arm of a bench, as a bar and a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageArm {
    /// The arm's name.
    pub name: String,
    /// Whether it has a rate.
    pub state: PageArmState,
    /// Handled packets per second.
    pub pps: Option<f64>,
    /// The lower end of its interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The share of lost packets; 0 without losses.
    pub lost: f64,
    /// The text beside its bar: a loss, a doubt, why there is none. May be empty.
    pub mark: String,
    /// By column.
    pub cells: Vec<PageCell>,
}

/// A footnote to the table of rates.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageNote {
    /// The arms that it is about.
    pub arms: Vec<String>,
    /// The text of the footnote.
    pub text: String,
}

/// The cost of a packet along paths, in one unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCosts {
    /// The quantity, and where it was measured.
    pub title: String,
    /// "instructions" or "ns", of each packet.
    pub unit: String,
    /// The paths: each list of figures is in this order.
    pub paths: Vec<String>,
    /// Layers of the path, and work outside it.
    pub parts: Vec<PageCostPart>,
    /// The same as a table.
    pub layers: PageTable,
    /// Functions of the paths, the most expensive first.
    pub functions: PageTable,
}

/// A part of the cost of a packet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCostPart {
    /// As shown: a layer, or other work.
    pub name: String,
    /// The layer; empty for work outside the path.
    pub layer: String,
    /// By path.
    pub each: Vec<f64>,
}

/// Lines and points over two axes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageChart {
    /// The chart's heading.
    pub title: String,
    /// What must be known beside it: how the setting differs from the published
    /// one's; may be empty.
    pub note: String,
    /// The varied knob.
    pub x: PageAxis,
    /// The measured quantity.
    pub y: PageAxis,
    /// A series of each, in the order of the legend.
    pub series: Vec<PageSeries>,
}

/// An axis of a chart, with its scale.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageAxis {
    /// The knob or quantity: "rate".
    pub label: String,
    /// The unit: "packets/s"; may be empty.
    pub unit: String,
    /// Whether it is logarithmic; then values that are not above 0 are only in the table.
    pub log: bool,
    /// The names of values that are not numbers: 0 is the first.
    pub names: Vec<String>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum PageSeriesKind {
    /// Points joined by a line, with a band of their intervals.
    #[default]
    Line,
    /// Points that stand alone, with bars of their intervals.
    Points,
    /// Ideal scaling: a thin dashed line.
    Ideal,
    /// Published points, with their own marks and labels.
    Published,
}

/// Points that belong together. The same name has the same colour in all charts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageSeries {
    /// The name in the legend: "xdp".
    pub name: String,
    /// How it is drawn.
    pub kind: PageSeriesKind,
    /// By `x`.
    pub points: Vec<PagePoint>,
}

/// A point, in the units of the axes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PagePoint {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// The interval's lower end, if there is one.
    pub low: Option<f64>,
    /// And its upper one.
    pub high: Option<f64>,
    /// The text beside it; may be empty. Always shown for published points, for others
    /// while they are pointed at.
    pub label: String,
}

/// A ledger: packets from hop to hop, and the causes of those dropped.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageFlow {
    /// The heading, which names the arm.
    pub title: String,
    /// Why it is invalid; empty if it balances.
    pub invalid: String,
    /// The hops, in the order of the path.
    pub hops: Vec<PageHop>,
}

/// One hop of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
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
