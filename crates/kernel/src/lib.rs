//! Facts about a kernel, from bytes and paths: symbols, types, modules, packages, images, configuration.
//!
//! `rules/layers.toml` gives functions their layers; `rules/path.toml` has the functions at which a context begins,
//! by their names in all kernels: a kernel with other names needs them there.

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
pub mod symbol;
#[cfg(test)]
pub(crate) mod testing;
mod vectors;
