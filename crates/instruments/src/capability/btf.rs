//! The type information of the running kernel, and the targets that the trials attach to.

use std::ffi::{CStr, CString};

use libbpf_sys as sys;

/// Functions to attach to, the most harmless first. The first two exist for the test runs of BPF
/// itself and are never called otherwise.
pub(super) const FUNCTIONS: [&CStr; 4] =
    [c"bpf_fentry_test1", c"bpf_fentry_test2", c"ip_rcv", c"ip6_rcv"];

/// A tracepoint of every kernel with a network stack.
pub(super) const TRACEPOINT: &CStr = c"netif_receive_skb";

/// What the trials attach to, as the kernel's type information names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    /// How many types the kernel describes.
    pub(super) types: u32,
    /// A function, with its type number.
    pub(super) function: Option<(&'static CStr, u32)>,
    /// The type number of [`TRACEPOINT`].
    pub(super) tracepoint: Option<u32>,
}

/// Why there is no type information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// The error number that loading it gave.
    pub(super) errno: i32,
}

/// A loaded BTF.
struct Btf(*mut sys::btf);

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: the pointer came from libbpf and is freed once.
        unsafe { sys::btf__free(self.0) }
    }
}

impl Btf {
    fn load() -> Result<Self, Missing> {
        // SAFETY: takes nothing; gives an owned object or NULL with errno set.
        let btf = unsafe { sys::btf__load_vmlinux_btf() };
        if btf.is_null() {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(Missing { errno });
        }
        Ok(Self(btf))
    }

    fn find(&self, name: &CStr, kind: u32) -> Option<u32> {
        // SAFETY: the object is alive, and the name is NUL-terminated.
        let id = unsafe { sys::btf__find_by_name_kind(self.0, name.as_ptr(), kind) };
        u32::try_from(id).ok().filter(|id| *id > 0)
    }
}

/// Load the kernel's type information once, and note what the trials need of it.
pub(super) fn find_targets() -> Result<Targets, Missing> {
    let btf = Btf::load()?;
    let function =
        FUNCTIONS.iter().find_map(|name| btf.find(name, sys::BTF_KIND_FUNC).map(|id| (*name, id)));
    // A tracepoint's arguments are described by a typedef of this name.
    let typedef = c_string(&format!("btf_trace_{}", TRACEPOINT.to_string_lossy()));
    Ok(Targets {
        // SAFETY: the object is alive.
        types: unsafe { sys::btf__type_cnt(btf.0) },
        function,
        tracepoint: btf.find(&typedef, sys::BTF_KIND_TYPEDEF),
    })
}

/// A name for the kernel. The names here are constants of ours, so a NUL is a bug; it is left out
/// rather than panicked over.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a kernel with type information has a function and a tracepoint to attach to.
    #[test]
    fn targets_are_found_where_there_is_btf() {
        let Ok(targets) = find_targets() else {
            netplumb_testkit::skip("this kernel has no BTF");
            return;
        };
        assert!(targets.types > 1000);
        assert!(targets.function.is_some() && targets.tracepoint.is_some());
    }
}
