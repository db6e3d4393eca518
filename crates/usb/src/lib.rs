//! USB network devices in this process, behind the kernel's `vhci_hcd`.
//!
//! The kernel's own drivers (`smsc95xx`, `cdc_ncm`) talk to a [`Device`] by the protocol of
//! USB/IP over a socket pair, so no hardware and no hypervisor takes part, and all of it can
//! be in a guest. A [`Bus`] serves several devices in one thread: what they answer depends
//! on the order of requests alone. Their Ethernet sides are connected with each other, or
//! with a [`Load`] of frames, including ones that a driver has to drop.

pub mod attach;
mod bus;
mod device;
mod frame;
pub mod ncm;
pub mod smsc95xx;
mod standard;
#[cfg(test)]
mod testing;
pub mod usbip;
pub mod wire;

pub use bus::{Bus, BusError, Handle, Port};
pub use device::{BULK_IN, BULK_OUT, Descriptors, Device, INTERRUPT_IN, Setup, Stall};
pub use frame::{MAX_FRAME, MIN_FRAME, Malformed};
pub use ncm::Ncm;
pub use smsc95xx::Smsc95xx;
pub use wire::{Counters, Fault, Fifo, Frame, Kind, Load, LoadError, Refusal, Tally};
