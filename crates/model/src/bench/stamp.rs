//! The timestamp in a frame: its scheduled send time.

/// Bytes of a [`Stamp`].
pub const STAMP_BYTES: u32 = 16;

/// The first word of a [`Stamp`], in network byte order: "PLMB".
pub const STAMP_MAGIC: u32 = 0x504c_4d42;

/// The timestamp of a frame, right after the header of its protocol (UDP, TCP, ICMP). Its layout is
/// described in crates/sys/bpf/stamp.h, for BPF programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Sequence number: frames made by this CPU before it, modulo 2^32.
    pub sequence: u32,
    /// The scheduled send time, by CLOCK_MONOTONIC; without a given rate, the time when it was
    /// made.
    pub due_ns: u64,
}

impl Stamp {
    /// The stamp at the start of `payload`, the bytes after the headers, if there is one.
    pub fn read(payload: &[u8]) -> Option<Stamp> {
        let (magic, rest) = payload.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<4>()?;
        let (due, _) = rest.split_first_chunk::<8>()?;
        (u32::from_be_bytes(*magic) == STAMP_MAGIC).then(|| Stamp {
            sequence: u32::from_ne_bytes(*sequence),
            due_ns: u64::from_ne_bytes(*due),
        })
    }

    /// Its bytes in a frame.
    pub fn bytes(&self) -> [u8; STAMP_BYTES as usize] {
        let mut bytes = [0; STAMP_BYTES as usize];
        bytes[..4].copy_from_slice(&STAMP_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.due_ns.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a stamp is read as it was written, and distinguished from other bytes.
    #[test]
    fn there_and_back() {
        let stamp = Stamp { sequence: 7, due_ns: 1 << 40 };
        let mut bytes = stamp.bytes();
        assert_eq!(Stamp::read(&bytes), Some(stamp));
        assert_eq!(&bytes[..4], b"PLMB");
        assert_eq!(Stamp::read(&bytes[..15]), None);
        bytes[0] ^= 1;
        assert_eq!(Stamp::read(&bytes), None);
    }
}
