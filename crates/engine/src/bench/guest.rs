//! Benches in a guest: the guest, and blocks measured in it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use netplumb_agent::bench::block::BlockResult;
use netplumb_lab::vm::files::Program;
use netplumb_lab::vm::kernels::{KernelEntry, KernelStoreError};
use netplumb_lab::vm::machine::{MEMORY_MIB, cpu};
use netplumb_lab::vm::process::{Extra, Guest, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::bench::{BenchArm, Limit};
use netplumb_model::class::Link;
use netplumb_model::experiment::Experiment;
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::recording::env;
use netplumb_model::topology::ArmTopology;

use crate::error::EngineError;
use crate::extras;
use crate::origin::{Boot, Origin};
use crate::plan::{GuestPlan, Plan};
use crate::run::{Options, Progress, fetching};

/// Modules that paths need, if the kernel has them as modules; paths whose modules are missing are
/// not supported.
const MODULES: [&str; 3] = ["bridge", "sch_ingress", "cls_bpf"];
/// The same of paths that `nft` sets up. They are loaded before, and not at the kernel's request, so that all paths
/// share a state.
const NFT_MODULES: [&str; 8] = [
    "nft_ct",
    "nft_counter",
    "nf_conntrack",
    "nf_flow_table",
    "nf_flow_table_inet",
    "nf_flow_table_ipv4",
    "nf_flow_table_ipv6",
    "nft_flow_offload",
];

/// A guest in which data paths can be set up.
#[derive(Clone, Copy)]
pub struct GuestLab<'a> {
    /// The kernel, by name.
    pub kernel: &'a str,
    /// Modules to load, by name.
    pub load: &'a [String],
    /// The link for rates: veth between namespaces, or the guest's NICs, two or four of them.
    /// Instructions are counted over veth.
    pub link: Link,
    /// Options: cache, timeouts.
    pub options: &'a Options,
    /// Receives progress.
    pub tell: &'a (dyn Fn(Progress) + Sync),
}

impl fmt::Debug for GuestLab<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("GuestLab");
        out.field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl GuestLab<'_> {
    /// Check that QEMU and the kernel exist, before anything is measured.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn check(&self) -> Result<(), EngineError> {
        let kernel = self.kernel()?;
        extras::check_load(self.load, &kernel.module_tree()?)?;
        trial::find_qemu(kernel.arch).map_err(VmError::QemuMissing)?;
        Ok(())
    }

    fn kernel(&self) -> Result<KernelEntry, KernelStoreError> {
        let store = self.options.kernels();
        let tell = |event| (self.tell)(event);
        store.find_whole(self.kernel, None, &mut fetching("guests", &tell))
    }

    /// The origin of its guests. `quick`: without an instruction clock; `link`: with NICs of this
    /// kind, if it is one; `forward`: with twice as many.
    pub(super) fn origin(
        &self,
        quick: bool,
        link: Link,
        forward: bool,
    ) -> Result<(Origin, Options), EngineError> {
        let options = Options { quick, ..self.options.clone() };
        let kernel = self.kernel()?;
        // Paths that need it are not supported without.
        let nft = extras::fetch(&kernel, [Program::Nft], &options, &|event| {
            (self.tell)(event);
        })
        .and_then(|()| Program::Nft.archive(kernel.arch, &options.cache));
        let topology = if forward { ArmTopology::forward() } else { ArmTopology::direct() };
        let guest = GuestPlan {
            link,
            topology: topology.spec,
            load: self.load.to_vec(),
            ..plan(self.kernel, nft.is_ok())
        };
        let boot = Boot { guest: &guest, kernel: &kernel, options: &options };
        let origin = boot.origin(&nothing()?, &|event| (self.tell)(event))?;
        Ok((origin, options))
    }
}

/// The same for all paths, so that they share a boot and have no other difference.
fn plan(kernel: &str, with_nft: bool) -> GuestPlan {
    GuestPlan {
        kernel: kernel.into(),
        arch: None,
        mitigations: false,
        cmdline: String::new(),
        nft: with_nft,
        requests: false,
        load: Vec::new(),
        more_modules: (NFT_MODULES.into_iter().filter(|_| with_nft)).chain(MODULES).collect(),
        qdisc: false,
        qdisc_modules: Default::default(),
        own_modules: Vec::new(),
        module_options: BTreeMap::new(),
        seed: 1,
        memory_mib: MEMORY_MIB,
        programs: Vec::new(),
        link: Link::Veth,
        host: None,
        topology: ArmTopology::direct().spec,
        arms: Vec::new(),
    }
}

/// Nothing to prepare: each block has a topology of its own.
fn nothing() -> Result<RunPlan, EngineError> {
    let plan = Plan::from_experiment(&Experiment::default());
    let run = plan.arms.first().map(|arm| plan.run_plan(arm));
    let run = run.ok_or_else(|| EngineError::Guest("no arm to prepare".into()))?;
    Ok(RunPlan { link: Link::Lo, packets: 0, warmup_packets: 0, blocks: 0, ..run })
}

/// A running guest that measures blocks on request, in real time.
#[derive(Debug)]
pub(super) struct InGuest {
    guest: Guest,
    limit: Duration,
}

impl InGuest {
    /// Start it; returns facts about it.
    pub(super) fn start(
        lab: &GuestLab<'_>,
        forward: bool,
    ) -> Result<(InGuest, BTreeMap<String, String>), EngineError> {
        let forward = forward && lab.link != Link::Veth;
        let (origin, options) = lab.origin(true, lab.link, forward)?;
        let mut guest = origin.start(&[Request::Describe], Extra::default(), &options)?;
        guest.go_on()?;
        let mut facts = origin.facts.clone();
        guest.answers(options.timeout, |reply| {
            if let Reply::Facts(guest_facts) = reply {
                facts.extend(guest_facts);
            }
            Ok(())
        })?;
        for (key, value) in [(env::LAB, "vm"), (env::CPU, cpu(origin.arch()))] {
            facts.insert(key.into(), value.into());
        }
        let guest = InGuest { guest, limit: options.timeout };
        Ok((guest, facts))
    }

    /// Measure a block, or report why the path is not supported.
    pub(super) fn block(
        &mut self,
        arm: &BenchArm,
        [window, warmup]: [Duration; 2],
        limit: Limit,
    ) -> Result<BlockResult, EngineError> {
        let request = Request::BenchBlock {
            arm: *arm,
            window_ns: window.as_nanos() as u64,
            warmup_ns: warmup.as_nanos() as u64,
            limit,
        };
        let mut ran = None;
        let patience = self.limit + window + warmup;
        self.guest.ask(&request, patience, |reply| {
            match reply {
                Reply::BenchBlock(measured, facts) => {
                    ran = Some(BlockResult::Measured(measured, facts))
                }
                Reply::BenchCannot(why) => ran = Some(BlockResult::CannotHere(in_guest(&why))),
                _ => {}
            }
            Ok(())
        })?;
        ran.ok_or_else(unanswered)
    }

    /// Measure the rate of the generator alone, or report why it can't be.
    pub(super) fn limit(&mut self, arm: &BenchArm) -> Result<Result<Limit, String>, EngineError> {
        let mut answer = None;
        let request = Request::BenchLimit(*arm);
        self.guest.ask(&request, self.limit, |reply| {
            match reply {
                Reply::BenchLimit(limit) => answer = Some(Ok(limit)),
                Reply::BenchCannot(why) => answer = Some(Err(in_guest(&why))),
                _ => {}
            }
            Ok(())
        })?;
        answer.ok_or_else(unanswered)
    }

    /// Trace where packets go.
    pub(super) fn diagnose(&mut self, arm: &BenchArm) -> Result<String, EngineError> {
        let mut answer = None;
        let request = Request::BenchDiagnose(*arm);
        self.guest.ask(&request, self.limit, |reply| {
            if let Reply::Diagnosis(found) = reply {
                answer = Some(found);
            }
            Ok(())
        })?;
        answer.ok_or_else(unanswered)
    }
}

/// Why a guest does not support a path, with the hint that this machine may.
pub(super) fn in_guest(why: &str) -> String {
    match why.contains("apt-get install") {
        true => "not supported in guests, which have no programs but `nft`; use lab netns".into(),
        false => format!("in the guest: {why}"),
    }
}

fn unanswered() -> EngineError {
    EngineError::Guest("the guest reported no results".into())
}
