//! Tests that boot guests.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod aa;
mod arm64;
mod bad_guests;
mod bad_input;
mod between_guests;
mod command;
mod confined;
mod diff;
mod disks;
mod documents;
mod driver;
mod experiment;
mod experiments;
mod explained;
mod files;
mod guest_time;
mod host_settings;
mod hostile_guests;
mod hosts;
mod hung_qemu;
mod instructions;
mod kernels;
mod knapsack;
mod levels;
mod one_file;
mod one_packet;
mod one_wire;
mod paths;
mod programs;
mod qdisc;
mod qemus;
mod rules;
mod sampled;
mod second_opinion;
mod small_kernel;
mod states;
mod targets;
mod topologies;
mod trace;
mod trace_times;
mod truth;
mod tune;
mod web;
