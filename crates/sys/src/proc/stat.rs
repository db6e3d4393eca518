//! /proc/stat: what each CPU spent its time on, by the kernel's own account.

use std::collections::BTreeMap;

/// The file.
pub const PATH: &str = "/proc/stat";

/// A CPU's line, as far as it is used here, in seconds since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTimes {
    /// Idle, and idle while something waited for I/O.
    pub idle_s: f64,
    /// In softirqs, as ticks were charged.
    pub softirq_s: f64,
    /// Taken away by the machine below.
    pub steal_s: f64,
}

/// USER_HZ: what the fields are counted in, whatever the kernel's own tick is.
pub fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    match unsafe { libc::sysconf(libc::_SC_CLK_TCK) } {
        ticks if ticks > 0 => ticks as f64,
        _ => 100.0,
    }
}

/// The lines of single CPUs: user, nice, system, idle, iowait, irq, softirq, steal.
pub fn parse(text: &str, ticks_per_second: f64) -> BTreeMap<u32, CpuTimes> {
    let lines = text.lines().filter_map(|line| {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let ticks: Vec<f64> = rest
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        let seconds = |n: usize| ticks.get(n).copied().unwrap_or(0.0) / ticks_per_second;
        Some((
            cpu.parse().ok()?,
            CpuTimes {
                idle_s: seconds(3) + seconds(4),
                softirq_s: seconds(6),
                steal_s: seconds(7),
            },
        ))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that single CPUs' lines are read, all together and others left out, and that
    /// what a line lacks is none.
    #[test]
    fn lines() {
        let text = "cpu  1 2 3 4000 5 6\ncpu0 9 9 9 150 50 9 20 30\ncpu7 0 0 0 1\nintr 5\n";
        let of = |idle_s, softirq_s, steal_s| CpuTimes {
            idle_s,
            softirq_s,
            steal_s,
        };
        let expected = BTreeMap::from([(0, of(2.0, 0.2, 0.3)), (7, of(0.01, 0.0, 0.0))]);
        assert_eq!(parse(text, 100.0), expected);
        assert!(ticks_per_second() >= 1.0);
    }
}
