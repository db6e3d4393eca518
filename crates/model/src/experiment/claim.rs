//! Claims about the outcome, and what others published.

use serde::Deserialize;

use super::Experiment;
use crate::class::Class;

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
        /// The statement.
        says: String,
        /// The layer.
        layer: String,
        /// The classes.
        classes: Vec<Class>,
        /// The largest ratio that still counts as alike.
        within_ratio: f64,
    },
    /// A layer's cost differs between classes: largest over smallest is more
    /// than `beyond_ratio`.
    Unlike {
        /// The statement.
        says: String,
        /// The layer.
        layer: String,
        /// The classes.
        classes: Vec<Class>,
        /// The ratio that has to be passed.
        beyond_ratio: f64,
    },
    /// In every class, the layers of `of` together cost less than those of
    /// `than`.
    Smaller {
        /// The statement.
        says: String,
        /// The layers held to be small.
        of: Vec<String>,
        /// The layers held to be large.
        than: Vec<String>,
        /// The classes.
        classes: Vec<Class>,
    },
    /// The function that costs most of a layer, in each class: asked, not held.
    Bottleneck {
        /// The question.
        says: String,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The classes.
        classes: Vec<Class>,
    },
}

impl Claim {
    /// The statement.
    pub fn says(&self) -> &str {
        match self {
            Claim::Alike { says, .. }
            | Claim::Unlike { says, .. }
            | Claim::Smaller { says, .. }
            | Claim::Bottleneck { says, .. } => says,
        }
    }

    /// The layers that it names.
    pub fn layers(&self) -> Vec<&str> {
        match self {
            Claim::Alike { layer, .. } | Claim::Unlike { layer, .. } => vec![layer],
            Claim::Smaller { of, than, .. } => of.iter().chain(than).map(String::as_str).collect(),
            Claim::Bottleneck { layer, .. } => layer.iter().map(String::as_str).collect(),
        }
    }

    /// The classes it is about.
    pub fn classes(&self) -> &[Class] {
        match self {
            Claim::Alike { classes, .. }
            | Claim::Unlike { classes, .. }
            | Claim::Smaller { classes, .. }
            | Claim::Bottleneck { classes, .. } => classes,
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
                Claim::Smaller { .. } | Claim::Bottleneck { .. } => None,
            };
            if let Some((key, r)) = ratio
                && (!r.is_finite() || r < 1.0)
            {
                return Err((
                    key,
                    format!("a ratio of {r}: largest over smallest is 1 or more"),
                ));
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
        Ok(())
    }
}
