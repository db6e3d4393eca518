//! The files that user code is in, and its names.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use netplumb_model::timing::Met;
use rustc_hash::FxHashSet;

use super::UNKNOWN;
use super::jit::JitCode;
use super::tables::Unwinding;
use crate::exact::NO_FILE;
use crate::image::{self, Finder, Lines, LinesError, at_address};

/// Larger files are not read: their code has no names.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Files that are kept open until the end: fewer than any limit on them.
const MAX_HELD: usize = 512;
/// Places in code made at run time that are named at the end: that code has no name where there are more.
const MAX_LATE: usize = 1 << 14;
/// The name of the kernel's code for user mode.
const VDSO: &str = "[vdso]";
/// The name of memory without a file.
const ANON: &str = "[anon]";
/// Stands for the file of code made at run time whose maker named it.
pub const JIT: &str = "[JIT]";
/// Names of memory for code made at run time, in perf's records and in /proc/PID/maps.
const MADE: &[&str] =
    &["//anon", "[anon", "[heap]", "[stack", "/dev/zero", "/anon_hugepage", "/memfd:", "/SYSV"];

/// A file, by its number.
pub(super) type FileId = u32;

/// A file that was mapped.
#[derive(Debug)]
struct MappedFile {
    /// As in tables.
    name: String,
    path: String,
    inode: u64,
    /// For memory without a file: what its process wrote about it.
    made: Option<JitCode>,
    /// As it was when it was first seen; none if it can't be opened.
    opened: Option<Option<Rc<File>>>,
    /// Finds its functions, made when the first is needed; none without any.
    finder: Option<Option<Finder>>,
    /// Unwinds its stacks, likewise.
    unwinding: Option<Option<Rc<Unwinding>>>,
    /// Functions that were met, by where they begin: where they end, and as they are shown.
    functions: BTreeMap<u64, (u64, Met)>,
    /// Places in no function.
    nameless: FxHashSet<u64>,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Files {
    all: Vec<MappedFile>,
    numbers: HashMap<(String, u64), FileId>,
    /// How many are open.
    held: usize,
    /// Whether the run has no end, so that nothing is named then.
    pub(super) is_endless: bool,
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Within {
    pub(super) file: FileId,
    pub(super) offset: u64,
}

/// What debug information has on a file.
#[derive(Debug)]
pub(super) struct FileLines {
    /// In the order of [`Lines::functions`].
    pub(super) functions: Vec<Met>,
    pub(super) lines: Lines,
}

impl Files {
    /// The number of a file that was mapped, by its path and inode.
    pub(super) fn number(&mut self, path: &str, inode: u64) -> FileId {
        let key = (path.to_string(), inode);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.all.len() as FileId;
        // As perf and /proc name files that are gone.
        let bare = path.trim_end_matches(" (deleted)").trim_end_matches("//deleted");
        let name = bare.rsplit('/').next().unwrap_or(bare);
        self.all.push(MappedFile::new(name, bare, inode));
        self.numbers.insert(key, number);
        number
    }

    /// The number of memory without a file, in which a process may have made code since a time.
    pub(super) fn made(&mut self, pid: u32, since_ns: u64) -> FileId {
        // No file has this path.
        let file = self.number(&format!("//made by {pid}"), since_ns);
        if let Some(known) = self.all.get_mut(file as usize)
            && known.made.is_none()
        {
            known.name = ANON.into();
            known.made = Some(JitCode::by(pid));
        }
        file
    }

    /// The same of a process that has the mappings of another one.
    pub(super) fn made_again(&mut self, file: FileId, pid: u32, since_ns: u64) -> FileId {
        let known = self.all.get(file as usize);
        match known.is_some_and(|known| known.made.is_some()) {
            true => self.made(pid, since_ns),
            false => file,
        }
    }

    /// Code that processes made: lines about it that were not understood, and files of such lines that
    /// were not read, since this was asked last.
    pub(super) fn lost_names(&mut self) -> (u64, u64) {
        let lost = self.all.iter_mut().filter_map(|known| known.made.as_mut());
        lost.map(JitCode::lost).fold((0, 0), |(lines, files), (more, unread)| {
            (lines + more, files + u64::from(unread))
        })
    }

    /// Whether a place has no name, and may have one later.
    pub(super) fn is_pending(&self, at: Within) -> bool {
        let known = self.all.get(at.file as usize);
        let made = known.and_then(|known| known.made.as_ref());
        made.is_some_and(|made| made.is_pending(at.offset))
    }

    /// Open a file, if that is not done yet: it or its process may be gone when it is read.
    pub(super) fn hold(&mut self, file: FileId, pid: u32) {
        let held = self.held;
        let Some(known) = self.all.get_mut(file as usize).filter(|_| held < MAX_HELD) else {
            return;
        };
        if let Some(made) = &mut known.made {
            self.held += usize::from(made.hold());
        } else if known.opened.is_none() {
            let opened = open(&known.path, known.inode, pid);
            self.held += usize::from(opened.is_some());
            known.opened = Some(opened.map(Rc::new));
        }
    }

    /// The unwind tables of a file.
    pub(super) fn unwinding(&mut self, file: FileId, pid: u32) -> Option<Rc<Unwinding>> {
        self.hold(file, pid);
        let known = (self.all.get_mut(file as usize)).filter(|known| known.made.is_none())?;
        if known.unwinding.is_none() {
            let read = match known.path.as_str() {
                VDSO => vdso().and_then(|bytes| Unwinding::read(Cursor::new(bytes), true)),
                _ => (known.open()).and_then(|file| Unwinding::read(&*file, false)),
            };
            known.unwinding = Some(read.map(Rc::new));
        }
        known.unwinding.clone().flatten()
    }

    /// Find the functions at some places, each file's all at once.
    pub(super) fn find(&mut self, places: impl Iterator<Item = Within>) {
        let mut by_file: BTreeMap<FileId, Vec<u64>> = BTreeMap::new();
        for at in places {
            by_file.entry(at.file).or_default().push(at.offset);
        }
        let of_made = self.all.iter().filter(|known| known.made.is_some());
        let late: usize = of_made.map(|known| known.nameless.len()).sum();
        let mut room = match self.is_endless {
            true => 0,
            false => MAX_LATE.saturating_sub(late),
        };
        for (file, offsets) in by_file {
            if let Some(known) = self.all.get_mut(file as usize) {
                known.find(offsets, &mut room);
            }
        }
    }

    /// What stands for places in code made at run time which had no name when a window was closed, and what
    /// these are: programs may write the names when they end.
    pub(super) fn late_names(&mut self) -> Vec<(Met, Met)> {
        let mut names = Vec::new();
        for (file, known) in (0..).zip(&mut self.all) {
            let Some(made) = &mut known.made else {
                continue;
            };
            let offsets: Vec<u64> = known.nameless.drain().collect();
            made.hold_at_last();
            made.find(offsets.clone());
            names.extend(offsets.into_iter().map(|offset| {
                let named = made.name(offset).map(of_jit);
                let named = named.unwrap_or_else(|| unknown(Some(&known.name)));
                (nameless(&known.name, Within { file, offset }), named)
            }));
        }
        names
    }

    /// A file's name, as in tables.
    pub(super) fn name(&self, file: FileId) -> &str {
        self.all.get(file as usize).map_or("", |known| &known.name)
    }

    /// The functions of a file that were found so far, and the source lines of them and of some
    /// offsets; none without debug information.
    ///
    /// # Errors
    /// What keeps them from being known.
    pub(super) fn lines(
        &mut self,
        file: FileId,
        offsets: &[u64],
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<FileLines>, LinesError> {
        let Some(known) = self.all.get_mut(file as usize) else {
            return Ok(None);
        };
        let Some(finder) = known.finder() else {
            return Ok(None);
        };
        let Some(bytes) = finder.debug_info()? else {
            return Ok(None);
        };
        // Offsets without an address have no line: the last address is never in use.
        let address_of = |at: &u64| finder.address_of(*at).unwrap_or(u64::MAX);
        let code: Vec<u64> = offsets.iter().map(address_of).collect();
        let functions: Vec<Met> = (known.functions.values()).map(|(_, met)| met.clone()).collect();
        let starts: Vec<u64> = functions.iter().map(|met| met.address).collect();
        let lines = image::lines(&bytes, &starts, &code, go_on)?;
        Ok(Some(FileLines { functions, lines }))
    }

    /// The function at a place, if it was [looked for](Files::find); one without a name if no
    /// symbol covers it.
    pub(super) fn function(&self, at: Within) -> Met {
        let Some(known) = self.all.get(at.file as usize) else {
            return unknown(None);
        };
        let made = known.made.as_ref().and_then(|made| made.name(at.offset));
        match (made, known.function(at.offset)) {
            (Some(name), _) => of_jit(name),
            (None, Some(met)) => met.clone(),
            (None, None) if known.made.is_some() && known.nameless.contains(&at.offset) => {
                nameless(&known.name, at)
            }
            (None, None) => unknown(Some(&known.name)),
        }
    }
}

/// Code made at run time, wherever it is: JIT compilers make hot code again elsewhere.
fn of_jit(name: &str) -> Met {
    Met { name: name.into(), module: Some(JIT.into()), user: true, ..Met::default() }
}

/// Stands for a place in code made at run time until the end.
fn nameless(file: &str, at: Within) -> Met {
    Met { name: format!("{} of {}", at_address(at.offset), at.file), ..unknown(Some(file)) }
}

/// Code that no symbol covers.
pub(super) fn unknown(file: Option<&str>) -> Met {
    Met {
        name: UNKNOWN.into(),
        module: Some(file.unwrap_or(NO_FILE).into()),
        user: true,
        ..Met::default()
    }
}

/// Whether a mapping is memory for code made at run time, by its name.
pub fn is_made(path: &str) -> bool {
    path.is_empty() || MADE.iter().any(|begins| path.starts_with(begins))
}

impl MappedFile {
    fn new(name: &str, path: &str, inode: u64) -> MappedFile {
        MappedFile {
            name: name.to_string(),
            path: path.to_string(),
            inode,
            made: None,
            opened: None,
            finder: None,
            unwinding: None,
            functions: BTreeMap::new(),
            nameless: FxHashSet::default(),
        }
    }

    /// The file, as it was when it was first seen.
    fn open(&self) -> Option<Rc<File>> {
        match &self.opened {
            Some(opened) => opened.clone(),
            None => open(&self.path, self.inode, std::process::id()).map(Rc::new),
        }
    }

    fn finder(&mut self) -> Option<&Finder> {
        if self.finder.is_none() {
            self.finder = Some(match self.path.as_str() {
                VDSO => vdso().and_then(Finder::of_bytes),
                path => (self.open()).and_then(|file| Finder::of_file(&file, Path::new(path))),
            });
        }
        self.finder.as_ref().and_then(Option::as_ref)
    }

    /// Find the functions at some offsets; `room` is how many places may be named late.
    fn find(&mut self, mut offsets: Vec<u64>, room: &mut usize) {
        if let Some(made) = &mut self.made {
            made.hold();
            made.find(offsets.clone());
            for at in offsets {
                if *room > 0 && made.name(at).is_none() && self.nameless.insert(at) {
                    *room -= 1;
                }
            }
            return;
        }
        offsets.sort_unstable();
        offsets.dedup();
        offsets.retain(|at| !self.nameless.contains(at) && self.function(*at).is_none());
        if offsets.is_empty() {
            return;
        }
        let is_vdso = self.path == VDSO;
        let Some(finder) = self.finder() else {
            self.nameless.extend(offsets);
            return;
        };
        let address_of = |offset: &u64| match is_vdso {
            true => Some(*offset),
            false => finder.address_of(*offset),
        };
        let places = offsets.iter().map(|offset| (*offset, address_of(offset)));
        let places: Vec<(u64, Option<u64>)> = places.collect();
        let addresses: Vec<u64> = places.iter().filter_map(|(_, address)| *address).collect();
        let mut found = finder.functions(&addresses).into_iter();
        for (offset, address) in places {
            let function = address.and_then(|at| Some((at, found.next()??)));
            let Some((address, function)) = function else {
                self.nameless.insert(offset);
                continue;
            };
            // By offsets of the file, as it is asked for.
            let start = offset.saturating_sub(address - function.start);
            let met = Met {
                name: image::readable(&function.name),
                module: Some(self.name.clone()),
                user: true,
                address: function.start,
                size_bytes: function.end - function.start,
            };
            let end = start + met.size_bytes;
            self.functions.insert(start, (end, met));
        }
    }

    fn function(&self, offset: u64) -> Option<&Met> {
        let (_, (end, met)) = self.functions.range(..=offset).next_back()?;
        (offset < *end).then_some(met)
    }
}

/// A file as a process sees it: by its root while it lives, by ours afterwards. Another file of the
/// same name is not taken.
fn open(path: &str, inode: u64, pid: u32) -> Option<File> {
    if !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    let root = format!("/proc/{pid}/root{path}");
    [PathBuf::from(root), PathBuf::from(path)].iter().find_map(|path| {
        // Anything but a regular file may wait for a writer.
        let found = fs::metadata(path).ok()?;
        let same = inode == 0 || found.ino() == inode;
        if !found.is_file() || !same || found.len() > MAX_FILE_BYTES {
            return None;
        }
        File::open(path).ok()
    })
}

/// The kernel's code for user mode, which all processes have, from this one's memory.
fn vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;

    /// Check that a function of this very program is found by where it is mapped, that the vDSO
    /// has names, and that another file of the same name is not taken for the one that was mapped.
    #[test]
    fn own_code() {
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap();
        let inode = std::fs::metadata(path).unwrap().ino();
        let bytes = std::fs::read(path).unwrap();
        let image = Image::read("x", &bytes, None).unwrap();
        let function = image.functions.iter().max_by_key(|f| f.end - f.start).unwrap();
        let segment = image.segments[0];
        let offset = function.start - segment.address + segment.offset;
        let mut files = Files::default();
        let file = files.number(path, inode);
        assert_eq!(files.number(path, inode), file);
        let found = |files: &mut Files, file: FileId| {
            let at = Within { file, offset };
            files.find([at].into_iter());
            files.function(at)
        };
        let met = found(&mut files, file);
        assert_eq!((met.address, met.name == UNKNOWN), (function.start, false));
        let file = files.number(path, inode + 1);
        let other = found(&mut files, file);
        assert_eq!(other.name, UNKNOWN);
        assert_eq!(other.module, met.module);
        let vdso = vdso().unwrap();
        let image = Image::read(VDSO, &vdso, None).unwrap();
        assert!(image.functions.iter().any(|f| f.name.contains("clock_gettime")));
        let file = files.made(1, 0);
        let anon = found(&mut files, file);
        assert_eq!(anon.module.as_deref(), Some("[anon]"));
    }
}
