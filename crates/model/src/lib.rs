//! Plain data shared by all crates: classes, recordings, experiment files, the messages of a guest.
//! No I/O.

pub mod arch;
pub mod bench;
pub mod capability;
pub mod chain;
pub mod class;
pub mod code;
pub mod events;
pub mod experiment;
pub mod hosts;
pub mod layers;
pub mod loss;
pub mod message;
pub mod quantity;
pub mod reads;
pub mod recording;
pub mod samples;
pub mod span;
pub mod spans;
pub mod symbol;
pub mod text;
pub mod timing;
pub mod trace;
pub mod tree;
pub mod tune;
pub mod web;
