//! The subcommands, a file each.

pub(crate) mod bench;
pub(crate) mod command;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod experiment;
pub(crate) mod flags;
pub(crate) mod kernel;
pub(crate) mod live;
pub(crate) mod manual;
pub(crate) mod outputs;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod report;
pub(crate) mod run;
mod times;
