//! Prints recordings, and writes them for other programs. It imports no command.
//!
//! `show.rs` finds the shape of a recording. `document.rs` prints those that make a document; costs, times and rates have
//! files of their own; `formats.rs` has the formats of other programs.

pub(crate) mod below;
mod browser;
pub(crate) mod claims;
pub(crate) mod columns;
mod costs;
mod document;
mod formats;
mod named;
pub(crate) mod page;
pub(crate) mod part;
pub(crate) mod print;
pub(crate) mod rates;
pub(crate) mod show;
mod times;
