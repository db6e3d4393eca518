//! Frames that say when they were to be sent.

/// Bytes of a [`Stamp`].
pub const STAMP_BYTES: u32 = 16;

/// What a [`Stamp`] begins with, in network byte order: "PLMB".
pub const STAMP_MAGIC: u32 = 0x504c_4d42;

/// What a stamped frame carries right after the header of its protocol (UDP, TCP, ICMP).
/// BPF programs have it from crates/sys/bpf/stamp.h, which says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Frames that this CPU made before it, modulo 2^32.
    pub sequence: u32,
    /// When it was to be sent, by CLOCK_MONOTONIC; when it was made, if no rate is asked for.
    pub due_ns: u64,
}

impl Stamp {
    /// What is there, if it is one. `payload` is what comes after the headers.
    pub fn read(payload: &[u8]) -> Option<Stamp> {
        let (magic, rest) = payload.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<4>()?;
        let (due, _) = rest.split_first_chunk::<8>()?;
        (u32::from_be_bytes(*magic) == STAMP_MAGIC).then(|| Stamp {
            sequence: u32::from_ne_bytes(*sequence),
            due_ns: u64::from_ne_bytes(*due),
        })
    }

    /// As it is written.
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

    /// Check that a stamp is read as it was written, and told from other bytes.
    #[test]
    fn there_and_back() {
        let stamp = Stamp {
            sequence: 7,
            due_ns: 1 << 40,
        };
        let mut bytes = stamp.bytes();
        assert_eq!(Stamp::read(&bytes), Some(stamp));
        assert_eq!(&bytes[..4], b"PLMB");
        assert_eq!(Stamp::read(&bytes[..15]), None);
        bytes[0] ^= 1;
        assert_eq!(Stamp::read(&bytes), None);
    }
}
