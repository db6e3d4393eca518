//! The guest's initramfs: this binary as init, and modules in load order.

use std::io::{self, Read, Write};

use cpio::newc::Builder;

/// A module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The uncompressed object.
    pub bytes: Vec<u8>,
    /// Whether it must load; others may fail, like soft dependencies with `modprobe`.
    pub required: bool,
}

/// Directory of the modules: `NNN-name.ko` or, if it may fail, `NNN-name.soft.ko`, loaded in that
/// order.
pub const MODULES: &str = "/modules";

/// Size to which this binary is padded with zeros, or to a multiple of it. The addresses where the
/// kernel puts the archive and its files decide which ones come after, and with them the buckets of
/// hash tables that are keyed by address: without padding, counts changed by some instructions per
/// packet with each build of the program.
const PROGRAM_BYTES: usize = 32 << 20;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Build an uncompressed newc archive, which the guest unpacks at the speed of a copy.
///
/// # Errors
/// Out of memory.
pub fn build(init: &[u8], modules: &[Module]) -> io::Result<Vec<u8>> {
    let filled = init.len().next_multiple_of(PROGRAM_BYTES);
    let size = filled + modules.iter().map(|m| m.bytes.len() + 256).sum::<usize>() + 4096;
    let mut archive = Vec::with_capacity(size);
    let mut inode = 0;
    let mut add = |name: &str, mode: u32, device: Option<(u32, u32)>, bytes: &[u8], zeros| {
        inode += 1;
        let (major, minor) = device.unwrap_or((0, 0));
        let builder = Builder::new(name)
            .ino(inode)
            .mode(mode)
            .nlink(1)
            .rdev_major(major)
            .rdev_minor(minor);
        let mut writer = builder.write(&mut archive, (bytes.len() + zeros) as u32);
        writer.write_all(bytes)?;
        io::copy(&mut io::repeat(0).take(zeros as u64), &mut writer)?;
        writer.finish().map(drop)
    };
    for folder in ["dev", "proc", "sys", "tmp", MODULES.trim_start_matches('/')] {
        add(folder, DIRECTORY, None, &[], 0)?;
    }
    add("dev/console", CHARACTER_DEVICE, Some((5, 1)), &[], 0)?;
    add("init", PROGRAM, None, init, filled - init.len())?;
    for (n, module) in modules.iter().enumerate() {
        let folder = MODULES.trim_start_matches('/');
        let soft = if module.required { "" } else { ".soft" };
        add(
            &format!("{folder}/{n:03}-{}{soft}.ko", module.name),
            FILE,
            None,
            &module.bytes,
            0,
        )?;
    }
    cpio::newc::trailer(&mut archive)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the guest's free memory does not depend on the size of this binary.
    #[test]
    fn the_size_of_a_build_does_not_matter() {
        let one = build(&[1; 1000], &[]).unwrap();
        let other = build(&[1; 1_234_567], &[]).unwrap();
        assert_eq!(one.len(), other.len());
    }

    /// Check that files are unpacked as they were, in order, with their modes.
    #[test]
    fn reads_back() {
        let modules = [
            Module {
                name: "failover".into(),
                bytes: b"one".to_vec(),
                required: false,
            },
            Module {
                name: "virtio_net".into(),
                bytes: b"two".to_vec(),
                required: true,
            },
        ];
        let archive = build(b"#!init", &modules).unwrap();
        let mut rest = &archive[..];
        let mut seen = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            seen.push((reader.entry().name().to_string(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
        assert_eq!(
            seen,
            [
                ("dev".to_string(), DIRECTORY),
                ("proc".to_string(), DIRECTORY),
                ("sys".to_string(), DIRECTORY),
                ("tmp".to_string(), DIRECTORY),
                ("modules".to_string(), DIRECTORY),
                ("dev/console".to_string(), CHARACTER_DEVICE),
                ("init".to_string(), PROGRAM),
                ("modules/000-failover.soft.ko".to_string(), FILE),
                ("modules/001-virtio_net.ko".to_string(), FILE),
            ]
        );
    }
}
