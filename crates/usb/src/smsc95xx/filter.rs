//! Which frames the MAC takes from the wire.

/// How the driver has set the filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filter {
    pub(super) own: [u8; 6],
    pub(super) promiscuous: bool,
    pub(super) all_multicast: bool,
    pub(super) hashed: bool,
    pub(super) no_broadcast: bool,
    /// A bit for each value of the hash.
    pub(super) hash: u64,
}

impl Filter {
    pub(super) fn accepts(&self, frame: &[u8]) -> bool {
        let Some(&to) = frame.first_chunk::<6>() else {
            return false;
        };
        if self.promiscuous {
            true
        } else if to == [0xff; 6] {
            !self.no_broadcast
        } else if to[0] & 1 != 0 {
            self.all_multicast || self.hashed && self.hash >> hash(&to) & 1 != 0
        } else {
            to == self.own
        }
    }
}

/// The bit of an address in the table: the upper six of its CRC, as `smsc95xx_hash`.
pub(super) fn hash(address: &[u8; 6]) -> u32 {
    let mut crc = !0u32;
    for byte in address {
        for bit in 0..8 {
            let odd = crc >> 31 != u32::from(byte >> bit & 1);
            crc = crc << 1 ^ if odd { 0x04c1_1db7 } else { 0 };
        }
    }
    crc >> 26
}
