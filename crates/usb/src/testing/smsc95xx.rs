//! What `drivers/net/usb/smsc95xx.c` and `drivers/net/phy/smsc.c` of Linux 6.1 do.

use super::Pipe;
use crate::device::Setup;

const ID_REV: u16 = 0x00;
const INT_STS: u16 = 0x08;
const TX_CFG: u16 = 0x10;
pub(crate) const HW_CFG: u16 = 0x14;
const LED_GPIO_CFG: u16 = 0x24;
const AFC_CFG: u16 = 0x2c;
const E2P_CMD: u16 = 0x30;
const E2P_DATA: u16 = 0x34;
const BURST_CAP: u16 = 0x38;
const INT_EP_CTL: u16 = 0x68;
const BULK_IN_DLY: u16 = 0x6c;
pub(crate) const MAC_CR: u16 = 0x100;
const ADDRH: u16 = 0x104;
pub(crate) const ADDRL: u16 = 0x108;
const HASHH: u16 = 0x10c;
const HASHL: u16 = 0x110;
const MII_ADDR: u16 = 0x114;
const MII_DATA: u16 = 0x118;
const FLOW: u16 = 0x11c;
const VLAN1: u16 = 0x120;
const COE_CR: u16 = 0x130;

/// The driver, with the way to its device.
pub(crate) struct SmscDriver<'a> {
    pub(crate) pipe: &'a mut dyn Pipe,
    /// `NET_IP_ALIGN`: 0 on x86, 2 on others.
    pub(crate) align: usize,
    pub(crate) rx_checksum: bool,
    pub(crate) mac: [u8; 6],
    mac_cr: u32,
}

impl<'a> SmscDriver<'a> {
    pub(crate) fn new(pipe: &'a mut dyn Pipe) -> SmscDriver<'a> {
        SmscDriver { pipe, align: 0, rx_checksum: true, mac: [0; 6], mac_cr: 0 }
    }

    pub(crate) fn read(&mut self, register: u16) -> u32 {
        let setup =
            Setup { request_type: 0xc0, request: 0xa1, value: 0, index: register, length: 4 };
        let bytes = self.pipe.request(setup, &[]).unwrap();
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    pub(crate) fn write(&mut self, register: u16, value: u32) {
        let setup =
            Setup { request_type: 0x40, request: 0xa0, value: 0, index: register, length: 4 };
        self.pipe.request(setup, &value.to_le_bytes()).unwrap();
    }

    pub(crate) fn mdio_read(&mut self, phy: u32, register: u32) -> u16 {
        assert_eq!(self.read(MII_ADDR) & 1, 0);
        self.write(MII_ADDR, phy << 11 | register << 6 | 1);
        assert_eq!(self.read(MII_ADDR) & 1, 0);
        self.read(MII_DATA) as u16
    }

    pub(crate) fn mdio_write(&mut self, phy: u32, register: u32, value: u16) {
        assert_eq!(self.read(MII_ADDR) & 1, 0);
        self.write(MII_DATA, u32::from(value));
        self.write(MII_ADDR, phy << 11 | register << 6 | 2 | 1);
        assert_eq!(self.read(MII_ADDR) & 1, 0);
    }

    /// `smsc95xx_read_eeprom`.
    pub(crate) fn read_eeprom(&mut self, offset: u32, bytes: u32) -> Vec<u8> {
        let status = self.read(E2P_CMD);
        assert_ne!(status & 0x200, 0, "no EEPROM present");
        assert_eq!(status >> 31, 0, "the EEPROM is busy");
        (offset..offset + bytes)
            .map(|at| {
                self.write(E2P_CMD, 1 << 31 | at);
                assert_eq!(self.read(E2P_CMD) & 0x8000_0400, 0, "timeout");
                self.read(E2P_DATA) as u8
            })
            .collect()
    }

    /// `smsc95xx_write_eeprom`.
    pub(crate) fn write_eeprom(&mut self, offset: u32, bytes: &[u8]) {
        assert_ne!(self.read(E2P_CMD) & 0x200, 0);
        self.write(E2P_CMD, 1 << 31 | 2 << 28);
        for (at, &byte) in (offset..).zip(bytes) {
            self.write(E2P_DATA, u32::from(byte));
            self.write(E2P_CMD, 1 << 31 | 3 << 28 | at);
            assert_eq!(self.read(E2P_CMD) & 0x8000_0400, 0, "timeout");
        }
    }

    /// `smsc95xx_bind` and `smsc95xx_start_phy`, step by step.
    pub(crate) fn bind(&mut self) {
        self.mac = self.read_eeprom(1, 6).try_into().unwrap();
        self.reset();
        assert_eq!(self.read(HW_CFG) & 4, 0, "the PHY is internal");
        // get_phy_id() of the bus, whose mask leaves address 1 alone.
        assert_eq!(self.mdio_read(1, 2), 0x0007);
        assert_eq!(self.mdio_read(1, 3) & 0xfff0, 0xc0c0);
        assert_eq!(self.read(ID_REV) >> 16, 0xec00);
        // smsc_phy_reset, genphy_soft_reset
        assert_ne!(self.mdio_read(1, 18) & 0xe0, 0xc0, "not powered down");
        self.mdio_write(1, 0, 0x9000);
        assert_eq!(self.mdio_read(1, 0) & 0x8000, 0, "reset is done");
        // smsc_phy_config_intr
        self.mdio_read(1, 29);
        self.mdio_write(1, 30, 0x00d0);
        // phy_resume, genphy_config_aneg
        let control = self.mdio_read(1, 0);
        self.mdio_write(1, 0, control & !0x0800);
        let advertised = self.mdio_read(1, 4);
        assert_eq!(advertised & 0x01e0, 0x01e0);
        let control = self.mdio_read(1, 0);
        self.mdio_write(1, 0, control | 0x1200);
    }

    /// `genphy_read_status`: whether the link is up, its speed, and full duplex.
    pub(crate) fn link(&mut self) -> Option<(u32, bool)> {
        let control = self.mdio_read(1, 0);
        assert_eq!(control & 0x0200, 0, "negotiation has been started");
        // genphy_update_link reads twice: the bit of the link latches.
        self.mdio_read(1, 1);
        let status = self.mdio_read(1, 1);
        if status & 0x0024 != 0x0024 {
            return None;
        }
        let common = self.mdio_read(1, 4) & self.mdio_read(1, 5);
        let speed = if common & 0x0180 != 0 { 100 } else { 10 };
        Some((speed, common & 0x0140 != 0))
    }

    /// `smsc95xx_reset`.
    fn reset(&mut self) {
        self.write(HW_CFG, 8);
        assert_eq!(self.read(HW_CFG) & 8, 0, "reset is done");
        let [a, b, c, d, e, f] = self.mac;
        self.write(ADDRL, u32::from_le_bytes([a, b, c, d]));
        self.write(ADDRH, u32::from_le_bytes([e, f, 0, 0]));
        let value = self.read(HW_CFG);
        self.write(HW_CFG, value | 0x1000);
        self.write(BURST_CAP, (16 * 1024 + 5 * 512) / 512);
        assert_eq!(self.read(BURST_CAP), 37);
        self.write(BULK_IN_DLY, 0x2000);
        assert_eq!(self.read(BULK_IN_DLY), 0x2000);
        let value = self.read(HW_CFG);
        self.write(HW_CFG, (value | 0x22) & !0x600 | (self.align as u32) << 9);
        assert_eq!(self.read(HW_CFG), 0x1022 | (self.align as u32) << 9);
        self.write(INT_STS, !0);
        self.read(ID_REV);
        let value = self.read(LED_GPIO_CFG);
        self.write(LED_GPIO_CFG, value | 0x0111_0000);
        self.write(FLOW, 0);
        self.write(AFC_CFG, 0x00f8_30a1);
        self.mac_cr = self.read(MAC_CR);
        self.write(VLAN1, 0x8100);
        let value = self.read(COE_CR) & !0x0001_0001;
        self.write(COE_CR, value | 0x0001_0000 | u32::from(self.rx_checksum));
        self.set_multicast(&[]);
        let value = self.read(INT_EP_CTL);
        self.write(INT_EP_CTL, value | 0x8000);
        self.mac_cr |= 0x8;
        self.write(MAC_CR, self.mac_cr);
        self.write(TX_CFG, 4);
        self.mac_cr |= 0x4;
        self.write(MAC_CR, self.mac_cr);
    }

    /// `smsc95xx_set_multicast`, by the numbers of bits in the table.
    pub(crate) fn set_multicast(&mut self, bits: &[u32]) {
        let hash = bits.iter().fold(0u64, |hash, bit| hash | 1 << bit);
        self.mac_cr &= !0x000c_2000;
        if !bits.is_empty() {
            self.mac_cr |= 0x2000;
        }
        self.write(HASHH, (hash >> 32) as u32);
        self.write(HASHL, hash as u32);
        self.write(MAC_CR, self.mac_cr);
    }

    /// `smsc95xx_tx_fixup`; with a checksum from `checksum.0` on, at `checksum.1`.
    pub(crate) fn tx_fixup(frame: &[u8], checksum: Option<(u16, u16)>) -> Vec<u8> {
        let mut bytes = frame.len() as u32;
        let mut b = 0;
        let mut preamble = Vec::new();
        if let Some((from, at)) = checksum {
            bytes += 4;
            b |= 0x4000;
            preamble.extend_from_slice(&from.to_le_bytes());
            preamble.extend_from_slice(&at.to_le_bytes());
        }
        let mut transfer = (bytes | 0x3000).to_le_bytes().to_vec();
        transfer.extend_from_slice(&(bytes | b).to_le_bytes());
        transfer.extend_from_slice(&preamble);
        transfer.extend_from_slice(frame);
        transfer
    }

    /// `smsc95xx_rx_fixup`: the frames, and the sums of those that have one; nothing if it
    /// returns 0. Frames with an error are left out and counted.
    pub(crate) fn rx_fixup(&self, transfer: &[u8]) -> Option<Received> {
        let mut received = Received::default();
        let mut skb = transfer;
        // hard_header_len, with what TX needs
        if skb.len() < 14 + 12 {
            return None;
        }
        while !skb.is_empty() {
            // It reads four bytes even where there are fewer.
            let mut header = [0; 4];
            let there = skb.len().min(4);
            header[..there].copy_from_slice(&skb[..there]);
            let header = u32::from_le_bytes(header);
            // skb_pull() does nothing where the skb is shorter: that is how an offset
            // which only one side knows of keeps the kernel in this loop.
            let before = skb.len();
            skb = skb.get(4 + self.align..).unwrap_or(skb);
            let size = (header >> 16 & 0x3fff) as usize;
            let padding = (4 - (size + self.align) % 4) % 4;
            if size > skb.len() {
                return None;
            }
            if header & 0x8000 != 0 {
                received.errors += 1;
            } else {
                if size > 1514 + 12 {
                    return None;
                }
                let mut packet = &skb[..size];
                if self.rx_checksum
                    && let Some((rest, sum)) = packet.split_last_chunk::<2>()
                {
                    received.sums.push(u16::from_be_bytes(*sum));
                    packet = rest;
                }
                if let Some((frame, _check)) = packet.split_last_chunk::<4>() {
                    received.frames.push(frame.to_vec());
                }
                if skb.len() == size {
                    return Some(received);
                }
            }
            skb = &skb[size..];
            if !skb.is_empty() {
                skb = skb.get(padding..).unwrap_or(skb);
            }
            assert!(skb.len() < before, "the kernel would stay here for good");
        }
        Some(received)
    }
}

/// What a driver got out of a transfer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) sums: Vec<u16>,
    pub(crate) errors: usize,
}
