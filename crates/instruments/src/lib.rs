//! instruments

pub mod capability;
pub mod exact;
pub mod functions;
pub mod live;
mod own;
pub mod rates;
mod reasons;
pub mod single;
pub mod stages;
