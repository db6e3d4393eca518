//! An experiment under the `exact` instrument: every arm in a guest of its own, from
//! one state of that guest, so that no arm bears on another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use netplumb_instruments::exact::Losses;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};
use netplumb_lab::vm::machine;
use netplumb_lab::vm::process::{Cancel, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::class::Link;
use netplumb_model::experiment::Load;
use netplumb_model::message::RunPlan;
use netplumb_model::quantity::Of;
use netplumb_model::recording::{Loss, Recording, env};
use netplumb_model::timing::QEMU_PEAK;

use crate::collect::{Index, Translation};
use crate::error::EngineError;
use crate::extras;
use crate::measure::{Measured, measure};
use crate::origin::{Boot, Origin};
use crate::plan::Plan;

/// This program, which is its guests' init as well.
pub const OWN_BINARY: &str = "/proc/self/exe";

/// How to run, apart from what.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where kernels and saved states are kept.
    pub cache: PathBuf,
    /// The program that is init in a guest: [`OWN_BINARY`], but for tests.
    pub init: PathBuf,
    /// Without an instruction clock.
    pub quick: bool,
    /// Without saved states: every arm boots.
    pub cold: bool,
    /// Guests at once.
    pub jobs: usize,
    /// How long a boot or an arm may take.
    pub timeout: Duration,
    /// The rules for layers.
    pub layers: LayerRules,
    /// Set to stop.
    pub cancel: Cancel,
}

/// What happens, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A guest boots, to be saved: its kernel's release, and what joins its ends.
    Booting {
        /// Release of its kernel.
        kernel: String,
        /// What joins its ends.
        link: Link,
    },
    /// It has, and rests.
    Ready {
        /// Since QEMU was started.
        after: Duration,
    },
    /// Something that people may want to know.
    Note(String),
    /// An arm begins: its name.
    Arm(String),
    /// Blocks that are done, over all arms, and how many there are to be.
    Blocks(u32, u32),
}

/// Takes the recording as it grows, to keep what is there already.
pub type Save<'a> = &'a mut dyn FnMut(&Recording) -> Result<(), String>;

/// Run a plan. What was measured before an error is in the recording. Arms that
/// are in the recording already are not run again.
///
/// # Errors
/// See [`EngineError`].
pub fn run(
    plan: &Plan,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    let store = KernelStore::new(&options.cache);
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    let plan = &crate::scan::planned(plan, &store, options, &qemu, recording, progress)?;
    let done = take_up(plan, recording)?;
    recording.complete = false;
    note_machine(recording, options);

    let guests = plan.guests();
    // Found before the first boot: a wrong name is told at once.
    let kernels: Vec<KernelEntry> = guests
        .iter()
        .map(|g| store.find(&g.kernel))
        .collect::<Result<_, _>>()?;
    for (guest, kernel) in guests.iter().zip(&kernels) {
        extras::check(kernel, guest)?;
    }
    let other_kernel = |k: &KernelEntry| {
        let before = recording.environment.get(env::KERNEL_HASH);
        before.is_some_and(|hash| *hash != k.hash)
    };
    if !done.is_empty() && kernels.first().is_some_and(other_kernel) {
        return Err(EngineError::OtherPlan("another kernel"));
    }
    if !options.quick {
        for guest in &guests {
            recording.environment.insert(
                format!("vm.icount_shift.{}", guest.link),
                machine::icount_shift(guest.link).to_string(),
            );
        }
    }
    save(recording).map_err(EngineError::Save)?;

    let groups: Vec<Group<'_>> = guests
        .iter()
        .zip(&kernels)
        .map(|(guest, kernel)| Group {
            boot: Boot {
                guest,
                kernel,
                options,
                qemu: &qemu,
            },
            origins: Mutex::default(),
        })
        .collect();
    let tasks: Vec<Task<'_, '_>> = groups
        .iter()
        .flat_map(|group| {
            let arms = &group.boot.guest.arms;
            arms.iter().map(move |&arm| Task { group, arm })
        })
        .filter(|task| !done.contains(&task.arm))
        .collect();
    let all = plan.blocks * plan.arms.len() as u32;
    let blocks_done = AtomicU32::new(plan.blocks * done.len() as u32);
    let block_done = || {
        let done = blocks_done.fetch_add(1, Ordering::Relaxed) + 1;
        progress(Progress::Blocks(done.min(all), all));
    };
    let workers = Workers {
        plan,
        options,
        tasks: &tasks,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        block_done: &block_done,
        progress,
    };
    let mut index = Index::of(recording);
    let outcome = thread::scope(|scope| {
        let (sender, results) = channel();
        for _ in 0..options.jobs.clamp(1, tasks.len().max(1)) {
            let sender = sender.clone();
            let workers = &workers;
            scope.spawn(move || workers.work(&sender));
        }
        drop(sender);
        let mut outcome = Ok(());
        for result in results {
            let merged = merge(result, plan, options, recording, &mut index)
                .and_then(|()| save(recording).map_err(EngineError::Save));
            if merged.is_err() {
                workers.stop.store(true, Ordering::Relaxed);
                outcome = outcome.and(merged);
            }
        }
        outcome
    });
    if outcome.is_err() && !recording.blocks.is_empty() {
        // The error that there is goes before one of keeping what was measured.
        let _ = save(recording);
    }
    outcome?;
    recording.complete = true;
    save(recording).map_err(EngineError::Save)
}

/// The facts of the clock and the machine that hold for every run.
pub(crate) fn note_machine(recording: &mut Recording, options: &Options) {
    let mut fact = |key: &str, value: String| recording.environment.insert(key.into(), value);
    fact(env::CLOCK, "exact".into());
    fact(env::UNIT, "instructions".into());
    fact(env::QUICK, if options.quick { "yes" } else { "no" }.into());
    fact(env::CPU, machine::CPU.into());
    fact(env::REP, machine::REP_NOTE.into());
    fact("vm.memory_mib", machine::MEMORY_MIB.to_string());
}

/// Arms of a recording that are done, if it is of this plan; arms that are not go.
fn take_up(plan: &Plan, recording: &mut Recording) -> Result<Vec<usize>, EngineError> {
    if recording.blocks.is_empty() {
        recording.arms = plan.arms.clone();
        return Ok(Vec::new());
    }
    if recording.arms != plan.arms {
        return Err(EngineError::OtherPlan("other arms than this run"));
    }
    let blocks_of = |arm: usize| {
        let of = recording.blocks.iter().filter(|b| b.arm as usize == arm);
        of.count() as u32
    };
    let done: Vec<usize> = (0..plan.arms.len())
        .filter(|arm| blocks_of(*arm) == plan.blocks)
        .collect();
    // From the number of a block that was to the one that it has now.
    let mut numbers = Vec::with_capacity(recording.blocks.len());
    let mut kept = Vec::new();
    for block in std::mem::take(&mut recording.blocks) {
        let keep = done.contains(&(block.arm as usize));
        numbers.push(keep.then_some(kept.len() as u32));
        if keep {
            kept.push(block);
        }
    }
    recording.blocks = kept;
    recording.costs.retain_mut(|cost| {
        let number = numbers.get(cost.block as usize).copied().flatten();
        cost.block = number.unwrap_or(0);
        number.is_some()
    });
    // What came of the arms that are run again is forgotten, figures of theirs as well.
    recording
        .notes
        .retain(|arm, _| done.contains(&(*arm as usize)));
    recording.scalars.retain_mut(|scalar| match &mut scalar.of {
        Of::Run => true,
        Of::Arm(arm) => done.contains(&(*arm as usize)),
        Of::Block(block) => {
            let number = numbers.get(*block as usize).copied().flatten();
            *block = number.unwrap_or(0);
            number.is_some()
        }
    });
    Ok(done)
}

/// The arms of one boot.
struct Group<'a> {
    boot: Boot<'a>,
    /// What they start from, by what is prepared.
    origins: Mutex<Vec<Arc<Origin>>>,
}

impl Group<'_> {
    /// Made by the first who asks; the others wait for it.
    fn origin(
        &self,
        plan: &RunPlan,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Arc<Origin>, EngineError> {
        let mut origins = match self.origins.lock() {
            Ok(origins) => origins,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(origin) = origins.iter().find(|o| o.is_for(plan)) {
            return Ok(Arc::clone(origin));
        }
        let new = Arc::new(self.boot.origin(plan, &|event| progress(event))?);
        origins.push(Arc::clone(&new));
        Ok(new)
    }
}

/// One arm to be run.
struct Task<'g, 'a> {
    group: &'g Group<'a>,
    arm: usize,
}

/// What came of one.
struct Ran {
    arm: usize,
    /// Whether the guest's facts are the recording's: those of other kernels are
    /// told by their arms.
    first: bool,
    result: Result<(Arc<Origin>, Measured), EngineError>,
}

struct Workers<'a> {
    plan: &'a Plan,
    options: &'a Options,
    tasks: &'a [Task<'a, 'a>],
    next: AtomicUsize,
    stop: AtomicBool,
    block_done: &'a (dyn Fn() + Sync),
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Workers<'_> {
    /// Take arms until there are no more. QEMU dies with the thread that started it,
    /// so each of these threads stays for its own guests.
    fn work(&self, sender: &Sender<Ran>) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = self.tasks.get(number) else {
                return;
            };
            let ran = Ran {
                arm: task.arm,
                first: number == 0,
                result: self.one(task),
            };
            let ended = match &ran.result {
                Err(_) => true,
                Ok((_, Measured { error, .. })) => error
                    .as_ref()
                    .is_some_and(|e| self.plan.scan.is_none() || !e.is_the_guests()),
            };
            if ended {
                self.stop.store(true, Ordering::Relaxed);
            }
            if sender.send(ran).is_err() {
                return;
            }
        }
    }

    fn one(&self, task: &Task<'_, '_>) -> Result<(Arc<Origin>, Measured), EngineError> {
        let arm = &self.plan.arms[task.arm];
        let plan = RunPlan {
            aligned: !self.options.quick,
            ..self.plan.run_plan(arm)
        };
        let origin = task.group.origin(&plan, self.progress)?;
        (self.progress)(Progress::Arm(arm.name.clone()));
        let measured = measure(&origin, &plan, self.options, self.block_done);
        Ok((origin, measured))
    }
}

fn merge(
    ran: Ran,
    plan: &Plan,
    options: &Options,
    recording: &mut Recording,
    index: &mut Index,
) -> Result<(), EngineError> {
    let (origin, measured) = ran.result?;
    let of_namespaces = |(key, _): &(String, String)| ran.first || key.starts_with("net.");
    let facts = origin.facts.clone().into_iter().chain(measured.facts);
    recording.environment.extend(facts.filter(of_namespaces));
    let symbols = origin.symbols.as_deref().or_else(|| measured.symbols.get());
    if ran.first {
        // Arms that were done before have noted what is the same as well.
        for notes in recording.notes.values_mut() {
            let facts = &recording.environment;
            (notes.facts).retain(|key, value| facts.get(key) != Some(value));
        }
    } else {
        extras::note(recording, ran.arm, &origin.facts);
    }
    extras::note(recording, ran.arm, &measured.notes);
    if let Some(symbols) = symbols {
        let mut translation = Translation::default();
        translation.add_nodes(recording, index, symbols, &options.layers, &measured.nodes);
        for (number, (window, ledger)) in (0..plan.blocks).zip(measured.blocks) {
            translation.add_block(recording, ran.arm as u32, number, &window, ledger);
        }
        extras::idle(recording, ran.arm, Load::OneAtATime, extras::GUEST_CPUS);
    }
    add_losses(recording, &measured.losses);
    recording.set_most(&QEMU_PEAK, measured.qemu_peak_bytes as f64);
    match measured.error {
        // In a scan, that a setting breaks the path is a finding.
        Some(error) if plan.scan.is_some() && error.is_the_guests() => {
            extras::failed(recording, ran.arm, &error);
            Ok(())
        }
        Some(error) => Err(error),
        None => Ok(()),
    }
}

pub(crate) fn add_losses(recording: &mut Recording, losses: &Losses) {
    for (cause, count, meaning) in [
        (
            "returns without a call",
            losses.unmatched_returns,
            "the stack below was taken as new: inclusive costs of what was on it end there",
        ),
        (
            "calls without an address",
            losses.calls_without_address,
            "the function called was taken as jumped to",
        ),
        (
            "stack addresses outside of the kernel",
            losses.bad_addresses,
            "the calls were taken as jumps",
        ),
        (
            "instructions without a symbol",
            losses.insns_without_symbol,
            "they are in [unknown]: compiled BPF, or a module loaded late",
        ),
        (
            "stacks given up",
            losses.stacks_given_up,
            "deeper than a kernel stack can be: inclusive costs end there",
        ),
    ] {
        add_loss(recording, cause, count, meaning);
    }
}

/// Add to a recording's losses of a cause.
pub(crate) fn add_loss(recording: &mut Recording, cause: &str, count: u64, meaning: &str) {
    if count == 0 {
        return;
    }
    match recording.losses.iter_mut().find(|l| l.cause == cause) {
        Some(loss) => loss.count += count,
        None => recording.losses.push(Loss {
            cause: cause.into(),
            count,
            meaning: meaning.into(),
        }),
    }
}
