//! The EEPROM, which has the address, behind a command register and a data register.

/// Bytes of it: `MAX_EEPROM_SIZE`.
const BYTES: usize = 512;
/// The first byte of a programmed EEPROM.
const SIGNATURE: u8 = 0xa5;
/// Where the address is: `EEPROM_MAC_OFFSET`.
const MAC: usize = 1;

const BUSY: u32 = 1 << 31;
const COMMAND: u32 = 7 << 28;
const LOADED: u32 = 1 << 9;
const ADDRESS: u32 = 0x1ff;

#[derive(Debug)]
pub(super) struct Eeprom {
    bytes: [u8; BYTES],
    data: u8,
    address: u32,
    writable: bool,
}

impl Eeprom {
    pub(super) fn new(mac: [u8; 6]) -> Eeprom {
        let mut bytes = [0xff; BYTES];
        bytes[0] = SIGNATURE;
        bytes[MAC..MAC + 6].copy_from_slice(&mac);
        Eeprom { bytes, data: 0, address: 0, writable: false }
    }

    /// The command register: every command is done at once.
    pub(super) fn status(&self) -> u32 {
        self.address | LOADED
    }

    pub(super) fn data(&self) -> u32 {
        u32::from(self.data)
    }

    pub(super) fn set_data(&mut self, data: u32) {
        self.data = data as u8;
    }

    pub(super) fn command(&mut self, command: u32) {
        self.address = command & ADDRESS;
        if command & BUSY == 0 {
            return;
        }
        let data = self.data;
        // The address has nine bits, as many as the array.
        let cell = &mut self.bytes[self.address as usize];
        match (command & COMMAND) >> 28 {
            0 => self.data = *cell,
            1 => self.writable = false,
            2 => self.writable = true,
            3 if self.writable => *cell = data,
            4 if self.writable => self.bytes.fill(data),
            5 if self.writable => *cell = 0xff,
            6 if self.writable => self.bytes.fill(0xff),
            // Reload, and writing while it is disabled, change nothing.
            _ => {}
        }
    }

    /// The address, as it is loaded at reset.
    pub(super) fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        mac.copy_from_slice(&self.bytes[MAC..MAC + 6]);
        mac
    }
}
