//! Senders and receivers of packets.

pub mod device;
pub mod drops;
pub mod echo;
pub mod ends;
mod first_use;
pub mod frames;
pub mod hosts;
pub mod mark;
pub mod packets;
pub mod peers;
pub mod reads;
pub mod timed;
pub mod web;
