//! Pure rendering: values in, text out. Opens no file and prints nothing.

pub mod analysis;
pub mod callgrind;
pub mod capability;
pub mod claims;
pub mod conclusions;
pub mod csv;
pub mod diff;
pub mod figures;
pub mod folded;
pub mod html;
pub mod json;
pub mod lines;
pub mod markdown;
mod number;
pub mod page;
pub mod pprof;
mod profile;
pub mod rates;
pub mod scan;
pub mod seeds;
pub mod speedscope;
pub mod svg;
pub mod terminal;
pub mod times;
pub mod tree;
pub mod trust;

pub use number::printable;

#[cfg(test)]
mod tests;
