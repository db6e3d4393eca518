//! Settings of this machine while a block runs: made before it, restored after it, and in the journal
//! before that.

use std::collections::BTreeSet;
use std::sync::Arc;

use netplumb_knobs::{Applied, BlockDisk, Journal, Nic, Setting, Used};
use netplumb_sys::netns::Namespace;

use crate::error::{EngineError, NicError};

/// A setting of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What is set.
    pub setting: Setting,
    /// Its value when the command starts.
    pub before: String,
    /// What it is changed to once the command has opened its file.
    pub after: Option<String>,
}

/// The settings of a run. Nothing is changed but while a block runs.
pub(super) struct Machine {
    /// None if there is nothing to set.
    journal: Option<Arc<Journal>>,
}

impl Machine {
    /// Begin the journal of a run with these arms, and try all that they set, so that what the kernel
    /// refuses is known before anything is measured.
    pub(super) fn begin(arms: &[&[Change]]) -> Result<Machine, EngineError> {
        let all = || arms.iter().flat_map(|arm| arm.iter());
        if all().next().is_none() {
            return Ok(Machine { journal: None });
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
        let used = Used {
            nics: &nics,
            disks: &disks,
        };
        let journal = Journal::begin(&own()?, used, planned)?;
        let machine = Machine {
            journal: Some(Arc::new(journal)),
        };
        for arm in arms {
            let mut tried = machine.set(arm)?;
            after_open(&mut tried, arm)?;
        }
        Ok(machine)
    }

    /// Set what an arm does, as long as the result lives.
    pub(super) fn set(&self, arm: &[Change]) -> Result<Applied, EngineError> {
        let mut applied = Applied::new(own()?, self.journal.clone());
        for change in arm {
            applied.set(change.setting.clone(), &change.before)?;
        }
        Ok(applied)
    }

    /// The error that lists what could not be restored.
    pub(super) fn end(&self) -> Result<(), NicError> {
        let failures = self.journal.as_ref().map(|journal| journal.failures());
        match failures.unwrap_or_default() {
            failures if failures.is_empty() => Ok(()),
            failures => Err(NicError::NotPutBack(failures)),
        }
    }
}

/// Change what an arm changes once its file is open.
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
