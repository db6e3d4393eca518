//! The results of a scan: which settings change the cost of a packet, which break
//! the path, and which do nothing.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Class;
use netplumb_model::recording::Recording;
use netplumb_model::timing::INSTRUCTIONS;

use crate::acting;
use crate::analysis::ClassView;
use crate::claims::{changes, steady};
use crate::number::{counted, printable, thousands};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Rows of one class.
const MAX_ROWS: usize = 40;
const NAME_CHARACTERS: usize = 60;
/// Settings named for each reason not to try one.
const MAX_NAMES: usize = 50;
/// Functions named beside an effect.
const TOP: usize = 2;

/// One setting's effect on one class.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The setting, and its values before and after.
    pub setting: String,
    /// The change in instructions per packet.
    pub change: f64,
    /// Instructions per packet before, the mean of blocks.
    pub before: f64,
    /// Functions, and their changes.
    pub functions: Vec<(String, f64)>,
}

/// A scan's outcome.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scan {
    /// Settings tried.
    pub tried: usize,
    /// By arm and class: effects, the largest first.
    pub effects: Vec<(String, Vec<Effect>)>,
    /// The possible difference between equal runs, by arm and class, in instructions per
    /// packet: smaller effects are not listed.
    pub noise: BTreeMap<String, f64>,
    /// Settings that change some cost.
    pub changing: usize,
    /// Settings with which packets don't get through, and the symptom.
    pub breaking: Vec<(String, String)>,
    /// Settings that were not tried, by reason.
    pub skipped: BTreeMap<String, Vec<String>>,
    /// Settings that could act on no packet of any arm, by reason.
    pub idle: BTreeMap<String, Vec<String>>,
    /// Settings whose arms were not run: the scan was cut short.
    pub missing: usize,
}

/// The results of a scan. None if the recording is not of one.
pub fn scan(recording: &Recording, classes: &[ClassView<'_>]) -> Option<Scan> {
    let mut scan = Scan::default();
    for (setting, why) in &recording.not_tried {
        let of = scan.skipped.entry(why.clone()).or_default();
        of.push(setting.clone());
    }
    let arms: Vec<usize> =
        (0..recording.arms.len()).filter(|arm| recording.arms[*arm].scanned().is_some()).collect();
    if arms.is_empty() && scan.skipped.is_empty() {
        return None;
    }
    let base = |view: &ClassView<'_>| {
        let (name, ..) = view.arm().scanned()?;
        classes.iter().find(|v| v.class == view.class && v.arm().name == name)
    };
    let mut by_class: BTreeMap<(usize, Class), Vec<(usize, Effect)>> = BTreeMap::new();
    let mut noise: BTreeMap<(usize, Class), f64> = BTreeMap::new();
    for view in classes {
        let (Some((_, setting, control)), Some(before)) = (view.arm().scanned(), base(view)) else {
            continue;
        };
        if !got_through(recording, view.arm) {
            continue;
        }
        let mean = |v: &ClassView<'_>| steady(v) as f64 / v.packets.max(1) as f64;
        let change = mean(view) - mean(before);
        let of = (before.arm, view.class);
        if control {
            let most = noise.entry(of).or_default();
            *most = most.max(change.abs());
        } else if change != 0.0 {
            let mut functions = changes(view, before);
            functions.truncate(TOP);
            let effect =
                Effect { setting: setting.to_string(), change, before: mean(before), functions };
            by_class.entry(of).or_default().push((view.arm, effect));
        }
    }
    let mut changing: BTreeSet<String> = BTreeSet::new();
    for ((arm, class), effects) in by_class {
        let floor = noise.get(&(arm, class)).copied().unwrap_or(0.0);
        let mut effects: Vec<Effect> = effects
            .into_iter()
            .map(|(_, effect)| effect)
            .filter(|e| e.change.abs() > floor)
            .collect();
        effects.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()));
        changing.extend(effects.iter().map(|e| e.setting.clone()));
        let of = of_arm(&recording.arms[arm].name, class);
        scan.noise.insert(of.clone(), floor);
        scan.effects.push((of, effects));
    }
    scan.changing = changing.len();
    let mut settings = BTreeSet::new();
    let mut could: BTreeSet<&str> = changing.iter().map(String::as_str).collect();
    let mut idle: BTreeMap<&str, String> = BTreeMap::new();
    let mut broken: BTreeMap<String, String> = BTreeMap::new();
    for arm in arms {
        let Some((of, setting, false)) = recording.arms[arm].scanned() else {
            continue;
        };
        settings.insert(setting);
        match acting::of_scanned(recording, arm) {
            Some(why) => drop(idle.insert(setting, why)),
            None => drop(could.insert(setting)),
        }
        match trouble(recording, arm) {
            Some(Trouble::Broken(why)) => {
                let reasons = broken.entry(setting.to_string()).or_default();
                if !reasons.is_empty() {
                    reasons.push_str("; ");
                }
                reasons.push_str(&format!("{of}: {why}"));
            }
            Some(Trouble::NotRun) => scan.missing += 1,
            None => {}
        }
    }
    for (setting, why) in idle {
        if !could.contains(setting) && !broken.contains_key(setting) {
            scan.idle.entry(why).or_default().push(setting.to_string());
        }
    }
    scan.tried = settings.len();
    scan.breaking = broken.into_iter().collect();
    Some(scan)
}

enum Trouble {
    Broken(String),
    NotRun,
}

fn trouble(recording: &Recording, arm: usize) -> Option<Trouble> {
    if let Some(why) = recording.failed(arm, INSTRUCTIONS.instrument) {
        return Some(Trouble::Broken(why.into()));
    }
    let blocks = recording.blocks.iter().filter(|b| b.arm as usize == arm);
    let (mut offered, mut delivered, mut any) = (0, 0, false);
    for block in blocks {
        any = true;
        offered += block.ledger.offered;
        delivered += block.ledger.delivered;
    }
    match any {
        false => Some(Trouble::NotRun),
        true if delivered < offered => {
            Some(Trouble::Broken(format!("{delivered} of {offered} packets got through")))
        }
        true => None,
    }
}

fn got_through(recording: &Recording, arm: usize) -> bool {
    trouble(recording, arm).is_none()
}

fn of_arm(arm: &str, class: Class) -> String {
    if arm == class.proto.as_str() { class.to_string() } else { format!("{arm}, {class}") }
}

/// A verb after its number.
fn verb(n: usize, one: &str, many: &str) -> String {
    let word = if n == 1 { one } else { many };
    format!("{} {word}", thousands(n as u64))
}

/// A scan's conclusion.
pub fn sentence(scan: &Scan) -> String {
    let nothing = scan.tried.saturating_sub(scan.changing + scan.breaking.len());
    let idle: usize = scan.idle.values().map(Vec::len).sum();
    let skipped: usize = scan.skipped.values().map(Vec::len).sum();
    let mut text = format!(
        "Of {}, {} what a packet costs, {} the path, and {} nothing{}; {} not tried.",
        counted(scan.tried, "setting"),
        verb(scan.changing, "changes", "change"),
        match scan.breaking.len() {
            0 => "none breaks".to_string(),
            n => verb(n, "breaks", "break"),
        },
        verb(nothing, "does", "do"),
        match idle {
            0 => String::new(),
            n => format!(" (of which {} could not act here)", thousands(n as u64)),
        },
        verb(skipped, "more was", "more were"),
    );
    for (class, effects) in &scan.effects {
        if let Some(largest) = effects.first() {
            text.push_str(&format!(
                " The largest effect on {}: {} ({:+.1} instructions per packet, {:+.1}%).",
                printable(class, NAME_CHARACTERS),
                printable(&largest.setting, 80),
                largest.change,
                largest.change * 100.0 / largest.before.max(1.0),
            ));
        }
    }
    if scan.missing > 0 {
        text.push_str(&format!(
            " The scan was cut short: {} not run.",
            verb(scan.missing, "arm was", "arms were")
        ));
    }
    text
}

/// Tables and lists.
pub fn render(scan: &Scan, columns: usize) -> String {
    let mut out = String::new();
    for (class, effects) in &scan.effects {
        if effects.is_empty() {
            continue;
        }
        out.push_str(&format!("Settings that change {}\n", printable(class, NAME_CHARACTERS)));
        let all = vec![
            Column::text("setting", |e: &&Effect| e.setting.clone())
                .letters(NAME_CHARACTERS)
                .people(0),
            Column::figure("change", |e: &&Effect| {
                Value::Formatted(format!("{:+.1}", e.change), Some(e.change))
            })
            .people(1),
            Column::figure("share", |e: &&Effect| {
                let percent = e.change * 100.0 / e.before.max(1.0);
                Value::Formatted(format!("{percent:+.1}%"), Some(percent))
            })
            .people(2),
            Column::text("most in", |e: &&Effect| {
                let functions = e.functions.iter();
                let names =
                    functions.map(|(name, change)| format!("{} {change:+.1}", printable(name, 32)));
                names.collect::<Vec<_>>().join(", ")
            })
            .letters(usize::MAX)
            .people(3),
        ];
        let rows = effects.iter().take(MAX_ROWS);
        out.push_str(&Table::new(all, rows).terminal(Room::new(columns, 0)));
        if effects.len() > MAX_ROWS {
            out.push_str(&format!("  and {} more by less\n", effects.len() - MAX_ROWS));
        }
        let floor = scan.noise.get(class).copied().unwrap_or(0.0);
        if floor > 0.0 {
            out.push_str(&format!(
                "  (a setting written with the value that it has moves this by up to {floor:.2}; \
                 less is not listed)\n"
            ));
        }
        out.push('\n');
    }
    if !scan.breaking.is_empty() {
        out.push_str("Settings with which packets do not get through\n");
        for (setting, why) in &scan.breaking {
            let line = format!("  - {}: {}", printable(setting, 80), printable(why, 400));
            out.push_str(&continued(&line, 4, columns));
            out.push('\n');
        }
        out.push('\n');
    }
    for (heading, by_reason) in [
        ("Settings that could not act", &scan.idle),
        ("Settings that were not tried", &scan.skipped),
    ] {
        if by_reason.is_empty() {
            continue;
        }
        out.push_str(&format!("{heading}\n"));
        for (why, settings) in by_reason {
            let shown: Vec<String> =
                settings.iter().take(MAX_NAMES).map(|name| printable(name, 80)).collect();
            let more = match settings.len().saturating_sub(MAX_NAMES) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            let line = format!(
                "  - {} ({}): {}{more}",
                printable(why, 200),
                settings.len(),
                shown.join(" ")
            );
            out.push_str(&continued(&line, 4, columns));
            out.push('\n');
        }
        out.push('\n');
    }
    out
}
