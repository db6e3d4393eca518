//! Cuts samples into blocks of equal time, and makes a recording of them.

use std::collections::BTreeMap;
use std::path::Path;

use netplumb_instruments::samples::context;
use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Quantity, QuantityId, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Node, NodeId, Recording, Total, env};
use netplumb_model::samples::{Sample, Samples};
use netplumb_model::timing::{CPU_TIME, PERIOD};

use crate::events::{Event, SAMPLES};
use crate::frames::Once;
use crate::gather::{Gathered, RawSample};
use crate::names::{NamedFunctions, Symbols, names};
use crate::{ImportError, Options};

/// Keys of the environment.
const CPU: &str = "imported.cpu";
/// What a damaged file lacks, as losses of the recording.
pub(crate) const CUT: &str = "end of the file missing";
pub(crate) const STOPPED: &str = "the rest of the file can't be read";
pub(crate) const INVALID: &str = "records that make no sense";

/// The recording of all samples.
pub(crate) fn recording(
    mut all: Gathered,
    options: &Options,
    given: Option<Symbols>,
    path: &Path,
) -> Result<Recording, ImportError> {
    let named = names(&all, options, given);
    let mut recording = Recording::default();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy());
    let name = stem.map_or_else(|| "perf".to_string(), |stem| stem.into_owned());
    recording.complete = !all.facts.cut && all.facts.stopped.is_none();
    environment(&mut recording, &all, &named, &name);
    recording.arms.push(Arm {
        name,
        proto: Proto::Work,
        family: Family::V4,
        link: Link::Lo,
        forward: false,
        size_bytes: 0,
        knobs: BTreeMap::new(),
        made: None,
    });
    let tree = tree(&mut recording, &all, &named);
    recording.threads = std::mem::take(&mut all.threads);
    let events = std::mem::take(&mut all.events);
    let mut nameless = Nameless::default();
    for (_, samples) in &events {
        nameless.count(samples, &all, &named);
    }
    losses(&mut recording, &all, &named, &nameless);
    let window = Window::from_events(&events, options.blocks);
    for number in 0..window.blocks {
        recording.blocks.push(Block {
            arm: 0,
            instrument: SAMPLES.into(),
            index: number,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: window.duration_ns(number),
        });
    }
    // Nothing else is needed.
    drop(all);
    for (event, samples) in events {
        if !samples.is_empty() {
            add(&mut recording, &event, samples, &tree, window);
        }
    }
    // In a file's order.
    recording.samples.sort_by_key(|s| (s.block, s.quantity));
    recording.costs.sort_by_key(|c| (c.block, c.quantity));
    Ok(recording)
}

/// From when to when samples were taken, cut into blocks.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin_ns: u64,
    span_ns: u64,
    blocks: u32,
}

impl Window {
    fn from_events(events: &[(Event, Vec<RawSample>)], blocks: u32) -> Window {
        let times = || events.iter().flat_map(|(_, all)| all.iter().map(|s| s.time_ns));
        let begin_ns = times().min().unwrap_or_default();
        let end_ns = times().max().unwrap_or_default();
        let span_ns = (end_ns - begin_ns).saturating_add(1);
        let samples = times().count() as u64;
        let most = samples.min(span_ns).min(u64::from(u32::MAX)) as u32;
        Window { begin_ns, span_ns, blocks: blocks.clamp(1, most.max(1)) }
    }

    /// When a block begins, since the first one did.
    fn start_ns(self, block: u32) -> u64 {
        (u128::from(self.span_ns) * u128::from(block) / u128::from(self.blocks)) as u64
    }

    fn duration_ns(self, block: u32) -> u64 {
        self.start_ns(block + 1) - self.start_ns(block)
    }
}

/// Nodes of the recording, and what their samples ran for, by the numbers of nodes that were
/// gathered.
#[derive(Debug)]
struct Tree {
    nodes: Vec<NodeId>,
    contexts: Vec<Context>,
}

/// The tree of functions: several places may be in one.
fn tree(recording: &mut Recording, all: &Gathered, named: &NamedFunctions) -> Tree {
    let mut known: Once<Node> = Once::default();
    let mut nodes: Vec<NodeId> = Vec::with_capacity(all.nodes.len());
    for node in &all.nodes {
        nodes.push(known.number(Node {
            parent: node.parent().map(|parent| nodes[parent as usize]),
            function: named.of[node.frame as usize],
            tail: false,
        }));
    }
    recording.nodes = known.all;
    recording.functions.clone_from(&named.functions);
    let contexts = contexts(recording);
    Tree { contexts: nodes.iter().map(|node| contexts[*node as usize]).collect(), nodes }
}

/// The context of each node: by the innermost softirq or interrupt that it is in.
fn contexts(recording: &Recording) -> Vec<Context> {
    let name = |node: &Node| recording.functions[node.function as usize].name.as_str();
    // Few functions handle interrupts, and few nodes are below them.
    let functions = recording.functions.iter();
    let interrupts: Vec<bool> =
        functions.map(|function| context(&[&function.name]) != Context::Task).collect();
    let mut interrupted: Vec<bool> = Vec::with_capacity(recording.nodes.len());
    let mut contexts = Vec::with_capacity(recording.nodes.len());
    let mut names = Vec::new();
    for node in &recording.nodes {
        let above = (node.parent).is_some_and(|parent| interrupted[parent as usize]);
        let within = above || interrupts[node.function as usize];
        interrupted.push(within);
        if !within {
            contexts.push(Context::Task);
            continue;
        }
        names.clear();
        names.push(name(node));
        let mut above = node.parent;
        while let Some(parent) = above.map(|parent| &recording.nodes[parent as usize]) {
            // The outermost is the thread.
            if parent.parent.is_some() {
                names.push(name(parent));
            }
            above = parent.parent;
        }
        contexts.push(context(&names));
    }
    contexts
}

/// Add the samples of an event, block by block.
fn add(
    recording: &mut Recording,
    event: &Event,
    mut samples: Vec<RawSample>,
    tree: &Tree,
    window: Window,
) {
    let Some(quantity) = event.quantity.clone() else {
        return;
    };
    let quantity = add_quantity(recording, quantity);
    if let Some(period) = event.fixed
        && recording.quantities[quantity as usize].unit == CPU_TIME.unit
    {
        recording.add(Subject::Run, &PERIOD, FigureKey::ONLY, period as f64);
    }
    samples.sort_by_key(|sample| sample.time_ns);
    let mut rest = samples.as_slice();
    for block in 0..window.blocks {
        let end_ns = window.begin_ns.saturating_add(window.start_ns(block + 1));
        let until = match block + 1 == window.blocks {
            true => rest.len(),
            false => rest.partition_point(|sample| sample.time_ns < end_ns),
        };
        let (of_block, later) = rest.split_at(until);
        rest = later;
        let mut total = Total { quantity, kernel: 0, user: 0 };
        let threads = &recording.threads;
        let context = |sample: &RawSample| tree.contexts[sample.node as usize];
        // A CPU that idles may be interrupted, and that is work.
        let idles = |sample: &RawSample| {
            threads[sample.thread as usize].tid == 0 && context(sample) == Context::Task
        };
        for sample in of_block.iter().filter(|sample| !idles(sample)) {
            let side = match sample.kernel {
                true => &mut total.kernel,
                false => &mut total.user,
            };
            *side = side.saturating_add(sample.weight);
        }
        let samples = of_block.iter().map(|sample| {
            let idles = idles(sample);
            Sample {
                time_ns: sample.time_ns - window.begin_ns,
                weight: sample.weight,
                node: tree.nodes[sample.node as usize],
                thread: sample.thread,
                cpu: sample.cpu,
                // Idling is not work: shares are of the time that CPUs were busy.
                direction: match idles {
                    true => Direction::Other,
                    false => Direction::Run,
                },
                context: match idles {
                    true => Context::OtherTask,
                    false => context(sample),
                },
            }
        });
        let samples = Samples::new(block, quantity, samples);
        recording.blocks[block as usize].totals.push(total);
        recording.add_samples(samples);
    }
}

/// A quantity of its own for each event, whatever they are called.
fn add_quantity(recording: &mut Recording, mut quantity: Quantity) -> QuantityId {
    let name = quantity.name.clone();
    let taken = |quantity: &Quantity, recording: &Recording| {
        (recording.quantities.iter()).any(|known| known.name == quantity.name)
    };
    let mut number = 2;
    while taken(&quantity, recording) {
        quantity.name = format!("{name} #{number}");
        number += 1;
    }
    recording.quantity_of(&quantity)
}

fn environment(recording: &mut Recording, all: &Gathered, named: &NamedFunctions, name: &str) {
    let facts = &all.facts;
    let text = |text: Option<&str>| text.map(String::from);
    let sampled = all.events.iter().filter(|(_, samples)| !samples.is_empty());
    let events: Vec<&str> = sampled.map(|(event, _)| event.name.as_str()).collect();
    let entries = [
        (env::CLOCK, Some(SAMPLES.to_string())),
        (env::LAB, Some("host".into())),
        (env::NAME, Some(name.to_string())),
        (env::KERNEL, text(facts.release())),
        (env::IMPORTED, Some(facts.recorder())),
        (env::IMPORTED_LINE, text(facts.command_line())),
        (env::IMPORTED_HOST, text(facts.host())),
        (env::IMPORTED_ARCH, text(facts.arch())),
        (env::IMPORTED_ON, Some(std::env::consts::ARCH.into())),
        (CPU, text(facts.cpu())),
        (env::IMPORTED_SYMBOLS, named.kernel.clone()),
        (env::IMPORTED_FILES, Some(files(named))),
        (env::IMPORTED_STACKS, Some(if all.counts.chains > 0 { "yes" } else { "no" }.into())),
        (env::SAMPLED_EVENT, (!events.is_empty()).then(|| events.join(", "))),
    ];
    for (key, value) in entries {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            recording.environment.insert(key.into(), value);
        }
    }
    let first = all.events.iter().find(|(_, samples)| !samples.is_empty());
    let unit = first.and_then(|(event, _)| event.quantity.as_ref());
    let unit = match unit.map(|quantity| quantity.unit.as_str()) {
        None | Some("ns") => "nanoseconds",
        Some(unit) => unit,
    };
    recording.environment.insert(env::UNIT.into(), unit.into());
}

/// How many of the programs' files were there.
fn files(named: &NamedFunctions) -> String {
    let (missing, changed) = (named.missing, named.changed);
    format!("{} found, {missing} not here, {changed} changed", named.found)
}

/// Samples in code that has no name.
#[derive(Debug, Default)]
struct Nameless {
    kernel: u64,
    user: u64,
}

impl Nameless {
    fn count(&mut self, samples: &[RawSample], all: &Gathered, named: &NamedFunctions) {
        for sample in samples {
            let frame = all.nodes[sample.node as usize].frame;
            if named.nameless[frame as usize] {
                match sample.kernel {
                    true => self.kernel += 1,
                    false => self.user += 1,
                }
            }
        }
    }
}

fn losses(recording: &mut Recording, all: &Gathered, named: &NamedFunctions, nameless: &Nameless) {
    let (facts, counts) = (&all.facts, &all.counts);
    let cut = u64::from(facts.cut);
    let kernel = match named.kernel {
        Some(_) => "shown by address: no symbol covers them",
        None => {
            "shown by address: this is another kernel's; use --kallsyms with a copy of \
             /proc/kallsyms of that machine"
        }
    };
    let user = format!(
        "shown by address: of {} files that are not here, {} that have changed, and code without \
         a file; --symfs is where the files of that machine are",
        named.missing, named.changed
    );
    let stopped = facts.stopped.clone().unwrap_or_default();
    let all = [
        (
            "samples lost by perf record",
            // Since 6.1 perf counts samples, which are among the lost records.
            match facts.lost_samples {
                0 => counts.lost,
                samples => samples,
            },
            "they are missing; a lower -F or a larger -m loses fewer",
        ),
        (
            CUT,
            cut,
            "samples until there are imported; names of events, and of files that have changed, \
             may be missing",
        ),
        ("samples in the kernel without a name", nameless.kernel, kernel),
        ("samples of programs without a name", nameless.user, &user),
        (INVALID, counts.invalid + facts.invalid, "they were skipped"),
        (STOPPED, u64::from(facts.stopped.is_some()), &stopped),
        (
            "samples too many",
            counts.too_many,
            "a recording has at most 16,777,216; the first are kept",
        ),
        (
            "stacks with more than 1,024 frames",
            counts.cut_stacks,
            "the outermost frames are missing",
        ),
        (
            &format!("stacks with {} frames, as many as perf recorded", counts.max_stack),
            counts.full_stacks,
            "longer ones were cut: their outermost callers are missing, so inclusive shares of these are \
             too small; raise kernel.perf_event_max_stack, and record with --max-stack",
        ),
        (
            "perf-PID.map and jitdump files of other users, or too large",
            named.unread_maps + counts.unread_dumps,
            "code that they name is shown by address",
        ),
        (
            "lines of perf-PID.map files that are not understood",
            named.malformed,
            "code that they name may be shown by address",
        ),
        ("samples with a stack of branches", counts.branches, "the branches are not imported"),
        (
            "samples whose user stack is recorded later",
            counts.deferred,
            "their callers in user code are missing; record without --call-graph fp,defer",
        ),
        (
            "samples with a copy of the stack",
            counts.stack_copies,
            "their callers in user code are not unwound; record with --call-graph fp",
        ),
        (
            "samples of events that are not imported",
            counts.others,
            "what perf's own BPF programs report, such as --off-cpu",
        ),
        ("hardware traces", facts.traces, "they are not imported"),
        ("samples of guests and hypervisors", counts.elsewhere, "they are [guest or hypervisor]"),
        (
            "samples without a time",
            counts.without_time,
            "they are in the first block; record with -T",
        ),
        (
            "times that the kernel sampled less",
            facts.throttled,
            "sampling took too long; a lower -F avoids it",
        ),
    ];
    for (cause, count, meaning) in all {
        recording.add_loss(SAMPLES, Loss::new(cause, count, meaning));
    }
}
