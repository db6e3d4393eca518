//! Pure rendering: values in, text out. Opens no file and prints nothing.

pub mod analysis;
pub mod capability;
pub mod claims;
pub mod csv;
pub mod diff;
pub mod figures;
pub mod html;
pub mod json;
mod number;
pub mod page;
pub mod terminal;
pub mod tree;
pub mod trust;

pub use number::printable;

#[cfg(test)]
mod tests;
