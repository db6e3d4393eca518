//! The calling-context tree: functions, each below its callers, and their costs.

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction};
use crate::quantity::QuantityId;

/// Index into [`Recording::functions`](crate::recording::Recording::functions).
pub type FunctionId = u32;
/// Index into [`Recording::nodes`](crate::recording::Recording::nodes).
pub type NodeId = u32;
/// Index into [`Recording::source_files`](crate::recording::Recording::source_files).
pub type SourceFileId = u32;

/// A line of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceLine {
    /// Index into [`Recording::source_files`](crate::recording::Recording::source_files).
    pub file: SourceFileId,
    /// The line, from 1.
    pub line: u32,
}

/// A function of the kernel, of one of its modules, or of a command's own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol, with the compiler's suffixes.
    pub name: String,
    /// Its module, or for user code its ELF file; none for the kernel itself.
    pub module: Option<String>,
    /// Its layer, if a rule matches.
    pub layer: Option<String>,
    /// The address of its code; 0 if it has none.
    pub address: u64,
    /// Bytes of its code.
    pub size_bytes: u64,
    /// Where it is defined, if its file has debug information.
    pub source: Option<SourceLine>,
}

/// A function in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The caller's node; none where the context began.
    pub parent: Option<NodeId>,
    /// The function that ran.
    pub function: FunctionId,
    /// Whether it was jumped to, not called.
    pub tail: bool,
}

/// The cost of a node in a block, direction and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The quantity that `own` is of.
    pub quantity: QuantityId,
    /// The direction of the packet.
    pub direction: Direction,
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
    /// The function, in its calling context.
    pub node: NodeId,
    /// Number of entries, or of samples.
    pub calls: u64,
    /// The self cost, in the quantity's unit.
    pub own: u64,
}

/// The cost of a source line in a block: of its first quantity, in one function.
///
/// Inlined code keeps its own line, which may be in another file than the function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCost {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The function whose code it is.
    pub function: FunctionId,
    /// The line that the code was compiled from.
    pub source: SourceLine,
    /// The self cost, in the quantity's unit: instructions executed, or time sampled.
    pub own: u64,
}
