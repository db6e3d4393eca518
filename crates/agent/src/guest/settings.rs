//! Settings that a scan may change, and notes on knobs that were set.

use std::collections::BTreeMap;
use std::io;

use netplumb_lab::netns::settings;
use netplumb_model::class::Link;
use netplumb_model::message::{Refused, Reply, RunPlan};

use super::Agent;
use crate::ends::topology_of;

/// Maximum number of settings in a message.
const CHUNK: usize = 100;

impl Agent {
    /// List the settings that the sender's namespace has, or the kernel's first.
    pub(super) fn list_settings(
        &mut self,
        prefixes: &[String],
        skip: &[String],
        plan: &RunPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        self.ends(plan)?;
        let wanted = topology_of(plan);
        let standing = self.standing.iter().find(|s| s.plan == wanted);
        let standing = standing.ok_or("the topology is gone")?;
        let lo = plan.link == Link::Lo;
        let settings = settings::list(&standing.topology.tx, prefixes, skip, lo)
            .map_err(|e| format!("list sysctls: {e}"))?;
        for chunk in settings.chunks(CHUNK) {
            reply(Reply::Sysctls(chunk.to_vec()))?;
        }
        Ok(())
    }

    /// Notes on the knobs of a plan.
    pub(super) fn notes(&self, plan: &RunPlan) -> Option<BTreeMap<String, String>> {
        let wanted = topology_of(plan);
        let standing = self.standing.iter().find(|s| s.plan == wanted)?;
        (!standing.topology.notes.is_empty()).then(|| standing.topology.notes.clone())
    }
}
