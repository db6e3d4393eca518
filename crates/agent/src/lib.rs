//! The part that measures, on the machine where packets run: as PID 1 of a guest ([`guest`]), or within `plumb` in
//! namespaces of this machine.

pub mod bench;
pub mod ends;
mod error;
pub mod facts;
pub mod guest;
pub mod outside;

pub use error::{BlockError, NicError};
