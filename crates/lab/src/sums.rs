//! Lengths and checksums of the files in the cache, to detect damage: a power cut leaves some empty, short or with
//! holes, and disks err.
//!
//! An entry of the cache is a directory that is made under another name. It is sealed before it gets its
//! own: the file `sums` in it has the length and the checksum of every other file, and of its own lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};

/// The file with the sums of an entry.
const FILE: &str = "sums";
const PAGE_BYTES: usize = 4096;
/// The size of a read.
const BUFFER_BYTES: usize = 16 * PAGE_BYTES;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
/// The prefix of the last line of a sealed text.
const SEAL: &str = "# crc32 ";

/// The length of a file, and the checksum of its pages that are not zero and of where they are: so holes need
/// not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Length of the file, holes included.
    pub bytes: u64,
    /// CRC-32 of the pages with data, and of their positions.
    pub crc32: u32,
}

/// Adds up a file, page by page.
#[derive(Debug, Default)]
pub(crate) struct Adder(Hasher);

impl Adder {
    /// Add bytes at a multiple of the page size; returns which pages are not zero, by their offsets in it.
    pub(crate) fn add(&mut self, at: u64, bytes: &[u8], mut each: impl FnMut(usize, &[u8])) {
        for (number, page) in bytes.chunks(PAGE_BYTES).enumerate() {
            if *page == ZEROS[..page.len()] {
                continue;
            }
            let offset = number * PAGE_BYTES;
            self.0.update(&(at + offset as u64).to_le_bytes());
            self.0.update(page);
            each(offset, page);
        }
    }

    pub(crate) fn finish(self, bytes: u64) -> Sum {
        Sum { bytes, crc32: self.0.finalize() }
    }
}

impl Sum {
    /// The sum of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Sum {
        let mut adder = Adder::default();
        adder.add(0, bytes, |_, _| {});
        adder.finish(bytes.len() as u64)
    }

    /// The sum of a file.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of_file(file: &File) -> io::Result<Sum> {
        let bytes = file.metadata()?.len();
        let mut adder = Adder::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut at = 0;
        while let Some((start, end)) = data_at(file, at, bytes) {
            at = start - start % PAGE_BYTES as u64;
            while at < end {
                let size = BUFFER_BYTES.min((bytes - at) as usize);
                file.read_exact_at(&mut buffer[..size], at)?;
                adder.add(at, &buffer[..size], |_, _| {});
                at += size as u64;
            }
        }
        Ok(adder.finish(bytes))
    }

    /// Compare with what a file has now.
    ///
    /// # Errors
    /// How it differs.
    pub fn check(self, now: Sum) -> Result<(), String> {
        match self {
            _ if self.bytes != now.bytes => {
                Err(format!("it has {} bytes instead of {}", now.bytes, self.bytes))
            }
            _ if self.crc32 != now.crc32 => Err("its checksum is another one".into()),
            _ => Ok(()),
        }
    }
}

/// The range of the next data of a file after holes; none behind the last.
fn data_at(file: &File, from: u64, bytes: u64) -> Option<(u64, u64)> {
    if from >= bytes {
        return None;
    }
    let seek = |at: u64, whence| {
        // SAFETY: takes a descriptor and numbers.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(from, libc::SEEK_DATA) {
        Ok(start) => Some((start, seek(start, libc::SEEK_HOLE).unwrap_or(bytes).min(bytes))),
        // Only holes follow.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => None,
        // The file system does not report holes.
        Err(_) => Some((from, bytes)),
    }
}

/// Why an entry can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It does not exist.
    Missing,
    /// A file of it is damaged: which, and how.
    Damaged(String),
    /// It can't be read by this user, or at all: why.
    Unreadable(String),
}

impl Flaw {
    /// The flaw of an entry whose file could not be read.
    pub fn from_io(entry: &Path, name: &str, error: &io::Error) -> Flaw {
        let path = entry.join(name);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !entry.exists() => {
                Flaw::Missing
            }
            io::ErrorKind::NotFound => Flaw::Damaged(format!("{name} is missing")),
            _ => {
                Flaw::Unreadable(format!("{}: {error}{}", path.display(), owner_hint(&path, error)))
            }
        }
    }
}

/// A text with a checksum in its last line.
pub fn sealed(text: &str) -> String {
    let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{line}");
    format!("{text}{SEAL}{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// Whether a text is as it was sealed; none if it never was.
pub fn is_intact(text: &str) -> Option<bool> {
    let at = text.rfind(SEAL)?;
    let sum = text[at + SEAL.len()..].strip_suffix('\n');
    let now = format!("{:08x}", crc32fast::hash(&text.as_bytes()[..at]));
    Some(sum == Some(now.as_str()))
}

/// Seal an entry, and have all of it on the disk.
///
/// # Errors
/// It can't be read or written.
pub fn seal(entry: &Path) -> io::Result<()> {
    let mut found = TreeEntries::default();
    walk(entry, Path::new(""), &mut found)?;
    let mut text = String::new();
    for name in found.files.iter().filter(|name| Path::new(FILE) != **name) {
        let file = File::open(entry.join(name))?;
        let sum = Sum::of_file(&file)?;
        file.sync_all()?;
        // A name that is not text is not checked.
        if let Some(name) = name.to_str().filter(|name| !name.contains('\n')) {
            let _ = writeln!(text, "{:08x} {} {name}", sum.crc32, sum.bytes);
        }
    }
    let mut file = File::create(entry.join(FILE))?;
    file.write_all(sealed(&text).as_bytes())?;
    file.sync_all()?;
    for folder in &found.folders {
        sync_folder(&entry.join(folder));
    }
    Ok(())
}

/// Have an entry not checked while it is changed, until it is sealed again.
///
/// # Errors
/// It can't be written.
pub fn unseal(entry: &Path) -> io::Result<()> {
    match fs::remove_file(entry.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an entry was sealed.
pub fn is_sealed(entry: &Path) -> bool {
    entry.join(FILE).is_file()
}

/// Have the names in a directory on the disk, where its file system can do that.
pub fn sync_folder(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Give a sealed entry its name.
///
/// # Errors
/// It can't be renamed: there may be one of that name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    if let Some(folder) = to.parent() {
        sync_folder(folder);
    }
    Ok(())
}

/// Check an entry: the lengths of all files, and the content of those that `wanted` accepts by their paths in
/// it. One that was never sealed, by an older version, is not checked.
///
/// # Errors
/// Why it can't be used.
pub fn check(entry: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<(), Flaw> {
    let sums = match fs::read_to_string(entry.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && entry.is_dir() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(Flaw::from_io(entry, FILE, &error)),
    };
    let sums = read(&sums).ok_or_else(|| Flaw::Damaged(format!("{FILE} can't be read")))?;
    for (name, sum) in sums {
        let path = Path::new(name);
        let now = match wanted(path) {
            true => File::open(entry.join(path)).and_then(|file| Sum::of_file(&file)),
            false => {
                fs::metadata(entry.join(path)).map(|metadata| Sum { bytes: metadata.len(), ..sum })
            }
        };
        let now = now.map_err(|error| Flaw::from_io(entry, name, &error))?;
        let checked = sum.check(now);
        checked.map_err(|how| Flaw::Damaged(format!("{name}: {how}")))?;
    }
    Ok(())
}

/// Whether an entry exists and is intact; all of it is checked. A damaged entry is removed, and `tell` gets a line
/// about it.
///
/// # Errors
/// It can't be read or removed.
pub fn is_whole(entry: &Path, tell: &mut dyn FnMut(String)) -> io::Result<bool> {
    match check(entry, &|_| true) {
        Ok(()) => Ok(true),
        Err(Flaw::Missing) => Ok(false),
        Err(Flaw::Unreadable(why)) => Err(io::Error::other(why)),
        Err(Flaw::Damaged(how)) => {
            let path = entry.display();
            tell(format!("removed {path}, which was damaged ({how})"));
            remove(entry)?;
            Ok(false)
        }
    }
}

/// Remove an entry: as a whole, since a part of one must not be used.
///
/// # Errors
/// It can't be removed.
pub fn remove(entry: &Path) -> io::Result<()> {
    let name = entry.file_name().unwrap_or_default().to_string_lossy();
    let gone = entry.with_file_name(format!("{GONE}{name}"));
    match fs::rename(entry, &gone) {
        // Another run was quicker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // The remains of an earlier one.
        Err(_) if gone.exists() => {
            fs::remove_dir_all(&gone)?;
            fs::rename(entry, &gone)?;
        }
        renamed => renamed?,
    }
    fs::remove_dir_all(gone)
}

/// How deep entries are below the cache: `sources/HASH/built/KEY`.
const DEPTH_MAX: usize = 4;

/// Check all sealed entries of a cache, and remove damaged ones and the remains of removals by killed runs; `tell` gets
/// a line for each.
pub fn clean(cache: &Path, tell: &mut dyn FnMut(String)) {
    clean_below(cache, 0, tell);
}

fn clean_below(folder: &Path, depth: usize, tell: &mut dyn FnMut(String)) {
    let failed = |error: io::Error| {
        let hint = owner_hint(folder, &error);
        format!("can't clean up {}: {error}{hint}", folder.display())
    };
    if is_sealed(folder) {
        match is_whole(folder, tell) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tell(failed(error)),
        }
    }
    let inside = match fs::read_dir(folder) {
        Ok(inside) if depth < DEPTH_MAX => inside,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return tell(failed(error)),
        _ => return,
    };
    for entry in inside.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(GONE) {
            let _ = fs::remove_dir_all(entry.path());
        } else {
            clean_below(&entry.path(), depth + 1, tell);
        }
    }
}

/// The prefix of entries that are being removed.
pub const GONE: &str = ".gone-";

/// The sums in a file of sums, by names; none if it is damaged.
fn read(text: &str) -> Option<BTreeMap<&str, Sum>> {
    is_intact(text).filter(|intact| *intact)?;
    let lines = text.lines().filter(|line| !line.starts_with(SEAL));
    lines
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let crc32 = u32::from_str_radix(words.next()?, 16).ok()?;
            let bytes = words.next()?.parse().ok()?;
            Some((words.next()?, Sum { bytes, crc32 }))
        })
        .collect()
}

#[derive(Default)]
struct TreeEntries {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// Everything below a directory, by paths in it; links are left out.
fn walk(top: &Path, below: &Path, found: &mut TreeEntries) -> io::Result<()> {
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(top, &path, found)?;
        } else if kind.is_file() {
            found.files.push(path);
        }
    }
    found.folders.push(below.to_owned());
    Ok(())
}

/// Whose a file is that this user may not use, and what to do; empty for other errors.
pub fn owner_hint(path: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let known = path.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?.uid())));
    // SAFETY: takes nothing, and can't fail.
    let own = unsafe { libc::geteuid() };
    match known {
        Some((place, owner)) if owner != own => {
            let (of, us) = (user(owner), user(own));
            let place = place.display();
            format!(
                " ({place} belongs to {of}, and this is {us}): use a cache of your own (--cache or PLUMB_CACHE), \
                 or have the whole cache given to you with `sudo chown -R {us} DIR`"
            )
        }
        _ => String::new(),
    }
}

/// The name of a user, or the number.
fn user(uid: u32) -> String {
    if uid == 0 {
        return "root".into();
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("user {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn entry(folder: &Path) -> PathBuf {
        let entry = folder.join("entry");
        fs::create_dir_all(entry.join("below")).unwrap();
        fs::write(entry.join("text"), "some text\n").unwrap();
        fs::write(entry.join("below/empty"), "").unwrap();
        let sparse = File::create(entry.join("below/sparse")).unwrap();
        sparse.set_len(8 * MIB).unwrap();
        for at in [0, 3 * MIB + 5, 8 * MIB - 1] {
            sparse.write_all_at(b"x", at).unwrap();
        }
        seal(&entry).unwrap();
        entry
    }

    /// Check that the sum of a file does not depend on its holes, only on what is read from it.
    #[test]
    fn holes_are_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; 3 * MIB as usize];
        bytes[2_000_000] = 7;
        bytes.push(1);
        let dense = folder.path().join("dense");
        fs::write(&dense, &bytes).unwrap();
        let sparse = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("sparse"))
            .unwrap();
        sparse.set_len(bytes.len() as u64).unwrap();
        sparse.write_all_at(&[7], 2_000_000).unwrap();
        sparse.write_all_at(&[1], bytes.len() as u64 - 1).unwrap();
        let sum = Sum::of_bytes(&bytes);
        assert_eq!(Sum::of_file(&File::open(&dense).unwrap()).unwrap(), sum);
        assert_eq!(Sum::of_file(&sparse).unwrap(), sum);
        // The same page elsewhere is something else.
        sparse.write_all_at(&[0], 2_000_000).unwrap();
        sparse.write_all_at(&[7], 1_000_000).unwrap();
        assert_ne!(Sum::of_file(&sparse).unwrap(), sum);
    }

    /// Check that each kind of damage to each file is seen, and that an entry which was never sealed is not
    /// checked.
    #[test]
    fn damage_is_seen() {
        let all = |_: &Path| true;
        type Damage = (&'static str, fn(&Path));
        let flip: fn(&Path) = |path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(path, bytes).unwrap();
        };
        let cut: fn(&Path) = |path| {
            let file = File::options().write(true).open(path).unwrap();
            let bytes = file.metadata().unwrap().len();
            file.set_len(bytes - 1).unwrap();
        };
        let kinds: [Damage; 4] = [
            ("emptied", |path| fs::write(path, "").unwrap()),
            ("gone", |path| fs::remove_file(path).unwrap()),
            ("bit flipped", flip),
            ("cut", cut),
        ];
        for name in ["text", "below/sparse", FILE] {
            for (what, damage) in kinds {
                let folder = tempfile::tempdir().unwrap();
                let entry = entry(folder.path());
                assert_eq!(check(&entry, &all), Ok(()));
                damage(&entry.join(name));
                let never_sealed = name == FILE && what == "gone";
                match check(&entry, &all) {
                    Err(Flaw::Damaged(how)) if !never_sealed => {
                        assert!(how.starts_with(name), "{how}");
                        let mut lines = Vec::new();
                        assert!(!is_whole(&entry, &mut |line| lines.push(line)).unwrap());
                        assert_eq!(lines.len(), 1);
                        assert!(!entry.exists());
                    }
                    Ok(()) if never_sealed => {}
                    other => panic!("{name} {what}: {other:?}"),
                }
            }
        }
        assert_eq!(check(Path::new("/none"), &all), Err(Flaw::Missing));
    }

    /// Check that a hole in the middle of a file is seen, which has its length, and that lengths are checked
    /// where the content is not.
    #[test]
    fn contents_and_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let entry = entry(folder.path());
        let sparse = entry.join("below/sparse");
        let file = File::options().write(true).open(&sparse).unwrap();
        file.write_all_at(&[0], 3 * MIB + 5).unwrap();
        assert!(matches!(check(&entry, &|_| true), Err(Flaw::Damaged(_))));
        assert_eq!(check(&entry, &|_| false), Ok(()));
        file.set_len(3 * MIB).unwrap();
        assert!(matches!(check(&entry, &|_| false), Err(Flaw::Damaged(_))));
    }

    /// Check that a sealed text is known as intact, and a cut or changed one as damaged.
    #[test]
    fn texts() {
        let text = sealed("a = 1\nb = 2");
        assert_eq!(is_intact(&text), Some(true));
        assert_eq!(is_intact("a = 1\n"), None);
        assert_eq!(is_intact(&text.replace("b = 2", "b = 3")), Some(false));
        assert_eq!(is_intact(&text[..text.len() - 2]), Some(false));
    }

    /// Check that only a file of another user gets a hint of it.
    #[test]
    fn owners() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let own = tempfile::tempdir().unwrap();
        assert_eq!(owner_hint(own.path(), &denied), "");
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(owner_hint(Path::new("/"), &other), "");
        assert_eq!(user(0), "root");
    }
}
