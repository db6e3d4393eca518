//! Unwind tables of ELF files.

use std::io::{Read, Seek};
use std::ops::{Deref, Range};
use std::rc::Rc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::elf::PT_LOAD;
use object::read::ReadCache;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection};

/// Bytes of a file that several processes have mapped.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Rc<[u8]>);

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The sections of a file that stacks are unwound by.
#[derive(Debug)]
pub(super) struct Unwinding {
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    eh_frame: Option<(Range<u64>, Shared)>,
    eh_frame_hdr: Option<(Range<u64>, Shared)>,
    /// Where offsets of the file are, by its own addresses.
    segments: Vec<(Range<u64>, u64)>,
    vdso: bool,
}

impl Unwinding {
    /// Reads only these sections of an ELF file. `vdso`: it is the kernel's own, in memory as in the
    /// file.
    pub(super) fn read(file: impl Read + Seek, vdso: bool) -> Option<Unwinding> {
        let file = ReadCache::new(file);
        let elf = ElfFile64::<LittleEndian, _>::parse(&file).ok()?;
        let range = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let data = |name: &str| {
            let bytes = elf.section_by_name(name)?.data().ok()?;
            Some((range(name)?, Shared(bytes.into())))
        };
        let endian = LittleEndian;
        let loaded = (elf.elf_program_headers().iter()).filter(|s| s.p_type(endian) == PT_LOAD);
        let segments = loaded.filter_map(|segment| {
            let offset = segment.p_offset(endian);
            let end = offset.checked_add(segment.p_filesz(endian))?;
            Some((offset..end, segment.p_vaddr(endian)))
        });
        Some(Unwinding {
            text: range(".text"),
            got: range(".got"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            segments: segments.collect(),
            vdso,
        })
    }

    /// Where the file begins in memory, by its own addresses, if an offset is at an address.
    pub(super) fn base(&self, start: u64, offset: u64) -> Option<u64> {
        if self.vdso {
            return Some(start.wrapping_sub(offset));
        }
        let (segment, address) = (self.segments.iter()).find(|(segment, _)| {
            // Mappings begin at pages.
            (segment.start & !0xfff..segment.end).contains(&offset)
        })?;
        let at = address.wrapping_add(offset).wrapping_sub(segment.start);
        Some(start.wrapping_sub(at))
    }

    /// As framehop takes it: mapped at `range`, its own addresses from `base` on.
    pub(super) fn module(&self, range: Range<u64>, base: u64) -> Module<Shared> {
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: self.text.clone(),
            got_svma: self.got.clone(),
            eh_frame_svma: self.eh_frame.as_ref().map(|(range, _)| range.clone()),
            eh_frame: self.eh_frame.as_ref().map(|(_, bytes)| bytes.clone()),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: self.eh_frame_hdr.as_ref().map(|(_, bytes)| bytes.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(String::new(), range, base, sections)
    }
}
