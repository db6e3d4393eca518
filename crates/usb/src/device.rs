//! A device as its host and the wire behind it see it.

use crate::frame::Malformed;
use crate::wire::{Fault, Fifo, Frame, Refusal};

/// The endpoint for frames to the host.
pub const BULK_IN: u8 = 1;
/// The endpoint for frames from the host.
pub const BULK_OUT: u8 = 2;
/// The endpoint for notifications of changes.
pub const INTERRUPT_IN: u8 = 3;

/// A request that the device doesn't take: the host gets `-EPIPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall;

/// The setup packet of a control transfer: USB 2.0, 9.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Direction, type and recipient.
    pub request_type: u8,
    /// Which request.
    pub request: u8,
    /// Its first argument.
    pub value: u16,
    /// Its second argument.
    pub index: u16,
    /// Bytes of data.
    pub length: u16,
}

impl Setup {
    /// From the eight bytes of the packet.
    #[must_use]
    pub fn parse(bytes: [u8; 8]) -> Setup {
        let [request_type, request, v0, v1, i0, i1, l0, l1] = bytes;
        Setup {
            request_type,
            request,
            value: u16::from_le_bytes([v0, v1]),
            index: u16::from_le_bytes([i0, i1]),
            length: u16::from_le_bytes([l0, l1]),
        }
    }

    /// The eight bytes of the packet.
    #[must_use]
    pub fn bytes(&self) -> [u8; 8] {
        let [v0, v1] = self.value.to_le_bytes();
        let [i0, i1] = self.index.to_le_bytes();
        let [l0, l1] = self.length.to_le_bytes();
        [self.request_type, self.request, v0, v1, i0, i1, l0, l1]
    }

    /// Whether the data go to the host.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.request_type & 0x80 != 0
    }
}

/// What the host reads of a device before it has a driver: USB 2.0, 9.6.
#[derive(Debug, Clone)]
pub struct Descriptors {
    /// Of the device.
    pub device: [u8; 18],
    /// Of its configuration, with interfaces and endpoints.
    pub configuration: Vec<u8>,
    /// Strings, from the first: number 0 is the list of languages.
    pub strings: Vec<String>,
}

/// An emulated network device.
///
/// Its behaviour depends only on the calls and their order: a device has no clock and no thread.
pub trait Device: Send {
    /// What it is.
    fn descriptors(&self) -> &Descriptors;

    /// A control request of the class or of the vendor. Returns what goes to the host.
    ///
    /// # Errors
    ///
    /// If the device lacks the request.
    fn control(&mut self, setup: &Setup, data: &[u8]) -> Result<Vec<u8>, Stall>;

    /// Choose an alternate setting of an interface.
    ///
    /// # Errors
    ///
    /// If the setting does not exist.
    fn set_alternate(&mut self, interface: u16, alternate: u16) -> Result<(), Stall>;

    /// The current alternate setting of an interface.
    ///
    /// # Errors
    ///
    /// If the interface does not exist.
    fn alternate(&self, interface: u16) -> Result<u8, Stall>;

    /// A transfer of the driver's: adds its frames to `frames`, as they are on the wire.
    ///
    /// # Errors
    ///
    /// If such a device doesn't take this transfer; then it has added nothing.
    fn transmit(&mut self, transfer: &[u8], frames: &mut Vec<Frame>) -> Result<(), Malformed>;

    /// Whether frames go out to the wire: the cable is in, and the transmitter on.
    fn sends(&self) -> bool;

    /// Whether a frame on the wire is for this device.
    ///
    /// # Errors
    ///
    /// If it is not, why.
    fn accepts(&self, frame: &Frame) -> Result<(), Refusal>;

    /// The next transfer to the driver, of at most `room` bytes, from what is in `fifo`;
    /// nothing if the driver has to wait.
    fn receive(&mut self, fifo: &mut Fifo, room: usize) -> Option<Vec<u8>>;

    /// The next message on the interrupt endpoint, if there is one.
    fn interrupt(&mut self) -> Option<Vec<u8>>;

    /// Plug the cable in or out.
    fn set_carrier(&mut self, up: bool);

    /// Whether the device can report such a fault to its driver.
    fn supports(&self, fault: Fault) -> bool;
}
