//! What `drivers/net/usb/cdc_ncm.c` of Linux 6.1 does.

use super::Pipe;
use crate::device::{Setup, Stall};

/// The driver, with the way to its device.
pub(crate) struct NcmDriver<'a> {
    pub(crate) pipe: &'a mut dyn Pipe,
    pub(crate) rx_max: u32,
    pub(crate) tx_max: u32,
    pub(crate) mac: String,
}

impl<'a> NcmDriver<'a> {
    pub(crate) fn new(pipe: &'a mut dyn Pipe) -> NcmDriver<'a> {
        NcmDriver { pipe, rx_max: 0, tx_max: 0, mac: String::new() }
    }

    fn descriptor(&mut self, value: u16, length: u16) -> Vec<u8> {
        let setup = Setup {
            request_type: 0x80,
            request: 6,
            value,
            index: if value >> 8 == 3 { 0x0409 } else { 0 },
            length,
        };
        self.pipe.request(setup, &[]).unwrap()
    }

    fn set_interface(&mut self, interface: u16, alternate: u16) {
        let setup =
            Setup { request_type: 1, request: 11, value: alternate, index: interface, length: 0 };
        self.pipe.request(setup, &[]).unwrap();
    }

    pub(crate) fn class(
        &mut self,
        request: u8,
        is_in: bool,
        length: u16,
        data: &[u8],
    ) -> Result<Vec<u8>, Stall> {
        let setup = Setup {
            request_type: if is_in { 0xa1 } else { 0x21 },
            request,
            value: 0,
            index: 0,
            length,
        };
        self.pipe.request(setup, data)
    }

    /// `cdc_ncm_bind_common`, `cdc_ncm_init` and `cdc_ncm_setup`, step by step.
    pub(crate) fn bind(&mut self) {
        let configuration = self.descriptor(0x200, 9);
        let total = u16::from_le_bytes([configuration[2], configuration[3]]);
        let configuration = self.descriptor(0x200, total);
        assert_eq!(configuration.len(), usize::from(total));
        let mut union = None;
        let mut ethernet = None;
        let mut has_ncm = false;
        let mut endpoints = Vec::new();
        let mut rest = &configuration[..];
        while let Some(&length) = rest.first() {
            let (descriptor, after) = rest.split_at(usize::from(length));
            match (descriptor[1], descriptor.get(2)) {
                (0x24, Some(0x06)) => union = Some(u16::from(descriptor[4])),
                (0x24, Some(0x0f)) => {
                    ethernet = Some((descriptor[3], descriptor[8], descriptor[9]))
                }
                (0x24, Some(0x1a)) => has_ncm = true,
                (5, Some(&endpoint)) => endpoints.push((endpoint, descriptor[3])),
                _ => {}
            }
            rest = after;
        }
        assert!(has_ncm);
        assert_eq!(endpoints, [(0x83, 3), (0x81, 2), (0x02, 2)]);
        let data = union.unwrap();
        let (mac, low, high) = ethernet.unwrap();
        assert_eq!(u16::from_le_bytes([low, high]), 1514);
        self.set_interface(data, 1);
        self.set_interface(data, 0);
        let parameters = self.class(0x80, true, 28, &[]).unwrap();
        assert_eq!(parameters.len(), 28);
        assert_eq!(parameters[..4], [28, 0, 1, 0]);
        let u32_at = |at: usize| u32::from_le_bytes(parameters[at..at + 4].try_into().unwrap());
        self.rx_max = u32_at(4);
        self.tx_max = u32_at(16);
        self.set_interface(data, 1);
        let string = self.descriptor(0x300 | u16::from(mac), 255);
        assert_eq!(usize::from(string[0]), string.len());
        self.mac = string[2..].iter().step_by(2).map(|&c| c as char).collect();
    }

    /// `cdc_ncm_fill_tx_frame`, with a table of 40 entries before the frames, as there.
    pub(crate) fn tx_fixup(frames: &[&[u8]], sequence: u16) -> Vec<u8> {
        let mut ntb = b"NCMH\x0c\0".to_vec();
        ntb.extend_from_slice(&sequence.to_le_bytes());
        ntb.extend_from_slice(&[0, 0, 12, 0]);
        ntb.extend_from_slice(b"NCM0");
        ntb.extend_from_slice(&(8 + 4 * (frames.len() as u16 + 1)).to_le_bytes());
        let entries = ntb.len() + 2;
        ntb.resize(12 + 8 + 4 * 41, 0);
        for (n, frame) in frames.iter().enumerate() {
            // Datagrams begin so that what is after 14 bytes is aligned.
            ntb.resize(ntb.len().next_multiple_of(4) + 2, 0);
            let index = (ntb.len() as u16).to_le_bytes();
            let bytes = (frame.len() as u16).to_le_bytes();
            ntb[entries + 4 * n..][..2].copy_from_slice(&index);
            ntb[entries + 4 * n + 2..][..2].copy_from_slice(&bytes);
            ntb.extend_from_slice(frame);
        }
        let length = (ntb.len() as u16).to_le_bytes();
        ntb[8..10].copy_from_slice(&length);
        ntb
    }

    /// `cdc_ncm_rx_fixup`: the sequence number and the frames; nothing if it returns 0.
    pub(crate) fn rx_fixup(&self, ntb: &[u8]) -> Option<(u16, Vec<Vec<u8>>)> {
        let u16_at = |at: usize| {
            let bytes = ntb.get(at..at + 2)?;
            Some(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        if ntb.len() < 20 || &ntb[..4] != b"NCMH" || u32::from(u16_at(8)?) > self.rx_max {
            return None;
        }
        let mut frames = Vec::new();
        let mut at = usize::from(u16_at(10)?);
        while at != 0 {
            assert_eq!(&ntb[at..at + 4], b"NCM0");
            let entries = usize::from(u16_at(at + 4)? - 8) / 4 - 1;
            for n in 0..entries {
                let index = usize::from(u16_at(at + 8 + 4 * n)?);
                let bytes = usize::from(u16_at(at + 10 + 4 * n)?);
                assert!(index != 0 && bytes >= 14);
                frames.push(ntb[index..index + bytes].to_vec());
            }
            at = usize::from(u16_at(at + 6)?);
        }
        Some((u16_at(6)?, frames))
    }
}
