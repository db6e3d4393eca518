//! Arms of a command on this machine, and their settings.

use std::collections::BTreeMap;

use anyhow::Context;
use netplumb_engine::live::{Change, RunsArm, WorkPlan};
use netplumb_knobs::{BlockDisk, Nic, Setting};
use netplumb_model::class::{Link, Proto};
use netplumb_model::experiment::{Experiment, Knob, MachinePlan, OwnDisk, OwnNic};
use netplumb_model::recording::Arm;
use netplumb_report::printable;
use netplumb_sys::interrupts;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;
use netplumb_sys::steering;

use super::consent;
use super::how::How;
use crate::commands::read_file;
use crate::exit::{Usage, WrongKey};
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
    let mut nics: BTreeMap<String, Nic> = BTreeMap::new();
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
        let plan = MachinePlan::from_arm(&arm);
        let mut changes = match &plan.disk {
            Some(disk) => of_disk(disk, &words, &mut disks)?,
            None => Vec::new(),
        };
        changes.extend(of_system(&plan)?);
        if let Some(nic) = &plan.nic {
            nics.insert(nic.name.clone(), find_nic(&nic.name)?);
        }
        arms.push(RunsArm { arm: of_command(arm), command: own(words, how), changes });
    }
    if arms.is_empty() {
        arms.push(RunsArm {
            arm: of_command(work.arm()),
            command: own(work.command.clone(), how),
            changes: Vec::new(),
        });
    }
    let objects = (disks.iter().map(|(given, disk)| (given, &disk.name)))
        .chain(nics.iter().map(|(given, nic)| (given, &nic.name)));
    agreed(&arms, objects, how)?;
    let changed: Vec<&Nic> = nics.values().collect();
    guard(&changed, how.even_default_route)?;
    Ok(arms)
}

fn of_command(arm: Arm) -> Arm {
    Arm { proto: Proto::Command, link: Link::Any, size_bytes: 0, ..arm }
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

/// An interface of this machine.
///
/// # Errors
/// There is none of this name.
pub(crate) fn find_nic(name: &str) -> anyhow::Result<Nic> {
    Ok(Nic::from_state(&state_of(name)?))
}

fn state_of(name: &str) -> anyhow::Result<DeviceState> {
    let states = Namespace::current()?.device_states()?;
    let mut known: Vec<String> = states.iter().map(|state| state.name.clone()).collect();
    let found = states.into_iter().find(|state| state.name == name);
    found.ok_or_else(|| {
        known.sort();
        let why = format!(
            "no such interface `{name}`; expected one of {}",
            printable(&known.join(", "), 200)
        );
        WrongKey::usage("nic", why).into()
    })
}

/// Check that none of these interfaces carries the default route or this session, unless it may.
///
/// # Errors
/// One does, or the routes can't be read.
pub(crate) fn guard(nics: &[&Nic], may: bool) -> anyhow::Result<()> {
    if may || nics.is_empty() {
        return Ok(());
    }
    let namespace = Namespace::current()?;
    let indices: Vec<u32> = nics.iter().map(|nic| nic.index).collect();
    let refusal = netplumb_knobs::refusal(&namespace, &namespace.device_states()?, &indices);
    match refusal.context("can't look up the default route")? {
        Some(why) => Err(Usage(why).into()),
        None => Ok(()),
    }
}

/// An arm's settings of an interface, and sysctls: in the order in which they are made.
///
/// # Errors
/// The interface is not there, or has nothing of the kind.
pub(crate) fn of_system(plan: &MachinePlan) -> anyhow::Result<Vec<Change>> {
    let mut all: Vec<Change> = (plan.sysctl.iter())
        .map(|(key, value)| {
            let setting = Setting::Sysctl { key: key.clone(), nic: None };
            change(format!("sysctl.{key}"), setting, value.clone())
        })
        .collect();
    if let Some(own) = &plan.nic {
        all.extend(of_nic(own)?);
    }
    Ok(all)
}

fn change(knob: String, setting: Setting, before: String) -> Change {
    Change { knob, setting, before, after: None }
}

fn of_nic(own: &OwnNic) -> anyhow::Result<Vec<Change>> {
    let namespace = Namespace::current()?;
    let nic = || find_nic(&own.name);
    let on_off = |on: bool| (if on { "on" } else { "off" }).to_string();
    let settings = &own.settings;
    let mut all = Vec::new();
    // Queues and rings are made anew by these, and interrupts with them: the rest comes after.
    for (which, count) in &settings.channels {
        let (nic, which) = (nic()?, *which);
        let setting = Setting::Channel { nic, which };
        all.push(change(format!("channels.{which}"), setting, count.to_string()));
    }
    for (which, packets) in &settings.rings {
        let (nic, which) = (nic()?, *which);
        let setting = Setting::Ring { nic, which };
        all.push(change(format!("rings.{which}"), setting, packets.to_string()));
    }
    for (which, on) in &own.offload {
        let (nic, which) = (nic()?, *which);
        let setting = Setting::Feature { nic, which };
        all.push(change(format!("offload.{which}"), setting, on_off(*on)));
    }
    for (name, on) in &settings.features {
        let knob = format!("feature.{name}");
        let (nic, name) = (nic()?, name.clone());
        all.push(change(knob, Setting::NamedFeature { nic, name }, on_off(*on)));
    }
    for (which, number) in &settings.coalesce {
        let (nic, which) = (nic()?, *which);
        let setting = Setting::Coalescing { nic, which };
        all.push(change(format!("coalesce.{which}"), setting, which.level(*number)));
    }
    let polling = &settings.polling;
    for (file, number) in [
        ("gro_flush_timeout", polling.gro_flush_timeout_ns),
        ("napi_defer_hard_irqs", polling.napi_defer_hard_irqs.map(u64::from)),
    ] {
        if let Some(number) = number {
            let knob = file.to_string();
            let (nic, file) = (nic()?, file.to_string());
            all.push(change(knob, Setting::Polling { nic, file }, number.to_string()));
        }
    }
    if let Some(on) = polling.threaded {
        let setting = Setting::Threaded { nic: nic()? };
        all.push(change("threaded".into(), setting, on_off(on)));
    }
    for (which, list) in &settings.steering {
        for queue in steering::queues(&namespace, &own.name, *which)? {
            let (nic, which) = (nic()?, *which);
            let setting = Setting::Steering { nic, queue, which };
            all.push(change(which.to_string(), setting, list.clone()));
        }
    }
    if let Some(list) = &own.irq_cpus {
        let irqs = interrupts::of_nic(&namespace, &own.name)?;
        if irqs.is_empty() {
            let why = format!(
                "{} has no interrupts of its own: it is virtual, or its driver does not name them; use rps_cpus",
                own.name
            );
            return Err(WrongKey::cannot_here("irq_cpus", why).into());
        }
        let set = |irq| change("irq_cpus".into(), Setting::Affinity { irq }, list.clone());
        all.extend(irqs.into_iter().map(set));
    }
    Ok(all)
}

/// An arm's settings of a disk. Disks are looked up once, by the given names.
fn of_disk(
    plan: &OwnDisk,
    words: &[String],
    disks: &mut BTreeMap<String, BlockDisk>,
) -> anyhow::Result<Vec<Change>> {
    let disk = match disks.get(&plan.name) {
        Some(disk) => disk.clone(),
        None => {
            let found = BlockDisk::find(&plan.name);
            let found =
                found.map_err(|why| WrongKey::usage("disk", printable(&why.to_string(), 400)))?;
            let names = plan.queue.iter().map(|setting| &setting.name);
            let idle = names.filter_map(|name| found.disk.without_effect(name));
            for note in found.note.into_iter().chain(idle) {
                eprintln!("plumb: note: {}", printable(&note, 400));
            }
            disks.insert(plan.name.clone(), found.disk.clone());
            found.disk
        }
    };
    let reads = read_file::is_own(words);
    let each = plan.queue.iter().map(|setting| {
        if setting.after.is_some() && !reads {
            let why = "`A then B` changes a setting while `plumb read-file` holds its file open: this \
                       command is another";
            let key = Knob::by_key(&setting.name).map_or("disk", |knob| knob.key);
            return Err(WrongKey::usage(key, why).into());
        }
        Ok(Change {
            knob: setting.name.clone(),
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

/// Check that all disks and interfaces, as they were given and by their names, may be changed; the error
/// lists what would be.
fn agreed<'o>(
    arms: &[RunsArm],
    objects: impl Iterator<Item = (&'o String, &'o String)>,
    how: &How<'_>,
) -> anyhow::Result<()> {
    let all = || arms.iter().flat_map(|arm| &arm.changes);
    if all().next().is_none() {
        return Ok(());
    }
    rights::check_of_settings()?;
    let yes = |name: &str| how.yes_change.iter().any(|yes| yes == name);
    let refused: Vec<&str> = objects
        .filter(|(given, name)| !yes(given) && !yes(name))
        .map(|(_, name)| name.as_str())
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    let is_sysctl = |change: &&Change| matches!(change.setting, Setting::Sysctl { .. });
    let mut planned: Vec<String> = all()
        // They are in the list of the experiment.
        .filter(|change| !is_sysctl(change))
        .flat_map(|change| {
            let values = std::iter::once(&change.before).chain(&change.after);
            values.map(|value| change.setting.planned(value))
        })
        .map(|planned| match planned.on {
            Some(on) => format!("{on}: {}, and restored after each run", planned.what),
            None => format!("{}, and restored after each run", planned.what),
        })
        .collect();
    planned.sort();
    planned.dedup();
    consent::ask(&[how.outside, &planned].concat(), &refused.join(","))
}
