//! A row of a comparison: one quantity of a class before and after, and the judge's verdict.

use netplumb_model::class::Context;
use netplumb_stats::judge;

use super::exact::{Delta, PerPacket};
use super::functions::JointId;

/// The verdict on figures that repeat exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer.
    Better,
    /// More.
    Worse,
    /// Equal to the last instruction, call or event.
    Equal,
    /// A change no larger than the range of the blocks of one side.
    WithinSpread,
    /// A change of less than one a packet.
    Negligible,
    /// A change no larger than the difference between boots of the same system.
    Luck,
    /// A change that other random seeds don't show, or show with the opposite sign.
    Seeds,
    /// A change between kernels on a path whose code is the same in both, seen with one seed.
    Placement,
}

impl Verdict {
    /// The verdict as shown, in a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Equal
            | Verdict::WithinSpread
            | Verdict::Negligible
            | Verdict::Luck
            | Verdict::Seeds => "no difference",
            Verdict::Placement => "placement",
        }
    }

    /// For programs, in full.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Equal => "equal",
            Verdict::WithinSpread => "within_spread",
            Verdict::Negligible => "negligible",
            Verdict::Luck => "luck",
            Verdict::Seeds => "within_seeds",
            Verdict::Placement => "placement",
        }
    }

    /// Whether there is a difference.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }
}

/// Sums before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: PerPacket,
    /// After.
    pub after: PerPacket,
}

impl Change {
    /// The difference per packet.
    pub fn delta(&self) -> Delta {
        Delta::between(self.before, self.after)
    }

    /// In percent of the figure before; none where that is zero.
    pub fn percent(&self) -> Option<f64> {
        (self.before.sum > 0).then(|| self.delta().value() * 100.0 / self.before.value())
    }
}

/// A judge's verdict on both sides' figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Judged {
    /// Sums that repeat exactly: equal or not.
    Exactly(Change, Verdict),
    /// A sample of blocks on each side: an interval on the ratio, and the smallest change that
    /// would have been seen.
    Statistically(judge::Judged),
}

impl Judged {
    /// Mean per packet before.
    pub fn before(&self) -> f64 {
        match self {
            Judged::Exactly(change, _) => change.before.value(),
            Judged::Statistically(judged) => judged.before,
        }
    }

    /// Mean per packet after.
    pub fn after(&self) -> f64 {
        match self {
            Judged::Exactly(change, _) => change.after.value(),
            Judged::Statistically(judged) => judged.after,
        }
    }

    /// Whether there is a difference.
    pub fn differs(&self) -> bool {
        match self {
            Judged::Exactly(_, verdict) => verdict.differs(),
            Judged::Statistically(judged) => judged.verdict.differs(),
        }
    }

    /// Whether it costs more for certain.
    pub fn is_worse(&self) -> bool {
        match self {
            Judged::Exactly(_, verdict) => *verdict == Verdict::Worse,
            Judged::Statistically(judged) => judged.verdict == judge::Verdict::Slower,
        }
    }

    /// The verdict in words.
    pub fn as_str(&self) -> &'static str {
        match self {
            Judged::Exactly(_, verdict) => verdict.as_str(),
            Judged::Statistically(judged) => judged.verdict.as_str(),
        }
    }

    /// The verdict for programs.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Judged::Exactly(_, verdict) => verdict.as_str(),
            Judged::Statistically(judged) => match judged.verdict {
                judge::Verdict::Faster => "faster",
                judge::Verdict::Slower => "slower",
                judge::Verdict::NoDifference => "no_difference_seen",
                judge::Verdict::TooFew => "too_few_blocks",
            },
        }
    }

    /// The sums, where they repeat exactly.
    pub fn exactly(&self) -> Option<Change> {
        match self {
            Judged::Exactly(change, _) => Some(*change),
            Judged::Statistically(_) => None,
        }
    }

    /// The sample, where it was judged as one.
    pub fn statistically(&self) -> Option<&judge::Judged> {
        match self {
            Judged::Exactly(..) => None,
            Judged::Statistically(judged) => Some(judged),
        }
    }
}

/// A function whose calls and costs were counted exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Which function.
    pub function: JointId,
    /// Of two kernels: whether its code is the same in both, where that is known.
    pub same_code: Option<bool>,
    /// Calls.
    pub calls: Change,
    /// Its own cost.
    pub own: Change,
    /// Its own cost and its callees'.
    pub inclusive: Change,
    /// By context: calls, own and inclusive.
    pub contexts: Vec<(Context, [Change; 3])>,
}

/// A time before and after; none where nothing was timed.
pub type BeforeAfter = [Option<f64>; 2];

/// Percentiles that comparisons show.
pub const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// One quantity before and after: of a function, stage, layer, context, class or arm.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffRow {
    /// The function, stage, layer, context, class or arm.
    pub name: String,
    /// A function's layer or a stage's kind; may be empty.
    pub of: String,
    /// Both figures, and the verdict.
    pub judged: Judged,
    /// A function's calls and costs, where they were counted exactly.
    pub counts: Option<Counts>,
    /// The [`QUANTILES`] before and after, of single calls, or of packets that went through the
    /// stage. None for a sum.
    pub quantiles: [BeforeAfter; 2],
}

impl DiffRow {
    pub(super) fn new(name: &str, of: &str, judged: Judged) -> DiffRow {
        DiffRow {
            name: name.into(),
            of: of.into(),
            judged,
            counts: None,
            quantiles: [[None; 2]; 2],
        }
    }

    /// Whether it is a function whose code is the same in two kernels.
    pub fn has_same_code(&self) -> bool {
        (self.counts.as_ref()).is_some_and(|counts| counts.same_code == Some(true))
    }

    /// After less before, per packet.
    pub fn delta(&self) -> f64 {
        match &self.judged {
            Judged::Exactly(change, _) => change.delta().value(),
            Judged::Statistically(judged) => judged.after - judged.before,
        }
    }
}
