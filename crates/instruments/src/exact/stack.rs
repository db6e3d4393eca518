//! The shadow stack of one task.
//!
//! A frame is known by the stack address that its call stored the return address
//! at; a `ret` that reads from there ends it, and everything above it. Frames on
//! interrupt stacks lie on the stack of the task that they interrupted: they are
//! gone before the task is.

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::NodeId;

use super::tree::Symbol;

/// How control came to where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// On from the block before, or by a jump.
    Sequential,
    /// By a call, whose return address lies at `sp`.
    Call { sp: u64, returns_to: u64 },
    /// By a return, whose address lay at `sp`.
    Ret { sp: u64 },
    /// By the return of an interrupt or exception.
    Iret,
    /// From user mode.
    User,
}

/// Why a frame is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Called; the return address lies at `sp`.
    Called { sp: u64, returns_to: u64 },
    /// Jumped to from the frame below, and ends with it.
    Jumped,
    /// The kernel was entered, and interrupted this flow.
    Entered { interrupted: Flow },
    /// It was there before we looked.
    Found,
}

/// What is known of all code in a frame, and inherited by those above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    /// None within a softirq run but outside of its vectors.
    pub(super) context: Option<Context>,
    /// Within the handling of one packet.
    pub(super) in_packet: bool,
    /// Within the completion of a transmission.
    pub(super) completion: bool,
}

/// A function that has not returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) symbol: Symbol,
    pub(super) node: NodeId,
    pub(super) why: Why,
    pub(super) tag: Tag,
    /// It began a scope, which ends with it.
    pub(super) opens_scope: bool,
    /// It began the handling of a packet.
    pub(super) opens_packet: bool,
    /// It was entered in the window that is open now.
    pub(super) window: u32,
}

/// Instructions in a scope, of which it is not known yet whose they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) node: NodeId,
    pub(super) insns: u32,
    pub(super) calls: u32,
    pub(super) tag: Tag,
    /// The packet being handled, or the next one.
    pub(super) packet: u32,
}

/// An interrupt, or a run of softirqs: what it did is known when it ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) events: Vec<Event>,
    /// For each packet handled, the rules it met.
    pub(super) packets: Vec<u32>,
    /// Those that the current packet has met.
    pub(super) reached: u32,
    /// An interrupt, and not a softirq run.
    pub(super) hardirq: bool,
    /// ... of the timer.
    pub(super) timer: bool,
    /// What the softirqs that ran at its end did.
    pub(super) softirq_direction: Option<Direction>,
}

/// One task's stack.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) frames: Vec<Frame>,
    pub(super) scopes: Vec<Scope>,
    /// It is the workload's: it executed a marker.
    pub(super) workload: bool,
    /// What its markers say that it does.
    pub(super) doing: Option<Direction>,
    /// The 16 KiB that its stack lies in, once known.
    pub(super) id: Option<u64>,
}

/// Kernel stacks are 16 KiB, and aligned (arch/x86/include/asm/page_64_types.h).
pub(super) fn stack_id(sp: u64) -> u64 {
    sp >> 14
}
