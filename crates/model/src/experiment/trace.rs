//! The calls to trace, and what to record of them.

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use crate::condition::{Condition, OfCall};
use crate::trace::CallsSpec;

/// Calls below the function, by default: the function itself is at depth 1.
const DEPTH: u32 = 6;
/// Deeper than any kernel stack.
const MAX_DEPTH: u32 = 1_000;
/// Calls that are kept, by default.
const SLOWEST: u32 = 10;
/// Each has many steps.
const MAX_SLOWEST: u32 = 1_000_000;
/// Steps of a call, by default.
const STEPS: u32 = 10_000;
/// As many as a recording has room for.
const MAX_STEPS: u32 = 1 << 22;
/// Which calls are traced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The function: the kernel's, or one of the measured program. `FILE:FUNCTION` is a function of one of the
    /// program's files, whatever the kernel has.
    pub function: String,
    /// How deep: 1 is the function alone.
    pub depth: Option<u32>,
    /// The number of calls kept in each block, the most expensive, besides the first one.
    pub slowest: Option<u32>,
    /// Maximum number of steps that are kept of a call.
    pub steps: Option<u32>,
    /// Whether calls have their arguments and what they return.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub args: bool,
    /// Which calls are kept.
    #[serde(rename = "if", skip_serializing_if = "Option::is_none")]
    pub only: Option<Condition>,
}

impl Trace {
    /// How deep: 1 is the function alone.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(DEPTH)
    }

    /// How many calls are kept in each block.
    pub fn slowest(&self) -> u32 {
        self.slowest.unwrap_or(SLOWEST)
    }

    /// Maximum number of steps of a call.
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(STEPS)
    }

    /// Whether arguments and return values are read: to be shown, or for the condition.
    pub fn has_args(&self) -> bool {
        let only = self.only.as_ref();
        self.args || only.is_some_and(|only| only.values().next().is_some())
    }

    /// The file, if one is named, and the function.
    pub fn place(&self) -> (Option<&str>, &str) {
        // Names of C++ and Rust have two of them.
        match self.function.split_once(':') {
            Some((file, name)) if !name.starts_with(':') && !file.is_empty() => (Some(file), name),
            _ => (None, &self.function),
        }
    }

    /// The request to the instrument that times calls.
    pub fn spec(&self) -> CallsSpec {
        CallsSpec {
            function: self.place().1.into(),
            depth: self.depth(),
            slowest: self.slowest(),
            steps: self.steps(),
            only: self.only.clone(),
            ..CallsSpec::default()
        }
    }

    /// Check that its figures exist for times, or for instructions.
    pub(super) fn check_clock(&self, timed: bool) -> Result<(), Wrong> {
        let mut compared = self.only.iter().flat_map(Condition::compared);
        let wrong = |of: &&OfCall| match of {
            OfCall::Switches => false,
            OfCall::Duration | OfCall::Elapsed => !timed,
            OfCall::Insns | OfCall::Own | OfCall::Returned | OfCall::Argument(_) => timed,
        };
        let why = match compared.find(wrong) {
            Some(of @ (OfCall::Duration | OfCall::Elapsed)) => format!(
                "{of} is the time of a call, and instructions are counted here: use insns, or time calls (--time, \
                 instrument `calls`)"
            ),
            Some(of) => format!("{of} is not known of calls that are timed: use dur, elapsed or switches, or instrument `exact`"),
            None if timed && self.args => {
                "arguments are read in guests, where instructions are counted (instrument `exact`): leave out --args"
                    .into()
            }
            None if timed && self.place().0.is_some() => {
                "only functions of the kernel are timed: leave out the file, or count instructions in a guest (instrument `exact`)".into()
            }
            None => return Ok(()),
        };
        Err(("if", why))
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let name = self.place().1;
        if name.is_empty() || name.len() > 1_000 || name.chars().any(char::is_control) {
            let why = "[trace] needs function, the name of one, like \"filemap_fault\"";
            return Err(("function", why.into()));
        }
        for (key, value, most) in [
            ("depth", self.depth, MAX_DEPTH),
            ("slowest", self.slowest, MAX_SLOWEST),
            ("steps", self.steps, MAX_STEPS),
        ] {
            if let Some(value) = value.filter(|n| !(1..=most).contains(n)) {
                let why = format!("invalid {key} `{value}`; expected 1 to {most}");
                return Err((key, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a file's function is distinguished from a name with colons.
    #[test]
    fn places() {
        let place = |function: &str| {
            let trace = Trace { function: function.into(), ..Trace::default() };
            let (file, name) = trace.place();
            (file.map(String::from), name.to_string())
        };
        assert_eq!(place("main"), (None, "main".into()));
        assert_eq!(place("nc:main"), (Some("nc".into()), "main".into()));
        assert_eq!(place("a::b"), (None, "a::b".into()));
        assert!(Trace::default().check().is_err());
    }
}
