//! The recording file: one SQLite database, written as blocks end, readable
//! anywhere, safe to be killed at any moment.
//!
//! `application_id` says that it is ours and `user_version` which schema it has.
//! A write is one transaction, so what a reader finds is whole blocks; a
//! recording that was never finished says so by its `complete` key.

mod check;
mod error;
mod lock;
mod old;
mod open;
mod output;
mod read;
mod row;
mod span;
pub mod target;
mod write;

pub use error::StoreError;
pub use output::Output;
pub use read::read;
pub use write::Writer;

/// `NPLB`, in the header of the file at offset 68.
pub const APPLICATION_ID: i32 = i32::from_be_bytes(*b"NPLB");

/// The schema that this program writes.
pub const VERSION: i32 = 4;

const SCHEMA: &str = include_str!("schema.sql");

#[cfg(test)]
mod tests;
