//! A clock of time inside of guests: each arm in a guest of its own, without a plugin.

use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::process::{Extra, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::recording::{Block, Recording, env};
use netplumb_model::timing::TimingSpec;

use super::Gatherer;
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
    for (key, value) in [
        (env::CLOCK, timing.spec.clock.to_string()),
        (env::UNIT, "nanoseconds".to_string()),
        (env::LAB, "vm".to_string()),
    ] {
        recording.environment.insert(key.into(), value);
    }
    recording.arms = plan.arms.clone();
    save(recording).map_err(EngineError::Save)?;
    let mut index = Index::default();
    let all = plan.blocks * plan.arms.len() as u32;
    let mut done = 0;
    let guests = plan.guests();
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
            };
            let mut machine = origin.start(&[request], Extra::default(), options)?;
            machine.go_on()?;
            let mut gatherer = None;
            let mut ledger = None;
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
                    Reply::BlockDone {
                        index,
                        ledger: told,
                    } => ledger = Some((index, told)),
                    Reply::Window(window) => {
                        let Some((number, ledger)) = ledger.take() else {
                            return Ok(());
                        };
                        recording.blocks.push(Block {
                            arm: arm as u32,
                            index: number,
                            ledger,
                            kernel_insns: 0,
                            user_insns: 0,
                            entered: 0,
                            returned: 0,
                            duration_ns: window.duration_ns,
                        });
                        let block = recording.blocks.len() as u32 - 1;
                        if let Some(gatherer) = &mut gatherer {
                            gatherer.add(recording, &mut index, &[block], &window);
                        }
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
