//! Costs on the calling-context tree: functions, each below those that called it, and what
//! they cost.

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
    /// Its symbol.
    pub name: String,
    /// The module, or the ELF file of user code, that it is in; none for the kernel
    /// itself.
    pub module: Option<String>,
    /// Its layer, if any rule names it.
    pub layer: Option<String>,
    /// Where it was.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is defined, if its file's debug information says so.
    pub source: Option<SourceLine>,
}

/// A function in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The caller's node; none where the context began.
    pub parent: Option<NodeId>,
    /// The function.
    pub function: FunctionId,
    /// Whether it was jumped to, not called.
    pub tail: bool,
}

/// What one node cost in one block, direction and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// Of what.
    pub quantity: QuantityId,
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The node.
    pub node: NodeId,
    /// Times entered; of samples, how many there are.
    pub calls: u64,
    /// What the function itself cost, in the quantity's unit.
    pub own: u64,
}

/// What one line cost in one block: its own instructions in one function.
///
/// What was inlined keeps its own line, which may be of another file than the
/// function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCost {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The function whose code it is.
    pub function: FunctionId,
    /// The line.
    pub source: SourceLine,
    /// Instructions executed.
    pub insns: u64,
}
