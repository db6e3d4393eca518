//! The subcommands.

pub(crate) mod doctor;
pub(crate) mod kernel;
