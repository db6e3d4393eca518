//! The results of a bench in sentences.

use super::columns::share;
use super::{ArmRates, ArmRow};
use crate::number::{printable, rate};

const TEXT_LETTERS: usize = 600;
/// Arms that have a sentence each, and losses that are named.
const FEW: usize = 3;

/// The results: for few arms a sentence each; for many the fastest and the slowest, and
/// arms that lost packets. All of them are drawn, and in a table.
pub(super) fn summary(arms: &[ArmRow<'_>]) -> Vec<String> {
    let mut measured: Vec<(&ArmRow<'_>, f64)> =
        (arms.iter()).filter_map(|arm| Some((arm, arm.handled_pps()?.value))).collect();
    if measured.len() <= FEW {
        return (measured.iter()).filter_map(|(arm, _)| sentence(arm)).collect();
    }
    measured.sort_by(|a, b| b.1.total_cmp(&a.1));
    let ends = [("Fastest", measured.first()), ("slowest", measured.last())];
    let extremes: Vec<String> = (ends.iter())
        .filter_map(|(word, arm)| Some(format!("{word}: {}", sentence(arm.as_ref()?.0)?)))
        .collect();
    let mut lines = vec![format!("{} arms. {}", arms.len(), extremes.join("; "))];
    let mut lost: Vec<(&str, f64)> = (measured.iter())
        .filter_map(|(arm, _)| Some((arm.arm.name.as_str(), arm.lost()?)))
        .filter(|(_, lost)| *lost >= 1e-9)
        .collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !lost.is_empty() {
        let named: Vec<String> = (lost.iter().take(FEW))
            .map(|(name, lost)| format!("{} {}", printable(name, 80), share(*lost)))
            .collect();
        let more = match lost.len().saturating_sub(FEW) {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        lines.push(format!("Lost packets: {}{more}", named.join(", ")));
    }
    lines
}

/// "socket: 16.40 M packets/s (16.1 M to 16.7 M), 3.20 % lost".
fn sentence(arm: &ArmRates<'_>) -> Option<String> {
    let mean = arm.handled_pps()?;
    let interval = match (mean.low, mean.high) {
        (Some(low), Some(high)) => format!(" ({} to {})", rate(low.max(0.0)), rate(high)),
        _ => String::new(),
    };
    let lost = match arm.lost() {
        Some(lost) if lost >= 1e-9 => format!(", {} lost", share(lost)),
        _ => String::new(),
    };
    let bound = if arm.is_generator_bound() { ", generator-bound" } else { "" };
    Some(format!(
        "{}: {} packets/s{interval}{lost}{bound}",
        printable(&arm.arm.name, 80),
        rate(mean.value)
    ))
}

/// The result of a search: "xdp: 9.80 M packets/s with 0 % lost (RFC 9971)".
pub(super) fn found(arm: &ArmRates<'_>) -> Vec<String> {
    let name = &arm.arm.name;
    arm.goals
        .iter()
        .filter_map(|goal| {
            let pps = goal.throughput_pps?;
            let lost = goal.loss_ratio * 100.0;
            let odd = goal.irregular;
            let odd = odd.map_or_else(String::new, |why| format!(": {}", printable(why, 80)));
            Some(format!(
                "{}: {} packets/s with {lost} % lost at most (RFC 9971){odd}",
                printable(name, 80),
                rate(pps)
            ))
        })
        .collect()
}

/// Why an arm has no figure.
pub(super) fn absent(arm: &ArmRates<'_>) -> Option<String> {
    let why = match (arm.failed, arm.invalid.keys().next()) {
        (Some(why), _) => why,
        (None, Some(why)) if arm.valid.is_empty() => why,
        _ => return None,
    };
    let name = printable(&arm.arm.name, 80);
    Some(format!("{name}: {}", printable(why, TEXT_LETTERS)))
}
