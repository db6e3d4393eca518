//! Claims about the outcome, and what others published.

use serde::Deserialize;

use super::Experiment;
use crate::class::{Class, words};

words! {
    /// How an arm's cost is to stand to another's.
    Relation, "relation",
    /// It is smaller.
    Less = "less",
    /// It is larger.
    More = "more",
    /// It is the same, to the instruction.
    Same = "same",
    /// It is not.
    Different = "different",
}

/// What somebody published for one class, in their unit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The class that it is about ("raw tx").
    pub class: Class,
    /// Where it stands ("3a").
    pub figure: String,
    /// The layer's total, microseconds.
    pub total_us: f64,
    /// The function that took most.
    pub top_function: String,
    /// What that took, microseconds.
    pub top_us: f64,
}

/// A statement that the data bear out or don't.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Claim {
    /// A layer costs nearly the same in every class: largest over smallest is
    /// at most `within_ratio`.
    Alike {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The layer.
        layer: String,
        /// The classes.
        classes: Vec<Class>,
        /// The largest ratio that still counts as alike.
        within_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    },
    /// A layer's cost differs between classes: largest over smallest is more
    /// than `beyond_ratio`.
    Unlike {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The layer.
        layer: String,
        /// The classes.
        classes: Vec<Class>,
        /// The ratio that has to be passed.
        beyond_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    },
    /// In every class, the layers of `of` together cost at most `within_ratio` of
    /// what those of `than` do.
    Smaller {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The layers held to be small.
        of: Vec<String>,
        /// The layers held to be large.
        than: Vec<String>,
        /// The largest share of these that is still small: at most 1.
        within_ratio: f64,
        /// The classes.
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    },
    /// The function that costs most of a layer, in each class: asked, not held.
    Bottleneck {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The question.
        says: String,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The classes.
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    },
    /// Over arms that differ in a knob that is a number, the cost is a line: a
    /// fixed part, and a part for each unit of the knob.
    Linear {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The classes.
        classes: Vec<Class>,
        /// The knob, as a recording has it ("size_bytes", "nft.rules").
        knob: String,
        /// What one unit of it is called ("byte"); none for the knob's name.
        #[serde(default)]
        unit: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own instructions; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
        /// Only arms with at least this much of the knob.
        #[serde(default)]
        from: Option<i64>,
        /// Only arms with at most this much.
        #[serde(default)]
        to: Option<i64>,
        /// How far an arm may be off the line, percent of its cost; none for not at
        /// all, to the instruction.
        #[serde(default)]
        within_percent: Option<f64>,
    },
    /// An arm beside another.
    Compare {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The classes.
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// With which; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own instructions; none for all.
        #[serde(default)]
        function: Option<String>,
        /// How it is to stand to the other; none to ask.
        #[serde(default)]
        is: Option<Relation>,
    },
    /// The cost is the same in all arms, to the instruction.
    Unchanged {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The statement.
        says: String,
        /// The classes.
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own instructions; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
    },
    /// The functions by which an arm differs from another most: asked, not held.
    ChangedBy {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The question.
        says: String,
        /// The classes.
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// With which; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// How many functions.
        #[serde(default)]
        top: Option<usize>,
    },
    /// The arms, the cheapest first: asked, not held.
    Ranking {
        /// What the conclusion calls it.
        #[serde(default)]
        name: Option<String>,
        /// The question.
        says: String,
        /// The classes.
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own instructions; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
    },
}

/// Every kind has these.
macro_rules! of_all {
    ($claim:expr, $field:ident) => {
        match $claim {
            Claim::Alike { $field, .. }
            | Claim::Unlike { $field, .. }
            | Claim::Smaller { $field, .. }
            | Claim::Bottleneck { $field, .. }
            | Claim::Linear { $field, .. }
            | Claim::Compare { $field, .. }
            | Claim::Unchanged { $field, .. }
            | Claim::ChangedBy { $field, .. }
            | Claim::Ranking { $field, .. } => $field,
        }
    };
}

impl Claim {
    /// The statement.
    pub fn says(&self) -> &str {
        of_all!(self, says)
    }

    /// What the conclusion calls it.
    pub fn name(&self) -> Option<&str> {
        of_all!(self, name).as_deref()
    }

    /// The classes it is about.
    pub fn classes(&self) -> &[Class] {
        of_all!(self, classes)
    }

    /// The layers that it names.
    pub fn layers(&self) -> Vec<&str> {
        match self {
            Claim::Alike { layer, .. } | Claim::Unlike { layer, .. } => vec![layer],
            Claim::Smaller { of, than, .. } => of.iter().chain(than).map(String::as_str).collect(),
            Claim::Bottleneck { layer, .. }
            | Claim::Linear { layer, .. }
            | Claim::Compare { layer, .. }
            | Claim::Unchanged { layer, .. }
            | Claim::Ranking { layer, .. } => layer.iter().map(String::as_str).collect(),
            Claim::ChangedBy { .. } => Vec::new(),
        }
    }

    /// The arms that it names.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Claim::Alike { arm, .. }
            | Claim::Unlike { arm, .. }
            | Claim::Smaller { arm, .. }
            | Claim::Bottleneck { arm, .. } => arm.iter().map(String::as_str).collect(),
            Claim::Linear { arms, .. }
            | Claim::Unchanged { arms, .. }
            | Claim::Ranking { arms, .. } => arms.iter().map(String::as_str).collect(),
            Claim::Compare { arm, against, .. } | Claim::ChangedBy { arm, against, .. } => {
                let against = against.iter().map(String::as_str);
                std::iter::once(arm.as_str()).chain(against).collect()
            }
        }
    }
}

impl Experiment {
    pub(super) fn check_claims(&self) -> Result<(), (&'static str, String)> {
        let arms = self.arms();
        for p in &self.published {
            for (key, us, least) in [
                ("total_us", p.total_us, f64::MIN_POSITIVE),
                ("top_us", p.top_us, 0.0),
            ] {
                if !us.is_finite() || us < least {
                    return Err((key, format!("{key} is {us}: a time in microseconds")));
                }
            }
        }
        for claim in &self.claims {
            if claim.classes().is_empty() {
                return Err((
                    "classes",
                    format!("the claim \"{}\" is about no class", claim.says()),
                ));
            }
            let ratio = match claim {
                Claim::Alike { within_ratio, .. } => Some(("within_ratio", *within_ratio)),
                Claim::Unlike { beyond_ratio, .. } => Some(("beyond_ratio", *beyond_ratio)),
                _ => None,
            };
            if let Claim::Smaller {
                within_ratio: r, ..
            } = claim
                && !(*r > 0.0 && *r <= 1.0)
            {
                return Err((
                    "within_ratio",
                    format!("a ratio of {r}: small over large is more than 0 and at most 1"),
                ));
            }
            if let Some((key, r)) = ratio
                && (!r.is_finite() || r < 1.0)
            {
                return Err((
                    key,
                    format!("a ratio of {r}: largest over smallest is 1 or more"),
                ));
            }
            if let Claim::Linear {
                within_percent: Some(percent),
                ..
            } = claim
                && !(percent.is_finite() && (0.0..=100.0).contains(percent))
            {
                return Err(("within_percent", format!("{percent} percent: 0 to 100")));
            }
            // The arms of a scan are known when its settings are.
            for name in claim.arms().into_iter().filter(|_| self.scan.is_none()) {
                if !arms.iter().any(|arm| arm.name == name) {
                    let nearest = arms
                        .iter()
                        .min_by_key(|arm| strsim::damerau_levenshtein(name, &arm.name));
                    let hint = nearest.map_or("", |arm| &arm.name);
                    return Err((
                        "arm",
                        format!("no arm is called `{name}`: did you mean `{hint}`?"),
                    ));
                }
            }
            for class in claim.classes() {
                if !arms.iter().any(|arm| arm.proto == class.proto) {
                    return Err((
                        "classes",
                        format!(
                            "no arm sends {}, which the class `{class}` needs",
                            class.proto
                        ),
                    ));
                }
            }
        }
        for name in self.conclusion.iter().flat_map(|c| placeholders(c)) {
            if !self.claims.iter().any(|c| c.name() == Some(name)) {
                return Err((
                    "conclusion",
                    format!("no claim is called `{name}`, which the conclusion names"),
                ));
            }
        }
        Ok(())
    }
}

/// The names in braces of a conclusion.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0))
}
