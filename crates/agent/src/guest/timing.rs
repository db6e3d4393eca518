//! Functions timed in the guest, with traffic: one alone, or many at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use netplumb_instruments::registry;
use netplumb_instruments::single::{FunctionTimer, Times};
use netplumb_kernel::layers::LayerRules;
use netplumb_model::message::{RunPlan, TimedFunction};
use netplumb_model::timing::{Attached, TimingSpec, Window};
use netplumb_workload::ends::Ends;
use netplumb_workload::packets::Traffic;

/// Key of [`Reply::Facts`](netplumb_model::message::Reply::Facts): elapsed instructions.
pub const CLOCK_INSNS: &str = "clock.insns";
/// Key of [`Reply::Facts`](netplumb_model::message::Reply::Facts): elapsed nanoseconds of the kernel's
/// monotonic clock.
pub const CLOCK_NS: &str = "clock.ns";

/// Time one function in the blocks of a plan. Errors are in the reply, so that the next function is
/// tried.
pub(super) fn time(function: &str, plan: &RunPlan, ends: &Ends) -> TimedFunction {
    let (times, error) = match try_time(function, plan, ends) {
        Ok(times) if times.untimed > 0 => {
            (times, Some(format!("{} calls could not be timed", times.untimed)))
        }
        Ok(times) => (times, None),
        Err(why) => (Times::default(), Some(why)),
    };
    TimedFunction {
        name: function.to_string(),
        calls: times.calls,
        total_ns: times.total_ns,
        min_ns: times.min_ns,
        in_rcu: times.in_rcu,
        error,
    }
}

fn try_time(function: &str, plan: &RunPlan, ends: &Ends) -> Result<Times, String> {
    let mut traffic =
        Traffic::open(plan, ends).map_err(|e| format!("open {} sockets: {e}", plan.proto))?;
    let mut timer = FunctionTimer::attach(function).map_err(|e| e.to_string())?;
    // With the probe attached: its first hits in a task cost more.
    traffic.warm_up().map_err(|e| format!("warm-up: {e}"))?;
    timer.reset().map_err(|e| e.to_string())?;
    for index in 0..plan.blocks {
        let ledger = traffic.block().map_err(|e| format!("block {index}: {e}"))?;
        if !ledger.closes() || ledger.delivered < ledger.offered {
            return Err(format!(
                "block {index}: {} of {} packets arrived",
                ledger.delivered, ledger.offered
            ));
        }
    }
    timer.read().map_err(|e| e.to_string())
}

/// Time functions at once by the instrument, in the blocks of a plan, with a window each. Without
/// functions, the windows only have their durations.
pub(super) fn together(
    spec: Option<&TimingSpec>,
    plan: &RunPlan,
    ends: &Ends,
) -> Result<(Option<Attached>, Vec<Window>), String> {
    let mut traffic =
        Traffic::open(plan, ends).map_err(|e| format!("open {} sockets: {e}", plan.proto))?;
    let rules = LayerRules::built_in();
    let layer = |name: &str, module: Option<&str>| rules.layer(name, module).map(String::from);
    let mut instrument = match spec {
        None => None,
        Some(spec) => Some(registry::attach(spec, &layer).map_err(|e| e.to_string())?),
    };
    traffic.warm_up().map_err(|e| format!("warm-up: {e}"))?;
    let mut windows = Vec::new();
    for index in 0..plan.blocks {
        if let Some(instrument) = &mut instrument {
            instrument.open().map_err(|e| e.to_string())?;
        }
        let begun = Instant::now();
        let ledger = traffic.block().map_err(|e| format!("block {index}: {e}"))?;
        let duration_ns = begun.elapsed().as_nanos() as u64;
        let mut window = match &mut instrument {
            Some(instrument) => instrument.close().map_err(|e| e.to_string())?,
            None => Window::default(),
        };
        window.duration_ns = duration_ns;
        windows.push(window);
        if !ledger.closes() || ledger.delivered < ledger.offered {
            return Err(format!(
                "block {index}: {} of {} packets arrived",
                ledger.delivered, ledger.offered
            ));
        }
    }
    let attached = instrument.map(|i| i.attached().clone());
    Ok((attached, windows))
}

/// The differences of both clocks since a reading, as facts.
pub(super) fn since((insns, ns): (u64, Duration)) -> BTreeMap<String, String> {
    let (insns_after, ns_after) = clocks();
    BTreeMap::from([
        (CLOCK_INSNS.into(), (insns_after - insns).to_string()),
        (CLOCK_NS.into(), (ns_after - ns).as_nanos().to_string()),
    ])
}

/// A reading of both clocks: instructions (the TSC or the generic timer under icount), and the kernel's monotonic clock,
/// which is derived from it.
pub(super) fn clocks() -> (u64, Duration) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills in the timespec that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (ticks(), Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}

/// A counter of instructions, in a guest whose clock counts them.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: RDTSC is part of x86-64, and user mode may use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The generic timer, which ticks once per several instructions (`CNTFRQ_EL0`).
#[cfg(target_arch = "aarch64")]
fn ticks() -> u64 {
    let (count, hz): (u64, u64);
    // SAFETY: Linux lets user mode read both, for its vDSO does.
    unsafe {
        std::arch::asm!("isb", "mrs {count}, cntvct_el0", "mrs {hz}, cntfrq_el0",
            count = out(reg) count, hz = out(reg) hz, options(nostack));
    }
    (u128::from(count) * 1_000_000_000 / u128::from(hz.max(1))) as u64
}
