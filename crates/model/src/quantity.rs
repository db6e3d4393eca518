//! What is measured, as data: an instrument declares its quantities, and whatever writes,
//! reads, compares or shows figures goes by what is declared.

use serde::{Deserialize, Serialize};

use crate::class::words;

words! {
    /// What kind of figure a quantity has.
    Kind, "kind of quantity",
    /// How many: whole, and never negative. Counts of blocks add up.
    Count = "count",
    /// How long, in nanoseconds. Durations add up.
    Duration = "duration",
    /// How many in a second.
    Rate = "rate",
    /// A part of a whole, or of a CPU.
    Share = "share",
}

words! {
    /// Whether a figure is the same in every run.
    Repeats, "way to repeat",
    /// It is: two figures are equal, or something has changed.
    Exactly = "exactly",
    /// It varies: blocks have to be judged as a sample.
    Statistically = "statistically",
}

words! {
    /// What the calls of a quantity's costs count.
    Calls, "kind of calls",
    /// How often functions were entered.
    Entries = "entries",
    /// Samples that were taken in them.
    Samples = "samples",
}

impl Calls {
    /// What they are called in tables: `calls` or `samples`.
    pub fn title(self) -> &'static str {
        match self {
            Calls::Entries => "calls",
            Calls::Samples => "samples",
        }
    }
}

/// A quantity, as an instrument declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// The instrument: `exact`, `rates` ...
    pub instrument: &'static str,
    /// What it is called: unique within the instrument.
    pub name: &'static str,
    /// Of what: `instructions`, `ns`, `packets/s`.
    pub unit: &'static str,
    /// What kind of figure.
    pub kind: Kind,
    /// Whether it is the same in every run.
    pub repeats: Repeats,
    /// What the calls of its costs count.
    pub calls: Calls,
    /// What the number of an [`Item`] is: `CPU`, `queue`.
    pub number: Option<&'static str>,
    /// What the label of an [`Item`] is: `cause`, `place`.
    pub label: Option<&'static str>,
}

impl Declared {
    /// One that has to be judged statistically, and one figure.
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

    /// Its costs are those of samples.
    #[must_use]
    pub const fn sampled(mut self) -> Declared {
        self.calls = Calls::Samples;
        self
    }

    /// One figure for each of these, which have numbers.
    #[must_use]
    pub const fn by_number(mut self, what: &'static str) -> Declared {
        self.number = Some(what);
        self
    }

    /// One figure for each of these, which have names.
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
    /// What it is called: unique within the instrument.
    pub name: String,
    /// Of what.
    pub unit: String,
    /// What kind of figure.
    pub kind: Kind,
    /// Whether it is the same in every run.
    pub repeats: Repeats,
    /// What the calls of its costs count.
    pub calls: Calls,
    /// What the number of an [`Item`] is.
    pub number: Option<String>,
    /// What the label of an [`Item`] is.
    pub label: Option<String>,
}

impl Quantity {
    /// Whether it is this one.
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

/// Which of a quantity's figures one is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Item {
    /// Of the CPU, or queue, of this number.
    pub number: Option<u32>,
    /// Of the cause, or place, of this name.
    pub label: Option<String>,
}

impl Item {
    /// The only one.
    pub const ONLY: Item = Item {
        number: None,
        label: None,
    };

    /// That of a number.
    pub fn number(number: u32) -> Item {
        Item {
            number: Some(number),
            label: None,
        }
    }

    /// That of a name.
    pub fn label(label: impl Into<String>) -> Item {
        Item {
            number: None,
            label: Some(label.into()),
        }
    }

    /// That of a name under a number.
    pub fn of(number: u32, label: impl Into<String>) -> Item {
        Item {
            number: Some(number),
            label: Some(label.into()),
        }
    }
}

/// What a scalar is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Of {
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
    /// What it is of.
    pub of: Of,
    /// Which quantity.
    pub quantity: QuantityId,
    /// Which of its figures.
    pub item: Item,
    /// In the quantity's unit; NaN where it was asked for and is not known.
    pub value: f64,
}

impl Scalar {
    /// The block that it is of, if it is of one.
    pub fn block(&self) -> Option<u32> {
        match self.of {
            Of::Block(block) => Some(block),
            _ => None,
        }
    }
}

/// A figure that is not in a recording yet: what a guest reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The quantity.
    pub quantity: Quantity,
    /// Which of its figures.
    pub item: Item,
    /// In the quantity's unit.
    pub value: f64,
}

impl Figure {
    /// The only figure of a quantity.
    pub fn new(quantity: &Declared, value: f64) -> Figure {
        Figure {
            quantity: quantity.into(),
            item: Item::ONLY,
            value,
        }
    }

    /// One of several.
    #[must_use]
    pub fn of(mut self, item: Item) -> Figure {
        self.item = item;
        self
    }
}
