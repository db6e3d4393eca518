//! Arms of a command on this machine, and what they set on it.

use std::collections::BTreeMap;

use netplumb_engine::live::{Change, RunsArm, WorkPlan};
use netplumb_knobs::{BlockDisk, Setting};
use netplumb_model::class::{Link, Proto};
use netplumb_model::experiment::{Experiment, Knob, MachinePlan};
use netplumb_model::recording::Arm;
use netplumb_report::printable;

use super::how::How;
use crate::commands::read_file;
use crate::exit::{CannotHere, Usage, WrongKey};
use crate::rights;

/// The arms of an experiment: one without anything set, if it has none.
///
/// # Errors
/// A disk is not there, changing it was not allowed, or a command is invalid.
pub(super) fn arms(
    experiment: &Experiment,
    work: &WorkPlan,
    how: &How<'_>,
) -> anyhow::Result<Vec<RunsArm>> {
    let compares = !(experiment.arms.is_empty() && experiment.vary.is_empty());
    let workload = &experiment.workload;
    let mut disks: BTreeMap<String, BlockDisk> = BTreeMap::new();
    let mut arms = Vec::new();
    for mut arm in experiment.arms() {
        let words = match arm.knobs.get("command") {
            Some(line) => shell_words::split(line)
                .map_err(|why| WrongKey::usage("command", format!("invalid command: {why}")))?,
            None => workload.command.clone(),
        };
        if !compares {
            arm.name = words.join(" ");
        }
        let changes = match MachinePlan::of(&arm) {
            Some(plan) => changes(&plan, &words, &mut disks)?,
            None => Vec::new(),
        };
        arms.push(RunsArm {
            arm: of_command(arm),
            command: own(words, how),
            changes,
        });
    }
    if arms.is_empty() {
        arms.push(RunsArm {
            arm: of_command(work.arm()),
            command: own(work.command.clone(), how),
            changes: Vec::new(),
        });
    }
    agreed(&arms, &disks, how)?;
    Ok(arms)
}

fn of_command(arm: Arm) -> Arm {
    Arm {
        proto: Proto::Command,
        link: Link::Any,
        size_bytes: 0,
        ..arm
    }
}

/// The words of a command, with the path of its program. This program's own is this very file,
/// whatever `plumb` is found by name.
fn own(mut words: Vec<String>, how: &How<'_>) -> Vec<String> {
    let is_own = read_file::is_own(&words);
    if let Some(first) = words.first_mut() {
        *first = match std::env::current_exe() {
            Ok(path) if is_own => path.display().to_string(),
            _ => how.program(first),
        };
    }
    words
}

/// What an arm sets. Disks are looked up once, by the names that are given.
fn changes(
    plan: &MachinePlan,
    words: &[String],
    disks: &mut BTreeMap<String, BlockDisk>,
) -> anyhow::Result<Vec<Change>> {
    let disk = match disks.get(&plan.disk) {
        Some(disk) => disk.clone(),
        None => {
            let found = BlockDisk::find(&plan.disk);
            let found =
                found.map_err(|why| WrongKey::usage("disk", printable(&why.to_string(), 400)))?;
            let names = plan.queue.iter().map(|setting| &setting.name);
            let idle = names.filter_map(|name| found.disk.without_effect(name));
            for note in found.note.into_iter().chain(idle) {
                eprintln!("plumb: note: {}", printable(&note, 400));
            }
            disks.insert(plan.disk.clone(), found.disk.clone());
            found.disk
        }
    };
    let reads = read_file::is_own(words);
    let each = plan.queue.iter().map(|setting| {
        if setting.after.is_some() && !reads {
            let why = "`A then B` changes a setting while `plumb read-file` holds its file open: this \
                       command is another";
            let key = Knob::of(&setting.name).map_or("disk", |knob| knob.key);
            return Err(WrongKey::usage(key, why).into());
        }
        Ok(Change {
            setting: Setting::BlockQueue {
                disk: disk.clone(),
                which: setting.name.clone(),
            },
            before: setting.before.clone(),
            after: setting.after.clone(),
        })
    });
    each.collect()
}

/// Check that all disks may be changed; the error lists what would be.
fn agreed(
    arms: &[RunsArm],
    disks: &BTreeMap<String, BlockDisk>,
    how: &How<'_>,
) -> anyhow::Result<()> {
    let all = || arms.iter().flat_map(|arm| &arm.changes);
    if all().next().is_none() {
        return Ok(());
    }
    if !rights::is_root() {
        let why = "changing settings of this machine needs root: run it with sudo";
        return Err(CannotHere(why.into()).into());
    }
    let yes = |name: &str| how.yes_change.iter().any(|yes| yes == name);
    let refused: Vec<&str> = disks
        .iter()
        .filter(|(given, disk)| !yes(given) && !yes(&disk.name))
        .map(|(_, disk)| disk.name.as_str())
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    let mut planned: Vec<String> = all()
        .flat_map(|change| {
            let values = std::iter::once(&change.before).chain(&change.after);
            values.map(|value| change.setting.planned(value))
        })
        .map(|planned| format!("  {}: {}\n", planned.on.unwrap_or_default(), planned.what))
        .collect();
    planned.sort();
    planned.dedup();
    Err(Usage(format!(
        "these settings would be changed while a command runs:\n{}and restored after each run. Whatever else \
         uses the disk is affected meanwhile. To proceed, add --yes-change {}",
        planned.concat(),
        refused.join(",")
    ))
    .into())
}
