//! The guest's initramfs: its ACPI table, this binary as init, and modules in load order.

use std::io::{self, Read, Write};

use cpio::newc::Builder;
use netplumb_kernel::signature;
use netplumb_model::arch::Arch;

use super::{acpi, board};

/// A module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The module's name, without `.ko`.
    pub name: String,
    /// The uncompressed object.
    pub bytes: Vec<u8>,
    /// Its options, as insmod(8) takes them; usually none.
    pub options: String,
    /// Whether it must load; others may fail, like soft dependencies with `modprobe`.
    pub required: bool,
}

/// Directory of the modules: `NNN-name.ko` or, if it may fail, `NNN-name.soft.ko`, loaded in that
/// order.
pub const MODULES: &str = "/modules";

/// The extension of the file with a module's options, instead of `ko`; a module without options has no such file.
pub(super) const OPTIONS: &str = "options";

/// The extension of a module that may fail to load.
pub(super) const SOFT: &str = ".soft";

/// The module's own name, of the name of its file without `.ko`.
pub(super) fn name_in(stem: &str) -> &str {
    let name = stem.split_once('-').map_or(stem, |(_, name)| name);
    name.trim_end_matches(SOFT)
}

/// Size to which the agent is padded with zeros, or to a multiple of it. The addresses where the
/// kernel puts the archive and its files decide which ones come after, and with them the buckets of
/// hash tables that are keyed by address: without padding, counts changed by some instructions per
/// packet with each build of the program.
const PROGRAM_BYTES: usize = 16 << 20;

/// Size to which a module without a signature is padded, or to a multiple of it: one with a change
/// is loaded from as many pages as one without. A signature is looked for at the end of a file.
const MODULE_BYTES: usize = 16 << 10;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Build an uncompressed newc archive, which the guest unpacks at the speed of a copy.
///
/// # Errors
/// Out of memory.
pub fn build(arch: Arch, init: &[u8], modules: &[Module]) -> io::Result<Vec<u8>> {
    let filled = init.len().next_multiple_of(PROGRAM_BYTES);
    let size = filled
        + modules
            .iter()
            .map(|m| m.bytes.len() + MODULE_BYTES + m.options.len() + 512)
            .sum::<usize>()
        + 4096;
    let mut archive = Vec::with_capacity(size);
    let mut inode = 0;
    let mut add = |name: &str, mode: u32, device: Option<(u32, u32)>, bytes: &[u8], zeros| {
        inode += 1;
        let (major, minor) = device.unwrap_or((0, 0));
        let builder =
            Builder::new(name).ino(inode).mode(mode).nlink(1).rdev_major(major).rdev_minor(minor);
        let mut writer = builder.write(&mut archive, (bytes.len() + zeros) as u32);
        writer.write_all(bytes)?;
        io::copy(&mut io::repeat(0).take(zeros as u64), &mut writer)?;
        writer.finish().map(drop)
    };
    if let Some(dsdt) = board::board_for(arch).dsdt {
        add(acpi::PATH, FILE, None, dsdt, 0)?;
    }
    for folder in ["dev", "proc", "sys", "tmp", MODULES.trim_start_matches('/')] {
        add(folder, DIRECTORY, None, &[], 0)?;
    }
    add("dev/console", CHARACTER_DEVICE, Some((5, 1)), &[], 0)?;
    add("init", PROGRAM, None, init, filled - init.len())?;
    for (n, module) in modules.iter().enumerate() {
        let folder = MODULES.trim_start_matches('/');
        let soft = if module.required { "" } else { SOFT };
        add(
            &format!("{folder}/{n:03}-{}{soft}.ko", module.name),
            FILE,
            None,
            &module.bytes,
            padding(&module.bytes),
        )?;
        if !module.options.is_empty() {
            let name = format!("{folder}/{n:03}-{}{soft}.{OPTIONS}", module.name);
            add(&name, FILE, None, module.options.as_bytes(), 0)?;
        }
    }
    cpio::newc::trailer(&mut archive)?;
    Ok(archive)
}

/// Zeros to add to a module.
fn padding(module: &[u8]) -> usize {
    match signature::unsigned(module).len() == module.len() {
        true => module.len().next_multiple_of(MODULE_BYTES) - module.len(),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the guest's memory does not depend on the size of a module, unless that is signed.
    #[test]
    fn the_size_of_a_module_does_not_matter() {
        let of = |bytes: Vec<u8>| {
            let module =
                Module { name: "usbnet".into(), bytes, options: String::new(), required: true };
            build(Arch::X86_64, b"#!init", &[module]).unwrap().len()
        };
        assert_eq!(of(vec![1; 114_000]), of(vec![1; 114_040]));
        assert_eq!(padding(&[1; MODULE_BYTES]), 0);
        let mut signed = vec![0; 40];
        signed.extend(b"~Module signature appended~\n");
        assert_eq!(padding(&signed), 0);
    }

    /// Check that the guest's free memory does not depend on the size of this binary.
    #[test]
    fn the_size_of_a_build_does_not_matter() {
        let one = build(Arch::X86_64, &[1; 1000], &[]).unwrap();
        let other = build(Arch::X86_64, &[1; 1_234_567], &[]).unwrap();
        assert_eq!(one.len(), other.len());
    }

    /// Check that files are unpacked as they were, in order, with their modes.
    #[test]
    fn reads_back() {
        let modules = [
            Module {
                name: "failover".into(),
                bytes: b"one".to_vec(),
                options: String::new(),
                required: false,
            },
            Module {
                name: "virtio_net".into(),
                bytes: b"two".to_vec(),
                options: "csum=0".into(),
                required: true,
            },
        ];
        let archive = build(Arch::X86_64, b"#!init", &modules).unwrap();
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
        assert_eq!(name_in("000-failover.soft"), "failover");
        assert_eq!(name_in("001-virtio_net"), "virtio_net");
        assert_eq!(
            seen,
            [
                (acpi::PATH.to_string(), FILE),
                ("dev".to_string(), DIRECTORY),
                ("proc".to_string(), DIRECTORY),
                ("sys".to_string(), DIRECTORY),
                ("tmp".to_string(), DIRECTORY),
                ("modules".to_string(), DIRECTORY),
                ("dev/console".to_string(), CHARACTER_DEVICE),
                ("init".to_string(), PROGRAM),
                ("modules/000-failover.soft.ko".to_string(), FILE),
                ("modules/001-virtio_net.ko".to_string(), FILE),
                ("modules/001-virtio_net.options".to_string(), FILE),
            ]
        );
    }
}
