//! What must be known before two sides are compared: the differences of instrument, kernel and
//! machine, of what was sent, and what is missing from either.

use std::collections::BTreeSet;

use netplumb_model::arch::Arch;
use netplumb_model::class::Link;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, Mechanism, SAMPLED};

use super::arms::{ArmPair, differing};
use super::{Diff, Judge, Sides};
use crate::analysis::quantity;
use crate::number::{counted, printable};
use crate::shape::{Shape, shape};
use crate::times::instrument;

/// One fact of two values.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// What it was.
    pub before: String,
    /// What it is.
    pub after: String,
    /// What that does to the figures, where they are not comparable number by
    /// number because of it; empty where it may be just what is compared.
    pub means: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |text: &str| printable(text, 100);
        let (what, was, is) = (short(&self.what), short(&self.before), short(&self.after));
        write!(f, "{what}: {was} → {is}")?;
        match self.means.as_str() {
            "" => Ok(()),
            means => write!(f, " ({means})"),
        }
    }
}

const ARCHITECTURE: &str = "architecture";
/// The options of a kernel's configuration, in the environment.
const CONFIG: &str = "config.";

/// Facts of the machine, and what it means if they differ.
const MACHINE: [(&str, &str, &str); 11] = [
    (
        env::CLOCK,
        "clock",
        "another instrument counted: the figures are not of one kind",
    ),
    (
        env::UNIT,
        "unit",
        "another unit: the figures are not of one kind",
    ),
    (
        env::QUICK,
        "quick mode",
        "a side without an instruction clock is right within some tenths of a percent",
    ),
    (
        env::QEMU,
        "QEMU",
        "its CPU model may be another under the same name, and the kernel patches itself for it",
    ),
    (
        env::ARCH,
        ARCHITECTURE,
        "the same source is other code: registers, inlining and configuration differ",
    ),
    (
        env::CPU,
        "CPU",
        "the kernel patches itself for the CPU that it finds",
    ),
    (
        env::REP,
        "string instructions",
        "copies and clears count otherwise",
    ),
    (
        env::PLUMB,
        "plumb",
        "another version may count or classify otherwise, and place memory so that lookups in hash \
         tables walk other buckets",
    ),
    (
        env::RANDOM,
        "random numbers",
        "where they come from the boot, lookups in hash tables may walk other buckets",
    ),
    (env::KERNEL, "kernel", ""),
    (env::MITIGATIONS, "mitigations", ""),
];

/// Programs of this machine's that a guest runs before it is measured.
const PROGRAMS: [(&str, &str); 4] = [
    (env::NFT_FILES, "nft and its libraries"),
    (env::TC_FILES, "tc and its libraries"),
    (env::NGINX_FILES, "nginx and its libraries"),
    (env::MKFS_FILES, "mkfs and its libraries"),
];
const PROGRAM_MEANS: &str = "another program draws other random numbers: lookups in hash tables may \
                             walk other buckets, which is not the kernel's doing";

/// A fact of an arm's guest: its own, or the recording's.
fn of_arm<'r>(recording: &'r Recording, arm: usize, key: &str) -> Option<&'r String> {
    let notes = recording.notes.get(&(arm as u32));
    let own = notes.and_then(|notes| notes.facts.get(key));
    own.or_else(|| recording.environment.get(key))
}

/// Programs that were not the same for both of a pair.
fn programs(sides: Sides<'_>, pair: &ArmPair) -> impl Iterator<Item = Difference> {
    PROGRAMS.iter().filter_map(move |(key, what)| {
        let was = of_arm(sides.before, pair.before, key);
        let is = of_arm(sides.after, pair.after, key);
        let told = |hash: Option<&String>| hash.cloned().unwrap_or("unknown".into());
        // An arm without the knob has none.
        let both = sides.before.arms[pair.before].knobs == sides.after.arms[pair.after].knobs;
        (was != is && both).then(|| Difference {
            what: (*what).into(),
            before: told(was),
            after: told(is),
            means: PROGRAM_MEANS.into(),
        })
    })
}

/// The level of a knob in which the arms compared differ among themselves is
/// told by the arms, not by the recording's environment.
fn told_by_arms(recording: &Recording, knob: &str) -> bool {
    let mut levels = recording.arms.iter().map(|a| a.knobs.get(knob));
    let first = levels.next();
    levels.any(|level| Some(level) != first)
}

/// Facts that only guests have.
const OF_A_GUEST: [&str; 5] = [
    "quick mode",
    "QEMU",
    ARCHITECTURE,
    "CPU",
    "string instructions",
];

/// Everything in which the sides differ.
pub fn differences(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<Difference> {
    let mut all = of_machines_and_arms(sides, pairs);
    let lab = |r: &Recording| r.environment.get(env::LAB).cloned().unwrap_or("vm".into());
    let by = |r: &Recording| {
        let used: BTreeSet<Mechanism> = r.attachments.iter().map(|a| a.mechanism).collect();
        let words: Vec<&str> = used.into_iter().map(Mechanism::as_str).collect();
        words.join(" and ")
    };
    let mut add = |what: &str, of: &dyn Fn(&Recording) -> String, means: &str| {
        let (before, after) = (of(sides.before), of(sides.after));
        if before != after {
            all.push(Difference {
                what: what.into(),
                before,
                after,
                means: means.into(),
            });
        }
    };
    add("lab", &lab, "other packets on another machine");
    if instrument(sides.before) == instrument(sides.after) {
        add(
            "probes",
            &by,
            "their overhead differs; it is subtracted, as far as it is known",
        );
    }
    if lab(sides.before) != lab(sides.after) {
        // What only guests have is part of the difference between labs.
        let known = |side: &str| !side.is_empty() && side != "unknown";
        let of_a_guest = |d: &Difference| {
            OF_A_GUEST.contains(&d.what.as_str()) || d.what.ends_with("another build")
        };
        all.retain(|d| !of_a_guest(d) || known(&d.before) && known(&d.after));
    }
    all
}

/// The options of the configuration in which two kernels differ.
fn options(sides: Sides<'_>) -> Vec<Difference> {
    let of = |r: &Recording, key: &str| match r.environment.get(key) {
        Some(value) => value.clone(),
        None => "not set".into(),
    };
    let keys = [sides.before, sides.after].map(|r| r.environment.keys());
    let keys: BTreeSet<&String> = keys.into_iter().flatten().collect();
    let options = keys.into_iter().filter(|key| key.starts_with(CONFIG));
    let each = options.map(|key| Difference {
        what: format!("CONFIG_{}", &key[CONFIG.len()..]),
        before: of(sides.before, key),
        after: of(sides.after, key),
        means: String::new(),
    });
    each.filter(|d| d.before != d.after).collect()
}

fn of_machines_and_arms(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<Difference> {
    let mut all = Vec::new();
    let (before, after) = (sides.before, sides.after);
    for (key, what, means) in MACHINE {
        let knob = key
            .strip_prefix("kernel.")
            .map(|k| if k == "release" { "kernel" } else { k });
        if knob.is_some_and(|k| told_by_arms(before, k) || told_by_arms(after, k)) {
            continue;
        }
        let missing = |r: &Recording| match key {
            // Those of older versions are all of one.
            env::ARCH if quantity(r).is(&INSTRUCTIONS) => Arch::X86_64.as_str(),
            _ => "unknown",
        };
        let fact = |r: &Recording| r.environment.get(key).cloned().unwrap_or(missing(r).into());
        let (was, is) = (fact(before), fact(after));
        let same_release = key == env::KERNEL && was == is;
        if was != is {
            all.push(Difference {
                what: what.into(),
                before: was,
                after: is,
                means: means.into(),
            });
        } else if same_release && hash(before) != hash(after) {
            all.push(Difference {
                what: format!("kernel {was}, another build"),
                before: printable(&hash(before), 12),
                after: printable(&hash(after), 12),
                means: String::new(),
            });
        }
    }
    if all.iter().any(|d| d.what == ARCHITECTURE) {
        all.extend(options(sides));
    }
    let told = |what: &str| ["kernel", "mitigations"].contains(&what);
    let mut arms: Vec<Difference> = Vec::new();
    for pair in pairs {
        for difference in programs(sides, pair) {
            if !arms.contains(&difference) {
                arms.push(difference);
            }
        }
        let (a, b) = (&before.arms[pair.before], &after.arms[pair.after]);
        for (what, was, is) in differing(a, b) {
            // Said of the machine already; a kernel's nickname may be another for
            // the same one, and the other way round.
            let by_machine =
                told(&what) && !told_by_arms(before, &what) && !told_by_arms(after, &what);
            if by_machine && !std::ptr::eq(before, after) {
                continue;
            }
            let difference = Difference {
                means: if what == "protocol" {
                    "two protocols: not the same path".into()
                } else {
                    String::new()
                },
                what,
                before: was,
                after: is,
            };
            if !arms.contains(&difference) {
                arms.push(difference);
            }
        }
    }
    all.extend(arms);
    all
}

/// Whether two arms ran the same kernel, so far as is known.
pub(super) fn same_kernel(sides: Sides<'_>, pair: ArmPair) -> bool {
    let (before, after) = (sides.before, sides.after);
    let level = |r: &Recording, arm: usize| r.arms[arm].knobs.get("kernel").cloned();
    let levels = (level(before, pair.before), level(after, pair.after));
    if std::ptr::eq(before, after) {
        return levels.0 == levels.1;
    }
    if told_by_arms(before, "kernel") || told_by_arms(after, "kernel") {
        return levels.0.is_some() && levels.0 == levels.1;
    }
    let release = |r: &Recording| r.environment.get(env::KERNEL).cloned();
    hash(before) == hash(after) && release(before) == release(after)
}

/// Whether all blocks of one arm were measured before any of the other.
pub(crate) fn apart(sides: Sides<'_>, pair: ArmPair) -> bool {
    if !std::ptr::eq(sides.before, sides.after) {
        return true;
    }
    let places = |arm: usize| {
        let blocks = sides.before.blocks.iter().enumerate();
        blocks.filter(move |(_, b)| b.arm as usize == arm)
    };
    let ends = |arm: usize| Some((places(arm).next()?.0, places(arm).next_back()?.0));
    match (ends(pair.before), ends(pair.after)) {
        (Some(a), Some(b)) => a.1 < b.0 || b.1 < a.0,
        _ => true,
    }
}

/// Whether sides may drift: what a guest executes is the same whenever it runs.
pub(crate) fn drifts(sides: Sides<'_>) -> bool {
    let guest = |r: &Recording| {
        let quantity = quantity(r);
        quantity.is(&SAMPLED) || quantity.is(&DEFERRED)
    };
    !guest(sides.before) || !guest(sides.after)
}

/// That the sides did not take turns, if they didn't.
pub(super) fn not_interleaved(diff: &Diff<'_>) -> Option<String> {
    let class = diff.classes.iter().find(|c| c.apart)?;
    let which = match std::ptr::eq(diff.sides.before, diff.sides.after) {
        true => match class.label.as_str() {
            "" => "the two arms".to_string(),
            label => format!("the two arms ({label})"),
        },
        false => "the two runs".into(),
    };
    Some(format!(
        "not interleaved: drift between {which} can't be told from a change; verdicts and intervals \
         allow for as much drift as there was within them (arms of one run that take turns need no such \
         allowance)"
    ))
}

fn hash(recording: &Recording) -> String {
    recording
        .environment
        .get(env::KERNEL_HASH)
        .cloned()
        .unwrap_or_default()
}

/// What must be known besides.
pub(super) fn warnings(judge: Judge, sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (recording, name) in sides.recordings() {
        let name = printable(name, 120);
        if !recording.complete {
            warnings.push(format!(
                "{name} is incomplete: its run was cut short, and blocks or arms are missing"
            ));
        }
        let corrected = recording.attachments.is_empty() || !recording.calibration.is_empty();
        if shape(recording) == Shape::Times && !corrected {
            warnings.push(format!(
                "{name}: the probes' overhead was not measured, so nothing is corrected"
            ));
        }
        if let Some(root) = recording.root()
            && shape(recording) == Shape::Costs
            && recording.costs.iter().all(|c| c.calls == 0 && c.own == 0)
        {
            warnings.push(format!(
                "{name} has no call of {}: what is below it is 0 there",
                printable(root, 120)
            ));
        }
        let open = recording.blocks.iter().filter(|b| !b.ledger.closes());
        // Of rates no such block counts.
        let open = open.filter(|_| shape(recording) != Shape::Rates).count();
        if open > 0 {
            warnings.push(format!(
                "{name} is invalid in {open} of {}: packets are missing without a cause",
                counted(recording.blocks.len(), "block")
            ));
        }
    }
    if judge == Judge::Statistical {
        return warnings;
    }
    let over = |pair: &ArmPair| {
        [
            sides.before.arms[pair.before].link,
            sides.after.arms[pair.after].link,
        ]
    };
    let mut varying: Vec<Link> = pairs.iter().flat_map(over).collect();
    varying.sort();
    varying.dedup();
    for link in varying {
        if let Some(why) = link.declared().varies {
            warnings.push(format!(
                "over {link} boots of the same system differ by up to some percent, since {why}: a \
                 change is one if several recordings have it"
            ));
        }
    }
    let blocks =
        |r: &Recording, arm: usize| r.blocks.iter().filter(|b| b.arm as usize == arm).count();
    let least = pairs
        .iter()
        .map(|p| blocks(sides.before, p.before).min(blocks(sides.after, p.after)))
        .min();
    if least.is_some_and(|n| n < 4) {
        warnings.push(
            "fewer than four blocks a side: what happens now and then can't be told from a change"
                .into(),
        );
    }
    warnings
}
