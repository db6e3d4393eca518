//! A line of a comparison's table, and its cells.

use netplumb_model::class::Context;
use netplumb_stats::judge;

use crate::diff::exact::{Delta, PerPacket};
use crate::diff::functions::Joint;
use crate::diff::sentence::{figure, percent, percent_text, ratio_percent, signed};
use crate::diff::{Change, ClassDiff, Diff, DiffRow, Judged};
use crate::table::{Column, Value};
use crate::times::rounded;

/// The width from which there is room for every column of exact costs.
pub(super) const WIDE: usize = 80;

/// Columns over rows of a comparison.
pub(super) type Columns<'a> = Vec<Column<'a, Line<'a>>>;

/// The subject of a line.
pub(super) enum LineSubject<'a> {
    Row(&'a DiffRow),
    /// A function in one context: calls, own and inclusive.
    Context(&'a DiffRow, Context, [Change; 3]),
    /// Several functions together.
    Rest(String, Delta),
}

/// A line of a comparison's table.
pub(in crate::diff) struct Line<'a> {
    pub(super) diff: &'a Diff<'a>,
    pub(super) class: &'a ClassDiff,
    /// `total`, `all functions`, `stage`, `function` ...
    pub(super) kind: &'static str,
    pub(super) of: LineSubject<'a>,
}

impl<'a> Line<'a> {
    pub(super) fn row(&self) -> Option<&'a DiffRow> {
        match self.of {
            LineSubject::Row(row) | LineSubject::Context(row, ..) => Some(row),
            LineSubject::Rest(..) => None,
        }
    }

    pub(super) fn judged(&self) -> Option<&'a Judged> {
        Some(&self.row()?.judged)
    }

    pub(super) fn sample(&self) -> Option<&'a judge::Judged> {
        self.judged()?.statistically()
    }

    /// The function of either side that the line is about.
    pub(super) fn joint(&self) -> Option<&'a Joint> {
        let counts = self.row()?.counts.as_ref()?;
        self.diff.functions.joints.get(counts.function as usize)
    }

    /// Calls, own or inclusive.
    pub(super) fn change(&self, which: usize) -> Option<Change> {
        if let LineSubject::Context(_, _, changes) = self.of {
            return Some(changes[which]);
        }
        let counts = self.row()?.counts.as_ref()?;
        Some([counts.calls, counts.own, counts.inclusive][which])
    }

    /// The sums that the line is about.
    pub(super) fn sums(&self) -> Option<Change> {
        match self.of {
            LineSubject::Context(_, _, changes) => Some(changes[1]),
            _ => self.judged()?.exactly(),
        }
    }

    pub(super) fn arm(&self, after: bool) -> Value {
        let (sides, arms) = (self.diff.sides, self.class.arms);
        Value::Text(match after {
            false => sides.before.arms[arms.before].name.clone(),
            true => sides.after.arms[arms.after].name.clone(),
        })
    }

    /// A figure, in the class's unit.
    pub(super) fn figure(&self, of: fn(&Judged) -> f64) -> Value {
        let figure = self.judged().map_or(f64::NAN, of);
        match (self.class.unit.as_str(), self.class.rates) {
            _ if self.class.is_share() => Value::Formatted(percent_text(figure), Some(figure)),
            ("ns", None) => Value::Ns(figure),
            // At a high rate, a fraction of a nanosecond may matter.
            _ => Value::Number(figure),
        }
    }

    /// The 95 % interval of a side's mean.
    pub(super) fn interval(&self, after: bool) -> Value {
        let sides = self.sample().map(|sample| sample.sides);
        let Some((low, high)) = sides.and_then(|sides| sides[usize::from(after)]) else {
            return Value::Missing;
        };
        let text = match self.class.unit.as_str() {
            _ if self.class.is_share() => {
                format!("{low:.2} to {}", percent_text(high))
            }
            "ns" => return Value::NsRange(low, high),
            _ => format!("{} to {}", rounded(low), rounded(high)),
        };
        Value::Formatted(text, Some(high - low))
    }

    /// After less before, with its sign.
    pub(super) fn difference(&self) -> Value {
        let delta = self.row().map_or(f64::NAN, DiffRow::delta);
        let size = match self.class.unit.as_str() {
            _ if self.class.is_share() => {
                return Value::Formatted(format!("{delta:+.2}"), Some(delta));
            }
            "ns" => Value::Ns(delta),
            _ => Value::Number(delta),
        };
        let sign = if delta > 0.0 { "+" } else { "" };
        Value::Formatted(format!("{sign}{}", size.cell_text()), Some(delta))
    }

    /// One side as shown: exact figures to the last digit.
    pub(super) fn side(&self, after: bool) -> Value {
        if let LineSubject::Rest(..) = self.of {
            return text_value(String::new());
        }
        match (self.sums(), after) {
            (Some(sums), false) => exactly(sums.before),
            (Some(sums), true) => exactly(sums.after),
            (None, false) => self.figure(Judged::before),
            (None, true) => self.figure(Judged::after),
        }
    }

    /// The change of exact costs.
    pub(super) fn signed(&self) -> Value {
        match (&self.of, self.sums()) {
            (LineSubject::Rest(_, delta), _) => {
                Value::Formatted(signed(delta), Some(delta.value()))
            }
            (_, Some(sums)) => {
                let delta = sums.delta();
                Value::Formatted(signed(&delta), Some(delta.value()))
            }
            (_, None) => text_value(String::new()),
        }
    }

    /// The change in percent; "new" or "gone" for a function that the other kernel's path does not
    /// have.
    pub(super) fn percent(&self) -> Value {
        if let Some(sample) = self.sample() {
            let ratio = sample.ratio.map(|ratio| ratio.value);
            return ratio.map_or(Value::Missing, |r| Value::Formatted(ratio_percent(r), Some(r)));
        }
        let other_kernel = (self.class.counted.as_ref()).is_some_and(|c| !c.same_kernel);
        text_value(match (self.joint().map(Joint::status), self.sums()) {
            (Some(status @ ("gone" | "new")), _) if other_kernel => status.into(),
            (_, Some(sums)) => return Value::Formatted(percent(&sums), sums.percent()),
            (_, None) => String::new(),
        })
    }
}

pub(super) fn text_value(text: String) -> Value {
    match text.is_empty() {
        true => Value::Text(text),
        false => Value::Formatted(text, None),
    }
}

/// A figure to the last digit.
pub(super) fn exactly(side: PerPacket) -> Value {
    Value::Formatted(figure(side), Some(side.value()))
}
