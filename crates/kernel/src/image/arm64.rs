//! Images of arm64: the raw `Image` (Documentation/arch/arm64/booting.rst), EFI zboot around one
//! (drivers/firmware/efi/libstub/zboot-header.S), and the ELF file that it is made of.

use object::LittleEndian;
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};

use super::{IMAGE_MAX_BYTES, ImageError, read_u32};

/// Of the raw image's header.
const MAGIC: &[u8] = b"ARM\x64";
const MAGIC_AT: usize = 0x38;
const HEADER_BYTES: usize = 0x40;
const FLAGS_AT: usize = 0x18;
/// Of its flags.
const BIG_ENDIAN: u32 = 1;
const PAGE_SHIFT: u32 = 1;
const PAGE_MASK: u32 = 3;

/// Of an EFI program; an image may also be one.
const MZ: &[u8] = b"MZ";
const PE: &[u8] = b"PE\0\0";
const PE_AT: usize = 0x3c;
const COFF_BYTES: usize = 24;
const SECTION_BYTES: usize = 40;

/// Whether it begins like a raw image.
pub(super) fn is_image(data: &[u8]) -> bool {
    data.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(MAGIC)
}

/// Check that a raw image is whole, as far as its header has its size, and that guests can boot it.
pub(super) fn check(data: &[u8]) -> Result<(), ImageError> {
    if data.len() < HEADER_BYTES || !is_image(data) {
        return Err(ImageError::NotElf { reason: "it has no header of an arm64 image".to_owned() });
    }
    let flags = read_u32(data, FLAGS_AT);
    if flags & BIG_ENDIAN != 0 {
        return Err(ImageError::BigEndian);
    }
    // Zero is "unspecified", of kernels before 3.17.
    let page_bytes = match flags >> PAGE_SHIFT & PAGE_MASK {
        2 => 16 << 10,
        3 => 64 << 10,
        _ => 4 << 10,
    };
    if page_bytes != 4 << 10 {
        return Err(ImageError::LargePages { page_bytes });
    }
    let (have_bytes, need_bytes) = (data.len() as u64, sections_end(data));
    if need_bytes > have_bytes {
        return Err(ImageError::Truncated { have_bytes, need_bytes });
    }
    Ok(())
}

/// The end of an EFI program's content in its file; 0 for other files.
fn sections_end(data: &[u8]) -> u64 {
    let Some((pe, count, optional_bytes)) = pe_header(data) else {
        return 0;
    };
    let first = pe + COFF_BYTES + usize::from(optional_bytes);
    let mut end = 0;
    for number in 0..usize::from(count) {
        let at = first + number * SECTION_BYTES;
        if data.len() < at + SECTION_BYTES {
            return (at + SECTION_BYTES) as u64;
        }
        let (size, from) = (read_u32(data, at + 16), read_u32(data, at + 20));
        end = end.max(u64::from(size) + u64::from(from));
    }
    end
}

/// Where the PE header is, its number of sections, and the size of its optional header.
fn pe_header(data: &[u8]) -> Option<(usize, u16, u16)> {
    let pe = pe_at(data)?;
    let half = |at: usize| Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?));
    Some((pe, half(pe + 6)?, half(pe + 20)?))
}

fn pe_at(data: &[u8]) -> Option<usize> {
    if !data.starts_with(MZ) || data.len() < HEADER_BYTES {
        return None;
    }
    let pe = read_u32(data, PE_AT) as usize;
    (data.get(pe..)?.starts_with(PE)).then_some(pe)
}

/// Of an EFI program that unpacks an image and boots it (`CONFIG_EFI_ZBOOT`).
const ZBOOT: &[u8] = b"zimg";
const ZBOOT_AT: usize = 4;
const PAYLOAD_OFFSET_AT: usize = 8;
const PAYLOAD_SIZE_AT: usize = 12;

/// Whether it begins like an EFI zboot image.
pub(super) fn is_zboot(data: &[u8]) -> bool {
    data.starts_with(MZ) && data.get(ZBOOT_AT..ZBOOT_AT + ZBOOT.len()) == Some(ZBOOT)
}

/// The compressed image in an EFI zboot image.
pub(super) fn zboot_payload(data: &[u8]) -> Result<&[u8], ImageError> {
    let truncated =
        |need_bytes: u64| ImageError::Truncated { have_bytes: data.len() as u64, need_bytes };
    if data.len() < HEADER_BYTES {
        return Err(truncated(HEADER_BYTES as u64));
    }
    if let Some(machine) = other_machine(data) {
        return Err(ImageError::OtherMachine { machine: machine.to_owned() });
    }
    let offset = read_u32(data, PAYLOAD_OFFSET_AT);
    let end = u64::from(offset) + u64::from(read_u32(data, PAYLOAD_SIZE_AT));
    let payload = data.get(offset as usize..end as usize);
    payload.ok_or_else(|| truncated(end))
}

/// The raw image of an ELF file, as from `objcopy -O binary`.
pub(super) fn flat(vmlinux: &[u8]) -> Result<Vec<u8>, ImageError> {
    let not_elf = |reason: &str| ImageError::NotElf { reason: reason.to_owned() };
    let file =
        ElfFile64::<LittleEndian>::parse(vmlinux).map_err(|error| not_elf(&error.to_string()))?;
    let endian = LittleEndian;
    let loaded = || {
        let headers = file.elf_program_headers().iter();
        headers.filter(|of| of.p_type(endian) == elf::PT_LOAD && of.p_filesz(endian) > 0)
    };
    let base = loaded().map(|of| of.p_vaddr(endian)).min();
    let base = base.ok_or_else(|| not_elf("it has no segment to load"))?;
    let mut image = Vec::new();
    for segment in loaded() {
        let bytes = segment
            .data(endian, vmlinux)
            .map_err(|()| not_elf("a segment is outside of the file"))?;
        let at = segment.p_vaddr(endian) - base;
        let end = at.saturating_add(bytes.len() as u64);
        if end > IMAGE_MAX_BYTES {
            return Err(not_elf("its segments are too far apart"));
        }
        let (at, end) = (at as usize, end as usize);
        if image.len() < end {
            image.resize(end, 0);
        }
        image[at..end].copy_from_slice(bytes);
    }
    Ok(image)
}

/// The kind of machine that an unsupported image is for, if known.
pub(super) fn other_machine(data: &[u8]) -> Option<&'static str> {
    // arch/arm/boot/compressed/head.S
    const ZIMAGE_AT: usize = 0x24;
    const ZIMAGE: u32 = 0x016f_2818;
    let word = |at: usize| Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?));
    if word(ZIMAGE_AT) == Some(ZIMAGE) {
        return Some("32-bit ARM");
    }
    // Documentation/arch/riscv/boot-image-header.rst
    if data.get(MAGIC_AT..MAGIC_AT + 4) == Some(b"RSC\x05") {
        return Some("RISC-V");
    }
    let pe = pe_at(data)?;
    match u16::from_le_bytes(*data.get(pe + PE.len()..)?.first_chunk()?) {
        0x01c2 | 0x01c4 => Some("32-bit ARM"),
        0x5064 => Some("RISC-V"),
        0x6264 => Some("LoongArch"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Compression;
    use crate::image::{BootForm, KernelImage};
    use crate::testing::{arm64_image, elf_around, pack, zboot_image};
    use netplumb_model::arch::Arch;
    use object::Endianness;

    const RELEASE: &str = "6.1.0-56-arm64";
    /// 4 KiB pages, anywhere in memory.
    const FLAGS: u64 = 0b1010;
    const PE_ARM64: u16 = 0xaa64;

    fn parse(data: &[u8]) -> Result<KernelImage, ImageError> {
        KernelImage::parse(data.to_vec())
    }

    fn check_found(data: &[u8], raw: &[u8], compression: Option<Compression>) {
        let kernel = parse(data).unwrap();
        assert_eq!(
            (kernel.arch, kernel.boot, kernel.compression),
            (Arch::Arm64, BootForm::Raw, compression)
        );
        assert_eq!(kernel.release, RELEASE);
        assert!(kernel.unpacked == raw);
    }

    /// Check that the raw image comes out of all forms that a kernel's build makes.
    #[test]
    fn forms() {
        let raw = arm64_image(RELEASE, FLAGS);
        check_found(&raw, &raw, None);
        for (ending, form) in
            [("gz", Compression::Gzip), ("xz", Compression::Xz), ("zst", Compression::Zstd)]
        {
            let packed = pack(&format!("Image.{ending}"), &raw);
            check_found(&packed, &raw, Some(form));
            check_found(&zboot_image(&packed, PE_ARM64), &raw, Some(form));
        }
        let elf = elf_around(&raw, 183, Endianness::Little);
        check_found(&elf, &raw, None);
    }

    /// Check that kernels before Linux 3.17, whose header lacks the page size, are accepted, and kernels without an EFI
    /// header.
    #[test]
    fn old_and_plain() {
        let raw = arm64_image(RELEASE, 0);
        check_found(&raw, &raw, None);
        let mut plain = arm64_image(RELEASE, FLAGS);
        plain[..2].copy_from_slice(&[0x1f, 0x20]);
        check_found(&plain, &plain, None);
    }

    /// Check that images cut anywhere are errors, in all forms.
    #[test]
    fn truncated() {
        let raw = arm64_image(RELEASE, FLAGS);
        for image in [
            raw.clone(),
            pack("Image.gz", &raw),
            zboot_image(&pack("Image.zst", &raw), PE_ARM64),
            elf_around(&raw, 183, Endianness::Little),
        ] {
            for end in 0..image.len() {
                parse(&image[..end]).unwrap_err();
            }
        }
        for end in [0x100, 0x1ff, raw.len() - 1] {
            let error = parse(&raw[..end]).unwrap_err();
            assert!(matches!(error, ImageError::Truncated { .. }), "{error}");
        }
    }

    /// Check that damaged headers are errors, and nothing is read beyond the file.
    #[test]
    fn damaged() {
        let raw = arm64_image(RELEASE, FLAGS);
        for at in 0..0x40 {
            for value in [0, 0x7f, 0xff] {
                let mut image = raw.clone();
                image[at] = value;
                let _ = parse(&image);
                let mut image = zboot_image(&pack("Image.gz", &raw), PE_ARM64);
                image[at] = value;
                let _ = parse(&image);
                let mut image = elf_around(&raw, 183, Endianness::Little);
                image[64 + at] = value;
                let _ = parse(&image);
            }
        }
        let error = parse(&zboot_image(b"garbage!", PE_ARM64)).unwrap_err();
        assert!(matches!(error, ImageError::UnknownCompression { .. }));
        let error = parse(&zboot_image(&pack("x.gz", b"no kernel"), PE_ARM64)).unwrap_err();
        assert!(matches!(error, ImageError::NotAKernel), "{error}");
    }

    /// Check that kernels which guests can't boot are refused by their kind.
    #[test]
    fn refused() {
        let refused = |image: &[u8], part: &str| {
            let error = parse(image).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
            assert_eq!(error.lines().count(), 1);
        };
        let image = |flags| arm64_image(RELEASE, flags);
        refused(&image(FLAGS | 1), "CONFIG_CPU_LITTLE_ENDIAN");
        refused(&image(0b1100), "pages of 16 KiB");
        refused(&image(0b1110), "pages of 64 KiB");
        let raw = image(FLAGS);
        refused(&elf_around(&raw, 183, Endianness::Big), "big-endian");
        refused(&elf_around(&raw, 243, Endianness::Little), "for RISC-V");
        refused(&elf_around(&raw, 22, Endianness::Big), "for s390x");
        refused(&elf_around(&raw, 4711, Endianness::Little), "machine 4711");
        refused(&zboot_image(b"x", 0x6264), "for LoongArch");
        let mut riscv = raw.clone();
        riscv[0x38..0x3c].copy_from_slice(b"RSC\x05");
        refused(&riscv, "for RISC-V");
        let mut zimage = vec![0; 0x1000];
        zimage[0x24..0x28].copy_from_slice(&0x016f_2818u32.to_le_bytes());
        refused(&zimage, "for 32-bit ARM");
        refused(b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x28\0", "32-bit");
    }

    /// Check that types are found in an image, which has no sections.
    #[test]
    fn types() {
        let mut raw = arm64_image(RELEASE, FLAGS);
        // No types; a string that is empty.
        let words = [0u32, 0, 0, 1].map(u32::to_le_bytes);
        let head = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        let btf = [&head, words.as_flattened(), b"\0"].concat();
        raw.extend(btf);
        assert!(parse(&raw).unwrap().btf().is_ok());
        raw.pop();
        assert!(parse(&raw).unwrap().btf().is_err());
    }
}
