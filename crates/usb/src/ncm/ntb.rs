//! NTBs of 16 bits: a header (NTH), tables of datagrams (NDP), and the datagrams. NCM, 3.

use crate::frame::{Fields, HEADER, MAX_FRAME, Malformed, padded};
use crate::wire::{Fault, Fifo, Frame};

const NTH_SIGNATURE: u32 = u32::from_le_bytes(*b"NCMH");
/// The signature of a table whose datagrams have no check sequence.
const NDP_SIGNATURE: u32 = u32::from_le_bytes(*b"NCM0");
const NTH: usize = 12;
const NDP: usize = 8;
const ENTRY: usize = 4;
/// What every table and every datagram is aligned to, by our parameters.
const ALIGNMENT: usize = 4;
/// As many as fit a transfer with their entries: bounds tables that give the same bytes
/// again and again.
const MAX_DATAGRAMS: usize = 1024;
/// As the driver's own limit, `loopcount`: ends a circular chain of tables.
const MAX_TABLES: usize = 50;

/// A length beyond every NTB, so that `cdc_ncm_rx_verify_nth16` refuses it.
const BAD_SIZE: u16 = u16::MAX;

/// The datagrams of an NTB.
pub(super) fn parse(ntb: &[u8], frames: &mut Vec<Frame>) -> Result<(), Malformed> {
    let before = frames.len();
    let all = datagrams(ntb, frames);
    if all.is_err() {
        frames.truncate(before);
    }
    all
}

fn datagrams(transfer: &[u8], frames: &mut Vec<Frame>) -> Result<(), Malformed> {
    let fields = Fields(transfer);
    let signature = fields.u32("NTH16 signature", 0)?;
    if signature != NTH_SIGNATURE {
        return Err(fields.wrong("NTH16 signature", signature as usize, 0));
    }
    let length = fields.u16("NTH16 length", 4)?;
    if length != NTH {
        return Err(fields.wrong("NTH16 length", length, 4));
    }
    // 0 stands for a block as long as the transfer.
    let block = match fields.u16("block length", 8)? {
        0 => transfer.len(),
        block => block,
    };
    let Some(block) = transfer.get(..block) else {
        return Err(fields.wrong("block length", block, 8));
    };
    let mut at = fields.u16("NDP16 index", 10)?;
    let fields = Fields(block);
    let mut count = 0;
    let mut tables = 0;
    while at != 0 {
        tables += 1;
        if tables > MAX_TABLES {
            return Err(fields.wrong("number of tables", tables, at));
        }
        if at < NTH || !at.is_multiple_of(ALIGNMENT) {
            return Err(fields.wrong("NDP16 index", at, at));
        }
        at = table(&fields, at, &mut count, frames)?;
    }
    Ok(())
}

/// The datagrams of one table. Returns where the next one is.
fn table(
    fields: &Fields<'_>,
    at: usize,
    count: &mut usize,
    frames: &mut Vec<Frame>,
) -> Result<usize, Malformed> {
    let signature = fields.u32("NDP16 signature", at)?;
    if signature != NDP_SIGNATURE {
        return Err(fields.wrong("NDP16 signature", signature as usize, at));
    }
    let length = fields.u16("NDP16 length", at + 4)?;
    // A table has at least one entry and the end.
    if length < NDP + 2 * ENTRY || !length.is_multiple_of(ENTRY) {
        return Err(fields.wrong("NDP16 length", length, at + 4));
    }
    let next = fields.u16("NDP16 index", at + 6)?;
    for entry in (at + NDP..at + length).step_by(ENTRY) {
        let index = fields.u16("datagram index", entry)?;
        let bytes = fields.u16("datagram length", entry + 2)?;
        if index == 0 || bytes == 0 {
            return Ok(next);
        }
        *count += 1;
        if *count > MAX_DATAGRAMS {
            return Err(fields.wrong("number of datagrams", *count, entry));
        }
        match fields.0.get(index..index + bytes) {
            Some(datagram) if (HEADER..=MAX_FRAME).contains(&bytes) => {
                frames.push(Frame::good(padded(datagram)));
            }
            _ => return Err(fields.wrong("datagram length", bytes, entry + 2)),
        }
    }
    // No entry ended it: the length did.
    Ok(next)
}

/// The next NTB: as many frames as may be in it and fit; nothing if there are none.
pub(super) fn build(fifo: &mut Fifo, room: usize, max: usize, sequence: u16) -> Option<Vec<u8>> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut bytes = 0;
    while frames.len() < max
        && let Some(frame) = fifo.first()
    {
        let datagrams = bytes + frame.bytes.len().next_multiple_of(ALIGNMENT);
        let is_bad = frame.fault == Fault::BadSize;
        let fits = first_datagram(frames.len() + 1) + datagrams <= room;
        if !fits && frames.is_empty() {
            fifo.skip();
            continue;
        }
        if !fits || is_bad && !frames.is_empty() {
            break;
        }
        bytes = datagrams;
        frames.extend(fifo.take());
        if is_bad {
            break;
        }
    }
    (!frames.is_empty()).then(|| write(&frames, sequence, bytes))
}

/// Where the datagrams begin, behind the header and a table of `frames` entries and an end.
fn first_datagram(frames: usize) -> usize {
    NTH + NDP + ENTRY * (frames + 1)
}

fn write(frames: &[Frame], sequence: u16, bytes: usize) -> Vec<u8> {
    let first = first_datagram(frames.len());
    let length = match frames[0].fault {
        Fault::BadSize => BAD_SIZE,
        _ => (first + bytes) as u16,
    };
    let mut ntb = Vec::with_capacity(first + bytes);
    ntb.extend_from_slice(&NTH_SIGNATURE.to_le_bytes());
    put(&mut ntb, [NTH as u16, sequence, length, NTH as u16]);
    ntb.extend_from_slice(&NDP_SIGNATURE.to_le_bytes());
    put(&mut ntb, [(first - NTH) as u16, 0]);
    let mut index = first;
    for frame in frames {
        let bytes = frame.bytes.len();
        put(&mut ntb, [index as u16, bytes as u16]);
        index += bytes.next_multiple_of(ALIGNMENT);
    }
    put(&mut ntb, [0, 0]);
    for frame in frames {
        ntb.extend_from_slice(&frame.bytes);
        ntb.resize(ntb.len().next_multiple_of(ALIGNMENT), 0);
    }
    ntb
}

/// Append numbers.
fn put<const N: usize>(to: &mut Vec<u8>, words: [u16; N]) {
    for word in words {
        to.extend_from_slice(&word.to_le_bytes());
    }
}
