//! Which arms are compared with which.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::arch::Arch;
use netplumb_model::experiment::{Module, Nft, Ruleset, files};
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::timing::INSTRUCTIONS;

use crate::analysis::quantity;

/// Two arms to compare, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmPair {
    /// Of the recording before.
    pub before: usize,
    /// Of the recording after.
    pub after: usize,
}

/// An arm of a recording: its settings, and the facts noted of its machine.
#[derive(Debug, Clone, Copy)]
pub struct OneArm<'r> {
    /// The recording that the arm is in.
    pub recording: &'r Recording,
    /// The index of the arm in it.
    pub number: usize,
}

impl<'r> OneArm<'r> {
    /// The arm itself, with its settings.
    pub(super) fn arm(self) -> &'r Arm {
        &self.recording.arms[self.number]
    }

    /// A fact of its machine.
    pub(super) fn fact(self, key: &str) -> Option<&'r str> {
        self.recording.fact(self.number, key)
    }

    /// The level of a knob, if it is set.
    pub(super) fn level(self, knob: &str) -> Option<&'r str> {
        let arm = self.recording.arms.get(self.number)?;
        arm.knobs.get(knob).map(String::as_str)
    }

    /// The architecture of its guest: the kernel's, if the knob is not set.
    pub(super) fn arch(self) -> Option<&'r str> {
        let set = self.level(ARCH).or_else(|| self.fact(env::ARCH));
        let of_guests = self.fact(env::LAB).is_none_or(|lab| lab == "vm");
        // Recordings of older versions are all of one architecture.
        let old = of_guests && quantity(self.recording).is(&INSTRUCTIONS);
        set.or_else(|| old.then_some(Arch::X86_64.as_str()))
    }
}

/// No arms: facts are then the recordings' own.
pub(super) const NO_ARMS: ArmPair = ArmPair { before: usize::MAX, after: usize::MAX };
/// The knob of the architecture.
pub(super) const ARCH: &str = "arch";
/// Stands for the level of a knob that an arm does not set.
const NOT_SET: &str = "not set";

/// A level of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    /// As it is recorded.
    raw: String,
    /// As it is shown.
    pub(super) called: String,
}

impl Level {
    fn not_set() -> Level {
        Level::new(NOT_SET)
    }

    pub(super) fn is_set(&self) -> bool {
        *self != Level::not_set()
    }

    fn new(text: &str) -> Level {
        Level { raw: text.into(), called: text.into() }
    }
}

/// Modules are shown by the names of their files.
fn modules(level: &str) -> String {
    let titles: Vec<String> = files(level).map(|file| Module::parse(file).title()).collect();
    titles.join(" and ")
}

/// What has levels, after its place in the text.
pub(super) type Key = (usize, String);

/// An arm's knobs, and its other settings in words. Rules are shown by their file or
/// their text, modules by their files, and the defaults that come with them not at all.
pub(super) struct Levels(BTreeMap<Key, Level>);

impl Levels {
    pub(super) fn from_arm(one: OneArm<'_>) -> Levels {
        let arm = one.arm();
        let on = |b: bool| if b { "on" } else { "off" }.to_string();
        let sent = [
            ("protocol", arm.proto.to_string()),
            ("IP", arm.family.to_string()),
            ("link", arm.link.to_string()),
            ("router", on(arm.forward)),
            ("bytes", arm.size_bytes.to_string()),
        ];
        let mut levels: BTreeMap<Key, Level> = sent
            .iter()
            .enumerate()
            .map(|(place, (what, level))| ((place, what.to_string()), Level::new(level)))
            .collect();
        let nft = Ruleset::from_arm(arm).map(|ruleset| ruleset.nft);
        for (key, value) in &arm.knobs {
            let level = match (key.as_str(), &nft) {
                ("nft.file", Some(Nft::Text { .. })) => continue,
                (key, Some(_)) if Ruleset::is_default(key, value) => continue,
                ("nft", Some(nft)) => Level { raw: value.clone(), called: nft.title() },
                ("module", _) => Level { raw: value.clone(), called: modules(value) },
                _ => Level::new(value),
            };
            levels.insert((sent.len(), key.clone()), level);
        }
        if let Some(arch) = one.arch() {
            levels.insert((sent.len(), ARCH.into()), Level::new(arch));
        }
        Levels(levels)
    }

    pub(super) fn get(&self, what: &Key) -> Level {
        self.0.get(what).cloned().unwrap_or_else(Level::not_set)
    }

    /// The keys of either, in the order of the text.
    pub(super) fn keys<'l>(all: impl IntoIterator<Item = &'l Levels>) -> BTreeSet<Key> {
        let keys = all.into_iter().flat_map(|levels| levels.0.keys());
        keys.cloned().collect()
    }
}

/// The levels in which two arms differ: "link", "lo", "veth".
pub(super) fn differing(before: OneArm<'_>, after: OneArm<'_>) -> Vec<(String, String, String)> {
    let (was, is) = (Levels::from_arm(before), Levels::from_arm(after));
    let mut differing = Vec::new();
    for key in Levels::keys([&was, &is]) {
        let (was, is) = (was.get(&key), is.get(&key));
        if was == is {
            continue;
        }
        let other = match was.called == is.called {
            true if key.1 == "module" => format!("{} (another file)", is.called),
            true => format!("{} (another text)", is.called),
            false => is.called,
        };
        differing.push((key.1, was.called, other));
    }
    differing
}

/// Pair arms of two recordings: by name; if each has one arm left, these two; else
/// arms that are the only ones on their side to send the same over the same.
pub fn pair(before: (&[Arm], Vec<usize>), after: (&[Arm], Vec<usize>)) -> Pairs {
    let (all_before, mut left) = before;
    let (all_after, mut right) = after;
    let mut pairs = Vec::new();
    type Same = fn(&Arm, &Arm) -> bool;
    let properties: Same = |a, b| {
        (a.proto, a.family, a.link, a.size_bytes, a.forward)
            == (b.proto, b.family, b.link, b.size_bytes, b.forward)
    };
    let same_knobs: Same = |a, b| {
        (a.proto, a.family, a.link, a.size_bytes, a.forward, &a.knobs)
            == (b.proto, b.family, b.link, b.size_bytes, b.forward, &b.knobs)
    };
    let passes: [Same; 4] =
        [|a, b| a.name == b.name, same_knobs, properties, |a, b| a.proto == b.proto];
    if left.len() == 1 && right.len() == 1 {
        pairs.push(ArmPair { before: left.remove(0), after: right.remove(0) });
    }
    for same in passes {
        let found: Vec<ArmPair> = left
            .iter()
            .filter_map(|b| {
                let only = |arms: &[Arm], among: &[usize], arm: &Arm| {
                    let mut fitting = among.iter().filter(|n| same(&arms[**n], arm));
                    fitting.next().filter(|_| fitting.next().is_none()).copied()
                };
                let a = only(all_after, &right, &all_before[*b])?;
                let back = only(all_before, &left, &all_after[a])?;
                (back == *b).then_some(ArmPair { before: *b, after: a })
            })
            .collect();
        left.retain(|n| !found.iter().any(|p| p.before == *n));
        right.retain(|n| !found.iter().any(|p| p.after == *n));
        pairs.extend(found);
    }
    pairs.sort_by_key(|p| (p.before, p.after));
    Pairs { pairs, left_before: left, left_after: right }
}

/// The result of pairing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// To compare, in the order of the plan.
    pub pairs: Vec<ArmPair>,
    /// Without a partner, before.
    pub left_before: Vec<usize>,
    /// Without a partner, after.
    pub left_after: Vec<usize>,
}

/// The knob of an arm that measures another once more.
const AGAIN: &str = netplumb_model::bench::AGAIN;

/// Pair the arms of one recording among themselves: each, except the first of its
/// protocol, with the first earlier one from which it differs in one thing only, or
/// with the first if there is none. An arm that measures another once more is compared
/// with that one, and no arm with it.
pub fn pair_within(recording: &Recording) -> Vec<ArmPair> {
    let arms = &recording.arms;
    let one = |number: usize| OneArm { recording, number };
    let mut pairs = Vec::new();
    // A repeat is one of its arm's seeds, and is not compared with it.
    let repeat = |n: &usize| arms[*n].repeats().is_some();
    let again = |n: &usize| arms[*n].knobs.contains_key(AGAIN);
    for after in (0..arms.len()).filter(|n| !repeat(n)) {
        let earlier: Vec<usize> = (0..after)
            .filter(|n| arms[*n].proto == arms[after].proto && !repeat(n) && !again(n))
            .collect();
        if again(&after) {
            let same = |n: &&usize| {
                let differs = differing(one(**n), one(after));
                differs.iter().all(|(what, ..)| what == AGAIN)
            };
            let before = earlier.iter().find(same);
            pairs.extend(before.map(|&before| ArmPair { before, after }));
            continue;
        }
        let by_one = earlier.iter().find(|n| differing(one(**n), one(after)).len() == 1);
        if let Some(&before) = by_one.or(earlier.first()) {
            pairs.push(ArmPair { before, after });
        }
    }
    pairs
}
