//! Saved states of booted guests, from which runs start.
//!
//! One directory for each, named after a hash of everything that it depends on:
//!
//! ```text
//! states/KEY/memory       the guest's memory, with holes where it is zero
//!            devices      its devices, as saved by QEMU
//!            symbols      the guest's /proc/kallsyms
//!            state.toml   what it is of, and the lengths and checksums of the others; touched when
//!                         it is used
//! ```
//!
//! A state is made under a temporary name, and renamed when all of it is on the disk. One that is
//! damaged is removed when it is opened. It may be removed while it is in use: a process that opened
//! it keeps its files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[cfg(test)]
use super::machine::MEMORY_MIB;
use crate::sums::{self, Adder, Flaw, Sum};

/// Raised with any change that an older program could misread.
const FORMAT: u32 = 2;
/// Maximum size of all states on disk by default, in bytes.
pub const MAX_BYTES: u64 = 6 << 30;
/// States not used for this long are removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Incomplete states older than this are removed.
const MAX_MAKING: Duration = Duration::from_secs(3600);
const STAGING: &str = ".making-";
const PAGE_BYTES: usize = 64 << 10;
const MEMORY: &str = "memory";
const DEVICES: &str = "devices";
const SYMBOLS: &str = "symbols";
const STATE: &str = "state.toml";

/// An open state.
#[derive(Debug)]
pub struct Saved {
    /// The guest's memory: a file of its size.
    pub memory: File,
    /// The state of its devices, as QEMU saved it.
    pub devices: Vec<u8>,
    /// Its symbols, as of /proc/kallsyms.
    pub symbols: Arc<Vec<u8>>,
    /// The port of its agent.
    pub port: usize,
    /// Facts of the guest, by dotted key.
    pub facts: BTreeMap<String, String>,
}

/// Description of a state, for listing and cleaning up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Content hash of its kernel.
    pub kernel: String,
    /// Release of its kernel.
    pub release: String,
    /// Its type of link.
    pub link: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Description {
    format: u32,
    about: About,
    port: usize,
    files: Files,
    facts: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Version {
    format: u32,
}

/// The expected sums of its files.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Files {
    memory: Sum,
    devices: Sum,
    symbols: Sum,
}

/// A state in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The hash that names it.
    pub key: String,
    /// The guest that was saved.
    pub about: About,
    /// Its size on disk.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// The store of states.
#[derive(Debug, Clone)]
pub struct SavedStates {
    folder: PathBuf,
    max_bytes: u64,
}

/// A key: the hash of everything that a state depends on, each under its name.
#[derive(Debug)]
pub struct Key(Sha256);

impl Default for Key {
    fn default() -> Self {
        Key(Sha256::new().chain_update(FORMAT.to_le_bytes()))
    }
}

impl Key {
    /// Add a part, by name.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        for part in [name.as_bytes(), bytes] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// Append bytes to a value that is hashed in pieces.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Add a file, by the hash of its content.
    pub fn add_content(&mut self, name: &str, content: &Content) {
        self.add(name, &content.0);
    }

    /// In hex, half of it: enough for names.
    pub fn finish(self) -> String {
        self.0.finalize()[..16].iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The hash of a file's content.
#[derive(Debug)]
pub struct Content([u8; 32]);

impl Content {
    /// The hash's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Hash a file, through a buffer that stays in the CPU's cache: reading a large program into
    /// memory takes longer than hashing it.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of_file(path: &Path) -> io::Result<Content> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; PAGE_BYTES];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(Content(hash.finalize().into())),
                Ok(bytes) => hash.update(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Which state exists after saving one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhoseState {
    /// The given one.
    Ours,
    /// One that another process saved meanwhile.
    Theirs,
}

impl SavedStates {
    /// The store below a cache directory such as `~/.cache/netplumb`.
    pub fn new(cache: &Path) -> Self {
        SavedStates { folder: cache.join("states"), max_bytes: MAX_BYTES }
    }

    /// The same, with another maximum size of all states.
    #[must_use]
    pub fn within(self, max_bytes: u64) -> Self {
        SavedStates { max_bytes, ..self }
    }

    /// The state of a key, if it is usable. A damaged state is removed; `tell` gets a line with the reason why a state
    /// can't be used.
    pub fn open(&self, key: &str, tell: &mut dyn FnMut(String)) -> Option<Saved> {
        let folder = self.folder.join(key);
        match read(&folder) {
            Ok(saved) => {
                // Update its time of use; if that fails, it is removed earlier.
                let described = File::options().append(true).open(folder.join(STATE));
                let _ = described.and_then(|file| file.set_modified(SystemTime::now()));
                Some(saved)
            }
            Err(Flaw::Missing) => None,
            Err(Flaw::Unreadable(why)) => {
                tell(format!("a saved guest state can't be used: {why}"));
                None
            }
            Err(Flaw::Damaged(how)) => {
                let path = folder.display();
                tell(format!(
                    "removed the saved guest state {path}, which was damaged ({how}); booting instead"
                ));
                self.remove(key, tell);
                None
            }
        }
    }

    /// Save a state, and remove others if there are too many. An existing one is kept.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(&self, key: &str, about: &About, saved: &Saved) -> io::Result<WhoseState> {
        fs::create_dir_all(&self.folder)?;
        let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(&self.folder)?;
        let create = |name: &str| File::create_new(staging.path().join(name));
        let write = |name: &str, bytes: &[u8]| -> io::Result<Sum> {
            let mut file = create(name)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            Ok(Sum::of_bytes(bytes))
        };
        let memory = create(MEMORY)?;
        let files = Files {
            memory: copy_memory(&saved.memory, &memory)?,
            devices: write(DEVICES, &saved.devices)?,
            symbols: write(SYMBOLS, &saved.symbols)?,
        };
        memory.sync_all()?;
        let description = Description {
            format: FORMAT,
            about: about.clone(),
            port: saved.port,
            files,
            facts: saved.facts.clone(),
        };
        let text = toml::to_string(&description).map_err(io::Error::other)?;
        write(STATE, sums::sealed(&text).as_bytes())?;
        sums::sync_folder(staging.path());
        let folder = self.folder.join(key);
        let kept = match sums::rename(staging.path(), &folder) {
            // Its directory was renamed.
            Ok(()) => {
                drop(staging.keep());
                WhoseState::Ours
            }
            Err(_) if describe(&folder).is_ok() => WhoseState::Theirs,
            Err(error) => {
                let hint = sums::owner_hint(&folder, &error);
                return Err(io::Error::new(error.kind(), format!("{error}{hint}")));
            }
        };
        self.prune(key, SystemTime::now());
        Ok(kept)
    }

    /// All states, the last used first.
    pub fn list(&self) -> Vec<Entry> {
        let mut entries = self.all();
        // States of other versions of this program have no description here.
        entries.retain(|entry| !entry.about.kernel.is_empty());
        entries
    }

    /// All that takes space, the last used first; what can't be read has no description.
    fn all(&self) -> Vec<Entry> {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut entries: Vec<Entry> = folders
            .filter(|folder| !is_temporary(&folder.file_name()))
            .filter_map(|folder| {
                let path = folder.path();
                let used = fs::metadata(path.join(STATE)).or_else(|_| folder.metadata());
                Some(Entry {
                    key: folder.file_name().to_string_lossy().into_owned(),
                    about: describe(&path).map_or_else(|_| About::default(), |it| it.about),
                    bytes: [MEMORY, DEVICES, SYMBOLS, STATE]
                        .iter()
                        .filter_map(|name| fs::metadata(path.join(name)).ok())
                        .map(|m| m.blocks() * 512)
                        .sum(),
                    used: used.ok()?.modified().ok()?,
                })
            })
            .collect();
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        entries
    }

    /// Remove the states of a kernel; returns their number.
    pub fn remove_kernel(&self, hash: &str) -> usize {
        let of_it: Vec<Entry> =
            self.list().into_iter().filter(|e| e.about.kernel == hash).collect();
        for entry in &of_it {
            self.remove(&entry.key, &mut |_| {});
        }
        of_it.len()
    }

    /// Remove damaged states, and what killed runs left; `tell` gets a line for each.
    pub fn clean(&self, tell: &mut dyn FnMut(String)) {
        for entry in self.all() {
            let folder = self.folder.join(&entry.key);
            let why = match read(&folder) {
                Ok(_) | Err(Flaw::Missing) => continue,
                Err(Flaw::Damaged(why)) => why,
                Err(Flaw::Unreadable(why)) => {
                    tell(format!("not checked: {why}"));
                    continue;
                }
            };
            tell(format!("removed {}: {why}", folder.display()));
            self.remove(&entry.key, tell);
        }
        self.sweep(SystemTime::now());
    }

    fn remove(&self, key: &str, tell: &mut dyn FnMut(String)) {
        let folder = self.folder.join(key);
        if let Err(error) = sums::remove(&folder) {
            let (path, hint) = (folder.display(), sums::owner_hint(&folder, &error));
            tell(format!("can't remove {path}: {error}{hint}"));
        }
    }

    fn prune(&self, keep: &str, now: SystemTime) {
        let age = |of: SystemTime| now.duration_since(of).unwrap_or_default();
        let mut bytes = 0;
        for entry in self.all() {
            bytes += entry.bytes;
            if entry.key != keep && (bytes > self.max_bytes || age(entry.used) > MAX_AGE) {
                self.remove(&entry.key, &mut |_| {});
                bytes -= entry.bytes;
            }
        }
        self.sweep(now);
    }

    /// Remove what killed runs left.
    fn sweep(&self, now: SystemTime) {
        for folder in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let old = folder
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|made| now.duration_since(made).unwrap_or_default() > MAX_MAKING);
            if is_temporary(&folder.file_name()) && old {
                let _ = fs::remove_dir_all(folder.path());
            }
        }
    }
}

/// Whether a directory is being made, or removed.
fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(STAGING) || name.starts_with(sums::GONE)
}

fn describe(folder: &Path) -> Result<Description, Flaw> {
    let damaged = |how: &str| Flaw::Damaged(format!("{STATE} {how}"));
    let text =
        fs::read(folder.join(STATE)).map_err(|error| Flaw::from_io(folder, STATE, &error))?;
    let text = String::from_utf8(text).map_err(|_| damaged("is no text"))?;
    if toml::from_str::<Version>(&text).is_ok_and(|version| version.format != FORMAT) {
        return Err(damaged("is of another version of this program"));
    }
    match sums::is_intact(&text) {
        Some(true) => toml::from_str(&text).map_err(|_| damaged("can't be read")),
        _ => Err(damaged("is cut, or has another checksum")),
    }
}

/// Read a state, and check all of it.
fn read(folder: &Path) -> Result<Saved, Flaw> {
    let description = describe(folder)?;
    let Files { memory, devices, symbols } = description.files;
    let failed = |name: &'static str| move |error: io::Error| Flaw::from_io(folder, name, &error);
    let check = |name: &str, sum: Sum, now: Sum| {
        sum.check(now).map_err(|how| Flaw::Damaged(format!("{name}: {how}")))
    };
    let bytes = |name: &'static str, sum: Sum| -> Result<Vec<u8>, Flaw> {
        let bytes = fs::read(folder.join(name)).map_err(failed(name))?;
        check(name, sum, Sum::of_bytes(&bytes)).map(|()| bytes)
    };
    let (devices, symbols) = (bytes(DEVICES, devices)?, bytes(SYMBOLS, symbols)?);
    // QEMU opens it for writing in any case.
    let options = File::options().read(true).write(true).to_owned();
    let file = options.open(folder.join(MEMORY)).map_err(failed(MEMORY))?;
    check(MEMORY, memory, Sum::of_file(&file).map_err(failed(MEMORY))?)?;
    Ok(Saved {
        memory: file,
        devices,
        symbols: Arc::new(symbols),
        port: description.port,
        facts: description.facts,
    })
}

/// Copy a guest's memory, leaving holes for zeros; returns its sum.
///
/// # Errors
/// It can't be read or written.
pub fn copy_memory(from: &File, to: &File) -> io::Result<Sum> {
    let bytes = from.metadata()?.len();
    to.set_len(bytes)?;
    let mut pages = vec![0; PAGE_BYTES];
    let mut adder = Adder::default();
    let mut at = 0;
    while at < bytes {
        let size = PAGE_BYTES.min((bytes - at) as usize);
        from.read_exact_at(&mut pages[..size], at)?;
        let mut written = Ok(());
        adder.add(at, &pages[..size], |offset, page| {
            if written.is_ok() {
                written = to.write_all_at(page, at + offset as u64);
            }
        });
        written?;
        at += size as u64;
    }
    Ok(adder.finish(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(memory: &Path) -> Saved {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(memory)
            .unwrap();
        file.set_len(u64::from(MEMORY_MIB) << 20).unwrap();
        file.write_all_at(b"here", 5 << 20).unwrap();
        Saved {
            memory: file,
            devices: vec![1, 2, 3],
            symbols: Arc::new(b"1000 T a".to_vec()),
            port: 1,
            facts: [("kernel.release".to_string(), "6.1".to_string())].into(),
        }
    }

    fn about(kernel: &str) -> About {
        About { kernel: kernel.into(), release: "6.1".into(), link: "lo".into() }
    }

    /// Check that a state reads back as it was, is sparse on disk, and is not found by another key.
    #[test]
    fn round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        let open = |key: &str| states.open(key, &mut |line| panic!("{line}"));
        assert!(open("k").is_none());
        let state = saved(&folder.path().join("m"));
        let keep = || states.keep("k", &about("h"), &state).unwrap();
        assert_eq!([keep(), keep()], [WhoseState::Ours, WhoseState::Theirs]);
        let back = open("k").unwrap();
        assert_eq!(back.devices, state.devices);
        assert_eq!(back.symbols, state.symbols);
        assert_eq!((back.port, &back.facts), (1, &state.facts));
        let mut four = [0; 4];
        back.memory.read_exact_at(&mut four, 5 << 20).unwrap();
        assert_eq!(&four, b"here");
        assert!(open("other").is_none());
        let listed = states.list();
        assert_eq!(listed.len(), 1);
        assert!(listed[0].bytes < 1 << 20, "{}", listed[0].bytes);
        // No temporary directory is left.
        assert_eq!(fs::read_dir(&states.folder).unwrap().count(), 1);
    }

    type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

    /// Check that a state with any file damaged in any way is removed with one line, and can be saved again.
    #[test]
    fn damage_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        let state = saved(&folder.path().join("m"));
        let open_for = |path: &Path| File::options().write(true).open(path).unwrap();
        let empty = |path: &Path| open_for(path).set_len(0).unwrap();
        let cut = |path: &Path| {
            let bytes = fs::metadata(path).unwrap().len();
            open_for(path).set_len(bytes - 1).unwrap();
        };
        let flip = |path: &Path| {
            let file = File::options().read(true).write(true).open(path).unwrap();
            let at = if path.ends_with(MEMORY) { 5 << 20 } else { 2 };
            let mut one = [0];
            file.read_exact_at(&mut one, at).unwrap();
            file.write_all_at(&[one[0] ^ 1], at).unwrap();
        };
        let hole = |path: &Path| {
            let (file, bytes) = (open_for(path), fs::metadata(path).unwrap().len());
            file.set_len(0).unwrap();
            file.set_len(bytes).unwrap();
        };
        let gone = |path: &Path| fs::remove_file(path).unwrap();
        let kinds: [Damage<'_>; 5] = [
            ("empty", &empty),
            ("cut", &cut),
            ("flipped", &flip),
            ("hole", &hole),
            ("gone", &gone),
        ];
        for name in [MEMORY, DEVICES, SYMBOLS, STATE] {
            for (what, damage) in kinds {
                states.keep("k", &about("h"), &state).unwrap();
                damage(&states.folder.join("k").join(name));
                let mut lines = Vec::new();
                let opened = states.open("k", &mut |line| lines.push(line));
                assert!(opened.is_none(), "{name} {what}");
                assert_eq!(lines.len(), 1, "{name} {what}: {lines:?}");
                assert!(lines[0].contains(name), "{name} {what}: {lines:?}");
                assert_eq!(fs::read_dir(&states.folder).unwrap().count(), 0);
            }
        }
        states.keep("good", &about("h"), &state).unwrap();
        states.keep("bad", &about("h"), &state).unwrap();
        hole(&states.folder.join("bad").join(SYMBOLS));
        let mut lines = Vec::new();
        states.clean(&mut |line| lines.push(line));
        assert!(lines.len() == 1 && lines[0].contains("bad"), "{lines:?}");
        let kept: Vec<String> = states.list().into_iter().map(|e| e.key).collect();
        assert_eq!(kept, ["good"]);
    }

    /// Check that the least recently used states go first, down to the maximum size, other versions' states included.
    #[test]
    fn size() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        let state = saved(&folder.path().join("m"));
        let hour = Duration::from_secs(3600);
        for (key, hours) in [("oldest", 3), ("old", 2), ("new", 1)] {
            states.keep(key, &about("h"), &state).unwrap();
            let of = states.folder.join(key).join(STATE);
            let file = File::options().append(true).open(of).unwrap();
            file.set_modified(SystemTime::now() - hours * hour).unwrap();
        }
        fs::write(states.folder.join("old").join(STATE), "format = 1\n").unwrap();
        let of = states.folder.join("old").join(STATE);
        let file = File::options().append(true).open(of).unwrap();
        file.set_modified(SystemTime::now() - 2 * hour).unwrap();
        let one = states.all()[0].bytes;
        let there = |max_bytes| {
            let states = states.clone().within(max_bytes);
            states.prune("new", SystemTime::now());
            states.all().into_iter().map(|e| e.key).collect::<Vec<_>>()
        };
        assert_eq!(there(3 * one), ["new", "old", "oldest"]);
        assert_eq!(there(2 * one + one / 2), ["new", "old"]);
        assert_eq!(there(0), ["new"]);
    }

    /// Check that states are removed with their kernel and by age, and that a new one is kept.
    #[test]
    fn cleaning() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        let state = saved(&folder.path().join("m"));
        for (key, kernel) in [("a", "one"), ("b", "two"), ("c", "one")] {
            states.keep(key, &about(kernel), &state).unwrap();
        }
        assert_eq!(states.remove_kernel("one"), 2);
        let keys = |s: &SavedStates| s.list().into_iter().map(|e| e.key).collect::<Vec<_>>();
        assert_eq!(keys(&states), ["b"]);
        states.keep("d", &about("one"), &state).unwrap();
        states.prune("d", SystemTime::now() + 2 * MAX_AGE);
        assert_eq!(keys(&states), ["d"]);
    }

    /// Check that a key distinguishes its parts.
    #[test]
    fn keys() {
        let key = |parts: &[(&str, &str)]| {
            let mut key = Key::default();
            for (name, bytes) in parts {
                key.add(name, bytes.as_bytes());
            }
            key.finish()
        };
        assert_eq!(key(&[("a", "b")]), key(&[("a", "b")]));
        assert_ne!(key(&[("a", "b")]), key(&[("ab", "")]));
        assert_ne!(key(&[("a", "b"), ("c", "")]), key(&[("a", "b")]));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let with = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let mut key = Key::default();
            key.add_content("a", &Content::of_file(&path).unwrap());
            key.finish()
        };
        let long = vec![7; PAGE_BYTES + 1];
        assert_eq!(with(&long), with(&long));
        assert_ne!(with(&long), with(&long[1..]));
        assert!(Content::of_file(&folder.path().join("none")).is_err());
    }
}
