//! CPU use.
//!
//! The headline is 1 - (idle + iowait) / wall of each CPU, from /proc/stat: idle time is
//! measured by the kernel where ticks stop, whatever a tick is charged to. Never a sum
//! of the busy fields: ticks miss work that avoids them. The second method adds up the
//! time between tracepoints (rates/busy.bpf.c).
//!
//! Both count stolen time as busy: `steal` has its amount.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use netplumb_model::bench::CpuUse;
use netplumb_sys::proc::stat::{self, CpuTimes, ticks_per_second};

pub use super::accounting::facts;
use super::busy::{Busy, CpuSums};
use crate::live::LiveError;
use crate::own::monotonic_ns;

/// The most of a window that may have been idle or not, by tracepoints: beyond it, they
/// are not used.
const MOST_UNSURE: f64 = 0.01;
/// Maximum time to read /proc/stat, by the clock before and after; tried again beyond it.
const READ_NS: u64 = 500_000;
const READS: usize = 5;

/// A reading of /proc/stat.
#[derive(Debug, Clone, PartialEq)]
pub struct Stat {
    at_ns: u64,
    cpus: BTreeMap<u32, CpuTimes>,
}

impl Stat {
    /// Read it.
    ///
    /// # Errors
    /// /proc/stat does not exist.
    pub fn read() -> io::Result<Stat> {
        let mut best: Option<(u64, u64, String)> = None;
        for _ in 0..READS {
            let mut file = File::open(stat::PATH)?;
            // The kernel makes all of it at the first read.
            let mut text = String::with_capacity(64 << 10);
            let before_ns = monotonic_ns();
            file.read_to_string(&mut text)?;
            let took_ns = monotonic_ns() - before_ns;
            if best.as_ref().is_none_or(|(least, ..)| took_ns < *least) {
                best = Some((took_ns, before_ns + took_ns / 2, text));
            }
            if took_ns < READ_NS {
                break;
            }
        }
        let (_, at_ns, text) = best.ok_or(io::ErrorKind::NotFound)?;
        Ok(Stat { at_ns, cpus: stat::parse(&text, ticks_per_second()) })
    }

    /// Seconds from one reading to a later one.
    pub fn seconds_to(&self, later: &Stat) -> f64 {
        later.at_ns.saturating_sub(self.at_ns) as f64 / 1e9
    }

    /// The use of each CPU between two readings, for CPUs in both.
    pub fn busy_to(&self, later: &Stat) -> Vec<CpuUse> {
        let wall_s = self.seconds_to(later);
        let both = later.cpus.iter().filter_map(|(cpu, b)| Some((*cpu, self.cpus.get(cpu)?, b)));
        both.map(|(cpu, a, b)| {
            let share = |from: f64, to: f64| match wall_s > 0.0 {
                true => ((to - from) / wall_s).clamp(0.0, 1.0),
                false => 0.0,
            };
            CpuUse {
                cpu,
                busy: 1.0 - share(a.idle_s, b.idle_s),
                second: None,
                others: None,
                steal: share(a.steal_s, b.steal_s),
                softirq: share(a.softirq_s, b.softirq_s),
            }
        })
        .collect()
    }

    /// Whether both have the same CPUs.
    pub fn has_cpus_of(&self, other: &Stat) -> bool {
        self.cpus.keys().eq(other.cpus.keys())
    }

    /// The error of `busy` between two readings, since the fields of /proc/stat are cut
    /// down to ticks of USER_HZ: idle and iowait by one each.
    pub fn resolution_to(&self, later: &Stat) -> f64 {
        match self.seconds_to(later) {
            wall_s if wall_s > 0.0 => (2.0 / ticks_per_second() / wall_s).min(1.0),
            _ => 1.0,
        }
    }
}

/// Measures CPU use by both methods; the programs of the second one are detached when it is
/// dropped.
#[derive(Debug)]
pub struct CpuClock {
    second: Result<Busy, LiveError>,
}

/// A reading by both methods.
#[derive(Debug, Clone)]
pub struct Reading {
    stat: Stat,
    ran: BTreeMap<u32, CpuSums>,
}

impl CpuClock {
    /// Prepare both methods. If the second one is not available, only the first one is used: see
    /// [`CpuClock::without_second`].
    ///
    /// # Errors
    /// /proc/stat does not exist.
    pub fn begin() -> io::Result<CpuClock> {
        Stat::read()?;
        Ok(CpuClock { second: Busy::attach() })
    }

    /// Why the second method is not available; none if it is.
    pub fn without_second(&self) -> Option<&LiveError> {
        self.second.as_ref().err()
    }

    /// A reading of CPU use, to compare with a later one.
    ///
    /// # Errors
    /// /proc/stat or the map can't be read.
    pub fn read(&self) -> io::Result<Reading> {
        let ran = match &self.second {
            Ok(busy) => busy.read().map_err(io::Error::other)?,
            Err(_) => BTreeMap::new(),
        };
        Ok(Reading { stat: Stat::read()?, ran })
    }
}

/// The use of each CPU between two readings. `second` and `others` are none if that method is not available,
/// does not know the CPU yet, or is uncertain.
pub fn since(before: &Reading, after: &Reading) -> Vec<CpuUse> {
    let mut uses = before.stat.busy_to(&after.stat);
    for one in &mut uses {
        let ran = before.ran.get(&one.cpu).zip(after.ran.get(&one.cpu));
        let shares = ran.and_then(|(a, b)| second(a, b));
        (one.second, one.others) = shares.unzip();
    }
    uses
}

/// The error of `busy` in the result of [`since`]: see [`Stat::resolution_to`]. A
/// window of a second makes it two points at most, and one as a rule.
pub fn resolution(before: &Reading, after: &Reading) -> f64 {
    before.stat.resolution_to(&after.stat)
}

/// The share of time that was busy, and the part of others.
fn second(before: &CpuSums, after: &CpuSums) -> Option<(f64, f64)> {
    let wall_ns = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64;
    let unsure_ns = after.unsure_ns.saturating_sub(before.unsure_ns) as f64;
    let busy_ns = after.busy_ns.saturating_sub(before.busy_ns) as f64;
    let others_ns = after.others_ns.saturating_sub(before.others_ns) as f64;
    let share = |ns: f64| (ns / wall_ns).min(1.0);
    (unsure_ns <= MOST_UNSURE * wall_ns).then(|| (share(busy_ns), share(others_ns)))
}

#[cfg(test)]
mod tests;
