//! Experiments carried out: from arms to guests to recordings.

mod collect;
pub mod guest;
pub mod plan;
pub mod run;
pub mod second_opinion;

pub use plan::{GuestPlan, Plan};
pub use run::{EngineError, Options, Progress, run};
