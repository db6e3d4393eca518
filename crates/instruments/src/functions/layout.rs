//! What functions.h declares, made of it when this is built, as it is used here.

use std::mem::offset_of;

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

pub(super) use made::{Cpu, Filter as RawFilter, Node, State, Step as RawStep};

/// Frames of a stack.
#[cfg(test)]
pub(super) const FRAMES: usize = made::FRAMES;
/// Softirqs and interrupts of one CPU, each in the other.
pub(super) const LEVELS: u32 = made::LEVELS as u32;

/// Numbers in the templates that are replaced.
pub(super) mod magic {
    use super::made;

    pub(crate) const FUNCTION: i32 = made::MAGIC_FUNCTION as i32;
    pub(crate) const ABOUT: i32 = made::MAGIC_ABOUT as i32;
    pub(crate) const CPU_MASK: i32 = made::MAGIC_CPU_MASK as i32;
    pub(crate) const STACK_MASK: i32 = made::MAGIC_STACK_MASK as i32;
    pub(crate) const ROW_SHIFT: i32 = made::MAGIC_ROW_SHIFT as i32;
    pub(crate) const CHILD_MASK: i32 = made::MAGIC_CHILD_MASK as i32;
    pub(crate) const CELL_SHIFT: i32 = made::MAGIC_CELL_SHIFT as i32;
    pub(crate) const CELL_MASK: i32 = made::MAGIC_CELL_MASK as i32;
    pub(crate) const NODE_MASK: i32 = made::MAGIC_NODE_MASK as i32;
    pub(crate) const CLASSES_FROM: i32 = made::MAGIC_CLASSES_FROM as i32;
    /// All of them begin so.
    pub(crate) const PREFIX: i32 = FUNCTION & !0xffff;
    /// An offset, not a number.
    pub(crate) const ARGUMENT: i16 = made::MAGIC_ARGUMENT as i16;
}

/// Directions, by their number.
pub(super) mod direction {
    use super::made;

    pub(crate) const OTHER: u32 = made::OTHER as u32;
    pub(crate) const TX: u32 = made::TX as u32;
    pub(crate) const RX: u32 = made::RX as u32;
    pub(crate) const FORWARD: u32 = made::FORWARD as u32;
    pub(crate) const ECHO: u32 = made::ECHO as u32;
}

/// Protocols, by their number.
pub(super) mod proto {
    use super::made;

    pub(crate) const RAW: u32 = made::RAW as u32;
    pub(crate) const UDP: u32 = made::UDP as u32;
    pub(crate) const TCP: u32 = made::TCP as u32;
}

/// Classes that there are: protocol << 3 | direction.
pub(super) const CLASSES: u32 = made::CLASSES as u32;
/// Where the hint begins in what is said of a function.
pub(super) const HINT_SHIFT: u32 = made::HINT_SHIFT as u32;

/// Where in a cookie it is what is said of a function, and the argument.
pub(super) const COOKIE_ABOUT_SHIFT: u32 = made::COOKIE_ABOUT_SHIFT as u32;
pub(super) const COOKIE_ARGUMENT_SHIFT: u32 = made::COOKIE_ARGUMENT_SHIFT as u32;

/// Set in a node's hint if it was first called within an RCU read section.
pub(super) const NESTED: u32 = made::NESTED as u32;

/// Nodes that are there from the beginning.
pub(super) mod node {
    use super::made;

    pub(crate) const IGNORED: u32 = made::NODE_IGNORED as u32;
    pub(crate) const LOST: u32 = made::NODE_LOST as u32;
    pub(crate) const TASK: u32 = made::NODE_TASK as u32;
    pub(crate) const OTHER_TASK: u32 = made::NODE_OTHER_TASK as u32;
    pub(crate) const HARDIRQ: u32 = made::NODE_HARDIRQ as u32;
    pub(crate) const SOFTIRQ: u32 = made::NODE_SOFTIRQ as u32;
    /// So many.
    pub(crate) const FIXED: u32 = made::NODES_FIXED as u32;
}

/// `enum functions_loss`.
pub(super) mod loss {
    pub(crate) use super::made::{
        LOSSES as ALL, LOST_BOUNDARIES as BOUNDARIES, LOST_DEPTH as DEPTH, LOST_LEVELS as LEVELS,
        LOST_ORPHANS as ORPHANS, LOST_QUESTIONS as QUESTIONS, LOST_RACES as RACES,
        LOST_STACKS as STACKS, LOST_STEPS as STEPS, LOST_UNMATCHED as UNMATCHED,
    };
}

/// Bytes of `struct functions_stack`.
pub(super) const STACK_BYTES: u32 = size_of::<made::Stack>() as u32;

/// Words of `struct functions_cell` before its buckets.
pub(super) const CELL_HEAD: usize = offset_of!(made::Cell, buckets) / 8;
/// Its words altogether.
pub(super) const CELL_WORDS: usize = size_of::<made::Cell>() / 8;
const _: () = assert!(CELL_WORDS - CELL_HEAD == netplumb_model::span::BUCKETS);
/// Indices of its words.
pub(super) mod cell {
    use std::mem::offset_of;

    use super::made::Cell;

    pub(crate) const TOTAL: usize = offset_of!(Cell, total_ns) / 8;
    pub(crate) const MAX: usize = offset_of!(Cell, max_ns) / 8;
    pub(crate) const INVERSE_MIN: usize = offset_of!(Cell, inverse_min_ns) / 8;
    pub(crate) const INTERRUPTIONS: usize = offset_of!(Cell, interruptions) / 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the sizes that the verifier's masks take for granted.
    #[test]
    fn sizes() {
        assert_eq!(size_of::<Cpu>(), 256);
        assert_eq!(STACK_BYTES as usize, 16 + FRAMES * 16);
        assert_eq!(STACK_BYTES, 1024);
    }
}
