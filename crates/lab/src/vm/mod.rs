//! A QEMU guest: its configuration, boot, communication and end.

pub mod agent;
pub mod bulk;
mod console;
mod control;
pub mod device;
pub mod disk;
mod dma;
mod error;
pub mod files;
pub mod frames;
pub mod guest;
pub mod initramfs;
pub mod kernels;
pub mod link;
pub mod machine;
mod neighbours;
pub mod pair;
pub mod process;
mod qmp;
pub mod random;
mod refusals;
mod rest;
pub mod saved;
pub mod trial;
pub mod usb;
pub mod wire;
