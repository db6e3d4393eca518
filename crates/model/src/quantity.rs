//! Quantities: instruments declare what they measure, and the code that writes, reads, compares and
//! shows figures uses the declarations.
//!
//! An instrument declares a [`Declared`] and adds figures with `Recording::add`; units, intervals and the judge of a
//! comparison follow from the declaration.

use serde::{Deserialize, Serialize};

use crate::class::words;

words! {
    /// The kind of a quantity's figures.
    Kind, "kind of quantity",
    /// A number: whole, and not negative. Counts of blocks add up.
    Count = "count",
    /// Nanoseconds. Durations add up.
    Duration = "duration",
    /// A number per second.
    Rate = "rate",
    /// A part of a whole, or of a CPU.
    Share = "share",
}

words! {
    /// Whether a figure is the same in every run.
    Repeats, "way to repeat",
    /// It is the same: if two figures differ, something has changed.
    Exactly = "exactly",
    /// It varies: blocks are a sample, compared statistically.
    Statistically = "statistically",
}

words! {
    /// The unit of the number of calls in a cost.
    Calls, "kind of calls",
    /// Entries of functions.
    Entries = "entries",
    /// Samples taken in functions.
    Samples = "samples",
    /// Times from one event to another.
    Times = "times",
    /// Events.
    Events = "events",
}

impl Calls {
    /// The title of the column.
    pub fn title(self) -> &'static str {
        match self {
            Calls::Entries => "calls",
            Calls::Samples => "samples",
            Calls::Times => "times",
            Calls::Events => "events",
        }
    }
}

/// A quantity, as an instrument declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// The instrument: `exact`, `rates` ...
    pub instrument: &'static str,
    /// Its name, unique within the instrument.
    pub name: &'static str,
    /// Its unit: `instructions`, `ns`, `packets/s`.
    pub unit: &'static str,
    /// The kind of figure.
    pub kind: Kind,
    /// Whether it is the same in every run.
    pub repeats: Repeats,
    /// The unit of the number of calls in its costs.
    pub calls: Calls,
    /// The meaning of a [`FigureKey`]'s number: `CPU`, `queue`.
    pub number: Option<&'static str>,
    /// The meaning of a [`FigureKey`]'s label: `cause`, `place`.
    pub label: Option<&'static str>,
}

impl Declared {
    /// A quantity with a single figure, compared statistically.
    pub const fn new(
        instrument: &'static str,
        name: &'static str,
        unit: &'static str,
        kind: Kind,
    ) -> Declared {
        Declared {
            instrument,
            name,
            unit,
            kind,
            repeats: Repeats::Statistically,
            calls: Calls::Entries,
            number: None,
            label: None,
        }
    }

    /// The same in every run.
    #[must_use]
    pub const fn exactly(mut self) -> Declared {
        self.repeats = Repeats::Exactly;
        self
    }

    /// Its costs count samples.
    #[must_use]
    pub const fn sampled(mut self) -> Declared {
        self.calls = Calls::Samples;
        self
    }

    /// Its costs count times from one event to another.
    #[must_use]
    pub const fn of_times(mut self) -> Declared {
        self.calls = Calls::Times;
        self
    }

    /// Its costs count events.
    #[must_use]
    pub const fn of_events(mut self) -> Declared {
        self.calls = Calls::Events;
        self
    }

    /// With a figure for each of these, by number.
    #[must_use]
    pub const fn by_number(mut self, what: &'static str) -> Declared {
        self.number = Some(what);
        self
    }

    /// With a figure for each of these, by name.
    #[must_use]
    pub const fn by_label(mut self, what: &'static str) -> Declared {
        self.label = Some(what);
        self
    }
}

/// A quantity in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// The instrument that measured it.
    pub instrument: String,
    /// Its name, unique within the instrument.
    pub name: String,
    /// Its unit, such as `ns`, `bytes` or `instructions`.
    pub unit: String,
    /// The kind of figure.
    pub kind: Kind,
    /// Whether it is the same in every run.
    pub repeats: Repeats,
    /// The unit of the number of calls in its costs.
    pub calls: Calls,
    /// The meaning of a [`FigureKey`]'s number.
    pub number: Option<String>,
    /// The meaning of a [`FigureKey`]'s label.
    pub label: Option<String>,
}

impl Quantity {
    /// Whether it is the declared one.
    pub fn is(&self, declared: &Declared) -> bool {
        self.instrument == declared.instrument && self.name == declared.name
    }
}

impl From<&Declared> for Quantity {
    fn from(declared: &Declared) -> Quantity {
        Quantity {
            instrument: declared.instrument.into(),
            name: declared.name.into(),
            unit: declared.unit.into(),
            kind: declared.kind,
            repeats: declared.repeats,
            calls: declared.calls,
            number: declared.number.map(Into::into),
            label: declared.label.map(Into::into),
        }
    }
}

/// Index into the quantities of a recording.
pub type QuantityId = u32;

/// Which of the figures of a quantity.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FigureKey {
    /// The number of the CPU or queue.
    pub number: Option<u32>,
    /// The name of the cause or place.
    pub label: Option<String>,
}

impl FigureKey {
    /// The only one.
    pub const ONLY: FigureKey = FigureKey { number: None, label: None };

    /// The figure of a number.
    pub fn number(number: u32) -> FigureKey {
        FigureKey { number: Some(number), label: None }
    }

    /// The figure of a name.
    pub fn label(label: impl Into<String>) -> FigureKey {
        FigureKey { number: None, label: Some(label.into()) }
    }

    /// The figure of a name and a number.
    pub fn numbered(number: u32, label: impl Into<String>) -> FigureKey {
        FigureKey { number: Some(number), label: Some(label.into()) }
    }
}

/// The subject of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// The run as a whole.
    Run,
    /// An arm, by its index.
    Arm(u32),
    /// A block, by its index.
    Block(u32),
}

/// One figure of a run, an arm or a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scalar {
    /// What it is about.
    pub of: Subject,
    /// Which quantity.
    pub quantity: QuantityId,
    /// Which figure of the quantity.
    pub item: FigureKey,
    /// In the quantity's unit; NaN if it could not be measured.
    pub value: f64,
}

impl Scalar {
    /// The block that it is about, if any.
    pub fn block(&self) -> Option<u32> {
        match self.of {
            Subject::Block(block) => Some(block),
            _ => None,
        }
    }
}

/// A figure outside of a recording, such as one that a guest reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its instrument, name and unit.
    pub quantity: Quantity,
    /// Which figure of the quantity.
    pub item: FigureKey,
    /// In the quantity's unit.
    pub value: f64,
}

impl Figure {
    /// The only figure of a quantity.
    pub fn new(quantity: &Declared, value: f64) -> Figure {
        Figure { quantity: quantity.into(), item: FigureKey::ONLY, value }
    }

    /// One of several.
    #[must_use]
    pub fn with_key(mut self, item: FigureKey) -> Figure {
        self.item = item;
        self
    }
}
