//! Several reads at a time, by io_submit(2): without a thread for each, and without allocating anything once they begin.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::total::Total;

/// `struct iocb` of include/uapi/linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event` there.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;

/// Reads that are under way.
#[derive(Debug)]
pub(super) struct Queue {
    /// A process's own: a child has none. 0 before it is set up.
    context: libc::c_ulong,
    controls: Vec<Control>,
    events: Vec<Event>,
}

fn checked(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

impl Queue {
    /// A queue for at most `reads` reads at a time.
    pub(super) fn new(reads: usize) -> Queue {
        Queue {
            context: 0,
            controls: vec![Control::default(); reads],
            events: vec![Event::default(); reads],
        }
    }

    /// Set it up, if it is not.
    ///
    /// # Errors
    /// The kernel has no asynchronous I/O, or too many are under way on this machine (fs.aio-max-nr).
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.context != 0 {
            return Ok(());
        }
        let reads = self.controls.len();
        // SAFETY: the context is ours, to be filled in.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, reads, &raw mut self.context) })
            .map(drop)
    }

    /// Read all offsets, each into a buffer that none under way has.
    ///
    /// # Errors
    /// A read fails, or the kernel does not say how reads ended: then those under way end as this is dropped.
    pub(super) fn read_all<'b>(
        &mut self,
        file: &File,
        buffers: impl Iterator<Item = &'b mut [u8]>,
        bytes: u64,
        offsets: &mut dyn Iterator<Item = u64>,
    ) -> io::Result<Total> {
        self.begin()?;
        for ((number, control), buffer) in (0..).zip(&mut self.controls).zip(buffers) {
            *control = Control {
                data: number,
                opcode: READ,
                fd: file.as_raw_fd() as u32,
                buffer: buffer.as_mut_ptr() as u64,
                bytes: bytes.min(buffer.len() as u64),
                ..Control::default()
            };
        }
        let mut total = Total::default();
        let mut failed = None;
        let mut under_way = 0;
        for number in 0..self.controls.len() {
            let Some(offset) = offsets.next() else { break };
            match self.submit(number, offset) {
                Ok(()) => under_way += 1,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        while under_way > 0 {
            let ended = match self.wait() {
                Ok(ended) => ended,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            under_way -= ended;
            for at in 0..ended {
                let Event { data, result, .. } = self.events[at];
                match u64::try_from(result) {
                    Ok(bytes) => {
                        total.bytes += bytes;
                        total.accesses += 1;
                    }
                    Err(_) => {
                        let error = io::Error::from_raw_os_error(-result as i32);
                        failed.get_or_insert(error);
                    }
                }
                if failed.is_some() {
                    continue;
                }
                if let Some(offset) = offsets.next() {
                    match self.submit(data as usize, offset) {
                        Ok(()) => under_way += 1,
                        Err(error) => failed = Some(error),
                    }
                }
            }
        }
        failed.map_or(Ok(total), Err)
    }

    fn submit(&mut self, number: usize, offset: u64) -> io::Result<()> {
        let control = &mut self.controls[number];
        control.offset = offset as i64;
        let mut list = [std::ptr::from_mut(control)];
        // SAFETY: one control block of ours, whose buffer lives until the read is over.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) })
            .map(drop)
    }

    /// Wait until some are over; returns how many, the first of the events.
    fn wait(&mut self) -> io::Result<usize> {
        let most = self.events.len();
        let events = self.events.as_mut_ptr();
        let no_limit: *const libc::timespec = std::ptr::null();
        // SAFETY: the events are ours, of the given number, and there is no time limit.
        checked(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, 1, most, events, no_limit)
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the context is ours, or none; reads that are under way are over when this returns.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
