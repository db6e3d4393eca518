//! Block devices of this machine: which one is meant, and the attributes of its queue.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use netplumb_model::experiment::selected;
use serde::{Deserialize, Serialize};

/// Disks by name.
const DISKS: &str = "/sys/block";
/// Disks and partitions by name.
const NAMES: &str = "/sys/class/block";
/// Disks and partitions by number.
const NUMBERS: &str = "/sys/dev/block";
/// The attribute with the I/O scheduler.
pub(crate) const SCHEDULER: &str = "scheduler";
/// The attribute with the number of requests.
pub(crate) const REQUESTS: &str = "nr_requests";
/// The read-ahead attribute, which disks without a queue have, too.
const READ_AHEAD: &str = "read_ahead_kb";
/// The directory of a scheduler's own attributes.
const OF_SCHEDULER: &str = "iosched";
/// Most names in an error.
const NAMES_MOST: usize = 20;

/// A disk: by its number and the inode of its directory, which sysfs doesn't reuse, so that another
/// disk in its place is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockDisk {
    /// Its name in /sys/block.
    pub name: String,
    /// Its device number, `MAJOR:MINOR`.
    pub number: String,
    /// The inode of its directory.
    pub inode: u64,
}

/// A disk that was found, with a note about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDisk {
    /// The whole disk, even if a partition was named.
    pub disk: BlockDisk,
    /// That another name was given than the disk's: a sentence.
    pub note: Option<String>,
}

/// Why a disk can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiskError(String);

/// A device number, as in sysfs.
fn number(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(4096).read_to_string(&mut text)?;
    Ok(text.trim().to_string())
}

/// The names in a directory, sorted; none if there is no such directory.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The directory of the disk that a partition is of, or its own.
fn disk_of(own: &Path) -> &Path {
    match (own.join("partition").exists(), own.parent()) {
        (true, Some(disk)) => disk,
        _ => own,
    }
}

/// Whether it is the name of an attribute, so that no other file is written: `nr_requests`, or
/// `iosched/read_expire`.
fn is_attribute(which: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let name =
        which.strip_prefix(OF_SCHEDULER).and_then(|rest| rest.strip_prefix('/')).unwrap_or(which);
    !name.is_empty() && name.chars().all(fits)
}

impl BlockDisk {
    /// The disk that a name, the path of a device, or the path of a file on it stands for. A
    /// partition stands for its disk, which has the queue.
    ///
    /// # Errors
    /// There is none, or it can't be used.
    pub fn find(text: &str) -> Result<FoundDisk, DiskError> {
        let wrong = |why: String| DiskError(format!("disk `{text}`: {why}"));
        let (number, is_device) = match text.starts_with('/') {
            true => {
                let metadata = fs::metadata(text).map_err(|e| wrong(e.to_string()))?;
                let kind = metadata.file_type();
                match () {
                    () if kind.is_block_device() => (number(metadata.rdev()), true),
                    () if kind.is_dir() || kind.is_file() => (number(metadata.dev()), false),
                    () => {
                        let why = "neither a block device nor a file; `lsblk` lists block devices";
                        return Err(wrong(why.into()));
                    }
                }
            }
            false => {
                let found = read(&Path::new(NAMES).join(text).join("dev"));
                let number = found.map_err(|_| {
                    let mut known = names_in(Path::new(DISKS));
                    known.truncate(NAMES_MOST);
                    wrong(format!(
                        "no such block device; expected one of {}, the path of a device, or of a file on it",
                        known.join(", ")
                    ))
                })?;
                (number, true)
            }
        };
        let gone = |_| {
            match is_device {
            true => wrong("its driver is gone".into()),
            false => wrong(
                "the file system has no block device of its own (btrfs, overlayfs, NFS and tmpfs have \
                 not): name a disk, as `lsblk` lists them"
                    .into(),
            ),
        }
        };
        let own = fs::canonicalize(Path::new(NUMBERS).join(&number)).map_err(gone)?;
        let folder = disk_of(&own).to_path_buf();
        let name_of = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let failed = |e: io::Error| wrong(e.to_string());
        let disk = BlockDisk {
            name: name_of(&folder),
            number: read(&folder.join("dev")).map_err(failed)?,
            inode: fs::metadata(&folder).map_err(failed)?.ino(),
        };
        if read(&folder.join("size")).map_err(failed)? == "0" {
            return Err(wrong(
                "it has no medium: attach a file (`losetup`), or use another disk".into(),
            ));
        }
        let (own, name) = (name_of(&own), &disk.name);
        let note = match (own == *name, is_device) {
            (true, true) => None,
            (true, false) => Some(format!("{text} is on {name}")),
            (false, true) => Some(format!(
                "{text} is a partition of {name}, whose queue its other partitions share"
            )),
            (false, false) => Some(format!(
                "{text} is on {own}, a partition of {name}, whose queue its other partitions share"
            )),
        };
        Ok(FoundDisk { disk, note })
    }

    /// Its directory, if it is still this disk.
    fn folder(&self) -> Option<PathBuf> {
        let path = fs::canonicalize(Path::new(NUMBERS).join(&self.number)).ok()?;
        let inode = fs::metadata(&path).ok()?.ino();
        (inode == self.inode).then_some(path)
    }

    /// Whether it is there, and no other one in its place.
    pub(crate) fn is_there(&self) -> bool {
        self.folder().is_some()
    }

    fn attribute(&self, which: &str) -> io::Result<PathBuf> {
        if !is_attribute(which) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let folder = self.folder().ok_or(ErrorKind::NotFound)?;
        Ok(folder.join("queue").join(which))
    }

    /// The value of an attribute of its queue.
    pub(crate) fn value(&self, which: &str) -> io::Result<String> {
        let text = read(&self.attribute(which)?)?;
        Ok(selected(&text).to_string())
    }

    /// Set an attribute of its queue.
    pub(crate) fn set(&self, which: &str, value: &str) -> io::Result<()> {
        // Nothing is created in sysfs.
        let mut file = OpenOptions::new().write(true).open(self.attribute(which)?)?;
        file.write_all(value.as_bytes())
    }

    /// The values that an attribute may have, where the kernel lists them.
    pub(crate) fn choices(&self, which: &str) -> Option<String> {
        let text = read(&self.attribute(which).ok()?).ok()?;
        text.contains('[').then(|| {
            let words = text.split_whitespace();
            let words: Vec<&str> = words.map(|w| w.trim_matches(['[', ']'])).collect();
            words.join(", ")
        })
    }

    /// Why it has no such attribute, and what to do about it.
    pub(crate) fn why_not(&self, which: &str) -> String {
        let below = self.folder().map(|folder| names_in(&folder.join("slaves")));
        match below.unwrap_or_default().as_slice() {
            _ if ![SCHEDULER, REQUESTS].contains(&which) => {
                "this kernel has no such attribute".into()
            }
            [] => "its driver has no queue of requests".into(),
            disks => format!("requests are queued by what is below it: use {}", disks.join(" or ")),
        }
    }

    /// Attributes that are lost when another one changes: the scheduler's own, and `nr_requests`.
    pub(crate) fn change_with(&self, which: &str) -> Vec<String> {
        if which != SCHEDULER {
            return Vec::new();
        }
        let own = self.attribute(OF_SCHEDULER).map(|folder| names_in(&folder));
        let own = own.unwrap_or_default().into_iter();
        let own = own.map(|name| format!("{OF_SCHEDULER}/{name}"));
        std::iter::once(REQUESTS.to_string())
            .chain(own)
            .filter(|which| self.value(which).is_ok())
            .collect()
    }

    /// What an attribute has no effect on, in a sentence.
    pub fn without_effect(&self, which: &str) -> Option<String> {
        let above = names_in(&self.folder()?.join("holders"));
        (which == READ_AHEAD && !above.is_empty()).then(|| {
            format!(
                "{READ_AHEAD} of {} has no effect on files of {}, which has its own",
                self.name,
                above.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no file outside of a queue's directory is an attribute.
    #[test]
    fn attributes() {
        for which in ["scheduler", "read_ahead_kb", "iosched/read_expire"] {
            assert!(is_attribute(which), "{which}");
        }
        for which in ["", "..", "../size", "a/b", "iosched/", "iosched/../x", "/etc/x", "A"] {
            assert!(!is_attribute(which), "{which}");
        }
    }

    /// Check that a partition's queue is its disk's.
    #[test]
    fn partitions() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("sda");
        let partition = disk.join("sda1");
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        assert_eq!(disk_of(&partition), disk);
        assert_eq!(disk_of(&disk), disk);
    }

    /// Check that a path that is not of a disk is refused, with what to do about it.
    #[test]
    fn what_is_no_disk() {
        for (text, says) in [
            ("no-such-disk", "no such block device"),
            ("/dev/no-such-disk", "No such file"),
            ("/dev/null", "lsblk"),
            ("/proc", "no block device of its own"),
        ] {
            let error = BlockDisk::find(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
