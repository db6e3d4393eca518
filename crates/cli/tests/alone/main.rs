//! Tests of rates and times, and of the state of the whole machine: nothing else runs meanwhile.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod aa_live;
mod bench;
mod bench_vm;
mod between;
mod leftovers;
mod live;
mod nics;
mod profile;
mod serve;
mod stat;
