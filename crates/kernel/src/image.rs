//! Kernel images: extracts the ELF file of a `bzImage`, which boots faster, and the release.
//!
//! The layout of a `bzImage` is the x86 boot protocol's (`Documentation/arch/x86/boot.rst`); the
//! field names here are those of its `setup_header`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::compression::{self, Compression, UnpackError};

/// Maximum size of an image, and of the ELF file in it.
pub const IMAGE_MAX_BYTES: u64 = 1 << 30;

/// The first version of the boot protocol that has `payload_offset`.
const VERSION_WITH_PAYLOAD: u16 = 0x0208;
/// The ELF note of a kernel with a PVH entry.
const XEN_ELFNOTE_PHYS32_ENTRY: elf::NoteType = elf::NoteType(18);

/// An error of an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Neither a bzImage nor an ELF file.
    #[error("not a kernel image: neither a bzImage nor an ELF vmlinux for x86-64")]
    NotAKernel,
    /// It is shorter than its header says.
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
         image is damaged or not for x86-64"
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
    #[error("the kernel image has no release; it is damaged")]
    NoRelease,
}

/// A kernel, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// The release, as `uname -r` gives it.
    pub release: String,
    /// The ELF file.
    pub vmlinux: Vec<u8>,
    /// How it was compressed; `None` if it came as an ELF file.
    pub compression: Option<Compression>,
    /// Whether the ELF file can be booted as it is (`CONFIG_PVH`); if not, boot the bzImage.
    pub pvh: bool,
}

impl KernelImage {
    /// Reads a `vmlinuz`, `bzImage` or ELF `vmlinux` from a file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Read {
            path: path.to_owned(),
            source,
        };
        let file = fs::File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        if size_bytes > IMAGE_MAX_BYTES {
            let reason =
                format!("it is {size_bytes} bytes, more than the {IMAGE_MAX_BYTES} allowed");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        let mut data = Vec::with_capacity(size_bytes as usize);
        file.take(IMAGE_MAX_BYTES)
            .read_to_end(&mut data)
            .map_err(failed)?;
        Self::parse(data)
    }

    /// Reads one from its bytes.
    pub fn parse(data: Vec<u8>) -> Result<Self, ImageError> {
        if data.starts_with(&elf::ELFMAG) {
            let pvh = check_elf(&data)?;
            let release = banner_release(&data).ok_or(ImageError::NoRelease)?;
            return Ok(Self {
                release,
                vmlinux: data,
                compression: None,
                pvh,
            });
        }
        let header = SetupHeader::parse(&data)?;
        let payload = header.payload(&data)?;
        let form = compression::sniff(payload).ok_or_else(|| ImageError::UnknownCompression {
            magic: payload[..payload.len().min(8)].to_vec(),
        })?;
        let vmlinux = compression::unpack(form, payload, IMAGE_MAX_BYTES)?;
        check_unpacked_size(payload, vmlinux.len())?;
        let pvh = check_elf(&vmlinux)?;
        let release = header
            .release(&data)
            .or_else(|| banner_release(&vmlinux))
            .ok_or(ImageError::NoRelease)?;
        Ok(Self {
            release,
            vmlinux,
            compression: Some(form),
            pvh,
        })
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
            return Err(ImageError::NotAKernel);
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
                ImageError::NotAKernel
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
        let setup_sects = if self.setup_sects == 0 {
            4
        } else {
            u64::from(self.setup_sects)
        };
        let start = (setup_sects + 1) * 512 + u64::from(self.payload_offset);
        let end = start + u64::from(self.payload_length);
        data.get(start as usize..end as usize)
            .ok_or(ImageError::Truncated {
                have_bytes: data.len() as u64,
                need_bytes: end,
            })
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
    let word = text
        .iter()
        .take(128)
        .take_while(|byte| byte.is_ascii_graphic());
    let word: String = word.map(|&byte| char::from(byte)).collect();
    word.starts_with(|first: char| first.is_ascii_digit())
        .then_some(word)
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
    Err(ImageError::NotElf {
        reason: format!("it has {have} bytes, expected {want}"),
    })
}

/// Check that all segments to load are complete; returns whether there is a PVH entry.
fn check_elf(vmlinux: &[u8]) -> Result<bool, ImageError> {
    let not_elf = |reason: String| ImageError::NotElf { reason };
    let file =
        ElfFile64::<Endianness>::parse(vmlinux).map_err(|error| not_elf(error.to_string()))?;
    let header = file.elf_header();
    let endian = file.endian();
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err(ImageError::NotAKernel);
    }
    let mut loaded = 0usize;
    let mut pvh = false;
    for segment in file.elf_program_headers() {
        let have_bytes = vmlinux.len() as u64;
        let (offset, size) = segment.file_range(endian);
        let need_bytes = offset.saturating_add(size);
        if need_bytes > have_bytes {
            return Err(ImageError::Truncated {
                have_bytes,
                need_bytes,
            });
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
    Ok(pvh)
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
        for (ending, form) in [
            ("gz", Compression::Gzip),
            ("xz", Compression::Xz),
            ("zst", Compression::Zstd),
        ] {
            let image = bz_image(RELEASE, &elf, &pack(&format!("v.{ending}"), &elf));
            let kernel = parse(&image).unwrap();
            assert_eq!(kernel.release, RELEASE);
            assert_eq!(kernel.compression, Some(form));
            assert!(kernel.pvh);
            assert!(kernel.vmlinux == elf);
        }
    }

    /// Check that a plain ELF file is taken, with the release from its banner.
    #[test]
    fn plain_elf() {
        let kernel = parse(&vmlinux_elf(RELEASE, false)).unwrap();
        assert_eq!(
            (kernel.release.as_str(), kernel.compression),
            (RELEASE, None)
        );
        assert!(!kernel.pvh);
    }

    /// Check that an image cut anywhere is an error, and one cut in its payload says by how much.
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
        assert!(matches!(
            parse(&[0xab; 5000]).unwrap_err(),
            ImageError::NotAKernel
        ));
        let elf = vmlinux_elf(RELEASE, true);
        let error = parse(&bz_image(RELEASE, &elf, b"garbage!")).unwrap_err();
        assert!(
            matches!(error, ImageError::UnknownCompression { .. }),
            "{error}"
        );
        let error = parse(&bz_image(RELEASE, &elf, b"BZh91AY")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("bzip2 compression is not supported"),
            "{error}"
        );
        let error = parse(&bz_image(RELEASE, b"shrt", &pack("v.gz", b"shrt"))).unwrap_err();
        assert!(matches!(error, ImageError::NotElf { .. }), "{error}");
        let mut wrong_size = bz_image(RELEASE, &elf, &pack("v.zst", &elf));
        *wrong_size.last_mut().unwrap() ^= 1;
        assert!(matches!(
            parse(&wrong_size).unwrap_err(),
            ImageError::NotElf { .. }
        ));
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
