//! The `samples` instrument: where CPU time goes, by what each CPU does every so often.
//!
//! In a guest of the vm lab nothing is sampled: its samples are drawn on the host, from the stream
//! that `exact` counts (`exact/sample.rs`), and are of instructions. The rest is about kernels
//! that run natively.
//!
//! It is on any kernel that has perf's clock, and puts no probe on any packet. A sample stands for
//! the time since the one before it. There is one sampler, for two uses: of work on packets
//! (`packets.rs`), what is sampled while packets are handled is theirs, sent or received, and the
//! rest has the name of the task, softirq or interrupt that it was; a profile (`profile.rs`) covers
//! all work, or a process, a cgroup or a command, in the kernel and in user mode.
//!
//! `samples.bpf.c` takes samples and `sampler.rs` reads them; `event.rs` has what triggers one. User stacks:
//! `spaces.rs` and `files.rs` find the file of an address, `jit.rs` reads names of code made at run time, `unwind.rs`
//! walks stacks by the tables of `tables.rs`. `spans` and `events` take stacks at their events by `stack.h` and
//! `whose.h`.

mod arrived;
mod event;
mod files;
pub mod jit;
mod kernel;
mod late;
mod layout;
mod owner;
mod packets;
mod profile;
mod sampler;
mod spaces;
mod tables;
mod tree;
mod unwind;

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::{
    CPU_TIME, CYCLES, DEFERRED, FREQUENCY, IDLE, IN_KERNEL, INTERRUPTS_OFF, LATE, NAMES, OFF_CPU,
    ON_TIME, PERIOD, PROGRAMS, REACHED, READER, SAMPLE_PERIOD, SAMPLE_SEED, SAMPLED, STACKS_COPIED,
    STACKS_CUT, TAKEN, TICKS, TimingSpec, USER_STACKS, WAITS_BEGUN, WAITS_ENDED, WAITS_OPEN,
};

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};
pub use files::{JIT, is_made};
pub(crate) use layout::Scope;
pub use owner::context;
pub(crate) use profile::Causes;

/// What the instrument is called.
const SAMPLES: &str = CPU_TIME.instrument;
/// The name of code that no symbol covers.
const UNKNOWN: &str = "[unknown]";

/// Samples stacks by perf's clock or by cycles.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "CPU time of every kernel function, by samples; in the vm lab, instructions"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] = &[
            CPU_TIME,
            CYCLES,
            PERIOD,
            TICKS,
            TAKEN,
            SAMPLED,
            DEFERRED,
            INTERRUPTS_OFF,
            IN_KERNEL,
            SAMPLE_PERIOD,
            SAMPLE_SEED,
            OFF_CPU,
            FREQUENCY,
            REACHED,
            IDLE,
            USER_STACKS,
            STACKS_CUT,
            STACKS_COPIED,
            ON_TIME,
            LATE,
            PROGRAMS,
            READER,
            NAMES,
            WAITS_BEGUN,
            WAITS_ENDED,
            WAITS_OPEN,
        ];
        ALL
    }

    fn unavailable(&self, lab: Lab) -> Option<(&'static str, &'static str)> {
        match lab {
            Lab::Vm | Lab::Netns => None,
            Lab::Host => Some((
                "it can't tell work on packets from other work",
                "use --lab netns, or `plumb profile` for all work",
            )),
        }
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        match (lab, tried.verdict("qemu-plugin")) {
            (Lab::Vm, no @ Availability::No { .. }) => no,
            (Lab::Vm, _) => Availability::yes(
                "of instructions, unbiased and as a timer would take them; needs no root and no KVM",
            ),
            _ => by_clock(tried),
        }
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Ok(match &spec.profile {
            None => Box::new(packets::Sampling::attach(spec)?),
            Some(asked) => Box::new(profile::Profile::attach(spec, asked)?),
        })
    }
}

/// Without hardware events, what keeps interrupts off is charged to where they come on again.
fn by_clock(tried: &Tried<'_>) -> Availability {
    let sampled = tried.any(&[(&["perf-event"], "by samples")]);
    match (sampled, tried.verdict("perf-hardware")) {
        (Availability::Yes { .. }, Availability::No { reason, remedy }) => Availability::partly(
            "by samples of the CPU's clock",
            format!(
                "{reason}; code with interrupts off is not sampled: its time is shown where they are enabled again"
            ),
            remedy,
        ),
        (sampled, _) => sampled,
    }
}
