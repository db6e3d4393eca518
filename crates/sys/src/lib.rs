//! Interfaces of Linux, each implemented once, for the other crates.

pub mod addresses;
pub mod bpf;
pub mod clock;
pub mod cpus;
pub mod errno;
pub mod ethnl;
pub mod ethtool;
mod genl;
pub mod guest;
pub mod interrupts;
pub mod limits;
pub mod links;
pub mod memory;
pub mod napi;
pub mod netlink;
pub mod netns;
pub mod perf;
pub mod plain;
pub mod proc;
pub mod qdiscs;
pub mod routes;
pub mod steering;
pub mod sysctl;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod virtual_devices;
pub mod wireguard;
