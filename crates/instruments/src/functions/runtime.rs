//! The programs' memory: size, initial contents, and reading. The Rust part of runtime.h.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;

use netplumb_model::timing::Filter;

use super::filter;
use super::layout::{
    self, CELL_WORDS, Cpu, LEVELS, Node, STACK_BYTES, State, cell, loss, magic, node,
};
use super::object::Templates;
use crate::live::LiveError;

/// Maximum number of cells: 4 KiB each, and the verifier wants to see them within 512
/// MiB.
const MAX_CELLS: u32 = 1 << 16;
/// Stacks for tasks that are switched out with calls under way, in addition to one per CPU.
const TASK_STACKS: u32 = 256;

/// Where in a stack its first frame has its root.
const ROOT_BYTE: u32 = 24;

/// How large everything is: powers of two, since indices are masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Possible CPUs.
    pub(super) cpus: u32,
    /// That, rounded up.
    cpu_slots: u32,
    stacks: u32,
    /// Numbers of functions begin at 1 and end before this.
    pub(super) functions: u32,
    row_shift: u32,
    /// Calling contexts.
    pub(super) nodes: u32,
}

impl Shape {
    /// The shape for a machine and a selection.
    pub(super) fn new(cpus: u32, functions: u32) -> Shape {
        let cpu_slots = cpus.next_power_of_two();
        let functions = functions + 1;
        let row = (functions + layout::CLASSES).next_power_of_two();
        // The table of children: 4 bytes for each pair.
        let by_table = (1 << 23) / row;
        let wanted = (functions * 16).next_power_of_two().clamp(512, 4096);
        let nodes = wanted.min(MAX_CELLS / cpu_slots).min(by_table).max(64);
        Shape {
            cpus,
            cpu_slots,
            stacks: (cpu_slots * (LEVELS + 1) + TASK_STACKS).next_power_of_two(),
            functions,
            row_shift: row.trailing_zeros(),
            nodes,
        }
    }

    /// Values of the magic numbers, except for one function's.
    pub(super) fn numbers(&self) -> BTreeMap<i32, i32> {
        let mask = |entries: u32| (entries - 1) as i32;
        BTreeMap::from([
            (magic::CPU_MASK, mask(self.cpu_slots)),
            (magic::STACK_MASK, mask(self.stacks)),
            (magic::ROW_SHIFT, self.row_shift as i32),
            (magic::CHILD_MASK, mask(self.nodes << self.row_shift)),
            (magic::CELL_SHIFT, self.nodes.trailing_zeros() as i32),
            (magic::CELL_MASK, mask(self.nodes * self.cpu_slots)),
            (magic::NODE_MASK, mask(self.nodes)),
            (magic::CLASSES_FROM, self.functions as i32),
        ])
    }

    /// The stack that a CPU's tasks use at first.
    fn task_stack(&self, cpu: u32) -> u32 {
        self.cpu_slots * LEVELS + cpu
    }
}

/// The memory, shared with the programs: it is accessed while they run.
#[derive(Debug)]
pub(super) struct Memory {
    shape: Shape,
    cpus: NonNull<Cpu>,
    stacks: NonNull<u8>,
    nodes: NonNull<Node>,
    children: NonNull<u32>,
    cells: NonNull<u64>,
    state: NonNull<State>,
}

impl Memory {
    /// Size the object's sections, fill in the initial contents, and make them.
    pub(super) fn make(
        templates: &mut Templates,
        shape: Shape,
        wanted: &Filter,
        ring_bytes: u32,
    ) -> Result<Memory, LiveError> {
        for (name, bytes) in [
            (".data.cpus", shape.cpu_slots * size_of::<Cpu>() as u32),
            (".data.stacks", shape.stacks * STACK_BYTES),
            (".data.nodes", shape.nodes * size_of::<Node>() as u32),
            (".data.children", (shape.nodes << shape.row_shift) * 4),
            (".data.cells", shape.nodes * shape.cpu_slots * CELL_WORDS as u32 * 8),
        ] {
            templates.size(name, bytes)?;
        }
        templates.entries("spare", shape.stacks)?;
        templates.entries("parked", shape.stacks)?;
        templates.entries("steps", ring_bytes)?;
        let raw = filter::raw(wanted)?;
        filter::write(templates, &raw)?;
        templates.prepare()?;
        let at = |name: &str| templates.memory(name).map(|(at, _)| at);
        let memory = Memory {
            shape,
            cpus: at(".data.cpus")?.cast(),
            stacks: at(".data.stacks")?,
            nodes: at(".data.nodes")?.cast(),
            children: at(".data.children")?.cast(),
            cells: at(".data.cells")?.cast(),
            state: at(".data.state")?.cast(),
        };
        memory.begin();
        let spare = templates.map_fd("spare")?;
        for stack in shape.task_stack(shape.cpu_slots)..shape.stacks {
            // SAFETY: a stack has no key, and its value is a number.
            let result = unsafe {
                libbpf_sys::bpf_map_update_elem(
                    spare,
                    std::ptr::null(),
                    (&raw const stack).cast(),
                    0,
                )
            };
            if result < 0 {
                return Err(LiveError::System {
                    doing: "make stacks for tasks".into(),
                    source: Box::new(io::Error::from_raw_os_error(-result)),
                });
            }
        }
        Ok(memory)
    }

    /// Write the initial contents.
    fn begin(&self) {
        let shape = self.shape;
        // SAFETY: the sections are as large as the shape, and zero; no program is
        // attached yet.
        unsafe {
            let state = self.state.as_ptr();
            (*state).next_node = node::FIXED;
            (*state).max_nodes = shape.nodes;
            for cpu in 0..shape.cpu_slots {
                let stack = shape.task_stack(cpu);
                (*self.cpus.as_ptr().add(cpu as usize)).current = stack;
                // Correct until the first switch.
                let root = self.stacks.as_ptr().add((stack * STACK_BYTES + ROOT_BYTE) as usize);
                root.cast::<u64>().write(u64::from(node::TASK));
            }
            // What is called from these nodes stays in them.
            let row = 1_usize << shape.row_shift;
            for same in [node::IGNORED, node::LOST] {
                for function in 0..row {
                    let at = ((same as usize) << shape.row_shift) + function;
                    *self.children.as_ptr().add(at) = same;
                }
            }
        }
    }

    /// Set a boundary's cost outside of its own measurement.
    pub(super) fn set_outside(&self, ns: u64) {
        // SAFETY: the section is there as long as the object, which outlives this.
        unsafe { (&raw mut (*self.state.as_ptr()).outside_ns).write_volatile(ns) }
    }

    /// Set how many entries and exits are recorded for per-packet traces.
    pub(super) fn set_telling(&self, steps: u64) {
        // SAFETY: as above.
        unsafe { (&raw mut (*self.state.as_ptr()).telling).write_volatile(steps) }
    }

    /// Number of nodes so far.
    pub(super) fn node_count(&self) -> u32 {
        // SAFETY: as above.
        let next = unsafe { (&raw const (*self.state.as_ptr()).next_node).read_volatile() };
        next.min(self.shape.nodes)
    }

    /// One of them.
    pub(super) fn node(&self, id: u32) -> Node {
        assert!(id < self.shape.nodes);
        // SAFETY: it is within the section, as just checked.
        unsafe { self.nodes.as_ptr().add(id as usize).read_volatile() }
    }

    /// A word of a node's cell.
    pub(super) fn cell_word(&self, cpu: u32, id: u32, word: usize) -> u64 {
        assert!(cpu < self.shape.cpu_slots && id < self.shape.nodes && word < CELL_WORDS);
        let at = (cpu as usize * self.shape.nodes as usize + id as usize) * CELL_WORDS + word;
        // SAFETY: it is within the section, as just checked.
        unsafe { self.cells.as_ptr().add(at).read_volatile() }
    }

    /// All words of a node's cell.
    pub(super) fn cell(&self, cpu: u32, id: u32, into: &mut [u64; CELL_WORDS]) {
        assert!(cpu < self.shape.cpu_slots && id < self.shape.nodes);
        let at = (cpu as usize * self.shape.nodes as usize + id as usize) * CELL_WORDS;
        for (word, into) in into.iter_mut().enumerate() {
            // SAFETY: it is within the section, as just checked.
            *into = unsafe { self.cells.as_ptr().add(at + word).read_volatile() };
        }
    }

    /// Reset the minimum and maximum of a node, which can't be subtracted.
    pub(super) fn forget_extremes(&self, cpu: u32, id: u32) {
        assert!(cpu < self.shape.cpu_slots && id < self.shape.nodes);
        let at = (cpu as usize * self.shape.nodes as usize + id as usize) * CELL_WORDS;
        // SAFETY: it is within the section, as just checked. A program that is at it
        // writes either of them only if it is its own time.
        unsafe {
            self.cells.as_ptr().add(at + cell::MAX).write_volatile(0);
            self.cells.as_ptr().add(at + cell::INVERSE_MIN).write_volatile(0);
        }
    }

    /// Losses so far, by kind.
    pub(super) fn lost(&self) -> [u64; loss::ALL] {
        let mut sum = [0; loss::ALL];
        for cpu in 0..self.shape.cpus {
            // SAFETY: it is within the section, which has a slot for each CPU.
            let lost = unsafe {
                (&raw const (*self.cpus.as_ptr().add(cpu as usize)).lost).read_volatile()
            };
            for (sum, lost) in sum.iter_mut().zip(lost) {
                *sum += lost;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a machine of any size gets tables that the verifier accepts.
    #[test]
    fn shapes_fit() {
        for cpus in [1, 2, 3, 8, 64, 200, 512] {
            for functions in [1, 60, 128, 1000] {
                let shape = Shape::new(cpus, functions);
                let cells = shape.nodes * shape.cpu_slots;
                assert!(shape.cpu_slots >= cpus);
                assert!(cells <= MAX_CELLS.max(64 * shape.cpu_slots), "{shape:?}");
                assert!((shape.nodes << shape.row_shift) <= 1 << 23);
                assert!(1 << shape.row_shift >= functions + 1 + layout::CLASSES);
                assert!(shape.nodes >= 64);
                assert!(shape.stacks > shape.task_stack(shape.cpu_slots));
            }
        }
    }
}
