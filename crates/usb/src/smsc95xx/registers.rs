//! The registers, by their numbers in `drivers/net/usb/smsc95xx.h`.

use super::eeprom::Eeprom;
use super::filter::Filter;
use super::phy::Phy;
use super::transfer::ReceiveRules;

const ID_REV: u16 = 0x00;
const INT_STS: u16 = 0x08;
const RX_CFG: u16 = 0x0c;
const TX_CFG: u16 = 0x10;
const HW_CFG: u16 = 0x14;
const TX_FIFO_INF: u16 = 0x1c;
const PM_CTRL: u16 = 0x20;
const E2P_CMD: u16 = 0x30;
const E2P_DATA: u16 = 0x34;
const BURST_CAP: u16 = 0x38;
const INT_EP_CTL: u16 = 0x68;
const MAC_CR: u16 = 0x100;
const ADDRH: u16 = 0x104;
const ADDRL: u16 = 0x108;
const HASHH: u16 = 0x10c;
const HASHL: u16 = 0x110;
const MII_ADDR: u16 = 0x114;
const MII_DATA: u16 = 0x118;
const COE_CR: u16 = 0x130;
/// The last one.
const END: u16 = COE_CR;

/// LAN9512/9514, revision 2.
const CHIP: u32 = 0xec00_0002;

const PHY_INTERRUPT: u32 = 0x8000;

const TX_CFG_ON: u32 = 0x4;
const TX_CFG_STOP: u32 = 0x2;
const TX_CFG_FLUSH: u32 = 0x1;

const HW_CFG_BULK_IN_EMPTY: u32 = 0x1000;
const HW_CFG_RX_OFFSET: u32 = 0x0600;
const HW_CFG_MULTIPLE: u32 = 0x0020;
const HW_CFG_LITE_RESET: u32 = 0x0008;
const HW_CFG_EXTERNAL_PHY: u32 = 0x0004;
const HW_CFG_BURST_CAP: u32 = 0x0002;
const HW_CFG_SOFT_RESET: u32 = 0x0001;

const PM_CTRL_READY: u32 = 0x80;
const PM_CTRL_PHY_RESET: u32 = 0x10;
const PM_CTRL_WAKE_UPS: u32 = 0x3;

const MAC_CR_MULTICAST: u32 = 0x0008_0000;
const MAC_CR_PROMISCUOUS: u32 = 0x0004_0000;
const MAC_CR_HASHED: u32 = 0x2000;
const MAC_CR_NO_BROADCAST: u32 = 0x0800;
const MAC_CR_TRANSMIT: u32 = 0x8;
const MAC_CR_RECEIVE: u32 = 0x4;

const MII_WRITE: u32 = 0x2;
const MII_BUSY: u32 = 0x1;
/// `SMSC95XX_INTERNAL_PHY_ID`.
const PHY_ADDRESS: u32 = 1;

const COE_TRANSMIT: u32 = 0x0001_0000;
const COE_RECEIVE: u32 = 0x1;

/// Bytes of a packet at high speed, which the burst cap counts.
const PACKET_BYTES: usize = 512;
/// Bytes that can be sent at once. The driver doesn't ask.
const TX_FIFO_BYTES: u32 = 8 << 10;

#[derive(Debug)]
pub(super) struct Registers {
    values: [u32; END as usize / 4 + 1],
    eeprom: Eeprom,
    phy: Phy,
    /// The host has not heard of the PHY's interrupt yet.
    interrupt: bool,
}

impl Registers {
    pub(super) fn new(mac: [u8; 6]) -> Registers {
        let mut registers = Registers {
            values: [0; _],
            eeprom: Eeprom::new(mac),
            phy: Phy::new(),
            interrupt: false,
        };
        registers.reset();
        registers
    }

    /// What a reset of the chip leaves: all but the PHY, and the address as in the EEPROM.
    fn reset(&mut self) {
        self.values = [0; _];
        self.set(ID_REV, CHIP);
        self.set(TX_FIFO_INF, TX_FIFO_BYTES);
        self.set(MAC_CR, MAC_CR_PROMISCUOUS);
        let [a, b, c, d, e, f] = self.eeprom.mac();
        self.set(ADDRL, u32::from_le_bytes([a, b, c, d]));
        self.set(ADDRH, u32::from_le_bytes([e, f, 0, 0]));
    }

    /// `register` is one of those above.
    fn get(&self, register: u16) -> u32 {
        self.values[usize::from(register / 4)]
    }

    fn set(&mut self, register: u16, value: u32) {
        self.values[usize::from(register / 4)] = value;
    }

    fn has(&self, register: u16, bits: u32) -> bool {
        self.get(register) & bits != 0
    }

    /// A register, if it exists; all else reads as 0, as with `ethtool -d`.
    pub(super) fn read(&self, register: u16) -> Option<u32> {
        if register > END || !register.is_multiple_of(4) {
            return None;
        }
        Some(match register {
            INT_STS if self.phy.interrupts() => self.get(INT_STS) | PHY_INTERRUPT,
            PM_CTRL => self.get(PM_CTRL) | PM_CTRL_READY,
            E2P_CMD => self.eeprom.status(),
            E2P_DATA => self.eeprom.data(),
            _ => self.get(register),
        })
    }

    /// Whatever a register starts is done at once: none is ever busy.
    pub(super) fn write(&mut self, register: u16, value: u32) -> Option<()> {
        if register > END || !register.is_multiple_of(4) {
            return None;
        }
        match register {
            ID_REV | TX_FIFO_INF => {}
            INT_STS => self.set(INT_STS, self.get(INT_STS) & !value),
            // Its one bit flushes what is received, and frames are not kept here.
            RX_CFG => {}
            TX_CFG => {
                let off = if value & TX_CFG_STOP != 0 { TX_CFG_ON } else { 0 };
                self.set(TX_CFG, value & !(TX_CFG_STOP | TX_CFG_FLUSH | off));
            }
            HW_CFG if value & (HW_CFG_LITE_RESET | HW_CFG_SOFT_RESET) != 0 => self.reset(),
            HW_CFG => self.set(HW_CFG, value & !HW_CFG_EXTERNAL_PHY),
            PM_CTRL => {
                let left = self.get(PM_CTRL) & PM_CTRL_WAKE_UPS & !value;
                let kept = value & !(PM_CTRL_WAKE_UPS | PM_CTRL_PHY_RESET | PM_CTRL_READY);
                self.set(PM_CTRL, kept | left);
            }
            E2P_CMD => self.eeprom.command(value),
            E2P_DATA => self.eeprom.set_data(value),
            MII_ADDR => {
                self.set(MII_ADDR, value & !MII_BUSY);
                if value & MII_BUSY != 0 {
                    self.mii(value);
                }
            }
            _ => self.set(register, value),
        }
        Some(())
    }

    /// Read or write a register of the PHY. There is none at other addresses.
    fn mii(&mut self, address: u32) {
        let is_ours = address >> 11 & 0x1f == PHY_ADDRESS;
        let register = (address >> 6 & 0x1f) as usize;
        match (address & MII_WRITE != 0, is_ours) {
            (true, true) => {
                let value = self.get(MII_DATA) as u16;
                self.change_phy(|phy| phy.write(register, value));
            }
            (true, false) => {}
            (false, true) => {
                let value = self.phy.read(register);
                self.set(MII_DATA, u32::from(value));
            }
            (false, false) => self.set(MII_DATA, 0xffff),
        }
    }

    pub(super) fn set_carrier(&mut self, up: bool) {
        self.change_phy(|phy| phy.set_carrier(up));
    }

    fn change_phy(&mut self, change: impl FnOnce(&mut Phy)) {
        let before = self.phy.interrupts();
        change(&mut self.phy);
        self.interrupt |= !before && self.phy.interrupts();
    }

    /// What the interrupt endpoint has for the host, once.
    pub(super) fn take_interrupt(&mut self) -> Option<u32> {
        let due = self.interrupt && self.has(INT_EP_CTL, PHY_INTERRUPT);
        self.interrupt &= !due;
        due.then_some(PHY_INTERRUPT)
    }

    pub(super) fn phy(&self) -> &Phy {
        &self.phy
    }

    pub(super) fn transmits(&self) -> bool {
        self.has(MAC_CR, MAC_CR_TRANSMIT) && self.has(TX_CFG, TX_CFG_ON)
    }

    pub(super) fn receives(&self) -> bool {
        self.has(MAC_CR, MAC_CR_RECEIVE)
    }

    pub(super) fn checksums_tx(&self) -> bool {
        self.has(COE_CR, COE_TRANSMIT)
    }

    pub(super) fn filter(&self) -> Filter {
        let [a, b, c, d] = self.get(ADDRL).to_le_bytes();
        let [e, f, ..] = self.get(ADDRH).to_le_bytes();
        Filter {
            own: [a, b, c, d, e, f],
            promiscuous: self.has(MAC_CR, MAC_CR_PROMISCUOUS),
            all_multicast: self.has(MAC_CR, MAC_CR_MULTICAST),
            hashed: self.has(MAC_CR, MAC_CR_HASHED),
            no_broadcast: self.has(MAC_CR, MAC_CR_NO_BROADCAST),
            hash: u64::from(self.get(HASHH)) << 32 | u64::from(self.get(HASHL)),
        }
    }

    pub(super) fn receive_rules(&self) -> ReceiveRules {
        let cap = (self.get(BURST_CAP) & 0xff) as usize * PACKET_BYTES;
        ReceiveRules {
            offset: ((self.get(HW_CFG) & HW_CFG_RX_OFFSET) >> 9) as usize,
            multiple_frames: self.has(HW_CFG, HW_CFG_MULTIPLE),
            waits_while_empty: self.has(HW_CFG, HW_CFG_BULK_IN_EMPTY),
            burst_bytes: match self.has(HW_CFG, HW_CFG_BURST_CAP) && cap > 0 {
                true => cap,
                false => usize::MAX,
            },
            checksum: self.has(COE_CR, COE_RECEIVE),
        }
    }
}
