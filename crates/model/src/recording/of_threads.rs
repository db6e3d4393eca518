//! The part of a recording of some threads: what was sampled in them.

use super::{Recording, Total, env};
use crate::layers::APPLICATION;
use crate::samples::{Samples, Thread, ThreadId};

impl Recording {
    /// The threads of a name or number.
    pub fn threads_named(&self, name: &str) -> Vec<ThreadId> {
        let is_it = |thread: &Thread| thread.name == name || is_number(name, thread.tid);
        self.threads_that(is_it)
    }

    /// The threads of the processes of a name or number. A process is called what its first thread is;
    /// if that was not sampled, what any of its threads is.
    pub fn processes_named(&self, name: &str) -> Vec<ThreadId> {
        let is_first = |thread: &&Thread| thread.tid == thread.pid;
        let is_it = |thread: &Thread| {
            let same = || self.threads.iter().filter(|other| other.pid == thread.pid);
            let called = |other: &Thread| other.name == name;
            is_number(name, thread.pid)
                || match same().any(|other| is_first(&other)) {
                    true => same().filter(is_first).any(called),
                    false => same().any(called),
                }
        };
        self.threads_that(is_it)
    }

    fn threads_that(&self, is_it: impl Fn(&Thread) -> bool) -> Vec<ThreadId> {
        let all = (0..).zip(&self.threads);
        all.filter(|(_, thread)| is_it(thread)).map(|(id, _)| id).collect()
    }

    /// The samples of some threads and their sums; blocks keep their length, and have the totals of these threads. What
    /// is not known by thread is left out. The environment has the threads' names ([`env::THREADS`]).
    pub fn of_threads(&self, threads: &[ThreadId], called: &str) -> Recording {
        let mut part = Recording {
            blocks: self.blocks.clone(),
            scalars: self.scalars.clone(),
            ..self.without_blocks()
        };
        part.environment.insert(env::THREADS.into(), called.into());
        for block in &mut part.blocks {
            block.totals.clear();
        }
        for of in &self.samples {
            let kept = of.iter().filter(|sample| threads.contains(&sample.thread));
            let kept = Samples::new(of.block, of.quantity, kept);
            let mut total = Total { quantity: of.quantity, kernel: 0, user: 0 };
            for sample in kept.iter() {
                let node = self.nodes.get(sample.node as usize);
                let function = node.and_then(|node| self.functions.get(node.function as usize));
                let layer = function.and_then(|function| function.layer.as_deref());
                let side = match layer == Some(APPLICATION) {
                    true => &mut total.user,
                    false => &mut total.kernel,
                };
                *side = side.saturating_add(sample.weight);
            }
            if let Some(block) = part.blocks.get_mut(of.block as usize) {
                block.totals.push(total);
            }
            part.add_samples(kept);
        }
        part
    }
}

fn is_number(name: &str, number: u32) -> bool {
    name.parse() == Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Context, Direction};
    use crate::recording::{Block, Function, Ledger, Node};
    use crate::samples::Sample;
    use crate::timing::CPU_TIME;

    /// Check that a part has the samples of its threads and their sums, and that a process is called
    /// what its first thread is.
    #[test]
    fn of_threads() {
        let mut recording = Recording::default();
        let quantity = recording.quantity(&CPU_TIME);
        for (pid, tid, name) in [(5, 5, "server"), (5, 6, "worker"), (9, 10, "worker")] {
            let name = name.into();
            recording.threads.push(Thread { pid, tid, name });
        }
        for layer in ["application", "network"] {
            recording.nodes.push(Node {
                parent: None,
                function: recording.functions.len() as u32,
                tail: false,
            });
            recording.functions.push(Function {
                name: layer.into(),
                module: None,
                layer: Some(layer.into()),
                address: 0,
                size_bytes: 0,
                source: None,
            });
        }
        recording.blocks.push(Block {
            arm: 0,
            instrument: CPU_TIME.instrument.into(),
            index: 0,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 1_000,
        });
        let sample = |thread: u32, node: u32| Sample {
            time_ns: u64::from(thread * 2 + node),
            weight: 10 + u64::from(thread),
            node,
            thread,
            cpu: 0,
            direction: Direction::Run,
            context: Context::Task,
        };
        let all = (0..3).flat_map(|thread| [sample(thread, 0), sample(thread, 1)]);
        recording.add_samples(Samples::new(0, quantity, all));
        assert_eq!(recording.threads_named("worker"), [1, 2]);
        assert_eq!(recording.threads_named("6"), [1]);
        assert_eq!(recording.processes_named("server"), [0, 1]);
        assert_eq!(recording.processes_named("worker"), [2]);
        assert_eq!(recording.processes_named("5"), [0, 1]);
        let part = recording.of_threads(&[1, 2], "thread worker");
        assert_eq!(part.samples[0].threads(), [1, 1, 2, 2]);
        let total = &part.blocks[0].totals[0];
        assert_eq!((total.user, total.kernel), (23, 23));
        assert_eq!(part.costs.iter().map(|cost| cost.own).sum::<u64>(), 46);
        assert_eq!(part.environment[env::THREADS], "thread worker");
    }
}
