//! Temporary settings: applied, read back, and restored in every case.
//!
//! Each is a [`Setting`] with a text as value, read and written in a namespace. [`Applied`] has the
//! changes, and restores them when it is dropped, the last change first. For interfaces and disks
//! of this machine there is also a [`Journal`], on disk before anything is changed, from which
//! [`recover()`] restores settings after a run was killed.

mod applied;
mod disk;
mod error;
mod file;
mod guard;
mod journal;
mod nic;
mod recover;
mod setting;

pub use applied::Applied;
pub use disk::{BlockDisk, DiskError, FoundDisk};
pub use error::KnobError;
pub use guard::refusal;
pub use journal::{Journal, Used};
pub use nic::Nic;
pub use recover::{Recovered, recover, recover_in};
pub use setting::{NONE, PRESENT, Planned, Setting};
