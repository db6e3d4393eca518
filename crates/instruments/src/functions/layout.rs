//! The twins of the structs and numbers in functions.h.

/// Frames of a stack.
#[cfg(test)]
pub(super) const FRAMES: usize = 63;
/// Softirqs and interrupts of one CPU, each in the other.
pub(super) const LEVELS: u32 = 4;

/// Numbers in the templates that are replaced.
pub(super) mod magic {
    pub(crate) const FUNCTION: i32 = 0x5eed_0001;
    pub(crate) const ABOUT: i32 = 0x5eed_0002;
    pub(crate) const CPU_MASK: i32 = 0x5eed_0003;
    pub(crate) const STACK_MASK: i32 = 0x5eed_0004;
    pub(crate) const ROW_SHIFT: i32 = 0x5eed_0005;
    pub(crate) const CHILD_MASK: i32 = 0x5eed_0006;
    pub(crate) const CELL_SHIFT: i32 = 0x5eed_0007;
    pub(crate) const CELL_MASK: i32 = 0x5eed_0008;
    pub(crate) const NODE_MASK: i32 = 0x5eed_0009;
    pub(crate) const CLASSES_FROM: i32 = 0x5eed_000a;
    /// All of them begin so.
    pub(crate) const PREFIX: i32 = 0x5eed_0000;
    /// An offset, not a number.
    pub(crate) const ARGUMENT: i16 = 0x7a0;
}

/// Directions, by their number.
pub(super) mod direction {
    pub(crate) const OTHER: u32 = 0;
    pub(crate) const TX: u32 = 1;
    pub(crate) const RX: u32 = 2;
    pub(crate) const FORWARD: u32 = 3;
    pub(crate) const ECHO: u32 = 4;
}

/// Protocols, by their number.
pub(super) mod proto {
    pub(crate) const RAW: u32 = 1;
    pub(crate) const UDP: u32 = 2;
    pub(crate) const TCP: u32 = 3;
}

/// Classes that there are: protocol << 3 | direction.
pub(super) const CLASSES: u32 = 32;
/// Where the hint begins in what is said of a function.
pub(super) const HINT_SHIFT: u32 = 4;

/// Where in a cookie it is what is said of a function, and the argument.
pub(super) const COOKIE_ABOUT_SHIFT: u32 = 16;
pub(super) const COOKIE_ARGUMENT_SHIFT: u32 = 24;

/// Set in a node's hint if it was first called within an RCU read section.
pub(super) const NESTED: u32 = 0x100;

/// Nodes that are there from the beginning.
pub(super) mod node {
    pub(crate) const IGNORED: u32 = 1;
    pub(crate) const LOST: u32 = 2;
    pub(crate) const TASK: u32 = 3;
    pub(crate) const OTHER_TASK: u32 = 4;
    pub(crate) const HARDIRQ: u32 = 5;
    pub(crate) const SOFTIRQ: u32 = 6;
    /// So many.
    pub(crate) const FIXED: u32 = 16;
}

/// `enum functions_loss`.
pub(super) mod loss {
    pub(crate) const DEPTH: usize = 0;
    pub(crate) const UNMATCHED: usize = 2;
    pub(crate) const ORPHANS: usize = 3;
    pub(crate) const STACKS: usize = 4;
    pub(crate) const LEVELS: usize = 5;
    pub(crate) const BOUNDARIES: usize = 6;
    pub(crate) const RACES: usize = 7;
    pub(crate) const STEPS: usize = 8;
    pub(crate) const QUESTIONS: usize = 9;
    /// So many fit.
    pub(crate) const ALL: usize = 16;
}

/// `struct functions_cpu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpu {
    pub(super) current: u32,
    pub(super) level: u32,
    pub(super) boundaries: u64,
    pub(super) saved: [[u64; 2]; LEVELS as usize],
    pub(super) lost: [u64; loss::ALL],
    pub(super) unused: [u64; 6],
}

/// Bytes of `struct functions_stack`.
pub(super) const STACK_BYTES: u32 = 1024;

/// `struct functions_node`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) function: u32,
    pub(super) class: u32,
    pub(super) hint: u32,
}

/// Words of `struct functions_cell` before its buckets.
pub(super) const CELL_HEAD: usize = 8;
/// Its words altogether.
pub(super) const CELL_WORDS: usize = CELL_HEAD + netplumb_model::timing::BUCKETS;
/// Indices of its words.
pub(super) mod cell {
    pub(crate) const TOTAL: usize = 0;
    pub(crate) const MAX: usize = 1;
    pub(crate) const INVERSE_MIN: usize = 2;
    pub(crate) const INTERRUPTIONS: usize = 3;
}

/// `state` in runtime.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) next_node: u32,
    pub(super) max_nodes: u32,
    pub(super) outside_ns: u64,
    pub(super) parked: u64,
    pub(super) telling: u64,
}

/// `struct functions_step`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawStep {
    pub(super) at_ns: u64,
    pub(super) stack: u32,
    pub(super) depth: u32,
    pub(super) node: u32,
    pub(super) cpu: u32,
    pub(super) thread: u32,
    pub(super) is_exit: u32,
    pub(super) command: [u8; 16],
}

/// `struct functions_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RawFilter {
    pub(super) active: u32,
    pub(super) protos: u32,
    pub(super) family: u32,
    pub(super) port: u32,
    pub(super) address_family: u32,
    pub(super) address: [u8; 16],
    pub(super) interface: u32,
    pub(super) namespaces: u32,
    pub(super) namespace_inodes: [u32; 8],
    pub(super) pid: u32,
    pub(super) cgroup: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the structs are as large as the programs' are.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<Cpu>(), 256);
        assert_eq!(STACK_BYTES as usize, 16 + FRAMES * 16);
        assert_eq!(CELL_WORDS * 8, 4160);
        assert_eq!(size_of::<RawFilter>(), 88);
        assert_eq!(size_of::<RawStep>(), 48);
    }
}
