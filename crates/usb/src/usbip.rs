//! The messages between `vhci_hcd` and a device: Documentation/usb/usbip_protocol.rst.
//!
//! All numbers are big endian. A message is a header of 48 bytes, and what is transferred.
//! Both ends are here, since tests need the host's.

use std::io::{self, Read, Write};
use std::ops::Range;

/// Bytes of a header, the same for every message.
pub const HEADER_BYTES: usize = 48;

/// The longest transfer taken: an NTB of 16 bits, and every buffer of `usbnet`.
pub const MAX_TRANSFER_BYTES: usize = 64 << 10;

/// What is read at once, so that one call of the kernel is enough for many short messages.
const READ_BYTES: usize = 64 << 10;

const CMD_SUBMIT: u32 = 1;
const CMD_UNLINK: u32 = 2;
const RET_SUBMIT: u32 = 3;
const RET_UNLINK: u32 = 4;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UsbipError {
    /// No such command.
    #[error("unknown USB/IP command {0:#x}; expected 1 (submit) or 2 (unlink)")]
    Command(u32),
    /// No such reply.
    #[error("unknown USB/IP reply {0:#x}; expected 3 (submit) or 4 (unlink)")]
    Reply(u32),
    /// Neither in nor out.
    #[error("invalid direction {0}; expected 0 (out) or 1 (in)")]
    Direction(u32),
    /// Endpoints have four bits.
    #[error("invalid endpoint {0}; expected 0 to 15")]
    Endpoint(u32),
    /// A transfer longer than any of our devices has.
    #[error("invalid transfer length {0}; expected at most {MAX_TRANSFER_BYTES} bytes")]
    Length(i32),
    /// Network devices have no isochronous endpoints.
    #[error("isochronous transfer of {0} packets; only control, bulk and interrupt are supported")]
    Isochronous(i32),
    /// The other end closed the socket in the middle.
    #[error("the connection ended after {0} bytes of a message")]
    CutShort(usize),
}

/// Which way the data of a transfer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the host.
    Out,
    /// To the host.
    In,
}

/// What the host asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// A transfer: an URB of the driver's.
    Submit(Submit<'a>),
    /// Take a transfer back.
    Unlink {
        /// Of this request.
        seqnum: u32,
        /// Of the transfer.
        unlinked: u32,
    },
}

/// USBIP_CMD_SUBMIT: a transfer that the host asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submit<'a> {
    /// Its number, by which it is answered.
    pub seqnum: u32,
    /// The device, as it was attached.
    pub devid: u32,
    /// Which way.
    pub direction: Direction,
    /// Without the bit of the direction.
    pub endpoint: u8,
    /// Bytes of the host's buffer.
    pub length: usize,
    /// The setup packet, of endpoint 0.
    pub setup: [u8; 8],
    /// What the host sends.
    pub data: &'a [u8],
}

/// What the device answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A transfer is done.
    Submit {
        /// Of the transfer.
        seqnum: u32,
        /// 0 or a negative error number.
        status: i32,
        /// Bytes transferred, which are `data` if they go to the host.
        actual: usize,
        /// What the host receives.
        data: &'a [u8],
    },
    /// A transfer was taken back, or was answered before.
    Unlink {
        /// Of the request to unlink.
        seqnum: u32,
        /// `-ECONNRESET` if it was taken back, 0 if it had been answered.
        status: i32,
    },
}

/// The `at`th number of a header. `at` is a constant below 12, and headers have 48 bytes.
fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let at = 4 * at;
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The header at the beginning, once it is complete.
fn header(bytes: &[u8]) -> Option<&[u8; HEADER_BYTES]> {
    bytes.first_chunk()
}

/// A length that a message gives, if it is one that we take.
fn length(word: u32) -> Result<usize, UsbipError> {
    usize::try_from(word)
        .ok()
        .filter(|&bytes| bytes <= MAX_TRANSFER_BYTES)
        .ok_or(UsbipError::Length(word as i32))
}

impl<'a> Request<'a> {
    /// The first message of `bytes` and how long it is; nothing if more bytes are needed.
    ///
    /// # Errors
    ///
    /// If it is not a message, or one of a kind that we don't take.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Request<'a>, usize)>, UsbipError> {
        let Some(header) = header(bytes) else {
            return Ok(None);
        };
        let seqnum = word(header, 1);
        match word(header, 0) {
            CMD_SUBMIT => {}
            CMD_UNLINK => {
                let unlinked = word(header, 5);
                return Ok(Some((Request::Unlink { seqnum, unlinked }, HEADER_BYTES)));
            }
            other => return Err(UsbipError::Command(other)),
        }
        let direction = match word(header, 3) {
            0 => Direction::Out,
            1 => Direction::In,
            other => return Err(UsbipError::Direction(other)),
        };
        let endpoint = word(header, 4);
        let endpoint = u8::try_from(endpoint)
            .ok()
            .filter(|&endpoint| endpoint < 16)
            .ok_or(UsbipError::Endpoint(endpoint))?;
        let length = length(word(header, 6))?;
        // The document has -1 where there are none, and vhci_hcd sends 0.
        let packets = word(header, 8) as i32;
        if packets != 0 && packets != -1 {
            return Err(UsbipError::Isochronous(packets));
        }
        let sent = if direction == Direction::Out { length } else { 0 };
        let end = HEADER_BYTES + sent;
        let Some(data) = bytes.get(HEADER_BYTES..end) else {
            return Ok(None);
        };
        let mut setup = [0; 8];
        setup.copy_from_slice(&header[40..48]);
        let submit =
            Submit { seqnum, devid: word(header, 2), direction, endpoint, length, setup, data };
        Ok(Some((Request::Submit(submit), end)))
    }

    /// Append the message to `to`.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Request::Submit(submit) => {
                let direction = match submit.direction {
                    Direction::Out => 0,
                    Direction::In => 1,
                };
                let endpoint = u32::from(submit.endpoint);
                put(to, [CMD_SUBMIT, submit.seqnum, submit.devid, direction, endpoint]);
                put(to, [0, submit.length as u32, 0, 0, 0]);
                to.extend_from_slice(&submit.setup);
                to.extend_from_slice(submit.data);
            }
            Request::Unlink { seqnum, unlinked } => {
                put(to, [CMD_UNLINK, *seqnum, 0, 0, 0, *unlinked]);
                put(to, [0; 6]);
            }
        }
    }
}

impl<'a> Reply<'a> {
    /// The first message of `bytes` and how long it is; nothing if more bytes are needed.
    /// `is_in` is whether a transfer's data go to the host, which a reply lacks.
    ///
    /// # Errors
    ///
    /// If it is not a message.
    pub fn parse(
        bytes: &'a [u8],
        is_in: impl FnOnce(u32) -> bool,
    ) -> Result<Option<(Reply<'a>, usize)>, UsbipError> {
        let Some(header) = header(bytes) else {
            return Ok(None);
        };
        let seqnum = word(header, 1);
        let status = word(header, 5) as i32;
        match word(header, 0) {
            RET_SUBMIT => {}
            RET_UNLINK => return Ok(Some((Reply::Unlink { seqnum, status }, HEADER_BYTES))),
            other => return Err(UsbipError::Reply(other)),
        }
        let actual = length(word(header, 6))?;
        let end = HEADER_BYTES + if is_in(seqnum) { actual } else { 0 };
        let Some(data) = bytes.get(HEADER_BYTES..end) else {
            return Ok(None);
        };
        let reply = Reply::Submit { seqnum, status, actual, data };
        Ok(Some((reply, end)))
    }

    /// Append the message to `to`.
    pub fn write(&self, to: &mut Vec<u8>) {
        match *self {
            Reply::Submit { seqnum, status, actual, data } => {
                put(to, [RET_SUBMIT, seqnum, 0, 0, 0]);
                put(to, [status as u32, actual as u32, 0, 0, 0, 0, 0]);
                to.extend_from_slice(data);
            }
            Reply::Unlink { seqnum, status } => {
                put(to, [RET_UNLINK, seqnum, 0, 0, 0, status as u32]);
                put(to, [0; 6]);
            }
        }
    }
}

/// Append numbers.
fn put<const N: usize>(to: &mut Vec<u8>, words: [u32; N]) {
    for word in words {
        to.extend_from_slice(&word.to_be_bytes());
    }
}

/// Requests as they arrive, however the socket cuts them.
#[derive(Debug, Default)]
pub struct Requests {
    /// As long as it ever has to be: bytes are not cleared for each reading.
    buffer: Vec<u8>,
    /// What of it was read and not taken yet.
    unread: Range<usize>,
}

impl Requests {
    /// Read once. Returns how many bytes came: 0 is the end of the connection.
    ///
    /// # Errors
    ///
    /// As the reader's; and [`UsbipError::CutShort`] if the connection ends in the middle of
    /// a message.
    pub fn read(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let held = self.unread.len();
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..held;
        if self.buffer.len() < held + READ_BYTES {
            self.buffer.resize(held + READ_BYTES, 0);
        }
        let read = from.read(&mut self.buffer[held..])?;
        if read == 0 && held > 0 {
            let cut = UsbipError::CutShort(held);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut));
        }
        self.unread.end += read;
        Ok(read)
    }

    /// The next complete message.
    ///
    /// # Errors
    ///
    /// As [`Request::parse`].
    pub fn next_request(&mut self) -> Result<Option<Request<'_>>, UsbipError> {
        let parsed = Request::parse(&self.buffer[self.unread.clone()])?;
        Ok(parsed.map(|(request, bytes)| {
            self.unread.start += bytes;
            request
        }))
    }
}

/// Replies that wait to be written together, so that the reader wakes once.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
}

impl Replies {
    /// Add one.
    pub fn push(&mut self, reply: &Reply<'_>) {
        reply.write(&mut self.bytes);
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Write all that wait.
    ///
    /// # Errors
    ///
    /// As the writer's.
    pub fn write(&mut self, to: &mut impl Write) -> io::Result<()> {
        let written = to.write_all(&self.bytes);
        self.bytes.clear();
        written
    }
}

#[cfg(test)]
mod tests;
