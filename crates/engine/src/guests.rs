//! Packets in guests: every arm in a guest of its own, from one saved state, so that arms don't
//! affect each other; counted by the plugin, or timed by an instrument. Several instruments have a
//! guest each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use netplumb_instruments::exact::Sampling;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};
use netplumb_lab::vm::process::Extra;
use netplumb_model::class::Family;
use netplumb_model::experiment::{Load, Trace};
use netplumb_model::message::{Reply, Request, RunPlan, TimedBlock};
use netplumb_model::quantity::Of;
use netplumb_model::recording::{Arm, Block, Recording, env};
use netplumb_model::timing::{INSTRUCTIONS, QEMU_PEAK, SAMPLED, TimingSpec};

use crate::collect::{Executed, Translation};
use crate::debug_info::Lookup;
use crate::error::EngineError;
use crate::extras;
use crate::gather::Gatherer;
use crate::index::Index;
use crate::kernel_lines::KernelLines;
use crate::kinds::{WindowOf, add_kinds, check_pairs};
use crate::long::{self, Long};
use crate::measure::{Beside, Measured, measure, measure_on};
use crate::origin::{self, Boot, Origin};
use crate::outside::{load, without_probes};
use crate::plan::Plan;
use crate::prototypes::Known;
use crate::run::{
    Options, Progress, Save, add_losses, note_arch, note_clock, note_instrument, note_machine,
};
use crate::schedule::{Turn, whole};
use crate::site::{self, Ended, Keeper, Site, take_up};
use crate::traces;

/// How often the rounds of a long run are saved.
const KEPT_EVERY: Duration = Duration::from_secs(1);

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
    let store = KernelStore::new(&options.cache);
    let plan = &crate::scan::planned(&run.plan, &store, options, recording, progress)?;
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
    note_instrument(
        recording,
        names.first().copied().unwrap_or_default(),
        counts,
    );

    let guests = plan.guests();
    // Looked up before the first boot, so that a wrong name is an error at once.
    let kernels: Vec<KernelEntry> = guests
        .iter()
        .map(|guest| guest.kernel_in(&store))
        .collect::<Result<_, _>>()?;
    for (guest, kernel) in guests.iter().zip(&kernels) {
        extras::check(kernel, guest, options, progress)?;
        origin::check(options, kernel.arch)?;
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
            boot: Boot {
                guest,
                kernel,
                options,
            },
            origins: Mutex::default(),
        })
        .collect();
    // Arms ordered by the guests that they share.
    let order: Vec<usize> = (groups.iter())
        .flat_map(|group| group.boot.guest.arms.iter().copied())
        .collect();
    let turns = whole(order.len(), names.len(), 0..plan.blocks);
    let turns = turns.into_iter().map(|turn| Turn {
        arm: order[turn.arm],
        ..turn
    });
    let turns: Vec<Turn> = turns.filter(|t| !done.contains(&(t.arm, t.by))).collect();
    let clock = long::clock();
    let long = run
        .long
        .map(|whole| Long::begin(Some(whole), &clock, recording));
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
        check_pairs(keeper.recording, &names)
    })
}

/// The arms of one boot.
struct Group<'a> {
    boot: Boot<'a>,
    /// Their origins, by what is prepared.
    origins: Mutex<Vec<Arc<Origin>>>,
}

impl Group<'_> {
    /// Created on first use; others wait for it.
    fn origin(
        &self,
        plan: &RunPlan,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Arc<Origin>, EngineError> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = origins.iter().find(|o| o.is_for(plan)) {
            return Ok(Arc::clone(origin));
        }
        let new = Arc::new(self.boot.origin(plan, &|event| progress(event))?);
        origins.push(Arc::clone(&new));
        Ok(new)
    }
}

/// Shared by all turns.
struct Shared<'a> {
    run: &'a GuestRun,
    /// The plan, including the arms of a scan.
    plan: &'a Plan,
    options: &'a Options,
    groups: &'a [Group<'a>],
    /// Total number of blocks.
    all: u32,
    over: AtomicU32,
    progress: &'a (dyn Fn(Progress) + Sync),
    /// Of a long run.
    long: Option<Long<'a>>,
    /// Of a long run, the number of each arm's first block.
    first: Vec<u32>,
    /// Whether guests that go on are to stop, since one has failed.
    stop: AtomicBool,
}

/// What a thread sends.
enum News {
    /// A round of a guest that goes on.
    Round {
        turn: Turn,
        first: bool,
        origin: Arc<Origin>,
        measured: Box<Measured>,
    },
    /// The end of a turn.
    Over(Ran),
}

/// The result of a turn.
struct Ran {
    turn: Turn,
    /// Whether the guest's facts are those of the recording; facts of other kernels are notes on
    /// their arms.
    first: bool,
    result: Result<(Arc<Origin>, Seen), EngineError>,
}

/// The results of an arm.
enum Seen {
    /// Its instructions.
    Counted(Box<Measured>),
    /// Nothing more: its rounds were sent before.
    InRounds,
    /// The guest's replies about its blocks, up to an error.
    Timed(Vec<Reply>, Option<EngineError>),
}

impl Shared<'_> {
    fn group(&self, arm: usize) -> Option<&Group<'_>> {
        let has = |group: &&Group<'_>| group.boot.guest.arms.contains(&arm);
        self.groups.iter().find(has)
    }

    fn one_over(&self) {
        let over = self.over.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(Progress::Blocks(over.min(self.all), self.all));
    }

    /// Run a guest that goes on until the time is over.
    fn go_on(
        &self,
        turn: &Turn,
        first: bool,
        origin: &Arc<Origin>,
        plan: &RunPlan,
        sender: &SyncSender<News>,
    ) -> Result<(), EngineError> {
        let is_over = || self.long.is_none_or(|long| long.is_over());
        let mut next = self.first.get(turn.arm).copied().unwrap_or(0);
        // One round there is, however long the guest took to start.
        if next > 0 && is_over() {
            return Ok(());
        }
        let sampling = self.run.sampling.as_ref();
        let sampling = sampling.map(|sampling| sampling.from_block(next));
        let outcome = measure_on(
            origin,
            plan,
            sampling.as_ref(),
            self.options,
            &mut |measured| {
                let begin = next;
                next += measured.blocks.len() as u32;
                let round = News::Round {
                    turn: Turn {
                        blocks: begin..next,
                        ..turn.clone()
                    },
                    first: first && begin == 0,
                    origin: Arc::clone(origin),
                    measured: Box::new(measured),
                };
                sender.send(round).is_ok() && !is_over() && !self.stop.load(Ordering::Relaxed)
            },
        );
        if outcome.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn one(
        &self,
        turn: &Turn,
        first: bool,
        sender: &SyncSender<News>,
    ) -> Result<(Arc<Origin>, Seen), EngineError> {
        let arm = &self.plan.arms[turn.arm];
        let spec = self.run.spec(turn.by);
        let plan = self.plan.run_plan(arm);
        let plan = match spec {
            None => RunPlan {
                aligned: !self.options.quick,
                ..plan
            },
            Some(_) => RunPlan {
                aligned: false,
                rate_pps: self.run.rate_pps,
                stream: self.run.stream,
                block_ns: self.run.block_ns,
                ..plan
            },
        };
        let group = self
            .group(turn.arm)
            .ok_or(EngineError::OtherPlan("other arms"))?;
        let origin = group.origin(&plan, self.progress)?;
        (self.progress)(Progress::Arm(arm.name.clone()));
        let seen = match spec {
            None if self.long.is_some() => {
                self.go_on(turn, first, &origin, &plan, sender)?;
                Seen::InRounds
            }
            None => {
                let known = match &self.run.trace {
                    Some(_) => {
                        let (kernel, guest) = (group.boot.kernel, group.boot.guest);
                        let (tree, _) = extras::module_tree(kernel, guest)?;
                        Some(Known::of(kernel, tree, &self.options.cancel))
                    }
                    None => None,
                };
                let beside = Beside {
                    sampling: self.run.sampling.as_ref(),
                    trace: self.run.trace.as_ref(),
                    known: known.as_ref(),
                };
                let done = || self.one_over();
                let measured = measure(&origin, &plan, beside, self.options, &done);
                Seen::Counted(Box::new(measured))
            }
            Some(spec) => {
                let mut told = Vec::new();
                let bare = self.run.is_beside_bare(turn.by);
                let error = self.time(&origin, spec, plan, bare, &mut told).err();
                Seen::Timed(told, error)
            }
        };
        Ok((origin, seen))
    }

    /// Run a guest without a plugin, whose agent times the blocks.
    fn time(
        &self,
        origin: &Origin,
        spec: &TimingSpec,
        plan: RunPlan,
        bare: bool,
        told: &mut Vec<Reply>,
    ) -> Result<(), EngineError> {
        let request = Request::Time {
            spec: spec.clone(),
            plan,
            bare,
        };
        let mut machine = origin.start(&[request], Extra::default(), self.options)?;
        machine.go_on()?;
        machine.answers(self.options.timeout, |reply| {
            if let Reply::TimedBlock(_) = reply {
                self.one_over();
            }
            told.push(reply);
            Ok(())
        })?;
        Ok(())
    }
}

/// The site: guests, in parallel up to the number of jobs.
struct Guests<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared<'env>,
    at_once: usize,
    channel: (SyncSender<News>, Receiver<News>),
    begun: usize,
    /// When a round was saved last.
    kept: Instant,
    lines: KernelLines,
    index: &'a mut Index,
}

impl Site for Guests<'_, '_, '_> {
    fn at_once(&self) -> usize {
        self.at_once
    }

    /// QEMU is killed when the thread that started it ends, so the thread stays until the turn is
    /// over.
    fn begin(&mut self, turn: Turn) {
        let first = self.begun == 0;
        self.begun += 1;
        let (sender, shared) = (self.channel.0.clone(), self.shared);
        self.scope.spawn(move || {
            let result = shared.one(&turn, first, &sender);
            // There is no receiver if the run has panicked.
            let _ = sender.send(News::Over(Ran {
                turn,
                first,
                result,
            }));
        });
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        let mut unsaved = None;
        let ran = loop {
            // INVARIANT: this side of the channel has a sender, so that it is never closed.
            #[allow(clippy::expect_used)]
            match self.channel.1.recv().expect("a turn is under way") {
                News::Over(ran) => break ran,
                // Those of others are taken, so that they can end.
                News::Round { .. } if unsaved.is_some() => {}
                News::Round {
                    turn,
                    first,
                    origin,
                    measured,
                } => {
                    let added = self.counted(&turn, first, &origin, *measured, keeper.recording);
                    let kept = added.and_then(|_| self.keep(keeper));
                    if kept.is_err() {
                        self.shared.stop.store(true, Ordering::Relaxed);
                    }
                    unsaved = kept.err();
                }
            }
        };
        if let Some(error) = unsaved {
            return (ran.turn, Err(error));
        }
        let merged = match ran.result {
            Ok((_, Seen::InRounds)) => Ok(Ended::Measured),
            Ok((origin, Seen::Counted(measured))) => {
                self.counted(&ran.turn, ran.first, &origin, *measured, keeper.recording)
            }
            Ok((origin, Seen::Timed(told, error))) => {
                self.timed(&ran.turn, ran.first, &origin, &told, keeper.recording);
                error.map_or(Ok(Ended::Measured), |error| self.ended_by(error))
            }
            Err(error) => Err(error),
        };
        (ran.turn, merged)
    }
}

impl Guests<'_, '_, '_> {
    /// Merge what a guest that goes on has measured, save it from time to time, and report it.
    fn keep(&mut self, keeper: &mut Keeper<'_>) -> Result<(), EngineError> {
        keeper.settle();
        if let Some(long) = keeper.long() {
            let latest = long::latest(keeper.recording);
            (self.shared.progress)(Progress::Passed(long.pace(), latest));
        }
        if self.kept.elapsed() < KEPT_EVERY {
            return Ok(());
        }
        self.kept = Instant::now();
        keeper.keep()
    }

    /// Add the counts of an arm.
    fn counted(
        &mut self,
        turn: &Turn,
        first: bool,
        origin: &Origin,
        measured: Measured,
        recording: &mut Recording,
    ) -> Result<Ended, EngineError> {
        let of_namespaces = |(key, _): &(String, String)| first || key.starts_with("net.");
        let facts = origin.facts.clone().into_iter().chain(measured.facts);
        recording.environment.extend(facts.filter(of_namespaces));
        let symbols = origin.table().or_else(|| measured.symbols.get());
        match first {
            true => forget_what_is_common(recording),
            false => extras::note(recording, turn.arm, &origin.facts),
        }
        extras::note(recording, turn.arm, &measured.notes);
        let options = self.shared.options;
        if let Some(symbols) = symbols {
            let executed = Executed {
                symbols,
                user: &[],
                nodes: &measured.nodes,
            };
            let windows = measured.blocks.iter().map(|(window, _)| window);
            let translation =
                Translation::add(recording, self.index, &executed, &options.layers, windows);
            let (run, arm) = (self.shared.run, turn.arm as u32);
            for (number, (window, ledger)) in turn.blocks.clone().zip(measured.blocks) {
                if let Some(sampling) = &run.sampling {
                    let at = (arm, number);
                    translation.add_samples(recording, self.index, at, &window, &ledger, sampling);
                }
                if run.exact {
                    translation.add_block(recording, arm, number, &window, ledger);
                    if let Some(traced) = &window.traced {
                        let known = run.trace.as_ref().is_some_and(|spec| spec.has_args());
                        let prototypes = known.then_some(&measured.prototypes);
                        traces::add(recording, &executed, &options.layers, traced, prototypes);
                    }
                }
            }
            if run.exact {
                let (insns, none) = (&measured.instructions, Lookup::default());
                translation.add_code(recording, arm, &executed, insns, &none);
                self.lines.add(recording, arm, &origin.booted(options));
            }
            extras::idle(recording, turn.arm, Load::OneAtATime, extras::GUEST_CPUS);
        }
        for instrument in self.shared.run.counted() {
            add_losses(recording, instrument, &measured.losses);
        }
        recording.set_most(&QEMU_PEAK, measured.qemu_peak_bytes as f64);
        (measured.error).map_or(Ok(Ended::Measured), |error| self.ended_by(error))
    }

    /// In a scan, a setting that breaks the path is a result.
    fn ended_by(&self, error: EngineError) -> Result<Ended, EngineError> {
        match self.shared.plan.scan.is_some() && error.is_the_guests() {
            true => Ok(Ended::CannotHere(extras::in_a_line(&error))),
            false => Err(error),
        }
    }

    /// Add the times of an arm.
    fn timed(
        &mut self,
        turn: &Turn,
        first: bool,
        origin: &Origin,
        told: &[Reply],
        recording: &mut Recording,
    ) {
        if first {
            recording.environment.extend(origin.facts.clone());
            forget_what_is_common(recording);
        } else {
            extras::note(recording, turn.arm, &origin.facts);
        }
        let Shared {
            run, plan, options, ..
        } = self.shared;
        let instrument = run.spec(turn.by).map_or("", |spec| &spec.instrument);
        let mut gatherer = None;
        for reply in told {
            match reply {
                Reply::Attached(attached) => {
                    let layers = &options.layers;
                    let new = Gatherer::new(instrument, recording, self.index, layers, attached);
                    gatherer = Some(new);
                }
                Reply::Facts(notes) => extras::note(recording, turn.arm, notes),
                Reply::TimedBlock(told) => {
                    let probed = told.window.is_some();
                    recording.blocks.push(Block {
                        arm: (turn.arm + if probed { 0 } else { plan.arms.len() }) as u32,
                        instrument: if probed {
                            instrument.into()
                        } else {
                            String::new()
                        },
                        index: told.index,
                        ledger: told.ledger.clone(),
                        totals: Vec::new(),
                        entered: 0,
                        returned: 0,
                        duration_ns: told.duration_ns,
                    });
                    let block = recording.blocks.len() as u32 - 1;
                    add_told(recording, self.index, gatherer.as_mut(), &[block], told);
                }
                _ => {}
            }
        }
    }
}

/// Arms that ended before the first one have notes on facts that are common to all.
fn forget_what_is_common(recording: &mut Recording) {
    for notes in recording.notes.values_mut() {
        let facts = &recording.environment;
        (notes.facts).retain(|key, value| facts.get(key) != Some(value));
    }
}

/// Add a guest's report of a block to the corresponding blocks of the recording.
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

/// Adds the windows of a command's runs in a guest as blocks.
#[derive(Debug)]
pub(crate) struct CommandWindows<'a> {
    /// The template of arms for its packets.
    like: &'a Arm,
    /// The arm itself, if the recording has it.
    arm: Option<u32>,
    /// The requested address family.
    family: Option<Family>,
    instrument: String,
    index: Index,
    gatherer: Option<Gatherer>,
}

impl<'a> CommandWindows<'a> {
    pub(crate) fn new(
        like: &'a Arm,
        arm: Option<u32>,
        spec: &TimingSpec,
        recording: &Recording,
    ) -> CommandWindows<'a> {
        CommandWindows {
            like,
            arm,
            family: spec.filter.family,
            instrument: spec.instrument.clone(),
            index: Index::of(recording),
            gatherer: None,
        }
    }

    /// Process a reply, if it is from the instrument.
    pub(crate) fn take(&mut self, recording: &mut Recording, layers: &LayerRules, reply: &Reply) {
        match reply {
            Reply::Attached(attached) => {
                let (by, index) = (&self.instrument, &mut self.index);
                let gatherer = Gatherer::new(by, recording, index, layers, attached);
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
                    arm: self.arm,
                };
                let blocks = add_kinds(recording, &of, window, number, ns);
                let gatherer = self.gatherer.as_mut();
                add_told(recording, &mut self.index, gatherer, &blocks, told);
            }
            _ => {}
        }
    }
}
