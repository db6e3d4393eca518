//! The arguments that several commands share. They import no command, and run nothing.

pub(crate) mod below;
pub(crate) mod command;
pub(crate) mod formats;
pub(crate) mod guard;
pub(crate) mod heading;
pub(crate) mod knobs;
pub(crate) mod live;
pub(crate) mod page;
pub(crate) mod place;
pub(crate) mod redact;
pub(crate) mod run;
pub(crate) mod show;
