//! Calibration: measures the cost of probes.
//!
//! The kernel has empty functions for tests of BPF: `bpf_fentry_test1` to `6`, with one to six
//! arguments. A test run calls each once, within `bpf_prog_test_run_tracing`. The raw time of one
//! of them is the bias. With the outer function timed, too, the increase of its time when one of
//! them is timed is the cost of a pair of probes. The programs are the same that time all other
//! functions, in the same state: with a caller on the stack, and a known context.

use netplumb_model::timing::{Calibration, Mechanism};

use super::instances::{self, Maker, Probe, Shared};
use super::layout::cell;
use super::object::{Program, Templates};
use super::runtime::{Memory, Shape};
use super::types::{Described, Types};
use netplumb_sys::{clock, cpus};

use crate::live::LiveError;
use crate::middle::Middle;

/// The function that calls the empty ones.
const OUTER: &str = "bpf_prog_test_run_tracing";
/// An empty function that is called in an RCU read-side critical section, and one around it.
const NESTED_INNER: &str = "bpf_get_current_uid_gid";
const NESTED_OUTER: &str = "bpf_prog_test_run_raw_tp";
/// Test runs that are enough for each arrangement.
const RUNS: usize = 200;
/// The same by a coarse clock: their mean is known to a sixtieth of a tick.
const RUNS_BY_TICKS: usize = 1024;
/// Runs at a time.
const RUNS_AT_ONCE: usize = 20;
/// The uncertainty that is sufficient.
const ENOUGH_NS: f64 = 0.25;
/// Arguments of the functions that trampolines are measured on. Each argument is one
/// more to save and to restore, so values between are interpolated.
const LEAST_ARGUMENTS: u8 = 1;
const MOST_ARGUMENTS: u8 = 6;
/// Maximum number of CPUs to measure.
const MAX_CPUS: usize = 8;
/// Numbers of functions that calibration needs.
pub(super) const FUNCTIONS: u32 = 7;

/// The results of the calibration.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// By number of arguments: each CPU's, then the median of all.
    pub(super) calibration: Vec<Calibration>,
    /// By how much a pair costs less in an RCU read-side critical section.
    pub(super) nested_saving_ns: f64,
    /// The cost of a boundary's hooks that is attributed to the interrupted function.
    pub(super) outside_ns: f64,
}

/// The CPU affinity of the calling thread, restored when dropped.
struct Pinned(libc::cpu_set_t);

impl Pinned {
    fn begin() -> Pinned {
        // SAFETY: an all-zero set is a set, and the kernel fills it in.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            Pinned(set)
        }
    }

    fn cpus(&self) -> Vec<u32> {
        (0..libc::CPU_SETSIZE as usize)
            // SAFETY: the number is within the set.
            .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) })
            .map(|cpu| cpu as u32)
            .collect()
    }

    fn pin(&self, cpu: u32) {
        // If the CPU is gone, measure on another one.
        let _ = cpus::pin(0, cpu);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave.
        unsafe {
            libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0);
        }
    }
}

/// The set-up of the measurement.
pub(super) struct Bench<'a> {
    pub(super) templates: &'a Templates,
    pub(super) shape: Shape,
    pub(super) memory: &'a Memory,
    pub(super) maker: &'a Maker,
    pub(super) types: &'a Types,
    /// See [`netplumb_sys::clock::tick_ns`].
    pub(super) tick_ns: f64,
    /// The first of [`FUNCTIONS`] free numbers.
    pub(super) first: u32,
    /// Functions that share a program: their number decides the time to look up a
    /// cookie, so calibration's function is attached with them.
    pub(super) beside: &'a [Shared],
}

impl Bench<'_> {
    fn attach(&self, name: &str, number: u32, mechanism: Mechanism) -> Result<Probe, LiveError> {
        let failed = |error: std::io::Error| LiveError::System {
            doing: format!("measure the overhead of probes, on `{name}`"),
            source: Box::new(error),
        };
        let absent = || failed(std::io::Error::other("this kernel has no such function"));
        let function = self.types.find(name).ok_or_else(absent)?;
        let number = self.first + number;
        if mechanism == Mechanism::KprobeSession {
            let mut all = self.beside.to_vec();
            all.push(Shared::new(function, number));
            return self.maker.share(&all).map_err(failed);
        }
        (self.maker).attach(self.types, function, number, mechanism).map_err(failed)
    }

    /// The sums of a calibration function, over its nodes.
    fn read(&self, number: u32) -> u64 {
        let mut sum = 0;
        for id in 0..self.memory.node_count() {
            if self.memory.node(id).function == self.first + number {
                for cpu in 0..self.shape.cpus {
                    sum += self.memory.cell_word(cpu, id, cell::TOTAL);
                }
            }
        }
        sum
    }

    /// Times of two functions in test runs of a program on one CPU.
    fn run_program(
        &self,
        program: &Program,
        outer: u32,
        inner: u32,
    ) -> Result<(Middle, Middle), LiveError> {
        let failed = |error: std::io::Error| LiveError::System {
            doing: "measure the overhead of probes".into(),
            source: Box::new(error),
        };
        // The first are to warm up.
        for _ in 0..RUNS_AT_ONCE {
            program.test().map_err(failed)?;
        }
        let mut times = (Vec::new(), Vec::new());
        loop {
            for _ in 0..RUNS_AT_ONCE {
                let before = (self.read(outer), self.read(inner));
                clock::shift(times.0.len());
                program.test().map_err(failed)?;
                times.0.push((self.read(outer) - before.0) as f64);
                times.1.push((self.read(inner) - before.1) as f64);
            }
            let found = (
                Middle::of_ticks(times.0.clone(), self.tick_ns),
                Middle::of_ticks(times.1.clone(), self.tick_ns),
            );
            let doubt_ns = found.0.doubt_ns.max(found.1.doubt_ns);
            let most = match self.tick_ns > 1.0 {
                true => RUNS_BY_TICKS,
                false => RUNS,
            };
            if times.0.len() >= most || doubt_ns <= ENOUGH_NS {
                return Ok(found);
            }
        }
    }

    /// Measure a mechanism. No other functions may be attached, since they would cost time too.
    pub(super) fn measure(&self, mechanism: Mechanism) -> Result<Costs, LiveError> {
        let pinned = Pinned::begin();
        let mut cpus = pinned.cpus();
        cpus.truncate(MAX_CPUS);
        let runner = self.runner()?;
        // Its own cost cancels out: use the mechanism that interferes least.
        let _outer = self
            .attach(OUTER, 0, Mechanism::FentryFexit)
            .or_else(|_| self.attach(OUTER, 0, mechanism))?;
        let run = |inner| self.run_program(&runner, 0, inner);
        let mut alone = Vec::new();
        for &cpu in &cpus {
            pinned.pin(cpu);
            alone.push(run(0)?.0);
        }
        let mut costs = Costs::default();
        // Other mechanisms don't save each argument by itself.
        let measured: &[u8] = match mechanism {
            Mechanism::FentryFexit => &[LEAST_ARGUMENTS, MOST_ARGUMENTS],
            _ => &[LEAST_ARGUMENTS],
        };
        for &arguments in measured {
            let number = u32::from(arguments);
            let _inner = self.attach(&format!("bpf_fentry_test{arguments}"), number, mechanism)?;
            for (&cpu, alone) in cpus.iter().zip(&alone) {
                pinned.pin(cpu);
                let (with, inner) = run(number)?;
                costs.calibration.push(Calibration {
                    cpu: Some(cpu),
                    mechanism,
                    arguments,
                    bias_ns: inner.ns,
                    pair_ns: (with.ns - alone.ns).max(0.0),
                    uncertainty_ns: inner.doubt_ns.max(with.doubt_ns.hypot(alone.doubt_ns)),
                });
            }
        }
        fill_in(&mut costs.calibration);
        spread_arguments(&mut costs.calibration);
        costs.calibration.extend(medians(&costs.calibration));
        // Where RCU has nothing to save this is 0, or nearly.
        if mechanism != Mechanism::FentryFexit {
            return Ok(costs);
        }
        costs.nested_saving_ns = self.nested(mechanism, &costs.calibration).unwrap_or(0.0);
        if let Some(function) = self.types.find("bpf_fentry_test1") {
            let mut grown = Vec::new();
            let _hooks = self.boundary(function)?;
            for (&cpu, alone) in cpus.iter().zip(&alone) {
                pinned.pin(cpu);
                grown.push(run(0)?.0.ns - alone.ns);
            }
            costs.outside_ns = Middle::from_times(grown).ns.max(0.0);
        }
        Ok(costs)
    }

    /// By how much a pair costs less in an RCU read-side critical section, measured with a BPF
    /// helper that a program calls in one.
    fn nested(&self, mechanism: Mechanism, known: &[Calibration]) -> Result<f64, LiveError> {
        let program = instances::caller_in_rcu(self.templates)?;
        let _outer = self.attach(NESTED_OUTER, 0, mechanism)?;
        let without = self.run_program(&program, 0, 0)?.0;
        let _inner = self.attach(NESTED_INNER, 1, mechanism)?;
        let with = self.run_program(&program, 0, 1)?.0;
        let arguments = self.types.find(NESTED_INNER).map_or(5, |f| f.arguments);
        let outside = known
            .iter()
            .filter(|c| c.cpu.is_none())
            .min_by_key(|c| c.arguments.abs_diff(arguments))
            .map_or(0.0, |c| c.pair_ns);
        Ok((outside - (with.ns - without.ns)).max(0.0))
    }

    /// The program whose test run calls the empty functions: a kprobe has no test run,
    /// but functions called by it can have kprobes.
    fn runner(&self) -> Result<Program, LiveError> {
        let failed = |error: std::io::Error| LiveError::System {
            doing: "load a program that calls empty functions".into(),
            source: Box::new(error),
        };
        let absent = || failed(std::io::Error::other("this kernel has none"));
        let function = self.types.find("bpf_fentry_test1").ok_or_else(absent)?;
        self.maker.runner(function).map_err(failed)
    }

    fn boundary(&self, function: &Described) -> Result<impl Sized, LiveError> {
        instances::boundary_on(self.templates, self.shape, function)
    }
}

/// Interpolate between the fewest and the most arguments, for each CPU.
fn fill_in(each: &mut Vec<Calibration>) {
    let of = |each: &[Calibration], arguments| -> Vec<Calibration> {
        let all = each.iter().filter(|c| c.arguments == arguments);
        all.cloned().collect()
    };
    let (least, most) = (of(each, LEAST_ARGUMENTS), of(each, MOST_ARGUMENTS));
    for (least, most) in least.iter().zip(&most) {
        for arguments in LEAST_ARGUMENTS + 1..MOST_ARGUMENTS {
            let share = f64::from(arguments - LEAST_ARGUMENTS)
                / f64::from(MOST_ARGUMENTS - LEAST_ARGUMENTS);
            let between = |from: f64, to: f64| from + share * (to - from);
            each.push(Calibration {
                arguments,
                bias_ns: between(least.bias_ns, most.bias_ns),
                pair_ns: between(least.pair_ns, most.pair_ns),
                uncertainty_ns: least.uncertainty_ns.max(most.uncertainty_ns),
                ..least.clone()
            });
        }
    }
    each.sort_by_key(|c| (c.arguments, c.cpu));
}

/// The empty functions add up their arguments, which is not the probe's cost. A pair's
/// cost is free of that: an argument is saved before the first reading and restored
/// after it, so half of what it adds to the pair it adds to the bias.
fn spread_arguments(each: &mut [Calibration]) {
    let ones: Vec<_> = each.iter().filter(|c| c.arguments == 1).cloned().collect();
    for c in each {
        if let Some(one) = ones.iter().find(|o| o.cpu == c.cpu) {
            c.bias_ns = one.bias_ns + (c.pair_ns - one.pair_ns).max(0.0) / 2.0;
        }
    }
}

/// Medians of all CPUs, by number of arguments: a call may be on any CPU, so their
/// difference is part of the doubt.
fn medians(each: &[Calibration]) -> Vec<Calibration> {
    let mut all = Vec::new();
    for arguments in 1..=6 {
        let of: Vec<_> = each.iter().filter(|c| c.arguments == arguments).collect();
        let Some(first) = of.first() else { continue };
        let column = |value: fn(&Calibration) -> f64| of.iter().map(|c| value(c)).collect();
        let bias = Middle::from_times(column(|c| c.bias_ns));
        let pair = Middle::from_times(column(|c| c.pair_ns));
        let own = Middle::from_times(column(|c| c.uncertainty_ns)).ns;
        all.push(Calibration {
            cpu: None,
            mechanism: first.mechanism,
            arguments,
            bias_ns: bias.ns,
            pair_ns: pair.ns,
            uncertainty_ns: own.max(bias.doubt_ns).max(pair.doubt_ns),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that missing values are interpolated linearly.
    #[test]
    fn what_lies_between_is_filled_in() {
        let of = |cpu, arguments, pair_ns| Calibration {
            cpu: Some(cpu),
            mechanism: Mechanism::FentryFexit,
            arguments,
            bias_ns: 100.0,
            pair_ns,
            uncertainty_ns: 0.5,
        };
        let mut each = vec![of(0, 1, 540.0), of(1, 1, 640.0), of(0, 6, 550.0), of(1, 6, 660.0)];
        fill_in(&mut each);
        let found: Vec<_> = each.iter().map(|c| (c.arguments, c.cpu, c.pair_ns)).collect();
        assert_eq!(found.len(), 12);
        assert_eq!(found[2..4], [(2, Some(0), 542.0), (2, Some(1), 644.0)]);
        assert_eq!(found[8..10], [(5, Some(0), 548.0), (5, Some(1), 656.0)]);
        let mut one = vec![of(0, 1, 540.0)];
        fill_in(&mut one);
        assert_eq!(one.len(), 1);
    }

    /// Check that the work of an empty function with its arguments is not attributed to the probe.
    #[test]
    fn arguments_are_not_the_probes() {
        let of = |arguments, bias_ns, pair_ns| Calibration {
            cpu: Some(0),
            mechanism: Mechanism::FentryFexit,
            arguments,
            bias_ns,
            pair_ns,
            uncertainty_ns: 0.0,
        };
        let mut each = [of(1, 179.0, 541.0), of(6, 189.0, 551.0)];
        spread_arguments(&mut each);
        assert_eq!((each[0].bias_ns, each[1].bias_ns), (179.0, 184.0));
    }

    /// Check that differences between CPUs increase the uncertainty.
    #[test]
    fn cpus_that_differ_leave_doubt() {
        let of = |cpu, bias_ns| Calibration {
            cpu: Some(cpu),
            mechanism: Mechanism::FentryFexit,
            arguments: 2,
            bias_ns,
            pair_ns: 90.0,
            uncertainty_ns: 0.1,
        };
        let all = medians(&[of(0, 30.0), of(1, 40.0), of(2, 50.0)]);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].cpu, all[0].bias_ns, all[0].pair_ns), (None, 40.0, 90.0));
        assert!(all[0].uncertainty_ns > 5.0);
    }
}
