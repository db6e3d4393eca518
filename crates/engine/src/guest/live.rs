//! Packets under an instrument that reads the guest's clock: what is done on the
//! machine itself in the lab `netns`, in here.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;

use netplumb_instruments::live;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::message::{Reply, RunPlan};
use netplumb_model::timing::TimingSpec;
use netplumb_workload::packets::Traffic;

use super::Agent;

impl Agent {
    /// Attach, run the blocks, and then tell of them: what is said between blocks would
    /// be in their way.
    pub(super) fn time(
        &mut self,
        mut spec: TimingSpec,
        plan: &RunPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), String> {
        let ends = self
            .ends(plan)?
            .try_clone()
            .map_err(|e| format!("hold a namespace: {e}"))?;
        if spec.filter.namespaces.is_empty() {
            spec.filter.namespaces = self.inodes(plan).map_err(|e| e.to_string())?;
        }
        if spec.filter.protos.is_empty() {
            spec.filter.protos = vec![plan.proto];
        }
        let rules = LayerRules::built_in();
        let layer = |name: &str, module: Option<&str>| rules.layer(name, module).map(String::from);
        let mut instrument = live::attach(&spec, &layer).map_err(|e| e.to_string())?;
        reply(Reply::Attached(Box::new(instrument.attached().clone())))
            .map_err(|e| e.to_string())?;
        let mut traffic =
            Traffic::open(plan, &ends).map_err(|e| format!("open {} sockets: {e}", plan.proto))?;
        traffic.warm_up().map_err(|e| format!("warm-up: {e}"))?;
        let never = AtomicBool::new(false);
        let mut told = Vec::new();
        let mut failed = None;
        for index in 0..plan.blocks {
            let mut one = || -> Result<_, String> {
                instrument.open().map_err(|e| e.to_string())?;
                let sent = traffic.timed_block(&never);
                let mut window = instrument.close().map_err(|e| e.to_string())?;
                let sent = sent.map_err(|e| e.to_string())?;
                if window.duration_ns == 0 {
                    window.duration_ns = sent.duration_ns;
                }
                Ok((sent.ledger, window))
            };
            match one() {
                Ok((ledger, window)) => told.push((index, ledger, window)),
                Err(why) => {
                    failed = Some(format!("block {index}: {why}"));
                    break;
                }
            }
        }
        drop(instrument);
        if let Some(notes) = self.notes(plan) {
            reply(Reply::Facts(notes)).map_err(|e| e.to_string())?;
        }
        for (index, ledger, window) in told {
            reply(Reply::BlockDone { index, ledger }).map_err(|e| e.to_string())?;
            reply(Reply::Window(Box::new(window))).map_err(|e| e.to_string())?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// The numbers by which the kernel knows the namespaces of a plan.
    fn inodes(&self, plan: &RunPlan) -> io::Result<Vec<u32>> {
        let wanted = super::topology_of(plan);
        let mut inodes = BTreeSet::new();
        for standing in self.standing.iter().filter(|s| s.plan == wanted) {
            for namespace in standing.topology.all() {
                inodes.insert(namespace.inode()?);
            }
        }
        Ok(inodes.into_iter().collect())
    }
}
