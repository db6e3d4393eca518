//! What processes do to their address spaces, as perf's records report it in time: a process may
//! be gone before /proc is read.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_sys as sys;

use super::{PERF_EVENT_IOC_ENABLE, open};

/// Pages of a CPU's buffer, a power of two: some thousand records.
const PAGES: usize = 128;
/// Types of records (include/uapi/linux/perf_event.h).
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
/// The name is new because another program is.
const COMM_EXEC: u16 = 1 << 13;
/// A mapping has a build ID in place of an inode.
const MMAP_BUILD_ID: u16 = 1 << 14;

/// A change of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Code was mapped.
    Mapped(Mapped),
    /// It has begun another program, which has mapped nothing yet.
    Began {
        /// The process, whichever of its threads did it.
        pid: u32,
    },
    /// It was made by another one, with the same mappings.
    Forked {
        /// The new process.
        pid: u32,
        /// Who made it.
        parent: u32,
    },
    /// It has ended.
    Ended {
        /// The process, whose number may be used again.
        pid: u32,
    },
    /// Records that the buffer had no room for.
    Lost(u64),
}

/// Code that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The process that mapped it.
    pub pid: u32,
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's inode; 0 if it is not known.
    pub inode: u64,
    /// The path of the file, or a name like `[vdso]` or `//anon`.
    pub path: String,
}

/// Changes of all processes.
#[derive(Debug)]
pub struct Changes {
    rings: Vec<Ring>,
}

impl Changes {
    /// Watch from now on.
    ///
    /// # Errors
    /// It is not permitted, or memory can't be locked.
    pub fn watch(cpus: &[u32]) -> io::Result<Changes> {
        let rings = cpus.iter().map(|cpu| Ring::open(*cpu));
        Ok(Changes { rings: rings.collect::<io::Result<_>>()? })
    }

    /// What has changed since this was asked last, in the order of time (CLOCK_MONOTONIC).
    pub fn poll(&mut self) -> Vec<(u64, Change)> {
        let mut sorted: BTreeMap<(u64, usize), Change> = BTreeMap::new();
        for ring in &mut self.rings {
            ring.read(&mut |time, change| {
                let number = sorted.len();
                sorted.insert((time, number), change);
            });
        }
        let sorted = sorted.into_iter();
        sorted.map(|((time, _), change)| (time, change)).collect()
    }
}

/// The buffer of a CPU.
#[derive(Debug)]
struct Ring {
    /// The first page, and the data behind it.
    page: *mut sys::perf_event_mmap_page,
    data: *const u8,
    bytes: usize,
    mapped_bytes: usize,
    read: u64,
    // Unmapped before.
    _event: OwnedFd,
}

impl Ring {
    fn open(cpu: u32) -> io::Result<Ring> {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_DUMMY),
            sample_type: u64::from(sys::PERF_SAMPLE_TIME),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_disabled(1);
        let event = open(&mut attr, Some(cpu as i32))?;
        // SAFETY: takes a name.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mapped_bytes = (1 + PAGES) * page_bytes;
        // SAFETY: a new mapping, wherever there is room.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = Ring {
            page: page.cast(),
            // SAFETY: within the mapping.
            data: unsafe { page.cast::<u8>().add(page_bytes) },
            bytes: PAGES * page_bytes,
            mapped_bytes,
            read: 0,
            _event: event,
        };
        // SAFETY: a descriptor of ours, and a request without an argument.
        if unsafe { libc::ioctl(ring._event.as_raw_fd(), PERF_EVENT_IOC_ENABLE as _, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ring)
    }

    fn read(&mut self, each: &mut dyn FnMut(u64, Change)) {
        // SAFETY: the page is mapped as long as this lives, and its fields are aligned; the kernel
        // writes `data_head`, and reads `data_tail`.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*self.page).data_head),
                AtomicU64::from_ptr(&raw mut (*self.page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        while self.read < end {
            let header = self.bytes_at(self.read, 8);
            let length = u64::from(u16::from_ne_bytes([header[6], header[7]]));
            // No record is as short; the kernel aligns them.
            if length < 8 || self.read + length > end {
                self.read = end;
                break;
            }
            let record = self.bytes_at(self.read, length as usize);
            self.read += length;
            if let Some((time, change)) = parse(&record) {
                each(time, change);
            }
        }
        tail.store(self.read, Ordering::Release);
    }

    fn bytes_at(&self, from: u64, count: usize) -> Vec<u8> {
        let from = (from % self.bytes as u64) as usize;
        let first = count.min(self.bytes - from);
        let mut bytes = vec![0; count];
        // SAFETY: both parts are within the data, to its end and from its beginning; the kernel does not write over
        // what has not been reported as read.
        unsafe {
            ptr::copy_nonoverlapping(self.data.add(from), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(self.data, bytes[first..].as_mut_ptr(), count - first);
        }
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.page.cast(), self.mapped_bytes) };
    }
}

/// A record: its time, and the change.
fn parse(record: &[u8]) -> Option<(u64, Change)> {
    let half = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let misc = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    let kind = half(0)?;
    // The time is last in every record, since each has the fields of a sample.
    let time = word(record.len().checked_sub(8)?)?;
    let body = record.len() - 8;
    let change = match kind {
        LOST => Change::Lost(word(16)?),
        COMM if misc & COMM_EXEC != 0 => Change::Began { pid: half(8)? },
        FORK => {
            let (pid, parent) = (half(8)?, half(12)?);
            // A thread shares everything.
            if pid == parent {
                return None;
            }
            Change::Forked { pid, parent }
        }
        EXIT => {
            let (pid, thread) = (half(8)?, half(16)?);
            if pid != thread {
                return None;
            }
            Change::Ended { pid }
        }
        MMAP2 => {
            let (start, length) = (word(16)?, word(24)?);
            let path = record.get(72..body)?;
            let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
            Change::Mapped(Mapped {
                pid: half(8)?,
                start,
                end: start.checked_add(length)?,
                offset: word(32)?,
                inode: match misc & MMAP_BUILD_ID {
                    0 => word(48)?,
                    _ => 0,
                },
                path: String::from_utf8_lossy(path).into_owned(),
            })
        }
        _ => return None,
    };
    Some((time, change))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Check that records are read as perf_event.h has them, and that one cut short is ignored.
    #[test]
    fn records() {
        let mut record = Vec::new();
        record.extend(MMAP2.to_ne_bytes());
        record.extend([2, 0, 0, 0]);
        record.extend([7_u32, 8].map(u32::to_ne_bytes).as_flattened());
        record.extend([0x1000_u64, 0x2000, 0x3000].map(u64::to_ne_bytes).as_flattened());
        record.extend([8_u32, 1].map(u32::to_ne_bytes).as_flattened());
        record.extend([99_u64, 0, 5].map(u64::to_ne_bytes).as_flattened());
        record.extend(*b"/bin/true\0\0\0\0\0\0\0");
        record.extend(77_u64.to_ne_bytes());
        let mapped = Mapped {
            pid: 7,
            start: 0x1000,
            end: 0x3000,
            offset: 0x3000,
            inode: 99,
            path: "/bin/true".into(),
        };
        assert_eq!(parse(&record), Some((77, Change::Mapped(mapped))));
        assert_eq!(parse(&record[..60]), None);
        assert_eq!(parse(&[]), None);
    }

    /// Check that a process that lives for a moment is reported from its fork to its end, with
    /// the program that it maps.
    #[test]
    fn as_root_a_short_life() {
        if !netplumb_testkit::has_root() {
            return;
        }
        let cpus: Vec<u32> = crate::cpus::online().unwrap().into_iter().collect();
        let mut changes = Changes::watch(&cpus).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let of = child.id();
        assert!(child.wait().unwrap().success());
        let all = changes.poll();
        let own: Vec<&Change> = (all.iter().map(|(_, change)| change))
            .filter(|change| match change {
                Change::Mapped(mapped) => mapped.pid == of,
                Change::Began { pid } | Change::Forked { pid, .. } | Change::Ended { pid } => {
                    *pid == of
                }
                Change::Lost(_) => false,
            })
            .collect();
        assert!(matches!(own.first(), Some(Change::Forked { .. })), "{own:?}");
        assert!(own.contains(&&Change::Began { pid: of }), "{own:?}");
        assert!(matches!(own.last(), Some(Change::Ended { .. })), "{own:?}");
        let maps = |change: &&&Change| match change {
            Change::Mapped(mapped) => mapped.path.ends_with("/true") && mapped.inode != 0,
            _ => false,
        };
        assert!(own.iter().any(|change| maps(&change)), "{own:?}");
    }
}
