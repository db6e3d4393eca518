//! Experiments carried out: from arms to guests to recordings.

mod collect;
mod extras;
pub mod guest;
pub mod plan;
pub mod run;
mod scan;
pub mod second_opinion;

pub use plan::{GuestPlan, Plan};
pub use run::{EngineError, Options, Progress, run};
