//! A QEMU guest: what it is made of, how it is booted, spoken to and ended.

pub mod bulk;
mod console;
mod control;
pub mod device;
mod dma;
mod error;
pub mod files;
pub mod guest;
pub mod initramfs;
pub mod kernels;
pub mod machine;
pub mod process;
mod qmp;
pub mod random;
mod rest;
pub mod saved;
pub mod trial;
