//! Subtracts the cost of probes from times.
//!
//! A function's raw time includes the cost of its probe between the two readings of the clock (the
//! bias) and, for each timed call below it, the full cost of a pair of probes. Both are measured
//! ([`Calibration`]), so nothing has to be done while the programs run.

use netplumb_model::timing::{Attached, Calibration, Mechanism, Window};

/// The share of a pair's saving in an RCU read section that is between its two
/// readings. There are four ends of sections in a pair: the two programs', and two
/// around taking and dropping the trampoline (`__bpf_tramp_enter`, Linux 5.13, commit
/// e21aa341785c); only the first program's lies between.
const SAVED_BETWEEN: f64 = 0.25;

/// The corrected time of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Corrected {
    /// The sum of the times of its calls.
    pub corrected_ns: f64,
    /// Half the width of the 95 % interval of the correction, without the scatter of the times
    /// themselves.
    pub uncertainty_ns: f64,
}

/// The costs of functions with one number of arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cost {
    bias_ns: f64,
    pair_ns: f64,
    uncertainty_ns: f64,
    /// Whether the mechanism is a trampoline, whose sections cost less within others.
    trampoline: bool,
}

/// The cost of a function's probes: for its mechanism and the nearest number of arguments; the
/// median of all CPUs takes precedence.
fn cost(calibration: &[Calibration], mechanism: Mechanism, arguments: u8) -> Cost {
    calibration
        .iter()
        .filter(|c| c.mechanism == mechanism)
        .min_by_key(|c| (c.arguments.abs_diff(arguments), c.cpu.is_some()))
        .map(|c| Cost {
            bias_ns: c.bias_ns,
            pair_ns: c.pair_ns,
            uncertainty_ns: c.uncertainty_ns,
            trampoline: mechanism == Mechanism::FentryFexit,
        })
        .unwrap_or_default()
}

/// Subtract the cost of probes from a window's times: one entry for each of [`Window::functions`],
/// in its order.
///
/// A child may have more calls in a window than its parent, which has not returned yet; so a
/// corrected time can be slightly negative, and is kept.
pub fn correct(attached: &Attached, window: &Window) -> Vec<Corrected> {
    let costs: Vec<Cost> = attached
        .functions
        .iter()
        .map(|f| cost(&attached.calibration, f.mechanism, f.arguments))
        .collect();
    let of = |node: usize| {
        let mut cost = costs.get(window.nodes[node].function as usize).copied().unwrap_or_default();
        if cost.trampoline && window.nested.binary_search(&(node as u32)).is_ok() {
            cost.bias_ns -= attached.nested_saving_ns * SAVED_BETWEEN;
            cost.pair_ns -= attached.nested_saving_ns;
        }
        cost
    };
    let mut calls = vec![0; window.nodes.len()];
    for times in &window.functions {
        calls[times.node as usize] = times.times.count;
    }
    // All timed calls below a node. Children come after their parents.
    let mut pairs_ns = vec![0.0; window.nodes.len()];
    let mut doubt_ns = vec![0.0; window.nodes.len()];
    for (id, node) in window.nodes.iter().enumerate().rev() {
        let Some(parent) = node.parent else { continue };
        let cost = of(id);
        pairs_ns[parent as usize] += pairs_ns[id] + calls[id] as f64 * cost.pair_ns;
        doubt_ns[parent as usize] += doubt_ns[id] + calls[id] as f64 * cost.uncertainty_ns;
    }
    window
        .functions
        .iter()
        .map(|times| {
            let id = times.node as usize;
            let cost = of(id);
            let count = times.times.count as f64;
            Corrected {
                corrected_ns: times.times.total_ns as f64 - count * cost.bias_ns - pairs_ns[id],
                // An error of the calibration is the same in every call: it adds up.
                uncertainty_ns: count * cost.uncertainty_ns + doubt_ns[id],
            }
        })
        .collect()
}

/// The cost of a pair of probes on a function, by its index.
pub(super) fn pair_ns(attached: &Attached, function: u32) -> f64 {
    attached
        .functions
        .get(function as usize)
        .map_or(0.0, |f| cost(&attached.calibration, f.mechanism, f.arguments).pair_ns)
}

/// The total cost of the probes in a window.
pub(super) fn own_ns(attached: &Attached, window: &Window) -> f64 {
    window
        .functions
        .iter()
        .filter_map(|times| {
            let node = window.nodes.get(times.node as usize)?;
            Some(times.times.count as f64 * pair_ns(attached, node.function))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Direction};
    use netplumb_model::span::Times;
    use netplumb_model::timing::{NodeTimes, TimedFunctionInfo, TimedNode};

    use super::*;

    fn function(name: &str, arguments: u8) -> TimedFunctionInfo {
        TimedFunctionInfo {
            name: name.into(),
            module: None,
            mechanism: Mechanism::FentryFexit,
            arguments,
        }
    }

    fn calibration(arguments: u8, bias_ns: f64, pair_ns: f64) -> Calibration {
        Calibration {
            cpu: None,
            mechanism: Mechanism::FentryFexit,
            arguments,
            bias_ns,
            pair_ns,
            uncertainty_ns: 0.5,
        }
    }

    fn node(parent: Option<u32>, function: u32) -> TimedNode {
        TimedNode {
            parent,
            function,
            direction: Direction::Tx,
            proto: None,
            context: Context::Task,
        }
    }

    fn times(node: u32, count: u64, total_ns: u64) -> NodeTimes {
        NodeTimes { node, times: Times { count, total_ns, ..Default::default() }, interruptions: 0 }
    }

    /// Check that the bias and the pairs of all timed calls below, at any depth, are subtracted
    /// from a function, and nothing else.
    #[test]
    fn costs_are_taken_off_by_the_tree() {
        let attached = Attached {
            functions: vec![function("a", 1), function("b", 3), function("c", 9)],
            calibration: vec![calibration(1, 10.0, 30.0), calibration(3, 12.0, 34.0)],
            ..Default::default()
        };
        // a calls b, which calls c; another c stands alone.
        let window = Window {
            nodes: vec![node(None, 0), node(Some(0), 1), node(Some(1), 2), node(None, 2)],
            functions: vec![
                times(0, 2, 2000),
                times(1, 4, 1000),
                times(2, 8, 400),
                times(3, 1, 50),
            ],
            ..Default::default()
        };
        let corrected = correct(&attached, &window);
        let ns: Vec<f64> = corrected.iter().map(|c| c.corrected_ns).collect();
        assert_eq!(
            ns,
            [
                2000.0 - 2.0 * 10.0 - 4.0 * 34.0 - 8.0 * 34.0,
                1000.0 - 4.0 * 12.0 - 8.0 * 34.0,
                400.0 - 8.0 * 12.0,
                50.0 - 12.0,
            ]
        );
        assert_eq!(corrected[0].uncertainty_ns, (2.0 + 4.0 + 8.0) * 0.5);
        assert_eq!(own_ns(&attached, &window), 2.0 * 30.0 + 13.0 * 34.0);
    }

    /// Check that a call within an RCU read section has less subtracted.
    #[test]
    fn nested_calls_cost_less() {
        let attached = Attached {
            functions: vec![function("a", 1), function("b", 1)],
            calibration: vec![calibration(1, 100.0, 300.0)],
            nested_saving_ns: 12.0,
            ..Default::default()
        };
        let window = Window {
            nodes: vec![node(None, 0), node(Some(0), 1)],
            nested: vec![1],
            functions: vec![times(0, 1, 1000), times(1, 1, 400)],
            ..Default::default()
        };
        let corrected = correct(&attached, &window);
        assert_eq!(corrected[0].corrected_ns, 1000.0 - 100.0 - 288.0);
        assert_eq!(corrected[1].corrected_ns, 400.0 - 97.0);
    }

    /// Check that without a calibration nothing is subtracted.
    #[test]
    fn nothing_known_is_nothing_taken() {
        let attached = Attached { functions: vec![function("a", 1)], ..Default::default() };
        let window = Window {
            nodes: vec![node(None, 0)],
            functions: vec![times(0, 2, 2000)],
            ..Default::default()
        };
        assert_eq!(correct(&attached, &window)[0].corrected_ns, 2000.0);
    }
}
