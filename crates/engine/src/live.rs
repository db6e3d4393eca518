//! Runs on this machine with an instrument that measures time: packets between namespaces, or the
//! machine's own traffic.
//!
//! A block is one window of the instrument. Its results are in the recording, and saved, before the
//! next one begins.
//!
//! `plan.rs`: plans. `packets.rs`: namespaces. `traffic.rs`: packets of other programs or of a command. `work.rs`:
//! windows of samples or counts; `runs.rs`: whole runs of a command. `machine.rs` sets knobs of this machine around
//! each run, `tuned.rs` is for `plumb tune`.

mod child;
mod lines;
mod machine;
mod packets;
mod plan;
mod runs;
mod traffic;
mod tuned;
mod work;

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use netplumb_instruments::live::{Live, LiveError};
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::process::VmError;
use netplumb_model::message::Exit;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{Attached, TimingSpec, Window};

pub use crate::outside::{PROBES_OFF, clean_up};

pub use machine::Change;
pub use plan::{Length, LivePlan, PacketPlan, RunsArm, RunsPlan, Source, TrafficPlan, WorkPlan};
pub use tuned::{NicBlock, NicRuns, keep, record_nic, run_with_nic, try_changes};

use crate::error::EngineError;
use crate::gather::Gatherer;
use crate::index::{Index, bounded};
use crate::long::{self, Long, Pace};
use crate::run::{Save, note_instrument};
use crate::site::{Keeper, failed};

/// The lab of packets that plumb sends: `netns`.
pub const LAB_NETNS: &str = "netns";
/// The lab of other traffic: `host`.
pub const LAB_HOST: &str = "host";

/// Attaches an instrument; returns its name, which it may choose.
pub type Attach<'a> = &'a dyn Fn(&TimingSpec) -> Result<(&'static str, Box<dyn Live>), LiveError>;

/// Options of a run.
#[derive(Clone, Copy)]
pub struct LiveOptions<'a> {
    /// The rules for layers.
    pub layers: &'a LayerRules,
    /// Attaches the instrument.
    pub attach: Attach<'a>,
    /// Set to stop the run.
    pub cancel: &'a Cancel,
    /// Seed of the order of blocks.
    pub seed: u64,
}

impl std::fmt::Debug for LiveOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveOptions").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Progress of a run.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// A message for the user.
    Note(String),
    /// The current step, for progress output.
    Step(String),
    /// Namespaces are set up: the prefix of their names.
    Named(&'a str),
    /// The instrument is attached.
    Attached(&'a Attached),
    /// A block is complete: the recording with it, the number of blocks done, and the total, if it
    /// is known.
    Block(&'a Recording, u32, Option<u32>),
    /// The progress of a long run.
    Passed(&'a Recording, Pace),
}

/// Receives events.
pub type OnLiveEvent<'a> = &'a mut dyn FnMut(LiveEvent<'_>);

/// How a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveEnd {
    /// How the command exited, if there was one.
    pub command: Option<Exit>,
    /// Whether it was killed: at the end of the duration, or since it went on after an interruption.
    pub stopped: bool,
    /// Whether it was interrupted by the user.
    pub interrupted: bool,
}

/// Run a plan. Results from before an error are in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_live(
    plan: &LivePlan,
    options: &LiveOptions<'_>,
    recording: &mut Recording,
    save: Save<'_>,
    tell: OnLiveEvent<'_>,
) -> Result<LiveEnd, EngineError> {
    let names: Vec<&str> = plan.specs.iter().map(|s| s.instrument.as_str()).collect();
    match &plan.source {
        Source::Packets(packets) if packets.long.is_some() => {
            long::take_up(recording, Some(&packets.all_arms()), &names)?;
        }
        Source::Traffic(TrafficPlan { long: true, .. }) => {
            long::take_up(recording, None, &names)?;
        }
        _ => {}
    }
    recording.complete = false;
    let lab = match &plan.source {
        Source::Traffic(TrafficPlan { within: None, .. }) | Source::Work(_) => LAB_HOST,
        _ => LAB_NETNS,
    };
    let first = plan.specs.first().map(|spec| spec.instrument.as_str());
    note_instrument(recording, first.unwrap_or_default(), false);
    recording.environment.insert(env::LAB.into(), lab.into());
    recording.environment.extend(netplumb_agent::facts::machine());
    // First clean up after killed runs.
    clean_up(&mut |note| tell(LiveEvent::Note(note)));
    save(recording).map_err(EngineError::Save)?;
    let tell = RefCell::new(tell);
    let probes = Probes {
        specs: &plan.specs,
        options,
        tell: &tell,
        index: Index::from_recording(recording),
        attached: None,
    };
    let clock = long::clock();
    let whole = match &plan.source {
        Source::Packets(packets) => packets.long.map(Some),
        Source::Traffic(traffic) => traffic.long.then_some(traffic.duration),
        Source::Work(_) => None,
    };
    let long = whole.map(|whole| Long::begin(whole, &clock, recording));
    let mut keeper = Keeper::new(recording, save, options.cancel).with_long(long);
    let end = match &plan.source {
        Source::Packets(packets) => packets::run(packets, probes, &mut keeper),
        Source::Traffic(traffic) => traffic::run(traffic, probes, &mut keeper),
        Source::Work(work) => match &work.runs {
            Some(runs) => runs::run(work, runs, probes, &mut keeper),
            None => work::run(work, probes, &mut keeper),
        },
    }?;
    keeper.recording.complete = true;
    keeper.keep()?;
    failed(keeper.recording)?;
    Ok(end)
}

/// The instruments of a run; one is attached at a time.
struct Probes<'a, 't> {
    /// Their settings, by their numbers in turns.
    specs: &'a [TimingSpec],
    options: &'a LiveOptions<'a>,
    tell: &'a RefCell<OnLiveEvent<'t>>,
    index: Index,
    attached: Option<Probe>,
}

/// An attached instrument.
struct Probe {
    by: usize,
    name: &'static str,
    live: Box<dyn Live>,
    gatherer: Gatherer,
}

impl Probes<'_, '_> {
    /// The names of instruments, by their numbers in turns; the chosen one for `auto`.
    fn names(&self) -> Vec<&str> {
        let names = self.specs.iter().map(|spec| spec.instrument.as_str());
        names.collect()
    }

    /// Attach the instrument of this number, or none, in place of the current one.
    fn attach(
        &mut self,
        by: Option<usize>,
        spec_of: &dyn Fn(&TimingSpec) -> TimingSpec,
        recording: &mut Recording,
    ) -> Result<(), EngineError> {
        if self.attached.as_ref().map(|probe| probe.by) == by {
            return Ok(());
        }
        // Detach first.
        self.attached = None;
        let Some((by, spec)) = by.and_then(|by| Some((by, self.specs.get(by)?))) else {
            return Ok(());
        };
        let step = format!("attaching instrument {}", spec.instrument);
        (self.tell.borrow_mut())(LiveEvent::Step(step));
        let attached = (self.options.attach)(&spec_of(spec));
        // Attaching takes up to seconds: begin nothing after a cancellation.
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(VmError::Interrupted.into());
        }
        let (name, live) = attached?;
        if by == 0 {
            recording.environment.insert(env::CLOCK.into(), name.into());
        }
        (self.tell.borrow_mut())(LiveEvent::Attached(live.attached()));
        let (index, layers) = (&mut self.index, self.options.layers);
        let gatherer = Gatherer::new(name, recording, index, layers, live.attached());
        self.attached = Some(Probe { by, name, live, gatherer });
        Ok(())
    }

    /// The name of the attached instrument; empty if there is none.
    fn name(&self) -> &'static str {
        self.attached.as_ref().map_or("", |probe| probe.name)
    }

    fn open(&mut self) -> Result<(), EngineError> {
        match &mut self.attached {
            Some(probe) => Ok(probe.live.open()?),
            None => Ok(()),
        }
    }

    fn close(&mut self) -> Result<Option<Window>, EngineError> {
        match &mut self.attached {
            Some(probe) => Ok(Some(probe.live.close()?)),
            None => Ok(None),
        }
    }

    /// Read data that can't wait until the window is closed.
    fn poll(&mut self) -> Result<(), EngineError> {
        match &mut self.attached {
            Some(probe) => Ok(probe.live.poll()?),
            None => Ok(()),
        }
    }

    /// Close the window and open the next one.
    fn turn(&mut self) -> Result<Option<Window>, EngineError> {
        match &mut self.attached {
            Some(probe) => Ok(Some(probe.live.turn()?)),
            None => Ok(None),
        }
    }

    /// Forget an instrument's state of earlier windows, after the recording has.
    fn forget(&mut self, recording: &Recording) {
        self.index = Index::from_recording(recording);
        if let Some(probe) = &mut self.attached {
            probe.live.forget();
        }
    }

    /// Give functions the names that were found out late.
    fn name_late(&mut self, recording: &mut Recording) {
        let late = match &mut self.attached {
            Some(probe) => probe.live.late_names(),
            None => Vec::new(),
        };
        let late = late.into_iter();
        let late = late.map(|(was, is)| ((was.name, was.module), (bounded(is.name), is.module)));
        if recording.rename(&late.collect()) {
            self.index = Index::from_recording(recording);
        }
    }

    /// Find the source lines of measured functions.
    fn add_lines(&mut self, recording: &mut Recording, go_on: &dyn Fn() -> bool) {
        if let Some(probe) = &mut self.attached {
            let found = probe.live.lines(go_on);
            lines::add(recording, &self.index, probe.name, &found);
        }
    }

    fn gather(&mut self, recording: &mut Recording, blocks: &[u32], window: &Window) {
        if let Some(probe) = &mut self.attached {
            let index = &mut self.index;
            probe.gatherer.add(recording, index, blocks, window);
        }
    }
}

/// A random seed.
pub fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(1, |d| d.as_nanos() as u64);
    now_ns ^ u64::from(std::process::id()) << 32
}
