//! kernel

pub mod btf;
pub mod code;
pub mod compression;
pub mod config;
pub mod deb;
pub mod image;
pub mod kallsyms;
pub mod layers;
pub mod modinfo;
pub mod modules;
pub mod options;
pub mod path_rules;
pub mod prototype;
pub mod signature;
#[cfg(test)]
pub(crate) mod testing;
mod vectors;
