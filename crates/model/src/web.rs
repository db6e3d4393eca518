//! A web server between two hosts, as an arm sets it. The server is the sender, since it sends nearly all the bytes;
//! its client is the receiver.

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::experiment::DiskPlan;
use crate::recording::Arm;

words! {
    /// Where the server finds its files.
    #[derive(Default)]
    PageCache, "page cache",
    /// In the page cache.
    #[default]
    Warm = "warm",
    /// On the disk at first: the caches are dropped before each block.
    Cold = "cold",
    /// On the disk: they are read past the page cache (`O_DIRECT`), which is also dropped before each block, since
    /// nginx reads the last part of less than 32 KiB through it.
    Direct = "direct",
}

/// The server of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebPlan {
    /// Whether it sends files by sendfile(2), or reads and writes them.
    pub sendfile: bool,
    /// Where it finds them.
    pub page_cache: PageCache,
    /// The disk that they are on; none for memory.
    pub disk: Option<DiskPlan>,
}

/// A client's requests to a server in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebLoad {
    /// Requests, of all connections.
    pub requests: u32,
    /// Connections; each requests a file when it has received the one before.
    pub connections: u32,
    /// Directories of files.
    pub directories: u32,
    /// The seed that picks the requested files.
    pub seed: u32,
}

/// The most directories: their files have to fit in a guest's memory.
pub const MOST_DIRECTORIES: u32 = 12;
/// The same on a disk, held both in that memory and in the page cache.
const MOST_ON_DISK: u32 = 3;
/// The bytes of one.
pub const DIRECTORY_BYTES: u64 = 5 << 20;

impl WebPlan {
    /// The server of an arm.
    pub fn from_arm(arm: &Arm) -> WebPlan {
        WebPlan {
            sendfile: arm.level("sendfile") != Some("off"),
            page_cache: arm.read("page_cache").unwrap_or_default(),
            disk: DiskPlan::from_arm(arm),
        }
    }

    /// Check that it can serve these requests.
    ///
    /// # Errors
    /// The knob, and what is wrong.
    pub fn check(&self, load: WebLoad) -> Result<(), (&'static str, String)> {
        let Some(plan) = &self.disk else {
            return match self.page_cache {
                PageCache::Warm => Ok(()),
                other => {
                    let why = format!(
                        "page_cache = \"{other}\" needs a disk, like disk = \"null_blk:64M:ext4:50us\": \
                         without one the files are in memory"
                    );
                    Err(("page_cache", why))
                }
            };
        };
        if plan.changes() {
            let why = "`A then B` changes a setting while `plumb read-file` holds its file open";
            return Err(("read_ahead_kb", why.into()));
        }
        if !plan.disk.device.is_in_guest() {
            let why = "two hosts need a disk in a guest's memory: null_blk or brd; what another one does \
                       takes this machine's time";
            return Err(("disk", why.into()));
        }
        if plan.disk.file_system.is_raw() {
            let why = "a web server needs a file system: ext4 or xfs";
            return Err(("disk", why.into()));
        }
        if load.directories > MOST_ON_DISK {
            let why = format!(
                "files on a disk are in the guest's memory twice: expected at most {MOST_ON_DISK} directories"
            );
            return Err(("disk", why));
        }
        let needs = u64::from(load.directories) * DIRECTORY_BYTES + (8 << 20);
        if plan.disk.size_bytes < needs {
            let why = format!(
                "{} directories of files need a disk of {} MiB",
                load.directories,
                needs >> 20
            );
            return Err(("disk", why));
        }
        Ok(())
    }
}
