//! The kernel's cost of running a program, beyond what the programs time themselves.
//!
//! A test run of a tracing program ends at the tracepoint `bpf_test_finish`, whatever the program is for
//! (net/bpf/test_run.c). So test runs with a program on that tracepoint, which has only the beginning
//! and the end that all programs have, take longer by the cost of a run.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Instant;

use libbpf_rs::ProgramMut;
use libbpf_sys as sys;

use super::hooks::Hooks;
use super::layout::WindowState;
use super::maps::Maps;
use crate::middle::Middle;
use crate::own;

/// The tracepoint that is hit by test runs, and by no packet.
pub(super) const TRACEPOINT: &str = "bpf_test_finish";
/// Test runs that are timed as one: at least as many as in a turn of the programs' own timing.
const RUNS: u32 = 512;
/// Differences that are taken: at least, if they agree, and at most.
const LEAST: usize = 4;
const MOST: usize = 12;
/// The uncertainty that is sufficient.
const ENOUGH_NS: f64 = 1.0;

/// Nanoseconds of a run that its own timing misses, which may be negative: the timing includes reading the
/// clock. None if test runs don't reach the program. It is the kernel's, and measured once.
///
/// # Errors
/// The program can't be attached, or the maps can't be read.
pub(super) fn of_a_run(
    maps: &Maps,
    program: &ProgramMut<'_>,
) -> Result<Option<f64>, libbpf_rs::Error> {
    static MEASURED: OnceLock<Option<f64>> = OnceLock::new();
    if let Some(measured) = MEASURED.get() {
        return Ok(*measured);
    }
    let measured = measure(maps, program)?;
    Ok(*MEASURED.get_or_init(|| measured))
}

fn measure(maps: &Maps, program: &ProgramMut<'_>) -> Result<Option<f64>, libbpf_rs::Error> {
    let mut hooks = Hooks::default();
    hooks.add(program)?;
    maps.clear()?;
    maps.set_window(WindowState {
        opened_ns: own::monotonic_ns(),
        active: 1,
        stretch: 1,
        ..WindowState::default()
    })?;
    let taken = differences(program.as_fd(), &mut hooks);
    maps.set_window(WindowState::default())?;
    let taken = taken?;
    let cpus = maps.cpus()?;
    let own_ns: u64 = cpus.iter().map(|cpu| cpu.own_ns).sum();
    let timed: u64 = cpus.iter().map(|cpu| cpu.timed).sum();
    maps.clear()?;
    Ok((timed > 0).then(|| taken.ns - own_ns as f64 / timed as f64))
}

/// By how much a test run takes longer with the program attached.
fn differences(program: BorrowedFd<'_>, hooks: &mut Hooks) -> Result<Middle, libbpf_rs::Error> {
    let mut taken = Vec::new();
    loop {
        hooks.attach()?;
        let with_ns = a_test_run_ns(program);
        hooks.detach();
        taken.push(with_ns - a_test_run_ns(program));
        let middle = Middle::from_times(taken.clone());
        if taken.len() >= MOST || (taken.len() >= LEAST && middle.doubt_ns <= ENOUGH_NS) {
            return Ok(middle);
        }
    }
}

/// The mean time of a test run, after some to warm up.
fn a_test_run_ns(program: BorrowedFd<'_>) -> f64 {
    let test = || {
        let mut opts = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as _,
            ..Default::default()
        };
        // SAFETY: the options outlive the call, and the program has no other input.
        // The program is not for them, which is an error; the end of one is reached.
        unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    };
    for _ in 0..RUNS / 8 {
        test();
    }
    let begun = Instant::now();
    for _ in 0..RUNS {
        test();
    }
    begun.elapsed().as_nanos() as f64 / f64::from(RUNS)
}
