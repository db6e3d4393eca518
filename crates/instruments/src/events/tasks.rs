//! Events by task (events/tasks.bpf.c): as a CPU switches tasks, the increase of its counters is
//! charged to the task that it switches from.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use libbpf_sys as sys;
use netplumb_model::events::INSTRUMENT;
use netplumb_model::samples::Thread;
use netplumb_sys::bpf::{Opened, map};
use netplumb_sys::plain::Plain;

use crate::live::LiveError;

/// The programs, compiled from events/tasks.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));

/// The program that is run as a window ends.
const FLUSH: &str = "tasks_flush";
/// include/uapi/linux/bpf.h
const BPF_F_TEST_RUN_ON_CPU: u32 = 1;

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/tasks.rs"));
}

/// Events that are counted at once, at most.
pub(super) const MOST: usize = made::EVENTS;
/// From this number of sums on, sums of tasks that did nothing in a window are dropped.
const MANY: usize = made::SUMS / 2;

/// The attached programs.
pub(super) struct Tasks {
    cpus: Vec<u32>,
    /// Sums at the last reading.
    before: BTreeMap<Vec<u8>, u64>,
    lost: Vec<u64>,
    events: MapHandle,
    sums: MapHandle,
    // Dropped before the object.
    _link: Link,
    object: Object,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

/// An event in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ByTask {
    /// By process and name.
    pub(super) tasks: BTreeMap<(u32, String), u64>,
    /// Counts that there was no room for.
    pub(super) lost: u64,
}

impl Tasks {
    /// Attach to these counters: for each event, one per CPU.
    pub(super) fn attach(cpus: &[u32], counters: &[Vec<(u32, RawFd)>]) -> Result<Tasks, LiveError> {
        let failed = || LiveError::programs(INSTRUMENT);
        let possible =
            libbpf_rs::num_possible_cpus().map_err(LiveError::system("count the CPUs"))? as u32;
        let mut open = Opened::new(OBJECT).map_err(failed())?;
        let config = made::Config { events: counters.len() as u32, cpus: possible };
        open.set_constants(config.bytes()).map_err(failed())?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy() == "counters" {
                map.set_max_entries(counters.len() as u32 * possible)
                    .map_err(LiveError::system("size a map"))?;
            }
        }
        let object = open.load().map_err(failed())?;
        let array = map(&object, "counters").map_err(failed())?;
        for (event, parts) in (0..).zip(counters) {
            for (cpu, fd) in parts {
                let at: u32 = event * possible + cpu;
                let put = array.update(&at.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY);
                put.map_err(LiveError::system("hand over a counter"))?;
            }
        }
        let mut link = None;
        for program in object.progs_mut() {
            if program.name().to_string_lossy() != FLUSH {
                let attached = program.attach_raw_tracepoint("sched_switch");
                link = Some(attached.map_err(LiveError::system("attach to switches of tasks"))?);
            }
        }
        let link = link.ok_or_else(|| LiveError::CannotRun {
            reason: "there is no program for switches of tasks".into(),
            remedy: "this is a bug of plumb".into(),
        })?;
        Ok(Tasks {
            cpus: cpus.to_vec(),
            before: BTreeMap::new(),
            lost: vec![0; counters.len()],
            events: map(&object, "events").map_err(failed())?,
            sums: map(&object, "sums").map_err(failed())?,
            _link: link,
            object,
        })
    }

    /// Charge the tasks that run now.
    fn flush(&self) -> Result<(), LiveError> {
        let mut programs = self.object.progs();
        let program = programs.find(|program| program.name().to_string_lossy() == FLUSH);
        let Some(program) = program else {
            return Ok(());
        };
        for cpu in &self.cpus {
            match run_on(program.as_fd(), *cpu) {
                Ok(()) => {}
                // It went off.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
                Err(error) => return Err(LiveError::system("charge the tasks that run")(error)),
            }
        }
        Ok(())
    }

    /// What was charged since this was read last, by event.
    pub(super) fn read(&mut self) -> Result<Vec<ByTask>, LiveError> {
        self.flush()?;
        let failed = || LiveError::system("read the events of tasks");
        let mut all = vec![ByTask::default(); self.lost.len()];
        let keys: Vec<Vec<u8>> = self.sums.keys().collect();
        let many = keys.len() > MANY;
        let mut before = BTreeMap::new();
        for bytes in keys {
            let value = self.sums.lookup(&bytes, MapFlags::ANY).map_err(failed())?;
            let value: Option<[u8; 8]> = value.and_then(|value| value.try_into().ok());
            let (Some(value), Some(key)) = (value, made::Key::read(&bytes)) else {
                continue;
            };
            let value = u64::from_ne_bytes(value);
            let more = value.saturating_sub(self.before.get(&bytes).copied().unwrap_or(0));
            if more == 0 && many {
                // If the task runs again, its sum begins anew.
                let _ = self.sums.delete(&bytes);
                continue;
            }
            if let Some(of) = all.get_mut(key.event as usize).filter(|_| more > 0) {
                let name = key.name.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                *of.tasks.entry((key.tgid, name)).or_default() += more;
            }
            before.insert(bytes, value);
        }
        self.before = before;
        for (at, (of, lost)) in (0_u32..).zip(all.iter_mut().zip(&mut self.lost)) {
            let by_cpu = self.events.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY);
            let by_cpu = by_cpu.map_err(failed())?.unwrap_or_default();
            let sum: u64 =
                (by_cpu.iter()).filter_map(|bytes| Some(made::Event::read(bytes)?.lost)).sum();
            of.lost = sum.saturating_sub(std::mem::replace(lost, sum));
        }
        Ok(all)
    }
}

impl ByTask {
    /// All of it.
    pub(super) fn whole(&self) -> u64 {
        self.tasks.values().sum::<u64>() + self.lost
    }
}

/// As a thread of a recording: all of a process's threads are one.
pub(super) fn thread((tgid, name): &(u32, String)) -> Thread {
    Thread {
        pid: *tgid,
        tid: *tgid,
        name: match tgid {
            // Each CPU's has another name.
            0 => "[idle]".into(),
            _ => name.clone(),
        },
    }
}

/// Run a program on a CPU.
fn run_on(program: BorrowedFd<'_>, cpu: u32) -> std::io::Result<()> {
    let mut opts = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        flags: BPF_F_TEST_RUN_ON_CPU,
        cpu,
        ..Default::default()
    };
    // SAFETY: the options outlive the call, and the program has no other input.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    match result {
        0.. => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error)),
    }
}
