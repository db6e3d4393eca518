//! The `exact` instrument: every kernel instruction that a guest executes, by
//! function, calling context, window and context.
//!
//! A TCG plugin (plugins/qemu/exact.c) tells which blocks of code ran and where
//! calls and returns kept their addresses; [`Accountant`] makes costs of it.
//! What is counted is instructions, not time: there are no caches, no branch
//! prediction and no contention in it.

mod account;
mod block;
mod plugin;
mod scope;
mod stack;
mod stream;
mod tree;
mod window;

pub use account::{Accountant, Losses};
pub use plugin::{PLUGIN, describe_refusal, qemu_args};
pub use stream::{Mark, Record, StreamError, StreamReader};
pub use tree::{Symbol, Tree, TreeNode, UNKNOWN};
pub use window::{Counted, Window};

#[cfg(test)]
mod tests;
