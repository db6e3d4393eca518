//! Options of runs, and their progress.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use netplumb_instruments::exact::Losses;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::kernels::{self, KernelStore};
use netplumb_lab::vm::{link, machine};
use netplumb_model::arch::Arch;
use netplumb_model::class::Link;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{INSTRUCTIONS, SAMPLED};

use crate::long::Pace;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where kernels and saved states are kept.
    pub cache: PathBuf,
    /// Maximum size of all saved states.
    pub cache_bytes: u64,
    /// The program that is init in guests of this architecture; none for plumb's own.
    pub agent: Option<PathBuf>,
    /// Without an instruction clock.
    pub quick: bool,
    /// Without saved states: every arm boots.
    pub cold: bool,
    /// Guests to run in parallel.
    pub jobs: usize,
    /// Timeout of a boot or an arm.
    pub timeout: Duration,
    /// The rules for layers.
    pub layers: LayerRules,
    /// Set to stop the run.
    pub cancel: Cancel,
}

impl Options {
    /// The store of kernels; its downloads are cancelled with the run.
    pub(crate) fn kernels(&self) -> KernelStore {
        KernelStore::new(&self.cache).until(Cancel::clone(&self.cancel))
    }
}

/// Progress of a run.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A guest boots, to be saved.
    Booting {
        /// Release of its kernel.
        kernel: String,
        /// Its type of link.
        link: Link,
    },
    /// It has booted and paused.
    Ready {
        /// Since QEMU was started.
        after: Duration,
    },
    /// A message for the user.
    Note(String),
    /// An arm begins, by name.
    Arm(String),
    /// The current step, as a participle: "warming up".
    Step(String),
    /// Number of blocks done, over all arms, and the total.
    Blocks(u32, u32),
    /// How far a long run is, and its latest figure.
    Passed(Pace, Option<String>),
}

/// Turns the progress of downloads for `whom` into notes, one for each package.
pub(crate) fn fetching<'a>(
    whom: &'a str,
    tell: &'a dyn Fn(Progress),
) -> impl FnMut(kernels::Progress) + 'a {
    let mut packages = BTreeSet::new();
    move |fetched| match fetched {
        kernels::Progress::Fetching { package, .. } if packages.insert(package.clone()) => {
            tell(Progress::Note(format!("fetching {package} for {whom}")));
        }
        kernels::Progress::Removed(line) => tell(Progress::Note(line)),
        _ => {}
    }
}

/// Saves the recording as it grows.
pub type Save<'a> = &'a mut dyn FnMut(&Recording) -> Result<(), String>;

/// The size of guests' memory.
pub(crate) const MEMORY_FACT: &str = "vm.memory_mib";

/// Add facts of the clock and the machine that are the same for every run.
pub(crate) fn note_machine(recording: &mut Recording, options: &Options) {
    let mut fact = |key: &str, value: String| recording.environment.insert(key.into(), value);
    fact(env::QUICK, if options.quick { "yes" } else { "no" }.into());
    fact(MEMORY_FACT, machine::MEMORY_MIB.to_string());
}

/// Add facts about an architecture's guests to the facts of the recording or of an arm.
pub(crate) fn note_arch(facts: &mut BTreeMap<String, String>, arch: Arch) {
    facts.insert(env::ARCH.into(), arch.as_str().into());
    facts.insert(env::CPU.into(), machine::cpu(arch).into());
    facts.insert(env::REP.into(), machine::counting_note(arch).into());
}

/// Instruments that the plugin's stream feeds: all instructions, and samples of them.
pub(crate) const COUNTED: [&Declared; 2] = [&INSTRUCTIONS, &SAMPLED];

/// Add the instrument, or the first of several; `counted` if by the plugin.
pub(crate) fn note_instrument(recording: &mut Recording, name: &str, counted: bool) {
    let quantity = COUNTED.into_iter().find(|q| q.instrument == name);
    let unit = quantity.filter(|_| counted).map_or("nanoseconds", |q| q.unit);
    let facts = &mut recording.environment;
    facts.insert(env::CLOCK.into(), name.into());
    facts.insert(env::UNIT.into(), unit.into());
}

/// Add the rate of a guest's clock.
pub(crate) fn note_clock(recording: &mut Recording, link: Link, options: &Options) {
    if !options.quick {
        let shift = link::icount_shift(link).to_string();
        let key = format!("vm.icount_shift.{link}");
        recording.environment.insert(key, shift);
    }
}

/// Add what an instrument lost that the plugin's stream gives.
pub(crate) fn add_losses(recording: &mut Recording, instrument: &str, losses: &Losses) {
    for (cause, count, meaning) in [
        (
            "returns without a call",
            losses.unmatched_returns,
            "stack switch not recognised: inclusive costs of the previous frames are truncated",
        ),
        ("calls without an address", losses.calls_without_address, "counted as tail calls"),
        (
            "stack addresses outside the kernel",
            losses.bad_addresses,
            "the calls are counted as jumps",
        ),
        (
            "instructions without a symbol",
            losses.insns_without_symbol,
            "they are in [unknown]: JIT-compiled BPF, or a module loaded later",
        ),
        (
            "stacks truncated",
            losses.stacks_given_up,
            "deeper than a kernel stack can be: inclusive costs are truncated",
        ),
    ] {
        recording.add_loss(instrument, Loss::new(cause, count, meaning));
    }
    if instrument == SAMPLED.instrument {
        let loss = Loss::new(
            "popf without a cli",
            losses.unknown_flags,
            "whether it enabled interrupts is unknown: samples are deferred as if it did not",
        );
        recording.add_loss(instrument, loss);
    }
}
