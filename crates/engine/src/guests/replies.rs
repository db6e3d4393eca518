//! Reports of instruments in a guest, added to a recording.

use netplumb_kernel::layers::LayerRules;
use netplumb_model::class::Family;
use netplumb_model::message::{Reply, TimedBlock};
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{Arm, Recording};
use netplumb_model::timing::TimingSpec;

use crate::gather::Gatherer;
use crate::index::Index;
use crate::kinds::{WindowOf, add_kinds};

/// Add a guest's report of a block to the corresponding blocks of the recording.
pub(super) fn add_block(
    recording: &mut Recording,
    index: &mut Index,
    gatherer: Option<&mut Gatherer>,
    blocks: &[u32],
    timed_block: &TimedBlock,
) {
    if let (Some(gatherer), Some(window)) = (gatherer, &timed_block.window) {
        gatherer.add(recording, index, blocks, window);
    }
    if let Some(&block) = blocks.first() {
        for figure in &timed_block.figures {
            recording.add_figure(Subject::Block(block), figure.clone());
        }
    }
}

/// Adds the windows of a command's runs in a guest as blocks.
#[derive(Debug)]
pub(crate) struct CommandWindows<'a> {
    /// The template of arms for its packets.
    like: &'a Arm,
    /// The arm itself, if the recording has it.
    arm: Option<u32>,
    /// The requested address family.
    family: Option<Family>,
    instrument: String,
    index: Index,
    gatherer: Option<Gatherer>,
}

impl<'a> CommandWindows<'a> {
    pub(crate) fn new(
        like: &'a Arm,
        arm: Option<u32>,
        spec: &TimingSpec,
        recording: &Recording,
    ) -> CommandWindows<'a> {
        CommandWindows {
            like,
            arm,
            family: spec.filter.family,
            instrument: spec.instrument.clone(),
            index: Index::from_recording(recording),
            gatherer: None,
        }
    }

    /// Process a reply, if it is from the instrument.
    pub(crate) fn take(&mut self, recording: &mut Recording, layers: &LayerRules, reply: &Reply) {
        match reply {
            Reply::Attached(attached) => {
                let (by, index) = (&self.instrument, &mut self.index);
                let gatherer = Gatherer::new(by, recording, index, layers, attached);
                self.gatherer = Some(gatherer);
            }
            Reply::TimedBlock(timed_block) => {
                let Some(window) = &timed_block.window else {
                    return;
                };
                let (number, ns) = (timed_block.index, timed_block.duration_ns);
                let of = WindowOf {
                    like: self.like,
                    instrument: &self.instrument,
                    family: self.family,
                    arm: self.arm,
                };
                let blocks = add_kinds(recording, &of, window, number, ns);
                let gatherer = self.gatherer.as_mut();
                add_block(recording, &mut self.index, gatherer, &blocks, timed_block);
            }
            _ => {}
        }
    }
}
