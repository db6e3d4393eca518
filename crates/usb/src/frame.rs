//! Frames of Ethernet as both devices have them.

/// The shortest frame on a wire, without its check sequence: IEEE 802.3, 3.2.7.
pub const MIN_FRAME: usize = 60;
/// The longest frame, with a VLAN tag and without its check sequence.
pub const MAX_FRAME: usize = 1518;
/// Bytes of both addresses and the type.
pub(crate) const HEADER: usize = 14;

/// What is wrong with a transfer of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {value} at byte {at} of a transfer of {length} bytes")]
pub struct Malformed {
    /// Which field.
    pub what: &'static str,
    /// The field's value.
    pub value: usize,
    /// Where it is.
    pub at: usize,
    /// Of how many bytes.
    pub length: usize,
}

/// A field of a transfer: little endian, and there, or the transfer is cut short.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u16(&self, what: &'static str, at: usize) -> Result<usize, Malformed> {
        match self.0.get(at..).and_then(<[u8]>::first_chunk) {
            Some(&bytes) => Ok(usize::from(u16::from_le_bytes(bytes))),
            None => Err(self.wrong(what, 0, at)),
        }
    }

    pub(crate) fn u32(&self, what: &'static str, at: usize) -> Result<u32, Malformed> {
        match self.0.get(at..).and_then(<[u8]>::first_chunk) {
            Some(&bytes) => Ok(u32::from_le_bytes(bytes)),
            None => Err(self.wrong(what, 0, at)),
        }
    }

    pub(crate) fn wrong(&self, what: &'static str, value: usize, at: usize) -> Malformed {
        Malformed { what, value, at, length: self.0.len() }
    }
}

/// A frame as it is on the wire: padded to the shortest.
pub(crate) fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes.len().max(MIN_FRAME));
    frame.extend_from_slice(bytes);
    if frame.len() < MIN_FRAME {
        frame.resize(MIN_FRAME, 0);
    }
    frame
}

/// The sum of Internet checksums, not inverted: RFC 1071.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    let (pairs, rest) = bytes.as_chunks::<2>();
    for &pair in pairs {
        sum += u64::from(u16::from_be_bytes(pair));
    }
    if let [last] = rest {
        sum += u64::from(u16::from_be_bytes([*last, 0]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
