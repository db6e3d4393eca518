//! The files that a program needs in a guest: itself, its interpreter, its libraries.
//!
//! Libraries are looked up as the dynamic loader does it, so that the guest's finds the same.
//! Symbolic links are copied as links: each file is where it is looked up, and a library that is
//! reached by two paths is still one file.

pub mod companions;
mod elf;
mod error;
mod host;
mod libraries;
mod loader;
#[cfg(test)]
mod tests;

use netplumb_model::arch::Arch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use error::BundleError;
pub use host::Host;
use host::{clean, join};
use loader::{Chain, Libraries, Loader};

/// A bundle is held in memory: by plumb, by QEMU and by the guest.
pub const MAX_BYTES: u64 = 512 << 20;
/// More files than any program needs.
pub const MAX_FILES: usize = 50_000;
/// The kernel's own limit (fs/binfmt_script.c, BINPRM_BUF_SIZE).
const MAX_SHEBANG_BYTES: usize = 256;
/// The kernel's limit on nested interpreters.
const MAX_SCRIPTS: usize = 5;
/// Directories and files that every guest has.
const RESERVED: &[&str] = &["/dev", "/proc", "/sys", "/init", "/modules", "/requests"];

/// The content of a guest's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory; what is in it has entries of its own.
    Folder,
    /// A symbolic link, with its target.
    Link(PathBuf),
    /// A regular file, to be copied.
    File {
        /// Its path on the host.
        host: PathBuf,
        /// Its size when it was added.
        size_bytes: u64,
    },
}

/// A file, directory or link of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permissions, without the file type.
    pub mode: u32,
    /// Modification time, in seconds since the epoch; Python detects stale caches by it.
    pub modified_unix_s: i64,
}

impl Entry {
    /// The contents of a file; empty for directories and links.
    ///
    /// # Errors
    /// The host's file can't be read, or has changed.
    pub fn read(&self) -> Result<Vec<u8>, BundleError> {
        let Kind::File { host, size_bytes } = &self.kind else {
            return Ok(Vec::new());
        };
        let unreadable = |source| BundleError::Unreadable { path: host.clone(), source };
        let mut bytes = Vec::with_capacity(*size_bytes as usize);
        // One byte more than its size, to detect a file that grows.
        File::open(host)
            .and_then(|f| f.take(size_bytes + 1).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        if bytes.len() as u64 != *size_bytes {
            return Err(unreadable(io::Error::other("it changed while it was read")));
        }
        Ok(bytes)
    }
}

/// A library that may be needed, and is missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The library's name.
    pub library: String,
    /// The file that needs it.
    pub needed_by: PathBuf,
}

/// Files for a guest.
#[derive(Debug)]
pub struct Bundle {
    host: Host,
    /// The architecture of the guest.
    arch: Arch,
    /// By their path in the guest: a directory comes before its contents.
    entries: BTreeMap<PathBuf, Entry>,
    size_bytes: u64,
    missing: BTreeSet<Missing>,
    /// Paths for which the user gave a file: it takes precedence over the host's.
    brought: BTreeSet<PathBuf>,
    /// The entries of the loader's cache, once it was read.
    cache: Option<Vec<(String, PathBuf)>>,
    /// ELF files whose libraries were added already.
    loaded: BTreeSet<PathBuf>,
}

impl Bundle {
    /// An empty bundle, for files of `host`.
    pub fn new(host: Host) -> Bundle {
        Bundle {
            host,
            arch: Arch::OWN,
            entries: BTreeMap::new(),
            size_bytes: 0,
            missing: BTreeSet::new(),
            brought: BTreeSet::new(),
            cache: None,
            loaded: BTreeSet::new(),
        }
    }

    /// The same, for a guest of an architecture: its programs are to be built for it.
    #[must_use]
    pub fn for_arch(self, arch: Arch) -> Bundle {
        Bundle { arch, ..self }
    }

    /// Its entries by their path in the guest; a directory before its contents.
    pub fn entries(&self) -> &BTreeMap<PathBuf, Entry> {
        &self.entries
    }

    /// The size of all files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Libraries that files in added directories need, and that this machine lacks: most are never
    /// loaded.
    pub fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter()
    }

    /// Check that the total size is within a limit.
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

    /// Add a program and everything that it needs to be loaded. `name` is a path, or a name to look
    /// up in `$PATH`. Returns its path in the guest.
    ///
    /// # Errors
    /// What is missing, unreadable or not a program, and what to try.
    pub fn add_program(&mut self, name: &str) -> Result<PathBuf, BundleError> {
        // Files from the user need no host file of that path.
        if self.brought.contains(&clean(Path::new(name))) {
            return Ok(clean(Path::new(name)));
        }
        let path = self.find(name)?;
        self.add_executable(&path)?;
        Ok(path)
    }

    /// The path of a program by its name, which is `preferred` if both are the same file.
    ///
    /// # Errors
    /// The program does not exist.
    pub(crate) fn find_as(&self, name: &str, preferred: &Path) -> Result<PathBuf, BundleError> {
        let found = self.find(name)?;
        let place = |path: &Path| self.host.metadata(path).ok().map(|(place, _)| place);
        let same = place(&found) == place(preferred);
        Ok(if same { preferred.to_path_buf() } else { found })
    }

    /// Add the program at a path, and everything that it needs to be loaded.
    ///
    /// # Errors
    /// What is missing, unreadable or not a program, and what to try.
    pub(crate) fn add_executable(&mut self, path: &Path) -> Result<(), BundleError> {
        self.add_executable_of(path, 0)
    }

    /// Add a file or a directory, at `guest` or at the same path as on the host, with what the
    /// programs and libraries in it need.
    ///
    /// # Errors
    /// What is missing or unreadable, and what to try.
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

    /// Add the entries of another bundle. Where both have a path, this one's entry stays.
    ///
    /// # Errors
    /// One has a directory or a link where the other has something else, or they are too large together.
    pub fn add_all(&mut self, other: Bundle) -> Result<(), BundleError> {
        for (path, entry) in other.entries {
            self.insert(path, entry)?;
        }
        Ok(())
    }

    /// The names of the programs that run when `path` is executed: its own, with links resolved, and the interpreters
    /// that were added with it.
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

    /// Add a shared library by its name, if it is on this machine.
    ///
    /// # Errors
    /// It can't be read, or a library that it needs is missing.
    pub fn add_library(&mut self, name: &str) -> Result<bool, BundleError> {
        let found = self.find_library(name, &Chain::default(), Loader::Glibc)?;
        for library in &found {
            self.add_found(library)?;
            self.add_libraries_of(&library.from, &Chain::default(), Libraries::Needed)?;
        }
        Ok(!found.is_empty())
    }

    /// Add a file or directory of the host at the same path, with only those files and directories
    /// below it that `wanted` accepts, by their path relative to the directory.
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

    /// Whether a path exists on the host.
    pub fn host_has(&self, path: &Path) -> bool {
        self.host.metadata(path).is_ok()
    }

    /// The names in a directory of the host; none if it can't be read.
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
            .map_err(|source| BundleError::Unreadable { path: path.to_path_buf(), source })
    }

    /// The path of a program, as `execvp` would find it; a version manager's shim only if there is
    /// nothing else of that name.
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
    fn add_executable_of(&mut self, path: &Path, scripts: usize) -> Result<(), BundleError> {
        let (place, found) = self.metadata(path)?;
        if found.is_dir() {
            return Err(BundleError::Directory(path.to_path_buf()));
        }
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

    /// Add the interpreter in the first line of a script.
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
        let interpreter =
            words.next().ok_or_else(|| BundleError::NotAProgram(script.to_path_buf()))?;
        let missing = |name: &str| BundleError::MissingInterpreter {
            interpreter: name.to_string(),
            needed_by: script.to_path_buf(),
        };
        let path = clean(&self.host.absolute(Path::new(interpreter)));
        if !self.host_has(&path) {
            return Err(missing(interpreter));
        }
        self.add_executable_of(&path, scripts + 1)?;
        if path.file_name() == Some("env".as_ref()) {
            let named = words.find(|w| !w.starts_with('-') && !w.contains('='));
            if let Some(name) = named {
                let program = self.find(name).map_err(|_| missing(name))?;
                self.add_executable_of(&program, scripts + 1)?;
            }
        }
        Ok(())
    }

    /// The first bytes of a file of the host.
    fn head(&self, place: &Path) -> Result<Vec<u8>, BundleError> {
        let mut head = Vec::with_capacity(MAX_SHEBANG_BYTES);
        File::open(self.host.real(place))
            .and_then(|f| f.take(MAX_SHEBANG_BYTES as u64).read_to_end(&mut head))
            .map_err(|source| BundleError::Unreadable { path: place.to_path_buf(), source })?;
        Ok(head)
    }

    /// Add the libraries of a file, if it is a program or a library.
    fn add_needs(
        &mut self,
        place: &Path,
        guest: &Path,
        libraries: Libraries,
    ) -> Result<(), BundleError> {
        let head = self.head(place)?;
        if head.starts_with(elf::MAGIC) {
            let needs = match elf::read(&self.host.real(place), place, self.arch) {
                Ok(needs) => needs,
                // Object files, core dumps, and programs for other machines are data.
                Err(BundleError::Damaged { .. } | BundleError::WrongArchitecture { .. }) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let origin = guest.parent().unwrap_or(Path::new("/"));
            return self.add_needed(&needs, place, origin, &Chain::default(), libraries);
        }
        if head.starts_with(b"#!") {
            // A script that can't run on the host is treated as data, too.
            match self.add_interpreter_of(place, &head, 0) {
                Err(BundleError::MissingInterpreter { .. } | BundleError::NotAProgram(_)) => {}
                other => return other,
            }
        }
        Ok(())
    }
}

impl Bundle {
    /// Add the file at a path, and the links on the way to it.
    fn add_way_to_file(&mut self, path: &Path) -> Result<(), BundleError> {
        let (place, found) = self.metadata(path)?;
        let to = self.add_way(path)?;
        self.add_plain(&place, &found, &to)
    }

    /// Add the links on the way to a path; returns its target.
    fn add_way(&mut self, path: &Path) -> Result<PathBuf, BundleError> {
        let (place, links) = self
            .host
            .walk(path)
            .map_err(|source| BundleError::Unreadable { path: path.to_path_buf(), source })?;
        for (at, target) in links {
            let entry = Entry { kind: Kind::Link(target), mode: 0o777, modified_unix_s: 0 };
            self.insert(at, entry)?;
        }
        Ok(place)
    }

    /// Add the links on the way to a path of the guest that may not exist on the host; returns the
    /// path with links resolved.
    fn add_place(&mut self, path: &Path) -> Result<PathBuf, BundleError> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let there = folder.ancestors().find(|f| self.host_has(f)).unwrap_or(Path::new("/"));
        let way = self.add_way(there)?;
        let rest = path.strip_prefix(there).unwrap_or(path);
        Ok(join(&way, rest))
    }

    /// Whether the user gave a file for this path.
    fn is_brought(&self, path: &Path) -> bool {
        if self.brought.contains(path) {
            return true;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        self.host.walk(folder).is_ok_and(|(place, _)| self.brought.contains(&place.join(name)))
    }

    fn add_plain(&mut self, place: &Path, found: &Metadata, to: &Path) -> Result<(), BundleError> {
        if !found.is_file() {
            return Err(BundleError::NotAFile(place.to_path_buf()));
        }
        let host = self.host.real(place);
        // An error now, not when a guest is about to boot.
        File::open(&host)
            .map_err(|source| BundleError::Unreadable { path: place.to_path_buf(), source })?;
        self.insert(
            to.to_path_buf(),
            Entry {
                kind: Kind::File { host, size_bytes: found.len() },
                mode: found.mode() & 0o7777,
                modified_unix_s: found.mtime(),
            },
        )
    }

    /// Add the contents of a directory of the host.
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
            let unreadable =
                |error| BundleError::Unreadable { path: source.clone(), source: error };
            let real = self.host.real(&source);
            let found = fs::symlink_metadata(&real).map_err(unreadable)?;
            if found.is_symlink() {
                let target_of = fs::read_link(&real).map_err(unreadable)?;
                // Its target is added if it exists and is elsewhere.
                let leads = clean(&source.parent().unwrap_or(Path::new("/")).join(&target_of));
                let entry = Entry { kind: Kind::Link(target_of), mode: 0o777, modified_unix_s: 0 };
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
                    .map_err(unreadable)?
                    .map(|e| Ok(below.join(e?.file_name())))
                    .collect::<io::Result<_>>()
                    .map_err(unreadable)?;
                inside.retain(|path| wanted(path));
                left.extend(inside);
            } else if found.is_file() {
                self.add_plain(&source, &found, &target)?;
                self.add_needs(&source, &target, libraries)?;
            }
            // Sockets, pipes and devices are skipped.
        }
        Ok(())
    }

    /// Add an entry, and missing directories above it.
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
                Entry { kind: Kind::Folder, mode: 0o755, modified_unix_s: 0 },
            );
        }
        match self.entries.get(&path).map(|e| &e.kind) {
            Some(Kind::Folder) if entry.kind == Kind::Folder => {}
            Some(there) if *there == entry.kind => return Ok(()),
            // A file given by the user takes precedence.
            Some(Kind::File { .. }) if matches!(entry.kind, Kind::File { .. }) => return Ok(()),
            Some(_) => return Err(BundleError::Clash(path)),
            None => {}
        }
        if let Kind::File { size_bytes, .. } = &entry.kind {
            self.size_bytes += size_bytes;
        }
        self.entries.insert(path, entry);
        if self.entries.len() > MAX_FILES {
            return Err(BundleError::TooMany { limit: MAX_FILES });
        }
        // Checked early: a directory may be larger than memory.
        self.check_size(MAX_BYTES)
    }
}
