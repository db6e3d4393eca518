//! Kernel images: the unpacked form, which boots faster, and the release.
//!
//! On x86-64 that is the ELF file in a `bzImage`, whose layout is the x86 boot protocol's
//! (`Documentation/arch/x86/boot.rst`); field names here are from its `setup_header`. On arm64 it is the raw image
//! (`arm64.rs`).

mod arm64;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use netplumb_model::arch::Arch;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::btf::{Btf, BtfError};
use crate::compression::{self, Compression, UnpackError};

/// Maximum size of an image, packed or unpacked.
pub const IMAGE_MAX_BYTES: u64 = 1 << 30;

/// The first version of the boot protocol that has `payload_offset`.
const VERSION_WITH_PAYLOAD: u16 = 0x0208;
/// Offset of an ELF file's class: 32 or 64 bits.
const EI_CLASS: usize = 4;
/// The ELF note of a kernel with a PVH entry.
const XEN_ELFNOTE_PHYS32_ENTRY: elf::NoteType = elf::NoteType(18);

/// An error of an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The image's file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// None of the forms of images.
    #[error(
        "not a kernel image: neither a bzImage, an arm64 Image (plain, compressed or as EFI zboot), \
         nor an ELF vmlinux of either"
    )]
    NotAKernel,
    /// It is for an architecture that guests can't have.
    #[error(
        "the kernel image is for {machine}, and guests are x86-64 or arm64: add a kernel for one of \
         them, such as debian or debian:arm64"
    )]
    OtherMachine {
        /// The architecture in words, or its number.
        machine: String,
    },
    /// A big-endian kernel.
    #[error(
        "the arm64 kernel image is big-endian, and guests are little-endian: build it with \
         CONFIG_CPU_LITTLE_ENDIAN"
    )]
    BigEndian,
    /// A kernel with larger pages than the lab is made for.
    #[error(
        "the arm64 kernel has pages of {} KiB, and guests need pages of 4 KiB: build it with \
         CONFIG_ARM64_4K_PAGES, or take a kernel such as debian:arm64", page_bytes / 1024
    )]
    LargePages {
        /// The size of its pages.
        page_bytes: u32,
    },
    /// It is shorter than the size in its header.
    #[error(
        "the kernel image is truncated: it has {have_bytes} bytes, and its header needs \
         {need_bytes}; copy it again from its source"
    )]
    Truncated {
        /// The actual size.
        have_bytes: u64,
        /// The expected size.
        need_bytes: u64,
    },
    /// A boot protocol before 2.08, from 2007.
    #[error(
        "unsupported boot protocol {major}.{minor:02} of the kernel image; expected 2.08 (Linux \
         2.6.26) or newer"
    )]
    TooOld {
        /// The protocol's major version.
        major: u8,
        /// The protocol's minor version.
        minor: u8,
    },
    /// The payload's compression is unknown.
    #[error(
        "unknown compression of the kernel image's payload, which begins with {magic:02x?}; the \
         image is damaged"
    )]
    UnknownCompression {
        /// Its first bytes.
        magic: Vec<u8>,
    },
    /// The payload can't be unpacked.
    #[error("the kernel image's payload: {0}")]
    Unpack(#[from] UnpackError),
    /// The payload is not a valid ELF file.
    #[error("the kernel image's payload is not an ELF file ({reason}); the image is damaged")]
    NotElf {
        /// What is wrong with it.
        reason: String,
    },
    /// It has no release.
    #[error(
        "no kernel's release is in it (the text \"Linux version\"): it is the file of another program, or damaged; \
         give the vmlinuz, Image or vmlinux of a kernel"
    )]
    NoRelease,
}

/// The form of kernel that QEMU boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootForm {
    /// The ELF file (x86-64 with `CONFIG_PVH`).
    Elf,
    /// The bzImage, as it came (x86-64).
    BzImage,
    /// The raw image (arm64).
    Raw,
}

/// A kernel, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// The architecture that it runs on.
    pub arch: Arch,
    /// The release, as `uname -r` gives it.
    pub release: String,
    /// The unpacked form: the ELF file, or the raw image of arm64.
    pub unpacked: Vec<u8>,
    /// How it was compressed; `None` if it was not.
    pub compression: Option<Compression>,
    /// The form that boots.
    pub boot: BootForm,
}

impl KernelImage {
    /// Reads a `vmlinuz`, `bzImage`, arm64 `Image` or ELF `vmlinux` from a file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        if size_bytes > IMAGE_MAX_BYTES {
            let reason =
                format!("it is {size_bytes} bytes, more than the {IMAGE_MAX_BYTES} allowed");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        let mut data = Vec::with_capacity(size_bytes as usize);
        file.take(IMAGE_MAX_BYTES).read_to_end(&mut data).map_err(failed)?;
        Self::parse(data)
    }

    /// Reads one from its bytes.
    pub fn parse(data: Vec<u8>) -> Result<Self, ImageError> {
        if arm64::is_zboot(&data) {
            let payload = arm64::zboot_payload(&data)?;
            let form = sniff(payload)?;
            let raw = compression::unpack(form, payload, IMAGE_MAX_BYTES)?;
            return Ok(Self { compression: Some(form), ..Self::plain(raw)? });
        }
        // `Image.gz` and the like are compressed as a whole.
        if let Some(form) = compression::sniff(&data) {
            let unpacked = compression::unpack(form, &data, IMAGE_MAX_BYTES)?;
            return Ok(Self { compression: Some(form), ..Self::plain(unpacked)? });
        }
        if !data.starts_with(&elf::ELFMAG) && !arm64::is_image(&data) {
            return Self::of_bz_image(&data);
        }
        Self::plain(data)
    }

    /// Reads one that is not compressed: an ELF file, or a raw image.
    fn plain(data: Vec<u8>) -> Result<Self, ImageError> {
        let (arch, unpacked, boot) = if data.starts_with(&elf::ELFMAG) {
            let elf = Elf::check(&data)?;
            match elf.arch {
                Arch::X86_64 => (Arch::X86_64, data, elf.boot_form()),
                Arch::Arm64 => (Arch::Arm64, arm64::flat(&data)?, BootForm::Raw),
            }
        } else if arm64::is_image(&data) {
            (Arch::Arm64, data, BootForm::Raw)
        } else {
            return Err(not_a_kernel(&data));
        };
        if arch == Arch::Arm64 {
            arm64::check(&unpacked)?;
        }
        Ok(Self {
            arch,
            release: banner_release(&unpacked).ok_or(ImageError::NoRelease)?,
            unpacked,
            compression: None,
            boot,
        })
    }

    /// Reads a bzImage.
    fn of_bz_image(data: &[u8]) -> Result<Self, ImageError> {
        let header = SetupHeader::parse(data)?;
        let payload = header.payload(data)?;
        let form = sniff(payload)?;
        let vmlinux = compression::unpack(form, payload, IMAGE_MAX_BYTES)?;
        check_unpacked_size(payload, vmlinux.len())?;
        let elf = Elf::check(&vmlinux)?;
        let release = header
            .release(data)
            .or_else(|| banner_release(&vmlinux))
            .ok_or(ImageError::NoRelease)?;
        Ok(Self {
            arch: elf.arch,
            release,
            boot: elf.boot_form(),
            unpacked: vmlinux,
            compression: Some(form),
        })
    }

    /// The kernel's types.
    ///
    /// # Errors
    /// It has none, or they are damaged.
    pub fn btf(&self) -> Result<Btf, BtfError> {
        match self.boot {
            BootForm::Elf | BootForm::BzImage => Btf::of_file(&self.unpacked, None),
            BootForm::Raw => Btf::find(&self.unpacked),
        }
    }
}

fn sniff(payload: &[u8]) -> Result<Compression, ImageError> {
    compression::sniff(payload).ok_or_else(|| ImageError::UnknownCompression {
        magic: payload[..payload.len().min(8)].to_vec(),
    })
}

/// Why a file of an unknown form is not a kernel for guests.
fn not_a_kernel(data: &[u8]) -> ImageError {
    match arm64::other_machine(data) {
        Some(machine) => ImageError::OtherMachine { machine: machine.to_owned() },
        None => ImageError::NotAKernel,
    }
}

/// The fields of the boot protocol's header that lead to the payload.
struct SetupHeader {
    setup_sects: u8,
    kernel_version: u16,
    payload_offset: u32,
    payload_length: u32,
}

impl SetupHeader {
    const END: usize = 0x250;

    fn parse(data: &[u8]) -> Result<Self, ImageError> {
        let magic = data.get(0x202..0x206);
        if magic.is_some_and(|magic| magic != b"HdrS") {
            return Err(not_a_kernel(data));
        }
        if data.len() < Self::END {
            // A short file may be anything; the boot sector's signature at 510 decides.
            let boot_flag = data.get(0x1fe..0x200) == Some(&[0x55, 0xaa]);
            return Err(if boot_flag {
                ImageError::Truncated {
                    have_bytes: data.len() as u64,
                    need_bytes: Self::END as u64,
                }
            } else {
                not_a_kernel(data)
            });
        }
        let version = read_u16(data, 0x206);
        if version < VERSION_WITH_PAYLOAD {
            let [minor, major] = version.to_le_bytes();
            return Err(ImageError::TooOld { major, minor });
        }
        Ok(Self {
            setup_sects: data[0x1f1],
            kernel_version: read_u16(data, 0x20e),
            payload_offset: read_u32(data, 0x248),
            payload_length: read_u32(data, 0x24c),
        })
    }

    fn payload<'a>(&self, data: &'a [u8]) -> Result<&'a [u8], ImageError> {
        // Zero means four, for old boot loaders.
        let setup_sects = if self.setup_sects == 0 { 4 } else { u64::from(self.setup_sects) };
        let start = (setup_sects + 1) * 512 + u64::from(self.payload_offset);
        let end = start + u64::from(self.payload_length);
        data.get(start as usize..end as usize)
            .ok_or(ImageError::Truncated { have_bytes: data.len() as u64, need_bytes: end })
    }

    fn release(&self, data: &[u8]) -> Option<String> {
        if self.kernel_version == 0 {
            return None;
        }
        first_word(data.get(usize::from(self.kernel_version) + 0x200..)?)
    }
}

fn read_u16(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}

fn read_u32(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// The release at the start of a version string; none if it is not a version string.
fn first_word(text: &[u8]) -> Option<String> {
    let word = text.iter().take(128).take_while(|byte| byte.is_ascii_graphic());
    let word: String = word.map(|&byte| char::from(byte)).collect();
    word.starts_with(|first: char| first.is_ascii_digit()).then_some(word)
}

/// The release in `linux_banner`, in the read-only data of every kernel.
fn banner_release(vmlinux: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let mut rest = vmlinux;
    while let Some(at) = memchr::memmem::find(rest, BANNER) {
        rest = &rest[at + BANNER.len()..];
        if let Some(release) = first_word(rest) {
            return Some(release);
        }
    }
    None
}

/// Check the size that the kernel's build appends to the payload, which detects damage that the
/// decoder does not.
fn check_unpacked_size(payload: &[u8], have: usize) -> Result<(), ImageError> {
    let Some(&tail) = payload.last_chunk::<4>() else {
        return Ok(());
    };
    let want = u32::from_le_bytes(tail) as usize;
    if want == have {
        return Ok(());
    }
    Err(ImageError::NotElf { reason: format!("it has {have} bytes, expected {want}") })
}

/// The facts of a kernel's ELF file.
struct Elf {
    arch: Arch,
    /// Whether it has a PVH entry.
    pvh: bool,
}

impl Elf {
    /// Check that all segments to load are complete.
    fn check(vmlinux: &[u8]) -> Result<Self, ImageError> {
        let not_elf = |reason: String| ImageError::NotElf { reason };
        // 32-bit files are for other machines only.
        if vmlinux.get(EI_CLASS) == Some(&elf::ELFCLASS32.0) {
            return Err(ImageError::OtherMachine { machine: "a 32-bit machine".to_owned() });
        }
        let file =
            ElfFile64::<Endianness>::parse(vmlinux).map_err(|error| not_elf(error.to_string()))?;
        let header = file.elf_header();
        let endian = file.endian();
        let arch = match header.e_machine(endian) {
            elf::EM_X86_64 => Arch::X86_64,
            elf::EM_AARCH64 if endian == Endianness::Big => return Err(ImageError::BigEndian),
            elf::EM_AARCH64 => Arch::Arm64,
            other => {
                return Err(ImageError::OtherMachine { machine: machine_name(other) });
            }
        };
        let mut loaded = 0usize;
        let mut pvh = false;
        for segment in file.elf_program_headers() {
            let have_bytes = vmlinux.len() as u64;
            let (offset, size) = segment.file_range(endian);
            let need_bytes = offset.saturating_add(size);
            if need_bytes > have_bytes {
                return Err(ImageError::Truncated { have_bytes, need_bytes });
            }
            loaded += usize::from(segment.p_type(endian) == elf::PT_LOAD);
            if let Ok(Some(mut notes)) = segment.notes(endian, vmlinux) {
                while let Ok(Some(note)) = notes.next() {
                    pvh |= note.name() == b"Xen" && note.n_type(endian) == XEN_ELFNOTE_PHYS32_ENTRY;
                }
            }
        }
        if loaded == 0 {
            return Err(not_elf("it has no segment to load".to_owned()));
        }
        Ok(Self { arch, pvh })
    }

    /// The form in which a kernel of x86-64 boots.
    fn boot_form(&self) -> BootForm {
        match self.pvh {
            true => BootForm::Elf,
            false => BootForm::BzImage,
        }
    }
}

fn machine_name(machine: elf::Machine) -> String {
    let name = match machine {
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "64-bit PowerPC",
        elf::EM_S390 => "s390x",
        elf::EM_LOONGARCH => "LoongArch",
        elf::EM_MIPS => "MIPS",
        other => return format!("machine {} of ELF", other.0),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bz_image, pack, vmlinux_elf};

    const RELEASE: &str = "6.1.0-54-amd64";

    fn parse(data: &[u8]) -> Result<KernelImage, ImageError> {
        KernelImage::parse(data.to_vec())
    }

    /// Check that the ELF file comes out of a bzImage whole, however compressed.
    #[test]
    fn extracts() {
        let elf = vmlinux_elf(RELEASE, true);
        for (ending, form) in
            [("gz", Compression::Gzip), ("xz", Compression::Xz), ("zst", Compression::Zstd)]
        {
            let image = bz_image(RELEASE, &elf, &pack(&format!("v.{ending}"), &elf));
            let kernel = parse(&image).unwrap();
            assert_eq!(kernel.release, RELEASE);
            assert_eq!(kernel.compression, Some(form));
            assert_eq!((kernel.arch, kernel.boot), (Arch::X86_64, BootForm::Elf));
            assert!(kernel.unpacked == elf);
        }
    }

    /// Check that a plain ELF file is taken, with the release from its banner.
    #[test]
    fn plain_elf() {
        let kernel = parse(&vmlinux_elf(RELEASE, false)).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.compression), (RELEASE, None));
        assert_eq!(kernel.boot, BootForm::BzImage);
    }

    /// Check that an image cut anywhere is an error, and that for one cut in its payload the error has the missing
    /// size.
    #[test]
    fn truncated() {
        let elf = vmlinux_elf(RELEASE, true);
        let image = bz_image(RELEASE, &elf, &pack("v.xz", &elf));
        for end in (0..image.len()).step_by(37) {
            parse(&image[..end]).unwrap_err();
        }
        let error = parse(&image[..image.len() - 1]).unwrap_err();
        assert!(matches!(error, ImageError::Truncated { .. }), "{error}");
        for end in 4..elf.len() - 200 {
            parse(&elf[..end]).unwrap_err();
        }
    }

    /// Check the errors of garbage, other ELF files and damaged payloads.
    #[test]
    fn garbage() {
        assert!(matches!(parse(b"").unwrap_err(), ImageError::NotAKernel));
        assert!(matches!(parse(&[0xab; 5000]).unwrap_err(), ImageError::NotAKernel));
        let elf = vmlinux_elf(RELEASE, true);
        let error = parse(&bz_image(RELEASE, &elf, b"garbage!")).unwrap_err();
        assert!(matches!(error, ImageError::UnknownCompression { .. }), "{error}");
        let error = parse(&bz_image(RELEASE, &elf, b"BZh91AY")).unwrap_err();
        assert!(error.to_string().contains("bzip2 compression is not supported"), "{error}");
        let error = parse(&bz_image(RELEASE, b"shrt", &pack("v.gz", b"shrt"))).unwrap_err();
        assert!(matches!(error, ImageError::NotElf { .. }), "{error}");
        let mut wrong_size = bz_image(RELEASE, &elf, &pack("v.zst", &elf));
        *wrong_size.last_mut().unwrap() ^= 1;
        assert!(matches!(parse(&wrong_size).unwrap_err(), ImageError::NotElf { .. }));
    }

    /// Check that an image of an old boot protocol is refused.
    #[test]
    fn too_old() {
        let elf = vmlinux_elf(RELEASE, true);
        let mut image = bz_image(RELEASE, &elf, &pack("v.gz", &elf));
        image[0x206..0x208].copy_from_slice(&[0x06, 0x02]);
        let error = parse(&image).unwrap_err();
        assert!(error.to_string().contains("boot protocol 2.06"), "{error}");
    }
}
