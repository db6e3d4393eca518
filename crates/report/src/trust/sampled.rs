//! The footer under samples of a guest.

use std::collections::BTreeMap;

use netplumb_model::quantity::{Declared, Quantity, Scalar};
use netplumb_model::recording::Recording;
use netplumb_model::timing::{DEFERRED, IN_KERNEL, INTERRUPTS_OFF, SAMPLE_PERIOD, SAMPLE_SEED};

use super::blocks::intervals;
use super::common::{CUT_SHORT, architectures, kernel, ledger, lost};
use super::devices::devices;
use super::layers;
use super::varying::apart;
use crate::acting;
use crate::analysis::ClassView;
use crate::footer::Note;
use crate::number::{counted, thousands};
use crate::scalars::of_run;

/// Notes under a result. `classes` are the shown ones.
pub(super) fn footer(
    recording: &Recording,
    quantity: &Quantity,
    classes: &[ClassView<'_>],
) -> Vec<Note> {
    let period = of_run(recording, &SAMPLE_PERIOD).unwrap_or(1.0);
    let mut clock = format!(
        "instructions, by samples drawn from all that the guest executed: one of {} on average, \
         each as likely as any other; the guest executes the same without",
        thousands(period as u64)
    );
    if quantity.is(&DEFERRED) {
        clock.push_str(
            "; as a timer would take them: what falls where interrupts are off is charged to \
             where they are enabled again, [user mode] where that is behind the kernel",
        );
    }
    let mut notes = vec![Note::new("clock", clock), kernel(recording)];
    notes.extend(architectures(recording));
    notes.extend(devices(recording));
    notes.extend(interrupts(recording, classes));
    notes.push(Note::new("samples", samples(recording)));
    if recording.blocks.iter().any(|b| b.ledger.offered > 0) {
        notes.push(ledger(recording, classes.iter().map(|class| class.arm)));
    }
    notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
    notes.push(layers(classes, "cost"));
    notes.extend(apart(classes).map(|text| Note::new("apart", text)));
    notes.extend(acting::footer(recording));
    let nothing = match quantity.is(&DEFERRED) {
        true => "none: every sample has a stack in the kernel, or is in user mode",
        false => "none: every sample has a stack",
    };
    notes.extend(lost(recording, nothing, CUT_SHORT));
    notes
}

/// The share that a timer can't see, in the shown arms: in all, then by
/// direction.
fn interrupts(recording: &Recording, classes: &[ClassView<'_>]) -> Option<Note> {
    let shown = |scalar: &&Scalar| {
        let block = scalar.block().and_then(|n| recording.blocks.get(n as usize));
        let arm = block.map(|block| block.arm as usize);
        classes.is_empty() || classes.iter().any(|class| Some(class.arm) == arm)
    };
    let sums = |of: &Declared| {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for scalar in recording.scalars_of(of).filter(shown) {
            if let Some(direction) = scalar.item.label.as_deref() {
                *sums.entry(direction).or_default() += scalar.value;
            }
        }
        sums
    };
    let (off, ran) = (sums(&INTERRUPTS_OFF), sums(&IN_KERNEL));
    let all: f64 = ran.values().sum();
    if all <= 0.0 {
        return None;
    }
    let each = ran.iter().filter(|(_, ran)| **ran > 0.0);
    let each = each.map(|(direction, ran)| {
        let share = off.get(direction).unwrap_or(&0.0) * 100.0 / ran;
        format!("{direction} {share:.1}%")
    });
    Some(Note::new(
        "irqs off",
        format!(
            "{:.1}% of the kernel's instructions ran with interrupts off ({})",
            off.values().sum::<f64>() * 100.0 / all,
            each.collect::<Vec<_>>().join(", ")
        ),
    ))
}

fn samples(recording: &Recording) -> String {
    let samples: u64 = recording.costs.iter().map(|c| c.calls).sum();
    let blocks = recording.blocks.len();
    let mut seeds: Vec<u64> =
        (recording.scalars_of(&SAMPLE_SEED)).map(|scalar| scalar.value as u64).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let which = match seeds[..] {
        [one] => format!("seed {one}"),
        _ => format!("{} seeds, costs are their mean", seeds.len()),
    };
    format!("{} in {}, {which}", thousands(samples), counted(blocks, "block"))
}

#[cfg(test)]
mod tests {
    use netplumb_model::quantity::{FigureKey, Subject};
    use netplumb_model::recording::{Block, Ledger};

    use super::*;

    /// Check that the share with interrupts off is of all work, however long blocks are, and that
    /// directions without any count.
    #[test]
    fn shares_of_sums() {
        let mut recording = Recording::default();
        for (block, [off, ran]) in (0..).zip([[90.0, 100.0], [0.0, 900.0]]) {
            recording.blocks.push(Block {
                arm: 0,
                instrument: DEFERRED.instrument.into(),
                index: block,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 0,
            });
            for (of, value) in [(&INTERRUPTS_OFF, off), (&IN_KERNEL, ran)] {
                recording.add(Subject::Block(block), of, FigureKey::label("tx"), value);
            }
            for (of, value) in [(&INTERRUPTS_OFF, 0.0), (&IN_KERNEL, 1_000.0)] {
                recording.add(Subject::Block(block), of, FigureKey::label("rx"), value);
            }
        }
        assert_eq!(
            interrupts(&recording, &[]).unwrap().text,
            "3.0% of the kernel's instructions ran with interrupts off (rx 0.0%, tx 9.0%)"
        );
    }
}
