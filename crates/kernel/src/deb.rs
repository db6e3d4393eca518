//! Extracts the kernel of a Debian package: the image, its configuration and its modules, and
//! nothing else.
//!
//! The package is not trusted. It is read as a stream with limits on the unpacked size; only
//! regular files are written, under names that this module chose or checked, in a directory that it
//! created. Links, devices and owners are never restored.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use crate::compression::{self, Compression};

mod error;

pub use error::DebError;

/// Maximum unpacked size of a package.
const UNPACKED_MAX_BYTES: u64 = 8 << 30;
/// Maximum number of files and directories in a package.
const ENTRIES_MAX: usize = 200_000;
/// Maximum length of a path, as of Linux.
const PATH_MAX_BYTES: u64 = 4096;
/// Maximum size of the control file.
const CONTROL_MAX_BYTES: u64 = 1 << 20;

const AR_MAGIC: &[u8; 8] = b"!<arch>\n";
const AR_HEADER_BYTES: usize = 60;

/// The control data of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebControl {
    /// Its name.
    pub package: String,
    /// Its version.
    pub version: String,
}

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedKernel {
    /// Its package.
    pub control: DebControl,
    /// The release, from the image's name.
    pub release: String,
    /// The image.
    pub vmlinuz: PathBuf,
    /// The configuration, if the package has one.
    pub config: Option<PathBuf>,
    /// The module directory, if the package has any.
    pub modules: Option<PathBuf>,
}

/// Read the package's name and version.
pub fn control(path: &Path) -> Result<DebControl, DebError> {
    Deb::open(path)?.control()
}

/// Unpack the kernel in the package to `vmlinuz`, `config` and `modules/` below `into`, which is
/// created and must not contain those yet.
pub fn unpack(
    path: &Path,
    into: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<UnpackedKernel, DebError> {
    let mut deb = Deb::open(path)?;
    let control = deb.control()?;
    fs::create_dir_all(into).map_err(|source| DebError::Write {
        path: into.to_owned(),
        source,
    })?;
    let mut unpacker = Unpacker {
        path,
        into,
        package: &control.package,
        written_bytes: 0,
        release: None,
        image: false,
        config: false,
        modules: false,
    };
    for_each_entry(path, deb.member("data.tar")?, |name, entry| {
        if cancelled() {
            return Err(DebError::Cancelled);
        }
        unpacker.entry(name, entry)
    })?;
    let Unpacker {
        release,
        image,
        config,
        modules,
        ..
    } = unpacker;
    match release {
        Some(release) if image => Ok(UnpackedKernel {
            release,
            vmlinuz: into.join("vmlinuz"),
            config: config.then(|| into.join("config")),
            modules: modules.then(|| into.join("modules")),
            control,
        }),
        _ => Err(DebError::NoKernel {
            package: control.package,
        }),
    }
}

/// An open package: an `ar` archive whose members are in a fixed order, `deb(5)`.
struct Deb<'a> {
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
    fn open(path: &'a Path) -> Result<Self, DebError> {
        let failed = |source| DebError::Read {
            path: path.to_owned(),
            source,
        };
        let not_a_deb = |reason: &str| DebError::NotADeb {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(not_a_deb("it is not a regular file"));
        }
        let have_bytes = metadata.len();
        let mut magic = [0; AR_MAGIC.len()];
        if file.read_exact(&mut magic).is_err() || &magic != AR_MAGIC {
            return Err(not_a_deb("it does not begin with `!<arch>`"));
        }

        let mut members = Vec::new();
        let mut at = AR_MAGIC.len() as u64;
        while at < have_bytes {
            let truncated = |need_bytes| DebError::Truncated {
                path: path.to_owned(),
                have_bytes,
                need_bytes,
            };
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
            members.push(Member {
                name,
                offset_bytes,
                size_bytes,
            });
            at = end + size_bytes % 2;
        }
        // A package truncated between two members may look complete.
        for stem in ["control.tar", "data.tar"] {
            if !members.iter().any(|member| member.is(stem)) {
                let need_bytes = at + AR_HEADER_BYTES as u64;
                return Err(DebError::Truncated {
                    path: path.to_owned(),
                    have_bytes,
                    need_bytes,
                });
            }
        }
        Ok(Self {
            path,
            file,
            members,
        })
    }

    /// The unpacked bytes of a member, whatever its suffix.
    fn member(&mut self, stem: &str) -> Result<Box<dyn Read + '_>, DebError> {
        let failed = |source| DebError::Read {
            path: self.path.to_owned(),
            source,
        };
        let member = self
            .members
            .iter()
            .find(|member| member.is(stem))
            .ok_or_else(|| DebError::NotADeb {
                path: self.path.to_owned(),
                reason: format!("it has no {stem}"),
            })?;
        self.file
            .seek(SeekFrom::Start(member.offset_bytes))
            .map_err(failed)?;
        let source = BufReader::with_capacity(1 << 18, &self.file).take(member.size_bytes);
        let form = match member.name[stem.len()..].trim_start_matches('.') {
            "" => return Ok(Box::new(source)),
            "xz" => Compression::Xz,
            "zst" => Compression::Zstd,
            "gz" => Compression::Gzip,
            "lzma" => Compression::Lzma,
            "bz2" => Compression::Bzip2,
            ending => {
                let reason = format!("its {stem} has an unknown suffix, {ending}");
                return Err(DebError::NotADeb {
                    path: self.path.to_owned(),
                    reason,
                });
            }
        };
        compression::whole(form, source).map_err(|source| DebError::Unpack {
            path: self.path.to_owned(),
            source,
        })
    }

    fn control(&mut self) -> Result<DebControl, DebError> {
        let path = self.path;
        let mut text = String::new();
        for_each_entry(path, self.member("control.tar")?, |name, entry| {
            if name == Path::new("control") {
                entry
                    .take(CONTROL_MAX_BYTES)
                    .read_to_string(&mut text)
                    .map_err(|source| DebError::Damaged {
                        path: path.to_owned(),
                        source,
                    })?;
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
        Ok(DebControl {
            package: field("Package")?,
            version: field("Version")?,
        })
    }
}

impl Member {
    fn is(&self, stem: &str) -> bool {
        self.name
            .strip_prefix(stem)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// A member's name and size from its header.
fn parse_header(header: &[u8; AR_HEADER_BYTES]) -> Option<(String, u64)> {
    if &header[58..] != b"`\n" {
        return None;
    }
    let name = std::str::from_utf8(&header[..16])
        .ok()?
        .trim_end()
        .trim_end_matches('/');
    let size_bytes = std::str::from_utf8(&header[48..58])
        .ok()?
        .trim_end()
        .parse()
        .ok()?;
    Some((name.to_owned(), size_bytes))
}

/// Calls `each` with every regular file of a tar stream, after checking that its path is inside.
///
/// Raw entries are read, to limit long names; `dpkg` also only supports GNU's format of them.
fn for_each_entry(
    path: &Path,
    source: Box<dyn Read + '_>,
    mut each: impl FnMut(&Path, &mut dyn Read) -> Result<(), DebError>,
) -> Result<(), DebError> {
    let damaged = |source| DebError::Damaged {
        path: path.to_owned(),
        source,
    };
    let too_large = |limit: String| DebError::TooLarge {
        path: path.to_owned(),
        limit,
    };
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
        let name = long_name
            .take()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        if kind.is_file() {
            let name = inner_path(&name).ok_or_else(|| DebError::Escapes {
                path: path.to_owned(),
                name: String::from_utf8_lossy(&name).into_owned(),
            })?;
            each(&name, &mut entry)?;
        }
    }
    // Only padding may follow the archive's end: a second archive, as made by `cat` of two
    // packages' members, is read by some programs and not by others.
    let mut rest = archive.into_inner();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rest.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) if buffer[..n].iter().all(|byte| *byte == 0) => {}
            Ok(_) => {
                let why = "trailing data after the end of its archive";
                return Err(damaged(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(damaged(e)),
        }
    }
}

/// The path without `./`; none if it is outside of its directory.
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

/// The kind of a path in a package.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Image(&'a str),
    Config(&'a str),
    Module(&'a str, &'a Path),
}

impl<'a> Part<'a> {
    fn of(name: &'a Path) -> Option<Self> {
        let name = name.strip_prefix("usr").unwrap_or(name);
        if let Ok(boot) = name.strip_prefix("boot") {
            let file = boot.to_str()?;
            return match file.split_once('-')? {
                ("vmlinuz" | "vmlinux" | "bzImage", release) => Some(Self::Image(release)),
                ("config", release) => Some(Self::Config(release)),
                _ => None,
            };
        }
        let inner = name.strip_prefix("lib/modules").ok()?;
        let mut parts = inner.components();
        let release = parts.next()?.as_os_str().to_str()?;
        let rest = parts.as_path();
        match rest.to_str()? {
            "vmlinuz" => Some(Self::Image(release)),
            "config" => Some(Self::Config(release)),
            _ => Some(Self::Module(release, rest)),
        }
    }

    fn release(&self) -> &'a str {
        match self {
            Self::Image(release) | Self::Config(release) | Self::Module(release, _) => release,
        }
    }
}

/// Writes the files of a package.
struct Unpacker<'a> {
    path: &'a Path,
    into: &'a Path,
    package: &'a str,
    written_bytes: u64,
    release: Option<String>,
    image: bool,
    config: bool,
    modules: bool,
}

impl Unpacker<'_> {
    fn entry(&mut self, name: &Path, entry: &mut dyn Read) -> Result<(), DebError> {
        let Some(part) = Part::of(name) else {
            return Ok(());
        };
        let release = part.release();
        match &self.release {
            None => self.release = Some(release.to_owned()),
            Some(first) if first == release => {}
            Some(first) => {
                return Err(DebError::SeveralKernels {
                    package: self.package.to_owned(),
                    releases: [first.clone(), release.to_owned()],
                });
            }
        }
        let (done, target) = match part {
            Part::Image(_) => (&mut self.image, self.into.join("vmlinuz")),
            Part::Config(_) => (&mut self.config, self.into.join("config")),
            Part::Module(_, rest) => (&mut self.modules, self.into.join("modules").join(rest)),
        };
        *done = true;
        self.write(&target, entry)
    }

    fn write(&mut self, target: &Path, entry: &mut dyn Read) -> Result<(), DebError> {
        let failed = |source| DebError::Write {
            path: target.to_owned(),
            source,
        };
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        // Never write to an existing file or link.
        let mut file = File::create_new(target).map_err(failed)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = entry
                .read(&mut buffer)
                .map_err(|source| DebError::Damaged {
                    path: self.path.to_owned(),
                    source,
                })?;
            if count == 0 {
                return Ok(());
            }
            self.written_bytes += count as u64;
            if self.written_bytes > UNPACKED_MAX_BYTES {
                let limit = format!("{UNPACKED_MAX_BYTES} bytes");
                return Err(DebError::TooLarge {
                    path: self.path.to_owned(),
                    limit,
                });
            }
            io::Write::write_all(&mut file, &buffer[..count]).map_err(failed)?;
        }
    }
}

#[cfg(test)]
mod tests;
