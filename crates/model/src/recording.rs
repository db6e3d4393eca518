//! What a recording holds: all that a report or a comparison needs, and nothing
//! that only the machine it was made on could tell.
//!
//! Costs hang on a calling-context tree, because everything else follows from
//! it: a function's self cost is the sum over its nodes, its inclusive cost the
//! sum over the subtrees of its outermost nodes, an edge the nodes of a function
//! under those of another. Ids are dense and start at 0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::Hop;
use crate::class::{Context, Direction, Family, Link, Proto};
use crate::quantity::{Declared, Figure, Item, Of, Quantity, QuantityId, Scalar};
use crate::timing::{Calibration, Mechanism, StageKind, Step, Times};

/// Index into [`Recording::functions`].
pub type FunctionId = u32;
/// Index into [`Recording::nodes`].
pub type NodeId = u32;
/// Index into [`Recording::source_files`].
pub type SourceFileId = u32;

/// One `.plumb` file in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Facts about where and how it was measured, by dotted key: see [`mod@env`]. What was
    /// measured is not among them.
    pub environment: BTreeMap<String, String>,
    /// The experiment file that it answers, as written; empty for `plumb path`.
    pub experiment_toml: String,
    /// What was measured: costs, totals and scalars name these.
    pub quantities: Vec<Quantity>,
    /// What was compared, in the order of the plan.
    pub arms: Vec<Arm>,
    /// What came of arms beside their figures, by their indices.
    pub notes: BTreeMap<u32, ArmNotes>,
    /// Measured repetitions, in the order they ran.
    pub blocks: Vec<Block>,
    /// Every function that any cost names.
    pub functions: Vec<Function>,
    /// Source files, as the compiler was told them, each once.
    pub source_files: Vec<String>,
    /// The calling-context tree; a parent comes before its children.
    pub nodes: Vec<Node>,
    /// What each node cost in each block, direction and context.
    pub costs: Vec<Cost>,
    /// What each node took in each block, direction and context, where the clock is
    /// one of nanoseconds.
    pub timed: Vec<Timed>,
    /// What each stage took.
    pub stages: Vec<Stage>,
    /// By what functions were timed.
    pub attachments: Vec<Attachment>,
    /// What the probes cost.
    pub calibration: Vec<Calibration>,
    /// Single figures of blocks, arms and the run.
    pub scalars: Vec<Scalar>,
    /// The ledger of hops, in the order of blocks and of each block's hops.
    pub hops: Vec<BlockHop>,
    /// Packets told one by one.
    pub steps: Vec<Step>,
    /// What single lines of user code cost, of functions whose lines are known.
    pub line_costs: Vec<LineCost>,
    /// Everything that was lost, missed or could not be attributed.
    pub losses: Vec<Loss>,
    /// Functions and tracepoints that could not be watched, each with the reason.
    pub unwatched: BTreeMap<String, String>,
    /// Settings that a scan did not try, each with the reason.
    pub untried: BTreeMap<String, String>,
    /// Whether the run reached its end. If not, what is here is still right.
    pub complete: bool,
}

/// Bytes of the name of a function, a module, a layer, a cause, a counter: what has more is
/// in no recording.
pub const MAX_NAME_BYTES: usize = 16 << 10;

/// The module of a function that stands for a thread of a command: the root of what
/// the thread called, which costs nothing itself.
pub const THREAD_MODULE: &str = "(thread)";

/// Keys of [`Recording::environment`] that more than one place needs.
pub mod env {
    /// The instrument that was asked for, the first of several.
    pub const CLOCK: &str = "clock";
    /// What one unit of cost is: "instructions" or "nanoseconds".
    pub const UNIT: &str = "clock.unit";
    /// Where it ran: "vm", "netns" or "host". Absent in old recordings: "vm".
    pub const LAB: &str = "lab";
    /// The user's own interfaces that a bench ran on, in words.
    pub const NICS: &str = "bench.nics";
    /// "yes" if the guest ran without an instruction clock.
    pub const QUICK: &str = "clock.quick";
    /// Version of Netplumb.
    pub const PLUMB: &str = "plumb.version";
    /// The command line, as typed.
    pub const ARGV: &str = "plumb.argv";
    /// Seconds since the epoch when the run began.
    pub const STARTED: &str = "plumb.started_unix_s";
    /// The recording's name: of the experiment, or "path".
    pub const NAME: &str = "plumb.name";
    /// Release of the measured kernel.
    pub const KERNEL: &str = "kernel.release";
    /// Content hash of the measured kernel.
    pub const KERNEL_HASH: &str = "kernel.hash";
    /// Its command line.
    pub const CMDLINE: &str = "kernel.cmdline";
    /// "on", or "off".
    pub const MITIGATIONS: &str = "kernel.mitigations";
    /// Version of QEMU.
    pub const QEMU: &str = "vm.qemu";
    /// The CPU model asked of QEMU.
    pub const CPU: &str = "vm.cpu";
    /// How `rep` string instructions count.
    pub const REP: &str = "vm.rep";
    /// Where the guest's random numbers come from: "seed", the plan's, or "boot", as the boot
    /// left them.
    pub const RANDOM: &str = "guest.random";
    /// Hash of this machine's `nft` and its libraries, as a guest had them.
    pub const NFT_FILES: &str = "files.nft";
    /// The same of `tc`.
    pub const TC_FILES: &str = "files.tc";
    /// Under how many random seeds every arm was to be run.
    pub const SEEDS: &str = "plumb.seeds";

    // Keys of an arm's knobs that are no knobs.

    /// The arm that this one repeats under another seed.
    pub const SEED_OF: &str = "seed_of";
    /// Of a scan: the setting, with its values before and after.
    pub const SCAN_SETTING: &str = "scan.setting";
    /// Of a scan: the arm that this one is to be compared with.
    pub const SCAN_BASE: &str = "scan.base";
    /// Of a scan: nothing is changed in this arm but the writing of a setting.
    pub const SCAN_CONTROL: &str = "scan.control";
}

/// One combination of knob levels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// What it is called in tables.
    pub name: String,
    /// What it sends.
    pub proto: Proto,
    /// Over which IP.
    pub family: Family,
    /// Over what.
    pub link: Link,
    /// Whether a router stands between the ends.
    pub forward: bool,
    /// Payload of one packet: bytes above the transport header (after the ICMP
    /// header for `raw`).
    pub size_bytes: u32,
    /// Every other knob, by name, as set.
    pub knobs: BTreeMap<String, String>,
}

/// One measured repetition of one arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Index into [`Recording::arms`].
    pub arm: u32,
    /// The instrument that measured it; empty if none did, to see what measuring costs.
    pub instrument: String,
    /// Which repetition by that instrument, from 0.
    pub index: u32,
    /// The ledger of its packets.
    pub ledger: Ledger,
    /// Of each quantity that its costs are of, what was counted apart from them.
    pub totals: Vec<Total>,
    /// Calls of functions that began in the window.
    pub entered: u64,
    /// Of these, those that returned in the window.
    pub returned: u64,
    /// How long the window was open; 0 under a clock that has no time.
    pub duration_ns: u64,
}

/// What a block had of a quantity in all: counted apart from its costs, which add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The quantity.
    pub quantity: QuantityId,
    /// In the kernel, while the block's window was open.
    pub kernel: u64,
    /// In user mode.
    pub user: u64,
}

/// What came of an arm beside its figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmNotes {
    /// Why it has no blocks, or too few, by instrument.
    pub failed: BTreeMap<String, String>,
    /// What its guest had otherwise than the first one, by the environment's keys.
    pub facts: BTreeMap<String, String>,
    /// Its settings that could not act on its packets, each with the reason.
    pub inert: BTreeMap<String, String>,
    /// Where the packets went of a block that does not add up.
    pub diagnosis: Option<String>,
    /// Of a search: why a goal, by its number, has no regular result.
    pub irregular: BTreeMap<u32, String>,
}

impl ArmNotes {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == ArmNotes::default()
    }
}

/// A hop of a block's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockHop {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// The hop.
    pub hop: Hop,
}

/// Packets offered = delivered + dropped by named cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Sent by the workload.
    pub offered: u64,
    /// Received by the workload.
    pub delivered: u64,
    /// Not received, by cause.
    pub dropped: BTreeMap<String, u64>,
}

impl Recording {
    /// The index of a quantity, which it gets if it has none.
    pub fn quantity(&mut self, declared: &Declared) -> QuantityId {
        match self.quantities.iter().position(|q| q.is(declared)) {
            Some(at) => at as QuantityId,
            None => self.new_quantity(declared.into()),
        }
    }

    /// The index of a quantity that somebody else declared.
    pub fn quantity_of(&mut self, quantity: &Quantity) -> QuantityId {
        match self.quantities.iter().position(|q| q == quantity) {
            Some(at) => at as QuantityId,
            None => self.new_quantity(quantity.clone()),
        }
    }

    fn new_quantity(&mut self, quantity: Quantity) -> QuantityId {
        self.quantities.push(quantity);
        self.quantities.len() as QuantityId - 1
    }

    /// Add a figure.
    pub fn add(&mut self, of: Of, quantity: &Declared, item: Item, value: f64) {
        let quantity = self.quantity(quantity);
        self.scalars.push(Scalar {
            of,
            quantity,
            item,
            value,
        });
    }

    /// Add a figure that somebody else reported.
    pub fn add_figure(&mut self, of: Of, figure: Figure) {
        let Figure {
            quantity,
            item,
            value,
        } = figure;
        let quantity = self.quantity_of(&quantity);
        self.scalars.push(Scalar {
            of,
            quantity,
            item,
            value,
        });
    }

    /// Keep a figure that somebody else reported for the run: the last one set.
    pub fn set_figure(&mut self, figure: Figure) {
        let of_run = |s: &Scalar, of: &[Quantity]| {
            s.of == Of::Run
                && s.item == figure.item
                && of.get(s.quantity as usize) == Some(&figure.quantity)
        };
        let known = &self.quantities;
        match self.scalars.iter_mut().find(|s| of_run(s, known)) {
            Some(scalar) => scalar.value = figure.value,
            None => self.add_figure(Of::Run, figure),
        }
    }

    /// All figures of a quantity, in the order in which they were added.
    pub fn scalars_of<'r>(&'r self, quantity: &Declared) -> impl Iterator<Item = &'r Scalar> {
        let at = self.quantities.iter().position(|q| q.is(quantity));
        // Nothing to look through where it was not measured.
        let all = at.map_or(&[][..], |_| &self.scalars[..]);
        let of = move |s: &&Scalar| Some(s.quantity as usize) == at;
        all.iter().filter(of)
    }

    /// Keep one figure of a quantity for the run: the last one set.
    pub fn set(&mut self, quantity: &Declared, item: Item, value: f64) {
        let id = self.quantity(quantity);
        let is = |s: &&mut Scalar| (s.of, s.quantity, &s.item) == (Of::Run, id, &item);
        match self.scalars.iter_mut().find(is) {
            Some(scalar) => scalar.value = value,
            None => self.add(Of::Run, quantity, item, value),
        }
    }

    /// Keep the largest figure of a quantity for the run.
    pub fn set_most(&mut self, quantity: &Declared, value: f64) {
        let before = self.scalars_of(quantity).find(|s| s.of == Of::Run);
        let most = before.map_or(value, |s| s.value.max(value));
        self.set(quantity, Item::ONLY, most);
    }

    /// What came of an arm, to be added to.
    pub fn notes_of(&mut self, arm: usize) -> &mut ArmNotes {
        self.notes.entry(arm as u32).or_default()
    }

    /// Why an arm has no blocks of an instrument, or too few, if it is so.
    pub fn failed(&self, arm: usize, instrument: &str) -> Option<&str> {
        let failed = &self.notes.get(&(arm as u32))?.failed;
        failed.get(instrument).map(String::as_str)
    }

    /// The instruments that measured, and those that should have: first the one that was named
    /// first, then by name.
    pub fn instruments(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        let failed = self.notes.values().flat_map(|notes| notes.failed.keys());
        let measured = self.blocks.iter().map(|block| &block.instrument);
        for name in measured.chain(failed) {
            if !name.is_empty() && !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        let first = self.environment.get(env::CLOCK);
        all.sort_unstable_by_key(|name| (Some(*name) != first.map(String::as_str), *name));
        all
    }

    /// What one instrument measured, as a recording: its blocks and those that none
    /// measured, with all that is theirs. The recording itself if there is no other.
    pub fn part(&self, instrument: &str) -> Cow<'_, Recording> {
        let is_of = |block: &Block| block.instrument.is_empty() || block.instrument == instrument;
        if matches!(self.instruments()[..], [] | [_]) {
            return Cow::Borrowed(self);
        }
        let mut part = self.without_blocks();
        part.environment
            .insert(env::CLOCK.into(), instrument.into());
        let mut numbers = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            numbers.push(is_of(block).then_some(part.blocks.len() as u32));
            if is_of(block) {
                part.blocks.push(block.clone());
            }
        }
        let number = |block: u32| numbers.get(block as usize).copied().flatten();
        macro_rules! take {
            ($list:ident) => {
                for one in &self.$list {
                    if let Some(block) = number(one.block) {
                        part.$list.push(one.clone());
                        if let Some(last) = part.$list.last_mut() {
                            last.block = block;
                        }
                    }
                }
            };
        }
        take!(costs);
        take!(timed);
        take!(stages);
        take!(hops);
        take!(line_costs);
        for notes in part.notes.values_mut() {
            notes.failed.retain(|by, _| by == instrument);
        }
        if part.timed.is_empty() {
            part.attachments.clear();
            part.calibration.clear();
        }
        // What its costs are in; times are in nanoseconds.
        let totals = part.blocks.iter().find_map(|block| block.totals.first());
        let quantity = totals.and_then(|t| self.quantities.get(t.quantity as usize));
        let unit = match quantity.map(|quantity| quantity.unit.as_str()) {
            None | Some("ns") => "nanoseconds",
            Some(unit) => unit,
        };
        part.environment.insert(env::UNIT.into(), unit.into());
        for scalar in &self.scalars {
            let of = match scalar.of {
                Of::Block(block) => number(block).map(Of::Block),
                of => Some(of),
            };
            part.scalars.extend(of.map(|of| Scalar {
                of,
                ..scalar.clone()
            }));
        }
        Cow::Owned(part)
    }

    /// The same without its blocks and what is theirs.
    fn without_blocks(&self) -> Recording {
        Recording {
            environment: self.environment.clone(),
            experiment_toml: self.experiment_toml.clone(),
            quantities: self.quantities.clone(),
            arms: self.arms.clone(),
            notes: self.notes.clone(),
            functions: self.functions.clone(),
            source_files: self.source_files.clone(),
            nodes: self.nodes.clone(),
            attachments: self.attachments.clone(),
            calibration: self.calibration.clone(),
            steps: self.steps.clone(),
            losses: self.losses.clone(),
            unwatched: self.unwatched.clone(),
            untried: self.untried.clone(),
            complete: self.complete,
            ..Recording::default()
        }
    }

    /// The path and number of a line.
    pub fn source(&self, source: SourceLine) -> Option<(&str, u32)> {
        let file = self.source_files.get(source.file as usize)?;
        Some((file, source.line))
    }

    /// Where a function is defined, if that is known.
    pub fn source_of(&self, function: FunctionId) -> Option<(&str, u32)> {
        self.source(self.functions.get(function as usize)?.source?)
    }
}

impl Block {
    /// What it had in all of what its costs are of; of the first quantity, if they are of
    /// several, and nothing where there are no costs.
    pub fn total(&self) -> Total {
        self.totals.first().copied().unwrap_or_default()
    }

    /// The same in the kernel.
    pub fn kernel(&self) -> u64 {
        self.total().kernel
    }

    /// The same in user mode.
    pub fn user(&self) -> u64 {
        self.total().user
    }
}

impl Ledger {
    /// Whether every packet is accounted for.
    pub fn closes(&self) -> bool {
        self.offered == self.delivered + self.dropped.values().sum::<u64>()
    }
}

/// A line of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceLine {
    /// Index into [`Recording::source_files`].
    pub file: SourceFileId,
    /// The line, from 1.
    pub line: u32,
}

/// A function of the kernel, of one of its modules, or of a command's own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// The module, or the ELF file of user code, that it is in; none for the kernel
    /// itself.
    pub module: Option<String>,
    /// Its layer, if any rule names it.
    pub layer: Option<String>,
    /// Where it was.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is defined, if its file's debug information says so.
    pub source: Option<SourceLine>,
}

/// A function in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The caller's node; none where the context began.
    pub parent: Option<NodeId>,
    /// The function.
    pub function: FunctionId,
    /// Whether it was jumped to, not called.
    pub tail: bool,
}

/// What one node cost in one block, direction and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// Of what.
    pub quantity: QuantityId,
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The node.
    pub node: NodeId,
    /// Times entered; of samples, how many there are.
    pub calls: u64,
    /// What the function itself cost, in the quantity's unit.
    pub own: u64,
}

/// What one node took in one block, direction and context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The node.
    pub node: NodeId,
    /// Inclusive times of its calls, as read; what interrupted them is cut out.
    pub times: Times,
    /// Their sum, less the probes' own cost: the reading's bias for each call, and
    /// a pair's cost for each timed call below it.
    pub corrected_ns: f64,
    /// Half the width of the 95 % interval of that, from the calibration's.
    pub uncertainty_ns: f64,
}

/// What one stage took in one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// `tx`, `rx` or `forward`.
    pub direction: Direction,
    /// Its place on the way, from 0.
    pub order: u16,
    /// What it is called.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Of the packets that went through it.
    pub times: Times,
    /// Of all packets on this way, those that did not meet it.
    pub passed_over: u64,
}

/// By what a function was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The function.
    pub function: FunctionId,
    /// By what.
    pub mechanism: Mechanism,
    /// Its arguments.
    pub arguments: u8,
}

/// What one line cost in one block: its own instructions in one function.
///
/// What was inlined keeps its own line, which may be of another file than the
/// function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCost {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// The function whose code it is.
    pub function: FunctionId,
    /// The line.
    pub source: SourceLine,
    /// Instructions executed.
    pub insns: u64,
}

/// Something that was lost, missed or could not be attributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What happened, in a few words.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// What it means for the figures.
    pub meaning: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{DELIVERED, FOLLOWED};

    /// Check that a part has the blocks of one instrument and those of none, with all that is
    /// theirs under their new numbers, and that a recording of one instrument is its own part.
    #[test]
    fn parts() {
        let mut recording = Recording::default();
        recording
            .environment
            .insert(env::CLOCK.into(), "stages".into());
        for (index, instrument) in (0..).zip(["samples", "stages", "", "samples", "stages"]) {
            recording.blocks.push(Block {
                arm: 0,
                instrument: instrument.into(),
                index,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 1,
            });
            let value = f64::from(index);
            recording.add(Of::Block(index), &DELIVERED, Item::ONLY, value);
        }
        recording.add(Of::Run, &FOLLOWED, Item::ONLY, 7.0);
        let failed = &mut recording.notes_of(0).failed;
        failed.insert("functions".into(), "not here".into());
        assert_eq!(recording.instruments(), ["stages", "functions", "samples"]);
        let part = recording.part("samples");
        let indices: Vec<u32> = part.blocks.iter().map(|b| b.index).collect();
        assert_eq!(indices, [0, 2, 3]);
        assert_eq!(part.environment[env::CLOCK], "samples");
        let scalars: Vec<(Of, f64)> = part.scalars.iter().map(|s| (s.of, s.value)).collect();
        let of_blocks = (0..).zip([0.0, 2.0, 3.0]).map(|(n, v)| (Of::Block(n), v));
        let wanted: Vec<(Of, f64)> = of_blocks.chain([(Of::Run, 7.0)]).collect();
        assert_eq!(scalars, wanted);
        assert!(matches!(part.part("samples"), Cow::Borrowed(_)));
    }
}
