//! The labs: network namespaces, and guests that contain some. Boots guests and transports bytes,
//! without interpreting them.
//!
//! Instruments are arguments and file descriptors here, passed on to QEMU. Named namespaces
//! of this machine are in a journal: [`netns::names`].

pub mod bundle;
pub mod cancel;
pub mod channel;
mod child;
pub mod modules;
pub mod netns;
pub mod packages;
pub mod sums;
pub mod vm;
