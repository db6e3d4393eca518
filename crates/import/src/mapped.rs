//! Files that are mapped: of a library of a hundred megabytes, only the pages that its symbols are
//! in are read.

use std::fs::File;
use std::io::{Error, Result};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file's contents.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    /// Map a file. Pipes and devices, files without contents and those with more than `most` bytes
    /// are errors.
    pub(crate) fn open(path: &Path, most: u64) -> Result<Mapped> {
        // Opening a pipe would wait for its other end.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::other("not a file"));
        }
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 || bytes > most {
            return Err(Error::other(format!("{bytes} bytes, expected 1 to {most}")));
        }
        let bytes = usize::try_from(bytes).map_err(Error::other)?;
        // SAFETY: a new mapping at an address that the kernel chooses is over no other one.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mapped at 0"))?;
        Ok(Mapped { start, bytes })
    }

    /// Its contents.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as many bytes are mapped, to be read, until it is dropped. The mapping is private,
        // and nobody rewrites an installed program in place: that fails with ETXTBSY while it runs,
        // and package managers put a new file in its place.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and `bytes` does not outlive it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a file's contents are those that reading it gives, and that what can't be mapped
    /// is an error.
    #[test]
    fn contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(Mapped::open(&path, 3).unwrap().bytes(), b"abc");
        assert!(Mapped::open(&path, 2).is_err());
        std::fs::write(&path, b"").unwrap();
        assert!(Mapped::open(&path, 3).is_err());
        assert!(Mapped::open(folder.path(), 3).is_err());
        assert!(Mapped::open(Path::new("/dev/zero"), 3).is_err());
    }
}
