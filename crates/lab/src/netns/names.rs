//! Names for namespaces, where `ip netns` looks for them, and a journal of names, written before a
//! name is made.
//!
//! A namespace with a name outlives the process that made it. So each run has an entry in the journal: a file named
//! after the run and its process. If that process is gone, namespaces with the run's name are orphaned.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use netplumb_sys::netns::Namespace;

/// The directory of `ip netns`.
const NAMES: &str = "/run/netns";
/// The directory of the journal; like the namespaces, it does not survive a reboot.
const JOURNAL: &str = "/run/netplumb";
/// The prefix of all names.
const PREFIX: &str = "plumb-";
/// Letters and digits of a run's name.
const RANDOM_LENGTH: usize = 6;

/// The directories of names and of the journal.
#[derive(Debug, Clone)]
pub struct Places {
    names: PathBuf,
    journal: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Places { names: NAMES.into(), journal: JOURNAL.into() }
    }
}

/// The names of a run. Removed when dropped.
#[derive(Debug)]
pub struct Names {
    places: Places,
    /// "plumb-1a2b3c".
    run: String,
    entry: PathBuf,
    given: Vec<String>,
}

impl Names {
    /// A name for a run, and its entry in the journal.
    ///
    /// # Errors
    /// The journal can't be written: it needs root.
    pub fn new() -> io::Result<Names> {
        Names::within(Places::default())
    }

    fn within(places: Places) -> io::Result<Names> {
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true).mode(0o755);
        folders.create(&places.journal)?;
        loop {
            let run = format!("{PREFIX}{}", random_word()?);
            let entry = places.journal.join(Owner::own()?.entry(&run));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&entry);
            match made {
                Ok(mut file) => {
                    let text = format!(
                        "# namespaces below {} whose names begin with {run}-\n",
                        places.names.display()
                    );
                    let names = Names { places, run, entry, given: Vec::new() };
                    file.write_all(text.as_bytes())?;
                    return Ok(names);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The prefix of the namespaces' names.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The names given so far.
    pub fn given(&self) -> &[String] {
        &self.given
    }

    /// Name a namespace, with this suffix.
    ///
    /// # Errors
    /// It can't be mounted there: it needs CAP_SYS_ADMIN.
    pub(super) fn give(&mut self, end: &str, namespace: &Namespace) -> io::Result<()> {
        let name = format!("{}-{end}", self.run);
        let mut entry = OpenOptions::new().append(true).open(&self.entry)?;
        writeln!(entry, "{name}")?;
        shared_folder(&self.places.names)?;
        let path = self.places.names.join(&name);
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path)?;
        self.given.push(name);
        let from = format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd());
        mount(Path::new(&from), &path, libc::MS_BIND)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let mut clean = true;
        for name in &self.given {
            clean &= take_away(&self.places.names.join(name)).is_ok();
        }
        if clean {
            // If this fails, the next sweep finds no namespace for the entry, and removes it.
            let _ = fs::remove_file(&self.entry);
        }
    }
}

/// Remove the names of killed runs, whose process is gone; returns the names.
///
/// # Errors
/// A name can't be removed.
pub fn sweep() -> io::Result<Vec<String>> {
    sweep_places(&Places::default())
}

fn sweep_places(places: &Places) -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    let entries = match fs::read_dir(&places.journal) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(removed),
        Err(error) => return Err(error),
    };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some((run, owner)) = file_name.to_str().and_then(Owner::of_entry) else {
            continue;
        };
        if owner.lives()? {
            continue;
        }
        let begins = format!("{run}-");
        for named in fs::read_dir(&places.names).into_iter().flatten().flatten() {
            let name = named.file_name().to_string_lossy().into_owned();
            if name.starts_with(&begins) {
                take_away(&named.path())?;
                removed.push(name);
            }
        }
        match fs::remove_file(entry.path()) {
            // Another sweep removed it first.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    removed.sort();
    Ok(removed)
}

/// The process of a run, as distinct from a later one with the same PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// Start time in ticks since boot, as in /proc/PID/stat.
    started: u64,
    /// Inode of the PID namespace.
    pids: u64,
}

impl Owner {
    fn own() -> io::Result<Owner> {
        let pid = std::process::id();
        let started = started(pid)?.ok_or(ErrorKind::NotFound)?;
        Ok(Owner { pid, started, pids: fs::metadata("/proc/self/ns/pid")?.ino() })
    }

    fn entry(&self, run: &str) -> String {
        format!("{run}.{}.{}.{}", self.pid, self.started, self.pids)
    }

    fn of_entry(entry: &str) -> Option<(&str, Owner)> {
        let mut words = entry.split('.');
        let run = words.next()?;
        let random = run.strip_prefix(PREFIX)?;
        let sane = random.len() == RANDOM_LENGTH
            && random.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        let owner = Owner {
            pid: words.next()?.parse().ok()?,
            started: words.next()?.parse().ok()?,
            pids: words.next()?.parse().ok()?,
        };
        (sane && words.next().is_none()).then_some((run, owner))
    }

    /// Whether it may be running. Processes of other PID namespaces are assumed to be.
    fn lives(&self) -> io::Result<bool> {
        let other = fs::metadata("/proc/self/ns/pid")?.ino() != self.pids;
        Ok(other || started(self.pid)? == Some(self.started))
    }
}

/// The start time of a process; none if it does not exist, or is a zombie.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error)
            if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // The name may contain anything, also spaces and parentheses; fields 3 and 22.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<&str> = after.split_whitespace().collect();
    let gone = matches!(fields.first(), None | Some(&"Z" | &"X"));
    Ok(match fields.get(19).and_then(|f| f.parse().ok()) {
        Some(started) if !gone => Some(started),
        _ => None,
    })
}

/// Unmount and remove a name; that it does not exist is not an error.
fn take_away(path: &Path) -> io::Result<()> {
    let target = c_path(path)?;
    // SAFETY: a string that ends with a zero and outlives the call, and a flag.
    if unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) } != 0 {
        let error = io::Error::last_os_error();
        let absent = [libc::EINVAL, libc::ENOENT].map(Some);
        if !absent.contains(&error.raw_os_error()) {
            return Err(error);
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Create the directory of names as a shared mount, like `ip netns` (iproute2, ip/ipnetns.c:
/// netns_add).
fn shared_folder(folder: &Path) -> io::Result<()> {
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true).mode(0o755);
    folders.create(folder)?;
    let lock = File::open(folder)?;
    // SAFETY: a descriptor that is open, and a flag; it unlocks when it is closed.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let share = || mount(Path::new(""), folder, libc::MS_SHARED | libc::MS_REC);
    match share() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            mount(folder, folder, libc::MS_BIND | libc::MS_REC)?;
            share()
        }
        other => other,
    }
}

fn mount(from: &Path, to: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: both strings end with a zero and outlive the call; a bind mount has
    // neither kind nor options.
    let result = unsafe {
        libc::mount(from.as_ptr(), to.as_ptr(), c"none".as_ptr(), flags, std::ptr::null())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_path(path: &Path) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn random_word() -> io::Result<String> {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijkmnpqrstuvwx";
    let mut bytes = [0_u8; RANDOM_LENGTH];
    // SAFETY: the pointer and the length are the array's.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != RANDOM_LENGTH as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.iter().map(|b| char::from(DIGITS[usize::from(b % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn places(folder: &Path) -> Places {
        Places { names: folder.join("names"), journal: folder.join("journal") }
    }

    /// Check that an entry's owner is read back, and that other file names give none.
    #[test]
    fn entries_name_their_owner() {
        let owner = Owner::own().unwrap();
        let entry = owner.entry("plumb-0a1b2c");
        assert_eq!(Owner::of_entry(&entry), Some(("plumb-0a1b2c", owner)));
        for other in [
            "",
            "plumb-0a1b2c",
            "plumb-0a1b2c.1.2",
            "plumb-0a1b2c.1.2.3.4",
            "plumb-.1.2.3",
            "plumb-../../.1.2.3",
            "other-0a1b2c.1.2.3",
        ] {
            assert_eq!(Owner::of_entry(other), None, "{other}");
        }
        assert!(owner.lives().unwrap());
    }

    /// Check that a process that has ended, and one of the same PID that started at another time,
    /// don't count as running, and that one of another PID namespace may.
    #[test]
    fn ended_processes_are_found() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        while started(pid).unwrap().is_some() {
            std::thread::yield_now();
        }
        let own = Owner::own().unwrap();
        // It is a zombie: it was not waited for.
        assert!(!Owner { pid, ..own }.lives().unwrap());
        child.wait().unwrap();
        assert!(!Owner { pid, ..own }.lives().unwrap());
        let later = Owner { started: own.started + 1, ..own };
        assert!(!later.lives().unwrap());
        assert!(Owner { pids: 1, ..later }.lives().unwrap());
    }

    /// Check that a sweep removes names of dead runs, leaves the names of running ones and of others alone, and can be
    /// repeated.
    #[test]
    fn a_sweep_takes_the_dead_ones_names() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        assert_eq!(sweep_places(&places).unwrap(), [""; 0]);
        let names = Names::within(places.clone()).unwrap();
        let living = format!("{}-tx", names.run());
        fs::create_dir_all(&places.names).unwrap();
        let dead = Owner { started: 1, ..Owner::own().unwrap() };
        fs::write(places.journal.join(dead.entry("plumb-dead00")), "").unwrap();
        fs::write(places.journal.join("notes.txt"), "").unwrap();
        for name in ["plumb-dead00-tx", "plumb-dead00-rx", "plumb-dead001-tx", &living] {
            fs::write(places.names.join(name), "").unwrap();
        }
        assert_eq!(sweep_places(&places).unwrap(), ["plumb-dead00-rx", "plumb-dead00-tx"]);
        assert_eq!(sweep_places(&places).unwrap(), [""; 0]);
        assert!(places.names.join("plumb-dead001-tx").exists());
        assert!(places.names.join(&living).exists());
        assert!(places.journal.join("notes.txt").exists());
        drop(names);
        assert_eq!(fs::read_dir(&places.journal).unwrap().count(), 1);
    }
}
