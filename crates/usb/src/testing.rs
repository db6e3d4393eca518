//! For tests: bytes from a seed.

/// Bytes that are the same in every run: xorshift64*.
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(seed.wrapping_mul(2) + 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Bytes of valid messages with some of them changed, cut off or added: nearer to what is
/// valid than random bytes are.
pub(crate) fn mutated(valid: &[u8], seeded: &mut Seeded) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=seeded.below(4) {
        match seeded.below(4) {
            0 => bytes.truncate(seeded.below(bytes.len() + 1)),
            1 => {
                let more = seeded.below(16);
                bytes.extend(seeded.bytes(more));
            }
            _ if !bytes.is_empty() => {
                let at = seeded.below(bytes.len());
                bytes[at] = seeded.next() as u8;
            }
            _ => {}
        }
    }
    bytes
}
