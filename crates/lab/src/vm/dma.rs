//! QEMU's firmware configuration device, read by DMA: whole pages, copied synchronously to any
//! address of the guest's memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use super::firmware::{DIRECTORY_KEY, Firmware, MAX_ITEMS, item};

/// Bits of a request (docs/specs/fw_cfg.rst of QEMU).
const DMA_ERROR: u32 = 1;
const DMA_READ: u32 = 2;
const DMA_SELECT: u32 = 8;
pub(super) const PAGE_BYTES: usize = 4096;

/// Two pages with fixed physical addresses, for the request and the data, and access to the device.
#[derive(Debug)]
pub(super) struct Dma {
    memory: NonNull<u8>,
    /// A pipe that holds references to the pages.
    pipe: [OwnedFd; 2],
    request: u64,
    data: u64,
    firmware: Firmware,
}

// SAFETY: the mapping is this value's alone, and is used through `&mut self` or read.
unsafe impl Send for Dma {}

impl Dma {
    /// Get access to the device, and the pages.
    ///
    /// # Errors
    /// The kernel denies access.
    pub(super) fn open() -> io::Result<Dma> {
        let pipe = pipe()?;
        // SAFETY: a new mapping, of nothing that is ours.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(memory) = NonNull::new(memory.cast::<u8>()) else {
            return Err(io::Error::other("no memory"));
        };
        let mut dma = Dma { memory, pipe, request: 0, data: 0, firmware: Firmware::open()? };
        dma.hold()?;
        Ok(dma)
    }

    /// Fix the physical addresses of the pages, and look them up. The kernel may move pages that
    /// are only locked, for compaction, but not those with other references.
    fn hold(&mut self) -> io::Result<()> {
        // Written to, so that they are not the zero page.
        self.memory_mut().fill(1);
        let first = self.memory.as_ptr();
        let bytes = 2 * PAGE_BYTES;
        // So that a fork does not make them copy-on-write. SAFETY: the mapping is ours, and of this
        // length.
        if unsafe { libc::madvise(first.cast(), bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let pages = libc::iovec { iov_base: first.cast(), iov_len: bytes };
        // SAFETY: as above; nobody reads the pipe.
        let held = unsafe { libc::vmsplice(self.pipe[1].as_raw_fd(), &pages, 1, 0) };
        match usize::try_from(held) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(held) if held < bytes => return Err(io::Error::other("no room in a pipe")),
            Ok(_) => {}
        }
        let map = File::open("/proc/self/pagemap")?;
        self.request = physical(&map, first as usize)?;
        self.data = physical(&map, first as usize + PAGE_BYTES)?;
        Ok(())
    }

    /// Get access to the device again, after [`Dma::give`].
    ///
    /// # Errors
    /// The kernel denies access.
    pub(super) fn take(&mut self) -> io::Result<()> {
        self.firmware.take()
    }

    /// Give up access to the device, and keep the pages: switching to a task with access is more
    /// expensive, and so are new pages.
    pub(super) fn give(&mut self) {
        self.firmware.give();
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone, and so long.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), 2 * PAGE_BYTES) }
    }

    /// The data that was read.
    pub(super) fn data(&self) -> &[u8] {
        // SAFETY: as above; the device writes only within `fetch`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(PAGE_BYTES), PAGE_BYTES) }
    }

    /// The key and size of an item.
    ///
    /// # Errors
    /// The device has no directory.
    pub(super) fn find(&mut self, name: &str) -> io::Result<Option<(u16, usize)>> {
        let mut word = [0; 4];
        self.fetch(Some(DIRECTORY_KEY), word.len())?;
        word.copy_from_slice(&self.data()[..4]);
        for _ in 0..u32::from_be_bytes(word).min(MAX_ITEMS) {
            let mut entry = [0; 64];
            self.fetch(None, entry.len())?;
            entry.copy_from_slice(&self.data()[..64]);
            let found = item(&entry, name);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Read the next `bytes` of an item into the data page.
    ///
    /// # Errors
    /// The device fails.
    pub(super) fn fetch(&mut self, select: Option<u16>, bytes: usize) -> io::Result<()> {
        self.ask(select, bytes, self.data)
    }

    /// Read the first `bytes` of an item to the address `physical`.
    ///
    /// # Safety
    /// The memory there is overwritten, and must not be referenced.
    ///
    /// # Errors
    /// The device fails.
    pub(super) unsafe fn fetch_to(
        &mut self,
        key: u16,
        bytes: usize,
        physical: u64,
    ) -> io::Result<()> {
        self.ask(Some(key), bytes, physical)
    }

    fn ask(&mut self, select: Option<u16>, bytes: usize, to: u64) -> io::Result<()> {
        let mut control = DMA_READ;
        if let Some(key) = select {
            control |= DMA_SELECT | u32::from(key) << 16;
        }
        let request = self.request;
        let memory = self.memory_mut();
        memory[0..4].copy_from_slice(&control.to_be_bytes());
        memory[4..8].copy_from_slice(&(bytes as u32).to_be_bytes());
        memory[8..16].copy_from_slice(&to.to_be_bytes());
        compiler_fence(Ordering::SeqCst);
        self.firmware.ask(request);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the first word of our own page; the device has written to it.
        let left = u32::from_be(unsafe { std::ptr::read_volatile(self.memory.as_ptr().cast()) });
        if left & DMA_ERROR != 0 || left != 0 {
            return Err(io::Error::other("the firmware device gives no files"));
        }
        Ok(())
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing refers to any more. There is nothing
        // to do about an error.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), 2 * PAGE_BYTES) };
    }
}

fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: the call writes two numbers to our own memory.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new, and nobody else has them.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

/// The physical address of one of our pages.
fn physical(map: &File, address: usize) -> io::Result<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = [0; 8];
    map.read_exact_at(&mut entry, (address / PAGE_BYTES * 8) as u64)?;
    let entry = u64::from_le_bytes(entry);
    if entry & PRESENT == 0 || entry & FRAME == 0 {
        return Err(io::Error::other("the kernel does not report where a page is"));
    }
    Ok((entry & FRAME) * PAGE_BYTES as u64)
}
