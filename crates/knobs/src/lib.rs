//! Settings that are changed for a while: applied, read back, and restored in every case.
//!
//! Each is a [`Setting`] whose value is text, read and written in a namespace. [`Knobs`]
//! holds what was changed, and puts it back when it is dropped, the last change first. On
//! the user's own interfaces there is a [`Journal`] as well: what is to be restored is on
//! disk before anything is changed, so that [`recover()`] does it after a run that was
//! killed.

mod error;
mod file;
mod journal;
mod knobs;
mod nic;
mod recover;
mod setting;

pub use error::KnobError;
pub use journal::Journal;
pub use knobs::Knobs;
pub use nic::Nic;
pub use recover::{Recovered, recover, recover_in};
pub use setting::{NONE, PRESENT, Planned, Setting};
