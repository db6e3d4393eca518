//! Packets in guests: every arm in a guest of its own, from one saved state, so that arms don't
//! affect each other; counted by the plugin, or timed by an instrument. Several instruments have a
//! guest each.

mod replies;
mod results;
mod run;
mod turn;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::recording::{Recording, env};

pub(crate) use self::replies::CommandWindows;
use self::results::Guests;
pub use self::run::GuestRun;
use self::turn::{Group, Shared};
use crate::error::EngineError;
use crate::extras;
use crate::index::Index;
use crate::kernel_lines::KernelLines;
use crate::kinds::check_pairs;
use crate::long::{self, Long};
use crate::origin::{self, Boot};
use crate::outside::{load, without_probes};
use crate::run::{Options, Progress, Save, note_arch, note_clock, note_instrument, note_machine};
use crate::schedule::{Turn, whole};
use crate::site::{self, Keeper, take_up};

/// Run in guests. Results from before an error are in the recording. Arms that are in the recording
/// already are not run again.
///
/// # Errors
/// See [`EngineError`].
pub fn run_in_guests(
    run: &GuestRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    let plan = &crate::scan::planned(&run.plan, options, recording, progress)?;
    let names = run.names();
    let mut arms = plan.arms.clone();
    if run.measure_cost {
        arms.extend(without_probes(&plan.arms));
    }
    let done = match run.long {
        Some(_) => {
            long::take_up(recording, Some(&arms), &run.counted()).map(|()| BTreeSet::new())?
        }
        None => take_up(recording, &arms, &names, plan.blocks)?,
    };
    let known = !recording.blocks.is_empty();
    recording.complete = false;
    note_machine(recording, options);
    recording.environment.insert(env::LAB.into(), "vm".into());
    let counts = !run.counted().is_empty();
    note_instrument(recording, names.first().copied().unwrap_or_default(), counts);

    let guests = plan.guests();
    // Looked up before the first boot, so that a wrong name is an error at once.
    let kernels: Vec<KernelEntry> =
        guests.iter().map(|guest| guest.kernel_in(options, progress)).collect::<Result<_, _>>()?;
    for (guest, kernel) in guests.iter().zip(&kernels) {
        extras::check(kernel, guest, options, progress)?;
        origin::check(options, kernel.arch, counts)?;
        note_clock(recording, guest.link, options);
    }
    for (guest, kernel) in guests.iter().zip(&kernels) {
        if kernel.arch == kernels[0].arch {
            note_arch(&mut recording.environment, kernel.arch);
            continue;
        }
        for arm in &guest.arms {
            note_arch(&mut recording.notes_of(*arm).facts, kernel.arch);
        }
    }
    let other_kernel = |k: &KernelEntry| {
        let before = recording.environment.get(env::KERNEL_HASH);
        before.is_some_and(|hash| *hash != k.hash)
    };
    if known && kernels.first().is_some_and(other_kernel) {
        return Err(EngineError::OtherPlan("another kernel"));
    }
    if !counts {
        for arm in 0..plan.arms.len() {
            extras::idle(recording, arm, (load(run.stream), extras::GUEST_CPUS), None);
        }
    }
    save(recording).map_err(EngineError::Save)?;

    let groups: Vec<Group<'_>> = guests
        .iter()
        .zip(&kernels)
        .map(|(guest, kernel)| Group {
            boot: Boot { guest, kernel, options },
            origins: Mutex::default(),
        })
        .collect();
    // Arms ordered by the guests that they share.
    let order: Vec<usize> =
        (groups.iter()).flat_map(|group| group.boot.guest.arms.iter().copied()).collect();
    let turns = whole(order.len(), names.len(), 0..plan.blocks);
    let turns = turns.into_iter().map(|turn| Turn { arm: order[turn.arm], ..turn });
    let turns: Vec<Turn> = turns.filter(|t| !done.contains(&(t.arm, t.by))).collect();
    let clock = long::clock();
    let long = run.long.map(|whole| Long::begin(Some(whole), &clock, recording));
    let each = |by: usize| 1 + u32::from(run.is_beside_bare(by));
    let blocks_of = |by: usize| plan.blocks * each(by);
    let all = (0..names.len()).map(blocks_of).sum::<u32>() * plan.arms.len() as u32;
    let before: u32 = done.iter().map(|(_, by)| blocks_of(*by)).sum();
    let shared = Shared {
        run,
        plan,
        options,
        groups: &groups,
        all,
        over: AtomicU32::new(before),
        progress,
        long,
        first: (0..plan.arms.len() as u32)
            .map(|arm| long.map_or(0, |long| long.next(recording, Some(arm))))
            .collect(),
        stop: AtomicBool::new(false),
    };
    let mut index = Index::from_recording(recording);
    thread::scope(|scope| {
        let mut site = Guests {
            // In real time, guests that run in parallel would disturb each other.
            at_once: match options.quick && !run.timed.is_empty() {
                true => 1,
                // Guests of a long run all run at once.
                false if run.long.is_some() => turns.len().max(1),
                false => options.jobs.clamp(1, turns.len().max(1)),
            },
            scope,
            shared: &shared,
            channel: sync_channel(1),
            begun: 0,
            kept: Instant::now(),
            lines: KernelLines::default(),
            index: &mut index,
        };
        let mut keeper = Keeper::new(recording, save, &options.cancel).with_long(long);
        site::run(&mut site, turns, &names, &mut keeper, &mut |_, _| {})?;
        keeper.recording.complete = true;
        keeper.keep()?;
        check_pairs(keeper.recording, &names)?;
        match plan.scan {
            Some(_) => Ok(()),
            None => site::failed(keeper.recording),
        }
    })
}
