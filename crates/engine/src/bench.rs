//! Benches: packet rates by data path.
//!
//! Each block has its own topology: namespaces joined by veth, the path set up in one of them, a
//! generator in another, and for forwarding a sink at the far end. Packets run, and the rate is
//! measured over a window. Then the generator stops, and when the topology is quiet, every packet
//! must be accounted for.
//!
//! Everything for one block is in `netplumb_agent::bench`. `explain.rs` counts instructions along the same paths,
//! `beside.rs` samples CPU time.

mod beside;
mod explain;
mod guest;
mod search;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use netplumb_agent::bench::block::{self, BlockResult};
use netplumb_agent::bench::{Nics, Own, ground};
use netplumb_agent::facts;
use netplumb_instruments::registry::BESIDE_RATES;
use netplumb_lab::cancel::Cancel;
use netplumb_model::bench::{
    Bench, BenchArm, BlockRates, Fault, Frames, Limit, Offered, quantities, rate_word,
};
use netplumb_model::class::Link;
use netplumb_model::experiment::Lab;
use netplumb_model::recording::{Arm, Block, Recording, env};
use netplumb_model::text::counted;

use crate::error::EngineError;
use crate::index::Index;
use crate::outside::clean_up;
use crate::run::Save;
use crate::schedule::{Turn, interleaved, whole};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use guest::InGuest;

pub use beside::BesidePlan;
pub use explain::{ExplainPlan, explain};
pub use guest::GuestLab;

/// The plan of a bench.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// The arms as the lab runs them: data path, frames, load.
    pub arms: Vec<BenchArm>,
    /// The same arms with their names, as the recording has them.
    pub named: Vec<Arm>,
    /// Blocks of each.
    pub blocks: u32,
    /// Duration of a block's window.
    pub window: Duration,
    /// Warm-up time.
    pub warmup: Duration,
    /// Whether to search for the highest rate without loss, for each arm; the window is then the
    /// longest trial.
    pub search: bool,
    /// Interfaces of this machine to run on; none for namespaces joined by veth.
    pub nics: Option<Nics>,
}

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct BenchOptions<'a> {
    /// Set to stop the run.
    pub cancel: &'a Cancel,
    /// Seed of the order of blocks.
    pub seed: u64,
    /// The guest to run in; none for this machine.
    pub guest: Option<&'a GuestLab<'a>>,
    /// Additional blocks that show where CPU time goes; not in a guest, whose clock does not
    /// measure time.
    pub beside: Option<BesidePlan<'a>>,
}

/// Progress of a run.
#[derive(Debug)]
pub enum BenchEvent<'a> {
    /// A message for the user.
    Note(String),
    /// The current step, for progress output.
    Step(String),
    /// A block is complete: the recording with it, the number of blocks done, and the total.
    Block(&'a Recording, u32, u32),
}

/// Receives events.
pub type OnBenchEvent<'a> = &'a mut dyn FnMut(BenchEvent<'_>);

/// Run a bench. Results from before an error are in the recording. A path that is not supported has
/// no blocks, and a note with the reason.
///
/// # Errors
/// See [`EngineError`].
pub fn run_bench(
    plan: &BenchPlan,
    options: &BenchOptions<'_>,
    recording: &mut Recording,
    save: Save<'_>,
    tell: OnBenchEvent<'_>,
) -> Result<(), EngineError> {
    recording.complete = false;
    // First clean up after killed runs.
    clean_up(&mut |note| tell(BenchEvent::Note(note)));
    tell(BenchEvent::Step("setting up".into()));
    let own = match &plan.nics {
        Some(nics) => Some(Own::begin(nics, &plan.arms)?),
        None => None,
    };
    for (key, value) in [
        (env::CLOCK, RATES.to_string()),
        (env::UNIT, "packets".to_string()),
        (env::LAB, if own.is_some() { Lab::Host } else { Lab::Netns }.to_string()),
        ("bench.setting", setting(plan, options.guest.map(|lab| lab.link))),
    ] {
        recording.environment.insert(key.into(), value);
    }
    let guest = match options.guest {
        Some(lab) => {
            let forward = plan.arms.iter().any(|arm| arm.bench == Bench::Forward);
            let (guest, facts) = InGuest::start(lab, forward)?;
            recording.environment.extend(facts);
            Some(guest)
        }
        None => {
            let all = &mut recording.environment;
            all.insert("machine.cpus".into(), ground::online()?.len().to_string());
            all.extend(facts::machine());
            all.extend(netplumb_instruments::rates::cpu::facts());
            None
        }
    };
    tell(BenchEvent::Step("measuring".into()));
    recording.arms = plan.named.clone();
    if let Some(nics) = &plan.nics {
        let chain = nics.chain_text();
        for arm in &mut recording.arms {
            arm.knobs.insert("nics".into(), chain.clone());
        }
        recording.environment.insert(env::NICS.into(), chain);
    }
    save(recording).map_err(EngineError::Save)?;
    let tell = RefCell::new(tell);
    let mut index = Index::from_recording(recording);
    let mut keeper = Keeper::new(recording, save, options.cancel);
    let arms = plan.arms.len();
    let mut site = OneAtATime::new(Run {
        plan,
        options,
        own: own.as_ref(),
        tell: &tell,
        limits: BTreeMap::new(),
        absent: BTreeSet::new(),
        diagnosed: BTreeSet::new(),
        guest,
        index: &mut index,
    });
    let mut turns = match plan.search {
        true => whole(arms, 1, 0..1),
        false => interleaved(arms, 1, 0..plan.blocks, options.seed).collect(),
    };
    if let (Some(beside), None) = (options.beside, &site.site.guest) {
        let others = interleaved(arms, 1, 0..beside.blocks, options.seed);
        turns.extend(others.map(|turn| Turn { by: BESIDE, ..turn }));
    }
    let all = turns.iter().map(|turn| turn.blocks.len() as u32).sum();
    let names = [RATES, BESIDE_RATES.name()];
    let result = site::run(&mut site, turns, &names, &mut keeper, &mut |recording, over| {
        (tell.borrow_mut())(BenchEvent::Block(recording, over, all));
    });
    drop(site);
    let result = result.and_then(|()| {
        keeper.recording.complete = true;
        keeper.keep()
    });
    let ended = own.map_or(Ok(()), Own::end);
    if let (Err(_), Err(error)) = (&result, &ended) {
        (tell.borrow_mut())(BenchEvent::Note(error.to_string()));
    }
    result?;
    Ok(ended?)
}

/// The settings that all arms share, in words.
fn setting(plan: &BenchPlan, guest: Option<Link>) -> String {
    let Some(first) = plan.arms.first() else {
        return String::new();
    };
    let mut words = Vec::new();
    let common = |same: &dyn Fn(&BenchArm) -> bool| plan.arms.iter().all(same);
    if common(&|a| a.bench == first.bench) {
        words.push(first.bench.to_string());
    }
    let Frames { kind, family, size, flows } = first.frames;
    if common(&|a| a.frames.size == size) {
        words.push(format!("frames of {size} bytes"));
    }
    words.push(format!("{kind} over {family}"));
    if common(&|a| a.frames.flows == flows) {
        words.push(counted(flows as usize, "flow"));
    }
    if common(&|a| a.cores == first.cores) {
        words.push(counted(first.cores as usize, "core"));
    }
    if common(&|a| a.offered == first.offered) {
        words.push(match rate_word(first.offered).as_str() {
            "max" => "as fast as it goes".into(),
            rate => format!("{rate} packets/s offered"),
        });
    }
    words.push(match (&plan.nics, guest) {
        (Some(nics), _) => format!("interfaces of this machine ({})", nics.chain_text()),
        (None, Some(link)) if link != Link::Veth => format!("emulated NICs ({link})"),
        _ => "veth between namespaces".into(),
    });
    if guest.is_some() {
        words.push("in a guest without KVM: compare within it only".into());
    }
    if common(&|a| a.apart == first.apart) {
        words.push(match first.apart {
            true => "the path on CPUs of its own".into(),
            false => "generator and path on the same CPUs".into(),
        });
    }
    words.join(", ")
}

/// Arms with equal keys have the same generator, and the same limit.
fn limit_key(arm: &BenchArm) -> String {
    format!("{:?} {} {} {}", arm.frames, arm.cores, arm.batch, arm.apart)
}

/// The instrument's number, in turns, of blocks that show where CPU time goes.
const BESIDE: usize = 1;

/// The state of a run.
struct Run<'a, 't> {
    plan: &'a BenchPlan,
    options: &'a BenchOptions<'a>,
    /// The interfaces of this machine, if they are used.
    own: Option<&'a Own>,
    tell: &'a RefCell<OnBenchEvent<'t>>,
    /// Rates of the generator alone, by frames and number of CPUs.
    limits: BTreeMap<String, MeasuredLimit>,
    /// Arms that are not supported.
    absent: BTreeSet<usize>,
    /// Arms that were traced for missing packets.
    diagnosed: BTreeSet<usize>,
    /// The guest, if it runs in one.
    guest: Option<InGuest>,
    index: &'a mut Index,
}

impl Alone for Run<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        match turn.by {
            BESIDE => self.beside(turn, keeper.recording),
            _ if self.plan.search => self.search(turn.arm, keeper),
            _ => self.rates(turn, keeper.recording),
        }
    }
}

/// A measured rate of the generator alone.
#[derive(Debug, Clone, Copy)]
struct MeasuredLimit {
    limit: Limit,
    tries: u32,
}

/// The name of the instrument.
const RATES: &str = quantities::HANDLED.instrument;

/// How often a limit is measured if it is unknown, or a block exceeds it.
const LIMIT_TRIES: u32 = 3;

impl Run<'_, '_> {
    /// Run a block of rates.
    fn rates(&mut self, turn: &Turn, recording: &mut Recording) -> Result<Ended, EngineError> {
        let arm = self.plan.arms[turn.arm];
        match self.block(&arm)? {
            BlockResult::Measured(measured, facts) => {
                add_facts(recording, facts);
                self.check_limit(&arm, &measured);
                let invalid = measured.invalid();
                add(recording, turn.arm, turn.blocks.start, &measured);
                if invalid.is_some() && self.diagnosed.insert(turn.arm) {
                    let found = self.diagnose(&arm)?;
                    recording.notes_of(turn.arm).diagnosis = Some(found);
                }
                Ok(Ended::Measured)
            }
            BlockResult::CannotHere(why) => {
                self.absent.insert(turn.arm);
                Ok(Ended::CannotHere(why))
            }
        }
    }

    /// The rate of the generator alone, for an arm's frames and number of CPUs; or why the guest
    /// can't measure it.
    fn limit(&mut self, arm: &BenchArm) -> Result<Result<Limit, String>, EngineError> {
        let key = limit_key(arm);
        let tries = match self.limits.get(&key) {
            Some(found) if found.limit != Limit::Unknown || found.tries >= LIMIT_TRIES => {
                return Ok(Ok(found.limit));
            }
            found => found.map_or(0, |found| found.tries),
        };
        let limit = match &mut self.guest {
            Some(guest) => match guest.limit(arm)? {
                Ok(limit) => limit,
                Err(why) => return Ok(Err(why)),
            },
            None => block::calibrate_for(arm)?,
        };
        let tries = tries + 1;
        self.limits.insert(key, MeasuredLimit { limit, tries });
        Ok(Ok(limit))
    }

    /// A block faster than the generator alone shows that the generator was slowed down while it
    /// was measured: measure it again before the next block.
    fn check_limit(&mut self, arm: &BenchArm, measured: &BlockRates) {
        if let Some(found) = self.limits.get_mut(&limit_key(arm)) {
            found.limit = found.limit.beside(measured.handled_pps());
        }
    }

    /// Whether packets run over NICs, of this machine or of a guest.
    fn has_nics(&self) -> bool {
        let emulated = self.options.guest.is_some_and(|lab| lab.link != Link::Veth);
        self.own.is_some() || emulated
    }
}

impl Run<'_, '_> {
    /// Set up, measure, and tear down.
    fn block(&mut self, arm: &BenchArm) -> Result<BlockResult, EngineError> {
        self.block_of(arm, self.plan.window)
    }

    /// The same with a window of this length.
    fn block_of(&mut self, arm: &BenchArm, window: Duration) -> Result<BlockResult, EngineError> {
        let fault = arm.planted.fault;
        let several = (fault == Some(Fault::Mtu) && arm.multi_buffer)
            .then_some("its program supports multi-buffer frames");
        if let Some(why) = several.or_else(|| fault.and_then(|f| f.spares(arm.bench, arm.path))) {
            return Ok(BlockResult::CannotHere(format!(
                "the fault has no effect on {}: {why}",
                arm.path
            )));
        }
        let limit = match (arm.offered, self.has_nics()) {
            (Offered::Most, false) => match self.limit(arm)? {
                Ok(limit) => limit,
                Err(why) => return Ok(BlockResult::CannotHere(why)),
            },
            _ => Limit::NotAsked,
        };
        let times = [window, self.plan.warmup];
        match &mut self.guest {
            Some(guest) => guest.block(arm, times, limit),
            None => Ok(block::measure(arm, self.own, times, limit, self.options.cancel)?),
        }
    }

    /// Run again, and trace where packets go.
    fn diagnose(&mut self, arm: &BenchArm) -> Result<String, EngineError> {
        match &mut self.guest {
            Some(guest) => guest.diagnose(arm),
            None => Ok(block::diagnose(arm, self.own, self.options.cancel)?),
        }
    }
}

/// Add a block of rates.
fn add(recording: &mut Recording, arm: usize, index: u32, measured: &BlockRates) {
    recording.blocks.push(Block {
        arm: arm as u32,
        instrument: RATES.into(),
        index,
        ledger: measured.ledger(),
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: measured.window_ns,
    });
    let block = recording.blocks.len() as u32 - 1;
    measured.add_to(recording, block);
}

/// Add facts about the set-up, from the first block that has them.
fn add_facts(recording: &mut Recording, facts: BTreeMap<String, String>) {
    for (key, value) in facts {
        recording.environment.entry(key).or_insert(value);
    }
}
