//! Blocks that ran shorter or longer than they are.

use rustc_hash::FxHashMap;

/// Blocks that ran shorter or longer than they are, in windows.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// Number of runs, by block and instructions that ran.
    pub(super) short: FxHashMap<(u32, u32), u64>,
    /// Repetitions of a block's last instruction beyond the first.
    pub(super) more: FxHashMap<u32, u64>,
}
