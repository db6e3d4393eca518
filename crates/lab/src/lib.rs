//! The labs: network namespaces, and guests that contain some. Boots guests and transports bytes,
//! without interpreting them.

pub mod bundle;
pub mod cancel;
pub mod channel;
mod child;
pub mod modules;
pub mod netns;
pub mod packages;
pub mod sums;
pub mod vm;
