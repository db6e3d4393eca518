//! Settings that are changed for a while: applied, read back, and restored in every case.
//!
//! Each is a [`Setting`] whose value is text, read and written in a namespace. [`Applied`]
//! holds what was changed, and puts it back when it is dropped, the last change first. On
//! the user's own interfaces there is a [`Journal`] as well: what is to be restored is on
//! disk before anything is changed, so that [`recover()`] does it after a run that was
//! killed.

mod applied;
mod error;
mod file;
mod journal;
mod nic;
mod recover;
mod setting;

pub use applied::Applied;
pub use error::KnobError;
pub use journal::Journal;
pub use nic::Nic;
pub use recover::{Recovered, recover, recover_in};
pub use setting::{NONE, PRESENT, Planned, Setting};
