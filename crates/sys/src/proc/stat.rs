//! /proc/stat: CPU time by use, as accounted by the kernel.

use std::collections::BTreeMap;

/// Times of each CPU, and counts since boot (proc_stat(5)).
pub const PATH: &str = "/proc/stat";

/// The used fields of a CPU's line, in seconds since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTimes {
    /// Idle and iowait.
    pub idle_s: f64,
    /// Softirqs, charged by ticks.
    pub softirq_s: f64,
    /// Steal time.
    pub steal_s: f64,
}

/// USER_HZ: the unit of the fields, independent of the kernel's tick.
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
        let ticks: Vec<f64> =
            rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
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

    /// Check that lines of single CPUs are parsed, other lines ignored, and missing fields 0.
    #[test]
    fn lines() {
        let text = "cpu  1 2 3 4000 5 6\ncpu0 9 9 9 150 50 9 20 30\ncpu7 0 0 0 1\nintr 5\n";
        let of = |idle_s, softirq_s, steal_s| CpuTimes { idle_s, softirq_s, steal_s };
        let expected = BTreeMap::from([(0, of(2.0, 0.2, 0.3)), (7, of(0.01, 0.0, 0.0))]);
        assert_eq!(parse(text, 100.0), expected);
        assert!(ticks_per_second() >= 1.0);
    }
}
