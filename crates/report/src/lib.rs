//! Pure rendering: values in, text out. Opens no file and prints nothing.

mod acting;
pub mod analysis;
pub mod asm;
pub mod beside;
pub mod callgrind;
pub mod capability;
pub mod claims;
pub mod conclusions;
mod counting;
pub mod diff;
pub mod disks;
mod drift;
pub mod events;
pub mod figures;
pub mod folded;
pub mod footer;
pub mod functions;
pub mod hosts;
pub mod html;
mod interval;
pub mod json;
mod layers;
pub mod lines;
pub mod markdown;
mod number;
pub mod openmetrics;
pub mod page;
mod per;
pub mod pprof;
mod profile;
pub mod rates;
pub mod sampled;
pub mod scalars;
pub mod scan;
pub mod seeds;
pub mod shape;
pub mod shares;
mod sheet;
pub mod speedscope;
pub mod summary;
pub mod svg;
mod table;
pub mod terminal;
mod text;
pub mod threads;
pub mod times;
pub mod together;
pub mod trace;
pub mod tree;
pub mod trust;
pub mod view;
pub mod watched;

pub use number::{is_active, printable, printable_lines};

#[cfg(test)]
mod tests;
