//! What a figure leaves out, so that nothing is missing without a word.

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
    /// So many of a cause.
    pub fn new(cause: &str, count: u64, meaning: impl Into<String>) -> Loss {
        Loss {
            cause: cause.into(),
            count,
            meaning: meaning.into(),
        }
    }
}
