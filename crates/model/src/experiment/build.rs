//! Builds of an experiment on this machine, before anything is measured.

use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// Limit, so that an experiment can be read before it is run.
const MAX_COMMANDS: usize = 32;

/// Commands that make what the experiment measures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Build {
    /// Each with its arguments, run one after another in the experiment's directory.
    pub commands: Vec<Vec<String>>,
}

impl Build {
    /// Whether there is nothing to build.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.commands.len() > MAX_COMMANDS {
            let count = self.commands.len();
            let why = format!("too many commands ({count}); expected at most {MAX_COMMANDS}");
            return Err(("commands", why));
        }
        let is_empty = |words: &Vec<String>| words.first().is_none_or(String::is_empty);
        match self.commands.iter().any(is_empty) {
            true => {
                let why = "empty command; expected its words, like [\"make\", \"-s\"]";
                Err(("commands", why.into()))
            }
            false => Ok(()),
        }
    }
}
