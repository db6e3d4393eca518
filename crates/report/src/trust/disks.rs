//! What is to be known about disks and interfaces: those of this machine whose settings were changed, and disks of
//! guests that are not the same in each run.

use std::collections::BTreeSet;

use netplumb_model::class::Link;
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

/// The notes about disks and interfaces.
pub(crate) fn disks(recording: &Recording) -> Vec<Note> {
    let mut notes = Vec::new();
    let own = || recording.arms.iter().filter(|arm| arm.link == Link::Any);
    let disks = || own().filter_map(|arm| MachinePlan::of(arm).disk);
    let of_disks = disks().flat_map(|disk| disk.queue.into_iter().map(|setting| setting.name));
    let nics = || own().filter(|arm| MachinePlan::of(arm).nic.is_some());
    let is_setting = |key: &&String| !["nic", "command", "disk"].contains(&key.as_str());
    let of_nics = nics().flat_map(|arm| arm.knobs.keys().filter(is_setting).cloned());
    let names = nics().filter_map(|arm| arm.knobs.get("nic").cloned());
    for (set, on) in [
        (of_disks.collect(), disks().map(|disk| disk.name).collect()),
        (of_nics.collect(), names.collect()),
    ] {
        let set: BTreeSet<String> = set;
        if !set.is_empty() {
            let text = format!(
                "{} of {} before each run of the command, read back, and restored after it",
                list(set),
                list(on)
            );
            notes.push(Note::new("set", text));
        }
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
