//! Arguments of the kernel's functions and tracepoints, by the BTF of the kernel and its modules.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys as sys;

use super::BpfError;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;
/// Maximum number of typedefs and qualifiers around a type.
const MOST_NAMES: usize = 16;

/// An argument of a function or tracepoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Argument {
    /// Its name; empty if it is not known.
    pub name: String,
    /// The structure that it points to, if it is a pointer to one.
    pub points_to: Option<String>,
    /// Its size; 0 if it is not a number or a pointer.
    pub bytes: u8,
}

/// Type information.
struct Btf(*mut sys::btf);

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: the pointer came from libbpf and is freed once.
        unsafe { sys::btf__free(self.0) }
    }
}

impl Btf {
    fn at(&self, id: u32) -> Option<(&sys::btf_type, u32, usize)> {
        // SAFETY: the object is alive; the pointer is NULL or to a type of it.
        let found = unsafe { sys::btf__type_by_id(self.0, id).as_ref() }?;
        Some((found, found.info >> 24 & 0x1f, (found.info & 0xffff) as usize))
    }

    fn name(&self, offset: u32) -> &str {
        // SAFETY: the object is alive; the name is NULL or NUL-terminated within it.
        unsafe {
            let name = sys::btf__name_by_offset(self.0, offset);
            match name.is_null() {
                true => "",
                false => CStr::from_ptr(name).to_str().unwrap_or(""),
            }
        }
    }

    fn find(&self, name: &str, kind: u32) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: the object is alive, and the name is NUL-terminated.
        let id = unsafe { sys::btf__find_by_name_kind(self.0, name.as_ptr(), kind) };
        u32::try_from(id).ok().filter(|id| *id > 0)
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, mut id: u32) -> Option<(&sys::btf_type, u32)> {
        for _ in 0..MOST_NAMES {
            let (found, kind, _) = self.at(id)?;
            match kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    // SAFETY: for these kinds the union is a type's number.
                    id = unsafe { found.__bindgen_anon_1.type_ };
                }
                _ => return Some((found, kind)),
            }
        }
        None
    }

    fn argument(&self, of: &sys::btf_param) -> Argument {
        let mut argument = Argument { name: self.name(of.name_off).into(), ..Argument::default() };
        match self.plain(of.type_) {
            Some((pointer, KIND_PTR)) => {
                argument.bytes = 8;
                // SAFETY: a pointer's union is a type's number.
                let to = self.plain(unsafe { pointer.__bindgen_anon_1.type_ });
                if let Some((to, KIND_STRUCT)) = to {
                    argument.points_to = Some(self.name(to.name_off).into());
                }
            }
            Some((number, KIND_INT | KIND_ENUM | KIND_ENUM64)) => {
                // SAFETY: a number's union is its size.
                let bytes = unsafe { number.__bindgen_anon_1.size };
                argument.bytes = u8::try_from(bytes).ok().filter(|b| *b <= 8).unwrap_or(0);
            }
            _ => {}
        }
        argument
    }

    /// The arguments of a prototype, by its number.
    fn arguments(&self, prototype: u32) -> Option<Vec<Argument>> {
        let (found, kind, count) = self.at(prototype)?;
        if kind != KIND_FUNC_PROTO {
            return None;
        }
        // SAFETY: a prototype is followed by its `count` parameters.
        let all = unsafe {
            let first = ptr::from_ref(found).add(1).cast::<sys::btf_param>();
            std::slice::from_raw_parts(first, count)
        };
        Some(all.iter().map(|one| self.argument(one)).collect())
    }

    fn function(&self, name: &str) -> Option<Vec<Argument>> {
        let (found, ..) = self.at(self.find(name, KIND_FUNC)?)?;
        // SAFETY: a function's union is its prototype's number.
        self.arguments(unsafe { found.__bindgen_anon_1.type_ })
    }

    /// A tracepoint's arguments, without the first one, which is its own data.
    fn tracepoint(&self, name: &str) -> Option<Vec<Argument>> {
        // This one has names, the type of its probes has none.
        let named = self.function(&format!("__traceiter_{name}"));
        let typed = || {
            let (pointer, kind) =
                self.plain(self.find(&format!("btf_trace_{name}"), KIND_TYPEDEF)?)?;
            // SAFETY: a pointer's union is a type's number.
            (kind == KIND_PTR).then(|| self.arguments(unsafe { pointer.__bindgen_anon_1.type_ }))?
        };
        let mut all = named.or_else(typed)?;
        (!all.is_empty()).then(|| all.split_off(1))
    }
}

/// Arguments of functions and tracepoints of the kernel and its modules.
pub struct Signatures {
    modules: Vec<Btf>,
    // After those that are based on it.
    kernel: Btf,
}

impl std::fmt::Debug for Signatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signatures").field("modules", &self.modules.len()).finish_non_exhaustive()
    }
}

impl Signatures {
    /// The running kernel's signatures.
    ///
    /// # Errors
    /// It has no BTF.
    pub fn load() -> Result<Signatures, BpfError> {
        super::quiet();
        // SAFETY: takes nothing; gives an owned object or NULL with errno set.
        let kernel = Btf(unsafe { sys::btf__load_vmlinux_btf() });
        if kernel.0.is_null() {
            let error = std::io::Error::last_os_error();
            return Err(BpfError::NoTypes(error.into()));
        }
        Ok(Signatures { modules: Vec::new(), kernel })
    }

    /// Read modules' signatures, too, if that has not been done: it needs rights that not everyone has.
    fn read_modules(&mut self) {
        if !self.modules.is_empty() {
            return;
        }
        let mut id = 0;
        // SAFETY: `id` is ours to write to.
        while unsafe { sys::bpf_btf_get_next_id(id, &raw mut id) } == 0 {
            self.modules.extend(self.module(id));
        }
    }

    fn module(&self, id: u32) -> Option<Btf> {
        // SAFETY: takes a number, gives a descriptor or an error number.
        let fd = unsafe { sys::bpf_btf_get_fd_by_id(id) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut name = [0_u8; 64];
        let mut info = sys::bpf_btf_info {
            name: name.as_mut_ptr() as u64,
            name_len: name.len() as u32,
            ..Default::default()
        };
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the kernel writes no more than `size` bytes, and the name into the buffer.
        let result =
            unsafe { sys::bpf_btf_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut size) };
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        if result < 0 || info.kernel_btf == 0 || name == c"vmlinux" || name.is_empty() {
            return None;
        }
        // SAFETY: the base outlives the split object.
        let btf = Btf(unsafe { sys::btf__load_from_kernel_by_id_split(id, self.kernel.0) });
        (!btf.0.is_null()).then_some(btf)
    }

    fn find(&mut self, of: impl Fn(&Btf) -> Option<Vec<Argument>>) -> Option<Vec<Argument>> {
        if let Some(found) = of(&self.kernel) {
            return Some(found);
        }
        self.read_modules();
        self.modules.iter().find_map(of)
    }

    /// The arguments of a function.
    pub fn function(&mut self, name: &str) -> Option<Vec<Argument>> {
        self.find(|btf| btf.function(name))
    }

    /// The arguments of a tracepoint.
    pub fn tracepoint(&mut self, name: &str) -> Option<Vec<Argument>> {
        self.find(|btf| btf.tracepoint(name))
    }
}

/// Whether the kernel has type information at all.
pub fn has_types() -> bool {
    fs::metadata("/sys/kernel/btf/vmlinux").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check arguments of tracepoints and functions of every kernel, and that unknown ones have none.
    #[test]
    fn arguments() {
        if !has_types() {
            netplumb_testkit::skip("this kernel has no BTF");
            return;
        }
        let mut all = Signatures::load().unwrap();
        let switch = all.tracepoint("sched_switch").unwrap();
        let tasks = switch.iter().filter(|a| a.points_to.as_deref() == Some("task_struct"));
        assert_eq!(tasks.count(), 2, "{switch:?}");
        assert_eq!((switch[0].bytes, switch[1].bytes), (1, 8));
        let receive = all.function("ip_rcv").unwrap();
        assert_eq!(receive[0].name, "skb");
        assert_eq!(receive[0].points_to.as_deref(), Some("sk_buff"));
        assert!(all.function("no_such_function_at_all").is_none());
        assert!(all.tracepoint("no_such_tracepoint").is_none());
    }
}
