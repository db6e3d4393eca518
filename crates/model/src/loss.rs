//! Losses: everything that figures leave out is counted and reported.

use serde::{Deserialize, Serialize};

/// Something that was lost, missed or could not be attributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What happened, in a few words.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// What it means for the figures.
    pub meaning: String,
}

impl Loss {
    /// A loss.
    pub fn new(cause: &str, count: u64, meaning: impl Into<String>) -> Loss {
        Loss {
            cause: cause.into(),
            count,
            meaning: meaning.into(),
        }
    }
}
