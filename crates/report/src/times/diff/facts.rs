//! What must be known before two sides are compared: how they differ, whether they
//! took turns, and what either lacks.

use std::collections::BTreeSet;

use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::Mechanism;

use super::TimesDiff;
use crate::diff::Sides;
use crate::diff::arms::ArmPair;
use crate::diff::facts::{Difference, differences};
use crate::number::printable;
use crate::shape::{Shape, shape};
use crate::times::instrument;

/// How the sides differ: what exact recordings are asked too, the lab, and by what
/// functions were timed.
pub(super) fn facts(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<Difference> {
    let mut all = differences(sides, pairs);
    // What the vm lab alone has is no difference, but a part of that between labs.
    const OF_A_GUEST: [&str; 4] = ["quick mode", "QEMU", "CPU", "string instructions"];
    all.retain(|d| {
        let known = |side: &str| !side.is_empty() && side != "unknown";
        let of_a_guest = OF_A_GUEST.contains(&d.what.as_str()) || d.what.ends_with("another build");
        !of_a_guest || known(&d.before) && known(&d.after)
    });
    let mut add = |what: &str, before: String, after: String, means: &str| {
        if before != after {
            all.push(Difference {
                what: what.into(),
                before,
                after,
                means: means.into(),
            });
        }
    };
    let lab = |r: &Recording| r.environment.get(env::LAB).cloned().unwrap_or("vm".into());
    add(
        "lab",
        lab(sides.before),
        lab(sides.after),
        "other packets on another machine",
    );
    let by = |r: &Recording| {
        let used: BTreeSet<Mechanism> = r.attachments.iter().map(|a| a.mechanism).collect();
        let words: Vec<&str> = used.into_iter().map(Mechanism::as_str).collect();
        words.join(" and ")
    };
    if instrument(sides.before) == instrument(sides.after) {
        add(
            "probes",
            by(sides.before),
            by(sides.after),
            "their cost is another; it is taken off, as far as it is known",
        );
    }
    all
}

pub(super) fn warnings(sides: Sides<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (recording, name) in [
        (sides.before, sides.before_name),
        (sides.after, sides.after_name),
    ] {
        let name = printable(name, 120);
        if !recording.complete {
            warnings.push(format!(
                "{name}: the run was cut short; fewer blocks, wider intervals"
            ));
        }
        let corrected = recording.attachments.is_empty() || !recording.calibration.is_empty();
        if shape(recording) == Shape::Times && !corrected {
            warnings.push(format!(
                "{name}: the probes' cost was not measured, so nothing is corrected"
            ));
        }
        if recording.blocks.iter().any(|b| !b.ledger.closes()) {
            warnings.push(format!(
                "{name}: in some blocks packets are missing without a cause"
            ));
        }
    }
    warnings.dedup();
    warnings
}

/// Whether all blocks of one arm were measured before any of the other.
pub(super) fn apart(sides: Sides<'_>, pair: ArmPair) -> bool {
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

/// That sides did not take turns, if they didn't.
pub(super) fn not_interleaved(diff: &TimesDiff<'_>) -> Option<String> {
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
