//! What is to be known about disks: those of this machine whose settings were changed, and those of
//! guests that are not the same in each run.

use std::collections::BTreeSet;

use netplumb_model::experiment::{DiskDevice, DiskPlan, MachinePlan};
use netplumb_model::recording::{Arm, Recording};

use crate::footer::Note;
use crate::number::printable;

fn list(words: BTreeSet<String>) -> String {
    let words: Vec<String> = words.into_iter().collect();
    printable(&words.join(", "), 200)
}

/// The device of an arm's disk, if it makes the arm different in each run.
pub(crate) fn varying(arm: &Arm) -> Option<DiskDevice> {
    let device = DiskPlan::of(arm)?.disk.device;
    (!device.repeats()).then_some(device)
}

/// The notes about disks.
pub(crate) fn disks(recording: &Recording) -> Vec<Note> {
    let mut notes = Vec::new();
    let plans = || recording.arms.iter().filter_map(MachinePlan::of);
    let set: BTreeSet<String> = plans()
        .flat_map(|plan| plan.queue.into_iter().map(|setting| setting.name))
        .collect();
    if !set.is_empty() {
        let text = format!(
            "{} of {} before each run of the command, read back, and restored after it",
            list(set),
            list(plans().map(|plan| plan.disk).collect())
        );
        notes.push(Note::new("set", text));
    }
    let devices = recording.arms.iter().filter_map(varying);
    let devices: BTreeSet<String> = devices.map(|device| device.to_string()).collect();
    if !devices.is_empty() {
        let text = format!(
            "{}: not repeatable: requests complete when the host has done them, so that counts and the \
             guest's time differ from run to run; null_blk and brd repeat exactly",
            list(devices)
        );
        notes.push(Note::warning("disk", text));
    }
    notes
}
