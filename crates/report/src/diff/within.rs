//! The arms of one recording, compared with each other.

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;

use super::arms::{Pairs, pair_within};
use super::side::Index;
use super::{Judge, Sides, compare, counts, facts, labels, sentence};
use crate::number::plural;
use crate::text::continued;

/// With more sentences than these, classes that did not change are only counted...
const FEW: usize = 12;
/// ...and at most this many that did are listed.
const MANY: usize = 40;

/// Sentences for a recording that has arms to compare: each against the first from which it
/// differs in one thing only. None if it has none.
pub fn of_arms(recording: &Recording, directions: &[Direction], columns: usize) -> Option<String> {
    let measured = |arm: usize| recording.blocks.iter().any(|b| b.arm as usize == arm);
    let mut pairs = pair_within(recording);
    pairs.retain(|p| measured(p.before) && measured(p.after));
    if pairs.is_empty() {
        return None;
    }
    let sides = Sides::of_arms(recording);
    // Whether the class differs, and its sentence.
    let mut sentences: Vec<(bool, String)> = Vec::new();
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(&continued(text, 2, columns));
        out.push('\n');
    };
    match Judge::for_sides(sides) {
        Judge::Statistical => {
            let paired = Pairs { pairs, ..Pairs::default() };
            let diff = compare(sides, &paired, directions);
            if let Some(text) = facts::not_interleaved(&diff) {
                line(&format!("Beware: {text}."));
            }
            sentences.extend((diff.with_sums().into_iter()).map(|class| {
                let differs = class.whole().is_some_and(|w| w.judged.differs());
                (differs || !class.changed().is_empty(), sentence::sentence(class))
            }));
        }
        Judge::Exact => {
            let index = Index::new(recording);
            // A single pair needs its label, too.
            let labels = labels::labels(sides, &pairs);
            // One pair at a time: the trees of hundreds of arms need not be in memory together.
            for (pair, label) in pairs.into_iter().zip(labels) {
                let paired = Pairs { pairs: vec![pair], ..Pairs::default() };
                let indexes = (&index, &index);
                let found = counts::classes(sides, indexes, &paired, &[label], directions);
                sentences.extend(found.classes.iter().chain(&found.sums).map(|class| {
                    let differs = class.whole().is_some_and(|w| w.judged.differs());
                    (differs, sentence::sentence(class))
                }));
            }
        }
    }
    if sentences.is_empty() {
        return None;
    }
    let few = sentences.len() <= FEW;
    let shown = sentences.iter().filter(|(differs, _)| few || *differs);
    let shown: Vec<&String> = shown.map(|(_, text)| text).collect();
    for text in shown.iter().take(MANY) {
        line(text);
    }
    if shown.len() > MANY {
        out.push_str(&format!("and {} more that differ\n", shown.len() - MANY));
    }
    let equal = sentences.len() - shown.len();
    if equal > 0 {
        out.push_str(&format!("No difference in {equal} {}.\n", plural(equal, "other")));
    }
    Some(out)
}
