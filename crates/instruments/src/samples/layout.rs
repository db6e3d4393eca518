//! What samples.h declares, made of it when this is built.

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/samples.rs"));
}

/// Stacks that a map has room for.
pub(super) use made::KEYS;
pub(super) use made::{
    Asleep, Config, Counts, Crossed, KIND_COPY, KIND_CROSSED, KIND_STACK, KIND_TIME, KIND_WAIT,
    Known, REASON_BLOCKED, REASON_IO, REASON_PREEMPTED, REASON_SLEEP, SCOPE_ALL, SCOPE_CGROUP,
    SCOPE_CHILDREN, SCOPE_PROCESS, Stack, Time, Turn, USER_COPY, USER_FRAME_POINTERS, UserStack,
    Wait,
};

/// Of each half of a stack, at most.
pub(super) const FRAMES: u32 = made::FRAMES as u32;
/// For no task.
pub(super) const IDLE: u32 = made::IDLE as u32;
/// Of tasks of another namespace of pids.
pub(super) const FOREIGN: u32 = made::FOREIGN as u32;
