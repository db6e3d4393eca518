//! Tests on this machine that may run in parallel with others.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod host_disks;
mod modules;
mod namespaces;
mod own_nics;
mod rights;
