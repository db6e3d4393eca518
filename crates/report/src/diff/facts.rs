//! What must be known before two sides are compared: the differences of instrument, kernel,
//! machine and workload, and what is missing from either.

use std::collections::BTreeSet;

use netplumb_model::class::Link;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{DEFERRED, Mechanism, SAMPLED};

use super::arms::{ARCH, ArmPair, NO_ARMS, OneArm, differing};
use super::{Diff, Judge, Sides};
use crate::analysis::quantity;
use crate::number::{counted, printable};
use crate::shape::{Shape, shape};
use crate::times::instrument;

/// One fact of two values.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The fact that differs: "kernel", "CPU".
    pub what: String,
    /// Its value before.
    pub before: String,
    /// Its value after.
    pub after: String,
    /// Its effect on the figures, where it makes them not comparable number by number;
    /// empty where it may be the very thing that is compared.
    pub means: String,
}

impl Difference {
    /// Whether it is a difference of the unit.
    pub(crate) fn is_of_unit(&self) -> bool {
        self.what == UNIT
    }
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
const UNIT: &str = "unit";
/// The meaning of a difference in architecture.
pub(crate) const OTHER_CODE: &str =
    "the same source is other code: registers, inlining and configuration differ";

/// A fact of an arm's machine.
struct Fact {
    key: &'static str,
    what: &'static str,
    /// The meaning of a difference; may be empty.
    means: &'static str,
    /// The knob that sets it, if there is one.
    knob: Option<&'static str>,
}

impl Fact {
    const fn new(key: &'static str, what: &'static str, means: &'static str) -> Fact {
        Fact { key, what, means, knob: None }
    }

    const fn set_by(self, knob: &'static str) -> Fact {
        Fact { knob: Some(knob), ..self }
    }

    fn level<'r>(&self, one: OneArm<'r>) -> &'r str {
        let known = match self.key {
            env::ARCH => one.arch(),
            key => one.fact(key),
        };
        known.unwrap_or("unknown")
    }

    /// The difference between the arms of a pair.
    fn between(&self, both: [OneArm<'_>; 2]) -> Option<Difference> {
        let [was, is] = both.map(|one| self.level(one));
        if was != is {
            return Some(Difference {
                what: self.what.into(),
                before: was.into(),
                after: is.into(),
                means: self.means.into(),
            });
        }
        let [before, after] = both.map(hash);
        (self.key == env::KERNEL && before != after).then(|| Difference {
            what: format!("kernel {was}, another build"),
            before: printable(before, 12),
            after: printable(after, 12),
            means: String::new(),
        })
    }

    /// Whether the fact already shows the knob's level.
    fn says_level(&self, both: [OneArm<'_>; 2]) -> bool {
        let [was, is] = both.map(|one| self.level(one));
        was != is
    }
}

const MACHINE: [Fact; 14] = [
    Fact::new(env::TOPOLOGY, "topology (own)", ""),
    Fact::new(env::OBJECTS, "BPF objects", ""),
    Fact::new(env::CLOCK, "clock", "another instrument counted: the figures are not of one kind"),
    Fact::new(env::UNIT, UNIT, "another unit: the figures are not of one kind"),
    Fact::new(
        env::QUICK,
        "quick mode",
        "a side without an instruction clock is right within some tenths of a percent",
    ),
    Fact::new(
        env::QEMU,
        "QEMU",
        "where the CPU is the same: of 7.2 and 10.0, datagrams over lo and veth are equal within 0.1%, all else \
         there and over virtio-net and e1000 within 1%, over USB within 2%",
    ),
    Fact::new(env::ARCH, ARCHITECTURE, OTHER_CODE).set_by(ARCH),
    Fact::new(env::CPU, "CPU", "the kernel patches itself for the CPU that it finds"),
    Fact::new(
        env::CPU_LACKS,
        "CPU features that QEMU lacks",
        "the kernel patches itself for the CPU that it finds",
    ),
    Fact::new(env::REP, "string instructions", "copies and clears count otherwise"),
    Fact::new(
        env::PLUMB,
        "plumb",
        "another version may count or classify otherwise, and place memory so that lookups in hash \
         tables walk other buckets",
    ),
    Fact::new(
        env::RANDOM,
        "random numbers",
        "where they come from the boot, lookups in hash tables may walk other buckets",
    ),
    Fact::new(env::KERNEL, "kernel", "").set_by(KERNEL),
    Fact::new(env::MITIGATIONS, "mitigations", "").set_by("mitigations"),
];
/// The knob of the kernel.
const KERNEL: &str = "kernel";

/// This machine's programs that a guest runs before it is measured.
const PROGRAMS: [(&str, &str); 4] = [
    (env::NFT_FILES, "nft and its libraries"),
    (env::TC_FILES, "tc and its libraries"),
    (env::NGINX_FILES, "nginx and its libraries"),
    (env::MKFS_FILES, "mkfs and its libraries"),
];
const PROGRAM_MEANS: &str = "another program draws other random numbers: lookups in hash tables may \
                             walk other buckets, which is not the kernel's doing";

/// Programs that were not the same for both of a pair.
fn programs(both: [OneArm<'_>; 2]) -> impl Iterator<Item = Difference> {
    PROGRAMS.iter().filter_map(move |(key, what)| {
        let [was, is] = both.map(|one| one.fact(key));
        let text = |hash: Option<&str>| hash.unwrap_or("unknown").to_string();
        // An arm without the knob has none.
        let [before, after] = both.map(|one| &one.arm().knobs);
        (was != is && before == after).then(|| Difference {
            what: (*what).into(),
            before: text(was),
            after: text(is),
            means: PROGRAM_MEANS.into(),
        })
    })
}

/// Whether the compared arms set a knob to different levels: then its level is each
/// arm's, not the recording's environment.
fn names_every_arm(recording: &Recording, knob: &str) -> bool {
    let mut levels = recording.arms.iter().map(|a| a.knobs.get(knob));
    let first = levels.next();
    levels.any(|level| Some(level) != first)
}

/// Facts that only guests have.
const OF_A_GUEST: [&str; 5] = ["quick mode", "QEMU", ARCHITECTURE, "CPU", "string instructions"];

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
            all.push(Difference { what: what.into(), before, after, means: means.into() });
        }
    };
    add("lab", &lab, "other packets on another machine");
    if instrument(sides.before) == instrument(sides.after) {
        add("probes", &by, "their overhead differs; it is subtracted, as far as it is known");
    }
    if lab(sides.before) != lab(sides.after) {
        // Facts that only guests have are part of the difference between labs.
        let known = |side: &str| !side.is_empty() && side != "unknown";
        let of_a_guest = |d: &Difference| {
            OF_A_GUEST.contains(&d.what.as_str()) || d.what.ends_with("another build")
        };
        all.retain(|d| !of_a_guest(d) || known(&d.before) && known(&d.after));
    }
    all
}

/// The builds of this program in the guests of two hosts, if they are known and differ. Counts in a single guest
/// are the same with each (docs/limits.md).
pub(crate) fn builds(sides: Sides<'_>, pairs: &[ArmPair]) -> Option<Difference> {
    pairs.iter().find_map(|pair| {
        let both = sides.arms_of(*pair);
        let [before, after] = both.map(|one| one.fact(env::PROGRAM));
        let (before, after) = (before?.to_string(), after?.to_string());
        (before != after && both[0].arch() == both[1].arch()).then(|| Difference {
            what: "build of plumb".into(),
            before,
            after,
            means: "its guests start with their timers at another point, and figures were seen to differ by up to 1.5%"
                .into(),
        })
    })
}

/// The configuration options in which the kernels of a pair differ.
fn options(both: [OneArm<'_>; 2]) -> Vec<Difference> {
    let keys: BTreeSet<&str> = both.iter().flat_map(|one| options_of(*one)).collect();
    let each = keys.into_iter().map(|key| {
        let [before, after] = both.map(|one| one.fact(key).unwrap_or(env::NOT_SET).to_string());
        Difference { what: option(key), before, after, means: String::new() }
    });
    each.filter(|d| d.before != d.after).collect()
}

/// The options noted for an arm's kernel, by their keys.
fn options_of(one: OneArm<'_>) -> impl Iterator<Item = &str> {
    let notes = one.recording.notes.get(&(one.number as u32));
    let noted = notes.into_iter().flat_map(|notes| notes.facts.keys());
    let all = one.recording.environment.keys().chain(noted);
    all.map(String::as_str).filter(|key| key.starts_with(env::CONFIG))
}

/// The option's name in the kernel: `CONFIG_HZ`.
pub(crate) fn option(key: &str) -> String {
    format!("CONFIG_{}", key.strip_prefix(env::CONFIG).unwrap_or(key))
}

/// Each of some differences once, in their order.
fn each_once(all: impl IntoIterator<Item = Difference>) -> Vec<Difference> {
    let mut once: Vec<Difference> = Vec::new();
    for difference in all {
        if !once.contains(&difference) {
            once.push(difference);
        }
    }
    once
}

fn of_machines_and_arms(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<Difference> {
    let both = || pairs.iter().map(move |pair| sides.arms_of(*pair));
    let none = pairs.is_empty().then(|| sides.arms_of(NO_ARMS));
    let machines: Vec<[OneArm<'_>; 2]> = both().chain(none).collect();
    let facts =
        MACHINE.iter().flat_map(|fact| machines.iter().filter_map(move |both| fact.between(*both)));
    let options = machines
        .iter()
        .filter(|both| both[0].arch() != both[1].arch())
        .flat_map(|both| options(*both));
    let arms = both().flat_map(|both| programs(both).chain(levels(sides, both)));
    each_once(facts.chain(options).chain(arms))
}

/// The levels in which a pair differs, except those that its machines' facts show.
fn levels<'s>(sides: Sides<'s>, both: [OneArm<'s>; 2]) -> impl Iterator<Item = Difference> {
    let is_fact = move |what: &str| {
        let by_arms = || names_every_arm(sides.before, what) || names_every_arm(sides.after, what);
        let fact = MACHINE.iter().find(|fact| fact.knob == Some(what));
        // One kernel may have two nicknames, and one nickname may name two kernels.
        fact.is_some_and(|fact| fact.says_level(both) || !by_arms())
    };
    let differing = differing(both[0], both[1]).into_iter();
    differing.filter(move |(what, ..)| !is_fact(what)).map(|(what, before, after)| Difference {
        means: match what.as_str() {
            "protocol" => "two protocols: not the same path".into(),
            _ => String::new(),
        },
        what,
        before,
        after,
    })
}

/// Whether the arms of a pair ran the same kernel, so far as is known.
pub(super) fn same_kernel(sides: Sides<'_>, pair: ArmPair) -> bool {
    let both = sides.arms_of(pair);
    let by_arms = [sides.before, sides.after].map(|r| names_every_arm(r, KERNEL));
    let [was, is] = both.map(|one| (hash(one), one.fact(env::KERNEL)));
    let [before, after] = both.map(|one| one.level(KERNEL));
    was == is && (by_arms == [false; 2] || before == after)
}

/// Whether both were measured on one architecture.
pub(super) fn same_arch(sides: Sides<'_>, pair: ArmPair) -> bool {
    let [was, is] = sides.arms_of(pair).map(|one| one.arch());
    was == is
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

/// A note if the sides did not take turns.
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

fn hash(one: OneArm<'_>) -> &str {
    one.fact(env::KERNEL_HASH).unwrap_or_default()
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
        // Rates do not count such blocks.
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
    let over =
        |pair: &ArmPair| [sides.before.arms[pair.before].link, sides.after.arms[pair.after].link];
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
