//! Files in memory, which leave nothing on the machine.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};

/// A file in memory, for a process that inherits it.
///
/// # Errors
/// No memory.
pub fn memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}
