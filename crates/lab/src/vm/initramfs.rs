//! The guest's root: our own binary as init, and its modules in load order.

use std::io::{self, Read, Write};

use cpio::newc::Builder;

/// A module, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The uncompressed object.
    pub bytes: Vec<u8>,
    /// Whether the guest can't do without; others may fail to load, as `modprobe`
    /// lets a soft dependency.
    pub required: bool,
}

/// Folder of the modules: `NNN-name.ko` or, where it may fail, `NNN-name.soft.ko`,
/// to be loaded in that order.
pub const MODULES: &str = "/modules";

/// What our binary is filled up to, with zeros, or to a multiple of it. Where the kernel puts
/// the archive and its files decides which addresses come after, and with them the buckets of
/// hash tables that are keyed by address: without this, counts changed by some instructions
/// a packet with each build of the program.
const PROGRAM_BYTES: usize = 32 << 20;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// A newc archive, uncompressed: the guest unpacks it at the speed of a copy.
///
/// # Errors
/// Nothing but a lack of memory.
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

    /// Check that the guest has as much room left whatever the size of our binary is.
    #[test]
    fn the_size_of_a_build_does_not_matter() {
        let one = build(&[1; 1000], &[]).unwrap();
        let other = build(&[1; 1_234_567], &[]).unwrap();
        assert_eq!(one.len(), other.len());
    }

    /// Check that what goes in comes out, in order, with its modes.
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
