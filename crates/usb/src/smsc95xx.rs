//! A LAN9512, the USB Ethernet of the first Raspberry Pi, as `drivers/net/usb/smsc95xx.c`
//! drives it: registers by vendor requests, an internal PHY by MII, an EEPROM with the
//! address, and frames with command and status words before them.

mod eeprom;
mod filter;
mod phy;
mod registers;
mod transfer;

use crate::device::{BULK_IN, BULK_OUT, Descriptors, Device, INTERRUPT_IN, Setup, Stall};
use crate::frame::Malformed;
use crate::wire::{Fault, Fifo, Frame, Refusal};
use registers::Registers;

const WRITE_REGISTER: u8 = 0xa0;
const READ_REGISTER: u8 = 0xa1;
/// Type vendor, recipient device, without the direction.
const VENDOR: u8 = 0x40;

/// A LAN9512's Ethernet side, with its registers and EEPROM.
#[derive(Debug)]
pub struct Smsc95xx {
    descriptors: Descriptors,
    registers: Registers,
    max_frames: usize,
}

impl Smsc95xx {
    /// A device with an address in its EEPROM, and no cable plugged in.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Smsc95xx {
        Smsc95xx {
            descriptors: descriptors(),
            registers: Registers::new(mac),
            max_frames: usize::MAX,
        }
    }

    /// Put at most `frames` (and at least one) into one transfer. A LAN9512 puts in what has
    /// arrived, up to the burst cap that the driver sets.
    #[must_use]
    pub fn max_frames(mut self, frames: usize) -> Smsc95xx {
        self.max_frames = frames.max(1);
        self
    }
}

impl Device for Smsc95xx {
    fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    fn control(&mut self, setup: &Setup, data: &[u8]) -> Result<Vec<u8>, Stall> {
        if setup.request_type & 0x7f != VENDOR {
            return Err(Stall);
        }
        match (setup.request, setup.is_in()) {
            (READ_REGISTER, true) => {
                let value = self.registers.read(setup.index).ok_or(Stall)?;
                Ok(value.to_le_bytes().to_vec())
            }
            (WRITE_REGISTER, false) => {
                let value = <[u8; 4]>::try_from(data).map_err(|_| Stall)?;
                let written = self.registers.write(setup.index, u32::from_le_bytes(value));
                written.map(|()| Vec::new()).ok_or(Stall)
            }
            _ => Err(Stall),
        }
    }

    fn set_alternate(&mut self, interface: u16, alternate: u16) -> Result<(), Stall> {
        match (interface, alternate) {
            (0, 0) => Ok(()),
            _ => Err(Stall),
        }
    }

    fn alternate(&self, interface: u16) -> Result<u8, Stall> {
        match interface {
            0 => Ok(0),
            _ => Err(Stall),
        }
    }

    fn transmit(&mut self, transfer: &[u8], frames: &mut Vec<Frame>) -> Result<(), Malformed> {
        transfer::transmit(transfer, self.registers.checksums_tx(), frames)
    }

    fn sends(&self) -> bool {
        self.registers.phy().link() && self.registers.transmits()
    }

    fn accepts(&self, frame: &Frame) -> Result<(), Refusal> {
        if !self.registers.phy().link() {
            return Err(Refusal::LinkDown);
        }
        if !self.registers.receives() {
            return Err(Refusal::NotReceiving);
        }
        match self.registers.filter().accepts(&frame.bytes) {
            true => Ok(()),
            false => Err(Refusal::Filtered),
        }
    }

    fn receive(&mut self, fifo: &mut Fifo, room: usize) -> Option<Vec<u8>> {
        let rules = self.registers.receive_rules();
        let room = room.min(rules.burst_bytes);
        let frames = match rules.multiple_frames {
            true => self.max_frames,
            false => 1,
        };
        let filled = transfer::receive(&rules, fifo, room, frames);
        match filled.is_empty() && rules.waits_while_empty {
            true => None,
            false => Some(filled),
        }
    }

    fn interrupt(&mut self) -> Option<Vec<u8>> {
        self.registers.take_interrupt().map(|status| status.to_le_bytes().to_vec())
    }

    fn set_carrier(&mut self, up: bool) {
        self.registers.set_carrier(up);
    }

    fn supports(&self, _fault: Fault) -> bool {
        true
    }
}

fn descriptors() -> Descriptors {
    #[rustfmt::skip]
    let device = [
        18, 1, 0x00, 0x02, // USB 2.0
        0xff, 0, 1, 64, // of the vendor's class
        0x24, 0x04, 0x00, 0xec, // 0424:ec00, LAN9512/9514
        0x00, 0x02, 1, 2, 0, 1, // revision, strings, configurations
    ];
    #[rustfmt::skip]
    let configuration = vec![
        9, 2, 39, 0, 1, 1, 0, 0xe0, 1, // one interface, self-powered
        9, 4, 0, 0, 3, 0xff, 0, 0xff, 0,
        7, 5, 0x80 | BULK_IN, 2, 0x00, 0x02, 0, // bulk, 512 bytes
        7, 5, BULK_OUT, 2, 0x00, 0x02, 0,
        7, 5, 0x80 | INTERRUPT_IN, 3, 16, 0, 4, // each 8 microframes
    ];
    Descriptors {
        device,
        configuration,
        strings: vec!["Netplumb".into(), "Emulated LAN9512".into()],
    }
}

#[cfg(test)]
mod tests;
