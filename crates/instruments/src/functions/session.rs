//! One program on the entries and returns of many functions, by fprobe: from Linux 6.10
//! (commit 535a3692ba72), where the kernel has CONFIG_FPROBE. Its cookie shows which
//! function it is.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use super::object::Program;

/// Attach to functions, each with its cookie, by a link of this type
/// (`BPF_TRACE_KPROBE_*`). All or none.
pub(super) fn attach<'a>(
    program: &Program,
    kind: u32,
    functions: impl Iterator<Item = (&'a str, u64)>,
) -> io::Result<OwnedFd> {
    let mut names = Vec::new();
    let mut cookies = Vec::new();
    for (name, cookie) in functions {
        names.push(CString::new(name).map_err(io::Error::other)?);
        cookies.push(cookie);
    }
    let mut pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
    let mut opts = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: all members of the union are numbers and pointers; this one is as long as
    // any that is looked at for this type of link.
    let multi = unsafe { &mut opts.__bindgen_anon_1.kprobe_multi };
    multi.cnt = names.len() as u32;
    multi.syms = pointers.as_mut_ptr();
    multi.cookies = cookies.as_ptr();
    // SAFETY: the names, the pointers to them and the cookies outlive the call.
    let fd = unsafe { sys::bpf_link_create(program.0.as_raw_fd(), 0, kind, &raw const opts) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls that a link did not show, since there was no room to wait for their returns.
pub(super) fn missed(link: &OwnedFd) -> Option<u64> {
    let mut info = sys::bpf_link_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes no more than `size` bytes. All pointers within are NULL.
    // Other descriptors are refused.
    let result =
        unsafe { sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size) };
    if result != 0 || info.type_ != sys::BPF_LINK_TYPE_KPROBE_MULTI {
        return None;
    }
    // SAFETY: of a link of this type it is this member.
    Some(unsafe { info.__bindgen_anon_1.kprobe_multi.missed })
}
