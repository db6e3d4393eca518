//! The shadow stack of one task.
//!
//! Frames on interrupt stacks lie on the stack of the task that they interrupted: they are
//! gone before the task is.

use netplumb_model::class::Direction;

use super::frame::Frame;
use super::scope::Scope;
use super::trace::OpenTrace;
use super::user::Thread;

/// One task's stack.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) frames: Vec<Frame>,
    pub(super) scopes: Vec<Scope>,
    /// Whether it belongs to the workload: it executed a marker.
    pub(super) workload: bool,
    /// What it does, by its markers.
    pub(super) doing: Option<Direction>,
    /// The 16 KiB that its stack lies in, once known.
    pub(super) id: Option<u64>,
    /// Its user half, where that counts and it has one.
    pub(super) thread: Option<Thread>,
    /// Traced calls that have not returned, the outermost first.
    pub(super) traces: Vec<OpenTrace>,
}

/// Kernel stacks are 16 KiB, and aligned (arch/x86/include/asm/page_64_types.h).
pub(super) fn stack_id(sp: u64) -> u64 {
    sp >> 14
}
