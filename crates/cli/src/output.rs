//! Prints recordings, and writes them for other programs. It imports no command.
//!
//! `show.rs` finds the shape of a recording, and each shape has a file (`costs.rs`, `times.rs`, `rates.rs` and
//! others); `formats.rs` has the formats of other programs.

pub(crate) mod below;
mod browser;
pub(crate) mod claims;
pub(crate) mod columns;
mod costs;
mod events;
mod formats;
mod hosts;
mod named;
pub(crate) mod page;
pub(crate) mod part;
pub(crate) mod print;
pub(crate) mod rates;
pub(crate) mod show;
mod times;
