//! Tests that need neither a guest nor root.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod hostile;
mod import;
mod outputs;
mod own_kernels;
mod page;
mod recordings;
mod times;
mod topologies;
