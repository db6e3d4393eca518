//! A package as a stream: its members, and the files in them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use super::error::DebError;
use crate::compression::{self, Compression};

/// The most that one package may unpack to.
pub(super) const UNPACKED_MAX_BYTES: u64 = 8 << 30;
/// The most files and folders that one package may hold.
const ENTRIES_MAX: usize = 200_000;
/// The longest path; what Linux allows.
const PATH_MAX_BYTES: u64 = 4096;
/// The longest control file.
const CONTROL_MAX_BYTES: u64 = 1 << 20;

pub(super) const AR_MAGIC: &[u8; 8] = b"!<arch>\n";
const AR_HEADER_BYTES: usize = 60;

/// The control file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebControl {
    /// The package's name.
    pub package: String,
    /// The package's version, as dpkg compares it.
    pub version: String,
}

/// An open package: an `ar` archive whose members are in a fixed order, `deb(5)`.
pub(super) struct Deb<'a> {
    path: &'a Path,
    file: File,
    members: Vec<Member>,
}

struct Member {
    name: String,
    offset_bytes: u64,
    size_bytes: u64,
}

impl<'a> Deb<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, DebError> {
        let failed = |source| DebError::Read { path: path.to_owned(), source };
        let not_a_deb =
            |reason: &str| DebError::NotADeb { path: path.to_owned(), reason: reason.to_owned() };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(not_a_deb("it is no plain file"));
        }
        let have_bytes = metadata.len();
        let mut magic = [0; AR_MAGIC.len()];
        if file.read_exact(&mut magic).is_err() || &magic != AR_MAGIC {
            return Err(not_a_deb("it does not open with `!<arch>`"));
        }

        let mut members = Vec::new();
        let mut at = AR_MAGIC.len() as u64;
        while at < have_bytes {
            let truncated =
                |need_bytes| DebError::Truncated { path: path.to_owned(), have_bytes, need_bytes };
            let offset_bytes = at + AR_HEADER_BYTES as u64;
            if offset_bytes > have_bytes {
                return Err(truncated(offset_bytes));
            }
            let mut header = [0; AR_HEADER_BYTES];
            file.seek(SeekFrom::Start(at)).map_err(failed)?;
            file.read_exact(&mut header).map_err(failed)?;
            let (name, size_bytes) =
                parse_header(&header).ok_or_else(|| not_a_deb("a member's header is damaged"))?;
            if members.is_empty() && name != "debian-binary" {
                return Err(not_a_deb("its first member is not debian-binary"));
            }
            let end = offset_bytes + size_bytes;
            if end > have_bytes {
                return Err(truncated(end));
            }
            members.push(Member { name, offset_bytes, size_bytes });
            at = end + size_bytes % 2;
        }
        // A package that ends between two members lacks the later ones.
        for stem in ["control.tar", "data.tar"] {
            if !members.iter().any(|member| member.is(stem)) {
                let need_bytes = at + AR_HEADER_BYTES as u64;
                return Err(DebError::Truncated { path: path.to_owned(), have_bytes, need_bytes });
            }
        }
        Ok(Self { path, file, members })
    }

    /// The unpacked bytes of the member of that name, whatever its ending.
    pub(super) fn member(&mut self, stem: &str) -> Result<Box<dyn Read + '_>, DebError> {
        let failed = |source| DebError::Read { path: self.path.to_owned(), source };
        let member = self.members.iter().find(|member| member.is(stem)).ok_or_else(|| {
            DebError::NotADeb { path: self.path.to_owned(), reason: format!("it has no {stem}") }
        })?;
        self.file.seek(SeekFrom::Start(member.offset_bytes)).map_err(failed)?;
        let source = BufReader::with_capacity(1 << 18, &self.file).take(member.size_bytes);
        let form = match member.name[stem.len()..].trim_start_matches('.') {
            "" => return Ok(Box::new(source)),
            "xz" => Compression::Xz,
            "zst" => Compression::Zstd,
            "gz" => Compression::Gzip,
            "lzma" => Compression::Lzma,
            "bz2" => Compression::Bzip2,
            ending => {
                let reason = format!("its {stem} is in an unknown form, {ending}");
                return Err(DebError::NotADeb { path: self.path.to_owned(), reason });
            }
        };
        compression::whole(form, source)
            .map_err(|source| DebError::Unpack { path: self.path.to_owned(), source })
    }

    pub(super) fn control(&mut self) -> Result<DebControl, DebError> {
        let path = self.path;
        let mut text = String::new();
        for_each_entry(path, self.member("control.tar")?, |name, entry| {
            if let Entry::File { data, .. } = entry
                && name == Path::new("control")
            {
                data.take(CONTROL_MAX_BYTES)
                    .read_to_string(&mut text)
                    .map_err(|source| DebError::Damaged { path: path.to_owned(), source })?;
            }
            Ok(())
        })?;
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
                .map(|value| value.trim().to_owned())
                .ok_or_else(|| DebError::NotADeb {
                    path: path.to_owned(),
                    reason: format!("its control file has no {key}"),
                })
        };
        Ok(DebControl { package: field("Package")?, version: field("Version")? })
    }
}

impl Member {
    fn is(&self, stem: &str) -> bool {
        self.name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// A member's name and size from its header.
fn parse_header(header: &[u8; AR_HEADER_BYTES]) -> Option<(String, u64)> {
    if &header[58..] != b"`\n" {
        return None;
    }
    let name = std::str::from_utf8(&header[..16]).ok()?.trim_end().trim_end_matches('/');
    let size_bytes = std::str::from_utf8(&header[48..58]).ok()?.trim_end().parse().ok()?;
    Some((name.to_owned(), size_bytes))
}

/// An entry of a tar stream.
pub(super) enum Entry<'a> {
    /// A plain file.
    File {
        /// Whether its owner may execute it.
        executable: bool,
        data: &'a mut dyn Read,
    },
    /// A symbolic link, and its target as it is written.
    Link(PathBuf),
}

/// Calls `each` with every plain file and symbolic link of a tar stream, its path checked to
/// be within.
///
/// The raw entries are read, so that long names are ours to bound; `dpkg` too knows only GNU's
/// way of writing them.
pub(super) fn for_each_entry(
    path: &Path,
    source: Box<dyn Read + '_>,
    mut each: impl FnMut(&Path, Entry<'_>) -> Result<(), DebError>,
) -> Result<(), DebError> {
    let damaged = |source| DebError::Damaged { path: path.to_owned(), source };
    let too_large = |limit: String| DebError::TooLarge { path: path.to_owned(), limit };
    let mut archive = tar::Archive::new(source.take(UNPACKED_MAX_BYTES));
    let mut long_name: Option<Vec<u8>> = None;
    for (count, entry) in archive.entries().map_err(damaged)?.raw(true).enumerate() {
        if count > ENTRIES_MAX {
            return Err(too_large(format!("{ENTRIES_MAX} files")));
        }
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            if entry.size() > PATH_MAX_BYTES {
                return Err(too_large(format!("{PATH_MAX_BYTES} bytes in a path")));
            }
            let mut name = Vec::new();
            entry.read_to_end(&mut name).map_err(damaged)?;
            name.retain(|&byte| byte != 0);
            long_name = Some(name);
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let link = match kind.is_symlink() {
            true => entry.link_name().map_err(damaged)?.map(Cow::into_owned),
            false => None,
        };
        if !kind.is_file() && link.is_none() {
            continue;
        }
        let name = inner_path(&name).ok_or_else(|| DebError::Escapes {
            path: path.to_owned(),
            name: String::from_utf8_lossy(&name).into_owned(),
        })?;
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o100 != 0);
        let entry = match link {
            Some(target) => Entry::Link(target),
            None => Entry::File { executable, data: &mut entry },
        };
        each(&name, entry)?;
    }
    // After the archive's end only padding may follow: an archive after it, as `cat` of two packages' members makes it,
    // is read by some and not by others.
    let mut rest = archive.into_inner();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rest.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) if buffer[..n].iter().all(|byte| *byte == 0) => {}
            Ok(_) => {
                let why = "something follows the end of its archive";
                return Err(damaged(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(damaged(e)),
        }
    }
}

/// The path without `./`; nothing if it leads out of the folder that it starts in.
fn inner_path(name: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut inner = PathBuf::new();
    for part in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => inner.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(inner)
}
