//! Collects the results of instruments that measure time into a recording.

use std::collections::{BTreeMap, HashMap};

use netplumb_instruments::functions::correct::correct;
use netplumb_kernel::layers::{APPLICATION, LayerRules};
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::events::{self, TASK_COUNT};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Calls, Declared, FigureKey, Subject};
use netplumb_model::recording::{
    Attachment, Cost, Function, FunctionId, Node, NodeId, Recording, Total,
};
use netplumb_model::samples::{Sample, Samples, Thread, ThreadId};
use netplumb_model::span::{Call, Span, SpanOf, Stage, Times};
use netplumb_model::spans::{Group, Slice};
use netplumb_model::timing::{
    ATTACH, Attached, Costs, DROPPED, INTERRUPTIONS, OWN_CPU, PAUSED, SEEN, STAGE_OWN, Window,
};

use crate::index::{Index, add_costs, known};
use crate::traces::{FULL, FULL_MEANS};

/// Maximum number of unmeasured functions to list by name.
const MAX_REFUSED: usize = 100;

/// Maps the ids of one attachment to the recording's. Each attachment has its own ids.
#[derive(Debug)]
pub(crate) struct Gatherer {
    instrument: String,
    attached: Attached,
    layers: LayerRules,
    functions: Vec<FunctionId>,
    nodes: Vec<NodeId>,
}

impl Gatherer {
    /// Add the facts of an attachment.
    pub(crate) fn new(
        instrument: &str,
        recording: &mut Recording,
        index: &mut Index,
        layers: &LayerRules,
        attached: &Attached,
    ) -> Gatherer {
        let mut functions = Vec::new();
        for function in &attached.functions {
            let id = known(
                recording,
                index,
                Function {
                    name: function.name.clone(),
                    module: function.module.clone(),
                    layer: layers
                        .layer(&function.name, function.module.as_deref())
                        .map(String::from),
                    address: 0,
                    size_bytes: 0,
                    source: None,
                },
            );
            if !recording.attachments.iter().any(|a| a.function == id) {
                recording.attachments.push(Attachment {
                    function: id,
                    mechanism: function.mechanism,
                    arguments: function.arguments,
                });
            }
            functions.push(id);
        }
        for calibration in &attached.calibration {
            if !recording.calibration.contains(calibration) {
                recording.calibration.push(calibration.clone());
            }
        }
        recording.environment.extend(attached.facts.clone());
        recording.set(&ATTACH, FigureKey::ONLY, attached.attach_ns as f64);
        for figure in &attached.figures {
            recording.set_figure(figure.clone());
        }
        let refused = attached.refused.iter().take(MAX_REFUSED);
        let mut refused = refused.map(|(name, why)| (name.clone(), why.clone())).peekable();
        if refused.peek().is_some() {
            let not_measured = recording.not_measured.entry(instrument.into()).or_default();
            not_measured.extend(refused);
        }
        if !attached.over_budget.is_empty() {
            let over_budget = attached.over_budget.clone();
            recording.over_budget.insert(instrument.into(), over_budget);
        }
        for (cause, count, meaning) in [
            (
                "functions or tracepoints that could not be attached to",
                attached.refused.len(),
                "their time is in their callers; the recording has the reason for each",
            ),
            (
                "functions detached to stay within --max-overhead",
                attached.over_budget.len(),
                "their time is in their callers; raise --max-functions or --max-overhead to time them",
            ),
        ] {
            // Uncountable events are shown with the counts.
            if instrument == events::INSTRUMENT {
                continue;
            }
            // These are the same for each attachment.
            let known = recording.losses.get(instrument);
            if known.is_some_and(|known| known.iter().any(|loss| loss.cause == cause)) {
                continue;
            }
            recording.add_loss(instrument, Loss::new(cause, count as u64, meaning));
        }
        Gatherer {
            instrument: instrument.into(),
            attached: attached.clone(),
            layers: layers.clone(),
            functions,
            nodes: Vec::new(),
        }
    }

    /// Add a window to its blocks: one, or one for each protocol and family.
    pub(crate) fn add(
        &mut self,
        recording: &mut Recording,
        index: &mut Index,
        blocks: &[u32],
        window: &Window,
    ) {
        for node in window.nodes.iter().skip(self.nodes.len()) {
            let Some(&function) = self.functions.get(node.function as usize) else {
                break;
            };
            let parent = node.parent.and_then(|p| self.nodes.get(p as usize)).copied();
            let new = Node { parent, function, tail: false };
            self.nodes.push(index.node(recording, new));
        }
        self.add_functions(recording, blocks, window);
        self.add_stages(recording, blocks, window);
        let Some(&first) = blocks.first() else {
            return;
        };
        let groups = window.groups.iter().cloned();
        recording.groups.extend(groups.map(|group| Group { block: first, ..group }));
        let slices = window.slices.iter().cloned();
        recording.slices.extend(slices.map(|slice| Slice { block: first, ..slice }));
        for costs in &window.costs {
            self.add_costs(recording, index, first, costs);
        }
        let threads = threads_of(recording, &window.threads);
        for figure in &window.figures {
            let mut figure = figure.clone();
            if figure.quantity.number.as_deref() == TASK_COUNT.number {
                let number = figure.item.number.and_then(|n| threads.get(n as usize));
                figure.item.number = number.copied();
            }
            recording.add_figure(Subject::Block(first), figure);
        }
        let mut count = |quantity: &Declared, item: FigureKey, value: f64| {
            recording.add(Subject::Block(first), quantity, item, value);
        };
        for (place, seen) in &window.ledger {
            count(&SEEN, FigureKey::label(place), *seen as f64);
        }
        for (reason, dropped) in &window.drops {
            count(&DROPPED, FigureKey::label(reason), *dropped as f64);
        }
        count(&OWN_CPU, FigureKey::ONLY, window.own_cpu_ns as f64);
        if window.paused_ns > 0 {
            count(&PAUSED, FigureKey::ONLY, window.paused_ns as f64);
        }
        let interruptions: u64 = window.functions.iter().map(|f| f.interruptions).sum();
        if interruptions > 0 {
            count(&INTERRUPTIONS, FigureKey::ONLY, interruptions as f64);
        }
        for loss in &window.losses {
            recording.add_loss(&self.instrument, loss.clone());
        }
        recording.add_packets(Some(first), &window.steps);
        if let Some(calls) = &window.calls {
            let full = recording.add_calls(first, calls);
            recording.add_loss(&self.instrument, Loss::new(FULL, full, FULL_MEANS));
        }
    }

    /// Add costs, which belong to one block.
    fn add_costs(&self, recording: &mut Recording, index: &mut Index, block: u32, new: &Costs) {
        let quantity = recording.quantity_of(&new.quantity);
        let functions: Vec<FunctionId> = (new.functions.iter())
            .map(|met| {
                let layer = match met.user {
                    true => Some(APPLICATION),
                    false => self.layers.layer(&met.name, met.module.as_deref()),
                };
                let function = Function {
                    name: met.name.clone(),
                    module: met.module.clone(),
                    layer: layer.map(String::from),
                    address: met.address,
                    size_bytes: met.size_bytes,
                    source: None,
                };
                known(recording, index, function)
            })
            .collect();
        let mut nodes: Vec<NodeId> = Vec::with_capacity(new.nodes.len());
        for (parent, function) in &new.nodes {
            let Some(&function) = functions.get(*function as usize) else {
                break;
            };
            let parent = parent.and_then(|p| nodes.get(p as usize)).copied();
            let node = Node { parent, function, tail: false };
            nodes.push(index.node(recording, node));
        }
        let threads = threads_of(recording, &new.threads);
        let samples = new.samples.iter().filter_map(|sample| {
            Some(Sample {
                node: *nodes.get(sample.node as usize)?,
                thread: *threads.get(sample.thread as usize)?,
                ..*sample
            })
        });
        let samples = Samples::new(block, quantity, samples);
        let costs = new.costs.iter().filter_map(|cost| {
            Some(Cost {
                block,
                quantity,
                direction: cost.direction,
                context: cost.context,
                node: *nodes.get(cost.node as usize)?,
                calls: cost.calls,
                own: cost.own,
            })
        });
        match samples.is_empty() {
            // Of too many, the costs are kept.
            false => {
                recording.add_samples(samples);
            }
            true => add_costs(recording, costs),
        }
        if new.quantity.calls == Calls::Entries {
            let entered: u64 = new.costs.iter().map(|cost| cost.calls).sum();
            let block = &mut recording.blocks[block as usize];
            (block.entered, block.returned) = (entered, entered);
        }
        recording.blocks[block as usize].totals.push(Total {
            quantity,
            kernel: new.kernel,
            user: new.user,
        });
    }

    fn add_functions(&self, recording: &mut Recording, blocks: &[u32], window: &Window) {
        let corrected =
            correct(&self.attached, window).into_iter().map(|c| (c.corrected_ns, c.uncertainty_ns));
        // Entries that the recording can't distinguish are added up.
        let mut sums: BTreeMap<_, (Times, f64, f64)> = BTreeMap::new();
        for (of, (corrected_ns, uncertainty_ns)) in window.functions.iter().zip(corrected) {
            let at = of.node as usize;
            let (Some(node), Some(&id)) = (window.nodes.get(at), self.nodes.get(at)) else {
                continue;
            };
            let own = node.proto.and_then(|p| block_of(recording, blocks, p, None));
            let (block, direction) = match (own, node.proto, blocks.first()) {
                (Some(block), _, _) => (block, node.direction),
                (None, None, Some(first)) => (*first, node.direction),
                // A packet of another protocol than the block's.
                (None, Some(_), Some(first)) => (*first, Direction::Other),
                (None, _, None) => continue,
            };
            let key = (block, direction, node.context, id);
            let sum = sums.entry(key).or_default();
            sum.0.add(&of.times);
            sum.1 += corrected_ns;
            sum.2 += uncertainty_ns;
        }
        let added = sums.into_iter().map(
            |((block, direction, context, node), (times, corrected_ns, uncertainty_ns))| Span {
                block,
                direction,
                of: SpanOf::Call(Call { context, node, corrected_ns, uncertainty_ns }),
                times,
            },
        );
        recording.spans.extend(added);
    }

    fn add_stages(&self, recording: &mut Recording, blocks: &[u32], window: &Window) {
        let mut others = 0;
        for stage in &window.stages {
            match block_of(recording, blocks, stage.proto, Some(stage.family)) {
                Some(block) => {
                    recording.spans.push(Span {
                        block,
                        direction: stage.direction,
                        of: SpanOf::Stage(Stage {
                            order: stage.order,
                            name: stage.name.clone(),
                            kind: stage.kind,
                            passed_over: stage.passed_over,
                        }),
                        times: stage.times.clone(),
                    });
                    if stage.own_ns > 0 {
                        let item = FigureKey::label(format!("{} {}", stage.direction, stage.name));
                        recording.add(Subject::Block(block), &STAGE_OWN, item, stage.own_ns as f64);
                    }
                }
                None => others = others.max(stage.times.count),
            }
        }
        let loss =
            Loss::new("packets that don't match the filter", others, "their stages are not shown");
        recording.add_loss(&self.instrument, loss);
    }
}

/// The numbers of threads in a recording, to which new ones are added.
fn threads_of(recording: &mut Recording, threads: &[Thread]) -> Vec<ThreadId> {
    let known = (0..).zip(&recording.threads);
    let mut known: HashMap<Thread, ThreadId> =
        known.map(|(id, thread)| (thread.clone(), id)).collect();
    let each = threads.iter().map(|thread| {
        *known.entry(thread.clone()).or_insert_with(|| {
            recording.threads.push(thread.clone());
            recording.threads.len() as ThreadId - 1
        })
    });
    each.collect()
}

/// The block of a window for a protocol, and for an address family if it is known.
fn block_of(
    recording: &Recording,
    blocks: &[u32],
    proto: Proto,
    family: Option<Family>,
) -> Option<u32> {
    // Work that belongs to no packet is in the first block.
    if proto == Proto::Work {
        return blocks.first().copied();
    }
    let of = |block: &&u32| {
        let arm =
            recording.blocks.get(**block as usize).and_then(|b| recording.arms.get(b.arm as usize));
        arm.is_some_and(|arm| {
            // All packets of a command belong to it.
            arm.proto == Proto::Command
                || arm.proto == proto && family.is_none_or(|f| f == arm.family)
        })
    };
    blocks.iter().find(of).copied()
}
