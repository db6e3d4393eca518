//! What samples.h declares, made of it when this is built.

use netplumb_model::timing::Filter;

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/samples.rs"));
}

/// Stacks that a map has room for.
pub(super) use made::KEYS;
pub(super) use made::{
    Asleep, Config, Counts, Crossed, KIND_COPY, KIND_COPY_OF_WAIT, KIND_CROSSED, KIND_STACK,
    KIND_TIME, KIND_WAIT, KIND_WAITED, Known, REASON_BLOCKED, REASON_IO, REASON_PREEMPTED,
    REASON_SLEEP, SCOPE_ALL, SCOPE_CGROUP, SCOPE_CHILDREN, SCOPE_PROCESS, Stack, Time, Turn,
    USER_COPY, USER_FRAME_POINTERS, UserStack, Wait, Waited,
};

/// Of each half of a stack, at most.
pub(super) const FRAMES: u32 = made::FRAMES as u32;
/// What user stacks are copied in.
pub(super) const PIECE_BYTES: u32 = made::PIECE_BYTES as u32;
/// For no task.
pub(super) const IDLE: u32 = made::IDLE as u32;
/// Of tasks of another namespace of pids.
pub(super) const FOREIGN: u32 = made::FOREIGN as u32;

/// Whose work is looked at, as the programs of several instruments are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// `SAMPLES_SCOPE_*`.
    pub(crate) scope: u32,
    /// The process, if it is of one.
    pub(crate) tgid: u32,
    /// The cgroup, likewise.
    pub(crate) cgroup: u64,
}

impl Scope {
    /// From what is asked for: of what this process starts from now on, or by a filter.
    pub(crate) fn of(children: bool, filter: &Filter) -> Scope {
        let own = std::process::id();
        let (scope, tgid) = match (children, filter.pid, filter.cgroup) {
            (true, ..) => (SCOPE_CHILDREN, own),
            (_, Some(pid), _) => (SCOPE_PROCESS, pid),
            (_, _, Some(_)) => (SCOPE_CGROUP, 0),
            _ => (SCOPE_ALL, 0),
        };
        Scope { scope: scope as u32, tgid, cgroup: filter.cgroup.unwrap_or_default() }
    }

    /// Whether processes are followed as they start others.
    pub(crate) fn follows(self) -> bool {
        [SCOPE_CHILDREN, SCOPE_PROCESS].contains(&(self.scope as usize))
    }

    /// Whether a program is needed to follow them: one of those that `FOLLOW` in whose.h makes.
    pub(crate) fn needs(self, program: &str) -> bool {
        let of = program.rsplit_once('_').map(|(_, of)| of);
        self.follows() && of.is_some_and(|of| ["fork", "exec", "free"].contains(&of))
    }
}
