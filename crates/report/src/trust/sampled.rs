//! The footer under samples of a guest.

use std::collections::BTreeMap;

use netplumb_model::quantity::Quantity;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{DEFERRED, INTERRUPTS_OFF, SAMPLE_PERIOD, SAMPLE_SEED};

use super::common::{kernel, ledger, lost};
use super::layers;
use super::varying::{apart, intervals};
use crate::acting;
use crate::analysis::ClassView;
use crate::footer::Note;
use crate::number::thousands;
use crate::scalars::of_run;

/// Notes for under a result. `classes` are those that were shown.
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
             where they are enabled again",
        );
    }
    let mut notes = vec![Note::new("clock", clock), kernel(recording)];
    notes.extend(interrupts(recording));
    notes.push(Note::new("samples", samples(recording)));
    if recording.blocks.iter().any(|b| b.ledger.offered > 0) {
        notes.push(ledger(recording));
    }
    notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
    notes.push(layers(classes, "cost"));
    notes.extend(apart(classes).map(|text| Note::new("apart", text)));
    notes.extend(acting::footer(recording));
    notes.extend(lost(recording, "none: every sample has a stack"));
    notes
}

/// How much ran where a timer can't see it: of all, then by direction.
fn interrupts(recording: &Recording) -> Option<Note> {
    let mut shares: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for scalar in recording.scalars_of(&INTERRUPTS_OFF) {
        let of = shares.entry(scalar.item.label.as_deref()?).or_default();
        of.0 += scalar.value;
        of.1 += 1;
    }
    let each = shares.iter();
    let mut each: Vec<(&str, f64)> = each
        .map(|(label, (sum, n))| (*label, sum * 100.0 / f64::from(*n)))
        .collect();
    let all = each.iter().position(|(label, _)| *label == "all")?;
    let (_, all) = each.remove(all);
    let each: Vec<String> = each
        .iter()
        .map(|(l, share)| format!("{l} {share:.1}%"))
        .collect();
    Some(Note::new(
        "irqs off",
        format!(
            "{all:.1}% of the kernel's instructions ran with interrupts off ({})",
            each.join(", ")
        ),
    ))
}

fn samples(recording: &Recording) -> String {
    let samples: u64 = recording.costs.iter().map(|c| c.calls).sum();
    let blocks = recording.blocks.len();
    let mut seeds: Vec<u64> = (recording.scalars_of(&SAMPLE_SEED))
        .map(|scalar| scalar.value as u64)
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    let which = match seeds[..] {
        [one] => format!("seed {one}"),
        _ => format!("{} seeds", seeds.len()),
    };
    format!("{} in {blocks} blocks, {which}", thousands(samples))
}
