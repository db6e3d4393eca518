//! What makes samples: a timer of each CPU, or its counter of cycles.

use std::io;
use std::os::fd::OwnedFd;

use libbpf_sys as sys;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::{CPU_TIME, CYCLES, SampleEvent};
use netplumb_sys::perf;

use crate::live::LiveError;

/// What makes samples, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Perf's clock: a timer of each CPU; the nanoseconds between samples.
    CpuClock { period_ns: u64 },
    /// Cycles in which the CPU is not halted, with a period that the kernel adapts to this
    /// frequency.
    Cycles { frequency_hz: u32 },
}

impl Event {
    /// The requested event; for `auto`, cycles if `opens` opens them.
    ///
    /// # Errors
    /// Cycles were asked for, and this machine has no counter of them.
    pub(super) fn choose(
        asked: SampleEvent,
        frequency_hz: u32,
        opens: impl Fn(Event) -> Result<(), LiveError>,
    ) -> Result<Event, LiveError> {
        let clock = Event::CpuClock { period_ns: 1_000_000_000 / u64::from(frequency_hz.max(1)) };
        let cycles = Event::Cycles { frequency_hz };
        match asked {
            SampleEvent::CpuClock => Ok(clock),
            SampleEvent::Cycles => opens(cycles).map(|()| cycles),
            SampleEvent::Auto => Ok(opens(cycles).map_or(clock, |()| cycles)),
        }
    }

    /// What perf calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Event::CpuClock { .. } => "cpu-clock",
            Event::Cycles { .. } => "cycles",
        }
    }

    /// What its samples add up to.
    pub(super) fn quantity(self) -> &'static Declared {
        match self {
            Event::CpuClock { .. } => &CPU_TIME,
            Event::Cycles { .. } => &CYCLES,
        }
    }

    /// The nanoseconds between samples, if these are regular.
    pub(super) fn period_ns(self) -> Option<u64> {
        match self {
            Event::CpuClock { period_ns } => Some(period_ns),
            Event::Cycles { .. } => None,
        }
    }

    /// Open it on a CPU; it samples when a program is attached.
    ///
    /// # Errors
    /// This user may not, or the kernel or the machine lacks the event.
    pub(super) fn open(self, cpu: u32) -> Result<OwnedFd, LiveError> {
        perf::open(&mut self.attr(), Some(cpu as i32)).map_err(|error| self.wrong(error))
    }

    /// As perf_event_open(2) has it.
    fn attr(self) -> sys::perf_event_attr {
        let mut attr = sys::perf_event_attr::default();
        match self {
            Event::CpuClock { period_ns } => {
                attr.type_ = sys::PERF_TYPE_SOFTWARE;
                attr.config = u64::from(sys::PERF_COUNT_SW_CPU_CLOCK);
                attr.__bindgen_anon_1.sample_period = period_ns;
            }
            Event::Cycles { frequency_hz } => {
                attr.type_ = sys::PERF_TYPE_HARDWARE;
                attr.config = u64::from(sys::PERF_COUNT_HW_CPU_CYCLES);
                attr.__bindgen_anon_1.sample_freq = u64::from(frequency_hz);
                attr.set_freq(1);
            }
        }
        attr.set_disabled(1);
        attr
    }

    fn wrong(self, error: io::Error) -> LiveError {
        match (error.raw_os_error(), self) {
            (Some(libc::EACCES | libc::EPERM), _) => LiveError::CannotRun {
                reason: "sampling CPUs is not permitted for this user".into(),
                remedy: "run as root, or with CAP_PERFMON (see `plumb doctor`)".into(),
            },
            (Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP), Event::CpuClock { .. }) => {
                LiveError::CannotRun {
                    reason: "the kernel has no cpu-clock event".into(),
                    remedy: "use a kernel with CONFIG_PERF_EVENTS".into(),
                }
            }
            (
                Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV),
                Event::Cycles { .. },
            ) => LiveError::CannotRun {
                reason: "this machine has no counter of cycles (no PMU, or a virtual machine \
                         without one)"
                    .into(),
                remedy: "use --event cpu-clock, or --event auto".into(),
            },
            _ => LiveError::system("sample CPUs")(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the clock has a period and cycles have a frequency, as perf.h defines them, and
    /// that what they add up to has its own unit.
    #[test]
    fn attributes() {
        let clock = Event::CpuClock { period_ns: 77 };
        let attr = clock.attr();
        // SAFETY: both of the union are integers of 64 bits.
        let (period, of_clock) = unsafe { (attr.__bindgen_anon_1.sample_period, attr.freq()) };
        assert_eq!((attr.type_, attr.config, period, of_clock), (1, 0, 77, 0));
        assert_eq!(clock.quantity().unit, "ns");
        let cycles = Event::Cycles { frequency_hz: 997 };
        let attr = cycles.attr();
        // SAFETY: as above.
        let frequency = unsafe { attr.__bindgen_anon_1.sample_freq };
        assert_eq!((attr.type_, attr.config), (0, 0));
        assert_eq!((frequency, attr.freq(), attr.disabled()), (997, 1, 1));
        assert_eq!(cycles.quantity().unit, "cycles");
        assert_eq!((clock.period_ns(), cycles.period_ns()), (Some(77), None));
    }

    /// Check that cycles are taken where they can be opened, the clock elsewhere only if that may
    /// be, and that the error has a remedy.
    #[test]
    fn choices() {
        let none = |event: Event| Err(event.wrong(io::Error::from_raw_os_error(libc::ENOENT)));
        let clock = Event::CpuClock { period_ns: 1_000_000 };
        let cycles = Event::Cycles { frequency_hz: 1_000 };
        let choose = |asked| Event::choose(asked, 1_000, |_| Ok(())).unwrap();
        assert_eq!(choose(SampleEvent::Auto), cycles);
        assert_eq!(choose(SampleEvent::Cycles), cycles);
        assert_eq!(choose(SampleEvent::CpuClock), clock);
        assert_eq!(Event::choose(SampleEvent::Auto, 1_000, none).unwrap(), clock);
        let error = Event::choose(SampleEvent::Cycles, 1_000, none).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("no counter of cycles"), "{said}");
        assert!(said.contains("--event cpu-clock"), "{said}");
    }
}
