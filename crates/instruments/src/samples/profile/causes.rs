//! The call graph of the stacks that instruments take at events: who caused what took time.

use std::collections::BTreeSet;

use netplumb_model::quantity::Declared;
use netplumb_model::timing::Costs;
use netplumb_sys::perf::changes::Changes;

use super::super::arrived::Arrived;
use super::charging::Charging;
use super::stacks::Stacks;
use crate::live::LiveError;

/// How often, and nanoseconds; of events, how often.
pub(crate) type Sums = (u64, u64);

/// The stacks that events were caused at, with their names.
#[derive(Debug)]
pub(crate) struct Causes {
    changes: Changes,
    stacks: Stacks,
}

impl Causes {
    /// Watch what processes map, beginning with what existing ones have mapped: one of them, or all.
    /// Processes that are started later have nothing to read.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub(crate) fn watch(
        cpus: &[u32],
        children: bool,
        pid: Option<u32>,
    ) -> Result<Causes, LiveError> {
        let changes =
            Changes::watch(cpus).map_err(LiveError::system("watch what processes map"))?;
        let mut stacks = Stacks::default();
        if !children {
            stacks.spaces.read(pid, &mut stacks.files);
        }
        Ok(Causes { changes, stacks })
    }

    /// Whether a stack that has its names passes one of these functions of the kernel.
    pub(crate) fn passes(&self, hash: u64, functions: &[&str]) -> bool {
        self.stacks.passes(hash, functions)
    }

    /// Take what has arrived by the ring, as samples' programs report it: soon, for a process may
    /// be gone.
    pub(crate) fn take<'b>(&mut self, records: impl Iterator<Item = &'b [u8]>) {
        for (time, change) in self.changes.poll() {
            self.stacks.follow(time, change);
        }
        let mut arrived = Arrived::default();
        records.for_each(|bytes| arrived.take(bytes));
        for place in arrived.places {
            self.stacks.add(place);
        }
    }

    /// Give stacks their names, before they are charged.
    ///
    /// # Errors
    /// The kernel's symbols can't be read.
    pub(crate) fn name(&mut self, hashes: impl Iterator<Item = u64>) -> Result<(), LiveError> {
        let hashes: BTreeSet<u64> = hashes.collect();
        self.stacks.name(&hashes, u64::MAX)?;
        Ok(())
    }

    /// The call graph of times or events by stack, each below its event if there are several, and
    /// how many of them have an unknown stack.
    pub(crate) fn costs<'e>(
        &mut self,
        all: impl Iterator<Item = (Option<&'e str>, u64, Sums)>,
        quantity: &Declared,
    ) -> (Costs, u64) {
        let mut charging = Charging::default();
        for (event, hash, sums) in all {
            charging.add_event(&mut self.stacks, event, hash, sums);
        }
        let unknown = charging.unknown;
        (charging.costs(self.stacks.functions(), quantity), unknown)
    }

    /// Changes of processes that were not reported.
    pub(crate) fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.stacks.spaces.lost)
    }

    /// Forget stacks if they are too many: the kernel reports them again.
    pub(crate) fn bound(&mut self) {
        let _ = self.stacks.bound();
    }
}
