//! The headers of a stream and of its records (`struct perf_event_header` in include/uapi/linux/perf_event.h).

use crate::bytes::u32_at;

/// Bytes of a record's header.
pub(crate) const HEADER: usize = 8;
/// Bytes of a stream's header.
pub(crate) const PIPE_HEADER: u64 = 16;

/// The header of a record.
pub(crate) fn header(kind: u32, misc: u16, body_bytes: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[4..6].copy_from_slice(&misc.to_le_bytes());
    header[6..].copy_from_slice(&((HEADER + body_bytes) as u16).to_le_bytes());
    header
}

/// Type, `misc` and size of a record.
pub(crate) fn parts(header: &[u8]) -> (u32, u16, usize) {
    let misc = u16::from_le_bytes([header[4], header[5]]);
    let size = u16::from_le_bytes([header[6], header[7]]);
    (u32_at(header, 0), misc, usize::from(size))
}
