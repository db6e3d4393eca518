//! A function of the class CDC NCM, as `drivers/net/usb/cdc_ncm.c` drives it: a
//! communication interface with notifications, and a data interface whose second setting has
//! the endpoints. Frames travel in NTBs of 16 bits, several in one.
//!
//! Numbers of requests and fields are from "Universal Serial Bus Communications Class
//! Subclass Specification for Network Control Model Devices", revision 1.0 (NCM).

mod ntb;

use std::collections::VecDeque;

use crate::device::{BULK_IN, BULK_OUT, Descriptors, Device, INTERRUPT_IN, Setup, Stall};
use crate::frame::{MAX_FRAME, Malformed};
use crate::wire::{Fault, Fifo, Frame, Refusal};

const GET_NTB_PARAMETERS: u8 = 0x80;
const GET_NTB_FORMAT: u8 = 0x83;
const SET_NTB_FORMAT: u8 = 0x84;
const GET_NTB_INPUT_SIZE: u8 = 0x85;
const SET_NTB_INPUT_SIZE: u8 = 0x86;
/// Type class, recipient interface, without the direction.
const CLASS: u8 = 0x21;

const NETWORK_CONNECTION: u8 = 0x00;
const CONNECTION_SPEED_CHANGE: u8 = 0x2a;

const COMMUNICATION: u16 = 0;
const DATA: u16 = 1;
/// The setting of the data interface that has endpoints.
const OPEN: u16 = 1;

/// The smallest NTB that a host may ask for: NCM, table 6-4.
const MIN_NTB_BYTES: u32 = 2048;
/// The longest NTB in either direction, unless the host wants them shorter: as much as the
/// driver uses by default, `CDC_NCM_NTB_DEF_SIZE_RX`.
const MAX_NTB_BYTES: u32 = 16 << 10;

/// Bits per second, as of the link of the other device.
const BITS_PER_SECOND: u32 = 100_000_000;

/// The string with the address.
const MAC_STRING: u8 = 3;

/// A device with two interfaces, and the state that the host sets in it.
#[derive(Debug)]
pub struct Ncm {
    descriptors: Descriptors,
    alternate: u16,
    carrier: bool,
    input_bytes: u32,
    max_frames: usize,
    sequence: u16,
    /// Notifications that the host has not read.
    notifications: VecDeque<Vec<u8>>,
}

impl Ncm {
    /// A device with an address, and no cable plugged in.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Ncm {
        Ncm {
            descriptors: descriptors(mac),
            alternate: 0,
            carrier: false,
            input_bytes: MAX_NTB_BYTES,
            max_frames: usize::MAX,
            sequence: 0,
            notifications: VecDeque::new(),
        }
    }

    /// Put at most `frames` (and at least one) into one NTB.
    #[must_use]
    pub fn max_frames(mut self, frames: usize) -> Ncm {
        self.max_frames = frames.max(1);
        self
    }

    fn is_open(&self) -> bool {
        self.alternate == OPEN
    }

    /// Tell the host of the link: the speed first, NCM 7.1.
    fn notify(&mut self) {
        if !self.is_open() {
            return;
        }
        let mut speed = notification(CONNECTION_SPEED_CHANGE, 0, 8);
        speed.extend_from_slice(&BITS_PER_SECOND.to_le_bytes());
        speed.extend_from_slice(&BITS_PER_SECOND.to_le_bytes());
        self.notifications.push_back(speed);
        let up = u16::from(self.carrier);
        self.notifications.push_back(notification(NETWORK_CONNECTION, up, 0));
    }
}

/// The header of a notification: CDC 1.2, 6.3.
fn notification(kind: u8, value: u16, length: u8) -> Vec<u8> {
    let [v0, v1] = value.to_le_bytes();
    vec![0xa1, kind, v0, v1, COMMUNICATION as u8, 0, length, 0]
}

/// What NTBs have to be like: NCM, table 6-3. Everything is aligned by four.
fn parameters() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend_from_slice(&[28, 0, 1, 0]); // only NTBs of 16 bits
    for _direction in 0..2 {
        bytes.extend_from_slice(&MAX_NTB_BYTES.to_le_bytes());
        // Divisor, remainder, alignment, and a reserved field or no limit of datagrams.
        bytes.extend_from_slice(&[4, 0, 0, 0, 4, 0, 0, 0]);
    }
    bytes
}

impl Device for Ncm {
    fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    fn control(&mut self, setup: &Setup, data: &[u8]) -> Result<Vec<u8>, Stall> {
        if setup.request_type & 0x7f != CLASS || setup.index != COMMUNICATION {
            return Err(Stall);
        }
        match (setup.request, setup.is_in()) {
            (GET_NTB_PARAMETERS, true) => Ok(parameters()),
            (GET_NTB_FORMAT, true) => Ok(vec![0, 0]),
            (SET_NTB_FORMAT, false) if setup.value == 0 => Ok(Vec::new()),
            (GET_NTB_INPUT_SIZE, true) => Ok(self.input_bytes.to_le_bytes().to_vec()),
            (SET_NTB_INPUT_SIZE, false) => {
                let bytes = u32::from_le_bytes(data.try_into().map_err(|_| Stall)?);
                if !(MIN_NTB_BYTES..=MAX_NTB_BYTES).contains(&bytes) {
                    return Err(Stall);
                }
                self.input_bytes = bytes;
                Ok(Vec::new())
            }
            _ => Err(Stall),
        }
    }

    fn set_alternate(&mut self, interface: u16, alternate: u16) -> Result<(), Stall> {
        match (interface, alternate) {
            (COMMUNICATION, 0) => Ok(()),
            (DATA, 0 | OPEN) => {
                self.alternate = alternate;
                // Choosing a setting is a reset of the function: NCM, 7.2.
                self.notifications.clear();
                self.sequence = 0;
                if alternate == 0 {
                    self.input_bytes = MAX_NTB_BYTES;
                }
                self.notify();
                Ok(())
            }
            _ => Err(Stall),
        }
    }

    fn alternate(&self, interface: u16) -> Result<u8, Stall> {
        match interface {
            COMMUNICATION => Ok(0),
            DATA => Ok(self.alternate as u8),
            _ => Err(Stall),
        }
    }

    fn transmit(&mut self, transfer: &[u8], frames: &mut Vec<Frame>) -> Result<(), Malformed> {
        ntb::parse(transfer, frames)
    }

    fn sends(&self) -> bool {
        self.carrier && self.is_open()
    }

    fn accepts(&self, _frame: &Frame) -> Result<(), Refusal> {
        // There is no filter: the host takes what the network has, and filters itself.
        match (self.carrier, self.is_open()) {
            (false, _) => Err(Refusal::LinkDown),
            (true, false) => Err(Refusal::NotReceiving),
            (true, true) => Ok(()),
        }
    }

    fn receive(&mut self, fifo: &mut Fifo, room: usize) -> Option<Vec<u8>> {
        let room = room.min(self.input_bytes as usize);
        let ntb = ntb::build(fifo, room, self.max_frames, self.sequence)?;
        self.sequence = self.sequence.wrapping_add(1);
        Some(ntb)
    }

    fn interrupt(&mut self) -> Option<Vec<u8>> {
        self.notifications.pop_front()
    }

    fn set_carrier(&mut self, up: bool) {
        if self.carrier != up {
            self.carrier = up;
            self.notify();
        }
    }

    fn supports(&self, fault: Fault) -> bool {
        fault != Fault::ErrorBit
    }
}

fn descriptors(mac: [u8; 6]) -> Descriptors {
    #[rustfmt::skip]
    let device = [
        18, 1, 0x00, 0x02, // USB 2.0
        2, 0, 0, 64, // class CDC
        0x25, 0x05, 0xa1, 0xa4, // 0525:a4a1, which Linux's own gadgets have
        0x00, 0x01, 1, 2, 0, 1, // revision, strings, configurations
    ];
    let [longest_0, longest_1] = (MAX_FRAME as u16 - 4).to_le_bytes(); // without a VLAN tag
    #[rustfmt::skip]
    let mut configuration = vec![
        9, 2, 0, 0, 2, 1, 0, 0xc0, 1, // two interfaces, self-powered
        9, 4, COMMUNICATION as u8, 0, 1, 2, 0x0d, 0, 0, // CDC, NCM
        5, 0x24, 0x00, 0x10, 0x01, // CDC 1.10
        5, 0x24, 0x06, COMMUNICATION as u8, DATA as u8, // union
        13, 0x24, 0x0f, MAC_STRING, 0, 0, 0, 0, longest_0, longest_1, 0, 0, 0, // Ethernet
        6, 0x24, 0x1a, 0x00, 0x01, 0, // NCM 1.0, without optional requests
        7, 5, 0x80 | INTERRUPT_IN, 3, 16, 0, 9, // each 256 microframes
        9, 4, DATA as u8, 0, 0, 10, 0, 1, 0, // closed
        9, 4, DATA as u8, OPEN as u8, 2, 10, 0, 1, 0,
        7, 5, 0x80 | BULK_IN, 2, 0x00, 0x02, 0, // bulk, 512 bytes
        7, 5, BULK_OUT, 2, 0x00, 0x02, 0,
    ];
    configuration[2] = configuration.len() as u8;
    let mac = mac.map(|byte| format!("{byte:02X}")).concat();
    Descriptors {
        device,
        configuration,
        strings: vec!["Netplumb".into(), "Emulated CDC NCM".into(), mac],
    }
}

#[cfg(test)]
mod tests;
