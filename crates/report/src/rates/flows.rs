//! Packets from hop to hop, as pictures of the page.

use std::collections::BTreeMap;

use netplumb_model::bench::Hop;
use netplumb_model::recording::Recording;

use super::{ArmRates, ArmRow, blocks_of};
use crate::number::{counted, printable};
use crate::page::{PageFlow, PageHop, PagePart};
use crate::section::Section;

const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 600;
/// Causes of a hop that are listed; the others are added up.
const MOST_CAUSES: usize = 8;

/// Every arm's, and the first block of each that does not count.
pub(super) fn section<'r>(
    recording: &'r Recording,
    arms: Vec<ArmRow<'r>>,
    searched: Vec<ArmRow<'r>>,
) -> Section<'r> {
    Section::words(Vec::new()).place("flows", "Where packets went").drawn(move || {
        let invalid = invalid(recording, &searched).into_iter();
        let flows: Vec<PageFlow> =
            invalid.chain(arms.iter().filter_map(|arm| of_arm(arm))).collect();
        let flows = (!flows.is_empty()).then_some(PagePart::Flows { flows });
        flows.into_iter().collect()
    })
}

/// The path of an arm's packets in the blocks that count.
fn of_arm(arm: &ArmRates<'_>) -> Option<PageFlow> {
    let blocks = arm.valid.len();
    let counted = counted(blocks, "block");
    let title = format!("{}: all packets of {counted}", arm.arm.name);
    (blocks > 0).then(|| flow(&title, "", &arm.hops()))
}

/// The first block of each arm that does not count: its ledger shows why.
fn invalid(recording: &Recording, searched: &[ArmRow<'_>]) -> Vec<PageFlow> {
    let mut found: BTreeMap<u32, PageFlow> = BTreeMap::new();
    for (block, measured) in blocks_of(recording) {
        let is_trial = |name: &str| searched.iter().any(|s| s.arm.name == name);
        let arm = recording.arms.get(block.arm as usize);
        let arm = arm.filter(|arm| !is_trial(&arm.name));
        if let (Some(arm), Some(why)) = (arm, measured.invalid()) {
            let title = format!("{}: block {}", arm.name, block.index + 1);
            let made = || flow(&title, &why, &measured.hops);
            found.entry(block.arm).or_insert_with(made);
        }
    }
    found.into_values().collect()
}

/// A ledger as a flow. `invalid` is the reason if it is not a valid measurement.
pub(crate) fn flow(title: &str, invalid: &str, hops: &[Hop]) -> PageFlow {
    PageFlow {
        title: printable(title, TEXT_LETTERS),
        invalid: printable(invalid, TEXT_LETTERS),
        hops: hops.iter().map(hop).collect(),
    }
}

fn hop(hop: &Hop) -> PageHop {
    let causes = hop.dropped.iter().filter(|(_, count)| **count > 0);
    let mut dropped: Vec<(String, u64)> =
        causes.map(|(cause, count)| (printable(cause, NAME_LETTERS), *count)).collect();
    dropped.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if dropped.len() > MOST_CAUSES {
        let rest = dropped.split_off(MOST_CAUSES - 1);
        let name = format!("{} other causes", rest.len());
        dropped.push((name, rest.iter().map(|(_, count)| count).sum()));
    }
    PageHop {
        name: printable(&hop.name, NAME_LETTERS),
        entered: hop.entered,
        left: hop.left,
        dropped,
        missing: hop.missing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that causes are in the order of their counts, that causes without losses are left
    /// out, and that the sum equals the ledger's however many there are.
    #[test]
    fn causes() {
        let mut ledger = Hop {
            name: "rx0".into(),
            entered: 1000,
            left: 0,
            dropped: (1..=20).map(|n| (format!("cause {n}"), n)).collect(),
        };
        ledger.dropped.insert("nothing".into(), 0);
        let page = hop(&ledger);
        assert_eq!(page.dropped.len(), MOST_CAUSES);
        assert_eq!(page.dropped[0], ("cause 20".into(), 20));
        assert_eq!(page.dropped[MOST_CAUSES - 1].0, "13 other causes");
        let sum: u64 = page.dropped.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, 210);
        assert_eq!(page.missing, 1000 - 210);
    }
}
