//! Programs loaded as instructions, without an object, and operations on the descriptor of any
//! program.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

/// Buffer for the verifier's log of a rejected program.
const LOG_BYTES: usize = 256 << 10;

/// Convert the result of libbpf's low-level calls, which is negative for an error.
///
/// # Errors
/// The result is an error.
pub fn check(result: i32) -> io::Result<i32> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::from_raw_os_error(-result)),
    }
}

/// The same for calls that return a new descriptor.
///
/// # Errors
/// The result is an error.
pub fn owned(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: a result that is not an error is a descriptor that has just been made for us.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The type of a program, and its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// `BPF_PROG_TYPE_*`.
    pub program: sys::bpf_prog_type,
    /// Its attach type: `BPF_TRACE_*` and others.
    pub attach: sys::bpf_attach_type,
    /// The BTF id of the function or tracepoint, or 0.
    pub target: u32,
    /// The BTF of its module, or 0.
    pub module: i32,
}

/// Why a program was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLoaded {
    /// The error number.
    pub errno: i32,
    /// The verifier's message, if any.
    pub said: Option<String>,
}

/// Load a program.
///
/// # Errors
/// The kernel refuses it.
pub fn load(name: &str, kind: Kind, insns: &[sys::bpf_insn]) -> Result<OwnedFd, NotLoaded> {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let first = match try_load(name, kind, insns, &mut []) {
        Ok(program) => return Ok(program),
        Err(error) => number(error),
    };
    // Only with a log after a rejection, since it makes the verifier slower.
    let mut log = vec![0; LOG_BYTES];
    let second = try_load(name, kind, insns, &mut log);
    Err(NotLoaded { errno: first, said: second.err().and_then(|_| verdict(&log)) })
}

fn try_load(
    name: &str,
    kind: Kind,
    insns: &[sys::bpf_insn],
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    // The kernel accepts 15 letters, digits and underscores.
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(15).collect();
    let name = CString::new(name).unwrap_or_default();
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: kind.attach,
        attach_btf_id: kind.target,
        attach_btf_obj_fd: kind.module as u32,
        // Repeated if the kernel is busy.
        attempts: 3,
        ..Default::default()
    };
    if !log.is_empty() {
        opts.log_level = 1;
        opts.log_size = log.len() as u32;
        opts.log_buf = log.as_mut_ptr().cast();
    }
    // SAFETY: the instructions, the names and the options (with the log that they point to)
    // outlive the call, and are as long as is passed.
    owned(unsafe {
        sys::bpf_prog_load(
            kind.program,
            name.as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as _,
            &raw mut opts,
        )
    })
}

/// The last line before the verifier's statistics.
fn verdict(log: &[u8]) -> Option<String> {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    text.lines()
        .rev()
        .map(str::trim)
        .find(|l| !l.is_empty() && !l.starts_with("processed "))
        .map(str::to_owned)
}

/// Attach a raw tracepoint program by the tracepoint's name, or, without one, a program
/// whose target was fixed when it was loaded.
///
/// # Errors
/// An error of the kernel.
pub fn attach(program: BorrowedFd<'_>, name: Option<&CStr>) -> io::Result<OwnedFd> {
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the name is NULL or NUL-terminated.
    owned(unsafe { sys::bpf_raw_tracepoint_open(name, program.as_raw_fd()) })
}

/// Information about a program, without the parts that need buffers.
///
/// # Errors
/// An error of the kernel.
pub fn info(program: BorrowedFd<'_>) -> io::Result<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is a program's, and the kernel writes no more than `size`
    // bytes. All pointers and lengths within are 0.
    check(unsafe {
        sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size)
    })?;
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the statistics at the end of a verifier log are not taken for its verdict.
    #[test]
    fn the_log_ends_with_a_verdict() {
        let log =
            b"0: R1=ctx\ninvalid mem access 'scalar'\nprocessed 3 insns (limit 1000000)\n\0\0";
        assert_eq!(verdict(log).as_deref(), Some("invalid mem access 'scalar'"));
        assert_eq!(verdict(b"\0"), None);
    }

    /// Check that results and errors are distinguished.
    #[test]
    fn results() {
        assert_eq!(check(3).unwrap(), 3);
        let error = check(-libc::EBUSY).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }
}
