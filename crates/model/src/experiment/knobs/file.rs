//! Knobs in experiment files, read and written by their declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::level::{ReadLevel, files, unknown_word};
use super::{KNOBS, Key, Knobs, Level, Takes, Vary};

/// The keys that a file may have, for serde to list.
fn keys() -> &'static [&'static str] {
    static KEYS: std::sync::LazyLock<Vec<&'static str>> =
        std::sync::LazyLock::new(|| KNOBS.iter().map(|knob| knob.key).collect());
    &KEYS
}

impl Serialize for Knobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let levels = self.levels.iter().map(|(key, level)| (key, written(key, level)));
        write_table(levels, serializer)
    }
}

impl Serialize for Vary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let list = |key, all: &[Level]| all.iter().map(|level| written(key, level)).collect();
        let lists = self.levels.iter();
        let lists = lists.map(|(key, all)| (key, toml::Value::Array(list(key, all))));
        write_table(lists, serializer)
    }
}

/// A level as written in a file.
fn written(key: &Key, level: &Level) -> toml::Value {
    match level {
        Level::Rules(rules) => rules.as_toml(),
        Level::Text(text) => match text.parse::<i64>() {
            Ok(number) if key.knob().takes.has_numbers() => number.into(),
            _ if matches!(key.knob().takes, Takes::Files | Takes::Modules)
                && files(text).count() > 1 =>
            {
                files(text).collect::<Vec<_>>().into()
            }
            _ => text.as_str().into(),
        },
    }
}

fn write_table<'l, S: Serializer>(
    levels: impl Iterator<Item = (&'l Key, toml::Value)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut table = toml::Table::new();
    for (key, level) in levels {
        let knob = key.knob();
        if !knob.takes.is_table() {
            table.insert(knob.key.into(), level);
            continue;
        }
        let below = table.entry(knob.key).or_insert_with(|| toml::Table::new().into());
        if let toml::Value::Table(below) = below {
            below.insert(key.below.clone(), level);
        }
    }
    table.serialize(serializer)
}

impl<'de> Deserialize<'de> for Knobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Knobs, D::Error> {
        let table = deserializer.deserialize_map(ReadTable { lists: false })?;
        let mut levels = BTreeMap::new();
        for (key, list) in table {
            levels.extend(list.into_iter().map(|level| (key.clone(), level)));
        }
        Ok(Knobs { levels })
    }
}

impl<'de> Deserialize<'de> for Vary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vary, D::Error> {
        let levels = deserializer.deserialize_map(ReadTable { lists: true })?;
        Ok(Vary { levels })
    }
}

type Levels = BTreeMap<Key, Vec<Level>>;

/// Reads a table of knobs, each with a level, or with a list of them.
struct ReadTable {
    lists: bool,
}

impl<'de> Visitor<'de> for ReadTable {
    type Value = Levels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of knobs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Levels, A::Error> {
        let mut levels = Levels::new();
        let mut seen = BTreeSet::new();
        while let Some(at) = map.next_key_seed(ReadKey { what: "knob", words: keys() })? {
            let read = ReadKnob { at, lists: self.lists };
            levels.extend(map.next_value_seed(read)?);
            if !seen.insert(at) {
                return Err(A::Error::duplicate_field(KNOBS[at].key));
            }
        }
        Ok(levels)
    }
}

/// Reads a key that has to be one of these words, and gives its index.
struct ReadKey {
    /// The kind of words: "knob".
    what: &'static str,
    words: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for ReadKey {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for ReadKey {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<usize, E> {
        let found = self.words.iter().position(|word| *word == key);
        found.ok_or_else(|| E::custom(unknown_word(self.what, key, self.words)))
    }
}

/// Reads what a knob is set to.
struct ReadKnob {
    at: usize,
    lists: bool,
}

impl<'de> DeserializeSeed<'de> for ReadKnob {
    type Value = Levels;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Levels, D::Error> {
        let (at, takes) = (self.at, KNOBS[self.at].takes);
        if takes.is_table() {
            return deserializer.deserialize_map(self);
        }
        let lists = self.lists;
        let levels = ReadLevels { takes, lists }.deserialize(deserializer)?;
        let below = String::new();
        Ok(Levels::from([(Key { at, below }, levels)]))
    }
}

impl<'de> Visitor<'de> for ReadKnob {
    type Value = Levels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knob = &KNOBS[self.at];
        match knob.takes {
            Takes::Settings => {
                write!(f, "a table, like {} = {{ \"net.core.rmem_max\" = \"1\" }}", knob.key)
            }
            Takes::Objects => write!(f, "a table, like {} = {{ rx0 = \"drop.o\" }}", knob.key),
            Takes::Numbers { words, .. } => {
                let name = words.first().unwrap_or(&"rx");
                write!(f, "a table, like {} = {{ {name} = 100 }}", knob.key)
            }
            _ => write!(f, "a table, like {} = {{ gro = \"off\" }}", knob.key),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Levels, A::Error> {
        let mut all = Levels::new();
        let (at, takes, lists) = (self.at, KNOBS[self.at].takes, self.lists);
        loop {
            let below = match takes.names() {
                Some((what, words)) => {
                    let at = map.next_key_seed(ReadKey { what, words })?;
                    at.map(|at| words[at].to_string())
                }
                None => map.next_key::<String>()?,
            };
            let Some(below) = below else { break };
            let takes = takes.with_key(&below);
            let levels = map.next_value_seed(ReadLevels { takes, lists })?;
            all.insert(Key { at, below }, levels);
        }
        Ok(all)
    }
}

/// The error about a knob in `[vary]` without levels.
pub(in crate::experiment) const EMPTY_LIST: &str = "empty list; expected at least one level";

/// Reads one level, or a list of them.
struct ReadLevels {
    takes: Takes,
    lists: bool,
}

impl<'de> DeserializeSeed<'de> for ReadLevels {
    type Value = Vec<Level>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Level>, D::Error> {
        match self.lists {
            true => deserializer.deserialize_seq(self),
            false => Ok(vec![ReadLevel(self.takes).deserialize(deserializer)?]),
        }
    }
}

impl<'de> Visitor<'de> for ReadLevels {
    type Value = Vec<Level>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of levels, like [10, 1400] or [\"on\", \"off\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Level>, A::Error> {
        let mut levels = Vec::new();
        while let Some(level) = list.next_element_seed(ReadLevel(self.takes))? {
            levels.push(level);
        }
        match levels.is_empty() {
            true => Err(A::Error::custom(EMPTY_LIST)),
            false => Ok(levels),
        }
    }
}
