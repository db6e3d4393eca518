//! From a recording's times to the figures of tables: per arm and direction, by
//! function, layer, context and stage.
//!
//! A function's own time is its corrected total less the timed functions below it. A
//! call may begin before its packet is known: then it is in `other`, and its callees
//! are in the packet's class. So a callee's time is subtracted from the caller in its
//! own class first and then in `other`.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::{Class, Context, Direction, Proto};
use netplumb_model::recording::{Arm, FunctionId, NodeId, Recording};
use netplumb_model::span::{self, Call, Span};
use netplumb_model::span::{StageKind, Times};
use netplumb_model::spans::By;
use netplumb_model::timing::{FOLLOWED, Mechanism, STAGE_OWN};
use netplumb_stats::histogram;

use crate::analysis::{NO_LAYER, has_ancestor};
use crate::number::printable;
pub use crate::per::Per;
use crate::per::offered;
use crate::scalars::by_label;

/// What times of some blocks of an arm are shared by.
fn per(recording: &Recording, arm: usize, blocks: &[u32], followed: &Followed) -> Per {
    let packets = match offered(recording, blocks) {
        0 => blocks
            .iter()
            .fold(0, |sum: u64, b| sum.saturating_add(followed.get(b).copied().unwrap_or(0))),
        offered => offered,
    };
    Per::from_recording(recording, recording.arms[arm].proto, blocks, packets)
}

/// Packets that the instrument followed, by block, where nobody else counted them.
type Followed = HashMap<u32, u64>;

fn followed(recording: &Recording) -> Followed {
    let mut all = Followed::new();
    for scalar in recording.scalars_of(&FOLLOWED) {
        if let Some(block) = scalar.block() {
            // Counts, so whole ones: they fit.
            let packets: &mut u64 = all.entry(block).or_default();
            *packets = packets.saturating_add(scalar.value.max(0.0) as u64);
        }
    }
    all
}

/// One arm and direction, summed over the blocks in which it was timed.
#[derive(Debug, Clone)]
pub struct TimedClass<'a> {
    /// The recording that the class is part of.
    pub recording: &'a Recording,
    /// Index of the arm.
    pub arm: usize,
    /// Protocol and direction.
    pub class: Class,
    /// What its sums are shared by.
    pub per: Per,
    /// What each block's sums are shared by.
    pub per_by_block: Vec<Per>,
    /// Indexes of the arm's blocks with probes, in [`Recording::blocks`].
    pub blocks: Vec<u32>,
    /// Own time of all functions: corrected.
    pub total_ns: f64,
    /// The same as read.
    pub raw_ns: f64,
    /// Corrected own time by context.
    pub contexts: BTreeMap<Context, f64>,
    /// And by layer, the largest first.
    pub layers: Vec<(String, f64)>,
    /// By function, the largest own time first.
    pub functions: Vec<TimedFunction>,
    /// The way's stages, in their order.
    pub stages: Vec<Stage>,
    /// Times between events by what they are broken down by, the largest sum first.
    pub groups: Vec<TimedGroup>,
}

/// Times between events that have a device, a task or a CPU in common.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedGroup {
    /// What the group has in common: a device, a task or a CPU.
    pub by: By,
    /// What the group is called.
    pub name: String,
    /// From the first event to the last.
    pub times: Times,
}

/// One function of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedFunction {
    /// Index in [`Recording::functions`].
    pub function: FunctionId,
    /// The kind of probe that timed it.
    pub mechanism: Option<Mechanism>,
    /// All its calls, as read.
    pub times: Times,
    /// The mean correction subtracted from each call.
    pub shift_ns: f64,
    /// Its total, as read; recursion counts once.
    pub raw_ns: f64,
    /// The same, corrected.
    pub corrected_ns: f64,
    /// Corrected total less the timed functions below it.
    pub self_ns: f64,
    /// Half the width of the 95 % interval of `self_ns`.
    pub uncertainty_ns: f64,
    /// Its own time in each of the class's blocks.
    pub self_by_block: Vec<f64>,
    /// Its corrected total in each.
    pub corrected_by_block: Vec<f64>,
    /// Its calls in each.
    pub calls_by_block: Vec<u64>,
}

/// Shares of calls that tables show.
pub const PERCENTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl TimedFunction {
    /// The time that a share of its calls stays below, corrected by the mean.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let raw = percentile(&self.times, share)?;
        Some((raw - self.shift_ns).max(0.0))
    }

    /// Its longest call, likewise.
    pub fn max_ns(&self) -> f64 {
        (self.times.max_ns as f64 - self.shift_ns).max(0.0)
    }

    /// Whether its own time is below the error of the correction.
    pub fn too_small(&self) -> bool {
        self.self_ns <= self.uncertainty_ns || self.self_ns.is_nan()
    }

    /// The mean of a call, corrected.
    pub fn mean_ns(&self) -> f64 {
        self.raw_mean_ns() - self.shift_ns
    }

    /// The same as read.
    pub fn raw_mean_ns(&self) -> f64 {
        self.times.total_ns as f64 / self.times.count.max(1) as f64
    }
}

/// One stage of a class's way.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Its place on the packet's path, from 0.
    pub order: u16,
    /// The name of the stage, as in the recording.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Times of packets that went through it, without the instrument's own time.
    pub times: Times,
    /// The instrument's own time, over all these packets.
    pub own_ns: f64,
    /// Packets of this path that did not go through it.
    pub passed_over: u64,
    /// Mean of each block over all packets of the way; none of a block without any.
    pub by_block: Vec<Option<f64>>,
}

impl Stage {
    /// Packets of the way.
    pub fn packets(&self) -> u64 {
        self.times.count.saturating_add(self.passed_over)
    }

    /// The longest; none where no packet went through.
    pub fn max_ns(&self) -> Option<f64> {
        (self.times.count > 0).then_some(self.times.max_ns as f64)
    }

    /// The mean time over all packets of the path; 0 for packets that did not go through it.
    pub fn mean_ns(&self) -> f64 {
        self.times.total_ns as f64 / self.packets().max(1) as f64
    }
}

impl TimedClass<'_> {
    /// The recording's arm with index `self.arm`.
    pub fn arm(&self) -> &Arm {
        &self.recording.arms[self.arm]
    }

    /// The name of a function.
    pub fn name(&self, function: FunctionId) -> &str {
        &self.recording.functions[function as usize].name
    }

    /// The layer of a function, or [`NO_LAYER`].
    pub fn layer(&self, function: FunctionId) -> &str {
        let layer = &self.recording.functions[function as usize].layer;
        layer.as_deref().unwrap_or(NO_LAYER)
    }

    /// The functions of a layer, or all.
    pub fn functions_of<'s>(
        &'s self,
        layer: Option<&'s str>,
    ) -> impl Iterator<Item = &'s TimedFunction> {
        self.functions.iter().filter(move |f| layer.is_none_or(|l| self.layer(f.function) == l))
    }

    /// Corrected own time of a layer.
    pub fn layer_ns(&self, layer: &str) -> f64 {
        let found = self.layers.iter().find(|(name, _)| name == layer);
        found.map_or(0.0, |(_, ns)| *ns)
    }

    /// The corrected own time of each block.
    pub fn by_block(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.blocks.len()];
        for function in &self.functions {
            for (sum, own) in sums.iter_mut().zip(&function.self_by_block) {
                *sum += own;
            }
        }
        sums
    }

    /// Whether it has times between events, which belong to no packet.
    pub(crate) fn is_between(&self) -> bool {
        super::between::is_of(self.recording) && !self.stages.is_empty()
    }

    /// The unit that each of its stages' times is for: "packet" or another.
    pub(crate) fn each_of(&self) -> &'static str {
        match self.is_between() {
            true => "span",
            false => "packet",
        }
    }

    /// The stages of the path: the ones before its total, if it has one. Later stages,
    /// such as a NIC's completion, are not part of it.
    pub fn parts(&self) -> impl Iterator<Item = &Stage> {
        let total = self.total().map_or(u16::MAX, |total| total.order);
        let parts = self.stages.iter();
        parts.filter(move |s| s.kind != StageKind::Total && s.order < total)
    }

    fn total(&self) -> Option<&Stage> {
        self.stages.iter().find(|s| s.kind == StageKind::Total)
    }

    /// The time of the whole path: its total or, if there is none, the sum of its stages.
    pub(crate) fn whole_ns(&self) -> f64 {
        match self.closure() {
            Some((total, _)) => total,
            None => self.stages.iter().map(Stage::mean_ns).sum(),
        }
    }

    /// The class, after the arm if its name is more than the protocol.
    pub(crate) fn label(&self) -> String {
        let arm = self.arm();
        let label = if arm.proto == Proto::Work || self.is_between() {
            printable(&arm.name, 60)
        } else if arm.name == arm.proto.as_str() {
            self.class.to_string()
        } else {
            format!("{}, {}", printable(&arm.name, 60), self.class)
        };
        match self.recording.root() {
            Some(root) => format!("{label} below {}", printable(root, 60)),
            None => label,
        }
    }

    /// The path's total, and the sum of its parts; none without a total.
    pub fn closure(&self) -> Option<(f64, f64)> {
        let total = self.total()?;
        Some((total.mean_ns(), self.parts().map(Stage::mean_ns).sum()))
    }

    /// Whether these two are equal, apart from rounding; also true without a total.
    pub fn closes(&self) -> bool {
        // Each packet's parts are whole nanoseconds.
        const ROUNDING_NS: f64 = 1.0;
        self.closure()
            .is_none_or(|(total, parts)| (total - parts).abs() <= ROUNDING_NS + 0.001 * total)
    }
}

/// A share of calls stays below this, as read.
pub fn percentile(times: &Times, share: f64) -> Option<f64> {
    histogram::quantile(&times.buckets, share, times.min_ns, times.max_ns)
}

/// A function's times in one calling context, and its own part of them.
type Called<'r> = (&'r Span, &'r Call, Own);
/// A stage's times in one block.
type Staged<'r> = (&'r Span, &'r span::Stage);

/// The block, context and node of a time.
type Key = (u32, Context, NodeId);

/// The own part of a time, without functions below.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    /// As read.
    pub(crate) raw_ns: f64,
    /// Corrected.
    pub(crate) corrected_ns: f64,
    /// Calls below it that were timed.
    pub(crate) calls_below: u64,
}

/// The own part of each of [`Recording::calls`].
pub(crate) fn own(recording: &Recording) -> Vec<Own> {
    let mut places: HashMap<Key, Vec<(Direction, usize)>> = HashMap::new();
    for (n, (span, call)) in recording.calls().enumerate() {
        let key = (span.block, call.context, call.node);
        places.entry(key).or_default().push((span.direction, n));
    }
    let mut own: Vec<Own> = recording
        .calls()
        .map(|(span, call)| Own {
            raw_ns: span.times.total_ns as f64,
            corrected_ns: corrected(span, call),
            calls_below: 0,
        })
        .collect();
    for (span, call) in recording.calls() {
        let Some(parent) = recording.nodes[call.node as usize].parent else {
            continue;
        };
        let Some(callers) = places.get(&(span.block, call.context, parent)) else {
            continue;
        };
        let of = |d: Direction| callers.iter().find(|(direction, _)| *direction == d);
        let caller = of(span.direction).or_else(|| of(Direction::Other));
        if let Some((_, n)) = caller {
            own[*n].raw_ns -= span.times.total_ns as f64;
            own[*n].corrected_ns -= corrected(span, call);
            own[*n].calls_below = own[*n].calls_below.saturating_add(span.times.count);
        }
    }
    own
}

/// A call's times less the probes' cost.
fn corrected(span: &Span, call: &Call) -> f64 {
    match call.corrected_ns.is_finite() {
        true => call.corrected_ns,
        // Not known: the time as read is better than none, and the footer mentions it.
        false => span.times.total_ns as f64,
    }
}

/// Every arm and direction that has times; `other` last of its arm.
pub fn classes(recording: &Recording) -> Vec<TimedClass<'_>> {
    let own = own(recording);
    let followed = followed(recording);
    let arm_of = |block: u32| recording.blocks[block as usize].arm as usize;
    let mut functions: BTreeMap<(usize, Direction), Vec<Called<'_>>> = BTreeMap::new();
    for ((span, call), own) in recording.calls().zip(own) {
        let key = (arm_of(span.block), span.direction);
        functions.entry(key).or_default().push((span, call, own));
    }
    let mut stages: BTreeMap<(usize, Direction), Vec<Staged<'_>>> = BTreeMap::new();
    for (span, stage) in recording.stages() {
        let key = (arm_of(span.block), span.direction);
        stages.entry(key).or_default().push((span, stage));
    }
    // Blocks with probes: there, no times of a class mean 0.
    let mut probed: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for span in &recording.spans {
        probed.entry(arm_of(span.block)).or_default().push(span.block);
    }
    for blocks in probed.values_mut() {
        blocks.sort_unstable();
        blocks.dedup();
    }
    let mut keys: Vec<(usize, Direction)> =
        functions.keys().chain(stages.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter_map(|key| {
            let blocks = probed.get(&key.0)?.clone();
            let functions = functions.get(&key).map_or(&[][..], |all| all);
            let stages = stages.get(&key).map_or(&[][..], |all| all);
            Some(class(recording, key, blocks, &followed, (functions, stages)))
        })
        .collect()
}

fn class<'a>(
    recording: &'a Recording,
    (arm, direction): (usize, Direction),
    blocks: Vec<u32>,
    followed: &Followed,
    (calls, stages): (&[Called<'_>], &[Staged<'_>]),
) -> TimedClass<'a> {
    let at: HashMap<u32, usize> = blocks.iter().enumerate().map(|(n, b)| (*b, n)).collect();
    let mut found: BTreeMap<FunctionId, TimedFunction> = BTreeMap::new();
    let mut contexts: BTreeMap<Context, f64> = BTreeMap::new();
    // Over all calls, including recursive ones.
    let mut taken: BTreeMap<FunctionId, f64> = BTreeMap::new();
    let mut raw_ns = 0.0;
    for (one, call, own) in calls {
        let id = recording.nodes[call.node as usize].function;
        let function = found.entry(id).or_insert_with(|| nothing(recording, id, blocks.len()));
        let corrected = corrected(one, call);
        function.times.add(&one.times);
        *taken.entry(id).or_default() += one.times.total_ns as f64 - corrected;
        function.self_ns += own.corrected_ns;
        function.uncertainty_ns += uncertainty(recording, function, (*one, *call), own);
        let block = at[&one.block];
        function.self_by_block[block] += own.corrected_ns;
        function.calls_by_block[block] += one.times.count;
        // Recursion counts once, where it began.
        if !has_ancestor(recording, call.node, id) {
            function.raw_ns += one.times.total_ns as f64;
            function.corrected_ns += corrected;
            function.corrected_by_block[block] += corrected;
        }
        *contexts.entry(call.context).or_default() += own.corrected_ns;
        raw_ns += own.raw_ns;
    }
    for (id, taken) in taken {
        if let Some(function) = found.get_mut(&id) {
            function.shift_ns = taken / function.times.count.max(1) as f64;
        }
    }
    let mut functions: Vec<TimedFunction> = found.into_values().collect();
    let name = |f: &TimedFunction| recording.functions[f.function as usize].name.as_str();
    functions.sort_by(|a, b| {
        let size = b.self_ns.total_cmp(&a.self_ns);
        size.then_with(|| name(a).cmp(name(b)))
    });
    let mut view = TimedClass {
        recording,
        arm,
        class: Class { proto: recording.arms[arm].proto, direction },
        per: per(recording, arm, &blocks, followed),
        per_by_block: (blocks.iter()).map(|b| per(recording, arm, &[*b], followed)).collect(),
        total_ns: contexts.values().sum(),
        raw_ns,
        contexts,
        layers: Vec::new(),
        functions,
        stages: stages_of(recording, stages, &at),
        groups: match stages.is_empty() {
            true => Vec::new(),
            false => groups_of(recording, &at),
        },
        blocks,
    };
    let mut layers: BTreeMap<&str, f64> = BTreeMap::new();
    for function in &view.functions {
        *layers.entry(view.layer(function.function)).or_default() += function.self_ns;
    }
    let mut layers: Vec<(String, f64)> =
        layers.into_iter().map(|(name, ns)| (name.to_string(), ns)).collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    view.layers = layers;
    view
}

fn groups_of(recording: &Recording, at: &HashMap<u32, usize>) -> Vec<TimedGroup> {
    let mut found: BTreeMap<(By, &str), Times> = BTreeMap::new();
    for group in recording.groups.iter().filter(|g| at.contains_key(&g.block)) {
        let times = found.entry((group.by, &group.name)).or_default();
        times.add(&group.times);
    }
    let mut groups: Vec<TimedGroup> = (found.into_iter())
        .map(|((by, name), times)| TimedGroup { by, name: name.into(), times })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.times.total_ns));
    groups
}

fn nothing(recording: &Recording, function: FunctionId, blocks: usize) -> TimedFunction {
    let attachment = recording.attachments.iter().find(|a| a.function == function);
    TimedFunction {
        function,
        mechanism: attachment.map(|a| a.mechanism),
        times: Times::default(),
        shift_ns: 0.0,
        raw_ns: 0.0,
        corrected_ns: 0.0,
        self_ns: 0.0,
        uncertainty_ns: 0.0,
        self_by_block: vec![0.0; blocks],
        corrected_by_block: vec![0.0; blocks],
        calls_by_block: vec![0; blocks],
    }
}

/// The error of an entry's own time: the bias of each of its calls, and for each
/// call below it that call's bias and the cost of its pair. Their errors are the
/// calibration's, the same at every call, so they add up.
fn uncertainty(
    recording: &Recording,
    function: &TimedFunction,
    (span, call): (&Span, &Call),
    own: &Own,
) -> f64 {
    let each = recording
        .calibration
        .iter()
        .filter(|c| function.mechanism.is_none_or(|m| c.mechanism == m))
        .map(|c| c.uncertainty_ns)
        .fold(None, |most: Option<f64>, u| Some(most.map_or(u, |most| most.max(u))));
    match each {
        Some(each) => each * (span.times.count as f64 + own.calls_below as f64),
        None if call.uncertainty_ns.is_finite() => call.uncertainty_ns,
        None => 0.0,
    }
}

fn stages_of(recording: &Recording, stages: &[Staged<'_>], at: &HashMap<u32, usize>) -> Vec<Stage> {
    let own = by_label(recording, &STAGE_OWN, |block| at.contains_key(&block));
    let mut found: BTreeMap<(u16, &str), Stage> = BTreeMap::new();
    // Of each block: time and packets.
    let mut sums: BTreeMap<(u16, &str), Vec<(u64, u64)>> = BTreeMap::new();
    for (span, one) in stages {
        let key = (one.order, one.name.as_str());
        let stage = found.entry(key).or_insert_with(|| Stage {
            order: one.order,
            name: one.name.clone(),
            kind: one.kind,
            times: Times::default(),
            own_ns: 0.0,
            passed_over: 0,
            by_block: Vec::new(),
        });
        stage.times.add(&span.times);
        stage.passed_over = stage.passed_over.saturating_add(one.passed_over);
        // By block and direction, which all of them share.
        let label = format!("{} {}", span.direction, one.name);
        stage.own_ns = own.get(label.as_str()).copied().unwrap_or_default();
        let by_block = sums.entry(key).or_insert_with(|| vec![(0, 0); at.len()]);
        let sum = &mut by_block[at[&span.block]];
        sum.0 = sum.0.saturating_add(span.times.total_ns);
        let packets = span.times.count.saturating_add(one.passed_over);
        sum.1 = sum.1.saturating_add(packets);
    }
    // A block lacks stages that nothing in it went through: all packets passed them over.
    let total = found.iter().find(|(_, stage)| stage.kind == StageKind::Total);
    if let Some(total) = total.map(|(key, _)| *key) {
        let whole = sums.get(&total).cloned().unwrap_or_default();
        for (key, by_block) in sums.range_mut(..total) {
            for (sum, whole) in by_block.iter_mut().zip(&whole) {
                let missing = whole.1.saturating_sub(sum.1);
                sum.1 += missing;
                if let Some(stage) = found.get_mut(key) {
                    stage.passed_over = stage.passed_over.saturating_add(missing);
                }
            }
        }
    }
    for (key, by_block) in sums {
        if let Some(stage) = found.get_mut(&key) {
            stage.by_block = by_block
                .into_iter()
                .map(|(sum, packets)| (packets > 0).then(|| sum as f64 / packets as f64))
                .collect();
        }
    }
    found.into_values().collect()
}
