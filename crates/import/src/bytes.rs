//! Numbers in records: missing bytes are zero.

/// A number of 64 bits.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..).and_then(|rest| rest.first_chunk());
    number.copied().map_or(0, u64::from_le_bytes)
}

/// A number of 32 bits.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..).and_then(|rest| rest.first_chunk());
    number.copied().map_or(0, u32::from_le_bytes)
}
