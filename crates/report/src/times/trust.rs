//! The footer under times: the probes, their cost, the corrections, and missing
//! data.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{INTO_RUN, MERGED, Recording};
use netplumb_model::span::StageKind;
use netplumb_model::timing::{
    Calibration, DROPPED, FOLLOWED, Mechanism, PAUSED, SEEN, STAGE_OWN, STAGE_TIME,
};

use super::analysis::TimedClass;
use super::{between, instrument, ns, rounded};
use crate::acting;
use crate::drift;
use crate::footer::Note;
use crate::number::{self, printable};
use crate::scalars::{by_label, sum};
use crate::trust::common::{CUT_SHORT, below, kernel, ledger, lost};
use crate::trust::devices::devices;

/// The most names in a line.
const NAMES: usize = 3;
const MAX_OVERHEAD: &str = "stages.max_overhead";

/// Notes under a result. `classes` are the recording's classes that were asked
/// for, including work for no packet.
pub fn footer(recording: &Recording, classes: &[TimedClass<'_>]) -> Vec<Note> {
    let clock = match instrument(recording) {
        Some(of) if of == STAGE_TIME.instrument => match recording.scalars_of(&STAGE_OWN).next() {
            Some(_) => {
                "nanoseconds of the running kernel, from one tracepoint to the next; figures without a \
                     unit are nanoseconds"
            }
            None => {
                "nanoseconds of the running kernel, from one tracepoint to the next, as read; figures \
                     without a unit are nanoseconds"
            }
        },
        _ if between::is_of(recording) => {
            "nanoseconds of the running kernel, from one event to the next that was reached, as read; \
             figures without a unit are nanoseconds"
        }
        _ => {
            "nanoseconds of the running kernel, from a function's entry to its exit, without what \
             interrupted a call; figures without a unit are nanoseconds"
        }
    };
    let mut notes = vec![Note::new("clock", clock)];
    notes.extend(below(recording));
    notes.push(kernel(recording));
    notes.extend(devices(recording));
    notes.extend(probes(recording));
    notes.extend(correction(classes).map(|text| Note::new("corrected", text)));
    notes.extend(own_time(classes).map(|text| Note::new("corrected", text)));
    if between::is_of(recording) {
        notes.extend(between::notes(recording));
    }
    if recording.blocks.iter().any(|b| b.ledger.offered > 0) {
        notes.push(ledger(recording, classes.iter().map(|class| class.arm)));
    }
    notes.extend(of_others(recording).map(|text| Note::new("packets", text)));
    notes.extend(followed(recording).map(|text| Note::new("followed", text)));
    notes.extend(counted(recording, &SEEN).map(|text| Note::new("seen", text)));
    let dropped = counted(recording, &DROPPED);
    let dropped = dropped.map(|text| format!("by the kernel's reasons: {text}"));
    notes.extend(dropped.map(|text| Note::new("dropped", text)));
    let gaps = super::gaps::lines(recording);
    let has_gaps = !gaps.is_empty();
    notes.extend(gaps.into_iter().map(|text| Note::new("gap", text)));
    notes.extend(blocks(recording, classes).map(|text| Note::new("blocks", text)));
    notes.extend(apart(classes).map(|text| Note::new("apart", text)));
    notes.extend(others(recording).map(|text| Note::new("counted", text)));
    notes.extend(refused(recording));
    notes.extend(acting::footer(recording));
    notes.extend(lost(
        recording,
        match has_gaps {
            _ if between::is_of(recording) => "none: no event was missed, no map was full",
            true => {
                "none that was counted: no call was missed, no map was full; what is unaccounted for is in the \
                 gaps above"
            }
            false => "none: no call was missed, no map was full",
        },
        CUT_SHORT,
    ));
    notes.extend(drift::notes(recording));
    notes
}

/// The probes of functions, and their cost.
fn probes(recording: &Recording) -> Vec<Note> {
    let mut by: BTreeMap<Mechanism, u64> = BTreeMap::new();
    for attachment in &recording.attachments {
        *by.entry(attachment.mechanism).or_default() += 1;
    }
    let note = |(mechanism, functions): (Mechanism, u64)| {
        let functions = number::counted(functions as usize, "function");
        let cost = match cost(recording, mechanism) {
            Some((bias, pair, off)) => format!(
                "an empty function reads {bias} ns, a probe pair takes {pair}, each to within {off} (95%)"
            ),
            None => "the overhead was not measured, so nothing is corrected".into(),
        };
        Note::new("probes", format!("{mechanism} on {functions}: {cost}"))
    };
    by.into_iter().map(note).collect()
}

/// Bias, pair and uncertainty of a mechanism, as ranges over their conditions.
fn cost(recording: &Recording, mechanism: Mechanism) -> Option<(String, String, String)> {
    let of: Vec<&Calibration> =
        recording.calibration.iter().filter(|c| c.mechanism == mechanism).collect();
    // The medians, where there are any.
    let medians: Vec<&Calibration> = of.iter().copied().filter(|c| c.cpu.is_none()).collect();
    let of = if medians.is_empty() { of } else { medians };
    let range = |value: fn(&Calibration) -> f64| {
        let values = of.iter().map(|c| value(c));
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        let tenths = |v: f64| format!("{v:.1}");
        match tenths(low) == tenths(high) {
            true => tenths(low),
            false => format!("{} to {}", tenths(low), tenths(high)),
        }
    };
    (!of.is_empty())
        .then(|| (range(|c| c.bias_ns), range(|c| c.pair_ns), range(|c| c.uncertainty_ns)))
}

/// The size of corrections.
fn correction(classes: &[TimedClass<'_>]) -> Option<String> {
    let sizes: Vec<String> = classes
        .iter()
        .filter(|c| !c.functions.is_empty() && c.class.direction != Direction::Other)
        .map(|c| {
            let each = |sum: f64| ns(c.per.each(sum));
            let class = c.label();
            format!("{class} {} → {}", each(c.raw_ns), each(c.total_ns))
        })
        .collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "as read → less the probes' overhead: {}; percentiles and max are as read, less the mean correction \
             of the function's calls",
            sizes.join(", ")
        )
    })
}

/// The own time of the programs of `stages` in a packet's path.
fn own_time(classes: &[TimedClass<'_>]) -> Option<String> {
    let sizes: Vec<String> = classes
        .iter()
        .filter_map(|class| {
            let total = class.stages.iter().find(|s| s.kind == StageKind::Total)?;
            let packets = total.packets().max(1) as f64;
            let (less, own) = (total.mean_ns(), total.own_ns / packets);
            let label = class.label();
            (own > 0.0).then(|| format!("{label} {} → {}", ns(less + own), ns(less)))
        })
        .collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "as read → less the time of the programs themselves, in work and in waits for a busy CPU: {}; every \
             stage by the mean of some packets of it",
            sizes.join(", ")
        )
    })
}

/// How many packets of other programs were followed.
fn of_others(recording: &Recording) -> Option<String> {
    let packets = sum(recording, &FOLLOWED);
    (packets > 0.0).then(|| format!("{} followed; the total was not counted", rounded(packets)))
}

/// The share of the time in which packets were followed, where there were pauses.
fn followed(recording: &Recording) -> Option<String> {
    let paused_ns = sum(recording, &PAUSED);
    let share = recording.environment.get(MAX_OVERHEAD);
    if paused_ns <= 0.0 {
        return None;
    }
    // One window may be several blocks, one for each protocol; it is paused once.
    let arms = |b: &&netplumb_model::recording::Block| {
        let bare = recording.arms.get(b.arm as usize);
        bare.is_none_or(|a| a.knobs.get("probes").is_none_or(|p| p != "off"))
    };
    let mut windows: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for block in recording.blocks.iter().filter(arms) {
        let arm = recording.arms.get(block.arm as usize);
        let by_arm = arm.map_or(0, |a| match a.link {
            netplumb_model::class::Link::Any => 0,
            _ => block.arm + 1,
        });
        windows.insert((block.index, by_arm), block.duration_ns);
    }
    let whole_ns = windows.values().sum::<u64>() as f64;
    let percent = (100.0 - paused_ns * 100.0 / whole_ns.max(1.0)).max(0.0);
    Some(format!(
        "packets of {percent:.1} % of the time, in stretches, each packet to its end: measuring is limited \
         to {} of a CPU; --max-overhead allows more, 100% all",
        share.map_or("a share".into(), |s| printable(s, 20))
    ))
}

/// A quantity by its labels, summed over blocks.
fn counted(recording: &Recording, quantity: &Declared) -> Option<String> {
    let sums = by_label(recording, quantity, |_| true);
    let parts: Vec<String> = sums
        .iter()
        .map(|(name, sum)| format!("{} {}", printable(name, 60), rounded(*sum)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn blocks(recording: &Recording, classes: &[TimedClass<'_>]) -> Option<String> {
    let counts = || classes.iter().map(|c| c.blocks.len());
    let (least, most) = (counts().min()?, counts().max()?);
    let count = match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    };
    let ranges: Vec<String> = classes
        .iter()
        .filter(|c| c.class.direction != Direction::Other && c.blocks.len() > 1)
        .filter_map(|c| {
            let each = match c.functions.is_empty() {
                true => way_by_block(c),
                false => (c.per_by_block.iter().zip(c.by_block()))
                    .map(|(per, sum)| per.each(sum))
                    .collect(),
            };
            let low = each.iter().copied().fold(f64::INFINITY, f64::min);
            let high = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            low.is_finite().then(|| format!("{} {} to {}", c.label(), ns(low), ns(high)))
        })
        .collect();
    let seconds: f64 = recording.blocks.iter().map(|b| b.duration_ns as f64 / 1e9).sum();
    let mut line = format!("{count} of each class");
    if seconds > 0.0 {
        line.push_str(&format!(", {seconds:.1} s of windows in all"));
    }
    if !ranges.is_empty() {
        line.push_str(&format!("; from block to block: {}", ranges.join(", ")));
    }
    Some(line)
}

/// The whole way in each block that had any.
fn way_by_block(class: &TimedClass<'_>) -> Vec<f64> {
    let total = class.stages.iter().find(|s| s.kind == netplumb_model::span::StageKind::Total);
    total.map_or_else(Vec::new, |s| s.by_block.iter().flatten().copied().collect())
}

/// Timed work for no packet.
fn apart(classes: &[TimedClass<'_>]) -> Option<String> {
    let other: Vec<String> = classes
        .iter()
        .filter(|c| c.class.direction == Direction::Other && c.total_ns > 0.0)
        .map(|c| {
            let each = ns(c.per.each(c.total_ns));
            format!("{} {each} per {}", c.label(), c.per.word())
        })
        .collect();
    (!other.is_empty()).then(|| {
        format!(
            "in functions that were timed, but for no packet that was seen: {}",
            other.join(", ")
        )
    })
}

/// Figures of blocks that no other line is about: their means.
fn others(recording: &Recording) -> Option<String> {
    let own = [&FOLLOWED, &SEEN, &DROPPED, &MERGED, &INTO_RUN, &STAGE_OWN];
    let mut sums: BTreeMap<&str, (f64, f64, &str)> = BTreeMap::new();
    for scalar in recording.scalars.iter().filter(|s| s.block().is_some()) {
        let Some(quantity) = recording.quantities.get(scalar.quantity as usize) else {
            continue;
        };
        let own_quantities = own.iter().chain(&between::OF_FOOTER);
        if !own_quantities.into_iter().any(|own| quantity.is(own)) {
            let sum = sums.entry(&quantity.name).or_insert((0.0, 0.0, &quantity.unit));
            sum.0 += scalar.value;
            sum.1 += 1.0;
        }
    }
    let parts: Vec<String> = sums
        .iter()
        .map(|(name, (sum, count, unit))| {
            let mean = sum / count;
            let value = match *unit {
                "ns" => ns(mean),
                unit => format!("{} {}", rounded(mean), printable(unit, 20)),
            };
            format!("{} {value}", printable(name, 60))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("mean of a block: {}", parts.join(", ")))
}

/// Functions that could not be watched or were left out.
fn refused(recording: &Recording) -> Vec<Note> {
    let refused: Vec<String> = recording
        .all_not_measured()
        .into_iter()
        .map(|(name, why)| format!("{} ({})", printable(name, 60), printable(why, 120)))
        .collect();
    let mut notes = Vec::new();
    if !refused.is_empty() {
        let refused = some(&refused);
        let text = format!("{refused}: their time is in their callers' own time");
        notes.push(Note::new("refused", text));
    }
    let over_budget = recording.all_over_budget().into_iter();
    let over_budget: Vec<String> = over_budget.map(|name| printable(name, 60)).collect();
    if !over_budget.is_empty() {
        let text =
            format!("to stay within --max-functions or --max-overhead: {}", some(&over_budget));
        notes.push(Note::new("not timed", text));
    }
    notes
}

/// The first few, and how many more there are.
fn some(names: &[String]) -> String {
    let mut out = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        out.push_str(&format!(" and {} more", names.len() - NAMES));
    }
    out
}
