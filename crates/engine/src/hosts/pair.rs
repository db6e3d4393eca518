//! Both guests of an arm, from their saved states to their ends.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};

use netplumb_lab::vm::frames::{self, Occupied};
use netplumb_lab::vm::process::{Guest, VmError};
use netplumb_lab::vm::saved::Key;
use netplumb_lab::vm::{link, pair};
use netplumb_model::class::Direction;
use netplumb_model::hosts::{HostBlock, Latch, Side, Wire};
use netplumb_model::message::{Reply, Request};
use netplumb_model::recording::Arm;

use super::End;
use crate::error::EngineError;
use crate::measure;
use crate::origin::Origin;
use crate::run::Options;
use crate::traces::{StreamExtras, Traced};
use crate::wires::{self, Other};

/// The results of an arm.
pub(super) struct PairResult {
    /// The blocks, of the sender and the receiver.
    pub(super) blocks: Vec<[HostBlock; 2]>,
    /// When frames of the sender were on the wire.
    pub(super) occupied: Occupied,
    /// The guests' notes on knobs.
    pub(super) notes: Vec<(String, String)>,
    /// The hash of the times of all frames.
    pub(super) frames_hash: String,
    /// Instructions of the sender and the receiver, if they were counted.
    pub(super) counted: Option<[Executed; 2]>,
}

/// Instructions of one host.
pub(super) struct Executed {
    /// The windows of its blocks, and what they refer to.
    pub(super) output: measure::PluginOutput,
    pub(super) qemu_peak_bytes: u64,
}

/// A guest's replies over the run.
#[derive(Default)]
struct GuestReplies {
    blocks: Vec<HostBlock>,
    last: Latch,
    notes: Vec<(String, String)>,
    qemu_peak_bytes: u64,
}

/// Run both guests of an arm, on a CPU if one is named, and count their instructions if `counts`.
///
/// # Errors
/// The first cause that either ended by, or that a wire is not as it should be.
pub(super) fn run(
    arm: &Arm,
    ends: &[End; 2],
    origins: [&Origin; 2],
    counts: bool,
    cpu: Option<u32>,
    options: &Options,
) -> Result<PairResult, EngineError> {
    let wire = Wire::from_arm(arm);
    let sockets = UnixStream::pair().map_err(EngineError::host("make a socket pair"))?;
    let sockets: [OwnedFd; 2] = [sockets.0.into(), sockets.1.into()];
    let mut guests = Vec::new();
    let mut logs = Vec::new();
    let mut streams = Vec::new();
    for ((end, origin), socket) in ends.iter().zip(origins).zip(sockets) {
        // Each direction has losses of its own.
        let seed = arm.read("seed").unwrap_or(1_u64) << 1 | end.side as u64;
        let ports = [(link::port_of_host(end.side), seed)];
        let other = Other::Host(end.side.as_str(), socket);
        let (of_ends, mut extra) = wires::plug(arm, wire, &ports, other)?;
        extra.cpu = cpu;
        let stream = match counts {
            true => {
                let (stream, more) = measure::tap(&[])?;
                extra = extra.and(more);
                Some(stream)
            }
            false => None,
        };
        let requests = [Request::BeHost(end.plan.clone())];
        guests.push(origin.start(&requests, extra, options)?);
        if let Some(stream) = stream {
            // They are there once a guest has started from a saved state.
            let symbols = origin.table().ok_or_else(|| {
                EngineError::Guest(
                    "unavailable: `exact` with hosts = 2 needs saved states, which this kernel does not \
                     support"
                        .into(),
                )
            })?;
            // A web server has no markers.
            let serving = end.plan.web.as_ref().map(|_| Direction::Tx);
            streams.push((stream, symbols, origin.release(), serving));
        }
        logs.extend(of_ends.into_iter().map(|log| (end.side, log)));
    }
    let guests: [Guest; 2] =
        guests.try_into().map_err(|_| EngineError::OtherPlan("other hosts"))?;
    let seen = AtomicU64::new(0);
    let (seen, limit) = (&seen, options.timeout);
    let (together, logs, counted) = thread::scope(|scope| {
        // The guests end before they are waited for: their ends of pipes are closed then.
        let logs: Vec<_> = (logs.into_iter())
            .map(|(side, log)| {
                scope.spawn(move || {
                    frames::follow(log, side.as_str(), wire, frames::Ends::Apart, seen)
                })
            })
            .collect();
        let streams: Vec<_> = (streams.into_iter())
            .map(|(stream, symbols, release, serving)| {
                scope.spawn(move || {
                    let traced =
                        Traced { beside: StreamExtras::default(), release, command: false };
                    measure::follow(stream, symbols, traced, serving, &|| ())
                })
            })
            .collect();
        let together = pair::together(guests, |_, guest| attend(guest, limit, seen));
        (together, all(logs), all(streams))
    });
    let [tx, rx] = together.map_err(EngineError::of_pair)?;
    check(&tx.last, &rx.last)?;
    check(&rx.last, &tx.last)?;
    let mut hash = Key::default();
    let mut occupied = Occupied::default();
    for (of_end, end) in logs.into_iter().zip(ends) {
        let followed = of_end.map_err(EngineError::Guest)?;
        hash.add(end.side.as_str(), followed.hash.as_bytes());
        if end.side == Side::Tx {
            occupied = followed.occupied;
        }
    }
    let peaks = [tx.qemu_peak_bytes, rx.qemu_peak_bytes];
    let mut executed = Vec::new();
    for (output, qemu_peak_bytes) in counted.into_iter().zip(peaks) {
        executed.push(executed_of(output, qemu_peak_bytes, tx.blocks.len())?);
    }
    Ok(PairResult {
        blocks: (tx.blocks.into_iter().zip(rx.blocks)).map(|(tx, rx)| [tx, rx]).collect(),
        occupied,
        notes: tx.notes.into_iter().chain(rx.notes).collect(),
        frames_hash: hash.finish(),
        counted: executed.try_into().ok(),
    })
}

/// Wait for several threads; returns their results.
fn all<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    let join = |thread: ScopedJoinHandle<'_, T>| {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    threads.into_iter().map(join).collect()
}

/// Let a guest continue, and collect its answers. There is no time limit while frames cross the
/// wire, which ends hosts between which nothing moves.
fn attend(
    guest: &mut Guest,
    limit: std::time::Duration,
    seen: &AtomicU64,
) -> Result<GuestReplies, VmError> {
    let mut replies = GuestReplies::default();
    guest.go_on()?;
    guest.answers_while(limit, &|| seen.load(Ordering::Relaxed), |reply| {
        match reply {
            Reply::HostBlock(block) => replies.blocks.push(*block),
            Reply::HostEnd(last) => replies.last = *last,
            Reply::Facts(notes) => replies.notes.extend(notes),
            _ => {}
        }
        Ok(())
    })?;
    replies.qemu_peak_bytes = guest.peak_memory_bytes().unwrap_or(0);
    Ok(replies)
}

/// Check that there is a window for each block, and drop the warm-up's.
fn executed_of(
    mut output: measure::PluginOutput,
    qemu_peak_bytes: u64,
    blocks: usize,
) -> Result<Executed, EngineError> {
    let got = output.windows.len();
    // The stream after the last block ends where QEMU was killed.
    if let Some(error) = output.error.take_if(|_| got <= blocks) {
        return Err(error.into());
    }
    if got <= blocks {
        let wanted = blocks + 1;
        return Err(EngineError::WindowsMissing { got, wanted });
    }
    output.windows.remove(0);
    Ok(Executed { output, qemu_peak_bytes })
}

/// Check the ledger of the wire, in one direction.
fn check(from: &Latch, to: &Latch) -> Result<(), EngineError> {
    let accounted = to.arrived + to.under_way + from.lost + from.too_long;
    if from.late + to.late > 0 || accounted != from.frames {
        return Err(EngineError::Guest(format!(
            "the wire failed its check: {} frames sent, {accounted} accounted for, {} late",
            from.frames,
            from.late + to.late
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a wire which delivers more than was sent, or less, or late, is not believed, and that
    /// frames may be on their way or lost.
    #[test]
    fn ledgers() {
        let of = |frames, arrived, late| Latch { frames, arrived, late, ..Latch::default() };
        assert!(check(&of(10, 0, 0), &of(0, 10, 0)).is_ok());
        assert!(check(&of(10, 0, 0), &of(0, 9, 0)).is_err());
        let lost = Latch { lost: 1, ..of(10, 0, 0) };
        let under_way = Latch { under_way: 2, ..of(0, 7, 0) };
        assert!(check(&lost, &under_way).is_ok());
        assert!(check(&of(10, 0, 0), &of(0, 11, 0)).is_err());
        assert!(check(&of(10, 0, 1), &of(0, 10, 0)).is_err());
    }
}
