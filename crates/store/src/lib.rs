//! The recording file: a SQLite database, written as blocks end, readable anywhere, and consistent
//! if the writer is killed at any time.
//!
//! `application_id` identifies recordings and `user_version` the schema. Each write is one
//! transaction, so readers find complete blocks; the key `complete` shows if a recording was
//! not finished.

mod check;
mod code;
mod error;
mod lock;
mod nodes;
mod open;
mod output;
mod packed;
mod read;
mod row;
mod samples;
mod span;
pub mod target;
mod trace;
mod write;

pub use error::StoreError;
pub use output::Output;
pub use read::read;
pub use write::Writer;

/// `NPLB`, in the header of the file at offset 68.
pub const APPLICATION_ID: i32 = i32::from_be_bytes(*b"NPLB");

/// The schema that this program writes.
pub const VERSION: i32 = 5;

const SCHEMA: &str = include_str!("schema.sql");

#[cfg(test)]
mod tests;
