//! instruments

pub mod capability;
pub mod exact;
pub mod functions;
pub mod live;
pub mod single;
