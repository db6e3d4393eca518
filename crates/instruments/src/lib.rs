//! What measures, a folder each with its C; [`instrument`] says what they have in common, and [`registry`] which there are.

pub mod capability;
pub mod exact;
pub mod functions;
pub mod instrument;
pub mod live;
mod own;
pub mod rates;
mod reasons;
pub mod registry;
pub mod samples;
pub mod single;
pub mod stages;
