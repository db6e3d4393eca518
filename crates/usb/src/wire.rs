//! What is behind a device's Ethernet side: another device, or a load of frames; and the
//! count of what became of each frame.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that wait for a driver before the sender has to: what a LAN9512 holds.
const FIFO_BYTES: usize = 20 << 10;

/// A frame on the wire, without its check sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// From the destination's address on.
    pub bytes: Vec<u8>,
    /// What is wrong with it.
    pub fault: Fault,
}

impl Frame {
    /// A frame that is as it should be.
    #[must_use]
    pub fn good(bytes: Vec<u8>) -> Frame {
        Frame { bytes, fault: Fault::None }
    }
}

/// What the device does to a frame, so that the driver has to drop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the driver takes it.
    None,
    /// A length beyond the transfer, or beyond what the driver asked for: `rx_fixup` refuses
    /// the whole transfer, which is why such a frame has one of its own.
    BadSize,
    /// The error bits of the status word: a wrong check sequence.
    ErrorBit,
}

/// Why a device doesn't take a frame from the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The cable is out, or the PHY is powered down.
    LinkDown,
    /// The driver has not turned the receiver on, or took its requests for frames back.
    NotReceiving,
    /// It is for another address.
    Filtered,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The driver transmitted it.
    Sent,
    /// The driver received it, and nothing is wrong with it.
    Good,
    /// The driver received it, with [`Fault::BadSize`].
    BadSize,
    /// The driver received it, with [`Fault::ErrorBit`].
    ErrorBit,
    /// Dropped: no link, at the sender or at the receiver.
    LinkDown,
    /// Dropped: [`Refusal::NotReceiving`].
    NotReceiving,
    /// Dropped: [`Refusal::Filtered`].
    Filtered,
    /// Dropped: longer than the driver's buffer.
    TooLong,
    /// Transfers, not frames, that the driver transmitted and the device can't read.
    Malformed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Sent,
        Kind::Good,
        Kind::BadSize,
        Kind::ErrorBit,
        Kind::LinkDown,
        Kind::NotReceiving,
        Kind::Filtered,
        Kind::TooLong,
        Kind::Malformed,
    ];

    /// The kind that a frame is once the driver has it.
    #[must_use]
    pub fn received(fault: Fault) -> Kind {
        match fault {
            Fault::None => Kind::Good,
            Fault::BadSize => Kind::BadSize,
            Fault::ErrorBit => Kind::ErrorBit,
        }
    }
}

impl From<Refusal> for Kind {
    fn from(why: Refusal) -> Kind {
        match why {
            Refusal::LinkDown => Kind::LinkDown,
            Refusal::NotReceiving => Kind::NotReceiving,
            Refusal::Filtered => Kind::Filtered,
        }
    }
}

/// How many frames, of how many bytes, without check sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What became of the frames at one port. It is counted by the thread of the bus, and read
/// by any.
#[derive(Debug, Default)]
pub struct Counters {
    frames: [AtomicU64; Kind::ALL.len()],
    bytes: [AtomicU64; Kind::ALL.len()],
    transfers_in: AtomicU64,
    transfers_out: AtomicU64,
}

impl Counters {
    /// Of one kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Tally {
        Tally {
            frames: self.frames[kind as usize].load(Ordering::Acquire),
            bytes: self.bytes[kind as usize].load(Ordering::Acquire),
        }
    }

    /// Bulk transfers to the driver, with frames or without.
    #[must_use]
    pub fn transfers_in(&self) -> u64 {
        self.transfers_in.load(Ordering::Acquire)
    }

    /// Bulk transfers from the driver.
    #[must_use]
    pub fn transfers_out(&self) -> u64 {
        self.transfers_out.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, kind: Kind, bytes: usize) {
        // Frames last: who has seen the frame finds its bytes.
        self.bytes[kind as usize].fetch_add(bytes as u64, Ordering::AcqRel);
        self.frames[kind as usize].fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn add_transfer_in(&self) {
        self.transfers_in.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn add_transfer_out(&self) {
        self.transfers_out.fetch_add(1, Ordering::AcqRel);
    }
}

/// Frames that a device has received and its driver has not.
#[derive(Debug, Default)]
pub struct Fifo {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Those that a transfer took, for the count.
    taken: Vec<(Kind, usize)>,
}

impl Fifo {
    /// Add a frame.
    pub fn push(&mut self, frame: Frame) {
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
    }

    /// The next one.
    #[must_use]
    pub fn first(&self) -> Option<&Frame> {
        self.frames.front()
    }

    /// Take the next one, which the driver receives.
    pub fn take(&mut self) -> Option<Frame> {
        let frame = self.pop()?;
        let kind = Kind::received(frame.fault);
        self.taken.push((kind, frame.bytes.len()));
        Some(frame)
    }

    /// Drop the next one: the driver's buffer is shorter.
    pub fn skip(&mut self) {
        if let Some(frame) = self.pop() {
            self.taken.push((Kind::TooLong, frame.bytes.len()));
        }
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether the sender has to wait: on a wire, that is what pause frames are for.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= FIFO_BYTES
    }

    /// Count those that transfers took.
    pub(crate) fn count(&mut self, counters: &Counters) {
        for (kind, bytes) in self.taken.drain(..) {
            counters.add(kind, bytes);
        }
    }

    /// Drop all.
    pub(crate) fn flush(&mut self, why: Kind, counters: &Counters) {
        while let Some(frame) = self.pop() {
            counters.add(why, frame.bytes.len());
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.bytes.len();
        Some(frame)
    }
}

/// Why a load is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not one that an Ethernet has.
    #[error("invalid frame of {0} bytes; expected 14 to 1518, without the check sequence")]
    Frame(usize),
    /// At least one.
    #[error("invalid number of frames per transfer `0`; expected at least 1")]
    PerTransfer,
    /// NTBs have no status word.
    #[error("unavailable: this device can't report {0:?} to its driver; use smsc95xx")]
    Fault(Fault),
    /// The bus has stopped.
    #[error("the emulated USB bus has stopped")]
    Stopped,
}

/// The same frame, many times, as fast as the driver asks.
#[derive(Debug, Clone)]
pub struct Load {
    frame: Frame,
    left: u64,
    per_transfer: usize,
}

impl Load {
    /// `frames` frames of these bytes (without a check sequence), one in each transfer.
    ///
    /// # Errors
    ///
    /// If no Ethernet has such frames.
    pub fn new(bytes: &[u8], fault: Fault, frames: u64) -> Result<Load, LoadError> {
        if !(crate::frame::HEADER..=crate::MAX_FRAME).contains(&bytes.len()) {
            return Err(LoadError::Frame(bytes.len()));
        }
        let bytes = crate::frame::padded(bytes);
        Ok(Load { frame: Frame { bytes, fault }, left: frames, per_transfer: 1 })
    }

    /// Several frames in each transfer, if device and driver take that. Frames of bad size
    /// still come one by one.
    ///
    /// # Errors
    ///
    /// If `frames` is 0.
    pub fn per_transfer(mut self, frames: usize) -> Result<Load, LoadError> {
        if frames == 0 {
            return Err(LoadError::PerTransfer);
        }
        self.per_transfer = frames;
        Ok(self)
    }

    /// The frame that all are.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Whether all are given out.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Frames of the next transfer.
    pub(crate) fn next_transfer(&mut self) -> impl Iterator<Item = Frame> + use<> {
        let now = (self.per_transfer as u64).min(self.left);
        self.left -= now;
        let frame = self.frame.clone();
        (0..now).map(move |_| frame.clone())
    }
}
