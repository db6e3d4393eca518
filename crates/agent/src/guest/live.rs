//! Packets or a command with an instrument that measures time: what the lab `netns` does on the
//! machine itself, in the guest.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use netplumb_instruments::live::{Live, LiveError};
use netplumb_instruments::registry;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::message::{Refused, RefusedKind, Reply, RunPlan, TimedBlock};
use netplumb_model::timing::TimingSpec;
use netplumb_workload::drops;
use netplumb_workload::ends::Ends;
use netplumb_workload::packets::Traffic;

use super::Agent;
use crate::ends::topology_of;
use crate::outside::{Cpus, figures};

/// Time to wait after programs were attached or detached: the kernel frees them after grace periods
/// of RCU and RCU tasks, and that work would be in the next block. With an instruction clock it
/// takes no real time.
const SETTLE: Duration = Duration::from_millis(500);

impl Agent {
    /// Attach, run the blocks, and then send the results: a message between blocks would disturb
    /// them.
    pub(super) fn time(
        &mut self,
        spec: TimingSpec,
        plan: &RunPlan,
        bare: bool,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        let ends =
            self.ends(plan)?.try_clone().map_err(|e| format!("open a network namespace: {e}"))?;
        let mut spec = self.within(spec, plan)?;
        if spec.filter.protos.is_empty() {
            spec.filter.protos = vec![plan.proto];
        }
        let instrument = attach(&spec)?;
        reply(attached(&*instrument)).map_err(|e| e.to_string())?;
        let mut blocks = Blocks {
            spec: &spec,
            plan,
            ends: &ends,
            instrument: Some(instrument),
            traffic: None,
            replies: Vec::new(),
        };
        // At once: packets that can't be sent are an error before any block.
        blocks.traffic()?;
        // Not the loop of site.rs, for which all of this is one turn of one arm: what that is for
        // (to keep what there is after each turn, stop in between, leave out an arm) takes the
        // recording and the host, and nothing is sent to the host between blocks.
        let mut failed = None;
        for (index, probed) in paired(plan.blocks, bare) {
            if let Err(why) = blocks.one(index, probed) {
                let message = format!("block {index}: {}", why.message);
                failed = Some(Refused { message, ..why });
                break;
            }
        }
        let replies = blocks.replies;
        self.used = blocks.instrument;
        if let Some(notes) = self.notes(plan) {
            reply(Reply::Facts(notes)).map_err(|e| e.to_string())?;
        }
        for answer in replies {
            reply(answer).map_err(|e| e.to_string())?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Attach the instrument for the next command.
    pub(super) fn attach(
        &mut self,
        spec: TimingSpec,
        links: &RunPlan,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        self.ends(links)?;
        let instrument = attach(&self.within(spec, links)?)?;
        reply(attached(&*instrument)).map_err(|e| e.to_string())?;
        self.instrument = Some(instrument);
        Ok(())
    }

    /// A spec limited to the namespaces of a plan, if it has none.
    fn within(&self, mut spec: TimingSpec, plan: &RunPlan) -> Result<TimingSpec, String> {
        if spec.filter.namespaces.is_empty() {
            spec.filter.namespaces = self.inodes(plan).map_err(|e| e.to_string())?;
        }
        Ok(spec)
    }

    /// Inodes of the namespaces of a plan.
    fn inodes(&self, plan: &RunPlan) -> io::Result<Vec<u32>> {
        let wanted = topology_of(plan);
        let mut inodes = BTreeSet::new();
        for standing in self.standing.iter().filter(|s| s.plan == wanted) {
            for namespace in standing.topology.all() {
                inodes.insert(namespace.inode()?);
            }
        }
        Ok(inodes.into_iter().collect())
    }
}

/// Attach an instrument.
fn attach(spec: &TimingSpec) -> Result<Box<dyn Live>, Refused> {
    let rules = LayerRules::built_in();
    let layer = |name: &str, module: Option<&str>| rules.layer(name, module).map(String::from);
    registry::attach(spec, &layer).map_err(refused)
}

/// An instrument's error, for the host.
pub(super) fn refused(error: LiveError) -> Refused {
    Refused {
        message: error.to_string(),
        kind: match error {
            LiveError::Asked(_) => RefusedKind::Asked,
            LiveError::CannotRun { .. } => RefusedKind::CannotRun,
            LiveError::System { .. } | LiveError::Interrupted => RefusedKind::Failed,
        },
    }
}

/// The reply about an attached instrument.
fn attached(instrument: &dyn Live) -> Reply {
    Reply::Attached(Box::new(instrument.attached().clone()))
}

/// Blocks of packets under way.
struct Blocks<'a> {
    spec: &'a TimingSpec,
    plan: &'a RunPlan,
    ends: &'a Ends,
    instrument: Option<Box<dyn Live>>,
    traffic: Option<Traffic<'a>>,
    replies: Vec<Reply>,
}

impl<'a> Blocks<'a> {
    /// The sockets, warmed up; opened if necessary.
    fn traffic(&mut self) -> Result<&mut Traffic<'a>, String> {
        match &mut self.traffic {
            Some(traffic) => Ok(traffic),
            none => {
                let mut traffic = Traffic::open(self.plan, self.ends)
                    .map_err(|e| format!("open {} sockets: {e}", self.plan.proto))?;
                traffic.warm_up().map_err(|e| format!("warm-up: {e}"))?;
                Ok(none.insert(traffic))
            }
        }
    }

    fn one(&mut self, index: u32, probed: bool) -> Result<(), Refused> {
        if probed != self.instrument.is_some() {
            self.traffic = None;
            self.instrument = None;
            if probed {
                let instrument = attach(self.spec)?;
                self.replies.push(attached(&*instrument));
                self.instrument = Some(instrument);
            }
            thread::sleep(SETTLE);
        }
        self.traffic()?;
        let cpus = Cpus::read();
        if let Some(instrument) = &mut self.instrument {
            instrument.open().map_err(refused)?;
        }
        let never = AtomicBool::new(false);
        let sent = self.traffic()?.timed_block(&never);
        let window = match &mut self.instrument {
            Some(instrument) => Some(instrument.close().map_err(refused)?),
            None => None,
        };
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        let mut sent = sent.map_err(|e| e.to_string())?;
        if let Some(window) = &window {
            drops::explain(&mut sent.ledger, self.plan.proto, &window.drops);
        }
        self.replies.push(Reply::TimedBlock(Box::new(TimedBlock {
            index,
            figures: figures(&sent, busy),
            duration_ns: match &window {
                Some(window) if window.duration_ns > 0 => window.duration_ns,
                _ => sent.duration_ns,
            },
            ledger: sent.ledger,
            window,
        })));
        Ok(())
    }
}

/// Which block of an arm, and whether under the instrument, in a guest. With `bare` each is next to
/// its counterpart, and neither is always the first: drift affects both, and the instrument is
/// attached anew every second time only.
fn paired(blocks: u32, bare: bool) -> Vec<(u32, bool)> {
    let of = |index: u32| match (bare, index % 2) {
        (false, _) => vec![(index, true)],
        (true, 0) => vec![(index, true), (index, false)],
        (true, _) => vec![(index, false), (index, true)],
    };
    (0..blocks).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each block is next to its counterpart, that neither kind is always the first, and
    /// that the instrument changes as seldom as that allows.
    #[test]
    fn pairs() {
        assert_eq!(paired(2, false), [(0, true), (1, true)]);
        let all = paired(5, true);
        for (index, pair) in (0..).zip(all.chunks(2)) {
            assert!(pair.contains(&(index, true)) && pair.contains(&(index, false)));
        }
        let changes = all.windows(2).filter(|w| w[0].1 != w[1].1).count();
        assert_eq!(changes, 5);
    }
}
