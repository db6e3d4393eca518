//! Names of code that a program made at run time, as JIT compilers write them for perf: in
//! `/tmp/perf-PID.map`, a line for each piece of code has its address, its size and its name.
//!
//! The file is where the process sees it, under the number that it has for itself. Others may write there too, so only
//! a file of the process's user or of root is read, and its contents are bounded.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::image;

/// More of a file is not read.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longer lines are not understood.
const MAX_LINE_BYTES: u64 = 16 << 10;
/// While there is no file, it is looked for this often.
const RETRY: Duration = Duration::from_millis(200);

/// What a process wrote about the code that it made.
#[derive(Debug)]
pub(super) struct JitCode {
    pid: u32,
    file: Option<File>,
    /// When it was looked for.
    tried: Option<Instant>,
    /// Its size when it was read.
    read_bytes: u64,
    /// Names at addresses that were looked for.
    names: FxHashMap<u64, Option<Rc<str>>>,
    /// Lines that were not understood, and how many of them were reported.
    malformed: (u64, u64),
    /// Whether there is a file that was not read, or not all of it, and whether that was reported.
    unread: (bool, bool),
}

impl JitCode {
    /// For a process, whose map is not read yet.
    pub(super) fn by(pid: u32) -> JitCode {
        JitCode {
            pid,
            file: None,
            tried: None,
            read_bytes: 0,
            names: FxHashMap::default(),
            malformed: (0, 0),
            unread: (false, false),
        }
    }

    /// Open the file, if there is one by now: the process may be gone when it is read. Returns
    /// whether it was opened.
    pub(super) fn hold(&mut self) -> bool {
        let waits = self.tried.is_some_and(|tried| tried.elapsed() < RETRY);
        if self.file.is_some() || waits {
            return false;
        }
        self.tried = Some(Instant::now());
        match of_process(self.pid) {
            Ok(found) => self.file = found,
            Err(Refused) => self.unread.0 = true,
        }
        self.file.is_some()
    }

    /// Open the file, if there is one at the end.
    pub(super) fn hold_at_last(&mut self) {
        self.tried = None;
        self.hold();
    }

    /// Look for names of the code at some addresses.
    pub(super) fn find(&mut self, mut addresses: Vec<u64>) {
        let Some(mut file) = self.file.as_ref() else {
            return;
        };
        let size = file.metadata().map_or(0, |known| known.len());
        if size != self.read_bytes {
            // Code may have been replaced, too.
            self.names.clear();
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses.retain(|at| !self.names.contains_key(at));
        if addresses.is_empty() || file.seek(SeekFrom::Start(0)).is_err() {
            return;
        }
        self.read_bytes = size;
        self.unread.0 = size > MAX_FILE_BYTES;
        let (found, malformed) = read(file.take(MAX_FILE_BYTES), &addresses);
        self.malformed.0 = malformed;
        self.names.extend(addresses.into_iter().zip(found));
    }

    /// The name of the code at an address that was looked for.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        self.names.get(&address)?.as_deref()
    }

    /// Whether code at an address has no name, and may have one later.
    pub(super) fn is_pending(&self, address: u64) -> bool {
        self.file.is_some() && self.name(address).is_none()
    }

    /// What was not reported yet: lines that were not understood, and whether a file was not read.
    pub(super) fn lost(&mut self) -> (u64, bool) {
        let lines = self.malformed.0.saturating_sub(self.malformed.1);
        let unread = self.unread.0 && !self.unread.1;
        self.malformed.1 += lines;
        self.unread.1 |= unread;
        (lines, unread)
    }
}

/// A file exists, but must not be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

/// A file that a program wrote about the code that it made, if there is one: root's or this user's, or
/// any user's.
///
/// # Errors
/// It is not a regular file, or another user's.
pub fn open(path: &Path, of_any_user: bool) -> Result<Option<File>, Refused> {
    let users = [0, own_user()];
    open_of(path, if of_any_user { None } else { Some(&users) })
}

/// The names that a perf-PID.map has for the code at some addresses, and how many of its lines were
/// not understood.
pub fn names(file: &File, mut addresses: Vec<u64>) -> (FxHashMap<u64, Rc<str>>, u64) {
    addresses.sort_unstable();
    addresses.dedup();
    let (found, malformed) = read(file.take(MAX_FILE_BYTES), &addresses);
    let named = addresses.into_iter().zip(found);
    (named.filter_map(|(at, name)| Some((at, name?))).collect(), malformed)
}

fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The file of a process, if there is one.
fn of_process(pid: u32) -> Result<Option<File>, Refused> {
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => {
            let (number, user) = identity(&status).ok_or(Refused)?;
            let path = format!("/proc/{pid}/root/tmp/perf-{number}.map");
            open_of(Path::new(&path), Some(&[0, user]))
        }
        // It has ended: its user is not known any more.
        Err(_) => open(Path::new(&format!("/tmp/perf-{pid}.map")), false),
    }
}

/// The number that a process has for itself, and its user, by its /proc/PID/status.
fn identity(status: &str) -> Option<(u32, u32)> {
    let words = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::split_whitespace)
    };
    // In each namespace, the innermost last.
    let number = words("NSpid:")?.next_back()?.parse().ok()?;
    // The real one, the effective one, and others.
    let user = words("Uid:")?.nth(1)?.parse().ok()?;
    Some((number, user))
}

/// A file, if it is regular and belongs to one of these users, or to any.
fn open_of(path: &Path, users: Option<&[u32]>) -> Result<Option<File>, Refused> {
    // Looked at before it is opened, which a pipe or a device would notice.
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let Ok(found) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
        return Ok(None);
    };
    let known = found.metadata().map_err(|_| Refused)?;
    let is_theirs = users.is_none_or(|users| users.contains(&known.uid()));
    if !known.is_file() || !is_theirs {
        return Err(Refused);
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    File::open(same).map(Some).map_err(|_| Refused)
}

/// The names of the code that was made last at some addresses, which ascend; and how many lines were
/// not understood.
fn read(from: impl Read, addresses: &[u64]) -> (Vec<Option<Rc<str>>>, u64) {
    let mut names: Vec<Option<Rc<str>>> = vec![None; addresses.len()];
    let mut malformed = 0;
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = from.by_ref().take(MAX_LINE_BYTES);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.pop_if(|last| *last == b'\n').is_none() {
            if (line.len() as u64) < MAX_LINE_BYTES {
                // It is being written.
                break;
            }
            malformed += 1;
            if from.skip_until(b'\n').is_err() {
                break;
            }
            continue;
        }
        let Some((start, end, name)) = piece(&line) else {
            malformed += 1;
            continue;
        };
        let first = addresses.partition_point(|at| *at < start);
        let beyond = addresses.partition_point(|at| *at < end);
        // Most code was not met.
        if first < beyond {
            names[first..beyond].fill(Some(image::readable(name).into()));
        }
    }
    (names, malformed)
}

/// Parse a line: where a piece of code starts and ends, and its name.
fn piece(line: &[u8]) -> Option<(u64, u64, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |word: &str| {
        let word = word.strip_prefix("0x").unwrap_or(word);
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(word, 16).ok()).flatten()
    };
    let (start, size) = (hex(start)?, hex(size)?);
    let end = start.checked_add(size).filter(|end| *end > start)?;
    let name = name.trim();
    let printable = !name.is_empty() && !name.chars().any(char::is_control);
    printable.then_some((start, end, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], addresses: &[u64]) -> (Vec<Option<String>>, u64) {
        let (names, malformed) = read(text, addresses);
        let names = names.into_iter().map(|name| Some(name?.to_string()));
        (names.collect(), malformed)
    }

    /// Check that code has the name that was written last, whatever else is in the file, which is
    /// counted.
    #[test]
    fn lines() {
        let text = b"1000 40 JS:~fib /x.js:1:13\n\
            2000 10 py::main:/x.py\n\
            1010 20 LazyCompile:*fib a b\n\
            0x3000 0x8 Lcom/x/Main;::run\r\n\
            zz 10 no number\n\
            4000 0 no code\n\
            4000 10\n\
            4000 10 \n\
            +5000 10 sign\n\
            ffffffffffffffff 10 too far\n\
            5000 10 \x1b[31mred\n\
            5000 10 \xff\xfe\n\
            \n\
            6000 10 not yet writ";
        for (address, name) in [
            (0xfff, None),
            (0x1000, Some("JS:~fib /x.js:1:13")),
            (0x1010, Some("LazyCompile:*fib a b")),
            (0x102f, Some("LazyCompile:*fib a b")),
            (0x1030, Some("JS:~fib /x.js:1:13")),
            (0x1040, None),
            (0x2005, Some("py::main:/x.py")),
            (0x3007, Some("Lcom/x/Main;::run")),
            (0x4000, None),
            (0x5000, None),
            (0x6000, None),
        ] {
            let expected = (vec![name.map(str::to_string)], 9);
            assert_eq!(found(text, &[address]), expected, "{address:#x}");
        }
        let (all, _) = found(text, &[0x1000, 0x1010, 0x1030, 0x2005]);
        assert!(all.iter().all(Option::is_some) && all[0] == all[2]);
        assert_eq!(found(b"", &[0x1000]), (vec![None], 0));
    }

    /// Check that a line of any length is one that is not understood, and that the next one is.
    #[test]
    fn long_lines() {
        let mut text = b"1000 10 ".to_vec();
        text.resize(5 * MAX_LINE_BYTES as usize, b'x');
        text.extend(b"\n1000 10 short\n");
        let short = vec![Some("short".to_string())];
        assert_eq!(found(&text, &[0x1000]), (short.clone(), 1));
        text.resize(9 * MAX_LINE_BYTES as usize, b'y');
        assert_eq!(found(&text, &[0x1000]), (short, 2));
        // Names are cut as others are.
        let name = "n".repeat(10_000);
        let (names, _) = found(format!("1000 10 {name}\n").as_bytes(), &[0x1000]);
        assert!(names[0].as_ref().unwrap().len() < name.len());
    }

    /// Check that a process's number in its own namespace and its user are read.
    #[test]
    fn of_a_process() {
        let status = "Name:\tnode\nPid:\t900\nUid:\t1\t2\t3\t4\nNSpid:\t900\t33\t7\n";
        assert_eq!(identity(status), Some((7, 2)));
        assert_eq!(identity("Name:\tnode\n"), None);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(identity(&own).unwrap().1, own_user());
    }

    /// Check that only a regular file of the right user is opened, and that a growing one is read
    /// again, for new or changed names.
    #[test]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        let user = own_user();
        assert!(matches!(open_of(&path, Some(&[user])), Ok(None)));
        fs::write(&path, "1000 10 one\nnothing\n").unwrap();
        assert!(matches!(open_of(&path, Some(&[user + 1])), Err(Refused)));
        let mut made = JitCode::by(1);
        assert!(!made.is_pending(0x2000), "without a file none will come");
        made.file = open_of(&path, None).unwrap();
        made.find(vec![0x2000, 0x1000, 0x2000]);
        assert_eq!((made.name(0x1000), made.name(0x2000)), (Some("one"), None));
        assert!(made.is_pending(0x2000));
        assert_eq!(made.lost(), (1, false));
        fs::write(&path, "1000 10 one\n2000 10 two\nnothing\n1000 8 three\n").unwrap();
        made.find(vec![0x1000, 0x2000]);
        let names = (made.name(0x1000), made.name(0x2000));
        assert_eq!(names, (Some("three"), Some("two")));
        assert_eq!(made.lost(), (0, false), "the same line is reported once");
        File::options().write(true).open(&path).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        made.find(vec![0x1000]);
        assert_eq!(made.name(0x1000), Some("three"));
        assert!(made.lost().1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for other in [&link, folder.path()] {
            assert!(matches!(open_of(other, Some(&[user])), Err(Refused)));
            assert!(matches!(open_of(other, None), Err(Refused)));
        }
    }
}
