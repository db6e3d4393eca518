//! Fixtures that the tests build for themselves.

use std::fs;
use std::path::Path;

use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness, SectionKind};

/// A relocatable ELF file whose `.modinfo` section holds `info`.
pub(crate) fn module_elf(info: &str) -> Vec<u8> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let section = file.add_section(Vec::new(), b".modinfo".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(section, info.as_bytes(), 1);
    file.write().unwrap()
}

/// Compresses `data` in the form that the ending of `name` stands for.
pub(crate) fn pack(name: &str, data: &[u8]) -> Vec<u8> {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("xz") => liblzma::encode_all(data, 1).unwrap(),
        Some("zst") => {
            ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
        }
        Some("gz") => {
            use std::io::Write;
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(data).unwrap();
            out.finish().unwrap()
        }
        _ => data.to_vec(),
    }
}

/// Writes a module with that `.modinfo`, compressed by the extension of its name.
pub(crate) fn write_module(path: &Path, info: &str) {
    let name = path.file_name().unwrap().to_str().unwrap();
    fs::write(path, pack(name, &module_elf(info))).unwrap();
}

/// A tiny x86-64 ELF file with one segment to load that holds the kernel's banner, and optionally a PVH note. Nothing
/// follows the segments.
pub(crate) fn vmlinux_elf(release: &str, pvh: bool) -> Vec<u8> {
    let note: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0\0\0\0\x01\0\0\0\0";
    let notes = if pvh { note } else { b"" };
    let banner = format!("%s version %s\0Linux version {release} (builder)\n\0");
    let text = [banner.as_bytes(), &[0x90; 300]].concat();

    let mut out = Vec::new();
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2u16, 62] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&1u32.to_le_bytes());
    for word in [0x100_0000u64, 64, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 2, 64, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    let start = 64 + 2 * 56;
    for (kind, offset, size) in [(4u32, start, notes.len()), (1, start + notes.len(), text.len())] {
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&5u32.to_le_bytes());
        for word in [offset, 0x100_0000, 0x100_0000, size, size, 4] {
            out.extend_from_slice(&(word as u64).to_le_bytes());
        }
    }
    out.extend_from_slice(notes);
    out.extend_from_slice(&text);
    out
}

/// A raw arm64 image with these flags, which is a program for EFI with one section up to its end.
pub(crate) fn arm64_image(release: &str, flags: u64) -> Vec<u8> {
    let mut out = vec![0u8; 0x200];
    out[..2].copy_from_slice(b"MZ");
    out[0x18..0x20].copy_from_slice(&flags.to_le_bytes());
    out[0x38..0x3c].copy_from_slice(b"ARM\x64");
    out[0x3c..0x40].copy_from_slice(&0x40u32.to_le_bytes());
    out[0x40..0x44].copy_from_slice(b"PE\0\0");
    out[0x44..0x46].copy_from_slice(&0xaa64u16.to_le_bytes());
    out[0x46..0x48].copy_from_slice(&1u16.to_le_bytes());
    out[0x54..0x56].copy_from_slice(&0xa0u16.to_le_bytes());
    let text = format!("Linux version {release} (builder)\n\0");
    let section = 0x40 + 24 + 0xa0;
    for (at, word) in [(16, text.len()), (20, 0x200)] {
        let at = section + at;
        out[at..at + 4].copy_from_slice(&(word as u32).to_le_bytes());
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// An EFI zboot image around a payload, for a machine by its number in PE.
pub(crate) fn zboot_image(payload: &[u8], machine: u16) -> Vec<u8> {
    let mut out = vec![0u8; 0x100];
    out[..2].copy_from_slice(b"MZ");
    out[4..8].copy_from_slice(b"zimg");
    out[8..12].copy_from_slice(&0x100u32.to_le_bytes());
    out[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[0x3c..0x40].copy_from_slice(&0x40u32.to_le_bytes());
    out[0x40..0x44].copy_from_slice(b"PE\0\0");
    out[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// An ELF file for a machine, in this byte order, with an image in two segments to load.
pub(crate) fn elf_around(image: &[u8], machine: u16, order: Endianness) -> Vec<u8> {
    let [half, word, long] = [2, 4, 8].map(|size| {
        move |value: u64| match order {
            Endianness::Little => value.to_le_bytes()[..size].to_vec(),
            Endianness::Big => value.to_be_bytes()[8 - size..].to_vec(),
        }
    });
    let order = if order == Endianness::Little { 1 } else { 2 };
    let mut out = [b"\x7fELF\x02".as_slice(), &[order, 1, 0], &[0; 8]].concat();
    let begin = 64 + 2 * 56;
    let base = 0xffff_8000_0800_0000u64;
    out.extend([half(2), half(machine.into()), word(1)].concat());
    out.extend([long(base), long(64), long(0), word(0)].concat());
    out.extend([64, 56, 2, 64, 0, 0].map(half).concat());
    let (first, second) = image.split_at(image.len() / 2);
    for (at, of) in [(0, first), (first.len(), second)] {
        let address = base + at as u64;
        let (offset, size) = ((begin + at) as u64, of.len() as u64);
        out.extend([word(1), word(5)].concat());
        out.extend([offset, address, address, size, size, 4].map(long).concat());
    }
    [&out, image].concat()
}

/// A bzImage around a payload, with the unpacked size after it as the kernel's build leaves it
/// (for gzip that is the format's own trailer).
pub(crate) fn bz_image(release: &str, elf: &[u8], packed: &[u8]) -> Vec<u8> {
    let mut payload = packed.to_vec();
    if !packed.starts_with(&[0x1f, 0x8b]) {
        payload.extend_from_slice(&(elf.len() as u32).to_le_bytes());
    }
    let mut out = vec![0u8; 1024];
    out[0x1f1] = 1;
    out[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    out[0x202..0x206].copy_from_slice(b"HdrS");
    out[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
    out[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    out[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
    out[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let version = format!("{release} (builder@host) #1 SMP\0");
    out[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&payload);
    out
}
