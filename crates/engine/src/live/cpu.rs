//! How busy the machine's CPUs are: 1 - idle/wall of each. Never a sum of the fields
//! that ticks are charged to, which miss what keeps away from ticks.

use std::fs;
use std::time::Instant;

/// The unit of /proc/stat's fields (USER_HZ, which is 100 on x86).
const TICKS_PER_SECOND: f64 = 100.0;

/// A reading of the CPUs' idle time.
#[derive(Debug, Clone)]
pub(super) struct Cpus {
    at: Instant,
    /// Seconds of idleness, by CPU.
    idle_s: Vec<f64>,
}

impl Cpus {
    /// Read it; none where there is no /proc/stat.
    pub(super) fn read() -> Option<Cpus> {
        let at = Instant::now();
        let text = fs::read_to_string("/proc/stat").ok()?;
        Some(Cpus {
            at,
            idle_s: idle(&text),
        })
    }

    /// How many CPUs were busy since, on the average; none if CPUs came or went, or the
    /// time was too short for idleness to be told in ticks.
    pub(super) fn busy_since(&self) -> Option<f64> {
        const LEAST_S: f64 = 0.1;
        let now = Cpus::read()?;
        let wall_s = (now.at - self.at).as_secs_f64();
        (wall_s >= LEAST_S).then(|| busy(&self.idle_s, &now.idle_s, wall_s))?
    }
}

/// Idle time and that of waiting for I/O, which is idle too: fields 4 and 5.
fn idle(text: &str) -> Vec<f64> {
    let cpus = text.lines().filter(|line| {
        let digits = line.strip_prefix("cpu");
        digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    cpus.map(|line| {
        let fields: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        fields.iter().skip(3).take(2).sum::<f64>() / TICKS_PER_SECOND
    })
    .collect()
}

fn busy(before: &[f64], after: &[f64], wall_s: f64) -> Option<f64> {
    (before.len() == after.len()).then(|| {
        let each = before.iter().zip(after);
        each.map(|(before, after)| (1.0 - (after - before) / wall_s).clamp(0.0, 1.0))
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every CPU's idleness is found, and not that of all together; and that
    /// what ticks were charged for is not looked at.
    #[test]
    fn idleness() {
        let text = "cpu  1 2 3 4000 5 6\ncpu0 9 9 9 150 50 9 9\ncpu1 1 1 1 300 0 1\nintr 5\n";
        assert_eq!(idle(text), [2.0, 3.0]);
        assert_eq!(busy(&[0.0, 0.0], &[0.5, 2.0], 2.0), Some(0.75));
        assert_eq!(busy(&[0.0], &[0.5, 2.0], 2.0), None);
        // A tick more than there was time for.
        assert_eq!(busy(&[0.0], &[1.01], 1.0), Some(0.0));
    }
}
