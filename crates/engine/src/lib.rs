//! Runs experiments: from plans to recordings.

pub mod bench;
mod collect;
mod command;
mod debug_info;
mod ends;
mod error;
mod extras;
mod facts;
mod gather;
pub mod guest;
mod guests;
mod index;
mod kernel_lines;
mod kinds;
pub mod live;
pub mod long;
mod measure;
mod origin;
mod outside;
pub mod plan;
mod prototypes;
mod receive;
pub mod run;
mod scan;
mod schedule;
pub mod second_opinion;
mod site;
mod source_text;
mod symbols;
mod traces;

pub use command::{CommandArm, CommandRun, run_command};
pub use error::{EngineError, NicError};
pub use guests::{GuestRun, run_in_guests};
pub use live::run_live;
pub use plan::{GuestPlan, Plan};
pub use run::{Options, Progress};
