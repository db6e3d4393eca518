//! Limits the overhead of measuring, by detaching functions.

use std::collections::BTreeMap;

use netplumb_model::timing::{Attached, Window};

use super::correct;

/// The cost of a function's probes in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spent {
    /// Index into [`Attached::functions`].
    function: u32,
    calls: u64,
    total_ns: u64,
    probes_ns: f64,
}

/// The functions to detach, so that measuring takes at most a share of one CPU's time, by the
/// results of a window; indices into [`Attached::functions`].
pub(super) fn excess(max_share: f64, attached: &Attached, window: &Window) -> Vec<u32> {
    let mut spent: BTreeMap<u32, Spent> = BTreeMap::new();
    for times in &window.functions {
        let function = window.nodes[times.node as usize].function;
        let one = spent.entry(function).or_insert(Spent {
            function,
            calls: 0,
            total_ns: 0,
            probes_ns: 0.0,
        });
        one.calls += times.times.count;
        one.total_ns += times.times.total_ns;
        one.probes_ns += times.times.count as f64 * correct::pair_ns(attached, function);
    }
    let budget_ns = max_share * window.duration_ns as f64;
    over_budget(budget_ns, spent.into_values().collect())
}

/// Functions whose probes are most of their raw time are detached first.
fn over_budget(budget_ns: f64, mut spent: Vec<Spent>) -> Vec<u32> {
    let mut sum: f64 = spent.iter().map(|s| s.probes_ns).sum();
    let share = |s: &Spent| s.probes_ns / (s.total_ns as f64).max(1.0);
    spent.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let mut given_up = Vec::new();
    for one in spent {
        if sum <= budget_ns {
            break;
        }
        sum -= one.probes_ns;
        given_up.push(one.function);
    }
    given_up
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that small and frequent functions are detached first, and no more than necessary.
    #[test]
    fn the_least_telling_goes_first() {
        let spent =
            |function, calls, total_ns, probes_ns| Spent { function, calls, total_ns, probes_ns };
        let all = vec![
            spent(0, 10, 100_000, 1_000.0),
            spent(1, 100, 20_000, 10_000.0),
            spent(2, 50, 20_000, 5_000.0),
        ];
        assert!(over_budget(16_000.0, all.clone()).is_empty());
        assert_eq!(over_budget(7_000.0, all.clone()), [1]);
        assert_eq!(over_budget(2_000.0, all.clone()), [1, 2]);
        assert_eq!(over_budget(0.0, all), [1, 2, 0]);
    }
}
