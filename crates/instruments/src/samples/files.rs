//! The files that user code is in, and its names.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use netplumb_model::timing::Met;
use rustc_hash::FxHashMap;

use super::UNKNOWN;
use super::unwind::Unwinding;
use crate::exact::NO_FILE;
use crate::image::{self, Image};

/// Larger files are not read: their code has no names.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Files that are kept open until the end: fewer than any limit on them.
const MAX_HELD: usize = 512;
/// The name of the kernel's code for user mode.
pub(super) const VDSO: &str = "[vdso]";

/// A file, by its number.
pub(super) type FileId = u32;

/// A file that was mapped.
#[derive(Debug)]
struct Known {
    /// As in tables.
    name: String,
    path: String,
    inode: u64,
    /// As it was when it was first seen; none if it can't be opened.
    opened: Option<Option<File>>,
    /// Read when it was first needed; none if it can't be.
    image: Option<Option<Image>>,
    /// What its stacks are unwound by, likewise.
    unwinding: Option<Option<Rc<Unwinding>>>,
    /// The names of its functions, by their index.
    names: FxHashMap<usize, Met>,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Files {
    all: Vec<Known>,
    numbers: HashMap<(String, u64), FileId>,
    /// How many are open.
    held: usize,
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Within {
    pub(super) file: FileId,
    pub(super) offset: u64,
}

impl Files {
    /// The number of a file that was mapped, by its path and inode.
    pub(super) fn number(&mut self, path: &str, inode: u64) -> FileId {
        let key = (path.to_string(), inode);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.all.len() as FileId;
        // As perf and /proc tell of files that are gone.
        let bare = path
            .trim_end_matches(" (deleted)")
            .trim_end_matches("//deleted");
        let name = match bare {
            "//anon" | "" => "[anon]",
            bare => bare.rsplit('/').next().unwrap_or(bare),
        };
        self.all.push(Known {
            name: name.to_string(),
            path: bare.to_string(),
            inode,
            opened: None,
            image: None,
            unwinding: None,
            names: FxHashMap::default(),
        });
        self.numbers.insert(key, number);
        number
    }

    /// Open a file, if that is not done yet: it or its process may be gone when it is read.
    pub(super) fn hold(&mut self, file: FileId, pid: u32) {
        let held = self.held;
        if let Some(known) = self.all.get_mut(file as usize)
            && known.opened.is_none()
            && held < MAX_HELD
        {
            let opened = open(&known.path, known.inode, pid);
            self.held += usize::from(opened.is_some());
            known.opened = Some(opened);
        }
    }

    /// What stacks of a file's code are unwound by.
    pub(super) fn unwinding(&mut self, file: FileId, pid: u32) -> Option<Rc<Unwinding>> {
        self.hold(file, pid);
        let known = self.all.get_mut(file as usize)?;
        if known.unwinding.is_none() {
            let read = || Unwinding::read(&known.path, &known.bytes()?);
            known.unwinding = Some(read().map(Rc::new));
        }
        known.unwinding.clone().flatten()
    }

    /// The function at a place; the place itself if no symbol covers it.
    pub(super) fn function(&mut self, at: Within) -> Met {
        let Some(known) = self.all.get_mut(at.file as usize) else {
            return unknown(None);
        };
        if known.image.is_none() {
            let read = || {
                let bytes = known.bytes()?;
                let debug = image::debug_file(Some(Path::new(&known.path)), &bytes);
                Image::read(&known.name, &bytes, debug.as_deref()).ok()
            };
            known.image = Some(read());
        }
        let image = known.image.as_ref().and_then(Option::as_ref);
        let function = image.and_then(|image| {
            let address = match known.path.as_str() {
                VDSO => at.offset,
                _ => image.address_of(at.offset)?,
            };
            Some((image, image.function(address)?))
        });
        let Some((image, index)) = function else {
            return unknown(Some(&known.name));
        };
        let met = known.names.entry(index).or_insert_with(|| {
            let function = &image.functions[index];
            Met {
                name: image::readable(&function.name),
                module: Some(known.name.clone()),
                user: true,
                address: function.start,
                size_bytes: function.end - function.start,
            }
        });
        met.clone()
    }
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

impl Known {
    /// Its content.
    fn bytes(&self) -> Option<Vec<u8>> {
        if self.path == VDSO {
            return vdso();
        }
        let again;
        let mut file = match &self.opened {
            Some(opened) => opened.as_ref()?,
            None => {
                again = open(&self.path, self.inode, std::process::id())?;
                &again
            }
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// A file as a process sees it: by its root while it lives, by ours afterwards. Another file of the
/// same name is not it.
fn open(path: &str, inode: u64, pid: u32) -> Option<File> {
    if !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    let root = format!("/proc/{pid}/root{path}");
    [PathBuf::from(root), PathBuf::from(path)]
        .iter()
        .find_map(|path| {
            // What is no regular file may wait for a writer.
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
    let (start, end) = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function of this very program is found by where it is mapped, that the vDSO
    /// has names, and that another file of the same name is not taken for the one that was mapped.
    #[test]
    fn own_code() {
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap();
        let inode = std::fs::metadata(path).unwrap().ino();
        let bytes = std::fs::read(path).unwrap();
        let image = Image::read("x", &bytes, None).unwrap();
        let function = image
            .functions
            .iter()
            .max_by_key(|f| f.end - f.start)
            .unwrap();
        let segment = image.segments[0];
        let offset = function.start - segment.address + segment.offset;
        let mut files = Files::default();
        let file = files.number(path, inode);
        assert_eq!(files.number(path, inode), file);
        let met = files.function(Within { file, offset });
        assert_eq!((met.address, met.name == UNKNOWN), (function.start, false));
        let file = files.number(path, inode + 1);
        let other = files.function(Within { file, offset });
        assert_eq!(other.name, UNKNOWN);
        assert_eq!(other.module, met.module);
        let vdso = vdso().unwrap();
        let image = Image::read(VDSO, &vdso, None).unwrap();
        assert!(
            image
                .functions
                .iter()
                .any(|f| f.name.contains("clock_gettime"))
        );
        let file = files.number("//anon", 0);
        let anon = files.function(Within { file, offset });
        assert_eq!(anon.module.as_deref(), Some("[anon]"));
    }
}
