//! perf's counters and samples.

use std::io::Read;
use std::time::{Duration, Instant};

use libbpf_sys as sys;
use netplumb_model::capability::{Availability, Capability, Group};

use super::context::{Cap, Context};
use super::explain::{self, Need};
use super::program::{self, Failure, Kind};
use super::trial;

const NEED: Need = Need { caps: &[Cap::Perfmon], config: &["CONFIG_PERF_EVENTS"], since: None };

const CYCLES: u64 = sys::PERF_COUNT_HW_CPU_CYCLES as u64;
const CPU_CLOCK: u64 = sys::PERF_COUNT_SW_CPU_CLOCK as u64;

/// Try every one of them.
pub(super) fn try_all(context: &Context) -> Vec<Capability> {
    vec![
        trial("perf-software", Group::Profile, "system-wide software events (cpu-clock)", || {
            software(context)
        }),
        trial("perf-hardware", Group::Profile, "hardware events (cycles)", || hardware(context)),
        trial("perf-event", Group::Profile, "a program on CPU samples", || sampled(context)),
    ]
}

/// Count something for a moment, and see whether the count moved.
fn count(type_: u32, config: u64, cpu: Option<i32>) -> Result<u64, Failure> {
    let mut attr = sys::perf_event_attr { type_, config, ..Default::default() };
    if cpu.is_none() {
        // All that an ordinary user may count.
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
    }
    let event = program::perf_open(&mut attr, cpu)?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    let mut value = [0_u8; 8];
    std::fs::File::from(event)
        .read_exact(&mut value)
        .map_err(|e| Failure::io("reading the counter", &e))?;
    Ok(u64::from_ne_bytes(value))
}

fn software(context: &Context) -> Availability {
    let whole = count(sys::PERF_TYPE_SOFTWARE, CPU_CLOCK, Some(0));
    match whole {
        Ok(count) if count > 0 => return Availability::yes("counted on CPU 0"),
        Ok(_) => {
            return Availability::no("the cpu-clock event does not count", explain::OTHER_KERNEL);
        }
        Err(_) => (),
    }
    let own = count(sys::PERF_TYPE_SOFTWARE, CPU_CLOCK, None);
    let failure = whole.err().unwrap_or(Failure::new("opening the event", libc::EIO));
    own_only(context, own, &failure)
}

fn hardware(context: &Context) -> Availability {
    let whole = count(sys::PERF_TYPE_HARDWARE, CYCLES, Some(0));
    let own = count(sys::PERF_TYPE_HARDWARE, CYCLES, None);
    match (&whole, &own) {
        (Ok(count), _) if *count > 0 => Availability::yes("cycles counted on CPU 0"),
        (Err(f), _) | (_, Err(f)) if no_counters(f.errno) => no_pmu(context),
        (Ok(_), _) => no_pmu(context),
        (Err(failure), _) => own_only(context, own.clone(), failure),
    }
}

fn no_counters(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO)
}

fn no_pmu(context: &Context) -> Availability {
    let (reason, remedy) = if context.machine().guest {
        (
            "this virtual machine has no performance counters (PMU)",
            "give the guest a PMU (QEMU: -cpu host,pmu=on; cloud: a bare-metal size); sampling by cpu-clock works without",
        )
    } else {
        (
            "the kernel found no performance counters (PMU) in this processor",
            "look for \"Performance Events\" in sudo dmesg; sampling by cpu-clock works without",
        )
    };
    Availability::no(reason, remedy)
}

/// What is left to a process that may not look at others.
fn own_only(context: &Context, own: Result<u64, Failure>, failure: &Failure) -> Availability {
    let refused = explain::no(context, &NEED, failure);
    match (own, refused) {
        (Ok(count), Availability::No { reason, remedy }) if count > 0 => {
            let setting = context
                .perf_event_paranoid
                .map_or(String::new(), |level| format!(" (kernel.perf_event_paranoid is {level})"));
            Availability::partly(
                "for your own processes only",
                format!("{reason}{setting}"),
                remedy,
            )
        }
        (_, refused) => refused,
    }
}

fn sampled(context: &Context) -> Availability {
    let need = Need {
        caps: &[Cap::Bpf, Cap::Perfmon],
        config: &["CONFIG_PERF_EVENTS", "CONFIG_BPF_EVENTS"],
        since: Some((4, 9)),
    };
    match sample() {
        Ok(0) => Availability::partly(
            "attached to cpu-clock",
            "no sample within 200 ms of work",
            "look at kernel.perf_cpu_time_max_percent; it may have throttled sampling",
        ),
        Ok(_) => Availability::yes("attached to cpu-clock, samples received"),
        Err(failure) => explain::no(context, &need, &failure),
    }
}

/// Attach to the clock of every processor, work until a sample comes, and count.
fn sample() -> Result<u64, Failure> {
    let counter = program::Counter::new()?;
    let kind = Kind { program: sys::BPF_PROG_TYPE_PERF_EVENT, ..Kind::default() };
    let program = program::load(kind, &program::counting(&counter, 0))?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as i32);
    let mut events = Vec::new();
    for cpu in 0..cpus {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            config: CPU_CLOCK,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_freq = 997;
        attr.set_freq(1);
        match program::perf_open(&mut attr, Some(cpu)) {
            Ok(event) => {
                program::perf_attach(&event, &program)?;
                events.push(event);
            }
            // Processors need not be numbered without gaps.
            Err(f) if f.errno == libc::ENODEV && !events.is_empty() => (),
            Err(f) => return Err(f),
        }
    }
    let start = Instant::now();
    while counter.read() == 0 && start.elapsed() < Duration::from_millis(200) {
        std::hint::spin_loop();
    }
    Ok(counter.read())
}
