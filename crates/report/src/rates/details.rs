//! Details of single arms: where packets were lost, why blocks don't count, and the ledger
//! of each.

use netplumb_model::bench::Hop;

use super::{ArmRates, ArmRow, NAME_LETTERS, names};
use crate::number::{plural, printable, thousands};

/// Arms with details, unless `--all` is given, and causes of each.
const ARMS: usize = 10;
const CAUSES: usize = 3;

/// For arms that lost packets or have blocks that don't count: where, and why. With `all`,
/// for every arm, with its ledger.
pub(super) fn details(arms: &[ArmRow<'_>], all: bool) -> Vec<String> {
    let mut detailed: Vec<&ArmRow<'_>> =
        (arms.iter()).filter(|arm| all || arm.has_trouble() || arm.diagnosis.is_some()).collect();
    detailed.sort_by(|a, b| a.by_trouble(b));
    let more = match all {
        true => Vec::new(),
        false => detailed.split_off(detailed.len().min(ARMS)),
    };
    let mut out = Lines::default();
    for arm in &detailed {
        out.arm(arm, all);
    }
    if !more.is_empty() {
        out.add(format!(
            "{} more {} lost packets or have invalid blocks: --all shows them",
            more.len(),
            plural(more.len(), "arm")
        ));
    }
    out.lines
}

/// Blocks that don't count of arms whose rates are searched for: their losses are trials.
pub(super) fn invalid(arms: &[ArmRow<'_>], all: bool) -> Vec<String> {
    let mut out = Lines::default();
    for arm in arms {
        out.invalid(arm, all);
    }
    out.lines
}

/// Arms that can't run here, by reason.
pub(super) fn unavailable(arms: &[ArmRow<'_>]) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in arms {
        let why = arm.failed.unwrap_or_default();
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(&arm.arm.name),
            None => by_reason.push((why, vec![&arm.arm.name])),
        }
    }
    let line =
        |(why, arms): (&str, Vec<&str>)| format!("{}: {}", names(&arms), printable(why, 600));
    by_reason.into_iter().map(line).collect()
}

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
}

impl Lines {
    fn add(&mut self, line: String) {
        self.lines.push(line);
    }

    fn arm(&mut self, arm: &ArmRates<'_>, all: bool) {
        let name = printable(&arm.arm.name, NAME_LETTERS);
        let hops = arm.hops();
        if all {
            self.ledger(arm, &name, &hops);
        }
        let mut lost: Vec<(&Hop, &str, u64)> = (hops.iter())
            .flat_map(|hop| hop.dropped.iter().map(move |(cause, n)| (hop, &**cause, *n)))
            .filter(|(.., n)| *n > 0)
            .collect();
        lost.sort_by_key(|(.., n)| std::cmp::Reverse(*n));
        let shown = if all { lost.len() } else { CAUSES.min(lost.len()) };
        for (hop, cause, n) in &lost[..shown] {
            self.add(format!(
                "{name}: {} of {} lost, {}: {}",
                thousands(*n),
                thousands(hop.entered),
                printable(&hop.name, 80),
                printable(cause, 120)
            ));
        }
        let rest = &lost[shown..];
        if !rest.is_empty() {
            self.add(format!(
                "{name}: {} lost by {} more {}: --all shows them",
                thousands(rest.iter().map(|(.., n)| n).sum()),
                rest.len(),
                plural(rest.len(), "cause")
            ));
        }
        self.invalid(arm, all);
        if let Some(diagnosis) = arm.diagnosis {
            self.add(format!("{name}: where they went: {}", printable(diagnosis, 600)));
        }
    }

    /// Blocks that don't count, and why: the commonest causes first.
    fn invalid(&mut self, arm: &ArmRates<'_>, all: bool) {
        let name = printable(&arm.arm.name, NAME_LETTERS);
        let mut causes: Vec<(&String, usize)> =
            arm.invalid.iter().map(|(why, n)| (why, *n)).collect();
        causes.sort_by_key(|(_, blocks)| std::cmp::Reverse(*blocks));
        let shown = if all { causes.len() } else { CAUSES.min(causes.len()) };
        for (why, blocks) in &causes[..shown] {
            self.add(format!(
                "{name}: {blocks} {} invalid: {}",
                plural(*blocks, "block"),
                printable(why, 300)
            ));
        }
        let rest: usize = causes[shown..].iter().map(|(_, blocks)| blocks).sum();
        if rest > 0 {
            self.add(format!(
                "{name}: {rest} more invalid {}: --all shows them",
                plural(rest, "block")
            ));
        }
    }

    /// All counts of the blocks that count.
    fn ledger(&mut self, arm: &ArmRates<'_>, name: &str, hops: &[Hop]) {
        let blocks = arm.valid.len();
        self.add(format!("{name}: {blocks} valid {}", plural(blocks, "block")));
        for hop in hops {
            self.add(format!(
                "  {}: {} in, {} out",
                printable(&hop.name, 80),
                thousands(hop.entered),
                thousands(hop.left)
            ));
        }
        let cpus: Vec<String> =
            (arm.cpus().iter()).map(|c| format!("CPU {} {:.0} %", c.cpu, c.busy * 100.0)).collect();
        if !cpus.is_empty() {
            self.add(format!("  busy: {}", cpus.join(", ")));
        }
        if let Some(wall) = arm.wall_ns_per_packet() {
            self.add(format!("  wall time: {wall:.1} ns a packet"));
        }
        let queues: Vec<String> =
            (arm.queues().iter()).map(|(queue, n)| format!("{queue}: {}", thousands(*n))).collect();
        if queues.len() > 1 {
            self.add(format!("  packets by receive queue: {}", queues.join(", ")));
        }
    }
}
