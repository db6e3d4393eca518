//! The `exact` instrument: every kernel instruction that a guest executes, by
//! function, calling context, window and context.
//!
//! A TCG plugin (plugins/qemu/exact.c) tells which blocks of code ran and where
//! calls and returns kept their addresses; [`Accountant`] makes costs of it.
//! What is counted is instructions, not time: there are no caches, no branch
//! prediction and no contention in it.

mod account;
mod block;
mod image;
mod plugin;
mod scope;
mod stack;
mod stream;
mod tree;
mod user;
mod window;

pub use account::{Accountant, Losses};
pub use image::{
    Image, ImageError, ImageFunction, Images, Line, Lines, LinesError, build_id, debug_link,
    debug_link_checksum, has_lines, lines, page_hash, readable,
};
pub use plugin::{PLUGIN, describe_refusal, qemu_args};
pub use stream::{Mark, Record, StreamError, StreamReader};
pub use tree::{Symbol, Tree, TreeNode, UNKNOWN};
pub use user::{FIRST_SYMBOL as FIRST_USER_SYMBOL, NO_FILE, UNKNOWN_CODE, UserCode, UserSymbol};
pub use window::{Counted, RanCode, Window};

#[cfg(test)]
mod tests;
