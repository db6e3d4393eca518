//! Blocks of varying costs, and the intervals of their means.

use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::number::{plural, printable};
use crate::summary::label;
use crate::times::{ns_range, rounded};

/// The number of blocks, and their range.
pub(super) fn blocks(recording: &Recording, classes: &[ClassView<'_>]) -> String {
    let counts = || classes.iter().map(|c| c.blocks.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let count = match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    };
    let seconds: f64 = (recording.blocks.iter()).map(|b| b.duration_ns as f64 / 1e9).sum();
    let ranges: Vec<String> = (classes.iter().filter(|c| c.blocks.len() > 1))
        .filter_map(|c| {
            let per = c.per_by_block();
            let each = per.iter().zip(&c.by_block);
            let each = each.map(|(per, sum)| per.each(*sum as f64));
            let low = each.clone().fold(f64::INFINITY, f64::min);
            let high = each.fold(f64::NEG_INFINITY, f64::max);
            let range = match c.quantity.unit.as_str() {
                "ns" => ns_range(low, high),
                unit => format!("{} to {} {}", rounded(low), rounded(high), printable(unit, 40)),
            };
            low.is_finite().then(|| format!("{} {range}", label(c)))
        })
        .collect();
    let mut line = format!("{count} of each class, {seconds:.1} s of windows in all");
    if !ranges.is_empty() {
        line.push_str(&format!("; from block to block: {}", ranges.join(", ")));
    }
    line
}

/// A note on the intervals; none if no class has one.
pub(super) fn intervals(classes: &[ClassView<'_>]) -> Option<String> {
    let few = classes.iter().filter(|c| c.blocks.len() < 2).count();
    let varying = classes.len() - few;
    let mut line = String::from(
        "95%, of the mean over blocks (Student's), which includes what varies within a block",
    );
    if few > 0 {
        let classes = plural(few, "class");
        line.push_str(&format!("; {few} {classes} of one block have none"));
    }
    (varying > 0).then_some(line)
}
