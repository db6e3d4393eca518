//! The blind spot of a timer's samples: code that runs with interrupts off.
//!
//! Its samples are taken at the instruction after the one that enables interrupts, in functions that do
//! little else. Late samples count long sections from below; samples in these functions count short
//! ones, too, from above: they also run themselves.

use netplumb_model::class::Direction;
use netplumb_model::layers::APPLICATION;
use netplumb_model::recording::{Function, Recording};

use crate::number::{percent, printable};

/// The most names in a line.
const NAMES: usize = 3;

/// Whether a function of the kernel ends a section with interrupts off as it returns, and does little
/// else: unlocking (include/linux/spinlock_api_smp.h), and a switch of tasks (kernel/sched/core.c).
fn enables_interrupts(function: &Function) -> bool {
    let locks = ["_raw_spin_unlock_irq", "_raw_read_unlock_irq", "_raw_write_unlock_irq"];
    let bare = function.name.split('.').next().unwrap_or_default();
    let unlocks = (locks.iter()).any(|lock| {
        let rest = bare.strip_prefix(lock);
        rest.is_some_and(|rest| rest.is_empty() || rest == "restore")
    });
    let is_kernel = function.layer.as_deref() != Some(APPLICATION);
    is_kernel && (unlocks || bare == "finish_task_switch")
}

/// The share of samples charged to such functions, with the first of them; none without
/// samples.
pub(super) fn charged(recording: &Recording) -> Option<String> {
    let (mut all, mut blamed) = (0_u64, vec![0_u64; recording.functions.len()]);
    for cost in &recording.costs {
        if cost.direction == Direction::Other {
            continue;
        }
        all = all.saturating_add(cost.calls);
        let node = recording.nodes.get(cost.node as usize);
        let number = node.map(|node| node.function as usize);
        let function = number.and_then(|n| recording.functions.get(n));
        if let (Some(number), true) = (number, function.is_some_and(enables_interrupts)) {
            blamed[number] = blamed[number].saturating_add(cost.calls);
        }
    }
    if all == 0 {
        return None;
    }
    let mut of: Vec<(u64, &str)> = (blamed.iter().copied().zip(&recording.functions))
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, function)| (samples, function.name.as_str()))
        .collect();
    of.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let sum: u64 = of.iter().map(|(samples, _)| samples).sum();
    let names = of.iter().take(NAMES).map(|(_, name)| printable(name, 60));
    let names: Vec<String> = names.collect();
    Some(match names.is_empty() {
        true => {
            "no sample is in a function that unlocks with interrupts off, or ends a switch of tasks"
                .into()
        }
        false => format!(
            "up to {:.1}% of the samples belong to sections of any length: they are in functions that \
             enable interrupts and do little else ({})",
            percent(sum, all),
            names.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::Context;
    use netplumb_model::recording::{Cost, Node};

    use super::*;

    /// Check that samples in functions of the kernel that enable interrupts are counted, including compilers'
    /// clones, and no others: not in programs, nor on idle CPUs.
    #[test]
    fn functions_that_enable_interrupts() {
        let mut recording = Recording::default();
        assert_eq!(charged(&recording), None);
        for (number, (name, layer, direction, calls)) in (0..).zip([
            ("_raw_spin_unlock_irq", "locking", Direction::Run, 8),
            ("finish_task_switch.isra.0", "scheduling", Direction::Run, 4),
            ("_raw_spin_unlock_irqrestore", APPLICATION, Direction::Run, 40),
            ("_raw_spin_lock_irqsave", "locking", Direction::Run, 48),
            ("_raw_spin_unlock_irqrestore", "locking", Direction::Other, 900),
        ]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: Some(layer.into()),
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node { parent: None, function: number, tail: false });
            recording.costs.push(Cost {
                block: 0,
                quantity: 0,
                direction,
                context: Context::Task,
                node: number,
                calls,
                own: 0,
            });
        }
        let text = charged(&recording).unwrap();
        assert!(text.starts_with("up to 12.0% of the samples"), "{text}");
        assert!(text.ends_with("(_raw_spin_unlock_irq, finish_task_switch.isra.0)"), "{text}");
        recording.costs.retain(|cost| cost.node == 3);
        assert!(charged(&recording).unwrap().starts_with("no sample"));
    }
}
