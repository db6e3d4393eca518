//! Frames in bulk transfers: with two command words before each frame of the driver's, and
//! with one status word before each that the driver receives.

use crate::frame::{Fields, HEADER, MAX_FRAME, Malformed, padded, sum};
use crate::wire::{Fault, Fifo, Frame};

const COMMANDS: usize = 8;
/// Of command word A: `TX_CMD_A_...`.
const FIRST: u32 = 0x2000;
const LAST: u32 = 0x1000;
const BUFFER_BYTES: u32 = 0x07ff;
/// Of command word B: `TX_CMD_B_...`.
const CHECKSUM: u32 = 0x4000;
const FRAME_BYTES: u32 = 0x07ff;
/// Where a checksum begins and where it goes, before a frame that is to have one.
const PREAMBLE: usize = 4;

/// Of the status word: `RX_STS_...`.
const ERROR: u32 = 0x8000;
const BROADCAST: u32 = 0x2000;
const MULTICAST: u32 = 0x0400;
const TYPE: u32 = 0x0020;
const CRC_ERROR: u32 = 0x0002;
/// The longest that the status word can hold, which no transfer has.
const BAD_SIZE: u32 = 0x3fff;

const STATUS: usize = 4;
/// The check sequence at the end of a frame, which the driver cuts off unread.
const CHECK: usize = 4;
const CHECKSUM_BYTES: usize = 2;

/// How the driver wants transfers to be: registers HW_CFG, BURST_CAP and COE_CR.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveRules {
    /// Bytes between the status word and the frame.
    pub(super) offset: usize,
    /// Several frames in one transfer.
    pub(super) multiple_frames: bool,
    /// No answer while there is no frame, instead of an empty one.
    pub(super) waits_while_empty: bool,
    /// Bytes of a transfer.
    pub(super) burst_bytes: usize,
    /// The sum of the frame after it.
    pub(super) checksum: bool,
}

/// The frames of a transfer of the driver's. It sends one in each, and the device takes
/// several, each from a multiple of four bytes on, and in several segments.
pub(super) fn transmit(
    transfer: &[u8],
    checksums: bool,
    frames: &mut Vec<Frame>,
) -> Result<(), Malformed> {
    let fields = Fields(transfer);
    let before = frames.len();
    let all = segments(&fields, checksums, frames);
    if all.is_err() {
        frames.truncate(before);
    }
    all
}

fn segments(
    fields: &Fields<'_>,
    checksums: bool,
    frames: &mut Vec<Frame>,
) -> Result<(), Malformed> {
    let mut at = 0;
    let mut frame = Vec::new();
    let mut is_open = false;
    while at < fields.0.len() {
        let a = fields.u32("TX command A", at)?;
        let b = fields.u32("TX command B", at + 4)?;
        if (a & FIRST != 0) == is_open {
            return Err(fields.wrong("TX command A", a as usize, at));
        }
        // The device is to begin that many bytes after the words.
        let from = at + COMMANDS + (a >> 16 & 0x1f) as usize;
        let bytes = (a & BUFFER_BYTES) as usize;
        let end = from + bytes;
        let Some(segment) = fields.0.get(from..end) else {
            return Err(fields.wrong("TX buffer size", bytes, at));
        };
        frame.extend_from_slice(segment);
        is_open = a & LAST == 0;
        let length = (b & FRAME_BYTES) as usize;
        if frame.len() > length || !is_open && frame.len() != length {
            return Err(fields.wrong("TX frame length", length, at + 4));
        }
        if !is_open {
            let bytes = match b & CHECKSUM != 0 {
                true => summed(&frame, checksums),
                false => (frame.len() >= HEADER).then(|| padded(&frame)),
            };
            match bytes {
                Some(bytes) if bytes.len() <= MAX_FRAME => {
                    frames.push(Frame::good(bytes));
                }
                _ => return Err(fields.wrong("TX frame length", length, at + 4)),
            }
            frame.clear();
        }
        at = end.next_multiple_of(4);
    }
    match is_open {
        true => Err(fields.wrong("TX command A", 0, at)),
        false => Ok(()),
    }
}

/// A frame with the checksum that its preamble asks for. The chip doesn't turn a checksum of
/// 0 into 0xffff, which is why the driver leaves UDP's over IPv6 to the kernel.
fn summed(segment: &[u8], checksums: bool) -> Option<Vec<u8>> {
    let (&[s0, s1, o0, o1], sent) = segment.split_first_chunk::<PREAMBLE>()?;
    let bytes = sent.len();
    if bytes < HEADER {
        return None;
    }
    let mut frame = padded(sent);
    if !checksums {
        return Some(frame);
    }
    let from = usize::from(u16::from_le_bytes([s0, s1]));
    let to = usize::from(u16::from_le_bytes([o0, o1]));
    let sum = !sum(frame.get(from..bytes)?);
    let field = frame.get_mut(to..bytes)?.first_chunk_mut::<2>()?;
    *field = sum.to_be_bytes();
    Some(frame)
}

/// The next transfer: as many frames as may be in it and fit. Each begins at a multiple of
/// four bytes.
pub(super) fn receive(
    rules: &ReceiveRules,
    fifo: &mut Fifo,
    room: usize,
    mut frames: usize,
) -> Vec<u8> {
    let mut transfer = Vec::new();
    while frames > 0
        && let Some(frame) = fifo.first()
    {
        let begin = transfer.len().next_multiple_of(4);
        let end = begin + STATUS + rules.offset + size(rules, frame);
        let is_bad = frame.fault == Fault::BadSize;
        if end > room && transfer.is_empty() {
            fifo.skip();
            continue;
        }
        if end > room || is_bad && !transfer.is_empty() {
            break;
        }
        transfer.resize(begin, 0);
        append(rules, frame, &mut transfer);
        fifo.take();
        frames = if is_bad { 0 } else { frames - 1 };
    }
    transfer
}

/// Bytes that the status word gives as the frame's.
fn size(rules: &ReceiveRules, frame: &Frame) -> usize {
    let sum = if rules.checksum { CHECKSUM_BYTES } else { 0 };
    frame.bytes.len() + CHECK + sum
}

fn append(rules: &ReceiveRules, frame: &Frame, transfer: &mut Vec<u8>) {
    let mut status = (size(rules, frame) as u32) << 16;
    match frame.bytes.first() {
        Some(0xff) => status |= BROADCAST,
        Some(first) if first & 1 != 0 => status |= MULTICAST,
        _ => {}
    }
    // From 1536 on it is a type, below 1501 a length.
    if let Some(&[high, _]) = frame.bytes.get(12..14)
        && high >= 6
    {
        status |= TYPE;
    }
    match frame.fault {
        Fault::None => {}
        Fault::ErrorBit => status |= ERROR | CRC_ERROR,
        Fault::BadSize => status |= BAD_SIZE << 16,
    }
    transfer.extend_from_slice(&status.to_le_bytes());
    transfer.resize(transfer.len() + rules.offset, 0);
    transfer.extend_from_slice(&frame.bytes);
    transfer.extend_from_slice(&[0; CHECK]);
    if rules.checksum {
        // From the end of the addresses and the type on: what CHECKSUM_COMPLETE means.
        let sum = sum(frame.bytes.get(HEADER..).unwrap_or_default());
        transfer.extend_from_slice(&sum.to_be_bytes());
    }
}
