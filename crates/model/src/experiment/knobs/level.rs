//! Levels of knobs: what each knob takes, read from a file or a word of the command line,
//! and written as a recording has it.

use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

use super::super::nft::{self, Nft};

/// A number of bytes: an integer, or a string with a unit ("64K", "1500B").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u32);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let digits = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (number, unit) = s.split_at(digits);
        let factor = match unit.trim() {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            other => {
                return Err(format!(
                    "`{}` is no unit of bytes: it takes B, K (1,024) or M",
                    cut(other, 20)
                ));
            }
        };
        number
            .parse::<u32>()
            .ok()
            .and_then(|n| n.checked_mul(factor))
            .map(Bytes)
            .ok_or_else(|| format!("`{}` is no number of bytes", cut(s, 40)))
    }
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// What a knob takes.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// "on" or "off", in a file also a boolean.
    Switch,
    /// One of these words.
    Word {
        /// What they are: "link".
        what: &'static str,
        /// All of them.
        words: &'static [&'static str],
    },
    /// A whole number.
    Number {
        /// The least.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// A number of bytes.
    Bytes,
    /// A text, or a number that stands for one.
    Text {
        /// What it is called in the reference: "string", "rate".
        what: &'static str,
        /// As it is kept, or what is wrong with it.
        parse: fn(&str) -> Result<String, String>,
    },
    /// Rules of nftables.
    Rules,
    /// A table of switches, by these words.
    Switches {
        /// What the words are: "offload".
        what: &'static str,
        /// All of them.
        words: &'static [&'static str],
    },
    /// A table of settings, by their names.
    Settings,
}

/// What a knob is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// As a recording has it.
    Text(String),
    /// Rules of nftables, which are several keys of a recording.
    Rules(Nft),
}

impl Level {
    /// As a recording has it; none of rules.
    pub fn text(&self) -> Option<&str> {
        match self {
            Level::Text(text) => Some(text),
            Level::Rules(_) => None,
        }
    }
}

impl Takes {
    /// Whether it is a table, whose keys are a part of the knob's.
    pub fn is_table(self) -> bool {
        matches!(self, Takes::Switches { .. } | Takes::Settings)
    }

    /// What it is called in the reference.
    pub fn called(self) -> &'static str {
        match self {
            Takes::Switch => "switch",
            Takes::Word { .. } => "word",
            Takes::Number { .. } => "integer",
            Takes::Bytes => "bytes",
            Takes::Text { what, .. } => what,
            Takes::Rules => "rules",
            Takes::Switches { .. } | Takes::Settings => "table",
        }
    }

    /// A level from a word of the command line.
    ///
    /// # Errors
    /// It is none: what it takes.
    pub fn parse(self, text: &str) -> Result<Level, String> {
        let text = match self {
            Takes::Switch | Takes::Switches { .. } => match text {
                "on" | "off" => text.to_string(),
                other => return Err(format!("`{}`: it takes on or off", cut(other, 40))),
            },
            Takes::Word { what, words } => match words.contains(&text) {
                true => text.to_string(),
                false => {
                    return Err(format!(
                        "`{}` is no {what}: it takes {}",
                        cut(text, 80),
                        words.join(", ")
                    ));
                }
            },
            Takes::Number { least, most } => match text.parse::<i64>() {
                Ok(n) => number(n, least, most)?,
                Err(_) => return Err(format!("`{}` is no whole number", cut(text, 40))),
            },
            Takes::Bytes => text.parse::<Bytes>()?.0.to_string(),
            Takes::Text { parse, .. } => parse(text)?,
            Takes::Rules => {
                return Ok(Level::Rules(Nft::Text {
                    rules: text.into(),
                    file: None,
                }));
            }
            Takes::Settings => text.to_string(),
        };
        Ok(Level::Text(text))
    }

    fn number(self, n: i64) -> Result<Level, String> {
        let text = match self {
            Takes::Number { least, most } => number(n, least, most)?,
            Takes::Bytes => match u32::try_from(n) {
                Ok(n) => n.to_string(),
                Err(_) => return Err(format!("{n} is no number of bytes")),
            },
            Takes::Text { parse, .. } => parse(&n.to_string())?,
            _ => return Err(format!("{n} is no {}", self.called())),
        };
        Ok(Level::Text(text))
    }

    /// Whether a number may stand for a level.
    pub(super) fn has_numbers(self) -> bool {
        match self {
            Takes::Number { .. } | Takes::Bytes => true,
            Takes::Text { what, .. } => what != "string",
            _ => false,
        }
    }
}

/// A whole number within its bounds.
fn number(n: i64, least: u32, most: u32) -> Result<String, String> {
    match u32::try_from(n) {
        Ok(fits) if (least..=most).contains(&fits) => Ok(fits.to_string()),
        _ if most == u32::MAX => Err(format!("{n}: it takes {least} or more")),
        _ => Err(format!("{n}: it takes {least} to {most}")),
    }
}

/// Reads one level from a file.
pub(super) struct ReadLevel(pub(super) Takes);

impl<'de> serde::de::DeserializeSeed<'de> for ReadLevel {
    type Value = Level;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Level, D::Error> {
        match self.0 {
            Takes::Rules => nft::TomlNft::deserialize(deserializer).map(|n| Level::Rules(n.0)),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl serde::de::Visitor<'_> for ReadLevel {
    type Value = Level;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Takes::Switch | Takes::Switches { .. } => "\"on\" or \"off\"",
            Takes::Word { what, .. } => return write!(f, "a {what}"),
            Takes::Number { .. } => "a whole number",
            Takes::Bytes => "a number of bytes, like 1500 or \"64K\"",
            Takes::Text { what, .. } => return write!(f, "a {what}"),
            Takes::Rules => "rules",
            Takes::Settings => "a string",
        })
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Level, E> {
        match self.0 {
            Takes::Switch | Takes::Switches { .. } => {
                Ok(Level::Text(if on { "on" } else { "off" }.into()))
            }
            _ => Err(E::invalid_type(Unexpected::Bool(on), &self)),
        }
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Level, E> {
        match self.0.has_numbers() {
            true => self.0.number(n).map_err(E::custom),
            false => Err(E::invalid_type(Unexpected::Signed(n), &self)),
        }
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Level, E> {
        self.visit_i64(i64::try_from(n).unwrap_or(i64::MAX))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Level, E> {
        match self.0 {
            Takes::Switch | Takes::Switches { .. } => match text {
                "on" | "off" => Ok(Level::Text(text.into())),
                _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
            },
            Takes::Word { words, .. } => match words.contains(&text) {
                true => Ok(Level::Text(text.into())),
                // The nearest word is found in what serde says.
                false => Err(E::unknown_variant(text, words)),
            },
            Takes::Number { .. } => Err(E::invalid_type(Unexpected::Str(text), &self)),
            takes => takes.parse(text).map_err(E::custom),
        }
    }
}
