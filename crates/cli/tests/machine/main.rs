//! Tests on this machine that may run beside others.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod host_disks;
mod modules;
mod namespaces;
mod own_nics;
