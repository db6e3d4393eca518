//! The instruments, a directory each with its C; [`instrument`] has their trait, and [`registry`]
//! the list of them.

pub mod calls;
pub mod capability;
pub mod events;
pub mod exact;
pub mod functions;
pub mod image;
pub mod instrument;
mod kept;
pub mod live;
mod middle;
mod own;
pub mod rates;
mod reasons;
pub mod registry;
pub mod samples;
pub mod single;
pub mod sockets;
pub mod spans;
pub mod stages;
mod tracefs;
pub mod wire;
