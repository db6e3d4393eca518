//! What this machine's kernel lets us measure, found by trying.
//!
//! Every trial does the real thing, with a program of a few instructions: load it, attach it to a
//! target where it does no harm, see it run where that is possible, take it off again. Everything
//! that is made is held by a descriptor or a thread, so nothing is left behind, not even by a
//! process that is killed. A trial that fails is explained from what is known of the kernel and
//! the process.

mod btf;
mod context;
mod explain;
mod mounts;
mod packets;
mod perf;
mod probes;
pub(crate) mod program;
pub(crate) mod sandbox;
mod tracefs;
mod tracing;
mod tried;

use std::time::Instant;

use netplumb_model::capability::{Availability, Capability, Group, Machine};
use netplumb_sys::bpf;
use netplumb_sys::threads::{self, Task};

pub(crate) use context::Config;
use context::Context;
pub(crate) use mounts::{Tree, lockdown};
pub use tried::Tried;

/// What was found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The kernel, the hardware and this process's privileges.
    pub machine: Machine,
    /// Every trial, in the order of [`Group::ALL`].
    pub capabilities: Vec<Capability>,
}

/// Try everything. Works for any user: what is refused is reported as such.
pub fn survey() -> Survey {
    bpf::quiet();
    let context = Context::read();
    let families =
        [tracing::try_all, probes::try_all, perf::try_all, tracefs::try_all, packets::try_all];
    let tasks = families
        .into_iter()
        .map(|family| {
            let context = &context;
            Box::new(move || family(context)) as Task<'_, _>
        })
        .collect();
    let mut capabilities: Vec<Capability> = threads::each(tasks).into_iter().flatten().collect();
    capabilities.sort_by_key(|c| c.group);
    Survey { machine: context.machine(), capabilities }
}

/// Run a trial, and time it.
fn trial(id: &str, group: Group, what: &str, attempt: impl FnOnce() -> Availability) -> Capability {
    let start = Instant::now();
    let verdict = attempt();
    let took_ms = (start.elapsed().as_secs_f64() * 1e4).round() / 10.0;
    Capability { id: id.to_owned(), group, what: what.to_owned(), verdict, took_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every trial answers whoever asks, that names are unique, and that every
    /// refusal has a reason and a remedy.
    #[test]
    fn every_trial_answers() {
        let survey = survey();
        let mut ids: Vec<_> = survey.capabilities.iter().map(|c| c.id.as_str()).collect();
        assert!(ids.len() >= 19, "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), survey.capabilities.len());
        for capability in &survey.capabilities {
            eprintln!("{capability:?}");
            if let Availability::No { reason, remedy } = &capability.verdict {
                assert!(!reason.is_empty() && !remedy.is_empty(), "{capability:?}");
            }
        }
    }
}
