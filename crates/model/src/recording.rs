//! What a recording holds: all that a report or a comparison needs, and nothing
//! that only the machine it was made on could tell.
//!
//! Costs hang on a calling-context tree, because everything else follows from
//! it: a function's self cost is the sum over its nodes, its inclusive cost the
//! sum over the subtrees of its outermost nodes, an edge the nodes of a function
//! under those of another. Ids are dense and start at 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::Hop;
use crate::class::{Family, Link, Proto};
use crate::loss::Loss;
use crate::quantity::{Declared, Figure, Item, Of, Quantity, QuantityId, Scalar};
use crate::span::{Call, Span, Stage};
use crate::timing::{Calibration, Mechanism, Step};

mod part;

pub use crate::tree::{
    Cost, Function, FunctionId, LineCost, Node, NodeId, SourceFileId, SourceLine,
};

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
    /// Times from one event to the next: of functions, each in its calling context, and of the
    /// stages of a packet's path.
    pub spans: Vec<Span>,
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
    /// Everything that was lost, missed or could not be attributed, by instrument (empty in old
    /// recordings, which don't say).
    pub losses: BTreeMap<String, Vec<Loss>>,
    /// Functions and tracepoints that an instrument could not watch, by instrument, each with
    /// the reason.
    pub unwatched: BTreeMap<String, BTreeMap<String, String>>,
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
    /// What it is made from, if it is not one of the experiment's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
}

/// How an arm was made from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The name of the arm that it is compared with.
    pub from: String,
    /// By what.
    pub by: MadeBy,
}

/// What makes an arm from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadeBy {
    /// Another random seed.
    Seed,
    /// A scan, which changes one setting.
    Scan {
        /// The setting, with its values before and after.
        setting: String,
        /// Whether the setting is written with the value that it has: what is seen then is the
        /// writing.
        control: bool,
    },
}

impl Arm {
    /// The arm that this one repeats under another seed.
    pub fn repeats(&self) -> Option<&str> {
        let made = self.made.as_ref()?;
        matches!(made.by, MadeBy::Seed).then_some(made.from.as_str())
    }

    /// Of an arm of a scan: the arm that it is compared with, the setting, and whether only
    /// the writing is seen.
    pub fn scanned(&self) -> Option<(&str, &str, bool)> {
        let made = self.made.as_ref()?;
        match &made.by {
            MadeBy::Seed => None,
            MadeBy::Scan { setting, control } => Some((&made.from, setting, *control)),
        }
    }
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

    /// The times of functions.
    pub fn calls(&self) -> impl Iterator<Item = (&Span, &Call)> {
        let call = |span| Some((span, Span::call(span)?));
        self.spans.iter().filter_map(call)
    }

    /// The times of stages.
    pub fn stages(&self) -> impl Iterator<Item = (&Span, &Stage)> {
        let stage = |span| Some((span, Span::stage(span)?));
        self.spans.iter().filter_map(stage)
    }

    /// Everything that was lost, whichever instrument lost it.
    pub fn all_losses(&self) -> impl Iterator<Item = &Loss> {
        self.losses.values().flatten()
    }

    /// Add to the losses of an instrument by their cause. Nothing lost is no loss.
    pub fn add_loss(&mut self, instrument: &str, loss: Loss) {
        if loss.count == 0 {
            return;
        }
        let losses = self.losses.entry(instrument.into()).or_default();
        match losses.iter_mut().find(|known| known.cause == loss.cause) {
            Some(known) => known.count = known.count.saturating_add(loss.count),
            None => losses.push(loss),
        }
    }

    /// All that could not be watched with its reason, whichever instrument tried.
    pub fn all_unwatched(&self) -> BTreeMap<&str, &str> {
        let each = self.unwatched.values().flatten();
        each.map(|(name, why)| (name.as_str(), why.as_str()))
            .collect()
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
