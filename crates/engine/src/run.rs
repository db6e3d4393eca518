//! How runs go: their options, and the progress that they report.

use std::path::PathBuf;
use std::time::Duration;

use netplumb_instruments::exact::Losses;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::machine;
use netplumb_model::class::Link;
use netplumb_model::loss::Loss;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::INSTRUCTIONS;

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

/// The facts of the clock and the machine that hold for every run.
pub(crate) fn note_machine(recording: &mut Recording, options: &Options) {
    let mut fact = |key: &str, value: String| recording.environment.insert(key.into(), value);
    fact(env::QUICK, if options.quick { "yes" } else { "no" }.into());
    fact(env::CPU, machine::CPU.into());
    fact(env::REP, machine::REP_NOTE.into());
    fact("vm.memory_mib", machine::MEMORY_MIB.to_string());
}

/// Which instrument it was, the first of several.
pub(crate) fn note_instrument(recording: &mut Recording, name: &str) {
    let unit = match name == INSTRUCTIONS.instrument {
        true => INSTRUCTIONS.unit,
        false => "nanoseconds",
    };
    let facts = &mut recording.environment;
    facts.insert(env::CLOCK.into(), name.into());
    facts.insert(env::UNIT.into(), unit.into());
}

/// How a guest's clock goes on.
pub(crate) fn note_clock(recording: &mut Recording, link: Link, options: &Options) {
    if !options.quick {
        let shift = machine::icount_shift(link).to_string();
        let key = format!("vm.icount_shift.{link}");
        recording.environment.insert(key, shift);
    }
}

pub(crate) fn add_losses(recording: &mut Recording, losses: &Losses) {
    for (cause, count, meaning) in [
        (
            "returns without a call",
            losses.unmatched_returns,
            "stack switch not recognised: inclusive costs of the previous frames are truncated",
        ),
        (
            "calls without an address",
            losses.calls_without_address,
            "counted as tail calls",
        ),
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
        let loss = Loss::new(cause, count, meaning);
        recording.add_loss(INSTRUCTIONS.instrument, loss);
    }
}
