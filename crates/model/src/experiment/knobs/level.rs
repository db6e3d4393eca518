//! Levels of knobs: the values that each knob accepts, read from a file or the command line,
//! and written as in a recording.

use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

use super::super::nft::{self, Nft};
use crate::class::UnknownWord;

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
            "G" | "GiB" => 1 << 30,
            _ => return Err(invalid_size(s)),
        };
        number
            .parse::<u32>()
            .ok()
            .and_then(|n| n.checked_mul(factor))
            .map(Bytes)
            .ok_or_else(|| invalid_size(s))
    }
}

fn invalid_size(text: &str) -> String {
    format!(
        "invalid size `{}`; expected bytes like 1400, 4K (1,024 bytes each), 1M or 1G",
        cut(text, 40)
    )
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// The values that a knob accepts.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// "on" or "off", in a file also a boolean.
    Switch,
    /// One of these words.
    Word {
        /// Their kind: "link".
        what: &'static str,
        /// All of them.
        words: &'static [&'static str],
    },
    /// A whole number.
    Number {
        /// The smallest accepted value.
        least: u32,
        /// The largest accepted value.
        most: u32,
    },
    /// A number of bytes.
    Bytes,
    /// A text; a number may be written without quotes.
    Text {
        /// Its name in the reference: "string", "rate".
        what: &'static str,
        /// Its normal form, or what is wrong with it.
        parse: fn(&str) -> Result<String, String>,
    },
    /// A file, or in a file of experiments a list of them; separated by commas in a recording.
    Files,
    /// A name of a module, or in a file of experiments a list of them; separated by commas in a recording.
    Modules,
    /// nftables rules.
    Rules,
    /// A table of switches with these names.
    Switches {
        /// The kind of words: "offload".
        what: &'static str,
        /// All of them; none if any name is accepted.
        words: &'static [&'static str],
    },
    /// A table of whole numbers with these names.
    Numbers {
        /// The kind of words: "ring".
        what: &'static str,
        /// All of them.
        words: &'static [&'static str],
        /// The smallest number.
        least: u32,
        /// The names that are switches instead.
        switches: &'static [&'static str],
    },
    /// A table of sysctls, by name.
    Settings,
    /// A table of BPF programs, by device: `FILE[:PROGRAM]`; empty for none.
    Objects,
}

/// The value of a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// As written in a recording.
    Text(String),
    /// nftables rules, several keys in a recording.
    Rules(Nft),
}

impl Level {
    /// As written in a recording; none for nftables rules.
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
        matches!(
            self,
            Takes::Switches { .. } | Takes::Numbers { .. } | Takes::Settings | Takes::Objects
        )
    }

    /// Whether it is a table of BPF programs.
    pub(super) fn is_of_objects(self) -> bool {
        matches!(self, Takes::Objects)
    }

    /// What a name in a table takes.
    pub(super) fn with_key(self, below: &str) -> Takes {
        match self {
            Takes::Numbers { switches, .. } if switches.contains(&below) => Takes::Switch,
            _ => self,
        }
    }

    /// The kind of names in a table, and all of them; none if any name is accepted.
    pub(super) fn names(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Takes::Switches { what, words } | Takes::Numbers { what, words, .. } => {
                Some((what, words)).filter(|(_, words)| !words.is_empty())
            }
            _ => None,
        }
    }

    /// Its name in the reference.
    pub fn called(self) -> &'static str {
        match self {
            Takes::Switch => "switch",
            Takes::Word { .. } => "word",
            Takes::Number { .. } => "integer",
            Takes::Bytes => "bytes",
            Takes::Text { what, .. } => what,
            Takes::Files => "file, or list of files",
            Takes::Modules => "module, or list of modules",
            Takes::Rules => "rules",
            Takes::Switches { .. } | Takes::Numbers { .. } | Takes::Settings | Takes::Objects => {
                "table"
            }
        }
    }

    /// Parse a level from the command line.
    ///
    /// # Errors
    /// The text is not a level: the expected form.
    pub fn parse(self, text: &str) -> Result<Level, String> {
        let text = match self {
            Takes::Switch | Takes::Switches { .. } => match text {
                "on" | "off" => text.to_string(),
                other => {
                    return Err(format!("invalid value `{}`; expected on or off", cut(other, 40)));
                }
            },
            Takes::Word { what, words } => match words.contains(&text) {
                true => text.to_string(),
                false => return Err(unknown_word(what, text, words)),
            },
            Takes::Number { least, most } => match text.parse::<i64>() {
                Ok(n) => number(n, least, most)?,
                Err(_) => return Err(invalid_number(&cut(text, 40), least, most)),
            },
            Takes::Numbers { least, .. } => {
                let most = u32::MAX;
                return Takes::Number { least, most }.parse(text);
            }
            Takes::Bytes => text.parse::<Bytes>()?.0.to_string(),
            Takes::Text { parse, .. } => parse(text)?,
            Takes::Rules => {
                return Ok(Level::Rules(Nft::Text { rules: text.into(), file: None }));
            }
            Takes::Modules => match files(text).find(|name| !is_module(name)) {
                Some(name) => {
                    let name = cut(name, 80);
                    return Err(format!(
                        "invalid module `{name}`; expected a name, like br_netfilter"
                    ));
                }
                None => text.to_string(),
            },
            Takes::Settings | Takes::Objects | Takes::Files => text.to_string(),
        };
        Ok(Level::Text(text))
    }

    fn number(self, n: i64) -> Result<Level, String> {
        let text = match self {
            Takes::Number { least, most } => number(n, least, most)?,
            Takes::Numbers { least, .. } => number(n, least, u32::MAX)?,
            Takes::Bytes => match u32::try_from(n) {
                Ok(n) => n.to_string(),
                Err(_) => return Err(invalid_size(&n.to_string())),
            },
            Takes::Text { parse, .. } => parse(&n.to_string())?,
            _ => return Err(format!("invalid {} `{n}`", self.called())),
        };
        Ok(Level::Text(text))
    }

    /// Whether a level may be written as a number.
    pub(super) fn has_numbers(self) -> bool {
        match self {
            Takes::Number { .. } | Takes::Numbers { .. } | Takes::Bytes => true,
            Takes::Text { what, .. } => what != "string",
            _ => false,
        }
    }
}

/// A whole number within its bounds.
fn number(n: i64, least: u32, most: u32) -> Result<String, String> {
    match u32::try_from(n) {
        Ok(fits) if (least..=most).contains(&fits) => Ok(fits.to_string()),
        _ => Err(invalid_number(&n.to_string(), least, most)),
    }
}

fn invalid_number(got: &str, least: u32, most: u32) -> String {
    match most {
        u32::MAX => format!("invalid number `{got}`; expected {least} or more"),
        _ => format!("invalid number `{got}`; expected {least} to {most}"),
    }
}

/// The error about a word that is not one of `words`.
pub(super) fn unknown_word(
    what: &'static str,
    got: &str,
    words: &'static [&'static str],
) -> String {
    let (got, valid) = (cut(got, 80), words.to_vec());
    UnknownWord { what, got, valid }.to_string()
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

/// Whether this may be the name of a module.
pub(in crate::experiment) fn is_module(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    !name.is_empty() && name.chars().all(fits)
}

/// The separator of the files of one level.
const BETWEEN_FILES: char = ',';

/// The files of a level of [`Takes::Files`], or the names of one of [`Takes::Modules`].
pub fn files(level: &str) -> impl Iterator<Item = &str> {
    level.split(BETWEEN_FILES).filter(|file| !file.is_empty())
}

/// A level of [`Takes::Files`].
///
/// # Errors
/// A name contains a comma.
pub fn of_files<S: AsRef<str>>(files: &[S]) -> Result<String, String> {
    let names: Vec<&str> = files.iter().map(S::as_ref).collect();
    match names.iter().find(|name| name.contains(BETWEEN_FILES)) {
        Some(name) => {
            Err(format!("invalid file name `{}`; expected a name without commas", cut(name, 80)))
        }
        None => Ok(names.join(",")),
    }
}

impl<'de> serde::de::Visitor<'de> for ReadLevel {
    type Value = Level;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Takes::Switch | Takes::Switches { .. } => "\"on\" or \"off\"",
            Takes::Word { what, .. } => return write!(f, "a {what}"),
            Takes::Number { .. } | Takes::Numbers { .. } => "a whole number",
            Takes::Bytes => "a number of bytes, like 1500 or \"64K\"",
            Takes::Text { what, .. } => return write!(f, "a {what}"),
            Takes::Files => "a file, or a list of files",
            Takes::Modules => "a name, or a list of names",
            Takes::Rules => "rules",
            Takes::Settings => "a string, like \"1\"",
            Takes::Objects => "a file, like \"drop.o\" or \"drop.o:xdp\"",
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

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Level, A::Error> {
        let (Takes::Files | Takes::Modules) = self.0 else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        let mut files = Vec::new();
        while let Some(file) = list.next_element::<String>()? {
            files.push(file);
        }
        let level = of_files(&files).and_then(|level| self.0.parse(&level));
        level.map_err(A::Error::custom)
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
            Takes::Word { what, words } => match words.contains(&text) {
                true => Ok(Level::Text(text.into())),
                // Errors take the nearest word from this text.
                false => Err(E::custom(unknown_word(what, text, words))),
            },
            Takes::Number { .. } | Takes::Numbers { .. } => {
                Err(E::invalid_type(Unexpected::Str(text), &self))
            }
            Takes::Files => of_files(&[text]).map(Level::Text).map_err(E::custom),
            takes => takes.parse(text).map_err(E::custom),
        }
    }
}
