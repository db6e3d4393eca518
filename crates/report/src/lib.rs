//! report

pub mod capability;
