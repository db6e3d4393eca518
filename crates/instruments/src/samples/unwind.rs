//! Stacks of user code without frame pointers: by the unwind tables of files, on copies of stacks.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::rc::Rc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection};

use super::arrived::Copied;
use super::files::{Files, VDSO};
use super::spaces::Spaces;

/// Frames of a stack, at most.
const MAX_FRAMES: usize = 256;
/// Code of larger files is not looked at.
const MAX_TEXT_BYTES: u64 = 32 << 20;
/// Processes whose mappings are kept.
const MAX_SPACES: usize = 256;

/// Bytes of a file that several processes have mapped.
#[derive(Debug, Clone, Default)]
struct Shared(Rc<[u8]>);

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The sections of a file that stacks are unwound by.
#[derive(Debug)]
pub(super) struct Unwinding {
    text: Option<(Range<u64>, Shared)>,
    got: Option<Range<u64>>,
    eh_frame: Option<(Range<u64>, Shared)>,
    eh_frame_hdr: Option<(Range<u64>, Shared)>,
    /// Where offsets of the file are, by its own addresses.
    segments: Vec<(Range<u64>, u64)>,
    vdso: bool,
}

impl Unwinding {
    /// Of an ELF file.
    pub(super) fn read(path: &str, file: &[u8]) -> Option<Unwinding> {
        let elf = ElfFile64::<LittleEndian>::parse(file).ok()?;
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
            // It only helps at the first and last instructions of functions.
            text: data(".text").filter(|(range, _)| range.end - range.start < MAX_TEXT_BYTES),
            got: range(".got"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            segments: segments.collect(),
            vdso: path == VDSO,
        })
    }

    /// Where the file begins in memory, by its own addresses, if an offset is at an address.
    fn base(&self, start: u64, offset: u64) -> Option<u64> {
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

    fn module(&self, range: Range<u64>, base: u64) -> Module<Shared> {
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: self.text.as_ref().map(|(range, _)| range.clone()),
            text: self.text.as_ref().map(|(_, bytes)| bytes.clone()),
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

/// What a process has mapped, to unwind its stacks.
struct Process {
    version: u64,
    unwinder: UnwinderX86_64<Shared>,
}

/// Unwinds stacks of processes.
#[derive(Default)]
pub(super) struct Unwinders {
    processes: HashMap<u32, Process>,
    cache: CacheX86_64,
}

impl std::fmt::Debug for Unwinders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinders")
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

impl Unwinders {
    /// The frames of a stack, where the task was first, and whether that ends where the thread
    /// began.
    pub(super) fn frames(
        &mut self,
        copied: &Copied,
        (pid, time_ns): (u32, u64),
        spaces: &Spaces,
        files: &mut Files,
    ) -> (Vec<u64>, bool) {
        let Some((version, mappings)) = spaces.mappings(pid, time_ns) else {
            return (vec![copied.ip], false);
        };
        if self.processes.len() > MAX_SPACES {
            self.processes.clear();
        }
        let known = self.processes.get(&pid).map(|process| process.version);
        if known != Some(version) {
            let mut unwinder = UnwinderX86_64::new();
            for mapping in mappings {
                let Some(unwinding) = files.unwinding(mapping.file, pid) else {
                    continue;
                };
                if let Some(base) = unwinding.base(mapping.start, mapping.offset) {
                    let range = mapping.start..mapping.end;
                    unwinder.add_module(unwinding.module(range, base));
                }
            }
            self.processes.insert(pid, Process { version, unwinder });
        }
        let Some(process) = self.processes.get(&pid) else {
            return (vec![copied.ip], false);
        };
        let mut read = |address: u64| {
            let at = address.checked_sub(copied.from).ok_or(())?;
            let at = usize::try_from(at).map_err(|_| ())?;
            let word = copied
                .bytes
                .get(at..at.checked_add(8).ok_or(())?)
                .ok_or(())?;
            word.try_into().map(u64::from_le_bytes).map_err(|_| ())
        };
        let registers = UnwindRegsX86_64::new(copied.ip, copied.sp, copied.bp);
        let mut iterator =
            (process.unwinder).iter_frames(copied.ip, registers, &mut self.cache, &mut read);
        let mut frames = Vec::new();
        loop {
            match iterator.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => frames.push(address),
                Ok(Some(FrameAddress::ReturnAddress(address))) => frames.push(address.get()),
                Ok(None) => return (frames, true),
                Err(_) => return (frames, false),
            }
            if frames.len() >= MAX_FRAMES {
                return (frames, false);
            }
        }
    }
}
