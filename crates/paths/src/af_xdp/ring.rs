//! Rings shared by a process and the kernel: Documentation/networking/af_xdp.rst,
//! include/uapi/linux/if_xdp.h. One side produces, the other consumes; each writes only its own
//! index, and entries between the indices belong to the consumer.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Mapped memory.
#[derive(Debug)]
pub(super) struct Mapping {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory, which any thread can unmap; what is shared in it with the kernel
// is for those who hand out pointers to it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Map a file, or anonymous memory.
    pub(super) fn new(file: Option<(BorrowedFd<'_>, i64)>, bytes: usize) -> io::Result<Mapping> {
        let (fd, offset, flags) = match file {
            Some((fd, offset)) => (fd.as_raw_fd(), offset, libc::MAP_SHARED),
            None => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        // SAFETY: the kernel chooses the place, so nothing of ours is mapped over.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_POPULATE,
                fd,
                offset,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { first, bytes })
    }

    pub(super) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// A range of it, if within bounds.
    pub(super) fn get(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: within the mapping, which is borrowed. Those who ask do so for frames
        // that the kernel has handed over, and gives back later.
        Some(unsafe { std::slice::from_raw_parts(self.first.as_ptr().add(offset), bytes) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: as it was mapped; nobody has it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of entries `T`. The methods called determine which side this process is.
#[derive(Debug)]
pub(super) struct Ring<T> {
    map: Mapping,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    /// This side's index.
    own: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Map a ring of a socket; the number of entries is a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: i64,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Ring<T>> {
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let map = Mapping::new(Some((socket, page_offset)), bytes)?;
        let indexes = [offsets.producer, offsets.consumer, offsets.flags];
        if !entries.is_power_of_two()
            || indexes.iter().any(|at| at % 4 != 0 || *at + 4 > bytes as u64)
            || !offsets.desc.is_multiple_of(align_of::<T>() as u64)
        {
            return Err(io::Error::other("the kernel returned an invalid AF_XDP ring"));
        }
        Ok(Ring { map, offsets, entries, own: 0, kind: PhantomData })
    }

    fn index(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the offset was seen to be within the mapping and aligned; both sides
        // use it as an atomic number.
        unsafe { AtomicU32::from_ptr(self.map.first.as_ptr().add(offset as usize).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = (index & (self.entries - 1)) as usize;
        // SAFETY: the mapping was made with room for all entries.
        unsafe {
            let first = self.map.first.as_ptr().add(self.offsets.desc as usize);
            first.cast::<T>().add(at)
        }
    }

    /// As its producer: add as many items as there is room for; returns their number.
    pub(super) fn produce(&mut self, items: &[T]) -> usize {
        let consumer = self.index(self.offsets.consumer).load(Ordering::Acquire);
        let room = self.entries - self.own.wrapping_sub(consumer);
        let count = items.len().min(room as usize);
        for item in &items[..count] {
            // SAFETY: between the indexes it is the producer's: ours.
            unsafe { self.entry(self.own).write(*item) };
            self.own = self.own.wrapping_add(1);
        }
        let producer = self.index(self.offsets.producer);
        producer.store(self.own, Ordering::Release);
        count
    }

    /// As its consumer: remove as many as `into` has room for.
    pub(super) fn consume(&mut self, into: &mut Vec<T>) {
        let producer = self.index(self.offsets.producer).load(Ordering::Acquire);
        let there = producer.wrapping_sub(self.own) as usize;
        for _ in 0..there.min(into.capacity() - into.len()) {
            // SAFETY: between the indexes it is the consumer's: ours, and written by the
            // producer before it moved its index.
            into.push(unsafe { self.entry(self.own).read() });
            self.own = self.own.wrapping_add(1);
        }
        let consumer = self.index(self.offsets.consumer);
        consumer.store(self.own, Ordering::Release);
    }

    /// Whether the kernel needs a wake-up for new entries (XDP_RING_NEED_WAKEUP).
    pub(super) fn wants_wakeup(&self) -> bool {
        let flags = self.index(self.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in ordinary memory: its indices, then its entries.
    fn ring(entries: u32) -> Ring<u64> {
        Ring {
            map: Mapping::new(None, 64 + 8 * entries as usize).unwrap(),
            offsets: libc::xdp_ring_offset { producer: 0, consumer: 4, desc: 64, flags: 8 },
            entries,
            own: 0,
            kind: PhantomData,
        }
    }

    /// Check order, a full ring, and overflow of the indices.
    #[test]
    fn rings() {
        let mut producer = ring(8);
        // The other side, on the same memory.
        let mut consumer = Ring::<u64> {
            map: Mapping { first: producer.map.first, bytes: producer.map.bytes },
            ..ring(8)
        };
        for start in [0, u32::MAX - 3] {
            producer.own = start;
            consumer.own = start;
            for at in [0, 4] {
                producer.index(at).store(start, Ordering::Relaxed);
            }
            let mut out = Vec::with_capacity(5);
            assert_eq!(producer.produce(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 8);
            assert_eq!(producer.produce(&[9]), 0);
            consumer.consume(&mut out);
            assert_eq!(out, [1, 2, 3, 4, 5]);
            assert_eq!(producer.produce(&[9]), 1);
            out.clear();
            consumer.consume(&mut out);
            assert_eq!(out, [6, 7, 8, 9]);
            out.clear();
            consumer.consume(&mut out);
            assert!(out.is_empty());
        }
        assert!(!producer.wants_wakeup());
        producer.index(8).store(1, Ordering::Relaxed);
        assert!(producer.wants_wakeup());
        // Unmapped only once.
        std::mem::forget(consumer);
    }
}
