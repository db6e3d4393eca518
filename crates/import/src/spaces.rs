//! What processes had mapped, and their threads' names, by a file's records one after the other.

use std::rc::Rc;

use netplumb_model::samples::{Thread, ThreadId};
use rustc_hash::FxHashMap;

/// A file that was mapped, by its number.
pub(crate) type FileId = u32;

/// Code that is mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) file: FileId,
    /// Whether it is memory without a file, in which programs make code.
    pub(crate) made: bool,
}

/// What a process has mapped, by address, none over another. Processes that were forked share it
/// until one of them maps more.
#[derive(Debug, Clone, Default)]
struct Space {
    /// Another number after each change.
    version: u32,
    mappings: Rc<Vec<Mapping>>,
}

/// All processes.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    all: FxHashMap<i32, Space>,
    /// Threads that have not ended, and their processes.
    running: FxHashMap<i32, i32>,
    /// How many there are of each process.
    threads: FxHashMap<i32, u32>,
    versions: u32,
    files: Vec<String>,
    numbers: FxHashMap<String, FileId>,
}

impl Spaces {
    /// The number of a file.
    pub(crate) fn file(&mut self, path: String) -> FileId {
        if let Some(number) = self.numbers.get(&path) {
            return *number;
        }
        let number = self.files.len() as FileId;
        self.files.push(path.clone());
        self.numbers.insert(path, number);
        number
    }

    /// All files, by their numbers.
    pub(crate) fn into_files(self) -> Vec<String> {
        self.files
    }

    /// A process mapped code.
    pub(crate) fn map(&mut self, pid: i32, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        self.versions += 1;
        let space = self.all.entry(pid).or_default();
        space.version = self.versions;
        let mappings = Rc::make_mut(&mut space.mappings);
        // The new one replaces older ones.
        let first = mappings.partition_point(|old| old.end <= new.start);
        let last = mappings.partition_point(|old| old.start < new.end).max(first);
        let cut: Vec<Mapping> = mappings[first..last].to_vec();
        let before = cut.first().filter(|old| old.start < new.start);
        let after = cut.last().filter(|old| old.end > new.end);
        let parts = [
            before.map(|old| Mapping { end: new.start, ..*old }),
            Some(new),
            after.map(|old| Mapping {
                start: new.end,
                offset: old.offset.wrapping_add(new.end - old.start),
                ..*old
            }),
        ];
        mappings.splice(first..last, parts.into_iter().flatten());
    }

    /// A process began another program.
    pub(crate) fn execute(&mut self, pid: i32) {
        self.versions += 1;
        let space = Space { version: self.versions, mappings: Rc::default() };
        self.all.insert(pid, space);
    }

    /// A process was forked.
    pub(crate) fn fork(&mut self, pid: i32, parent: i32) {
        if pid != parent
            && let Some(space) = self.all.get(&parent).cloned()
        {
            self.all.insert(pid, space);
        }
    }

    /// A thread is there.
    pub(crate) fn runs(&mut self, pid: i32, tid: i32) {
        let before = self.running.insert(tid, pid);
        if before != Some(pid) {
            if let Some(count) = before.and_then(|pid| self.threads.get_mut(&pid)) {
                *count = count.saturating_sub(1);
            }
            *self.threads.entry(pid).or_default() += 1;
        }
    }

    /// A thread ended, and with the last one its process: the first one may end before others. Returns
    /// whether it was the last.
    pub(crate) fn ended(&mut self, pid: i32, tid: i32) -> bool {
        let was_known = self.running.remove(&tid) == Some(pid);
        let left = self.threads.get_mut(&pid).map_or(0, |count| {
            *count = count.saturating_sub(u32::from(was_known));
            *count
        });
        let is_last = left == 0 && (was_known || pid == tid);
        if is_last {
            self.end(pid);
        }
        is_last
    }

    /// A process ended.
    pub(crate) fn end(&mut self, pid: i32) {
        self.threads.remove(&pid);
        self.all.remove(&pid);
    }

    /// What changes with the mappings of a process.
    pub(crate) fn version(&self, pid: i32) -> u32 {
        self.all.get(&pid).map_or(0, |space| space.version)
    }

    /// The mapping at an address.
    pub(crate) fn at(&self, pid: i32, address: u64) -> Option<Mapping> {
        let mappings = &self.all.get(&pid)?.mappings;
        let after = mappings.partition_point(|m| m.start <= address);
        let found = mappings.get(after.checked_sub(1)?)?;
        (address < found.end).then_some(*found)
    }
}

/// Threads, with the names that they have now.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Names that were met.
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
    /// The current name, by thread.
    now: FxHashMap<i32, u32>,
    all: FxHashMap<(i32, i32, u32), ThreadId>,
    rows: Vec<Thread>,
}

impl Threads {
    fn name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.by_name.insert(name.into(), number);
        number
    }

    /// A thread has this name now.
    pub(crate) fn named(&mut self, tid: i32, name: &str) {
        let name = self.name(name);
        self.now.insert(tid, name);
    }

    /// A thread was started by another.
    pub(crate) fn started(&mut self, tid: i32, by: i32) {
        if let Some(name) = self.now.get(&by).copied() {
            self.now.insert(tid, name);
        }
    }

    /// A thread, the number of its name, and whether it was not met by this name before.
    pub(crate) fn thread(&mut self, pid: i32, tid: i32) -> (ThreadId, u32, bool) {
        let name = match self.now.get(&tid) {
            Some(name) => *name,
            None => {
                // As perf calls threads without a name.
                let name = match tid {
                    0 => "swapper".to_string(),
                    -1 => "[unknown]".to_string(),
                    tid => format!(":{tid}"),
                };
                self.named(tid, &name);
                self.now[&tid]
            }
        };
        let known = self.rows.len();
        let id = *self.all.entry((pid, tid, name)).or_insert_with(|| {
            self.rows.push(Thread {
                pid: pid.max(0) as u32,
                tid: tid.max(0) as u32,
                name: self.names[name as usize].clone(),
            });
            self.rows.len() as ThreadId - 1
        });
        (id, name, self.rows.len() > known)
    }

    /// All threads, and all names, by their numbers.
    pub(crate) fn into_parts(self) -> (Vec<Thread>, Vec<String>) {
        (self.rows, self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, file: FileId) -> Mapping {
        Mapping { start, end, offset: 0, file, made: false }
    }

    /// Check that a mapping replaces older ones, whose ends stay, and that a process has its
    /// parent's mappings at the fork.
    #[test]
    fn mappings() {
        let mut spaces = Spaces::default();
        let at = |spaces: &Spaces, pid, address| {
            let found = spaces.at(pid, address)?;
            Some((found.file, address - found.start + found.offset))
        };
        spaces.map(1, mapping(0x1000, 0x5000, 0));
        spaces.fork(2, 1);
        let before = spaces.version(2);
        assert_eq!(before, spaces.version(1));
        spaces.map(1, mapping(0x2000, 0x3000, 1));
        assert_ne!(spaces.version(1), before);
        assert_eq!(at(&spaces, 1, 0x1fff), Some((0, 0xfff)));
        assert_eq!(at(&spaces, 1, 0x2001), Some((1, 1)));
        assert_eq!(at(&spaces, 1, 0x3001), Some((0, 0x2001)));
        assert_eq!(at(&spaces, 2, 0x2001), Some((0, 0x1001)));
        spaces.map(1, mapping(0x0, 0x9000, 2));
        assert_eq!(at(&spaces, 1, 0x3001), Some((2, 0x3001)));
        spaces.map(1, mapping(0x9000, 0x9000, 3));
        assert_eq!(at(&spaces, 1, 0x9000), None);
        spaces.execute(2);
        assert_eq!(at(&spaces, 2, 0x2001), None);
        spaces.end(1);
        assert_eq!(at(&spaces, 1, 0x3001), None);
    }

    /// Check that a process keeps its mappings until its last thread ends, whichever that is.
    #[test]
    fn threads_end() {
        let mut spaces = Spaces::default();
        spaces.map(1, mapping(0x1000, 0x5000, 0));
        spaces.runs(1, 1);
        spaces.fork(1, 1);
        spaces.runs(1, 2);
        assert!(!spaces.ended(1, 1));
        assert!(spaces.at(1, 0x1000).is_some());
        assert!(spaces.ended(1, 2));
        assert!(spaces.at(1, 0x1000).is_none());
        // Another process has the number, and no record announced its start.
        spaces.map(1, mapping(0x1000, 0x5000, 0));
        assert!(!spaces.ended(1, 7) && spaces.ended(1, 1));
    }

    /// Check that threads have their creator's name until they get their own, and that a new name
    /// is another row.
    #[test]
    fn names() {
        let mut threads = Threads::default();
        threads.named(1, "sh");
        threads.started(2, 1);
        let (first, sh, _) = threads.thread(2, 2);
        threads.named(2, "cat");
        let (second, cat, is_new) = threads.thread(2, 2);
        assert!(first != second && sh != cat && is_new);
        assert_eq!(threads.thread(2, 2), (second, cat, false));
        let (idle, ..) = threads.thread(0, 0);
        threads.thread(7, 8);
        let (rows, _) = threads.into_parts();
        assert_eq!(rows[idle as usize].name, "swapper");
        let names: Vec<&str> = rows.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["sh", "cat", "swapper", ":8"]);
    }
}
