//! Reading a file, by `read(2)` or mapped, in order or not.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use netplumb_model::reads::{Access, FileReads};

use aio::Queue;

mod aio;
mod total;

pub use total::{Total, said};

/// The pages of this machine and of guests (x86-64).
pub const PAGE_BYTES: u64 = 4096;

/// A file that is open to be read.
#[derive(Debug)]
pub struct Reader {
    plan: FileReads,
    file: File,
    bytes: u64,
    map: Option<Map>,
    /// For several reads at a time; before their buffer, which it outlives otherwise.
    queue: Option<Queue>,
    buffer: Vec<u8>,
    /// Where in it a page begins.
    begin: usize,
}

impl Reader {
    /// Open the file.
    ///
    /// # Errors
    /// It can't be opened, is empty, or has no size.
    pub fn open(plan: &FileReads) -> io::Result<Reader> {
        let flags = match plan.access {
            Access::Direct => libc::O_DIRECT,
            Access::Read | Access::Mmap => 0,
        };
        let mut file = File::options().read(true).custom_flags(flags).open(&plan.path)?;
        // A device's size is where it ends.
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        if bytes == 0 {
            return Err(io::Error::other("the file is empty"));
        }
        Ok(Reader {
            plan: plan.clone(),
            file,
            bytes,
            map: None,
            buffer: Vec::new(),
            begin: 0,
            queue: None,
        })
    }

    /// Close the file and open it again, if that was asked for.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn reopen(self) -> io::Result<Reader> {
        match self.plan.reopen {
            true => {
                let plan = self.plan.clone();
                drop(self);
                Reader::open(&plan)
            }
            false => Ok(self),
        }
    }

    /// Map the file, or make a buffer, so that reading it is all that is left to do.
    ///
    /// # Errors
    /// It can't be mapped.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.plan.cold {
            self.drop_pages()?;
        }
        match self.plan.access {
            Access::Mmap => self.map = Some(Map::of_file(&self.file, self.bytes)?),
            // Memory for O_DIRECT begins at a page.
            Access::Read | Access::Direct => {
                let all = self.plan.in_flight.max(1) as usize;
                if all > 1 {
                    self.queue = Some(Queue::new(all));
                }
                self.buffer = vec![0; all * self.room() + PAGE_BYTES as usize];
                self.begin = self.buffer.as_ptr().align_offset(PAGE_BYTES as usize);
            }
        }
        Ok(())
    }

    /// Drop its pages from the page cache, except pages that others use or that are not written
    /// back.
    fn drop_pages(&self) -> io::Result<()> {
        self.file.sync_all().ok();
        let fd = self.file.as_raw_fd();
        // SAFETY: a descriptor that is open, and numbers.
        match unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Bytes of the buffer for a read, in whole pages.
    fn room(&self) -> usize {
        let pages = self.plan.chunk_bytes.max(1).div_ceil(PAGE_BYTES as u32);
        pages as usize * PAGE_BYTES as usize
    }

    /// Write to the buffer, so that its pages are this process's own, and set up state that a child does not inherit.
    ///
    /// # Errors
    /// The kernel has no asynchronous I/O, and several reads at a time were asked for.
    pub fn touch(&mut self) -> io::Result<()> {
        for byte in self.buffer.iter_mut().step_by(PAGE_BYTES as usize) {
            // SAFETY: a reference to a byte of ours; volatile, so that it happens.
            unsafe { std::ptr::write_volatile(byte, 1) };
        }
        self.queue.as_mut().map_or(Ok(()), Queue::begin)
    }

    /// Read all of it.
    ///
    /// # Errors
    /// A read fails.
    pub fn run(&mut self) -> io::Result<Total> {
        let each = match self.plan.access {
            Access::Mmap => PAGE_BYTES,
            Access::Read | Access::Direct => u64::from(self.plan.chunk_bytes.max(1)),
        };
        let pieces = self.bytes.div_ceil(each);
        let most = self.plan.count.map_or(pieces, u64::from);
        let mut offsets =
            (Order::new(pieces, self.plan.random).take(most as usize)).map(|at| at * each);
        let room = self.room();
        if let Some(queue) = &mut self.queue {
            let buffers = self.buffer[self.begin..].chunks_exact_mut(room);
            return queue.read_all(&self.file, buffers, each, &mut offsets);
        }
        let mut total = Total::default();
        for offset in offsets {
            total.bytes += match &self.map {
                Some(map) => {
                    map.access(offset);
                    each.min(self.bytes - offset)
                }
                None => self.read_at(offset)?,
            };
            total.accesses += 1;
        }
        Ok(total)
    }

    fn read_at(&mut self, offset: u64) -> io::Result<u64> {
        loop {
            let bytes = self.plan.chunk_bytes.max(1) as usize;
            let buffer = &mut self.buffer[self.begin..self.begin + bytes];
            match self.file.read_at(buffer, offset) {
                Ok(n) => return Ok(n as u64),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// The numbers below a count, in order or in one that looks like chance and is the same each time.
struct Order {
    count: u64,
    left: u64,
    at: u64,
    /// One less than a power of two, for numbers by chance.
    mask: Option<u64>,
}

impl Order {
    fn new(count: u64, random: bool) -> Order {
        Order { count, left: count, at: 0, mask: random.then(|| count.next_power_of_two() - 1) }
    }
}

impl Iterator for Order {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let now = self.at;
            self.at = match self.mask {
                None => now + 1,
                // A generator with the full period of a power of two (Hull and Dobell, 1962: the
                // factor is 1 modulo 4, the addend odd), which passes each number once.
                Some(mask) => now.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & mask,
            };
            if now < self.count {
                return Some(now);
            }
        }
    }
}

/// A file in memory.
#[derive(Debug)]
struct Map {
    begin: *mut libc::c_void,
    bytes: usize,
}

impl Map {
    fn of_file(file: &File, bytes: u64) -> io::Result<Map> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a new mapping of a descriptor that is open, at an address of the kernel's choice.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match begin {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            begin => Ok(Map { begin, bytes }),
        }
    }

    /// Read a byte of a page.
    fn access(&self, offset: u64) {
        let offset = (offset as usize).min(self.bytes - 1);
        // SAFETY: within the mapping, which is readable. A file that somebody shortens meanwhile
        // raises SIGBUS, as with any program that maps files.
        unsafe { std::ptr::read_volatile(self.begin.cast::<u8>().add(offset)) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.begin, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &str) -> FileReads {
        FileReads {
            path: path.into(),
            access: Access::Read,
            random: false,
            count: None,
            chunk_bytes: 4096,
            cold: true,
            reopen: false,
            in_flight: 1,
        }
    }

    /// Check that every part is read once, in both orders.
    #[test]
    fn orders() {
        for count in [1, 2, 7, 64, 1000] {
            let all = |random| {
                let mut all: Vec<u64> = Order::new(count, random).collect();
                let order = all.clone();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
                order
            };
            let (one, other) = (all(false), all(true));
            assert!(one.is_sorted());
            assert!(count < 7 || !other.is_sorted());
        }
    }

    /// Check that a file is read to its end either way, also if its size is no multiple of anything.
    #[test]
    fn whole_files() {
        let path = std::env::temp_dir().join(format!("plumb-reads-{}", std::process::id()));
        std::fs::write(&path, vec![7; 10_001]).unwrap();
        let name = path.to_string_lossy();
        let read = |plan: FileReads| {
            let mut reader = Reader::open(&plan).unwrap().reopen().unwrap();
            reader.prepare().unwrap();
            reader.touch().unwrap();
            reader.run().unwrap()
        };
        let whole = |accesses| Total { bytes: 10_001, accesses };
        assert_eq!(read(plan(&name)), whole(3));
        let mapped = FileReads { access: Access::Mmap, random: true, reopen: true, ..plan(&name) };
        assert_eq!(read(mapped), whole(3));
        let one = FileReads { chunk_bytes: 1 << 20, ..plan(&name) };
        assert_eq!(read(one), whole(1));
        // Direct I/O where the file system has it, several reads at a time; the last one is shorter.
        for in_flight in [2, 7] {
            let several =
                FileReads { access: Access::Direct, random: true, in_flight, ..plan(&name) };
            match Reader::open(&several) {
                Ok(_) => assert_eq!(read(several), whole(3)),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                    netplumb_testkit::tell("the folder of temporary files has no direct reads");
                }
            }
        }
        let some = FileReads { count: Some(2), ..plan(&name) };
        let two = Total { bytes: 8192, accesses: 2 };
        assert_eq!(read(some), two);
        std::fs::write(&path, []).unwrap();
        assert!(Reader::open(&plan(&name)).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Reader::open(&plan(&name)).is_err());
    }
}
