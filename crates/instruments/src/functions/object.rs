//! The compiled programs as templates: libbpf creates the maps and relocates the instructions for
//! the running kernel, and then any number of copies is loaded, each with its own numbers.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::AsRawLibbpf;
use libbpf_sys as sys;
use netplumb_sys::bpf::Opened;
use netplumb_sys::bpf::raw::{self, Kind, check};

use super::layout::magic;
use crate::live::LiveError;

/// The programs, compiled from functions.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/functions.bpf.o"));

fn failed(doing: &str, error: io::Error) -> LiveError {
    LiveError::System { doing: doing.into(), source: Box::new(error) }
}

/// The opened object; its maps go with it.
#[derive(Debug)]
pub(super) struct Templates {
    object: Opened,
    ready: bool,
}

/// Instructions of one program.
#[derive(Clone)]
pub(super) struct Template {
    insns: Vec<sys::bpf_insn>,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Template({} instructions)", self.insns.len())
    }
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Program(pub(super) OwnedFd);

impl Templates {
    /// Open the object. Maps may be sized now.
    pub(super) fn open() -> Result<Templates, LiveError> {
        let object = Opened::new(OBJECT)
            .map_err(|e| failed("read the programs of `functions`", io::Error::other(e)))?;
        Ok(Templates { object, ready: false })
    }

    /// The object; it lives as long as this.
    fn raw(&self) -> *mut sys::bpf_object {
        self.object.as_libbpf_object().as_ptr()
    }

    fn map(&self, name: &str) -> Result<NonNull<sys::bpf_map>, LiveError> {
        let wanted = CString::new(name).unwrap_or_default();
        // SAFETY: the object is alive, and the name is NUL-terminated.
        let map = unsafe { sys::bpf_object__find_map_by_name(self.raw(), wanted.as_ptr()) };
        NonNull::new(map).ok_or_else(|| {
            failed(
                "read the programs of `functions`",
                io::Error::other(format!("no such map `{name}`")),
            )
        })
    }

    /// Set the size of a section, or of the values of a map.
    pub(super) fn size(&mut self, name: &str, bytes: u32) -> Result<(), LiveError> {
        let map = self.map(name)?;
        // SAFETY: the map is the object's, which is alive.
        check(unsafe { sys::bpf_map__set_value_size(map.as_ptr(), bytes) })
            .map_err(|e| failed(&format!("size the map `{name}`"), e))?;
        Ok(())
    }

    /// Set the number of entries of a map.
    pub(super) fn entries(&mut self, name: &str, count: u32) -> Result<(), LiveError> {
        let map = self.map(name)?;
        // SAFETY: the map is the object's, which is alive.
        check(unsafe { sys::bpf_map__set_max_entries(map.as_ptr(), count) })
            .map_err(|e| failed(&format!("size the map `{name}`"), e))?;
        Ok(())
    }

    /// A section's memory and its size in bytes: the initial contents before the maps
    /// are made, after that the programs' own.
    pub(super) fn memory(&self, name: &str) -> Result<(NonNull<u8>, usize), LiveError> {
        let map = self.map(name)?;
        let mut bytes = 0;
        // SAFETY: the map is the object's, which is alive.
        let at = unsafe { sys::bpf_map__initial_value(map.as_ptr(), &raw mut bytes) };
        NonNull::new(at.cast()).map(|at| (at, bytes as usize)).ok_or_else(|| {
            failed(
                "read the programs of `functions`",
                io::Error::other(format!("map `{name}` has no memory")),
            )
        })
    }

    /// A map's descriptor, once it is made.
    pub(super) fn map_fd(&self, name: &str) -> Result<i32, LiveError> {
        let map = self.map(name)?;
        // SAFETY: the map is the object's, which is alive.
        check(unsafe { sys::bpf_map__fd(map.as_ptr()) })
            .map_err(|e| failed(&format!("use the map `{name}`"), e))
    }

    /// Create the maps, and relocate the programs for this kernel.
    pub(super) fn prepare(&mut self) -> Result<(), LiveError> {
        self.object.prepare().map_err(LiveError::programs("functions"))?;
        self.ready = true;
        Ok(())
    }

    /// The relocated instructions of a program.
    pub(super) fn template(&self, name: &str) -> Result<Template, LiveError> {
        debug_assert!(self.ready);
        let wanted = CString::new(name).unwrap_or_default();
        // SAFETY: the object is alive; the instructions are copied before anything
        // else is done with it.
        let insns = unsafe {
            let program = sys::bpf_object__find_program_by_name(self.raw(), wanted.as_ptr());
            if program.is_null() {
                None
            } else {
                let count = sys::bpf_program__insn_cnt(program) as usize;
                let first = sys::bpf_program__insns(program);
                (!first.is_null()).then(|| std::slice::from_raw_parts(first, count).to_vec())
            }
        };
        insns.map(|insns| Template { insns }).ok_or_else(|| {
            failed(
                "read the programs of `functions`",
                io::Error::other(format!("no such program `{name}`")),
            )
        })
    }
}

impl Template {
    /// One that returns 0.
    pub(super) fn nothing() -> Template {
        /// `r0 = 0`, and the end.
        const MOVE: u8 = 0xb7;
        const EXIT: u8 = 0x95;
        let insn = |code| sys::bpf_insn { code, ..Default::default() };
        Template { insns: vec![insn(MOVE), insn(EXIT)] }
    }

    /// Replace the placeholders: `numbers` by magic number, and the offset of the argument. A
    /// remaining placeholder is an error.
    pub(super) fn patch(&mut self, numbers: &BTreeMap<i32, i32>, argument: i16) -> io::Result<()> {
        /// Loads 64 bits from memory.
        const LOAD: u8 = 0x79;
        /// Takes two instructions, and the second has none of our numbers.
        const LOAD_NUMBER: u8 = 0x18;
        let mut skip = false;
        for insn in &mut self.insns {
            if std::mem::take(&mut skip) {
                continue;
            }
            if insn.code == LOAD_NUMBER {
                skip = true;
                continue;
            }
            if let Some(&number) = numbers.get(&insn.imm) {
                insn.imm = number;
            } else if insn.imm & !0xffff == magic::PREFIX {
                return Err(io::Error::other(format!(
                    "unknown placeholder {:#x} in the programs",
                    insn.imm
                )));
            }
            if insn.code == LOAD && insn.off == magic::ARGUMENT {
                insn.off = argument;
            }
        }
        Ok(())
    }

    /// Load it into the kernel.
    pub(super) fn load(&self, name: &str, kind: Kind) -> io::Result<Program> {
        raw::load(name, kind, &self.insns).map(Program).map_err(|refused| {
            let error = io::Error::from_raw_os_error(refused.errno);
            match refused.said {
                Some(why) => io::Error::new(error.kind(), format!("the verifier says: {why}")),
                None => error,
            }
        })
    }
}

impl Program {
    /// Attach to what it was loaded for: a function, or a tracepoint.
    pub(super) fn attach(&self) -> io::Result<OwnedFd> {
        raw::attach(self.0.as_fd(), None)
    }

    /// Runs skipped because the program was already running on that CPU.
    pub(super) fn missed(&self) -> io::Result<u64> {
        Ok(raw::info(self.0.as_fd())?.recursion_misses)
    }

    /// Run it by the kernel's own test, which calls `bpf_fentry_test1` to 6 once
    /// each.
    pub(super) fn test(&self) -> io::Result<()> {
        let mut opts = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as u64,
            ..Default::default()
        };
        // SAFETY: the options outlive the call; there is neither data nor context.
        check(unsafe { sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &raw mut opts) })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: u8, off: i16, imm: i32) -> sys::bpf_insn {
        sys::bpf_insn { code, off, imm, ..Default::default() }
    }

    /// Check that numbers are replaced, but not those that are addresses, and that
    /// none is forgotten.
    #[test]
    fn templates_are_patched() {
        let mut template = Template {
            insns: vec![
                insn(0xb7, 0, magic::FUNCTION),
                insn(0x18, 0, magic::FUNCTION),
                insn(0, 0, magic::FUNCTION),
                insn(0x79, magic::ARGUMENT, 0),
                insn(0x57, 0, magic::CPU_MASK),
            ],
        };
        let numbers = BTreeMap::from([(magic::FUNCTION, 7), (magic::CPU_MASK, 3)]);
        template.patch(&numbers, 16).unwrap();
        let imms: Vec<_> = template.insns.iter().map(|i| i.imm).collect();
        assert_eq!(imms, [7, magic::FUNCTION, magic::FUNCTION, 0, 3]);
        assert_eq!(template.insns[3].off, 16);

        let mut template = Template { insns: vec![insn(0x57, 0, magic::STACK_MASK)] };
        let error = template.patch(&numbers, 16).unwrap_err().to_string();
        let number = format!("{:#x}", magic::STACK_MASK);
        assert!(error.contains(&number), "{error}");
    }

    /// Check that the programs are carried, under the names that are asked for.
    #[test]
    fn programs_are_carried() {
        let templates = Templates::open().unwrap();
        for map in [".data.cells", ".data.children", ".data.cpus", "parked", "spare"] {
            assert!(templates.map(map).is_ok(), "{map}");
        }
    }
}
