//! For tests: hosts that do what the kernel's drivers do, and bytes from a seed.

mod cdc_ncm;
mod host;
mod smsc95xx;

use crate::device::{Device, Setup, Stall};
use crate::standard;
use crate::wire::{Fifo, Frame};

pub(crate) use cdc_ncm::NcmDriver;
pub(crate) use host::Host;
pub(crate) use smsc95xx::{ADDRL, HW_CFG, MAC_CR, Received, SmscDriver};

/// A way to a device's endpoint 0.
pub(crate) trait Pipe {
    /// A control transfer.
    fn request(&mut self, setup: Setup, data: &[u8]) -> Result<Vec<u8>, Stall>;
}

impl<D: Device> Pipe for D {
    fn request(&mut self, setup: Setup, data: &[u8]) -> Result<Vec<u8>, Stall> {
        standard::control(self, &mut 0, &setup, data)
    }
}

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

/// A frame of IPv4's type, to an address, with bytes that differ from other frames'.
pub(crate) fn frame(to: [u8; 6], bytes: usize, seed: u64) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 0xfe, 8, 0]);
    frame.extend(Seeded::new(seed).bytes(bytes - 14));
    frame
}

/// What a device transmits of one transfer.
pub(crate) fn transmitted(device: &mut dyn Device, transfer: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    device.transmit(transfer, &mut frames).unwrap();
    frames.into_iter().map(|frame| frame.bytes).collect()
}

/// Frames that a device holds.
pub(crate) fn fifo(frames: &[&[u8]]) -> Fifo {
    let mut fifo = Fifo::default();
    for frame in frames {
        fifo.push(Frame::good(frame.to_vec()));
    }
    fifo
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
