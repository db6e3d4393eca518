//! The address spaces of processes: which file code is in that they run.

use std::collections::HashMap;
use std::fs;

use netplumb_sys::perf::changes::{Change, Mapped};

use super::files::{FileId, Files, Within, is_made};

/// Address spaces that are kept of ended processes, for late samples.
const MAX_ENDED: usize = 4_096;

/// Code that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    pub(super) file: FileId,
}

impl Mapping {
    /// `since_ns` is when the process began its program.
    fn new(mapped: &Mapped, since_ns: u64, files: &mut Files) -> Mapping {
        let (file, offset) = match is_made(&mapped.path) {
            // Code there is known by its address.
            true => (files.made(mapped.pid, since_ns), mapped.start),
            false => (files.number(&mapped.path, mapped.inode), mapped.offset),
        };
        Mapping { start: mapped.start, end: mapped.end, offset, file }
    }
}

/// What a process has mapped since it began its program.
#[derive(Debug, Clone, Default)]
struct Space {
    since_ns: u64,
    /// Later ones over earlier ones.
    mappings: Vec<Mapping>,
}

/// The address spaces of all known processes.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    /// By process, the last program last.
    all: HashMap<u32, Vec<Space>>,
    /// Processes that have ended, the first first.
    ended: Vec<u32>,
    /// Changes that were not reported.
    pub(super) lost: u64,
}

impl Spaces {
    /// Read what processes have mapped now: a process, or all.
    pub(super) fn read(&mut self, pid: Option<u32>, files: &mut Files) {
        let pids: Vec<u32> = match pid {
            Some(pid) => vec![pid],
            None => (fs::read_dir("/proc").into_iter().flatten().flatten())
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect(),
        };
        for pid in pids {
            // A kernel's thread has none, and one that has ended since.
            let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
                continue;
            };
            let mappings = maps.lines().filter_map(|line| mapping(line, pid, files));
            let space = Space { since_ns: 0, mappings: mappings.collect() };
            self.all.insert(pid, vec![space]);
        }
    }

    /// Follow a change.
    pub(super) fn follow(&mut self, time_ns: u64, change: Change, files: &mut Files) {
        match change {
            Change::Mapped(mapped) => self.map(&mapped, files),
            Change::Began { pid } => {
                let spaces = self.all.entry(pid).or_default();
                spaces.push(Space { since_ns: time_ns, mappings: Vec::new() });
            }
            Change::Forked { pid, parent } => {
                let last = self.all.get(&parent).and_then(|spaces| spaces.last());
                let mut own = last.cloned().unwrap_or_default();
                for mapping in &mut own.mappings {
                    mapping.file = files.made_again(mapping.file, pid, time_ns);
                }
                // An earlier process of this number is another one.
                self.all.insert(pid, vec![own]);
                self.ended.retain(|ended| *ended != pid);
            }
            Change::Ended { pid } => {
                self.ended.push(pid);
                if self.ended.len() > MAX_ENDED {
                    for pid in self.ended.drain(..MAX_ENDED / 2) {
                        self.all.remove(&pid);
                    }
                }
            }
            Change::Lost(records) => self.lost += records,
        }
    }

    fn map(&mut self, mapped: &Mapped, files: &mut Files) {
        let spaces = self.all.entry(mapped.pid).or_default();
        if spaces.is_empty() {
            spaces.push(Space::default());
        }
        if let Some(space) = spaces.last_mut() {
            let new = Mapping::new(mapped, space.since_ns, files);
            let over = |old: &Mapping| old.start >= new.start && old.end <= new.end;
            space.mappings.retain(|old| !over(old));
            space.mappings.push(new);
        }
    }

    /// What a process has mapped at a time, with a number that is another one after a change.
    pub(super) fn mappings(&self, pid: u32, time_ns: u64) -> Option<(u64, &[Mapping])> {
        let spaces = self.all.get(&pid)?;
        let now = spaces.iter().rev().find(|space| space.since_ns <= time_ns);
        let space = now.or(spaces.first())?;
        let version = space.since_ns.wrapping_add(space.mappings.len() as u64);
        Some((version, &space.mappings))
    }

    /// Whether anything is known of a process.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.all.contains_key(&pid)
    }

    /// Where the code at an address is that a process ran at a time.
    pub(super) fn place(&self, pid: u32, time_ns: u64, address: u64) -> Option<Within> {
        let spaces = self.all.get(&pid)?;
        let now = spaces.iter().rev().find(|space| space.since_ns <= time_ns);
        let mappings = &now.or(spaces.first())?.mappings;
        let within = |m: &&Mapping| (m.start..m.end).contains(&address);
        let mapping = mappings.iter().rev().find(within)?;
        Some(Within { file: mapping.file, offset: address - mapping.start + mapping.offset })
    }
}

/// A line of /proc/PID/maps, if it maps code.
fn mapping(line: &str, pid: u32, files: &mut Files) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    if !words.next()?.contains('x') {
        return None;
    }
    let offset = hex(words.next()?)?;
    let _device = words.next()?;
    let mapped = Mapped {
        pid,
        start,
        end,
        offset,
        inode: words.next()?.parse().ok()?,
        path: words.next().unwrap_or_default().trim().into(),
    };
    Some(Mapping::new(&mapped, 0, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(pid: u32, start: u64, path: &str) -> Change {
        Change::Mapped(Mapped {
            pid,
            start,
            end: start + 0x1000,
            offset: 0x40,
            inode: 1,
            path: path.into(),
        })
    }

    /// Check that a process has what its parent had until it begins another program, that its
    /// samples from before belong to the old one, and that its number may become another's.
    #[test]
    fn lives() {
        let mut files = Files::default();
        let mut spaces = Spaces::default();
        let file = |files: &mut Files, path: &str| files.number(path, 1);
        let (old, new) = (file(&mut files, "/old"), file(&mut files, "/new"));
        let mut follow = |time, change| spaces.follow(time, change, &mut files);
        follow(1, mapped(1, 0x5000, "/old"));
        follow(2, Change::Forked { pid: 2, parent: 1 });
        follow(5, Change::Began { pid: 2 });
        follow(6, mapped(2, 0x5000, "/new"));
        follow(7, Change::Ended { pid: 2 });
        let place = |pid, time| spaces.place(pid, time, 0x5008);
        assert_eq!(place(2, 3), Some(Within { file: old, offset: 0x48 }));
        assert_eq!(place(2, 9).map(|at| at.file), Some(new));
        assert_eq!(place(1, 9).map(|at| at.file), Some(old));
        assert_eq!(place(3, 9), None);
        assert_eq!(spaces.place(2, 9, 0x6000), None);
        spaces.follow(9, Change::Forked { pid: 2, parent: 1 }, &mut files);
        assert_eq!(spaces.place(2, 9, 0x5008).map(|at| at.file), Some(old));
    }

    /// Check that code that a process made is distinguished by process and program, and is known by
    /// its address.
    #[test]
    fn made() {
        let mut files = Files::default();
        let mut spaces = Spaces::default();
        let mut follow = |time, change| spaces.follow(time, change, &mut files);
        for (pid, path) in [(1, "//anon"), (2, "/memfd:doublemapper (deleted)"), (3, "/x")] {
            follow(1, mapped(pid, 0x5000, path));
        }
        follow(2, Change::Forked { pid: 4, parent: 1 });
        follow(3, Change::Forked { pid: 5, parent: 3 });
        let at = |spaces: &Spaces, pid| spaces.place(pid, 9, 0x5008).unwrap();
        let places = [1, 2, 4].map(|pid| at(&spaces, pid));
        assert!(places.iter().all(|at| at.offset == 0x5008), "{places:?}");
        let [one, two, forked] = places.map(|at| at.file);
        assert!(one != two && one != forked && two != forked);
        assert_eq!(at(&spaces, 3), at(&spaces, 5));
        spaces.follow(5, Change::Began { pid: 1 }, &mut files);
        spaces.follow(6, mapped(1, 0x5000, "//anon"), &mut files);
        assert_ne!(at(&spaces, 1).file, one);
    }

    /// Check that code's lines in /proc/PID/maps are read, with or without a file.
    #[test]
    fn lines() {
        let mut files = Files::default();
        let line = "7f00-7f80 r-xp 00001000 fe:01 77                         /lib/a b.so";
        let read = mapping(line, 7, &mut files).unwrap();
        assert_eq!((read.start, read.end, read.offset), (0x7f00, 0x7f80, 0x1000));
        assert_eq!(read.file, files.number("/lib/a b.so", 77));
        assert_eq!(mapping(&line.replace("r-x", "r--"), 7, &mut files), None);
        let anon = mapping("1000-2000 rwxp 00000000 00:00 0", 7, &mut files).unwrap();
        assert_eq!((anon.file, anon.offset), (files.made(7, 0), 0x1000));
        assert_eq!(mapping("", 7, &mut files), None);
    }
}
