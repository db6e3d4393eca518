//! How two sides differ before anything is counted: clock, kernel, machine, what
//! was sent. Said first, so that nobody takes one for the other.

use netplumb_model::class::Link;
use netplumb_model::recording::{Recording, env};

use super::arms::{ArmPair, differing};
use super::{Diff, Sides};
use crate::number::{counted, printable, thousands};

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

/// Facts of the machine, and what it means if they differ.
const MACHINE: [(&str, &str, &str); 10] = [
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
const PROGRAMS: [(&str, &str); 2] = [
    (env::NFT_FILES, "nft and its libraries"),
    (env::TC_FILES, "tc and its libraries"),
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

/// Everything in which the sides differ.
pub fn differences(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<Difference> {
    let mut all = Vec::new();
    let (before, after) = (sides.before, sides.after);
    for (key, what, means) in MACHINE {
        let knob = key
            .strip_prefix("kernel.")
            .map(|k| if k == "release" { "kernel" } else { k });
        if knob.is_some_and(|k| told_by_arms(before, k) || told_by_arms(after, k)) {
            continue;
        }
        let fact = |r: &Recording| r.environment.get(key).cloned().unwrap_or("unknown".into());
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

/// The footer: what the figures are, and what is missing from them.
pub fn trust(diff: &Diff<'_>) -> Vec<String> {
    let sides = diff.sides;
    let fact = |r: &Recording, key: &str| printable(r.environment.get(key).map_or("?", |v| v), 120);
    let both = |key: &str| {
        let (was, is) = (fact(sides.before, key), fact(sides.after, key));
        if was == is {
            is
        } else {
            format!("{was} → {is}")
        }
    };
    let quick = [sides.before, sides.after]
        .iter()
        .any(|r| fact(r, env::QUICK) == "yes");
    let exact = match quick {
        true => "kernel instructions executed, in quick mode within some tenths of a percent",
        false => "kernel instructions executed, to the instruction",
    };
    let mut lines = vec![
        format!("clock     {exact}; not time: no caches, no branch prediction, no contention"),
        format!(
            "machine   QEMU {} TCG, -cpu {}, one vCPU; {}",
            both(env::QEMU),
            both(env::CPU),
            both(env::REP)
        ),
    ];
    let mut counts = std::collections::BTreeSet::new();
    let (mut odd, mut varying) = (0, 0);
    for class in &diff.classes {
        for blocks in [&class.blocks_before, &class.blocks_after] {
            counts.insert(blocks.blocks.len());
            odd += blocks.odd.len();
        }
        varying += usize::from(!class.blocks_before.exact() || !class.blocks_after.exact());
    }
    let (least, most) = (counts.first().unwrap_or(&0), counts.last().unwrap_or(&0));
    let mut blocks = match least == most {
        true => format!("blocks    {most} a side"),
        false => format!("blocks    {least} to {most} a side"),
    };
    if odd == 0 && varying == 0 {
        blocks.push_str(", those of one side equal to the instruction");
    }
    if odd > 0 {
        blocks.push_str(&format!(
            "; {odd} left out, of something that happened once (the others of that side and class are \
             equal to the instruction)"
        ));
    }
    if varying > 0 {
        blocks.push_str(&format!(
            "; in {varying} of {} they differ, and no change within their range is called one",
            counted(diff.classes.len(), "class")
        ));
    }
    lines.push(blocks);
    lines.push(
        "sums      changes of functions, with those too small to tell, add up to that of the class"
            .into(),
    );
    let same = std::ptr::eq(sides.before, sides.after);
    let named = [(sides.before, "before"), (sides.after, "after")];
    let mut lost = false;
    for (recording, side) in named.iter().take(if same { 1 } else { 2 }) {
        for loss in recording.all_losses() {
            lost = true;
            let of = if same {
                String::new()
            } else {
                format!(" {side}")
            };
            lines.push(format!(
                "loss     {of} {} {}: {}",
                thousands(loss.count),
                printable(&loss.cause, 80),
                printable(&loss.meaning, 160)
            ));
        }
    }
    if !lost {
        lines.push(
            "loss      none: every call and return was matched, every instruction placed".into(),
        );
    }
    lines
}

fn hash(recording: &Recording) -> String {
    recording
        .environment
        .get(env::KERNEL_HASH)
        .cloned()
        .unwrap_or_default()
}

/// What must be known besides.
pub fn warnings(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<String> {
    let mut warnings = Vec::new();
    let same = std::ptr::eq(sides.before, sides.after);
    let named = [
        (sides.before, sides.before_name),
        (sides.after, sides.after_name),
    ];
    for (recording, name) in named.iter().take(if same { 1 } else { 2 }) {
        let name = printable(name, 120);
        if !recording.complete {
            warnings.push(format!(
                "{name} is torn: its run was cut short, and blocks or arms are missing"
            ));
        }
        let open = recording
            .blocks
            .iter()
            .filter(|b| !b.ledger.closes())
            .count();
        if open > 0 {
            warnings.push(format!(
                "{name} is invalid in {open} of {}: packets are missing without a cause",
                counted(recording.blocks.len(), "block")
            ));
        }
    }
    let usb = |r: &Recording, arm: usize| r.arms[arm].link == Link::UsbNet;
    if pairs
        .iter()
        .any(|p| usb(sides.before, p.before) || usb(sides.after, p.after))
    {
        warnings.push(
            "over usb-net boots of the same differ by up to some percent, for its controller polls by \
             the clock: a change is one if several recordings have it"
                .into(),
        );
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
