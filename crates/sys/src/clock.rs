//! The clock that the kernel's monotonic time is read from.

use std::fs;

/// The name of arm64's generic timer.
pub const ARM64_COUNTER: &str = "arch_sys_counter";

/// The name of the clock source in use (`tsc`, `arch_sys_counter`); empty if the kernel does not tell.
pub fn source() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_string()
}

/// The time between two ticks of that clock, ns: times are multiples of it. 1.0, as which times are
/// read, where it is finer, or not known.
pub fn tick_ns() -> f64 {
    let hz = match source().as_str() {
        ARM64_COUNTER => counter_hz(),
        // drivers/clocksource/acpi_pm.c
        "acpi_pm" => 3_579_545,
        // Others that are as coarse: the least frequency that the specification of the HPET allows.
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

/// Wait for some instructions, so that what follows begins at another place of a tick. Where all else takes
/// a constant number of instructions, calls with 0, 1, 2, ... up to one less than a power of two end at as
/// many places of a tick of that many instructions, each once: three instructions a step add up to
/// 3n(n+1)/2, and a quadratic polynomial that is halved is a permutation modulo a power of two if both of
/// its coefficients are odd.
#[inline(never)]
pub fn shift(steps: usize) {
    #[cfg(target_arch = "aarch64")]
    if steps > 0 {
        // SAFETY: counts down a register, and has no other effect.
        unsafe {
            std::arch::asm!("2:", "nop", "subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) steps => _,
                options(nomem, nostack));
        }
    }
    // No other clock ticks that seldom in guests.
    #[cfg(not(target_arch = "aarch64"))]
    std::hint::black_box(steps);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times are multiples of a nanosecond at least, and that the places of ticks are met once each,
    /// whatever a run takes.
    #[test]
    fn ticks() {
        assert!(tick_ns() >= 1.0);
        for run_insns in 0..64 {
            let mut places = [0; 16];
            let mut at = 0;
            for steps in 0..16 {
                shift(steps);
                at += run_insns + 3 * steps;
                places[at % 16] += 1;
            }
            assert_eq!(places, [1; 16], "{run_insns}");
        }
    }
}
