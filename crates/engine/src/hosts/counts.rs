//! The instructions of both hosts, by function: one block for both, in which the sender's work is in the class that
//! sends, and the receiver's in the one that receives.

use std::collections::BTreeMap;

use netplumb_instruments::exact::Window;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::class::Direction;
use netplumb_model::code::Instruction;
use netplumb_model::hosts::{COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS, HostBlock, PAYLOAD, Side};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Block, Ledger, Recording, Total};
use netplumb_model::timing::{INSTRUCTIONS, QEMU_PEAK};

use super::pair;
use crate::collect::{Executed, SourceLines, Translation};
use crate::index::{Index, add_costs};
use crate::origin::Origin;
use crate::run::add_losses;
use crate::schedule::Turn;

/// Instructions of both hosts of an arm, the sender first.
pub(super) struct HostsExecuted<'a> {
    pub(super) origins: [&'a Origin; 2],
    pub(super) executed: &'a [pair::Executed; 2],
    /// The wire's records of the same blocks.
    pub(super) blocks: &'a [[HostBlock; 2]],
    pub(super) layers: &'a LayerRules,
}

impl HostsExecuted<'_> {
    /// Add them to the recording.
    pub(super) fn add(&self, recording: &mut Recording, turn: &Turn, index: &mut Index) {
        let first_code = recording.code.len();
        let mut sides = Vec::new();
        for ((side, executed), origin) in Side::ALL.iter().zip(self.executed).zip(self.origins) {
            let Some(symbols) = origin.table() else {
                continue;
            };
            let output = &executed.output;
            let of = Executed { symbols, user: &[], nodes: &output.nodes };
            let windows = &output.windows;
            let translation = Translation::add(recording, index, &of, self.layers, windows);
            let none = SourceLines::default();
            let arm = turn.arm as u32;
            translation.add_code(recording, arm, &of, &output.instructions, &none);
            add_losses(recording, INSTRUCTIONS.instrument, &output.losses);
            recording.set_most(&QEMU_PEAK, executed.qemu_peak_bytes as f64);
            sides.push((*side, translation, windows));
        }
        merge_code(recording, first_code);
        for (place, (number, hosts)) in turn.blocks.clone().zip(self.blocks).enumerate() {
            let windows: Vec<_> = (sides.iter())
                .filter_map(|(side, translation, windows)| {
                    Some((*side, translation, windows.get(place)?))
                })
                .collect();
            add_block(recording, (turn.arm as u32, number), &windows, hosts);
        }
    }
}

/// The class of a host's work; work for no packet has none.
fn direction_at(side: Side, direction: Direction) -> Direction {
    match (side, direction) {
        (_, Direction::Other) => Direction::Other,
        (Side::Tx, _) => Direction::Tx,
        (Side::Rx, _) => Direction::Rx,
    }
}

fn add_block(
    recording: &mut Recording,
    (arm, index): (u32, u32),
    windows: &[(Side, &Translation, &Window)],
    [tx, rx]: &[HostBlock; 2],
) {
    let block = recording.blocks.len() as u32;
    let quantity = recording.quantity(&INSTRUCTIONS);
    let sum = |of: fn(&Window) -> u64| windows.iter().map(|(.., window)| of(window)).sum::<u64>();
    recording.blocks.push(Block {
        arm,
        instrument: INSTRUCTIONS.instrument.into(),
        index,
        ledger: frames(tx, rx),
        totals: vec![Total {
            quantity,
            kernel: sum(|window| window.kernel_insns),
            user: sum(|window| window.user_insns),
        }],
        entered: sum(|window| window.entered),
        returned: sum(|window| window.returned),
        duration_ns: 0,
    });
    let costs = windows.iter().flat_map(|(side, translation, window)| {
        translation.costs((block, quantity), window, |direction| direction_at(*side, direction))
    });
    add_costs(recording, costs);
    recording.add(Subject::Block(block), &PAYLOAD, FigureKey::ONLY, rx.bytes as f64);
    for (side, _, window) in windows {
        for (of, insns) in
            [(&COUNTED_IN_KERNEL, window.kernel_insns), (&COUNTED_IN_PROGRAMS, window.user_insns)]
        {
            let item = FigureKey::label(side.called());
            recording.add(Subject::Block(block), of, item, insns as f64);
        }
    }
}

/// The ledger of the frames that the sender put on the wire.
fn frames(tx: &HostBlock, rx: &HostBlock) -> Ledger {
    let since = |of: fn(&netplumb_model::hosts::Latch) -> u64| of(&tx.end) - of(&tx.begin);
    let offered = since(|latch| latch.frames);
    let mut dropped = BTreeMap::new();
    for (cause, frames) in [
        ("lost by the wire", since(|latch| latch.lost)),
        ("longer than the wire's MTU", since(|latch| latch.too_long)),
        ("dropped by the receiver's NIC, which had no room", rx.missed.unwrap_or(0)),
    ] {
        if frames > 0 {
            dropped.insert(cause.to_string(), frames);
        }
    }
    Ledger { offered, delivered: offered.saturating_sub(dropped.values().sum()), dropped }
}

/// Add up instructions of one function that both hosts list.
fn merge_code(recording: &mut Recording, first: usize) {
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for code in recording.code.split_off(first) {
        let place = *(known.entry((code.function, code.address))).or_insert(recording.code.len());
        let Some(before) = recording.code.get_mut(place) else {
            recording.code.push(code);
            continue;
        };
        let mut insns: BTreeMap<u32, Instruction> = BTreeMap::new();
        for insn in before.insns.drain(..).chain(code.insns) {
            (insns.entry(insn.offset)).and_modify(|sum| sum.times += insn.times).or_insert(insn);
        }
        before.insns = insns.into_values().collect();
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::code::FunctionCode;
    use netplumb_model::hosts::Latch;

    use super::*;

    /// Check that all of a host's work has its class, except work for no packet.
    #[test]
    fn directions() {
        for direction in [Direction::Tx, Direction::Rx, Direction::Ack] {
            assert_eq!(direction_at(Side::Tx, direction), Direction::Tx);
            assert_eq!(direction_at(Side::Rx, direction), Direction::Rx);
        }
        assert_eq!(direction_at(Side::Tx, Direction::Other), Direction::Other);
    }

    /// Check that frames which the wire lost are accounted for.
    #[test]
    fn lost_frames() {
        let tx = HostBlock {
            begin: Latch { frames: 10, lost: 1, ..Latch::default() },
            end: Latch { frames: 110, lost: 4, ..Latch::default() },
            ..HostBlock::default()
        };
        let rx = HostBlock { missed: Some(7), ..HostBlock::default() };
        let ledger = frames(&tx, &rx);
        assert_eq!((ledger.offered, ledger.delivered), (100, 90));
        assert!(ledger.closes());
    }

    /// Check that instructions of one function are added up, but not another list's.
    #[test]
    fn code_of_both() {
        let code = |arm, address, insns: &[(u32, u64)]| FunctionCode {
            arm,
            function: 7,
            address,
            insns: (insns.iter())
                .filter_map(|(offset, times)| Instruction::new(*offset, &[0x90], *times))
                .collect(),
        };
        let mut recording = Recording {
            code: vec![
                code(0, 100, &[(0, 5)]),
                code(1, 100, &[(0, 1), (1, 1)]),
                code(1, 200, &[(0, 1)]),
                code(1, 100, &[(1, 2), (2, 2)]),
            ],
            ..Recording::default()
        };
        merge_code(&mut recording, 1);
        let wanted = [
            code(0, 100, &[(0, 5)]),
            code(1, 100, &[(0, 1), (1, 3), (2, 2)]),
            code(1, 200, &[(0, 1)]),
        ];
        assert_eq!(recording.code, wanted);
    }
}
