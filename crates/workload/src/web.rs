//! A web server and its client between two hosts: nginx with the files of SPECweb99 on the sender,
//! and connections that each request the next file when they have the one before.

mod client;
mod mix;
mod server;

pub use client::Clients;
pub(crate) use client::serve;
pub use mix::{FileOf, Requests, files};
pub use server::{PORT, Server};
