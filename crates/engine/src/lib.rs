//! Runs experiments: from plans to recordings.
//!
//! `schedule.rs` orders blocks and `site.rs` loops over them, wherever they run: packets in guests in `guests.rs`, a
//! command in a guest in `command.rs`, this machine in [`live`], frames along data paths in [`mod@bench`], two hosts in
//! `hosts.rs`. `plan.rs` assigns arms to guests and `origin.rs` boots them; [`long`] is for runs with a duration.

pub mod bench;
mod collect;
mod command;
mod debug_info;
mod error;
mod extras;
mod gather;
mod guests;
mod hosts;
mod index;
mod kernel_lines;
mod kinds;
pub mod live;
pub mod long;
mod measure;
mod namespaces;
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
mod wires;

pub use command::{CommandArm, CommandRun, MAX_FILES_BYTES, run_command};
pub use error::EngineError;
pub use guests::{GuestRun, run_in_guests};
pub use hosts::{HostsRun, run_hosts};
pub use live::run_live;
pub use namespaces::run_namespaces;
pub use plan::{GuestPlan, Plan};
pub use run::{Options, Progress};
