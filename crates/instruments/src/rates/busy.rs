//! CPU use by the tracepoints of scheduler and interrupts (rates/busy.bpf.c): the check of
//! /proc/stat.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use netplumb_sys::bpf::types::{self, has_tracepoint};
use netplumb_sys::bpf::{Opened, map};
use netplumb_sys::cpus;
use netplumb_sys::plain::Plain;

use super::RATES;
use crate::live::LiveError;
use crate::own::monotonic_ns;

/// The programs, compiled from rates/busy.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/busy.bpf.o"));

/// Prefix of the programs' names, before the tracepoint's.
const PREFIX: &str = "busy_";
/// Attached last: a CPU is known from the first switch of tasks on.
const SWITCH: &str = "sched_switch";
/// Required; other tracepoints exist on some kinds of machine.
const NEEDED: &[&str] =
    &[SWITCH, "irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit"];

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/busy.rs"));
}

/// The attached programs.
#[derive(Debug)]
pub(super) struct Busy {
    cpus: MapHandle,
    // Dropped before the object.
    _links: Vec<Link>,
    _object: Object,
}

/// The sums of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuSums {
    /// When, by CLOCK_MONOTONIC.
    pub(super) at_ns: u64,
    /// Busy time since the programs were attached.
    pub(super) busy_ns: u64,
    /// Time counted as idle that may have been busy.
    pub(super) unsure_ns: u64,
    /// The part of the busy time in other programs' tasks.
    pub(super) others_ns: u64,
}

impl Busy {
    /// Attach the programs, and make every CPU switch tasks once, after which its state is known.
    pub(super) fn attach() -> Result<Busy, LiveError> {
        let btf = types::of_kernel().map_err(LiveError::programs(RATES))?;
        let has = |tracepoint: &str| has_tracepoint(&btf, tracepoint);
        let possible =
            libbpf_rs::num_possible_cpus().map_err(LiveError::system("count the CPUs"))?;
        let mut open = Opened::new(OBJECT).map_err(LiveError::programs(RATES))?;
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let config = made::Config {
            pidns_dev: namespace.dev(),
            pidns_inode: namespace.ino(),
            tgid: std::process::id(),
            ..made::Config::default()
        };
        open.set_constants(config.bytes()).map_err(LiveError::programs(RATES))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            if !has(tracepoint) && NEEDED.contains(&tracepoint) {
                return Err(LiveError::CannotRun {
                    reason: format!("the kernel has no tracepoint `{tracepoint}`"),
                    remedy: "use a kernel with CONFIG_TRACEPOINTS".into(),
                });
            }
            program.set_autoload(has(tracepoint));
        }
        for mut map in open.maps_mut().filter(|map| map.name() == "cpus") {
            // The number of CPUs always fits.
            map.set_max_entries(possible as u32)
                .map_err(LiveError::system("size the map of `rates`"))?;
        }
        let object = open.load().map_err(LiveError::programs(RATES))?;
        let mut links = Vec::new();
        for last in [false, true] {
            for program in object.progs_mut() {
                let is_switch = program.name().to_string_lossy().ends_with(SWITCH);
                if program.autoload() && is_switch == last {
                    let link = program.attach_trace();
                    links.push(link.map_err(LiveError::system("attach the programs of `rates`"))?);
                }
            }
        }
        let cpus = map(&object, "cpus").map_err(LiveError::programs(RATES))?;
        switch_once(possible);
        Ok(Busy { cpus, _links: links, _object: object })
    }

    /// The sums so far, by CPU; without CPUs that did not switch tasks yet.
    pub(super) fn read(&self) -> Result<BTreeMap<u32, CpuSums>, libbpf_rs::Error> {
        let mut ran = BTreeMap::new();
        for cpu in 0..self.cpus.max_entries() {
            let before_ns = monotonic_ns();
            let Some(value) = self.cpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)? else {
                continue;
            };
            // Half way between: the value was read in there.
            let at_ns = before_ns + (monotonic_ns() - before_ns) / 2;
            let seen = made::Cpu::read(&value).filter(|seen| seen.known != 0);
            if let Some(seen) = seen {
                ran.insert(
                    cpu,
                    CpuSums {
                        at_ns,
                        busy_ns: busy_ns(seen.acc_ns, at_ns),
                        unsure_ns: seen.unsure_ns,
                        others_ns: busy_ns(seen.others_acc_ns, at_ns),
                    },
                );
            }
        }
        Ok(ran)
    }
}

/// The busy time by the one word, at a moment: the word is negative while something runs.
fn busy_ns(acc_ns: u64, at_ns: u64) -> u64 {
    match (acc_ns as i64) < 0 {
        true => acc_ns.wrapping_add(at_ns),
        false => acc_ns,
    }
}

/// Run on every CPU for a moment. Where that is refused, the CPU is known when it
/// switches tasks by itself.
fn switch_once(possible: usize) {
    // A new thread, which has to be switched to on every CPU.
    let visitor = std::thread::Builder::new().name("plumb-cpus".into());
    let visitor = visitor.spawn(move || {
        for cpu in 0..possible {
            // A CPU that is off, or not allowed, is known when it is used.
            let _ = cpus::pin(0, cpu as u32);
        }
    });
    // It does not fail; if there is none, CPUs are known later.
    if let Ok(visitor) = visitor {
        let _ = visitor.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a period under way counts up to now.
    #[test]
    fn one_word() {
        // Ran for 30, from 1000 to 1030.
        let idle = 0_u64.wrapping_sub(1000).wrapping_add(1030);
        assert_eq!(busy_ns(idle, 5000), 30);
        let running = idle.wrapping_sub(4000);
        assert_eq!(busy_ns(running, 5000), 1030);
    }
}
