//! Calls of functions by trampolines (events/calls.bpf.c): of the requested tasks, and at less cost
//! than by kprobes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use netplumb_model::events::INSTRUMENT;
use netplumb_sys::bpf::{Opened, map};
use netplumb_sys::plain::Plain;

use crate::live::LiveError;
use crate::samples::Scope;

/// The programs, compiled from events/calls.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

/// Functions that are counted at once, at most.
pub(super) const MOST: usize = made::FUNCTIONS;

/// A function, at its entry or its exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) function: String,
    pub(super) returns: bool,
}

impl Called {
    /// Whether it is this function, at its entry or its returns as requested.
    pub(super) fn is(&self, (function, returns): (&str, bool)) -> bool {
        self.function == function && self.returns == returns
    }
}

/// The attached programs; detached when dropped.
pub(super) struct Calls {
    functions: usize,
    counts: MapHandle,
    turn: MapHandle,
    // Dropped before the object.
    _links: Vec<Link>,
    _object: Object,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("functions", &self.functions).finish_non_exhaustive()
    }
}

impl Calls {
    /// Attach to functions; nothing is counted yet.
    ///
    /// # Errors
    /// A function is unknown, or the kernel lacks trampolines or does not allow them.
    pub(super) fn attach(functions: &[Called], scope: Scope) -> Result<Calls, LiveError> {
        let failed = || LiveError::programs(INSTRUMENT);
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let mut open = Opened::new(OBJECT).map_err(failed())?;
        let config = made::Config {
            pidns_dev: namespace.dev(),
            pidns_inode: namespace.ino(),
            cgroup: scope.cgroup,
            scope: scope.scope,
            tgid: scope.tgid,
        };
        open.set_constants(config.bytes()).map_err(failed())?;
        let name = |n: usize, called: &Called| match called.returns {
            true => format!("calls_exit_{n}"),
            false => format!("calls_entry_{n}"),
        };
        let wanted: Vec<String> =
            (functions.iter().enumerate()).map(|(n, called)| name(n, called)).collect();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let at = wanted.iter().position(|wanted| *wanted == name);
            program.set_autoload(scope.needs(&name) || at.is_some());
            if let Some(at) = at {
                let to = program.set_attach_target(0, Some(functions[at].function.clone()));
                to.map_err(LiveError::system("find a function of the kernel"))?;
            }
        }
        let object = open.load().map_err(failed())?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if scope.needs(&name) || wanted.contains(&name) {
                let link = program.attach();
                links.push(link.map_err(LiveError::system("attach to a function"))?);
            }
        }
        Ok(Calls {
            functions: functions.len(),
            counts: map(&object, "counts").map_err(failed())?,
            turn: map(&object, ".data").map_err(failed())?,
            _links: links,
            _object: object,
        })
    }

    /// Begin to count, or stop.
    ///
    /// # Errors
    /// The kernel's map can't be written.
    pub(super) fn switch(&self, on: bool) -> Result<(), LiveError> {
        let turn = made::Turn { on: u64::from(on) };
        let zero = 0_u32.to_ne_bytes();
        let written = self.turn.update(&zero, turn.bytes(), MapFlags::ANY);
        written.map_err(LiveError::system("switch the counts of calls"))
    }

    /// What was counted so far of a function, by CPU.
    ///
    /// # Errors
    /// The kernel's map can't be read.
    pub(super) fn read(&self, function: usize) -> Result<Vec<u64>, LiveError> {
        let cpus = self.cpus(function)?;
        Ok(cpus.iter().map(|count| count.count).collect())
    }

    /// Processes so far whose calls are not counted, since there was no room for them.
    ///
    /// # Errors
    /// The kernel's map can't be read.
    pub(super) fn not_followed(&self) -> Result<u64, LiveError> {
        let cpus = self.cpus(0)?;
        Ok(cpus.iter().map(|count| count.not_followed).sum())
    }

    fn cpus(&self, function: usize) -> Result<Vec<made::Count>, LiveError> {
        let key = (function as u32).to_ne_bytes();
        let cpus = self.counts.lookup_percpu(&key, MapFlags::ANY);
        let cpus = cpus.map_err(LiveError::system("read the counts of calls"))?;
        let each = cpus.unwrap_or_default().into_iter();
        Ok(each.map(|cpu| made::Count::read(&cpu).unwrap_or_default()).collect())
    }
}
