//! Conditions that calls are compared with, like `insns > 10K && switches == 0`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::nanoseconds;

/// Letters of an argument's name.
const MAX_NAME: usize = 200;
/// Conditions of one filter.
const MAX_TERMS: usize = 16;

/// The figure of a call that a term compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfCall {
    /// Instructions of the call and of all that it called.
    Insns,
    /// Its time, likewise.
    Duration,
    /// Its time with all that came in between: other tasks, while it waited, and interrupts.
    Elapsed,
    /// Its own instructions.
    Own,
    /// How often its task was switched out.
    Switches,
    /// The return value.
    Returned,
    /// An argument, by its name.
    Argument(String),
}

/// The figures that every call has, by name; the last one only if it returns something.
pub const OF_CALLS: [&str; 4] = ["insns", "self", "switches", "retval"];
/// The figures of timed calls, besides `switches`.
const DURATION: &str = "dur";
const ELAPSED: &str = "elapsed";

impl fmt::Display for OfCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl OfCall {
    fn named(name: &str) -> Option<OfCall> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_name = name.starts_with(first)
            && name.chars().all(|c| first(c) || c.is_ascii_digit())
            && name.len() <= MAX_NAME;
        Some(match name {
            "insns" => OfCall::Insns,
            DURATION => OfCall::Duration,
            ELAPSED => OfCall::Elapsed,
            "self" => OfCall::Own,
            "switches" => OfCall::Switches,
            "retval" => OfCall::Returned,
            _ if is_name => OfCall::Argument(name.into()),
            _ => return None,
        })
    }

    fn name(&self) -> &str {
        match self {
            OfCall::Insns => OF_CALLS[0],
            OfCall::Duration => DURATION,
            OfCall::Elapsed => ELAPSED,
            OfCall::Own => OF_CALLS[1],
            OfCall::Switches => OF_CALLS[2],
            OfCall::Returned => OF_CALLS[3],
            OfCall::Argument(name) => name,
        }
    }
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Less,
    AtMost,
    Equal,
    Unequal,
    AtLeast,
    More,
}

/// By how they are written; longer ones first.
const COMPARISONS: [(&str, Compare); 6] = [
    ("<=", Compare::AtMost),
    (">=", Compare::AtLeast),
    ("==", Compare::Equal),
    ("!=", Compare::Unequal),
    ("<", Compare::Less),
    (">", Compare::More),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    of: OfCall,
    compare: Compare,
    with: i128,
}

/// Which calls are kept: `insns > 10K && switches == 0`. All terms have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    terms: Vec<Term>,
}

impl Condition {
    /// The arguments that it compares, by name; none is what a call returns.
    pub fn values(&self) -> impl Iterator<Item = Option<&str>> {
        self.terms.iter().filter_map(|term| match &term.of {
            OfCall::Argument(name) => Some(Some(name.as_str())),
            OfCall::Returned => Some(None),
            OfCall::Insns | OfCall::Duration | OfCall::Elapsed | OfCall::Own | OfCall::Switches => {
                None
            }
        })
    }

    /// All that it compares.
    pub fn compared(&self) -> impl Iterator<Item = &OfCall> {
        self.terms.iter().map(|term| &term.of)
    }

    /// Whether it holds for a call; not if one of its values is not known.
    pub fn holds(&self, value: impl Fn(&OfCall) -> Option<i128>) -> bool {
        self.terms.iter().all(|term| {
            let Some(value) = value(&term.of) else {
                return false;
            };
            match term.compare {
                Compare::Less => value < term.with,
                Compare::AtMost => value <= term.with,
                Compare::Equal => value == term.with,
                Compare::Unequal => value != term.with,
                Compare::AtLeast => value >= term.with,
                Compare::More => value > term.with,
            }
        })
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let terms: Vec<&str> = text.split("&&").collect();
        if terms.len() > MAX_TERMS {
            return Err(format!("a condition has at most {MAX_TERMS} terms"));
        }
        let terms = terms.into_iter().map(term);
        Ok(Condition { terms: terms.collect::<Result<_, _>>()? })
    }
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

fn term(text: &str) -> Result<Term, String> {
    let text = text.trim();
    let wrong = || {
        format!(
            "invalid condition `{}`; expected like `insns > 10K`, several of them joined by `&&`",
            shown(text)
        )
    };
    let found = COMPARISONS.iter().find_map(|(word, compare)| {
        let (field, value) = text.split_once(word)?;
        Some((field.trim(), *compare, value.trim()))
    });
    let (field, compare, value) = found.ok_or_else(wrong)?;
    let of = OfCall::named(field).ok_or_else(wrong)?;
    let (with, expected) = match of {
        OfCall::Duration | OfCall::Elapsed => {
            (duration_ns(value), "a duration; expected like 10us or 1ms")
        }
        _ => (number(value), "no number; expected like 10000 or 10K"),
    };
    let refused = || {
        let (text, value) = (shown(text), shown(value));
        let is = match of {
            OfCall::Duration | OfCall::Elapsed => "is not",
            _ => "is",
        };
        format!("invalid condition `{text}`: `{value}` {is} {expected}")
    };
    Ok(Term { compare, with: with.ok_or_else(refused)?, of })
}

fn duration_ns(text: &str) -> Option<i128> {
    nanoseconds(text).map(|ns| ns.round() as i128)
}

/// A whole number, with a suffix for thousands and so on, or in hexadecimal.
pub(crate) fn number(text: &str) -> Option<i128> {
    match text.strip_prefix('-') {
        Some(text) => Some(-i128::from(positive(text)?)),
        None => Some(positive(text)?.into()),
    }
}

fn positive(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let at = text.find(|c: char| c.is_ascii_alphabetic());
    let (digits, unit) = text.split_at(at.unwrap_or(text.len()));
    let factor = match unit {
        "" => 1,
        "K" | "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    let digits: String = digits.chars().filter(|c| !"_,".contains(*c)).collect();
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, term) in self.terms.iter().enumerate() {
            let compare = COMPARISONS.iter().find(|(_, c)| *c == term.compare);
            let join = if n == 0 { "" } else { " && " };
            let compare = compare.map_or("", |c| c.0);
            let unit =
                if matches!(term.of, OfCall::Duration | OfCall::Elapsed) { "ns" } else { "" };
            write!(f, "{join}{} {compare} {}{unit}", term.of.name(), term.with)?;
        }
        Ok(())
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Condition, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that conditions hold as written, and that their text parses back.
    #[test]
    fn conditions() {
        let holds = |text: &str, insns: u64, switches: u64| {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.to_string().parse::<Condition>().unwrap(), condition);
            condition.holds(|of| match of {
                OfCall::Insns | OfCall::Duration => Some(insns.into()),
                OfCall::Elapsed => Some(i128::from(insns) + 1_000_000),
                OfCall::Own => Some(7),
                OfCall::Switches => Some(switches.into()),
                OfCall::Returned => Some(-2),
                OfCall::Argument(name) => (name == "nr_to_read").then_some(0x80),
            })
        };
        assert!(holds("insns > 10K", 10_001, 0));
        assert!(!holds("insns>10000", 10_000, 0));
        assert!(holds("insns >= 0x10&&switches == 1", 16, 1));
        assert!(!holds("insns >= 16 && switches != 1", 16, 1));
        assert!(holds("dur > 10us", 10_001, 0) && !holds("dur > 10us", 10_000, 0));
        assert!(holds("self <= 7", 0, 0));
        assert!(!holds("self < 7", 0, 0));
        assert!(holds("retval < 0 && nr_to_read == 0x80", 0, 0));
        assert!(holds("retval == -2", 0, 0) && !holds("retval > -2", 0, 0));
        assert!(!holds("other >= 0", 0, 0));
        let of = |text: &str| -> Vec<Option<String>> {
            let condition: Condition = text.parse().unwrap();
            condition.values().map(|of| of.map(String::from)).collect()
        };
        assert_eq!(of("retval < 0 && a_1 == 2"), [None, Some("a_1".into())]);
        assert_eq!(of("insns > 2"), []);
    }

    /// Check that invalid conditions are refused, with the reason.
    #[test]
    fn no_conditions() {
        let refused = |text: &str| text.parse::<Condition>().unwrap_err();
        assert!(refused("").contains("insns > 10K"));
        assert!(refused("insns").contains("insns > 10K"));
        assert!(refused("insns > ").contains("no number"));
        assert!(refused("insns > 10 KB").contains("`10 KB` is no number"));
        assert!(refused("insns > 99999999999999999999").contains("no number"));
        assert!(refused("dur > 1").contains("not a duration"));
        assert!(refused("insns > 1ms").contains("no number"));
        assert!(refused("a->b > 1").contains("insns > 10K"));
        assert!(refused("2x > 1").contains("insns > 10K"));
        assert!(refused("insns > --1").contains("no number"));
        assert!(refused("insns > 1 &&").contains("insns > 10K"));
        assert!(refused(&"insns > 1 &&".repeat(20)).contains("at most"));
    }
}
