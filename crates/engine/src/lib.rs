//! Experiments carried out: from arms to guests to recordings.

mod collect;
mod error;
pub mod guest;
mod measure;
mod origin;
pub mod plan;
pub mod run;
pub mod second_opinion;

pub use error::EngineError;
pub use plan::{GuestPlan, Plan};
pub use run::{Options, Progress, run};
