//! kernel

pub mod compression;
pub mod config;
pub mod deb;
pub mod image;
pub mod kallsyms;
pub mod modinfo;
pub mod modules;
#[cfg(test)]
pub(crate) mod testing;
pub mod layers;
pub mod path_rules;
