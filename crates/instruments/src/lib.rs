//! The instruments, a directory each with its C; [`instrument`] has their trait, and [`registry`]
//! the list of them.

pub mod capability;
pub mod events;
pub mod exact;
pub mod functions;
pub mod image;
pub mod instrument;
pub mod live;
mod own;
pub mod rates;
mod reasons;
pub mod registry;
pub mod samples;
pub mod single;
pub mod spans;
pub mod stages;
pub mod wire;
