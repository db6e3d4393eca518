//! Blocks of benches, on the machine where they run.

pub mod block;
mod changes;
pub mod ground;
mod ledger;
mod nics;
pub mod watch;

pub use nics::{Nics, Own};
