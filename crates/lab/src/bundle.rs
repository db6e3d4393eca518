//! What a program needs to run in a guest: itself, its interpreter, its libraries.
//!
//! Libraries are found as the dynamic loader would find them, so that the guest's
//! finds the same. Symbolic links go along as links: each file is where it is
//! looked up, and a library that is reached by two ways is still one file.

pub mod companions;
mod elf;
mod error;
mod host;
mod libraries;
mod loader;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use error::BundleError;
pub use host::Host;
use host::{clean, join};
use libraries::{Chain, Libraries};
use loader::Loader;

/// A bundle is held in memory, by us, by QEMU and by the guest.
pub const MAX_BYTES: u64 = 512 << 20;
/// More files than any program's.
pub const MAX_FILES: usize = 50_000;
/// The kernel's own limit (fs/binfmt_script.c, BINPRM_BUF_SIZE).
const MAX_SHEBANG_BYTES: usize = 256;
/// Scripts that are run by scripts: the kernel's limit.
const MAX_SCRIPTS: usize = 5;
/// Folders and files that a guest has of its own.
const RESERVED: &[&str] = &["/dev", "/proc", "/sys", "/init", "/modules", "/requests"];

/// What is in one place of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A symbolic link, and where it leads.
    Link(PathBuf),
    /// A file.
    File {
        /// Where it is on the host.
        host: PathBuf,
        /// Its size as it was seen.
        size_bytes: u64,
    },
}

/// One file, folder or link of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permissions, without the file type.
    pub mode: u32,
    /// Seconds since the epoch; Python tells stale caches by it.
    pub modified_unix_s: i64,
}

impl Entry {
    /// The content of a file; nothing for folders and links.
    ///
    /// # Errors
    /// The host's file can't be read, or is not what it was.
    pub fn read(&self) -> Result<Vec<u8>, BundleError> {
        let Kind::File { host, size_bytes } = &self.kind else {
            return Ok(Vec::new());
        };
        let unreadable = |source| BundleError::Unreadable {
            path: host.clone(),
            source,
        };
        let mut bytes = Vec::with_capacity(*size_bytes as usize);
        // One more than it had: a file that grows is no longer what was measured.
        File::open(host)
            .and_then(|f| f.take(size_bytes + 1).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        if bytes.len() as u64 != *size_bytes {
            return Err(unreadable(io::Error::other("it changed while it was read")));
        }
        Ok(bytes)
    }
}

/// Something that would have been of use, and is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The library's name.
    pub library: String,
    /// Who asks for it.
    pub needed_by: PathBuf,
}

/// Files on their way to a guest.
#[derive(Debug)]
pub struct Bundle {
    host: Host,
    /// By their place in the guest: a folder comes before what is in it.
    entries: BTreeMap<PathBuf, Entry>,
    size_bytes: u64,
    missing: BTreeSet<Missing>,
    /// Files that were asked for at a place of their own: the host's don't count.
    brought: BTreeSet<PathBuf>,
    /// What the loader's cache says, once it was needed.
    cache: Option<Vec<(String, PathBuf)>>,
    /// ELF files whose libraries are there already.
    loaded: BTreeSet<PathBuf>,
}

impl Bundle {
    /// An empty one, to be filled from `host`.
    pub fn new(host: Host) -> Bundle {
        Bundle {
            host,
            entries: BTreeMap::new(),
            size_bytes: 0,
            missing: BTreeSet::new(),
            brought: BTreeSet::new(),
            cache: None,
            loaded: BTreeSet::new(),
        }
    }

    /// What there is, by its place in the guest; a folder before what is in it.
    pub fn entries(&self) -> &BTreeMap<PathBuf, Entry> {
        &self.entries
    }

    /// The size of all files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Libraries that files of folders ask for, and that this machine has not: most
    /// are never asked for.
    pub fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter()
    }

    /// Whether it all fits into so many bytes.
    ///
    /// # Errors
    /// [`BundleError::TooLarge`], with the largest files.
    pub fn check_size(&self, limit_bytes: u64) -> Result<(), BundleError> {
        if self.size_bytes <= limit_bytes {
            return Ok(());
        }
        let mut files: Vec<(u64, &Path)> = self
            .entries
            .iter()
            .filter_map(|(path, entry)| match &entry.kind {
                Kind::File { size_bytes, .. } => Some((*size_bytes, path.as_path())),
                _ => None,
            })
            .collect();
        files.sort_by(|a, b| b.cmp(a));
        let largest: Vec<String> = files
            .iter()
            .take(3)
            .map(|(size, path)| format!("{} ({} MiB)", path.display(), size.div_ceil(1 << 20)))
            .collect();
        Err(BundleError::TooLarge {
            size_bytes: self.size_bytes,
            limit_bytes,
            largest: largest.join(", "),
        })
    }

    /// Add a program and all that it needs to be loaded. `name` is a path, or a name
    /// to be looked for in `$PATH`. Its path in the guest is returned.
    ///
    /// # Errors
    /// What is not there, not readable or not a program, and what to try.
    pub fn add_program(&mut self, name: &str) -> Result<PathBuf, BundleError> {
        let path = self.find(name)?;
        self.add_executable(&path, 0)?;
        Ok(path)
    }

    /// Add a file or a folder, at `guest` or else where it is on the host, with what
    /// the programs and libraries among it need.
    ///
    /// # Errors
    /// What is not there or not readable, and what to try.
    pub fn add_with(&mut self, from: &Path, guest: Option<&Path>) -> Result<(), BundleError> {
        let from = self.host.absolute(from);
        let (place, found) = self.metadata(&from)?;
        let to = match guest {
            Some(guest) => self.add_place(&clean(&Path::new("/").join(guest)))?,
            None => self.add_way(&from)?,
        };
        if found.is_dir() {
            return self.add_folder(&place, &to, &|_| true, Libraries::Noted);
        }
        self.add_plain(&place, &found, &to)?;
        self.brought.insert(to.clone());
        self.add_needs(&place, &to, Libraries::Needed)
    }

    /// The names of the programs that run where `path` is executed: its own, links
    /// followed, and those of interpreters that were added with it.
    pub fn programs_of(&self, path: &Path) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = Some(path.to_path_buf());
        while let Some(path) = at.take() {
            let Ok((place, _)) = self.host.metadata(&path) else {
                break;
            };
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            names.push(name.into_owned());
            if names.len() > MAX_SCRIPTS {
                break;
            }
            let head = self.head(&place).unwrap_or_default();
            if let Some(line) = head.strip_prefix(b"#!") {
                let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
                let line = String::from_utf8_lossy(line);
                let mut words = line.split_whitespace();
                let first = words.next().map(PathBuf::from);
                at = match first {
                    Some(env) if env.ends_with("env") => words
                        .find(|w| !w.starts_with('-') && !w.contains('='))
                        .and_then(|name| self.find(name).ok()),
                    other => other,
                };
            }
        }
        names
    }

    /// Add a shared library by its name, if this machine has it.
    ///
    /// # Errors
    /// It can't be read, or what it needs is not there.
    pub fn add_library(&mut self, name: &str) -> Result<bool, BundleError> {
        let found = self.find_library(name, &Chain::default(), Loader::Glibc)?;
        for path in &found {
            self.add_way_to_file(path)?;
            self.add_libraries_of(path, &Chain::default(), Libraries::Needed)?;
        }
        Ok(!found.is_empty())
    }

    /// Add a file or folder of the host at its own place, but only those files and folders
    /// below it that `wanted` says yes to, by their path from the folder.
    ///
    /// # Errors
    /// It can't be read.
    pub fn add_folder_where(
        &mut self,
        folder: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<(), BundleError> {
        let (place, found) = self.metadata(folder)?;
        let to = self.add_way(folder)?;
        if found.is_file() {
            return self.add_plain(&place, &found, &to);
        }
        self.add_folder(&place, &to, wanted, Libraries::Noted)
    }

    /// Whether the host has something at a path.
    pub fn host_has(&self, path: &Path) -> bool {
        self.host.metadata(path).is_ok()
    }

    /// The names of what a folder of the host holds; none if it can't be read.
    pub fn host_folder(&self, folder: &Path) -> Vec<String> {
        let Ok((place, _)) = self.host.metadata(folder) else {
            return Vec::new();
        };
        let mut names: Vec<String> = fs::read_dir(self.host.real(&place))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names
    }

    fn metadata(&self, path: &Path) -> Result<(PathBuf, Metadata), BundleError> {
        self.host
            .metadata(path)
            .map_err(|source| BundleError::Unreadable {
                path: path.to_path_buf(),
                source,
            })
    }

    /// The path of a program, as `execvp` would find it; a version manager's stand-in
    /// only where there is nothing else by that name.
    fn find(&self, name: &str) -> Result<PathBuf, BundleError> {
        if name.contains('/') {
            return Ok(clean(&self.host.absolute(Path::new(name))));
        }
        let mut refused = None;
        let mut shim = None;
        for folder in &self.host.path {
            let path = folder.join(name);
            match self.host.metadata(&path) {
                Ok((_, found)) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                    if !self.host.is_shim(&path) {
                        return Ok(path);
                    }
                    shim = shim.or(Some(path));
                }
                Ok((_, found)) if found.is_file() => refused = refused.or(Some(path)),
                _ => {}
            }
        }
        if let Some(shim) = shim {
            return Ok(shim);
        }
        Err(match refused {
            Some(path) => BundleError::NotExecutable(path),
            None => BundleError::NotFound(name.chars().take(200).collect()),
        })
    }

    /// Add what `execve` loads for a path.
    fn add_executable(&mut self, path: &Path, scripts: usize) -> Result<(), BundleError> {
        let (place, found) = self.metadata(path)?;
        if !found.is_file() {
            return Err(BundleError::NotAFile(path.to_path_buf()));
        }
        if found.permissions().mode() & 0o111 == 0 {
            return Err(BundleError::NotExecutable(path.to_path_buf()));
        }
        let to = self.add_way(path)?;
        self.add_plain(&place, &found, &to)?;
        let head = self.head(&place)?;
        if head.starts_with(elf::MAGIC) {
            return self.add_libraries_of(path, &Chain::default(), Libraries::Needed);
        }
        if !head.starts_with(b"#!") {
            return Err(BundleError::NotAProgram(path.to_path_buf()));
        }
        self.add_interpreter_of(path, &head, scripts)
    }

    /// Add the program that a script names in its first line.
    fn add_interpreter_of(
        &mut self,
        script: &Path,
        head: &[u8],
        scripts: usize,
    ) -> Result<(), BundleError> {
        if scripts >= MAX_SCRIPTS {
            return Err(BundleError::ScriptsWithoutEnd(script.to_path_buf()));
        }
        let line = head[2..].split(|b| *b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let interpreter = words
            .next()
            .ok_or_else(|| BundleError::NotAProgram(script.to_path_buf()))?;
        let missing = |name: &str| BundleError::MissingInterpreter {
            interpreter: name.to_string(),
            needed_by: script.to_path_buf(),
        };
        let path = clean(&self.host.absolute(Path::new(interpreter)));
        if !self.host_has(&path) {
            return Err(missing(interpreter));
        }
        self.add_executable(&path, scripts + 1)?;
        if path.file_name() == Some("env".as_ref()) {
            let named = words.find(|w| !w.starts_with('-') && !w.contains('='));
            if let Some(name) = named {
                let program = self.find(name).map_err(|_| missing(name))?;
                self.add_executable(&program, scripts + 1)?;
            }
        }
        Ok(())
    }

    /// The first bytes of a file of the host.
    fn head(&self, place: &Path) -> Result<Vec<u8>, BundleError> {
        let mut head = Vec::with_capacity(MAX_SHEBANG_BYTES);
        File::open(self.host.real(place))
            .and_then(|f| f.take(MAX_SHEBANG_BYTES as u64).read_to_end(&mut head))
            .map_err(|source| BundleError::Unreadable {
                path: place.to_path_buf(),
                source,
            })?;
        Ok(head)
    }

    /// Add what a file needs, if it is a program or a library.
    fn add_needs(
        &mut self,
        place: &Path,
        guest: &Path,
        libraries: Libraries,
    ) -> Result<(), BundleError> {
        let head = self.head(place)?;
        if head.starts_with(elf::MAGIC) {
            let needs = match elf::read(&self.host.real(place), place) {
                Ok(needs) => needs,
                // Object files, core dumps, programs for others: data.
                Err(BundleError::Damaged { .. } | BundleError::WrongArchitecture { .. }) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let origin = guest.parent().unwrap_or(Path::new("/"));
            return self.add_needed(&needs, place, origin, &Chain::default(), libraries);
        }
        if head.starts_with(b"#!") {
            // A script that can't run where it comes from is data as well.
            match self.add_interpreter_of(place, &head, 0) {
                Err(BundleError::MissingInterpreter { .. } | BundleError::NotAProgram(_)) => {}
                other => return other,
            }
        }
        Ok(())
    }
}

impl Bundle {
    /// Add the file that a path leads to, and the way to it.
    fn add_way_to_file(&mut self, path: &Path) -> Result<(), BundleError> {
        let (place, found) = self.metadata(path)?;
        let to = self.add_way(path)?;
        self.add_plain(&place, &found, &to)
    }

    /// Add the links that are on the way to a path; where it leads.
    fn add_way(&mut self, path: &Path) -> Result<PathBuf, BundleError> {
        let (place, links) = self
            .host
            .walk(path)
            .map_err(|source| BundleError::Unreadable {
                path: path.to_path_buf(),
                source,
            })?;
        for (at, target) in links {
            let entry = Entry {
                kind: Kind::Link(target),
                mode: 0o777,
                modified_unix_s: 0,
            };
            self.insert(at, entry)?;
        }
        Ok(place)
    }

    /// Add the links on the way to a place of the guest that need not be one of the
    /// host; where it is, by them.
    fn add_place(&mut self, path: &Path) -> Result<PathBuf, BundleError> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let there = folder
            .ancestors()
            .find(|f| self.host_has(f))
            .unwrap_or(Path::new("/"));
        let way = self.add_way(there)?;
        let rest = path.strip_prefix(there).unwrap_or(path);
        Ok(join(&way, rest))
    }

    /// Whether the user brought a file for this path.
    fn is_brought(&self, path: &Path) -> bool {
        if self.brought.contains(path) {
            return true;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        self.host
            .walk(folder)
            .is_ok_and(|(place, _)| self.brought.contains(&place.join(name)))
    }

    fn add_plain(&mut self, place: &Path, found: &Metadata, to: &Path) -> Result<(), BundleError> {
        if !found.is_file() {
            return Err(BundleError::NotAFile(place.to_path_buf()));
        }
        let host = self.host.real(place);
        // Told now, and not when a guest is about to boot.
        File::open(&host).map_err(|source| BundleError::Unreadable {
            path: place.to_path_buf(),
            source,
        })?;
        self.insert(
            to.to_path_buf(),
            Entry {
                kind: Kind::File {
                    host,
                    size_bytes: found.len(),
                },
                mode: found.mode() & 0o7777,
                modified_unix_s: found.mtime(),
            },
        )
    }

    /// Add what is below a folder of the host.
    fn add_folder(
        &mut self,
        from: &Path,
        to: &Path,
        wanted: &dyn Fn(&Path) -> bool,
        libraries: Libraries,
    ) -> Result<(), BundleError> {
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            let (source, target) = (join(from, &below), join(to, &below));
            let told = |error| BundleError::Unreadable {
                path: source.clone(),
                source: error,
            };
            let real = self.host.real(&source);
            let found = fs::symlink_metadata(&real).map_err(told)?;
            if found.is_symlink() {
                let target_of = fs::read_link(&real).map_err(told)?;
                // Where it leads goes along if it is elsewhere, and if it is there.
                let leads = clean(&source.parent().unwrap_or(Path::new("/")).join(&target_of));
                let entry = Entry {
                    kind: Kind::Link(target_of),
                    mode: 0o777,
                    modified_unix_s: 0,
                };
                self.insert(target, entry)?;
                if !leads.starts_with(from)
                    && let Ok((_, found)) = self.host.metadata(&leads)
                    && found.is_file()
                {
                    self.add_way_to_file(&leads)?;
                }
            } else if found.is_dir() {
                self.insert(
                    target,
                    Entry {
                        kind: Kind::Folder,
                        mode: found.mode() & 0o7777,
                        modified_unix_s: found.mtime(),
                    },
                )?;
                let mut inside: Vec<PathBuf> = fs::read_dir(&real)
                    .map_err(told)?
                    .map(|e| Ok(below.join(e?.file_name())))
                    .collect::<io::Result<_>>()
                    .map_err(told)?;
                inside.retain(|path| wanted(path));
                left.extend(inside);
            } else if found.is_file() {
                self.add_plain(&source, &found, &target)?;
                self.add_needs(&source, &target, libraries)?;
            }
            // Sockets, pipes and devices stay behind.
        }
        Ok(())
    }

    /// Put something in its place, and folders above it where there are none.
    fn insert(&mut self, path: PathBuf, entry: Entry) -> Result<(), BundleError> {
        if let Some(own) = RESERVED.iter().find(|own| path.starts_with(own)) {
            return Err(BundleError::Reserved { path, own });
        }
        for folder in path.ancestors().skip(1) {
            if folder == Path::new("/") || self.entries.contains_key(folder) {
                break;
            }
            self.entries.insert(
                folder.to_path_buf(),
                Entry {
                    kind: Kind::Folder,
                    mode: 0o755,
                    modified_unix_s: 0,
                },
            );
        }
        match self.entries.get(&path).map(|e| &e.kind) {
            Some(Kind::Folder) if entry.kind == Kind::Folder => {}
            Some(there) if *there == entry.kind => return Ok(()),
            // What the user brings to a place comes first, and stays.
            Some(Kind::File { .. }) if matches!(entry.kind, Kind::File { .. }) => return Ok(()),
            Some(_) => return Err(BundleError::Clash(path)),
            None => {}
        }
        if let Kind::File { size_bytes, .. } = &entry.kind {
            self.size_bytes += size_bytes;
        }
        self.entries.insert(path, entry);
        if self.entries.len() > MAX_FILES {
            return Err(BundleError::TooMany);
        }
        // Early: a folder may be larger than any memory.
        self.check_size(MAX_BYTES)
    }
}
