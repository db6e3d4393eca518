//! The system, each part of it written once: what the other crates ask Linux for.

pub mod threads;
