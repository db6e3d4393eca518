//! Unpacks records that were compressed by zstd.

use std::fmt;

use ruzstd::decoding::FrameDecoder;

/// The window of `zstd -22`.
const MAX_WINDOW_BYTES: u64 = 128 << 20;
/// An empty block, the last one, and a checksum: perf never ends its compressed data.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
/// Bytes that are unpacked at once.
const STEP_BYTES: usize = 1 << 17;
/// The most that one record is taken to be unpacked: 500 times its own size.
const MAX_RECORD_BYTES: usize = 32 << 20;

/// Unpacks one record after the other: compressed data continues from one to the next.
pub(crate) struct Unpacker {
    decoder: FrameDecoder,
    packed: Vec<u8>,
    /// Unpacked data, not taken yet.
    pub(crate) records: Vec<u8>,
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").field("packed", &self.packed.len()).finish_non_exhaustive()
    }
}

impl Default for Unpacker {
    fn default() -> Unpacker {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW_BYTES);
        Unpacker { decoder, packed: Vec::new(), records: Vec::new() }
    }
}

impl Unpacker {
    /// Unpack all whole blocks of what there is. The decoder holds a window's worth back. Returns
    /// whether it makes sense.
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> bool {
        self.packed.extend_from_slice(packed);
        let mut unpacked = vec![0; STEP_BYTES];
        let most = self.records.len() + MAX_RECORD_BYTES;
        loop {
            if self.records.len() > most {
                return false;
            }
            let next = &self.packed[..self.next_bytes()];
            let Ok((taken, given)) = self.decoder.decode_from_to(next, &mut unpacked) else {
                return false;
            };
            self.packed.drain(..taken.min(self.packed.len()));
            self.records.extend_from_slice(&unpacked[..given]);
            if taken == 0 && given == 0 {
                if self.packed.is_empty() || !self.decoder.is_finished() {
                    return true;
                }
                // Another frame follows.
                *self = Unpacker {
                    packed: std::mem::take(&mut self.packed),
                    records: std::mem::take(&mut self.records),
                    ..Unpacker::default()
                };
            }
        }
    }

    /// How much to hand to the decoder, which unpacks all that it gets before it returns any of it:
    /// one block (RFC 8878, 3.1.1.2), or the beginning of a frame.
    fn next_bytes(&self) -> usize {
        /// Longer than the header of a frame.
        const BEGINNING: usize = 32;
        /// Behind the last block.
        const CHECKSUM: usize = 4;
        let all = self.packed.len();
        let [a, b, c, ..] = self.packed[..] else {
            return all;
        };
        if self.decoder.is_finished() {
            return all.min(BEGINNING);
        }
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = match header >> 1 & 3 {
            1 => 1,
            _ => (header >> 3) as usize,
        };
        all.min(3 + size + if header & 1 == 1 { CHECKSUM } else { 0 })
    }

    /// Unpack what the decoder holds back.
    pub(crate) fn finish(&mut self) {
        self.packed.clear();
        if !self.decoder.is_finished() {
            self.unpack(&LAST_BLOCK);
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// Check that data compressed in one piece, or in two, is unpacked whole from pieces of any
    /// size, also without its last block, and that anything else is refused.
    #[test]
    fn in_pieces() {
        let text: Vec<u8> = (0..400_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut packed = compress_to_vec(&text[..], CompressionLevel::Fastest);
        let again = compress_to_vec(&text[..1_000], CompressionLevel::Fastest);
        packed.extend(again);
        let whole = [&text[..], &text[..1_000]].concat();
        for piece in [1_000, 65_000, packed.len()] {
            let mut unpacker = Unpacker::default();
            for part in packed.chunks(piece) {
                assert!(unpacker.unpack(part));
            }
            unpacker.finish();
            assert!(unpacker.records == whole, "in pieces of {piece}");
        }
        let mut unpacker = Unpacker::default();
        assert!(unpacker.unpack(&packed[..packed.len() / 2]));
        unpacker.finish();
        assert!(!unpacker.records.is_empty() && text.starts_with(&unpacker.records));
        assert!(!Unpacker::default().unpack(b"no such thing, but long enough"));
    }

    /// Check that a small record repeated many times is refused before it fills the memory.
    #[test]
    fn what_grows_too_large() {
        // RFC 8878: magic number, no checksum or content size, a window of 1 MB; then blocks of one
        // byte each, repeated 128 K times.
        let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 80];
        let block = (STEP_BYTES as u32) << 3 | 1 << 1;
        for _ in 0..16_000 {
            packed.extend(&block.to_le_bytes()[..3]);
            packed.push(0);
        }
        let mut unpacker = Unpacker::default();
        assert!(!unpacker.unpack(&packed));
        assert!(unpacker.records.len() <= MAX_RECORD_BYTES + 2 * STEP_BYTES);
    }
}
