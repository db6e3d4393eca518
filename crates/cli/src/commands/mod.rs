//! The subcommands, a file each. Those that measure write an experiment, and hand it on.

pub(crate) mod bench;
pub(crate) mod between;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod kernel;
pub(crate) mod manual;
pub(crate) mod module;
pub(crate) mod path;
pub(crate) mod profile;
pub(crate) mod read_file;
pub(crate) mod redact;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod topology;
pub(crate) mod trace;
pub(crate) mod tune;
