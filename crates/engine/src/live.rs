//! Runs under an instrument that reads a clock: packets between namespaces of this
//! machine, or whatever traffic it has.
//!
//! A block is one window of the instrument. What it saw is in the recording, and saved,
//! before the next one begins.

mod child;
mod packets;
mod traffic;

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netplumb_instruments::live::{Live, LiveError};
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::netns::names;
use netplumb_lab::vm::process::VmError;
use netplumb_model::message::Exit;
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::timing::{Attached, TimingSpec, Window};

pub use crate::outside::PROBES_OFF;

use crate::error::EngineError;
use crate::gather::Gatherer;
use crate::index::Index;
use crate::run::{Save, note_instrument};
use crate::site::Keeper;

/// Where packets of ours run: `netns`.
pub const LAB_NETNS: &str = "netns";
/// Where the machine's own run: `host`.
pub const LAB_HOST: &str = "host";

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct LivePlan {
    /// What each instrument is to do: one at least, and where it watches traffic of others, one
    /// alone.
    pub specs: Vec<TimingSpec>,
    /// What it is to watch.
    pub source: Source,
}

/// What makes the packets.
#[derive(Debug, Clone)]
pub enum Source {
    /// We do, between namespaces.
    Packets(PacketPlan),
    /// Somebody else does, for us to watch in windows.
    Traffic(TrafficPlan),
}

/// Packets of ours.
#[derive(Debug, Clone)]
pub struct PacketPlan {
    /// What is compared.
    pub arms: Vec<Arm>,
    /// Blocks of each.
    pub blocks: u32,
    /// How long a block goes on; if absent, it is over by packets.
    pub block: Option<Duration>,
    /// Packets in a block, if it is not over by time.
    pub packets: u32,
    /// Packets before an arm's first block, not measured.
    pub warmup_packets: u32,
    /// Packets a second, at most.
    pub rate_pps: Option<u32>,
    /// Whether they are sent without waiting for each other.
    pub stream: bool,
    /// Whether every arm is to be run without the instrument as well.
    pub measure_cost: bool,
}

/// Packets of others.
#[derive(Debug, Clone)]
pub struct TrafficPlan {
    /// How long in all; without, as long as the command runs.
    pub duration: Option<Duration>,
    /// How long one window is open.
    pub window: Duration,
    /// What runs meanwhile: its words.
    pub command: Vec<String>,
    /// Whether the command's standard output is to go to ours for errors.
    pub output_to_stderr: bool,
    /// Where it runs: between namespaces of ours as in this arm, or where we are.
    pub within: Option<Arm>,
    /// The device that is watched, which may go away.
    pub interface: Option<String>,
    /// The network namespace that is watched, which may go away.
    pub namespace: Option<String>,
}

/// Attaches an instrument; tells the name of which, where that was left to it.
pub type Attach<'a> = &'a dyn Fn(&TimingSpec) -> Result<(&'static str, Box<dyn Live>), LiveError>;

/// How to measure, apart from what.
#[derive(Clone, Copy)]
pub struct LiveOptions<'a> {
    /// The rules for layers.
    pub layers: &'a LayerRules,
    /// Attaches the instrument.
    pub attach: Attach<'a>,
    /// Set to stop.
    pub cancel: &'a Cancel,
    /// From which the order of blocks is drawn.
    pub seed: u64,
}

impl std::fmt::Debug for LiveOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveOptions")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// What happens, for whoever watches.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// Something that people may want to know.
    Note(String),
    /// Namespaces stand: what their names begin with.
    Named(&'a str),
    /// The instrument is attached.
    Attached(&'a Attached),
    /// A block is over: the recording with it, how many are done, and how many there
    /// are to be, if that is known.
    Block(&'a Recording, u32, Option<u32>),
}

/// Takes events.
pub type Tell<'a> = &'a mut dyn FnMut(LiveEvent<'_>);

/// How a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveEnd {
    /// How the command did, if there was one.
    pub command: Option<Exit>,
    /// It was killed because its time was over.
    pub stopped: bool,
}

/// Measure. What was measured before an error is in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_live(
    plan: &LivePlan,
    options: &LiveOptions<'_>,
    recording: &mut Recording,
    save: Save<'_>,
    tell: Tell<'_>,
) -> Result<LiveEnd, EngineError> {
    recording.complete = false;
    let lab = match &plan.source {
        Source::Traffic(TrafficPlan { within: None, .. }) => LAB_HOST,
        _ => LAB_NETNS,
    };
    let first = plan.specs.first().map(|spec| spec.instrument.as_str());
    note_instrument(recording, first.unwrap_or_default());
    recording.environment.insert(env::LAB.into(), lab.into());
    recording.environment.extend(crate::facts::machine());
    // Before anything is made: what is nobody's goes first.
    match names::sweep() {
        Ok(removed) if !removed.is_empty() => tell(LiveEvent::Note(format!(
            "cleaned up after a killed run: {}",
            removed.join(", ")
        ))),
        Ok(_) => {}
        Err(error) => tell(LiveEvent::Note(format!(
            "can't clean up after a killed run: {error}"
        ))),
    }
    save(recording).map_err(EngineError::Save)?;
    let tell = RefCell::new(tell);
    let probes = Probes {
        specs: &plan.specs,
        options,
        tell: &tell,
        index: Index::default(),
        attached: None,
    };
    let mut keeper = Keeper::new(recording, save, options.cancel);
    let end = match &plan.source {
        Source::Packets(packets) => packets::run(packets, probes, &mut keeper),
        Source::Traffic(traffic) => traffic::run(traffic, probes, &mut keeper),
    }?;
    keeper.recording.complete = true;
    keeper.keep()?;
    Ok(end)
}

/// The instruments of a run, of which one is attached at a time.
struct Probes<'a, 't> {
    /// What each is to do, by its number in turns.
    specs: &'a [TimingSpec],
    options: &'a LiveOptions<'a>,
    tell: &'a RefCell<Tell<'t>>,
    index: Index,
    attached: Option<Probe>,
}

/// An instrument, attached.
struct Probe {
    by: usize,
    name: &'static str,
    live: Box<dyn Live>,
    gatherer: Gatherer,
}

impl Probes<'_, '_> {
    /// The instruments, by their numbers in turns. The one that is left to us has the name
    /// that it was found to have.
    fn names(&self) -> Vec<&str> {
        let names = self.specs.iter().map(|spec| spec.instrument.as_str());
        names.collect()
    }

    /// Attach the instrument of a number, if it is not, in place of another one; or none.
    fn attach(
        &mut self,
        by: Option<usize>,
        spec_of: &dyn Fn(&TimingSpec) -> TimingSpec,
        recording: &mut Recording,
    ) -> Result<(), EngineError> {
        if self.attached.as_ref().map(|probe| probe.by) == by {
            return Ok(());
        }
        // What is in the kernel goes before anything else does.
        self.attached = None;
        let Some((by, spec)) = by.and_then(|by| Some((by, self.specs.get(by)?))) else {
            return Ok(());
        };
        let (name, live) = (self.options.attach)(&spec_of(spec))?;
        // It takes up to seconds: nothing is begun after somebody wanted to stop.
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(VmError::Interrupted.into());
        }
        if by == 0 {
            recording.environment.insert(env::CLOCK.into(), name.into());
        }
        (self.tell.borrow_mut())(LiveEvent::Attached(live.attached()));
        let (index, layers) = (&mut self.index, self.options.layers);
        let gatherer = Gatherer::new(name, recording, index, layers, live.attached());
        self.attached = Some(Probe {
            by,
            name,
            live,
            gatherer,
        });
        Ok(())
    }

    /// The name of the one that is attached; empty if none is.
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

    /// From one window to the next.
    fn turn(&mut self) -> Result<Option<Window>, EngineError> {
        match &mut self.attached {
            Some(probe) => Ok(Some(probe.live.turn()?)),
            None => Ok(None),
        }
    }

    fn gather(&mut self, recording: &mut Recording, blocks: &[u32], window: &Window) {
        if let Some(probe) = &mut self.attached {
            let index = &mut self.index;
            probe.gatherer.add(recording, index, blocks, window);
        }
    }
}

/// A number to begin with that is another each time.
pub fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(1, |d| d.as_nanos() as u64);
    now_ns ^ u64::from(std::process::id()) << 32
}
