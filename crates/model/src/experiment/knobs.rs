//! Knobs: the settings that arms differ in. [`declared`] has them; [`super::acting`] has the lab, link and load under
//! which each has an effect.

mod declared;
mod file;
pub(super) use file::EMPTY_LIST;
mod level;

use std::collections::BTreeMap;
use std::str::FromStr;

/// The name of the only arm. Recordings of a command call it by its words.
pub const ONLY_ARM: &str = "all";

pub use declared::{ArmNaming, Default as KnobDefault, Flag, KNOBS, Knob, Recorded};
pub(super) use level::is_module;
pub use level::{Bytes, Level, Takes, files, of_files};

use super::module::Module;
use super::nft::Nft;
use super::{Kind, Lab};
use crate::class::words;
use crate::recording::Arm;

words! {
    /// A device feature, as in `ethtool -K`.
    Offload, "offload",
    /// Checksums of received packets.
    RxChecksum = "rx-checksum",
    /// Checksums of sent packets.
    TxChecksum = "tx-checksum",
    /// Scatter-gather: packets in several pieces of memory.
    Sg = "sg",
    /// TCP segmentation by the device.
    Tso = "tso",
    /// Segmentation by the kernel, just before the driver.
    Gso = "gso",
    /// Merging of received packets.
    Gro = "gro",
}

/// A knob by its index in [`KNOBS`]; of a table, with the key in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: usize,
    below: String,
}

impl Key {
    /// From its name in a recording: `mtu_bytes`, `sysctl.net.core.dev_weight`.
    fn parse(key: &str) -> Result<Key, String> {
        let at = |name: &str| KNOBS.iter().position(|knob| knob.key == name);
        if let Some(at) = at(key).filter(|at| !KNOBS[*at].takes.is_table()) {
            let below = String::new();
            return Ok(Key { at, below });
        }
        let table = key.split_once('.').and_then(|(name, below)| {
            let at = at(name).filter(|at| KNOBS[*at].takes.is_table())?;
            let below = below.to_string();
            Some(Key { at, below })
        });
        let key = table.ok_or_else(|| format!("unknown knob `{}`", short(key)))?;
        match key.knob().takes.names() {
            Some((what, words)) if !words.contains(&key.below.as_str()) => {
                Err(level::unknown_word(what, &key.below, words))
            }
            _ => Ok(key),
        }
    }

    fn knob(&self) -> &'static Knob {
        &KNOBS[self.at]
    }

    /// Its accepted levels.
    fn takes(&self) -> Takes {
        self.knob().takes.with_key(&self.below)
    }

    /// Its name in a recording.
    fn recorded(&self) -> String {
        match self.knob().takes.is_table() {
            true => format!("{}.{}", self.knob().key, self.below),
            false => self.knob().key.to_string(),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// How a level is written in an arm's name.
fn said(key: &Key, level: &Level) -> String {
    let text = match level {
        Level::Rules(rules) => return rules.describe(),
        Level::Text(text) => text,
    };
    match key.knob().said {
        ArmNaming::Word | ArmNaming::Rules => text.clone(),
        ArmNaming::As(name) => format!("{name}={text}"),
        ArmNaming::Below => format!("{}={text}", key.below),
        ArmNaming::Dotted if key.knob().takes.is_of_objects() => {
            let (file, program) = super::file_and_program(text);
            let file = file.rsplit('/').next().unwrap_or(file);
            let program = program.map_or_else(String::new, |program| format!(":{program}"));
            let file = if file.is_empty() { "none" } else { file };
            format!("{}={file}{program}", key.recorded())
        }
        ArmNaming::Dotted => format!("{}={text}", key.recorded()),
        ArmNaming::OrOwn(name) => {
            let last = match key.knob().takes {
                Takes::Files => level::files(text)
                    .map(|file| Module::parse(file).title())
                    .collect::<Vec<_>>()
                    .join("+"),
                _ => text.clone(),
            };
            format!("{name}={}", if last.is_empty() { "own" } else { &last })
        }
    }
}

/// Settings of an arm; all others are inherited or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Knobs {
    levels: BTreeMap<Key, Level>,
}

impl Knobs {
    /// Settings by their names in a recording, each with a level as text.
    ///
    /// # Errors
    /// An unknown knob, or an invalid level.
    pub fn from_pairs<K: AsRef<str>, L: AsRef<str>>(
        levels: impl IntoIterator<Item = (K, L)>,
    ) -> Result<Knobs, String> {
        let mut knobs = Knobs::default();
        for (key, level) in levels {
            knobs.set(key.as_ref(), level.as_ref())?;
        }
        Ok(knobs)
    }

    /// Set one.
    ///
    /// # Errors
    /// As [`Knobs::from_pairs`].
    pub fn set(&mut self, key: &str, level: &str) -> Result<(), String> {
        let key = Key::parse(key)?;
        let level = key.takes().parse(level)?;
        self.levels.insert(key, level);
        Ok(())
    }

    /// The level that a knob is set to, by its name in a recording; none for rules.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.levels.get(&Key::parse(key).ok()?)?.text()
    }

    /// The level of a knob, set or by default; none if it has no default level.
    pub fn level(&self, key: &str) -> Option<&str> {
        let default = || match Knob::by_key(key)?.default {
            KnobDefault::Level(level) => Some(level),
            KnobDefault::Described(_) => None,
        };
        self.get(key).or_else(default)
    }

    /// The same as a value.
    pub fn read<T: FromStr>(&self, key: &str) -> Option<T> {
        self.level(key)?.parse().ok()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.level(key) == Some("on")
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// All knobs that are set.
    pub fn set_ones(&self) -> impl Iterator<Item = &'static Knob> {
        self.levels.keys().map(Key::knob)
    }

    /// Rules that are set, to be read from their file.
    pub(super) fn rules_mut(&mut self) -> impl Iterator<Item = &mut Nft> {
        self.levels.values_mut().filter_map(rules_of)
    }

    /// Files of BPF programs that are set, each with its program, and the knob.
    pub(super) fn objects_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut String)> {
        let set = self.levels.iter_mut().filter(|(key, _)| key.knob().takes.is_of_objects());
        set.filter_map(|(key, level)| Some((key.knob().key, text_of(level)?)))
    }

    /// A text that is set.
    pub(super) fn text_mut(&mut self, key: &str) -> Option<&mut String> {
        match self.levels.get_mut(&Key::parse(key).ok()?)? {
            Level::Text(text) => Some(text),
            Level::Rules(_) => None,
        }
    }

    /// These settings, completed from `below`.
    #[must_use]
    pub fn over(&self, below: &Knobs) -> Knobs {
        let mut levels = below.levels.clone();
        levels.extend(self.levels.clone());
        Knobs { levels }
    }

    /// All settings as text.
    pub fn describe(&self) -> String {
        let words: Vec<String> = self.levels.iter().map(|(k, l)| said(k, l)).collect();
        match words.is_empty() {
            true => ONLY_ARM.into(),
            false => words.join(" "),
        }
    }

    /// The arm with these settings, defaults filled in, for packets or a command in a lab.
    pub fn arm(&self, name: String, lab: Lab) -> Arm {
        let mut knobs = BTreeMap::new();
        for (at, knob) in KNOBS.iter().enumerate() {
            if !knob.labs.contains(&lab) || knob.workloads.iter().all(|k| *k == Kind::Frames) {
                continue;
            }
            let is_of = |key: &&Key| key.at == at;
            let with = |other: &str| {
                let keys = |key: &&Key| key.knob().key == other;
                let found = self.levels.keys().find(keys).map(|key| &self.levels[key]);
                found.is_some_and(|level| level.text() != Some(""))
            };
            let (wanted, fill) = match knob.recorded {
                Recorded::Field => (false, false),
                Recorded::Always => (true, true),
                Recorded::IfSet => (true, false),
                Recorded::With(other) => (with(other), true),
                Recorded::IfSetWith(other) => (with(other), false),
            };
            if !wanted {
                continue;
            }
            for key in self.levels.keys().filter(is_of) {
                match &self.levels[key] {
                    Level::Rules(rules) => rules.set_knobs(&mut knobs),
                    // Empty for the device's default, or the kernel's module: nothing is set.
                    Level::Text(text)
                        if text.is_empty() && matches!(knob.said, ArmNaming::OrOwn(_)) => {}
                    Level::Text(text) => drop(knobs.insert(key.recorded(), text.clone())),
                }
            }
            if let (true, KnobDefault::Level(level)) = (fill, knob.default)
                && !self.levels.keys().any(|key| key.at == at)
            {
                knobs.insert(knob.key.into(), level.into());
            }
        }
        use crate::class::{Family, Link, Proto};
        Arm {
            name,
            proto: self.read("proto").unwrap_or(Proto::Udp),
            family: self.read("family").unwrap_or(Family::V4),
            link: self.read("link").unwrap_or(Link::Veth),
            forward: self.is_on("forward"),
            size_bytes: self.read("size_bytes").unwrap_or_default(),
            knobs,
            made: None,
        }
    }

    /// The first knob that is supported in none of these labs, or not by the workload, with
    /// the error.
    pub(super) fn misplaced(&self, labs: &[Lab], kind: Kind) -> Option<(&'static str, String)> {
        self.set_ones().find_map(|knob| misplaced(knob, labs, kind))
    }
}

fn rules_of(level: &mut Level) -> Option<&mut Nft> {
    match level {
        Level::Rules(rules) => Some(rules),
        Level::Text(_) => None,
    }
}

fn text_of(level: &mut Level) -> Option<&mut String> {
    match level {
        Level::Text(text) => Some(text),
        Level::Rules(_) => None,
    }
}

fn misplaced(knob: &'static Knob, given: &[Lab], kind: Kind) -> Option<(&'static str, String)> {
    let list = |words: Vec<&str>| words.join(" or ");
    let of_guests = knob.workloads.contains(&Kind::Command) && knob.labs.contains(&Lab::Vm);
    if !knob.workloads.contains(&kind) && kind == Kind::Work && of_guests {
        let why = format!(
            "{} is not supported for commands on this machine; use lab vm (--lab vm), where they run in a guest",
            knob.key
        );
        return Some((knob.key, why));
    }
    if !knob.workloads.contains(&kind) {
        let kinds = knob.workloads.iter().map(|kind| kind.as_str()).collect();
        let why = format!(
            "{} is not supported by workloads of kind {kind}, only by {}",
            knob.key,
            list(kinds)
        );
        return Some((knob.key, why));
    }
    if !given.iter().any(|lab| knob.labs.contains(lab)) {
        let labs = knob.labs.iter().map(|lab| lab.as_str()).collect();
        let here = given.first().map_or("", |lab| lab.as_str());
        let why =
            format!("{} is not supported by lab {here}, only by lab {}", knob.key, list(labs));
        return Some((knob.key, why));
    }
    None
}

/// Lists of levels; there is an arm for each combination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vary {
    levels: BTreeMap<Key, Vec<Level>>,
}

impl Vary {
    /// Lists of levels by the knobs' names in a recording; a knob may be given several times.
    ///
    /// # Errors
    /// As [`Knobs::from_pairs`].
    pub fn from_pairs<K: AsRef<str>, L: AsRef<str>>(
        levels: impl IntoIterator<Item = (K, L)>,
    ) -> Result<Vary, String> {
        let mut vary = Vary::default();
        for (key, level) in levels {
            vary.push(key.as_ref(), level.as_ref())?;
        }
        Ok(vary)
    }

    /// Add a level of a knob.
    ///
    /// # Errors
    /// As [`Knobs::from_pairs`].
    pub fn push(&mut self, key: &str, level: &str) -> Result<(), String> {
        let key = Key::parse(key)?;
        let level = key.takes().parse(level)?;
        self.levels.entry(key).or_default().push(level);
        Ok(())
    }

    /// A key that `fixed` sets, too.
    pub(super) fn also_in(&self, fixed: &Knobs) -> Option<String> {
        let mut keys = self.levels.keys();
        let found = keys.find(|key| fixed.levels.contains_key(key));
        found.map(Key::recorded)
    }

    /// The first knob that has the same level twice.
    pub(super) fn repeated(&self) -> Option<&'static Knob> {
        let twice =
            |levels: &Vec<Level>| (1..levels.len()).any(|n| levels[..n].contains(&levels[n]));
        let found = self.levels.iter().find(|(_, levels)| twice(levels));
        found.map(|(key, _)| key.knob())
    }

    /// Whether nothing varies.
    pub fn is_empty(&self) -> bool {
        self.levels.values().all(Vec::is_empty)
    }

    /// The levels of a knob, as written in a recording; none for rules.
    pub fn get(&self, key: &str) -> Vec<&str> {
        let levels = Key::parse(key).ok().and_then(|key| self.levels.get(&key));
        let levels = levels.into_iter().flatten();
        levels.filter_map(Level::text).collect()
    }

    /// The knobs that have levels.
    pub fn set_ones(&self) -> impl Iterator<Item = &'static Knob> {
        self.levels.keys().map(Key::knob)
    }

    /// The keys with several levels, by their names in a recording; the slowest to change comes first.
    pub fn several(&self) -> Vec<String> {
        let several = self.levels.iter().filter(|(_, levels)| levels.len() > 1);
        let mut keys: Vec<&Key> = several.map(|(key, _)| key).collect();
        keys.sort_by_key(|key| key.knob().turn);
        keys.into_iter().map(Key::recorded).collect()
    }

    /// The first knob with several levels, if there is one.
    pub fn compared(&self) -> Option<&'static Knob> {
        let several = self.levels.iter().find(|(_, levels)| levels.len() > 1);
        several.map(|(key, _)| key.knob())
    }

    pub(super) fn rules_mut(&mut self) -> impl Iterator<Item = &mut Nft> {
        self.levels.values_mut().flatten().filter_map(rules_of)
    }

    pub(super) fn objects_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut String)> {
        let set = self.levels.iter_mut().filter(|(key, _)| key.knob().takes.is_of_objects());
        set.flat_map(|(key, levels)| {
            let texts = levels.iter_mut().filter_map(text_of);
            texts.map(|text| (key.knob().key, text))
        })
    }

    pub(super) fn texts_mut(&mut self, key: &str) -> impl Iterator<Item = &mut String> {
        let key = Key::parse(key).ok();
        let levels = key.and_then(|key| self.levels.get_mut(&key));
        levels.into_iter().flatten().filter_map(|level| match level {
            Level::Text(text) => Some(text),
            Level::Rules(_) => None,
        })
    }

    /// These lists, completed from `below`.
    #[must_use]
    pub fn over(&self, below: &Vary) -> Vary {
        let mut levels = below.levels.clone();
        levels.extend(self.levels.clone());
        Vary { levels }
    }

    /// The same without the knobs that `fixed` sets.
    #[must_use]
    pub fn without(&self, fixed: &Knobs) -> Vary {
        let mut levels = self.levels.clone();
        levels.retain(|key, _| !fixed.levels.contains_key(key));
        Vary { levels }
    }

    /// How a combination differs from the others: its levels of the knobs that have more than
    /// one, or the protocol if there are none.
    pub fn describe(&self, combination: &Knobs) -> String {
        let mut telling = combination.clone();
        let several = |key: &Key| self.levels.get(key).is_some_and(|levels| levels.len() > 1);
        telling.levels.retain(|key, _| several(key));
        match (telling.is_empty(), combination.get("proto")) {
            (true, Some(proto)) => proto.to_string(),
            _ => telling.describe(),
        }
    }

    /// Every combination; the knob with the smallest `turn` changes slowest. Stops one past
    /// `limit`.
    pub fn combinations(&self, limit: usize) -> Vec<Knobs> {
        let mut all = vec![Knobs::default()];
        let mut order: Vec<(&Key, &Vec<Level>)> = self.levels.iter().collect();
        order.sort_by_key(|(key, _)| key.knob().turn);
        for (key, levels) in order {
            if levels.is_empty() || all.len() > limit {
                continue;
            }
            let with = |base: &Knobs, level: &Level| {
                let mut knobs = base.clone();
                knobs.levels.insert(key.clone(), level.clone());
                knobs
            };
            let bases = std::mem::take(&mut all);
            let each = bases.iter();
            let made = each.flat_map(|base| levels.iter().map(move |level| with(base, level)));
            all = made.take(limit + 1).collect();
        }
        all
    }

    pub(super) fn misplaced(&self, labs: &[Lab], kind: Kind) -> Option<(&'static str, String)> {
        self.set_ones().find_map(|knob| misplaced(knob, labs, kind))
    }
}

/// The levels of an arm's knobs.
impl Arm {
    /// The level of a knob, recorded or by default.
    pub fn level(&self, key: &str) -> Option<&str> {
        let default = || match Knob::by_key(key)?.default {
            KnobDefault::Level(level) => Some(level),
            KnobDefault::Described(_) => None,
        };
        self.knobs.get(key).map(String::as_str).or_else(default)
    }

    /// The same as a value.
    pub fn read<T: FromStr>(&self, key: &str) -> Option<T> {
        self.level(key)?.parse().ok()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.level(key) == Some("on")
    }

    /// The levels of a knob that is a table, by the key in it.
    pub fn table(&self, key: &str) -> impl Iterator<Item = (&str, &str)> {
        let levels = self.knobs.iter();
        levels.filter_map(move |(name, level)| {
            let below = name.strip_prefix(key)?.strip_prefix('.')?;
            Some((below, level.as_str()))
        })
    }
}
