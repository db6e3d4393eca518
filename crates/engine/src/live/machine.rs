//! Settings of this machine while a block runs: made before it, restored after it, and in the journal
//! before that.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_knobs::{Applied, BlockDisk, Journal, Nic, Setting, Used};
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::process::VmError;
use netplumb_model::experiment::acting::{NO_NAPI, Scene, called, idle};
use netplumb_model::experiment::{Load, Offload, is_of_nic};
use netplumb_model::recording::Recording;
use netplumb_sys::cpus;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;
use netplumb_sys::proc::counters::Counters;

use crate::error::EngineError;
use netplumb_agent::NicError;

/// How often to see whether a link is up again.
const NAP: Duration = Duration::from_millis(50);
/// How long a link may take to come up again after its rings or queues were made anew.
const PATIENCE: Duration = Duration::from_secs(15);
/// The file of an interface that its deferral of interrupts depends on.
const GRO_FLUSH_TIMEOUT: &str = "gro_flush_timeout";

/// Knobs that set how an interface is polled.
const POLLING: [&str; 3] = [GRO_FLUSH_TIMEOUT, "napi_defer_hard_irqs", "threaded"];

/// A setting of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The arm's knob that makes this change; a knob may make several.
    pub knob: String,
    /// The setting and its object.
    pub setting: Setting,
    /// Its value when the command starts.
    pub before: String,
    /// Its value once the command has opened its file.
    pub after: Option<String>,
}

/// The settings of a run. Nothing is changed but while a block runs.
pub(super) struct Machine {
    /// None if there is nothing to set.
    journal: Option<Arc<Journal>>,
    /// The interfaces that had a carrier before anything was set.
    carriers: Vec<Nic>,
    /// The settings tried for each arm.
    tried: Vec<Tried>,
}

/// The result of trying an arm's settings.
#[derive(Debug, Default)]
struct Tried {
    /// Knobs whose settings were all in effect already, each with its values in words.
    already: BTreeMap<String, String>,
    /// The `gro_flush_timeout` of its interface, in ns.
    flush_timeout: Option<String>,
    /// Its interface, if that is a veth without GRO, and so without NAPI (veth_set_features, drivers/net/veth.c).
    unpolled: Option<String>,
}

impl Machine {
    /// Begin the journal of a run with these arms, and try all their settings, so that refusals are known before
    /// anything is measured.
    pub(super) fn begin(arms: &[&[Change]]) -> Result<Machine, EngineError> {
        let all = || arms.iter().flat_map(|arm| arm.iter());
        if all().next().is_none() {
            return Ok(Machine { journal: None, carriers: Vec::new(), tried: Vec::new() });
        }
        let disks: BTreeSet<&BlockDisk> = all()
            .filter_map(|change| match &change.setting {
                Setting::BlockQueue { disk, .. } => Some(disk),
                _ => None,
            })
            .collect();
        let disks: Vec<BlockDisk> = disks.into_iter().cloned().collect();
        let nics: BTreeSet<&Nic> = all().filter_map(|change| change.setting.nic()).collect();
        let nics: Vec<Nic> = nics.into_iter().cloned().collect();
        let planned = all().flat_map(|change| {
            let values = std::iter::once(&change.before).chain(&change.after);
            values.map(|value| change.setting.planned(value))
        });
        let used = Used { nics: &nics, disks: &disks };
        let own = own()?;
        let mut carriers = nics.clone();
        carriers.retain(|nic| nic.state(&own).is_ok_and(|state| state.running));
        let journal = Journal::begin(&own, used, planned)?;
        let mut machine = Machine { journal: Some(Arc::new(journal)), carriers, tried: Vec::new() };
        for arm in arms {
            let (mut applied, changed) = machine.make(arm)?;
            let nic = arm.iter().find_map(|change| change.setting.nic());
            let flush_timeout = nic.and_then(|nic| {
                let setting = Setting::Polling { nic: nic.clone(), file: GRO_FLUSH_TIMEOUT.into() };
                setting.read(&own).ok()
            });
            let unpolled = nic.filter(|nic| is_unpolled(nic, &own));
            after_open(&mut applied, arm)?;
            machine.tried.push(Tried {
                already: already(arm, &changed),
                flush_timeout,
                unpolled: unpolled.map(|nic| nic.name.clone()),
            });
        }
        Ok(machine)
    }

    /// Make an arm's settings; returns whether each was a change.
    fn make(&self, arm: &[Change]) -> Result<(Applied, Vec<bool>), EngineError> {
        let mut applied = Applied::new(own()?, self.journal.clone());
        let mut changed = Vec::new();
        for change in arm {
            changed.push(applied.set(change.setting.clone(), &change.before)?);
        }
        Ok((applied, changed))
    }

    /// Set what an arm does, as long as the result lives. Links that this takes down are up again.
    ///
    /// # Errors
    /// A setting is refused, or a link stays down.
    pub(super) fn set(&self, arm: &[Change], cancel: &Cancel) -> Result<Applied, EngineError> {
        let (applied, _) = self.make(arm)?;
        for nic in &self.carriers {
            is_up(nic, applied.namespace(), cancel)?;
        }
        Ok(applied)
    }

    /// Note which of an arm's settings were in effect before, and which can't act on any packet.
    pub(super) fn note(&self, recording: &mut Recording, arm: usize) {
        let Some(tried) = self.tried.get(arm) else {
            return;
        };
        let mut as_set = recording.arms[arm].clone();
        if let Some(timeout) = &tried.flush_timeout {
            let knobs = &mut as_set.knobs;
            knobs.entry(GRO_FLUSH_TIMEOUT.into()).or_insert(format!("{timeout}ns"));
        }
        let scene = Scene {
            arm: &as_set,
            load: Load::Stream,
            cpus: cpus::online().map_or(1, |online| online.len()),
        };
        let mut inert = idle(&scene, None);
        if let Some(name) = &tried.unpolled {
            let why = format!("{name} {NO_NAPI}");
            let of_polling = POLLING.iter().map(|key| (key.to_string(), why.clone()));
            inert.extend(of_polling);
        }
        inert.retain(|key, _| recording.arms[arm].knobs.contains_key(key));
        let facts = tried.already.iter();
        let facts = facts.map(|(knob, was)| (format!("no_effect.{knob}"), was.clone()));
        let notes = recording.notes_of(arm);
        notes.facts.extend(facts);
        notes.inert.extend(inert);
    }

    /// The error that lists settings that could not be restored.
    pub(super) fn end(&self) -> Result<(), NicError> {
        let failures = self.journal.as_ref().map(|journal| journal.failures());
        match failures.unwrap_or_default() {
            failures if failures.is_empty() => Ok(()),
            failures => Err(NicError::NotPutBack(failures)),
        }
    }
}

fn is_unpolled(nic: &Nic, namespace: &Namespace) -> bool {
    // An XDP program also turns on NAPI.
    let is_veth = |state: DeviceState| state.kind.as_deref() == Some("veth") && state.xdp.is_none();
    let has_gro = Setting::Feature { nic: nic.clone(), which: Offload::Gro };
    nic.state(namespace).is_ok_and(is_veth)
        && has_gro.read(namespace).is_ok_and(|level| level == "off")
}

/// Knobs that an arm had nothing to change for, each with its value as text.
fn already(arm: &[Change], changed: &[bool]) -> BTreeMap<String, String> {
    let mut already = BTreeMap::new();
    for change in arm {
        let of_knob = arm.iter().zip(changed).filter(|(other, _)| other.knob == change.knob);
        let mut of_knob = of_knob.map(|(other, changed)| *changed || other.after.is_some());
        if of_knob.any(|is_change| is_change) {
            continue;
        }
        let of = match change.setting.object() {
            Some(object) => format!(" of {object}"),
            None => String::new(),
        };
        let was = format!("{}{of} was already {}", called(&change.knob), change.before);
        already.insert(change.knob.clone(), was);
    }
    already
}

/// Wait until an interface that was up is up again.
fn is_up(nic: &Nic, namespace: &Namespace, cancel: &Cancel) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        let state = nic.state(namespace)?;
        if !state.up || state.running {
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(VmError::Interrupted.into());
        }
        if begun.elapsed() > PATIENCE {
            return Err(NicError::CannotRun {
                reason: format!(
                    "{} has no carrier {} s after its settings were changed",
                    nic.name,
                    PATIENCE.as_secs()
                ),
                remedy: format!("check its cable and its peer (ip link show {})", nic.name),
            }
            .into());
        }
        thread::sleep(NAP);
    }
}

/// Bytes over an arm's interface while its command ran, in all of its runs.
#[derive(Debug, Default)]
pub(super) struct Moved {
    bytes: BTreeMap<usize, u64>,
}

impl Moved {
    /// Bytes over an arm's interface so far; none if the arm sets no interface.
    pub(super) fn so_far(recording: &Recording, arm: usize) -> Result<Option<u64>, EngineError> {
        let Some(name) = recording.arms[arm].knobs.get("nic") else {
            return Ok(None);
        };
        bytes_of(name, &own()?).map(Some)
    }

    /// Add the bytes that it moved since `before`.
    pub(super) fn add(
        &mut self,
        recording: &Recording,
        arm: usize,
        before: Option<u64>,
    ) -> Result<(), EngineError> {
        if let (Some(before), Some(now)) = (before, Moved::so_far(recording, arm)?) {
            *self.bytes.entry(arm).or_default() += now.saturating_sub(before);
        }
        Ok(())
    }

    /// Note that settings of an interface that moved nothing could not act.
    pub(super) fn note(&self, recording: &mut Recording) {
        let still = self.bytes.iter().filter(|(_, bytes)| **bytes == 0);
        for (arm, _) in still {
            let knobs = recording.arms[*arm].knobs.clone();
            let name = knobs.get("nic").cloned().unwrap_or_default();
            let why = format!("no packet passed {name} while the command ran");
            let keys = knobs.into_keys().filter(|key| is_of_nic(key));
            let inert = keys.map(|key| (key, why.clone()));
            recording.notes_of(*arm).inert.extend(inert);
        }
    }
}

/// Bytes over an interface, in both directions.
pub(super) fn bytes_of(name: &str, namespace: &Namespace) -> Result<u64, EngineError> {
    let counters = Counters::read(namespace.as_fd());
    let counters = counters.map_err(EngineError::host("read the interface's counters"))?;
    let of = |which: &str| counters.get(&format!("{name} {which}"));
    Ok(of("rx_bytes") + of("tx_bytes"))
}

/// Make an arm's changes for the time after its file was opened.
pub(super) fn after_open(applied: &mut Applied, arm: &[Change]) -> Result<(), EngineError> {
    for change in arm {
        if let Some(value) = &change.after {
            applied.set(change.setting.clone(), value)?;
        }
    }
    Ok(())
}

fn own() -> Result<Namespace, EngineError> {
    Namespace::current().map_err(EngineError::host("find this network namespace"))
}
