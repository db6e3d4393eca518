//! What is typical of repeated readings of a time.

/// What is typical of times, and half the width of its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Middle {
    pub(crate) ns: f64,
    pub(crate) doubt_ns: f64,
}

/// The value below which a share of them lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

impl Middle {
    /// The median of times with one-sided outliers: undetected interrupts.
    pub(crate) fn from_times(mut times: Vec<f64>) -> Middle {
        if times.is_empty() {
            return Middle::default();
        }
        times.sort_by(f64::total_cmp);
        let at = |share| quantile(&times, share);
        // McGill, Tukey and Larsen 1978, Variations of box plots: the notch.
        let doubt_ns = 1.57 * (at(0.75) - at(0.25)) / (times.len() as f64).sqrt();
        Middle { ns: at(0.5), doubt_ns }
    }

    /// The same by a clock that ticks once in `tick_ns`. Where that is seldom, each time is a number of
    /// whole ticks, and so would the median be: it is the mean without the outliers.
    pub(crate) fn of_ticks(mut times: Vec<f64>, tick_ns: f64) -> Middle {
        let middle = Middle::from_times(times.clone());
        if times.is_empty() || tick_ns <= 1.0 {
            return middle;
        }
        times.sort_by(f64::total_cmp);
        let (low, high) = (quantile(&times, 0.25), quantile(&times, 0.75));
        // Tukey 1977, Exploratory Data Analysis: the fences. The median is between them.
        let beyond_ns = 1.5 * (high - low) + tick_ns;
        times.retain(|ns| (low - beyond_ns..=high + beyond_ns).contains(ns));
        let count = times.len() as f64;
        let ns = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|time| (time - ns).powi(2)).sum();
        Middle {
            ns,
            // Where more than half of the ticks are equal, the notch is useless.
            doubt_ns: middle.doubt_ns.max(1.96 * squares.sqrt() / count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that outliers don't move the median, and that scatter increases the uncertainty.
    #[test]
    fn the_middle_is_robust() {
        let mut times = vec![100.0; 99];
        times.push(1e9);
        assert_eq!(Middle::from_times(times), Middle { ns: 100.0, doubt_ns: 0.0 });
        let scattered = Middle::from_times((0..101).map(f64::from).collect());
        assert_eq!(scattered.ns, 50.0);
        assert!((scattered.doubt_ns - 1.57 * 50.0 / 101_f64.sqrt()).abs() < 1e-9);
    }

    /// Check that times of 650 ns on a clock of 16 ns are found, which no reading shows, and that
    /// an interrupt is not in them.
    #[test]
    fn ticks_are_averaged() {
        // 650 = 40 * 16 + 10: ten of sixteen places to begin at have one tick more.
        let mut times: Vec<_> =
            (0..160).map(|place| f64::from((place % 16 + 650) / 16 * 16)).collect();
        assert!(times.iter().all(|ns| [640.0, 656.0].contains(ns)));
        times.push(9000.0);
        let found = Middle::of_ticks(times, 16.0);
        assert!((found.ns - 650.0).abs() < 1e-9, "{found:?}");
        assert_eq!(Middle::of_ticks(vec![656.0; 20], 16.0).ns, 656.0);
        assert_eq!(Middle::of_ticks(Vec::new(), 16.0), Middle::default());
    }
}
