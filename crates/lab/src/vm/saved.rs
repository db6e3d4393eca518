//! Saved states of booted guests, from which runs start.
//!
//! One directory for each, named after a hash of everything that it depends on:
//!
//! ```text
//! states/KEY/memory       the guest's memory, with holes where it is zero
//!            devices      what QEMU saves of its devices
//!            symbols      the guest's /proc/kallsyms
//!            state.toml   what it is of; touched when it is used
//! ```
//!
//! A state is made under a temporary name and renamed when it is complete. It may be removed while
//! it is in use: a process that opened it keeps its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::machine::MEMORY_MIB;

/// Raised with any change that an older program could misread.
const FORMAT: u32 = 1;
/// Maximum size of all states on disk, in bytes.
const MAX_BYTES: u64 = 6 << 30;
/// States not used for this long are removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Incomplete states older than this are removed.
const MAX_MAKING: Duration = Duration::from_secs(3600);
const STAGING: &str = ".making-";
const PAGE_BYTES: usize = 64 << 10;

/// An open state.
#[derive(Debug)]
pub struct Saved {
    /// The guest's memory: a file of its size.
    pub memory: File,
    /// Its devices.
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
    facts: BTreeMap<String, String>,
}

/// A state in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its description.
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

    /// Add more of what is added piece by piece.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Add a file, by the hash of its content.
    pub fn add_content(&mut self, name: &str, content: &Content) {
        self.add(name, &content.0);
    }

    /// In hex, half of it: enough for names.
    pub fn finish(self) -> String {
        self.0.finalize()[..16]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }
}

/// The hash of a file's content.
#[derive(Debug)]
pub struct Content([u8; 32]);

impl Content {
    /// Hash a file, through a buffer that stays in the CPU's cache: reading a large program into
    /// memory takes longer than hashing it.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of(path: &Path) -> io::Result<Content> {
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
pub enum Kept {
    /// The given one.
    Ours,
    /// One that another process saved meanwhile.
    Theirs,
}

impl SavedStates {
    /// The store below a cache directory such as `~/.cache/netplumb`.
    pub fn new(cache: &Path) -> Self {
        SavedStates {
            folder: cache.join("states"),
        }
    }

    /// The state of a key, if there is a complete one.
    pub fn open(&self, key: &str) -> Option<Saved> {
        let folder = self.folder.join(key);
        let description = describe(&folder)?;
        // QEMU opens it for writing in any case.
        let memory = File::options()
            .read(true)
            .write(true)
            .open(folder.join("memory"))
            .ok()?;
        if memory.metadata().ok()?.len() != memory_bytes() {
            return None;
        }
        let saved = Saved {
            memory,
            devices: fs::read(folder.join("devices")).ok()?,
            symbols: Arc::new(fs::read(folder.join("symbols")).ok()?),
            port: description.port,
            facts: description.facts,
        };
        // Update its time of use; if that fails, it is removed earlier.
        if let Ok(file) = File::options().append(true).open(folder.join("state.toml")) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(saved)
    }

    /// Save a state, and remove others if there are too many. An existing one is kept.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(&self, key: &str, about: &About, saved: &Saved) -> io::Result<Kept> {
        fs::create_dir_all(&self.folder)?;
        let staging = tempfile::Builder::new()
            .prefix(STAGING)
            .tempdir_in(&self.folder)?;
        let path = |name: &str| staging.path().join(name);
        copy_memory(&saved.memory, &File::create_new(path("memory"))?)?;
        fs::write(path("devices"), &saved.devices)?;
        fs::write(path("symbols"), &*saved.symbols)?;
        let description = Description {
            format: FORMAT,
            about: about.clone(),
            port: saved.port,
            facts: saved.facts.clone(),
        };
        let text = toml::to_string(&description).map_err(io::Error::other)?;
        fs::write(path("state.toml"), text)?;
        let kept = match fs::rename(staging.path(), self.folder.join(key)) {
            // Its directory was renamed.
            Ok(()) => {
                drop(staging.keep());
                Kept::Ours
            }
            Err(_) if describe(&self.folder.join(key)).is_some() => Kept::Theirs,
            Err(error) => return Err(error),
        };
        self.prune(key, SystemTime::now());
        Ok(kept)
    }

    /// All states, the last used first.
    pub fn list(&self) -> Vec<Entry> {
        let Ok(folders) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let mut entries: Vec<Entry> = folders
            .flatten()
            .filter_map(|folder| {
                let path = folder.path();
                let description = describe(&path)?;
                Some(Entry {
                    key: folder.file_name().to_string_lossy().into_owned(),
                    about: description.about,
                    bytes: ["memory", "devices", "symbols", "state.toml"]
                        .iter()
                        .filter_map(|name| fs::metadata(path.join(name)).ok())
                        .map(|m| m.blocks() * 512)
                        .sum(),
                    used: fs::metadata(path.join("state.toml"))
                        .ok()?
                        .modified()
                        .ok()?,
                })
            })
            .collect();
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        entries
    }

    /// Remove the states of a kernel; returns their number.
    pub fn remove_kernel(&self, hash: &str) -> usize {
        let of_it: Vec<Entry> = self
            .list()
            .into_iter()
            .filter(|e| e.about.kernel == hash)
            .collect();
        for entry in &of_it {
            self.remove(&entry.key);
        }
        of_it.len()
    }

    fn remove(&self, key: &str) {
        // Renamed first: a partly removed state must not be opened.
        let gone = self.folder.join(format!("{STAGING}gone-{key}"));
        if fs::rename(self.folder.join(key), &gone).is_ok() {
            let _ = fs::remove_dir_all(gone);
        }
    }

    fn prune(&self, keep: &str, now: SystemTime) {
        let age = |of: SystemTime| now.duration_since(of).unwrap_or_default();
        let mut bytes = 0;
        for entry in self.list() {
            bytes += entry.bytes;
            if entry.key != keep && (bytes > MAX_BYTES || age(entry.used) > MAX_AGE) {
                self.remove(&entry.key);
                bytes -= entry.bytes;
            }
        }
        for folder in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let old = folder
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|made| age(made) > MAX_MAKING);
            if folder.file_name().to_string_lossy().starts_with(STAGING) && old {
                let _ = fs::remove_dir_all(folder.path());
            }
        }
    }
}

/// Size of a guest's memory.
pub fn memory_bytes() -> u64 {
    u64::from(MEMORY_MIB) << 20
}

fn describe(folder: &Path) -> Option<Description> {
    let text = fs::read_to_string(folder.join("state.toml")).ok()?;
    let description: Description = toml::from_str(&text).ok()?;
    (description.format == FORMAT).then_some(description)
}

/// Copy a guest's memory, leaving holes for zeros.
///
/// # Errors
/// It can't be read or written.
pub fn copy_memory(from: &File, to: &File) -> io::Result<()> {
    let bytes = from.metadata()?.len();
    to.set_len(bytes)?;
    let mut page = vec![0; PAGE_BYTES];
    let mut at = 0;
    while at < bytes {
        let size = PAGE_BYTES.min((bytes - at) as usize);
        from.read_exact_at(&mut page[..size], at)?;
        for (n, small) in page[..size].chunks(4096).enumerate() {
            if small.iter().any(|b| *b != 0) {
                to.write_all_at(small, at + (n * 4096) as u64)?;
            }
        }
        at += size as u64;
    }
    Ok(())
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
        file.set_len(memory_bytes()).unwrap();
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
        About {
            kernel: kernel.into(),
            release: "6.1".into(),
            link: "lo".into(),
        }
    }

    /// Check that a state reads back as it was, is sparse on disk, and is not found by another key.
    #[test]
    fn round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        assert!(states.open("k").is_none());
        let state = saved(&folder.path().join("m"));
        let keep = || states.keep("k", &about("h"), &state).unwrap();
        assert_eq!([keep(), keep()], [Kept::Ours, Kept::Theirs]);
        let back = states.open("k").unwrap();
        assert_eq!(back.devices, state.devices);
        assert_eq!(back.symbols, state.symbols);
        assert_eq!((back.port, &back.facts), (1, &state.facts));
        let mut four = [0; 4];
        back.memory.read_exact_at(&mut four, 5 << 20).unwrap();
        assert_eq!(&four, b"here");
        assert!(states.open("other").is_none());
        let listed = states.list();
        assert_eq!(listed.len(), 1);
        assert!(listed[0].bytes < 1 << 20, "{}", listed[0].bytes);
        // No temporary directory is left.
        assert_eq!(fs::read_dir(&states.folder).unwrap().count(), 1);
    }

    /// Check that truncated states, and those of another format or size, are ignored.
    #[test]
    fn damage_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        let states = SavedStates::new(folder.path());
        let state = saved(&folder.path().join("m"));
        for (n, damage) in ["state.toml", "devices", "symbols"].iter().enumerate() {
            let key = format!("k{n}");
            states.keep(&key, &about("h"), &state).unwrap();
            fs::remove_file(states.folder.join(&key).join(damage)).unwrap();
            assert!(states.open(&key).is_none(), "{damage}");
        }
        states.keep("short", &about("h"), &state).unwrap();
        File::options()
            .write(true)
            .open(states.folder.join("short/memory"))
            .unwrap()
            .set_len(4096)
            .unwrap();
        assert!(states.open("short").is_none());
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
            key.add_content("a", &Content::of(&path).unwrap());
            key.finish()
        };
        let long = vec![7; PAGE_BYTES + 1];
        assert_eq!(with(&long), with(&long));
        assert_ne!(with(&long), with(&long[1..]));
        assert!(Content::of(&folder.path().join("none")).is_err());
    }
}
