//! Which calls are traced, and of what they are told.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::nanoseconds;

/// What is wrong with a key.
type Wrong = (&'static str, String);

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
/// Letters of an argument's name.
const MAX_NAME: usize = 200;
/// Conditions of one filter.
const MAX_TERMS: usize = 16;

/// Which calls are traced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The function: the kernel's, or one of the measured program. `FILE:FUNCTION` is that of a file
    /// of the program, whatever the kernel has.
    pub function: String,
    /// How deep: 1 is the function alone.
    pub depth: Option<u32>,
    /// How many calls are kept in each block, those that took most; besides the first one.
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

    /// What of it instructions have, and times don't, or the other way round.
    pub(super) fn check_clock(&self, timed: bool) -> Result<(), Wrong> {
        let mut compared = self.only.iter().flat_map(Condition::compared);
        let wrong = |of: &&Of| match of {
            Of::Switches => false,
            Of::Duration | Of::Elapsed => !timed,
            Of::Insns | Of::Own | Of::Returned | Of::Argument(_) => timed,
        };
        let why = match compared.find(wrong) {
            Some(of @ (Of::Duration | Of::Elapsed)) => format!(
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

/// What of a call a term compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// Instructions, with those of all that it called.
    Insns,
    /// Its time, likewise.
    Duration,
    /// Its time with all that came in between: other tasks, while it waited, and interrupts.
    Elapsed,
    /// Its own instructions.
    Own,
    /// How often its task was switched out.
    Switches,
    /// What it returned.
    Returned,
    /// An argument, by its name.
    Argument(String),
}

/// What can be compared of every call, by name; the last one of those that return something.
pub const FIELDS: [&str; 4] = ["insns", "self", "switches", "retval"];
/// What is compared of calls that are timed, besides `switches`.
const DURATION: &str = "dur";
const ELAPSED: &str = "elapsed";

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Of {
    fn named(name: &str) -> Option<Of> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_name = name.starts_with(first)
            && name.chars().all(|c| first(c) || c.is_ascii_digit())
            && name.len() <= MAX_NAME;
        Some(match name {
            "insns" => Of::Insns,
            DURATION => Of::Duration,
            ELAPSED => Of::Elapsed,
            "self" => Of::Own,
            "switches" => Of::Switches,
            "retval" => Of::Returned,
            _ if is_name => Of::Argument(name.into()),
            _ => return None,
        })
    }

    fn name(&self) -> &str {
        match self {
            Of::Insns => FIELDS[0],
            Of::Duration => DURATION,
            Of::Elapsed => ELAPSED,
            Of::Own => FIELDS[1],
            Of::Switches => FIELDS[2],
            Of::Returned => FIELDS[3],
            Of::Argument(name) => name,
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
    of: Of,
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
            Of::Argument(name) => Some(Some(name.as_str())),
            Of::Returned => Some(None),
            Of::Insns | Of::Duration | Of::Elapsed | Of::Own | Of::Switches => None,
        })
    }

    /// All that it compares.
    pub fn compared(&self) -> impl Iterator<Item = &Of> {
        self.terms.iter().map(|term| &term.of)
    }

    /// Whether it holds for a call; not if one of its values is not known.
    pub fn holds(&self, value: impl Fn(&Of) -> Option<i128>) -> bool {
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
    let of = Of::named(field).ok_or_else(wrong)?;
    let (with, expected) = match of {
        Of::Duration | Of::Elapsed => (duration_ns(value), "a duration; expected like 10us or 1ms"),
        _ => (number(value), "no number; expected like 10000 or 10K"),
    };
    let refused = || {
        let (text, value) = (shown(text), shown(value));
        let is = match of {
            Of::Duration | Of::Elapsed => "is not",
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
            let unit = if matches!(term.of, Of::Duration | Of::Elapsed) { "ns" } else { "" };
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

    /// Check that conditions mean what they say, and are written as they are read.
    #[test]
    fn conditions() {
        let holds = |text: &str, insns: u64, switches: u64| {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.to_string().parse::<Condition>().unwrap(), condition);
            condition.holds(|of| match of {
                Of::Insns | Of::Duration => Some(insns.into()),
                Of::Elapsed => Some(i128::from(insns) + 1_000_000),
                Of::Own => Some(7),
                Of::Switches => Some(switches.into()),
                Of::Returned => Some(-2),
                Of::Argument(name) => (name == "nr_to_read").then_some(0x80),
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

    /// Check that what is no condition is refused, by what is wrong with it.
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

    /// Check that a function of a file is told from a name that has colons.
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
