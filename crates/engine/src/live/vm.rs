//! A clock of time inside of guests: each arm in a guest of its own, without a plugin.

use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::machine;
use netplumb_lab::vm::process::{Extra, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::class::{Family, Link};
use netplumb_model::message::{Reply, Request, RunPlan, TimedBlock};
use netplumb_model::quantity::Of;
use netplumb_model::recording::{Arm, Block, Recording, env};
use netplumb_model::timing::TimingSpec;

use super::Gatherer;
use super::packets::{load, without_probes};
use super::traffic::{WindowOf, add_kinds};
use crate::collect::Index;
use crate::error::EngineError;
use crate::extras;
use crate::origin::Boot;
use crate::plan::Plan;
use crate::run::{Options, Progress, Save, note_machine};

/// What is measured in guests, and how.
#[derive(Debug, Clone)]
pub struct GuestTiming {
    /// The arms and their blocks.
    pub plan: Plan,
    /// What the instrument is to do.
    pub spec: TimingSpec,
    /// Packets a second, at most.
    pub rate_pps: Option<u32>,
    /// Whether packets are sent without waiting for each other.
    pub stream: bool,
    /// How long a block goes on; if absent, it is over by packets.
    pub block_ns: Option<u64>,
    /// Whether every block is to be run without the instrument as well.
    pub measure_cost: bool,
}

/// Measure. What was measured before an error is in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_in_guests(
    timing: &GuestTiming,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &dyn Fn(Progress),
) -> Result<(), EngineError> {
    let plan = &timing.plan;
    let store = KernelStore::new(&options.cache);
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    recording.complete = false;
    note_machine(recording, options);
    let guests = plan.guests();
    for guest in &guests {
        note_clock(recording, &timing.spec, guest.link, options);
    }
    recording.arms = plan.arms.clone();
    for arm in 0..plan.arms.len() {
        extras::idle(recording, arm, load(timing.stream), extras::GUEST_CPUS);
    }
    if timing.measure_cost {
        recording.arms.extend(without_probes(&plan.arms));
    }
    save(recording).map_err(EngineError::Save)?;
    let mut index = Index::default();
    let all = plan.blocks * recording.arms.len() as u32;
    let mut done = 0;
    // Before the first boot: what can't be is told at once.
    for guest in &guests {
        extras::check(&store.find(&guest.kernel)?, guest)?;
    }
    for guest in &guests {
        let kernel = store.find(&guest.kernel)?;
        let boot = Boot {
            guest,
            kernel: &kernel,
            options,
            qemu: &qemu,
        };
        for &arm in &guest.arms {
            let run = RunPlan {
                aligned: false,
                rate_pps: timing.rate_pps,
                stream: timing.stream,
                block_ns: timing.block_ns,
                ..plan.run_plan(&plan.arms[arm])
            };
            let origin = boot.origin(&run, progress)?;
            progress(Progress::Arm(plan.arms[arm].name.clone()));
            if done == 0 {
                recording.environment.extend(origin.facts.clone());
            } else {
                extras::note(recording, arm, &origin.facts);
            }
            let request = Request::Time {
                spec: timing.spec.clone(),
                plan: run,
                bare: timing.measure_cost,
            };
            let mut machine = origin.start(&[request], Extra::default(), options)?;
            machine.go_on()?;
            let mut gatherer = None;
            let answered = machine.answers(options.timeout, |reply| {
                match reply {
                    Reply::Attached(attached) => {
                        gatherer = Some(Gatherer::new(
                            recording,
                            &mut index,
                            &options.layers,
                            &attached,
                        ));
                    }
                    Reply::Facts(notes) => extras::note(recording, arm, &notes),
                    Reply::TimedBlock(told) => {
                        let probed = told.window.is_some();
                        recording.blocks.push(Block {
                            arm: (arm + if probed { 0 } else { plan.arms.len() }) as u32,
                            instrument: match probed {
                                true => timing.spec.instrument.clone(),
                                false => String::new(),
                            },
                            index: told.index,
                            ledger: told.ledger.clone(),
                            totals: Vec::new(),
                            entered: 0,
                            returned: 0,
                            duration_ns: told.duration_ns,
                        });
                        let block = recording.blocks.len() as u32 - 1;
                        add_told(recording, &mut index, gatherer.as_mut(), &[block], &told);
                        done += 1;
                        progress(Progress::Blocks(done, all));
                    }
                    _ => {}
                }
                Ok(())
            });
            save(recording).map_err(EngineError::Save)?;
            answered?;
        }
    }
    recording.complete = true;
    save(recording).map_err(EngineError::Save)
}

/// Which clock it was, and how a guest's goes on.
pub(crate) fn note_clock(
    recording: &mut Recording,
    spec: &TimingSpec,
    link: Link,
    options: &Options,
) {
    let facts = &mut recording.environment;
    facts.insert(env::CLOCK.into(), spec.instrument.clone());
    facts.insert(env::UNIT.into(), "nanoseconds".into());
    facts.insert(env::LAB.into(), "vm".into());
    if !options.quick {
        let shift = machine::icount_shift(link).to_string();
        facts.insert(format!("vm.icount_shift.{link}"), shift);
    }
}

/// Add what a guest told of a block to the blocks that it is in the recording.
fn add_told(
    recording: &mut Recording,
    index: &mut Index,
    gatherer: Option<&mut Gatherer>,
    blocks: &[u32],
    told: &TimedBlock,
) {
    if let (Some(gatherer), Some(window)) = (gatherer, &told.window) {
        gatherer.add(recording, index, blocks, window);
    }
    if let Some(&block) = blocks.first() {
        for figure in &told.figures {
            recording.add_figure(Of::Block(block), figure.clone());
        }
    }
}

/// The windows of a command's runs in a guest, as blocks.
#[derive(Debug)]
pub(crate) struct CommandWindows<'a> {
    /// What the arms of its packets are like, but for these.
    pub(crate) like: &'a Arm,
    /// The version of IP that was asked for.
    pub(crate) family: Option<Family>,
    instrument: String,
    index: Index,
    gatherer: Option<Gatherer>,
}

impl<'a> CommandWindows<'a> {
    pub(crate) fn new(like: &'a Arm, spec: &TimingSpec) -> CommandWindows<'a> {
        CommandWindows {
            like,
            family: spec.filter.family,
            instrument: spec.instrument.clone(),
            index: Index::default(),
            gatherer: None,
        }
    }

    /// Take an answer, if it is of the instrument.
    pub(crate) fn take(&mut self, recording: &mut Recording, layers: &LayerRules, reply: &Reply) {
        match reply {
            Reply::Attached(attached) => {
                let gatherer = Gatherer::new(recording, &mut self.index, layers, attached);
                self.gatherer = Some(gatherer);
            }
            Reply::TimedBlock(told) => {
                let Some(window) = &told.window else {
                    return;
                };
                let (number, ns) = (told.index, told.duration_ns);
                let of = WindowOf {
                    like: self.like,
                    instrument: &self.instrument,
                    family: self.family,
                };
                let blocks = add_kinds(recording, &of, window, number, ns);
                let gatherer = self.gatherer.as_mut();
                add_told(recording, &mut self.index, gatherer, &blocks, told);
            }
            _ => {}
        }
    }
}
