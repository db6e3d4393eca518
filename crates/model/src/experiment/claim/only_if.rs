//! Additions to a comparison: conditions for it to apply, and a published ratio.

use serde::{Deserialize, Serialize};

use super::Claim;

/// A quantity that both arms of a comparison need to have so much of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnlyIf {
    /// The quantity ("CPU use of sender").
    pub quantity: String,
    /// How much of it.
    pub at_least: f64,
}

impl Claim {
    /// The conditions on both of its arms.
    pub fn only_if(&self) -> Option<&OnlyIf> {
        match self {
            Claim::Compare { only_if, .. } => only_if.as_ref(),
            _ => None,
        }
    }

    /// The quantities that it names, each with its key.
    pub(in crate::experiment) fn quantities(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let by = match self {
            Claim::TurningPoint { by, .. } => Some(("by", by.as_str())),
            _ => None,
        };
        let only_if = self.only_if();
        let only_if = only_if.map(|only_if| ("only_if", only_if.quantity.as_str()));
        let quantity = self.quantity().map(|name| ("quantity", name));
        quantity.into_iter().chain(by).chain(only_if)
    }

    /// The ratio that was published of its arms.
    pub fn published(&self) -> Option<f64> {
        match self {
            Claim::Compare { published, .. } => *published,
            _ => None,
        }
    }

    pub(super) fn check_published(&self) -> Result<(), (&'static str, String)> {
        match self.published() {
            Some(ratio) if !(ratio.is_finite() && ratio > 0.0) => {
                let why = format!("invalid published `{ratio}`; expected a ratio, like 1.3");
                Err(("published", why))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_only_if(&self) -> Result<(), (&'static str, String)> {
        match self.only_if() {
            Some(only_if) if !only_if.at_least.is_finite() => {
                let why = format!(
                    "invalid at_least `{}` of only_if; expected a number, like 0.98",
                    only_if.at_least
                );
                Err(("only_if", why))
            }
            _ => Ok(()),
        }
    }
}
