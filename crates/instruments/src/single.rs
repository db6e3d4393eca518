//! One function timed alone, as a witness for the tests of `exact`: nanoseconds from
//! its entry to its exit,
//! by fentry and fexit.
//!
//! Two programs on the one trampoline (single/single.bpf.c) read the clock
//! and keep the number of calls, the sum of their times and the shortest. Every
//! time holds the probe's own cost between the two readings: [`Times`] has it as
//! measured, for callers that know that cost to subtract. It is nearly the same for
//! all functions. The trampoline restores the function's argument registers, an
//! instruction each; and there is [`RCU_INSNS`]. On x86-64 with Linux 6.1 the rest
//! is 166 instructions.

use std::fmt;
use std::os::fd::AsFd;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use netplumb_sys::bpf::{BpfError, Opened, map, raw};
use netplumb_sys::plain::Plain;

/// The programs, compiled from single/single.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/single.bpf.o"));

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/single.rs"));
}

/// Instructions that the probe saves in a call within an RCU read section, where RCU is
/// preemptible: the end of an inner section need not check whether it was waited for
/// (`__rcu_read_unlock`, kernel/rcu/tree_plugin.h; counted on x86-64).
pub const RCU_INSNS: u32 = 3;

/// What the kernel itself calls on the way to a program: timing it would never
/// end. Newer kernels refuse (`btf_id_deny` in kernel/bpf/verifier.c), 6.1 hangs.
const NEVER: &[&str] = &["__rcu_read_lock", "__rcu_read_unlock"];

/// Why a function can't be timed.
#[derive(Debug)]
pub struct TimerError {
    doing: &'static str,
    function: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for TimerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The alternate form has the causes.
        write!(f, "can't {} `{}`: {:#}", self.doing, self.function, self.source)
    }
}

impl std::error::Error for TimerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// What was seen of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Calls that returned and were timed.
    pub calls: u64,
    /// Sum of their times, the probe's own cost included.
    pub total_ns: u64,
    /// The shortest, likewise; 0 if there were no calls.
    pub min_ns: u64,
    /// How many of the timed calls were made within an RCU read section: see
    /// [`RCU_INSNS`].
    pub in_rcu: u64,
    /// Calls that could not be timed, or may have been timed wrongly: entered
    /// before the timer was there, nested too deep, or made while the probe
    /// itself was at work.
    pub untimed: u64,
}

impl Times {
    /// Take in what another CPU has seen.
    fn add(&mut self, cpu: &made::Times) {
        if cpu.calls > 0 {
            self.min_ns = if self.calls == 0 { cpu.min_ns } else { self.min_ns.min(cpu.min_ns) };
        }
        self.calls += cpu.calls;
        self.total_ns += cpu.total_ns;
        self.in_rcu += cpu.in_rcu;
        self.untimed += cpu.untimed;
    }
}

/// Times one function for as long as it lives.
#[derive(Debug)]
pub struct FunctionTimer {
    function: String,
    // Fields are dropped in this order: `enter` goes first, so that what `leave`
    // sees has been entered.
    _enter: Link,
    _leave: Link,
    times: MapHandle,
    /// Misses before the last reset.
    misses_before: u64,
    object: Object,
}

impl FunctionTimer {
    /// Start to time `function`, of the kernel or of a module that is loaded.
    ///
    /// # Errors
    /// The function is unknown, it can't be traced, or this kernel or user may not
    /// trace.
    pub fn attach(function: &str) -> Result<Self, TimerError> {
        let failed = |doing| {
            move |source: BpfError| TimerError {
                doing,
                function: function.to_string(),
                source: source.into(),
            }
        };
        if NEVER.contains(&function) {
            let why = "the probe itself calls it".to_string();
            return Err(failed("time")(BpfError::Object(why)));
        }
        let mut open = Opened::new(OBJECT).map_err(failed("read the programs of `single`"))?;
        for mut program in open.progs_mut() {
            program
                .set_attach_target(0, Some(function.to_string()))
                .map_err(BpfError::from)
                .map_err(failed("find"))?;
        }
        let object = open.load().map_err(failed("load the programs of `single`"))?;
        let link = |name: &str| {
            let program = object.progs_mut().find(|p| p.name() == name);
            let missing = || BpfError::Object(format!("the compiled programs have no `{name}`"));
            program
                .ok_or_else(missing)
                .and_then(|p| Ok(p.attach_trace()?))
                .map_err(failed("attach to"))
        };
        // `leave` passes over what it has not seen entered, but `enter` would wait
        // for exits that nobody sees.
        let leave = link("leave")?;
        let enter = link("enter")?;
        let times = map(&object, "times").map_err(failed("read the times of"))?;
        let mut timer = FunctionTimer {
            function: function.to_string(),
            _enter: enter,
            _leave: leave,
            times,
            misses_before: 0,
            object,
        };
        timer.reset()?;
        Ok(timer)
    }

    /// Forget what was seen so far.
    ///
    /// # Errors
    /// The map could not be written.
    pub fn reset(&mut self) -> Result<(), TimerError> {
        self.clear().map_err(|source| self.error("reset the times of", source))?;
        self.misses_before = self.misses()?;
        Ok(())
    }

    fn clear(&self) -> Result<(), libbpf_rs::Error> {
        let none = made::Times::zeroed().bytes().to_vec();
        let zeros = vec![none; libbpf_rs::num_possible_cpus()?];
        self.times.update_percpu(&0_u32.to_ne_bytes(), &zeros, MapFlags::ANY)
    }

    /// What was seen since the last reset.
    ///
    /// # Errors
    /// The map could not be read.
    pub fn read(&self) -> Result<Times, TimerError> {
        let cpus = self
            .times
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| self.error("read the times of", source))?
            .unwrap_or_default();
        let mut times = Times::default();
        for cpu in cpus.iter().filter_map(|cpu| made::Times::read(cpu)) {
            times.add(&cpu);
        }
        times.untimed += self.misses()?.saturating_sub(self.misses_before);
        Ok(times)
    }

    /// Runs of either program that the kernel skipped, since that program was under way
    /// on the same CPU. One means that an entry and an exit may have been paired
    /// wrongly.
    fn misses(&self) -> Result<u64, TimerError> {
        let mut misses = 0;
        for program in self.object.progs() {
            let info = raw::info(program.as_fd())
                .map_err(|source| self.error("count the missed calls of", source))?;
            misses += info.recursion_misses;
        }
        Ok(misses)
    }

    fn error(
        &self,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> TimerError {
        TimerError { doing, function: self.function.clone(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the programs are carried, both, under the names that are asked
    /// for, with the map as large as is read.
    #[test]
    fn programs_are_carried() {
        let object = Opened::new(OBJECT).unwrap();
        let mut names: Vec<_> =
            object.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, ["enter", "leave"]);
        let times = object.maps().find(|m| m.name() == "times").unwrap();
        assert_eq!(times.value_size() as usize, size_of::<made::Times>());
    }

    /// Check that CPUs which saw nothing do not take part in the shortest.
    #[test]
    fn cpus_are_merged() {
        let mut times = Times::default();
        for numbers in [[0, 0, 0, 0, 1], [2, 30, 14, 1, 0], [0; 5], [1, 9, 9, 0, 0]] {
            let [calls, total_ns, min_ns, in_rcu, untimed] = numbers;
            times.add(&made::Times { calls, total_ns, min_ns, in_rcu, untimed });
        }
        assert_eq!(times, Times { calls: 3, total_ns: 39, min_ns: 9, in_rcu: 1, untimed: 1 });
    }
}
