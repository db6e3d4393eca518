//! The clock that the kernel's monotonic time is read from.

use std::fs;

/// The name of arm64's generic timer.
pub const ARM64_COUNTER: &str = "arch_sys_counter";

/// The name of the clock source in use (`tsc`, `arch_sys_counter`); empty if the kernel does not report it.
pub fn source() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_string()
}

/// The time between two ticks of that clock, ns: times are multiples of it. 1.0 where it is finer or not
/// known, since times are read in nanoseconds.
pub fn tick_ns() -> f64 {
    let hz: u64 = match source().as_str() {
        ARM64_COUNTER => counter_hz(),
        // drivers/clocksource/acpi_pm.c
        "acpi_pm" => 3_579_545,
        // The lowest frequency that the HPET's specification allows.
        "hpet" => 10_000_000,
        _ => return 1.0,
    };
    match hz {
        0 => 1.0,
        hz => (1e9 / hz as f64).max(1.0),
    }
}

/// The frequency of arm64's counter; 0 elsewhere.
fn counter_hz() -> u64 {
    #[cfg(target_arch = "aarch64")]
    {
        let hz: u64;
        // SAFETY: reads a register that Linux lets user mode read, for its vDSO does.
        unsafe {
            std::arch::asm!("mrs {hz}, cntfrq_el0", hz = out(reg) hz, options(nomem, nostack));
        }
        hz
    }
    #[cfg(not(target_arch = "aarch64"))]
    0
}

/// Wait before the run of this number for 0 to 45 instructions, so that equally long runs do not all begin at
/// the same place of a tick.
#[inline(never)]
pub fn shift(run: usize) {
    let steps = steps(run);
    #[cfg(target_arch = "aarch64")]
    if steps > 0 {
        // SAFETY: counts down a register, and has no other effect.
        unsafe {
            std::arch::asm!("2:", "nop", "subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) steps => _,
                options(nomem, nostack));
        }
    }
    // No other clock is that coarse in guests.
    #[cfg(not(target_arch = "aarch64"))]
    std::hint::black_box(steps);
}

/// An evenly spread sequence (Knuth, The Art of Computer Programming 6.4: by the golden ratio).
fn steps(run: usize) -> u64 {
    (run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of QEMU 7.2's counter of arm64.
    const TICK_INSNS: u64 = 16;
    /// Of the loop in [`shift`].
    const STEP_INSNS: u64 = 3;

    /// Check that the mean of 1,024 times in whole ticks is within 0.3 instructions, whatever is timed and
    /// whatever a run takes besides.
    #[test]
    fn ticks() {
        assert!(tick_ns() >= 1.0);
        for besides_insns in 0..TICK_INSNS {
            for insns in 1600..1600 + TICK_INSNS {
                let (mut at, mut sum) = (0, 0);
                for run in 0..1024 {
                    shift(run);
                    at += besides_insns + STEP_INSNS * steps(run);
                    sum += ((at + insns) / TICK_INSNS - at / TICK_INSNS) * TICK_INSNS;
                    at += insns;
                }
                let off = sum as f64 / 1024.0 - insns as f64;
                assert!(off.abs() <= 0.3, "{besides_insns} {insns}: {off}");
            }
        }
    }
}
