//! The journal's file: a line of JSON for each change, written before it is made, and one after it
//! was restored.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

use netplumb_sys::netns::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::disk::BlockDisk;
use crate::nic::Nic;
use crate::setting::Setting;

/// The directory of journals; like the settings, it does not survive a reboot.
pub(crate) const FOLDER: &str = "/run/netplumb";
/// The lock for creating a journal, and for reading all of them.
pub(crate) const LOCK: &str = "knobs.lock";
/// Prefix and suffix of journals' names.
pub(crate) const BEGINS: &str = "knobs-";
pub(crate) const ENDS: &str = ".journal";
/// Raised if older programs can't read it.
pub(crate) const FORMAT: u32 = 1;
/// Maximum size of a journal; no run needs as much.
const BYTES_MOST: u64 = 16 << 20;

/// The identity of a namespace until the next reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Unique (Linux 5.14).
    pub(crate) cookie: Option<u64>,
    /// Reused after it is gone.
    pub(crate) inode: u32,
}

impl Place {
    pub(crate) fn in_namespace(namespace: &Namespace) -> io::Result<Place> {
        Ok(Place { cookie: namespace.cookie().ok(), inode: namespace.inode()? })
    }
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) format: u32,
    pub(crate) pid: u32,
    /// The boot: /proc/sys/kernel/random/boot_id.
    pub(crate) boot: String,
    pub(crate) place: Place,
    /// Interfaces that are in use by the run.
    pub(crate) nics: Vec<Nic>,
    /// Disks that are in use by the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) disks: Vec<BlockDisk>,
}

/// A change, written to the journal before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) n: u32,
    pub(crate) setting: Setting,
    pub(crate) before: String,
    /// The value that was set; none if it changes with other settings.
    pub(crate) after: Option<String>,
}

/// A change was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) done: u32,
}

/// The contents of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// None if the run was killed before the first line was complete: nothing was changed.
    pub(crate) header: Option<Header>,
    /// The changes to restore, the first one first.
    pub(crate) entries: Vec<Entry>,
    /// Numbers of lines that are unknown to this version.
    pub(crate) unknown: Vec<usize>,
    /// Length of the complete lines; the rest is an incomplete line.
    pub(crate) whole_bytes: usize,
}

/// Parse a journal, complete or not.
pub(crate) fn parse(text: &str) -> Contents {
    let mut contents =
        Contents { whole_bytes: text.rfind('\n').map_or(0, |at| at + 1), ..Contents::default() };
    let mut done = BTreeSet::new();
    let mut lines: Vec<&str> = text.split('\n').collect();
    // After the end of the last line there may be an incomplete line, whose change was not made.
    lines.pop();
    for (number, line) in (1..).zip(lines) {
        if number == 1 {
            contents.header = serde_json::from_str(line).ok();
            if contents.header.is_none() {
                contents.unknown.push(number);
            }
            continue;
        }
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            contents.unknown.push(number);
            continue;
        };
        if let Ok(Done { done: n }) = serde_json::from_value(value.clone()) {
            done.insert(n);
        } else if let Ok(entry) = serde_json::from_value::<Entry>(value) {
            contents.entries.push(entry);
        } else {
            contents.unknown.push(number);
        }
    }
    contents.entries.retain(|entry| !done.contains(&entry.n));
    contents
}

/// Read a journal.
pub(crate) fn read(path: &Path) -> io::Result<Contents> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MOST).read_to_end(&mut bytes)?;
    // Bytes that are not text are not JSON either; the length must stay the same.
    for byte in bytes.iter_mut().filter(|b| !b.is_ascii()) {
        *byte = b'?';
    }
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Format a line.
pub(crate) fn line(of: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(of)?;
    line.push(b'\n');
    Ok(line)
}

/// The current boot.
pub(crate) fn boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_string())
}

/// Lock a file; without `wait`, returns whether it was free.
pub(crate) fn lock(file: &File, wait: bool) -> io::Result<bool> {
    let how = if wait { 0 } else { libc::LOCK_NB };
    loop {
        // SAFETY: a descriptor that is open, and flags.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(false),
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            format: FORMAT,
            pid: 7,
            boot: "b".into(),
            place: Place { cookie: Some(5), inode: 6 },
            nics: Vec::new(),
            disks: Vec::new(),
        }
    }

    fn entry(n: u32) -> Entry {
        Entry {
            n,
            setting: Setting::Sysctl { key: "net.a".into(), nic: None },
            before: "0".into(),
            after: Some("1".into()),
        }
    }

    fn text(of: &[Vec<u8>]) -> String {
        String::from_utf8(of.concat()).unwrap()
    }

    /// Check that changes are read in order, without restored ones.
    #[test]
    fn lines() {
        let all = text(&[
            line(&header()).unwrap(),
            line(&entry(0)).unwrap(),
            line(&entry(1)).unwrap(),
            line(&Done { done: 0 }).unwrap(),
            line(&entry(2)).unwrap(),
        ]);
        let contents = parse(&all);
        assert_eq!(contents.header, Some(header()));
        assert_eq!(contents.entries, [entry(1), entry(2)]);
        assert_eq!(contents.whole_bytes, all.len());
        assert!(contents.unknown.is_empty());
        assert_eq!(parse(""), Contents::default());
    }

    /// Check that a file truncated anywhere has the changes of its complete lines, and that an
    /// incomplete line is ignored.
    #[test]
    fn torn_anywhere() {
        let all =
            text(&[line(&header()).unwrap(), line(&entry(0)).unwrap(), line(&entry(1)).unwrap()]);
        let ends: Vec<usize> = all.match_indices('\n').map(|(at, _)| at + 1).collect();
        for cut in 0..=all.len() {
            let contents = parse(&all[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(contents.header.is_some(), whole > 0, "{cut}");
            assert_eq!(contents.entries.len(), whole.saturating_sub(1), "{cut}");
            assert!(contents.unknown.is_empty(), "{cut}");
            let last = ends.iter().rfind(|end| **end <= cut);
            assert_eq!(contents.whole_bytes, last.copied().unwrap_or(0), "{cut}");
        }
    }

    /// Check that lines of another version are reported, and the others read.
    #[test]
    fn unknown_kinds() {
        let all = text(&[
            line(&header()).unwrap(),
            line(&entry(0)).unwrap(),
            b"{\"n\":1,\"setting\":{\"kind\":\"led\",\"nic\":3},\"before\":\"on\",\"after\":\"off\"}\n".to_vec(),
            b"\xc3\xa9 not even JSON\n".to_vec(),
            line(&entry(2)).unwrap(),
        ]);
        let contents = parse(&all);
        assert_eq!(contents.entries, [entry(0), entry(2)]);
        assert_eq!(contents.unknown, [3, 4]);
    }
}
