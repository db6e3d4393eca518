//! instruments

pub mod capability;
pub mod exact;
