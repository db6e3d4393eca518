//! Reading a file with `plumb read-file`, on this machine and in guests, and the events counted meanwhile.

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::quantity::{Declared, Kind};

words! {
    /// How a file is read.
    Access, "way to read",
    /// By `read(2)`, into a buffer.
    Read = "read",
    /// Mapped, an access to each page.
    Mmap = "mmap",
    /// By `read(2)` past the page cache (`O_DIRECT`), into a buffer.
    Direct = "direct",
}

/// The default bytes per `read(2)`, the same as in `cp` and `cat`.
pub const CHUNK_BYTES: u32 = 128 << 10;

/// The environment variable with the descriptor of a socket: `plumb read-file` writes a byte to it when its file is
/// open, and continues when it receives one.
pub const HELD: &str = "PLUMB_HELD";

/// How to read a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReads {
    /// Its path; a block device's is fine.
    pub path: String,
    /// How.
    pub access: Access,
    /// Whether pages are read in an order that looks like chance, the same each time.
    pub random: bool,
    /// How many pages or pieces are read at most; all of them, if absent.
    pub count: Option<u32>,
    /// Bytes of each `read(2)`; with `mmap` every page is accessed.
    pub chunk_bytes: u32,
    /// Whether its pages are dropped from the page cache first.
    pub cold: bool,
    /// Whether the file is closed and opened again after settings were changed.
    pub reopen: bool,
    /// How many reads are under way at a time, by io_submit(2) if more than one; past the page cache only, since others
    /// are over when that returns.
    pub in_flight: u32,
}

/// Requests that the disk completed for reads.
pub const DISK_READS: Declared = of_disk("disk reads", "requests");
/// What they read.
pub const DISK_READ_BYTES: Declared = of_disk("disk read bytes", "bytes");
/// Requests that the disk completed for writes.
pub const DISK_WRITES: Declared = of_disk("disk writes", "requests");
/// What they wrote.
pub const DISK_WRITTEN_BYTES: Declared = of_disk("disk written bytes", "bytes");
/// Page faults that had to wait for a disk.
pub const MAJOR_FAULTS: Declared = of_disk("major faults", "faults");
/// Page faults that had not.
pub const MINOR_FAULTS: Declared = of_disk("minor faults", "faults");
/// How long it took by the clock of the guest, which counts instructions and skips idle time to the next
/// event.
pub const GUEST_TIME: Declared =
    Declared::new("disk", "guest time", "ns", Kind::Duration).exactly();

/// All of them, in the order in which tables have them.
pub const COUNTED: [&Declared; 7] = [
    &DISK_READS,
    &DISK_READ_BYTES,
    &DISK_WRITES,
    &DISK_WRITTEN_BYTES,
    &MAJOR_FAULTS,
    &MINOR_FAULTS,
    &GUEST_TIME,
];

const fn of_disk(name: &'static str, unit: &'static str) -> Declared {
    Declared::new("disk", name, unit, Kind::Count).exactly()
}
