//! Stacks of user code where frame pointers do not hold: by the unwind tables of files, on copies of
//! stacks.

use std::collections::HashMap;

use framehop::{
    CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative,
};

use super::arrived::Copied;
use super::files::Files;
use super::spaces::Spaces;
use super::tables::Shared;

/// Frames of a stack, at most.
const MAX_FRAMES: usize = 256;
/// Processes whose mappings are kept.
const MAX_SPACES: usize = 256;

/// What a process has mapped, to unwind its stacks.
struct Process {
    version: u64,
    unwinder: UnwinderNative<Shared, MayAllocateDuringUnwind>,
}

/// Unwinds stacks of processes.
#[derive(Default)]
pub(super) struct Unwinders {
    processes: HashMap<u32, Process>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl std::fmt::Debug for Unwinders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinders")
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

impl Unwinders {
    /// The frames of a stack, where the task was first, whether that ends where the thread began, and
    /// how many bytes of the copy were needed.
    pub(super) fn frames(
        &mut self,
        copied: &Copied,
        (pid, time_ns): (u32, u64),
        spaces: &Spaces,
        files: &mut Files,
    ) -> (Vec<u64>, bool, usize) {
        let none = || (vec![copied.ip], false, usize::MAX);
        let Some((version, mappings)) = spaces.mappings(pid, time_ns) else {
            return none();
        };
        if self.processes.len() > MAX_SPACES {
            self.processes.clear();
        }
        let known = self.processes.get(&pid).map(|process| process.version);
        if known != Some(version) {
            let mut unwinder = UnwinderNative::new();
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
            return none();
        };
        let mut needed = 0;
        let mut read = |address: u64| {
            let at = address.checked_sub(copied.from).ok_or(())?;
            let at = usize::try_from(at).map_err(|_| ())?;
            let end = at.checked_add(size_of::<u64>()).ok_or(())?;
            // Also where it ends too early.
            needed = needed.max(end);
            let word = copied.bytes.get(at..end).ok_or(())?;
            word.try_into().map(u64::from_le_bytes).map_err(|_| ())
        };
        let registers = registers(copied);
        let (unwinder, cache) = (&process.unwinder, &mut self.cache);
        let mut iterator = unwinder.iter_frames(copied.ip, registers, cache, &mut read);
        let mut frames = Vec::new();
        let whole = loop {
            match iterator.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => frames.push(address),
                Ok(Some(FrameAddress::ReturnAddress(address))) => frames.push(address.get()),
                Ok(None) => break true,
                Err(_) => break false,
            }
            if frames.len() >= MAX_FRAMES {
                break false;
            }
        };
        (frames, whole, needed)
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(copied: &Copied) -> UnwindRegsNative {
    UnwindRegsNative::new(copied.ip, copied.sp, copied.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(copied: &Copied) -> UnwindRegsNative {
    UnwindRegsNative::new(copied.lr, copied.sp, copied.fp)
}
