//! instruments

pub mod capability;
pub mod exact;
pub mod functions;
pub mod live;
mod own;
pub mod stages;
