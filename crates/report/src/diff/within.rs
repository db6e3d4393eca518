//! The arms of one recording, compared with each other.

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;

use super::arms::{Pairs, pair_within};
use super::{ClassDiff, Sides, compare, sentence};
use crate::terminal::continued;

/// Sentences for a recording that has arms to compare: each against the first
/// from which it differs in one thing only. None if it has none.
pub fn of_arms(recording: &Recording, directions: &[Direction], columns: usize) -> Option<String> {
    /// With more than these, what did not change is only counted...
    const FEW: usize = 12;
    /// ...and of what did, so many are told.
    const MANY: usize = 40;
    let measured = |arm: usize| recording.blocks.iter().any(|b| b.arm as usize == arm);
    let mut pairs = pair_within(&recording.arms);
    pairs.retain(|p| measured(p.before) && measured(p.after));
    let sides = Sides {
        before: recording,
        after: recording,
        before_name: "the recording",
        after_name: "the recording",
    };
    let paired = Pairs {
        pairs,
        ..Pairs::default()
    };
    let mut diff = compare(sides, &paired, directions);
    if diff.classes.is_empty() {
        return None;
    }
    // Of one pair, too, it has to be said which it is.
    for class in &mut diff.classes {
        let (before, after) = (class.arms.before, class.arms.after);
        class.label = sentence::label(&recording.arms[before], &recording.arms[after]);
    }
    let few = diff.classes.len() <= FEW;
    let told: Vec<&ClassDiff> = diff
        .classes
        .iter()
        .filter(|c| few || c.verdict.differs())
        .collect();
    let mut out = String::new();
    for class in told.iter().take(MANY) {
        let text = sentence::sentence(&diff, class);
        out.push_str(&continued(&text, 2, columns));
        out.push('\n');
    }
    if told.len() > MANY {
        out.push_str(&format!("and {} more that differ\n", told.len() - MANY));
    }
    let equal = diff.classes.len() - told.len();
    if equal > 0 {
        out.push_str(&format!("No difference in {equal} others.\n"));
    }
    Some(out)
}
