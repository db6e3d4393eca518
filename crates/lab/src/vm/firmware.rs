//! The devices of QEMU that a guest's agent reaches without a driver: the one by which it pauses, and
//! the firmware configuration device, from which it reads its requests and its random key.
//!
//! Both are I/O ports on x86-64; elsewhere they are memory, which /dev/mem and sysfs give access to.

#[cfg(target_arch = "aarch64")]
#[path = "firmware/memory.rs"]
mod access;
#[cfg(target_arch = "x86_64")]
#[path = "firmware/ports.rs"]
mod access;

pub(super) use access::{Firmware, Panic, Wire};

/// Key of the signature (docs/specs/fw_cfg.rst of QEMU).
const SIGNATURE_KEY: u16 = 0;
/// Key of the directory.
pub(super) const DIRECTORY_KEY: u16 = 0x19;
/// More is a damaged directory.
pub(super) const MAX_ITEMS: u32 = 4096;
/// Bit of pvpanic: "a panic has happened" (docs/specs/pvpanic.rst of QEMU).
const PANICKED: u8 = 1;

impl Firmware {
    /// Whether the device is there.
    fn is_there(&mut self) -> bool {
        let mut signature = [0; 4];
        self.select(SIGNATURE_KEY);
        self.fill(&mut signature);
        &signature == b"QEMU"
    }

    /// Read what comes next of the item.
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next();
        }
    }

    /// The item of this name, if there is one.
    ///
    /// # Errors
    /// It has more than `max_bytes`.
    pub(super) fn item(
        &mut self,
        name: &str,
        max_bytes: usize,
    ) -> std::io::Result<Option<Vec<u8>>> {
        self.select(DIRECTORY_KEY);
        let mut word = [0; 4];
        self.fill(&mut word);
        let count = u32::from_be_bytes(word).min(MAX_ITEMS);
        let mut found = None;
        for _ in 0..count {
            let mut entry = [0; 64];
            self.fill(&mut entry);
            found = found.or(item(&entry, name));
        }
        let Some((key, size)) = found else {
            return Ok(None);
        };
        if size > max_bytes {
            return Err(std::io::Error::other("the requests are too large"));
        }
        let mut bytes = vec![0; size];
        self.select(key);
        self.fill(&mut bytes);
        Ok(Some(bytes))
    }
}

/// Key and size of a directory entry, if it has this name.
pub(super) fn item(entry: &[u8; 64], wanted: &str) -> Option<(u16, usize)> {
    let name = &entry[8..];
    let name = &name[..name.iter().position(|b| *b == 0)?];
    let size = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
    let key = u16::from_be_bytes([entry[4], entry[5]]);
    (name == wanted.as_bytes()).then_some((key, size as usize))
}

#[cfg(test)]
mod tests {
    use super::super::rest::requests_item;
    use super::*;

    /// Check that an item is found by its complete name only.
    #[test]
    fn the_requests_are_found() {
        let entry = |name: &str| {
            let mut entry = [0; 64];
            entry[..4].copy_from_slice(&300_u32.to_be_bytes());
            entry[4..6].copy_from_slice(&0x2a_u16.to_be_bytes());
            entry[8..8 + name.len()].copy_from_slice(name.as_bytes());
            entry
        };
        let wanted = requests_item(1);
        assert_eq!(item(&entry("opt/netplumb/requests1"), &wanted), Some((0x2a, 300)));
        assert_eq!(item(&entry("opt/netplumb/requests"), &wanted), None);
        assert_eq!(item(&entry("opt/netplumb/requests12"), &wanted), None);
        assert_eq!(item(&[0xff; 64], &wanted), None);
    }
}
