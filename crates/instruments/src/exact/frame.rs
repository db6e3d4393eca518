//! A function on a stack that has not returned: how it was entered, and the properties of
//! all code in it.
//!
//! A frame is known by the stack address that its call stored the return address
//! at; a `ret` that reads from there ends it, and everything above it. Where calls store
//! none (arm64), it is known by the stack pointer, which its `ret` finds as its call left it.

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::NodeId;

use super::interrupts::Before;
use super::tree::Symbol;

/// How control arrived.
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

/// How a frame was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Called; the return address lies at `sp`.
    Called { sp: u64, returns_to: u64 },
    /// Jumped to from the frame below, and ends with it.
    Jumped,
    /// The kernel was entered, and interrupted this flow, in which interrupts came or did not.
    Entered { interrupted: Flow, before: Before },
    /// It was there before the stream began.
    Found,
}

/// Properties of all code in a frame, inherited by the frames above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// None within a softirq run but outside of its vectors.
    pub(super) context: Option<Context>,
    /// Within the handling of one packet.
    pub(super) in_packet: bool,
    /// Within the completion of a transmission.
    pub(super) completion: bool,
    /// Within the wire: work for no packet, wherever it is done.
    pub(super) wire: bool,
    /// Within a thread of the kernel that works for packets: in this direction.
    pub(super) works_for: Option<Direction>,
}

/// The depth of the frame of `symbol` that the top one was jumped to from, directly or by way
/// of others: for example, a function that comes back from its cold part.
pub(super) fn jumped_from<F>(
    frames: &[F],
    of: impl Fn(&F) -> (Symbol, Why),
    symbol: Symbol,
) -> Option<usize> {
    let mut at = frames.len();
    while at > 0 && of(&frames[at - 1]).1 == Why::Jumped {
        at -= 1;
        if at > 0 && of(&frames[at - 1]).0 == symbol {
            return Some(at);
        }
    }
    None
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
