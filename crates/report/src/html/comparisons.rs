//! Pages of the comparisons that an experiment's claims make below a function, which the page of
//! the whole recording does not show.

use netplumb_model::chain;
use netplumb_model::class::Direction;
use netplumb_model::experiment::{Claim, Experiment};
use netplumb_model::recording::Recording;

use crate::diff::arms::{ArmPair, Pairs};
use crate::diff::{self, Sides};
use crate::number::printable;
use crate::page::Page;
use crate::seeds;
use crate::shape::{Shape, shape};

const NAME_LETTERS: usize = 80;

/// Each comparison below a function that a claim makes, with its name, in the order of the claims:
/// for a part of a recording, in some directions or, where none are named, in all.
pub fn comparisons(
    part: &Recording,
    experiment: &Experiment,
    directions: &[Direction],
) -> Vec<(String, Page)> {
    if shape(part) != Shape::Costs {
        return Vec::new();
    }
    let mut asked: Vec<[&str; 3]> = Vec::new();
    for claim in &experiment.claims {
        if let Claim::Compare { arm, against: Some(against), below: Some(below), .. } = claim
            && !asked.contains(&[against, arm, below])
        {
            asked.push([against, arm, below]);
        }
    }
    let pages = asked.into_iter();
    pages.filter_map(|asked| comparison(part, asked, directions)).collect()
}

/// The page of one comparison, unless an arm or the function is not in the recording.
fn comparison(
    part: &Recording,
    [before, after, below]: [&str; 3],
    directions: &[Direction],
) -> Option<(String, Page)> {
    let number = |name: &str| (part.arms.iter()).position(|arm| seeds::name(arm) == name);
    let pair = ArmPair { before: number(before)?, after: number(after)? };
    if !chain::below(part, below).contains(&true) {
        return None;
    }
    let below_it = part.below(below);
    let sides =
        Sides { before: &below_it, after: &below_it, before_name: before, after_name: after };
    let pairs = Pairs { pairs: vec![pair], ..Pairs::default() };
    let diff = diff::compare(sides, &pairs, directions);
    if diff.classes.is_empty() {
        return None;
    }
    let [before, after] = [before, after].map(|name| printable(name, NAME_LETTERS));
    let below = printable(&chain::chain_text(below), NAME_LETTERS);
    let name = format!("{before} → {after}, below {below}");
    Some((name, diff::page::page(&diff)))
}
