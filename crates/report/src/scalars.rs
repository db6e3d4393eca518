//! Scalars of a recording, summed and formatted for tables.

use std::collections::BTreeMap;

use netplumb_model::quantity::{Declared, Scalar, Subject};
use netplumb_model::recording::{ArmNotes, Recording};
use serde::Serialize;

/// A scalar in JSON, with its quantity.
#[derive(Serialize)]
pub(crate) struct ScalarOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm: Option<u32>,
    instrument: &'a str,
    quantity: &'a str,
    unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    /// `null` where it was requested and is not known.
    value: f64,
}

/// All scalars of a recording.
pub(crate) fn all(recording: &Recording) -> Vec<ScalarOut<'_>> {
    out(recording, |_| true)
}

/// Scalars of the run and of arms, for a document that has the blocks' scalars elsewhere.
pub(crate) fn of_no_block(recording: &Recording) -> Vec<ScalarOut<'_>> {
    out(recording, |scalar| scalar.block().is_none())
}

fn out(recording: &Recording, shown: impl Fn(&Scalar) -> bool) -> Vec<ScalarOut<'_>> {
    let shown = recording.scalars.iter().filter(|scalar| shown(scalar));
    let out = shown.filter_map(|scalar| {
        let quantity = recording.quantities.get(scalar.quantity as usize)?;
        let (block, arm) = match scalar.of {
            Subject::Run => (None, None),
            Subject::Arm(arm) => (None, Some(arm)),
            Subject::Block(block) => (Some(block), None),
        };
        Some(ScalarOut {
            block,
            arm,
            instrument: &quantity.instrument,
            quantity: &quantity.name,
            unit: &quantity.unit,
            number: scalar.item.number,
            label: scalar.item.label.as_deref(),
            value: scalar.value,
        })
    });
    out.collect()
}

/// An arm's notes beside its figures, in JSON.
#[derive(Serialize)]
pub(crate) struct NotesOut<'a> {
    arm: &'a str,
    #[serde(flatten)]
    notes: &'a ArmNotes,
}

/// The notes of all arms that have any.
pub(crate) fn notes(recording: &Recording) -> Vec<NotesOut<'_>> {
    let notes = recording.notes.iter().filter(|(_, notes)| !notes.is_empty());
    let out = notes.filter_map(|(arm, notes)| {
        let arm = &recording.arms.get(*arm as usize)?.name;
        Some(NotesOut { arm, notes })
    });
    out.collect()
}

/// Sums by label, over the selected blocks.
pub(crate) fn by_label<'r>(
    recording: &'r Recording,
    quantity: &Declared,
    block: impl Fn(u32) -> bool,
) -> BTreeMap<&'r str, f64> {
    let mut sums = BTreeMap::new();
    for scalar in recording.scalars_of(quantity) {
        if let (Some(of), Some(label)) = (scalar.block(), scalar.item.label.as_deref())
            && block(of)
        {
            *sums.entry(label).or_default() += scalar.value;
        }
    }
    sums
}

/// The sum over all blocks.
pub(crate) fn sum(recording: &Recording, quantity: &Declared) -> f64 {
    recording.scalars_of(quantity).map(|s| s.value).sum()
}

/// A figure of the run.
pub(crate) fn of_run(recording: &Recording, quantity: &Declared) -> Option<f64> {
    let of_run = recording.scalars_of(quantity).find(|s| s.of == Subject::Run);
    of_run.map(|s| s.value)
}
