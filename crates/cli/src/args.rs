//! What is typed: the arguments that commands share. They know of no command, and carry
//! nothing out.

pub(crate) mod command;
pub(crate) mod formats;
pub(crate) mod knobs;
pub(crate) mod live;
pub(crate) mod page;
pub(crate) mod run;
pub(crate) mod show;
