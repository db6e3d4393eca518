//! Prints recordings, and writes them for other programs. It imports no command.

mod browser;
pub(crate) mod columns;
mod costs;
mod focus;
mod formats;
pub(crate) mod page;
pub(crate) mod part;
pub(crate) mod print;
pub(crate) mod rates;
pub(crate) mod show;
mod times;
