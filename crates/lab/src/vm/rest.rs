//! The pause of a guest, at which it is saved, and from which it resumes.
//!
//! A guest that is ready writes to the port of QEMU's pvpanic device, and QEMU, configured to pause
//! on a panic, stops it right after that instruction, not at a time that depends on the host. When
//! it resumes, it reads its requests from the firmware configuration device. So nothing in a run
//! depends on timing of the host, and all runs from a saved state are the same.
//!
//! But the guest's clock may jump while it stops. QEMU treats a stopping CPU as idle and advances
//! its clock to the next timer, unless its main loop notices first that the machine is stopping
//! (`icount_start_warp_timer`, `cpu_stop_current`): two of its threads race for a lock. So the
//! guest sleeps for a moment after a pause, until a time that was set before, which is then the
//! same for all. Before a pause it sleeps longer, so that boots with a little more or less work are
//! aligned: a state is saved after that sleep, so guests that start from it do not repeat it.

use std::io;
use std::time::Duration;

/// Port of pvpanic (docs/specs/pvpanic.rst of QEMU).
pub(super) const PANIC_PORT: u16 = 0x505;
/// Number of pauses of a guest.
pub(super) const RESTS: usize = 2;

/// Name of the item with the requests for after a pause, from 0.
pub(super) fn requests_item(rest: usize) -> String {
    format!("opt/netplumb/requests{rest}")
}

/// Bit of pvpanic: "a panic has happened".
const PANICKED: u8 = 1;
/// Ports of fw_cfg (docs/specs/fw_cfg.rst of QEMU): selector, data.
pub(super) const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;
const SIGNATURE_KEY: u16 = 0;
pub(super) const DIRECTORY_KEY: u16 = 0x19;
/// More is a damaged directory.
pub(super) const MAX_ITEMS: u32 = 4096;
/// Maximum size of requests.
const MAX_BYTES: usize = 64 << 20;

/// Access to the ports, given up when dropped: switching to a task with access is more expensive.
#[derive(Debug)]
pub(super) struct Ports(());

impl Ports {
    /// Get access to the ports, and check for the devices.
    ///
    /// # Errors
    /// The kernel denies access, or there is no such device.
    pub(super) fn open() -> io::Result<Ports> {
        for (first, count) in [(PANIC_PORT, 1), (SELECTOR_PORT, 2)] {
            // SAFETY: the call takes numbers, and touches no memory of ours.
            if unsafe { libc::ioperm(first.into(), count, 1) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let mut ports = Ports(());
        // A port without a device reads as all ones.
        let features = ports.read(PANIC_PORT);
        if features == 0xff || features & PANICKED == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no pvpanic device"));
        }
        let mut signature = [0; 4];
        ports.select(SIGNATURE_KEY);
        ports.fill(&mut signature);
        if &signature != b"QEMU" {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no fw_cfg device"));
        }
        Ok(ports)
    }

    /// Pause until the host resumes the guest; then read its requests. `rest` counts from 0.
    pub(super) fn rest(mut self, rest: usize) -> io::Result<Vec<u8>> {
        let name = requests_item(rest);
        self.write(PANIC_PORT, PANICKED);
        self.select(DIRECTORY_KEY);
        let mut word = [0; 4];
        self.fill(&mut word);
        let count = u32::from_be_bytes(word).min(MAX_ITEMS);
        let mut found = None;
        for _ in 0..count {
            let mut entry = [0; 64];
            self.fill(&mut entry);
            found = found.or(item(&entry, &name));
        }
        let Some((key, size)) = found else {
            return Ok(Vec::new());
        };
        if size > MAX_BYTES {
            return Err(io::Error::other("the requests are too large"));
        }
        let mut bytes = vec![0; size];
        self.select(key);
        self.fill(&mut bytes);
        Ok(bytes)
    }

    fn select(&mut self, key: u16) {
        // SAFETY: we hold the port, and fw_cfg is behind it or nothing is; `out`
        // touches no memory.
        unsafe {
            std::arch::asm!("out dx, ax", in("dx") SELECTOR_PORT, in("ax") key,
                options(nomem, nostack, preserves_flags));
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.read(DATA_PORT);
        }
    }

    fn read(&mut self, port: u16) -> u8 {
        let value: u8;
        // SAFETY: we hold the port; `in` touches no memory.
        unsafe {
            std::arch::asm!("in al, dx", in("dx") port, out("al") value,
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    fn write(&mut self, port: u16, value: u8) {
        // QEMU stops a CPU between blocks of code. Without an instruction clock `out` does not end one:
        // what follows would still be executed, and read the directory of the QEMU that is saved, not of
        // the one that resumes.
        // SAFETY: we hold the port. To the guest it is as if nothing happened, however long it is
        // stopped; memory is as it was.
        unsafe {
            std::arch::asm!("out dx, al", "jmp 2f", "2:", in("dx") port, in("al") value,
                options(nostack, preserves_flags));
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for (first, count) in [(PANIC_PORT, 1), (SELECTOR_PORT, 2)] {
            // SAFETY: as in `open`. There is nothing to do about an error.
            unsafe { libc::ioperm(first.into(), count, 0) };
        }
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
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in our own time.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}

/// Key and size of a directory entry, if it has this name.
pub(super) fn item(entry: &[u8; 64], wanted: &str) -> Option<(u16, usize)> {
    let name = &entry[8..];
    let name = &name[..name.iter().position(|b| *b == 0)?];
    let size = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
    let key = u16::from_be_bytes([entry[4], entry[5]]);
    (name == wanted.as_bytes()).then_some((key, size as usize))
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

    /// Check that an item is found by its complete name only.
    #[test]
    fn the_requests_are_found() {
        let entry = |name: &str| {
            let mut entry = [0; 64];
            entry[..4].copy_from_slice(&300_u32.to_be_bytes());
            entry[4..6].copy_from_slice(&0x2a_u16.to_be_bytes());
            entry[8..8 + name.len()].copy_from_slice(name.as_bytes());
            entry
        };
        let wanted = requests_item(1);
        assert_eq!(
            item(&entry("opt/netplumb/requests1"), &wanted),
            Some((0x2a, 300))
        );
        assert_eq!(item(&entry("opt/netplumb/requests"), &wanted), None);
        assert_eq!(item(&entry("opt/netplumb/requests12"), &wanted), None);
        assert_eq!(item(&[0xff; 64], &wanted), None);
    }
}
