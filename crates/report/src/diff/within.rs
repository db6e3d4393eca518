//! The arms of one recording, compared with each other.

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;

use super::arms::{Pairs, pair_within};
use super::side::Index;
use super::{Sides, compare_indexed, labels, sentence};
use crate::number::plural;
use crate::terminal::continued;

/// With more sentences than these, what did not change is only counted...
const FEW: usize = 12;
/// ...and of what did, so many are told.
const MANY: usize = 40;

/// Sentences for a recording that has arms to compare: each against the first
/// from which it differs in one thing only. None if it has none.
pub fn of_arms(recording: &Recording, directions: &[Direction], columns: usize) -> Option<String> {
    let measured = |arm: usize| recording.blocks.iter().any(|b| b.arm as usize == arm);
    let mut pairs = pair_within(&recording.arms);
    pairs.retain(|p| measured(p.before) && measured(p.after));
    if pairs.is_empty() {
        return None;
    }
    let sides = Sides {
        before: recording,
        after: recording,
        before_name: "the recording",
        after_name: "the recording",
    };
    let index = Index::new(recording);
    // Whether it is a difference, and the sentence. One pair at a time: the trees
    // of hundreds of arms need not be in memory together.
    let mut told: Vec<(bool, String)> = Vec::new();
    // Of one pair, too, it has to be said which it is.
    let labels = labels::labels(sides, &pairs);
    for (pair, label) in pairs.into_iter().zip(&labels) {
        let paired = Pairs {
            pairs: vec![pair],
            ..Pairs::default()
        };
        let label = std::slice::from_ref(label);
        let diff = compare_indexed(sides, (&index, &index), &paired, label, directions);
        for class in &diff.classes {
            told.push((class.verdict.differs(), sentence::sentence(&diff, class)));
        }
    }
    if told.is_empty() {
        return None;
    }
    let few = told.len() <= FEW;
    let shown: Vec<&String> = told
        .iter()
        .filter(|(differs, _)| few || *differs)
        .map(|(_, text)| text)
        .collect();
    let mut out = String::new();
    for text in shown.iter().take(MANY) {
        out.push_str(&continued(text, 2, columns));
        out.push('\n');
    }
    if shown.len() > MANY {
        out.push_str(&format!("and {} more that differ\n", shown.len() - MANY));
    }
    let equal = told.len() - shown.len();
    if equal > 0 {
        out.push_str(&format!(
            "No difference in {equal} {}.\n",
            plural(equal, "other")
        ));
    }
    Some(out)
}
