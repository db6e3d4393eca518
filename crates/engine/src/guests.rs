//! Packets in guests: every arm in a guest of its own, from one saved state, so that arms don't
//! affect each other; counted by the plugin, or timed by an instrument. Several instruments have a
//! guest each.

mod results;
mod told;
mod turn;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_instruments::exact::Sampling;
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::experiment::Trace;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{INSTRUCTIONS, SAMPLED, TimingSpec};

use self::results::Guests;
pub(crate) use self::told::CommandWindows;
use self::turn::{Group, Shared};
use crate::error::EngineError;
use crate::extras;
use crate::index::Index;
use crate::kernel_lines::KernelLines;
use crate::kinds::check_pairs;
use crate::long::{self, Long};
use crate::origin::{self, Boot};
use crate::outside::{load, without_probes};
use crate::plan::{MAX_ARMS, Plan};
use crate::run::{Options, Progress, Save, note_arch, note_clock, note_instrument, note_machine};
use crate::schedule::{Turn, whole};
use crate::site::{self, Keeper, take_up};

/// A run in guests.
#[derive(Debug, Clone)]
pub struct GuestRun {
    /// The arms and their blocks.
    pub plan: Plan,
    /// Whether all instructions are counted.
    pub exact: bool,
    /// Whether and how samples are drawn of them, from the same guests.
    pub sampling: Option<Sampling>,
    /// Which calls are traced, in the guests where instructions are counted.
    pub trace: Option<Trace>,
    /// Instruments that measure time, each in guests of its own.
    pub timed: Vec<TimingSpec>,
    /// Maximum number of packets per second; not with counted instructions.
    pub rate_pps: Option<u32>,
    /// Whether packets are sent without waiting for each other; not with counted instructions.
    pub stream: bool,
    /// Duration of a timed block; if absent, it ends after a number of packets.
    pub block_ns: Option<u64>,
    /// Whether to repeat every block of the first of these without it.
    pub measure_cost: bool,
    /// Duration of a long run, in which each arm has a guest that goes on, in rounds of the plan's
    /// blocks; only with instruments that count.
    pub long: Option<Duration>,
}

impl GuestRun {
    /// How many random seeds each arm is run with unless that is said: three where kernels are compared, of which each
    /// has its data elsewhere. A single seed can't tell that from a change of the code.
    pub fn default_seeds(&self) -> u32 {
        const SEEDS: usize = 3;
        let arms = &self.plan.arms;
        let kernels: BTreeSet<Option<&str>> = arms.iter().map(|arm| arm.level("kernel")).collect();
        let counts_alone = self.exact
            && self.timed.is_empty()
            && self.sampling.is_none()
            && self.trace.is_none()
            && self.long.is_none()
            && self.plan.scan.is_none();
        let is_free = !arms.iter().any(|arm| arm.knobs.contains_key("seed"));
        let has_room = arms.len().saturating_mul(SEEDS) <= MAX_ARMS;
        match counts_alone && is_free && has_room && kernels.len() > 1 {
            true => SEEDS as u32,
            false => 1,
        }
    }

    /// A run that only counts instructions.
    pub fn exact(plan: Plan) -> GuestRun {
        GuestRun {
            plan,
            exact: true,
            sampling: None,
            trace: None,
            timed: Vec::new(),
            rate_pps: None,
            stream: false,
            block_ns: None,
            measure_cost: false,
            long: None,
        }
    }

    /// Those of its instruments that the plugin's stream gives.
    fn counted(&self) -> Vec<&str> {
        let exact = self.exact.then_some(INSTRUCTIONS.instrument);
        let samples = self.sampling.as_ref().map(|_| SAMPLED.instrument);
        exact.into_iter().chain(samples).collect()
    }

    /// The instruments, by their numbers in turns: those that have a turn together are named by
    /// the first.
    fn names(&self) -> Vec<&str> {
        let timed = self.timed.iter().map(|spec| spec.instrument.as_str());
        self.counted().into_iter().take(1).chain(timed).collect()
    }

    /// Whether this instrument's blocks are paired with blocks without: those of one instrument for
    /// each arm.
    fn is_beside_bare(&self, by: usize) -> bool {
        let first = usize::from(!self.counted().is_empty());
        self.measure_cost && by == first && self.spec(by).is_some()
    }

    /// The settings of an instrument, by number; none for those that the plugin serves.
    fn spec(&self, by: usize) -> Option<&TimingSpec> {
        let at = by.checked_sub(usize::from(!self.counted().is_empty()))?;
        self.timed.get(at)
    }
}

/// Run in guests. What was measured before an error is in the recording. Arms that are in the
/// recording already are not run again.
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
            extras::idle(recording, arm, load(run.stream), extras::GUEST_CPUS);
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
    let mut index = Index::of(recording);
    thread::scope(|scope| {
        let mut site = Guests {
            // In real time, guests that run in parallel would disturb each other.
            at_once: match options.quick && !run.timed.is_empty() {
                true => 1,
                // Guests that go on do so together.
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

#[cfg(test)]
mod tests {
    use netplumb_model::experiment::Experiment;

    use super::*;

    fn run(rest: &str) -> GuestRun {
        let text = format!("name = \"x\"\n{rest}");
        GuestRun::exact(Plan::of(&Experiment::parse(&text).unwrap()))
    }

    /// Check that arms have three random seeds where kernels are compared by their counts alone, and otherwise one.
    #[test]
    fn seeds_by_default() {
        const TWO: &str = "[vary]\nkernel = [\"debian:6.1.0-54\", \"debian:6.1.0-56\"]\n";
        assert_eq!(run(TWO).default_seeds(), 3);
        assert_eq!(run("[vary]\nproto = [\"udp\", \"tcp\"]\n").default_seeds(), 1);
        assert_eq!(run("[knobs]\nkernel = \"debian\"\n").default_seeds(), 1);
        assert_eq!(run(&format!("{TWO}seed = [1, 7]\n")).default_seeds(), 1);
        let mut timed = run(TWO);
        timed.exact = false;
        assert_eq!(timed.default_seeds(), 1);
        let mut long = run(TWO);
        long.long = Some(Duration::from_secs(1));
        assert_eq!(long.default_seeds(), 1);
        let mut many = run(TWO);
        let arms = many.plan.arms.clone();
        many.plan.arms = arms.into_iter().cycle().take(MAX_ARMS / 3 + 1).collect();
        assert_eq!(many.default_seeds(), 1);
        many.plan.arms.pop();
        assert_eq!(many.default_seeds(), 3);
    }
}
