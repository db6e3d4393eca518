//! Figures of a block of two hosts.

use std::collections::BTreeMap;

use netplumb_lab::vm::frames::Occupied;
use netplumb_model::hosts::{self, HostBlock};
use netplumb_model::quantity::{Declared, Figure, FigureKey, Subject};
use netplumb_model::recording::{Block, Ledger, Recording};

use super::End;

/// Add a block. `occupied` is when frames of the sender were on the wire.
pub(super) fn add(
    recording: &mut Recording,
    arm: usize,
    index: u32,
    ends: &[End; 2],
    sides: &[HostBlock; 2],
    occupied: &Occupied,
) {
    let [tx, rx] = sides;
    // The sender's first byte. The receiver's window is open by then, while nothing happens.
    let begin = tx.begin.clock_ns;
    // Files of a web server go to the receiver, which asks for them.
    let turns_ns = [tx, rx].map(|side| &side.turns_ns);
    let turns_ns = turns_ns.into_iter().find(|turns| !turns.is_empty());
    let is_web = tx.turns_ns.is_empty() && turns_ns.is_some();
    // The last byte of a stream or a file is the receiver's, the last byte of an answer the
    // sender's.
    let over = if tx.turns_ns.is_empty() { rx } else { tx }.end.clock_ns;
    let duration_ns = over.saturating_sub(begin);
    let mut dropped: BTreeMap<String, u64> = rx.failed.iter().cloned().collect();
    let failed: u64 = dropped.values().sum();
    match tx.bytes.saturating_sub(rx.bytes + failed) {
        0 => {}
        missing => drop(dropped.insert("unaccounted".to_string(), missing)),
    }
    recording.blocks.push(Block {
        arm: arm as u32,
        instrument: hosts::INSTRUMENT.into(),
        index,
        ledger: Ledger { offered: tx.bytes, delivered: rx.bytes, dropped },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns,
    });
    let block = Subject::Block(recording.blocks.len() as u32 - 1);
    let seconds = duration_ns as f64 / 1e9;
    let mut figure = |quantity: &Declared, item: FigureKey, value: f64| {
        recording.add_figure(block, Figure::new(quantity, value).with_key(item));
    };
    if turns_ns.is_none() || is_web {
        let bits = rx.bytes as f64 * 8.0;
        figure(&hosts::THROUGHPUT, FigureKey::ONLY, bits / seconds);
    }
    if let Some(turns_ns) = turns_ns {
        let turns = turns_ns.len() as f64;
        figure(&hosts::TURNS, FigureKey::ONLY, turns / seconds);
        for (label, value) in spread(turns_ns) {
            figure(&hosts::TURN, FigureKey::label(label), value);
        }
    }
    if let Some(read) = tx.disk_bytes {
        let share = read as f64 / rx.bytes.max(1) as f64;
        figure(&hosts::FROM_DISK, FigureKey::ONLY, share);
    }
    let passed = duration_ns as f64;
    // Frames that wait for the wire when the last byte arrives are of no time of the block.
    let wire_use = occupied.between_ns(begin, over) / passed;
    figure(&hosts::WIRE_USE, FigureKey::ONLY, wire_use);
    let retransmitted = tx.retransmitted as f64;
    figure(&hosts::RETRANSMITTED, FigureKey::ONLY, retransmitted);
    for (end, side) in ends.iter().zip(sides) {
        let HostBlock { begin, end: over, .. } = side;
        let instructions = over.instructions - begin.instructions;
        let busy_ns = instructions << end.icount_shift();
        let lost = (over.lost + over.too_long) - (begin.lost + begin.too_long);
        let arrived = (over.arrived - begin.arrived) as f64;
        let by = |what: f64, count: u64| (count > 0).then(|| what / count as f64);
        for (quantity, value) in [
            (&hosts::INSTRUCTIONS_PER_BYTE, by(instructions as f64, rx.bytes)),
            (&hosts::FRAMES_PER_INTERRUPT, by(arrived, side.interrupts)),
            (&hosts::FRAMES_PER_POLL, by(arrived, side.polls)),
            (&hosts::SEGMENTS, side.segments.map(|n| n as f64)),
            (&hosts::MISSED, side.missed.map(|n| n as f64)),
            (&hosts::KERNEL_IDLE, kernel_idle(side, end.icount_shift())),
            (&hosts::BUFFER, side.buffer_bytes.map(|n| n as f64)),
        ] {
            if let Some(value) = value {
                figure(quantity, FigureKey::label(end.side.called()), value);
            }
        }
        // A host's window includes a little time before the first byte and after the last one, which matters in a short
        // block of a slow CPU.
        let busy = (busy_ns as f64 / passed).min(1.0);
        for (quantity, value) in [
            (&hosts::BUSY, busy),
            (&hosts::INSTRUCTIONS, instructions as f64),
            (&hosts::INTERRUPTS, side.interrupts as f64),
            (&hosts::POLLS, side.polls as f64),
            (&hosts::FRAMES, (over.frames - begin.frames) as f64),
            (&hosts::WIRE_BYTES, (over.bytes - begin.bytes) as f64),
            (&hosts::LOST, lost as f64),
            (&hosts::HELD, (over.held - begin.held) as f64),
            (&hosts::LONGEST_WAIT, over.longest_wait_ns as f64),
        ] {
            figure(quantity, FigureKey::label(end.side.called()), value);
        }
    }
}

/// The share of a host's window in which the kernel reports that it was idle.
fn kernel_idle(side: &HostBlock, icount_shift: u8) -> Option<f64> {
    let passed = side.end.clock_ns.checked_sub(side.begin.clock_ns)?;
    let idle = side.kernel_idle.as_ref()?;
    let idle_ns = idle.between_ns(&side.begin, &side.end, icount_shift);
    (passed > 0).then(|| idle_ns as f64 / passed as f64)
}

/// Mean, and some of the sorted times.
pub(crate) fn spread(times_ns: &[u64]) -> Vec<(&'static str, f64)> {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let Some(last) = sorted.len().checked_sub(1) else {
        return Vec::new();
    };
    let at = |share: f64| sorted[(last as f64 * share).round() as usize] as f64;
    let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
    let values = [mean, at(0.0), at(0.5), at(0.99), at(1.0)];
    hosts::TURN_LABELS.into_iter().zip(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a spread has the mean, and times that were measured.
    #[test]
    fn spreads() {
        assert_eq!(spread(&[]), []);
        let spread = spread(&[30, 10, 20]);
        assert_eq!(spread[0], ("mean", 20.0));
        assert_eq!(spread[1], ("least", 10.0));
        assert_eq!(spread[2], ("median", 20.0));
        assert_eq!(spread[4], ("most", 30.0));
    }
}
