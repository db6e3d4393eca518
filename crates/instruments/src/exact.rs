//! The `exact` instrument: every kernel instruction that a guest executes, by
//! function, calling context, window and context.
//!
//! A TCG plugin (plugins/qemu/exact.c) reports which blocks of code ran and where
//! calls and returns kept their addresses; [`Accountant`] makes costs of it.
//! What is counted is instructions, not time: there are no caches, no branch
//! prediction and no contention in it.
//!
//! `account.rs` and its directory follow control flow, `account/trace.rs` passes calls to `trace.rs`,
//! `account/instructions.rs` counts single instructions; `sample.rs` draws samples, `interrupts.rs` finds where a
//! timer would have taken them. Registers of traced calls are read by plugins/qemu/values.c; prototypes for them are
//! in `netplumb_engine`'s `prototypes.rs`. What differs between architectures is a `struct arch` of the
//! plugin (plugins/qemu/arch_*.c).

mod account;
mod block;
mod frame;
mod interrupts;
mod plugin;
mod sample;
mod scope;
mod stack;
mod stream;
mod trace;
mod tree;
mod user;
mod window;

pub use crate::image::{
    FileLine, Image, ImageError, ImageFunction, Images, Lines, LinesError, build_id, debug_file,
    debug_link, debug_link_checksum, has_lines, inlined_into, lines, listed, loss_of, page_hash,
    prototypes, readable,
};
pub use account::{Accountant, Losses, RanInsn};
pub use interrupts::Change;
pub use plugin::{ALL_CALLS, PLUGIN, describe_refusal, qemu_args};
pub use sample::Sampling;
pub use stream::{Mark, Record, StreamError, StreamReader};
pub use trace::{
    InFile, NoArgument, NoFunction, Prototypes, TracedCall, TracedCalls, TracedStep, Tracing,
};
pub use tree::{Symbol, Tree, TreeNode, UNKNOWN};
pub use user::{FIRST_SYMBOL as FIRST_USER_SYMBOL, NO_FILE, UNKNOWN_CODE, UserCode, UserSymbol};
pub use window::{CountedCost, RanCode, Sampled, SampledCost, Window, WithInterruptsOff};

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::hosts::{COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS, PAYLOAD};
use netplumb_model::quantity::Declared;
use netplumb_model::timing::{INSTRUCTIONS, QEMU_PEAK, TimingSpec};

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};

/// Kernel instructions of a guest, by function and calling context.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Instructions of every kernel function; vm lab only"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] =
            &[INSTRUCTIONS, QEMU_PEAK, PAYLOAD, COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS];
        ALL
    }

    fn unavailable(&self, lab: Lab) -> Option<(&'static str, &'static str)> {
        let why = "it counts instructions in guests only";
        (lab != Lab::Vm).then_some((why, "use --lab vm"))
    }

    fn works(&self, _: Lab, tried: &Tried<'_>) -> Availability {
        match tried.verdict("qemu-plugin") {
            no @ Availability::No { .. } => no,
            _ => {
                Availability::yes("instructions of every kernel function; needs no root and no KVM")
            }
        }
    }

    fn attach(
        &self,
        _: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Err(LiveError::Asked("`exact` can't measure the running kernel; use --lab vm".into()))
    }
}

#[cfg(test)]
mod tests;
