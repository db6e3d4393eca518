//! The pause of a guest, at which it is saved, and from which it resumes.
//!
//! A guest that is ready writes to QEMU's pvpanic device, and QEMU, configured to pause
//! on a panic, stops it right after that instruction, not at a time that depends on the host. When
//! it resumes, it reads its requests from the firmware configuration device. So nothing in a run
//! depends on timing of the host, and all runs from a saved state are the same.
//!
//! But the guest's clock may jump while it stops. QEMU treats a stopping CPU as idle and advances
//! its clock to the next timer, unless its main loop notices first that the machine is stopping
//! (`icount_start_warp_timer`, `cpu_stop_current`): two of its threads race for a lock. So the
//! guest does nothing after a pause ([`Spin`]) until the interrupt is over that the clock may have jumped to, and
//! then sleeps until a time that was set before, which is the same for all. Before a pause it sleeps longer, so that
//! boots with a little more or less work are aligned: a state is saved after that sleep, so guests that start from it
//! do not repeat it.

use std::io;
use std::time::Duration;

use super::firmware::{Firmware, Panic};
use super::spin::Spin;

/// Number of pauses of a guest.
pub(super) const RESTS: usize = 2;

/// Name of the item with the requests for after a pause, from 0.
pub(super) fn requests_item(rest: usize) -> String {
    format!("opt/netplumb/requests{rest}")
}

/// Maximum size of requests.
const MAX_BYTES: usize = 64 << 20;

/// The devices for a pause.
#[derive(Debug)]
pub(super) struct Devices {
    panic: Panic,
    firmware: Firmware,
}

impl Devices {
    /// Get access to the devices.
    ///
    /// # Errors
    /// The kernel denies access, or they are not there.
    pub(super) fn open() -> io::Result<Devices> {
        Ok(Devices { panic: Panic::open()?, firmware: Firmware::open()? })
    }

    /// Pause until the host resumes the guest; then read its requests. `rest` counts from 0.
    pub(super) fn rest(mut self, rest: usize) -> io::Result<Vec<u8>> {
        let name = requests_item(rest);
        let spin = Spin::arm()?;
        self.panic.raise();
        spin.run();
        let requests = self.firmware.item(&name, MAX_BYTES)?;
        Ok(requests.unwrap_or_default())
    }
}

/// Interval of pauses: boots with a little more or less work pause at the same time.
const APART: Duration = Duration::from_secs(1);
/// Offset from a whole second of the guest's clock, for each pause. Work that the kernel does at
/// whole seconds is over (`round_jiffies`), and a watchdog that runs every second or two since its
/// device was brought up, which is after the first pause, is not due soon after the last.
const AFTER_THE_SECOND: [Duration; RESTS] =
    [Duration::from_millis(600), Duration::from_millis(200)];
/// Sleep after a pause: more than the jump of the clock, which is a tick of the slowest kernel
/// (HZ=100), and than reading the usual requests takes.
const PAUSE: Duration = Duration::from_millis(50);

/// A time by the guest's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(Duration);

impl Moment {
    /// The time of the next pause; `rest` counts from 0.
    ///
    /// # Errors
    /// The kernel has no clock.
    pub(super) fn to_rest(rest: usize) -> io::Result<Moment> {
        Ok(Moment::to_rest_after(now()?, rest))
    }

    fn to_rest_after(now: Duration, rest: usize) -> Moment {
        Moment(AFTER_THE_SECOND[rest % RESTS]).next(now, APART)
    }

    /// The time to resume after a pause at this time.
    ///
    /// # Errors
    /// The kernel has no clock.
    pub(super) fn to_go_on(self) -> io::Result<Moment> {
        Ok(self.to_go_on_after(now()?))
    }

    fn to_go_on_after(self, now: Duration) -> Moment {
        // Later than the next one only with requests of megabytes.
        self.next(now, PAUSE)
    }

    /// The first future time in steps of `apart` from this one.
    fn next(self, now: Duration, apart: Duration) -> Moment {
        let gone = now.saturating_sub(self.0).as_nanos() / apart.as_nanos();
        Moment(self.0 + apart * (gone as u32 + 1))
    }

    /// Sleep until then, which takes no real time.
    ///
    /// # Errors
    /// The sleep fails.
    pub(super) fn wait(self) -> io::Result<()> {
        let Moment(until) = self;
        let until = libc::timespec {
            tv_sec: until.as_secs() as libc::time_t,
            tv_nsec: until.subsec_nanos().into(),
        };
        // SAFETY: the time is ours, and nobody wants to know what is left of it.
        let error = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &until,
                std::ptr::null_mut(),
            )
        };
        match error {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Time since the guest's boot.
fn now() -> io::Result<Duration> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in our own time.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that boots with a little more or less work pause at the same time, that guests whose
    /// clocks jumped by a tick or not resume at the same one, and that it is never in the past.
    #[test]
    fn moments_are_the_same_for_all() {
        let ms = Duration::from_millis;
        let rest = |at| Moment::to_rest_after(ms(at), 1).0.as_millis();
        assert_eq!([rest(1_490), rest(1_620)], [2_200; 2]);
        assert_eq!([rest(0), rest(200)], [1_200; 2]);
        assert_eq!([rest(2_199), rest(2_200)], [2_200, 3_200]);
        assert_eq!(Moment::to_rest_after(ms(2_200), 0).0, ms(2_600));
        let go_on = |at| Moment(ms(2_200)).to_go_on_after(ms(at)).0.as_millis();
        assert_eq!([go_on(2_200), go_on(2_211)], [2_250; 2]);
        assert_eq!([go_on(2_250), go_on(2_333)], [2_300, 2_350]);
    }
}
