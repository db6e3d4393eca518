//! Losses: everything that figures leave out is counted and reported.

use serde::{Deserialize, Serialize};

use crate::text::{plural, thousands};

/// The nouns of causes, in the plural as declared.
const NOUNS: &[&str] = &[
    "call",
    "change",
    "entry",
    "event",
    "exit",
    "file",
    "frame",
    "function",
    "hit",
    "instruction",
    "interrupt",
    "line",
    "packet",
    "process",
    "record",
    "return",
    "run",
    "sample",
    "stack",
    "step",
    "switch",
    "time",
    "trace",
    "tracepoint",
];
/// Verbs of such nouns, in the plural and in the singular.
const VERBS: &[(&str, &str)] = &[("are", "is"), ("were", "was"), ("have", "has")];
/// The noun is among this many words at the beginning of a cause.
const BEFORE: usize = 4;

/// Something that was lost, missed or could not be attributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What happened, in a few words.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// Its effect on the figures.
    pub meaning: String,
}

impl Loss {
    /// Something that happened `count` times, and its effect on figures.
    pub fn new(cause: &str, count: u64, meaning: impl Into<String>) -> Loss {
        Loss { cause: cause.into(), count, meaning: meaning.into() }
    }

    /// How often what happened: `12 calls without a percentile`, `1 process that was not followed`.
    pub fn in_words(&self) -> String {
        let count = thousands(self.count);
        if self.count != 1 {
            return format!("{count} {}", self.cause);
        }
        let singular = |word: &str| NOUNS.iter().copied().find(|noun| plural(2, noun) == word);
        let mut words: Vec<&str> = self.cause.split(' ').collect();
        let Some(at) = words.iter().take(BEFORE).position(|word| singular(word).is_some()) else {
            return format!("{count} {}", self.cause);
        };
        // The noun, possibly with another: `functions or tracepoints`.
        let beside = matches!(words.get(at + 1), Some(&("or" | "and"))).then_some(at + 2);
        for at in [Some(at), beside].into_iter().flatten() {
            if let Some(word) = words.get_mut(at) {
                *word = singular(word).unwrap_or(word);
            }
        }
        let verb = |word: &str| VERBS.iter().find(|(verb, _)| *verb == word);
        let found = words[at..].iter().position(|word| verb(word).is_some());
        if let Some(word) = found.and_then(|after| words.get_mut(at + after)) {
            *word = verb(word).map_or(*word, |(_, one)| one);
        }
        format!("{count} {}", words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one of something lost is in the singular.
    #[test]
    fn singular() {
        let of = |cause: &str, count| Loss::new(cause, count, "").in_words();
        for (cause, one) in [
            ("functions without names of arguments", "1 function without names of arguments"),
            ("new processes that were not followed", "1 new process that was not followed"),
            (
                "functions or tracepoints that could not be attached to",
                "1 function or tracepoint that could not be attached to",
            ),
            ("entries without an exit", "1 entry without an exit"),
            ("calls below traced calls", "1 call below traced calls"),
            ("begun, and no room in the table", "1 begun, and no room in the table"),
        ] {
            assert_eq!(of(cause, 1), one);
            assert_eq!(of(cause, 1_200), format!("1,200 {cause}"));
        }
    }
}
