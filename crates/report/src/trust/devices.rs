//! Notes about disks, interfaces and wires: this machine's devices whose settings were changed, guests' disks that
//! are not the same in each run, and wires between NICs of a guest.

use std::collections::BTreeSet;

use netplumb_model::class::Link;
use netplumb_model::experiment::{DiskDevice, DiskPlan, MachinePlan, is_of_nic};
use netplumb_model::hosts::{self, Wire};
use netplumb_model::quantity::Quantity;
use netplumb_model::recording::{Arm, Recording};

use crate::footer::Note;
use crate::number::printable;

fn list(words: BTreeSet<String>) -> String {
    let words: Vec<String> = words.into_iter().collect();
    printable(&words.join(", "), 200)
}

/// The device of an arm's disk, if it makes the arm different in each run.
pub(crate) fn varying(arm: &Arm) -> Option<DiskDevice> {
    let device = DiskPlan::from_arm(arm)?.disk.device;
    (!device.repeats()).then_some(device)
}

/// The wire of an arm: "1Gbit/s and 1us".
pub(crate) fn wire_of(arm: &Arm) -> String {
    let level = |key| arm.level(key).unwrap_or_default();
    let mut text =
        format!("{}bit/s and {}", level("wire_rate").trim_end_matches("bit"), level("wire_delay"));
    let wire = Wire::from_arm(arm);
    if wire.jitter_ns > 0 {
        text.push_str(&format!(" + 0 to {}", level("wire_jitter")));
    }
    if wire.loss_ppb > 0 {
        text.push_str(&format!(", {} lost", level("wire_loss")));
    }
    printable(&text, 80)
}

/// The wires between NICs of a guest, if arms have some.
fn wires(recording: &Recording) -> Option<Note> {
    // Two hosts count even in a part that only has instructions.
    let is_of_hosts = |quantity: &Quantity| quantity.instrument == hosts::INSTRUMENT;
    if recording.quantities.iter().any(is_of_hosts) {
        return None;
    }
    let has_one = |arm: &&Arm| Wire::of_one_guest(arm).is_some();
    let wires = recording.arms.iter().filter(has_one).map(wire_of);
    let wires: BTreeSet<String> = wires.collect();
    let text = || {
        format!(
            "{} between the guest's NICs, in its virtual time; the time of every frame is checked",
            list(wires.clone())
        )
    };
    (!wires.is_empty()).then(|| Note::new("wire", text()))
}

/// The notes about disks, interfaces and wires.
pub(crate) fn devices(recording: &Recording) -> Vec<Note> {
    let mut notes: Vec<Note> = wires(recording).into_iter().collect();
    let own = || recording.arms.iter().filter(|arm| arm.link == Link::Any);
    let disks = || own().filter_map(|arm| MachinePlan::from_arm(arm).disk);
    let of_disks = disks().flat_map(|disk| disk.queue.into_iter().map(|setting| setting.name));
    let nics = || own().filter(|arm| MachinePlan::from_arm(arm).nic.is_some());
    let of_nics = nics().flat_map(|arm| arm.knobs.keys().filter(|key| is_of_nic(key)).cloned());
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

#[cfg(test)]
mod tests {
    use netplumb_model::experiment::{Knobs, Lab};

    use super::*;

    /// Check that a wire is one between NICs of a guest only where there are no two hosts.
    #[test]
    fn whose_wire() {
        let knobs = Knobs::from_pairs([("wire_delay".to_string(), "5us".to_string())]).unwrap();
        let mut recording =
            Recording { arms: vec![knobs.arm(String::new(), Lab::Vm)], ..Recording::default() };
        assert!(wires(&recording).is_some());
        recording.quantity(&hosts::THROUGHPUT);
        assert!(wires(&recording).is_none());
    }
}
