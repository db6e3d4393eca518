//! Where pages of files are in the guest's memory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::{io, ptr};

use netplumb_model::message::FilePages;

/// The page of x86-64, and of the kernels of arm64 that are measured.
const PAGE_BYTES: u64 = 4096;
/// Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// The frames of pages of the page cache, 0 for unknown ones: the kernel may be built without
/// pagemap (CONFIG_PROC_PAGE_MONITOR).
pub(super) fn frames(files: &[FilePages]) -> Vec<u32> {
    let map = File::open("/proc/self/pagemap").ok();
    let mut frames = Vec::new();
    for of in files {
        let file = File::open(&of.path).ok();
        for offset in &of.offsets {
            let found = (map.as_ref().zip(file.as_ref()))
                .and_then(|(map, file)| frame(map, file, *offset).ok());
            frames.push(found.unwrap_or(0));
        }
    }
    frames
}

fn frame(map: &File, file: &File, offset: u64) -> io::Result<u32> {
    let size = PAGE_BYTES as usize;
    let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
    let (fd, offset) = (file.as_raw_fd(), offset as libc::off_t);
    // SAFETY: a new mapping, wherever there is room.
    let at = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, fd, offset) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut entry = [0; 8];
    let read = map.read_exact_at(&mut entry, at as u64 / PAGE_BYTES * 8);
    // SAFETY: the mapping from above, which nothing refers to.
    unsafe { libc::munmap(at, size) };
    read?;
    let entry = u64::from_le_bytes(entry);
    match entry & PRESENT {
        0 => Ok(0),
        _ => Ok(u32::try_from(entry & FRAME).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a page has its frame however it is opened, that two pages of equal content have
    /// two, and that a missing file has none.
    #[test]
    fn frames_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        std::fs::write(&path, vec![0x90; 2 * PAGE_BYTES as usize]).unwrap();
        let of = |path: &std::path::Path| FilePages {
            path: path.display().to_string(),
            offsets: vec![0, PAGE_BYTES],
        };
        let found = frames(&[of(&path), of(&folder.path().join("none")), of(&path)]);
        let [first, second, 0, 0, again, and_again] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((first, second), (again, and_again));
        if first == 0 {
            return netplumb_testkit::skip("pagemap shows page frames to root alone");
        }
        assert_ne!(first, second);
    }
}
