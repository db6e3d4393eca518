//! What samples.h declares, made of it when this is built.

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/samples.rs"));
}

pub(super) use made::Key;

/// Stacks of the first table: those of the second have numbers from there on.
pub(super) const STACKS: u32 = made::STACKS as u32;
/// For no task.
pub(super) const IDLE: u32 = made::IDLE as u32;
/// Of tasks of another namespace of pids.
pub(super) const FOREIGN: u32 = made::FOREIGN as u32;
