//! Files for a booted guest: an archive in QEMU's firmware configuration device (fw_cfg), read by
//! DMA.
//!
//! Data from a port arrives at a time that depends on the host, and each batch costs an interrupt;
//! fw_cfg copies a page into the guest's memory when the guest requests it, and has no other
//! effect. So reading files, also tens of megabytes, is the same in every run.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, Reader};

use super::dma::{Dma, PAGE_BYTES};
use super::guest::load_module;
use crate::bundle::{Bundle, BundleError, Kind};

/// Name of the item.
const ITEM: &str = "opt/netplumb/files";

const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const FILE: u32 = 0o100_000;

/// QEMU's arguments for an archive in descriptor `fd`.
pub fn qemu_args(fd: i32) -> Vec<String> {
    args_of(ITEM, fd)
}

/// The same for an item of another name.
pub(super) fn args_of(item: &str, fd: i32) -> Vec<String> {
    vec!["-fw_cfg".into(), format!("name={item},file=/proc/self/fd/{fd}")]
}

/// An archive of a bundle, and of generated files: path, permissions, contents.
///
/// # Errors
/// A file can no longer be read.
pub fn archive(bundle: &Bundle, made: &[(String, u32, Vec<u8>)]) -> Result<Vec<u8>, BundleError> {
    let mut archive = Vec::with_capacity(bundle.size_bytes() as usize + (1 << 20));
    for (path, entry) in bundle.entries() {
        let (kind, bytes) = match &entry.kind {
            Kind::Folder => (FOLDER, Vec::new()),
            Kind::Link(to) => (LINK, to.to_string_lossy().into_owned().into_bytes()),
            Kind::File { .. } => (FILE, entry.read()?),
        };
        let modified = entry.modified_unix_s.clamp(0, i64::from(u32::MAX)) as u32;
        add(&mut archive, path, kind | entry.mode, modified, &bytes).map_err(bundle_error(path))?;
    }
    for (path, mode, bytes) in made {
        let path = Path::new(path);
        add(&mut archive, path, FILE | mode, 0, bytes).map_err(bundle_error(path))?;
    }
    cpio::newc::trailer(&mut archive).map_err(bundle_error(Path::new("/")))?;
    Ok(archive)
}

/// The error of a file.
fn bundle_error(path: &Path) -> impl FnOnce(io::Error) -> BundleError + '_ {
    move |source| BundleError::Unreadable { path: path.to_path_buf(), source }
}

fn add(
    archive: &mut Vec<u8>,
    path: &Path,
    mode: u32,
    modified: u32,
    bytes: &[u8],
) -> io::Result<()> {
    let builder = Builder::new(&path.to_string_lossy()).mode(mode).mtime(modified).nlink(1);
    let mut writer = builder.write(archive, bytes.len() as u32);
    writer.write_all(bytes)?;
    writer.finish().map(drop)
}

/// In the guest: read the archive and unpack it below `root`, if there is one. Then load modules, each
/// a path with its parameters after a space; those that don't load are ignored.
///
/// # Errors
/// The archive is missing, or there is not enough memory.
pub fn unpack(root: &Path, modules: &[String]) -> io::Result<()> {
    let Some(mut item) = BulkItem::open(ITEM)? else {
        return Err(io::Error::other("no files came with the guest"));
    };
    unpack_from(&mut item, root)?;
    for module in modules {
        let (path, parameters) = module.split_once(' ').unwrap_or((module, ""));
        let path = root.join(path.trim_start_matches('/'));
        // Some are for missing hardware, or built in.
        let _ = load_module(&path, parameters);
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

fn unpack_from(mut source: &mut dyn Read, root: &Path) -> io::Result<()> {
    // Modification times of directories change when files are added: set them last.
    let mut folders: Vec<(PathBuf, u32)> = Vec::new();
    loop {
        let mut reader = Reader::new(source)?;
        let entry = reader.entry();
        if entry.is_trailer() {
            break;
        }
        let path = root.join(entry.name().trim_start_matches('/'));
        let (mode, modified) = (entry.mode(), entry.mtime());
        let with_path = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        match mode & TYPE {
            FOLDER => {
                if !path.is_dir() {
                    fs::create_dir_all(&path).map_err(with_path)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777))
                        .map_err(with_path)?;
                }
                folders.push((path, modified));
            }
            LINK => {
                let mut target = String::new();
                reader.read_to_string(&mut target).map_err(with_path)?;
                std::os::unix::fs::symlink(&target, &path)
                    .or_else(|e| match e.kind() {
                        io::ErrorKind::AlreadyExists => Ok(()),
                        _ => Err(e),
                    })
                    .map_err(with_path)?;
            }
            _ => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder).map_err(with_path)?;
                }
                let mut file = File::create(&path).map_err(with_path)?;
                io::copy(&mut reader, &mut file).map_err(with_path)?;
                file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))
                    .map_err(with_path)?;
                touch(&file, modified).map_err(with_path)?;
            }
        }
        source = reader.finish()?;
    }
    for (path, modified) in folders {
        if let Ok(folder) = File::open(&path) {
            let _ = touch(&folder, modified);
        }
    }
    Ok(())
}

fn touch(file: &File, modified: u32) -> io::Result<()> {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(modified.into());
    file.set_modified(at)
}

/// The item, read from its beginning.
pub(super) struct BulkItem {
    dma: Dma,
    left: usize,
    /// Offset of unread data in the current page.
    at: usize,
    filled: usize,
    /// Its key, until it has been selected.
    select: Option<u16>,
}

impl BulkItem {
    /// The item of this name, if there is one.
    pub(super) fn open(name: &str) -> io::Result<Option<BulkItem>> {
        let mut dma = Dma::open()?;
        let found = dma.find(name)?;
        Ok(found.map(|(key, size)| BulkItem {
            dma,
            left: size,
            at: 0,
            filled: 0,
            select: Some(key),
        }))
    }
}

impl Read for BulkItem {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.filled {
            let bytes = self.left.min(PAGE_BYTES);
            if bytes == 0 {
                return Ok(0);
            }
            self.dma.fetch(self.select.take(), bytes)?;
            (self.at, self.filled) = (0, bytes);
            self.left -= bytes;
        }
        let n = buffer.len().min(self.filled - self.at);
        buffer[..n].copy_from_slice(&self.dma.data()[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Host;

    /// Check that files, directories and links are unpacked as they were, with their times, and
    /// that a truncated archive is an error.
    #[test]
    fn there_and_back() {
        let from = tempfile::tempdir().unwrap();
        let name = |path: &str| from.path().join(path);
        fs::create_dir_all(name("deep/er")).unwrap();
        fs::write(name("deep/er/file"), vec![7; 10_000]).unwrap();
        fs::set_permissions(name("deep/er/file"), fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("er/file", name("deep/link")).unwrap();
        let file = File::options().write(true).open(name("deep/er/file")).unwrap();
        touch(&file, 1_234_567_890).unwrap();

        let mut bundle = Bundle::new(Host::here().unwrap());
        bundle.add_with(&name("deep"), Some(Path::new("/srv/deep"))).unwrap();
        let made = [("/etc/hosts".to_string(), 0o644, b"::1 self\n".to_vec())];
        let archive = archive(&bundle, &made).unwrap();
        let root = tempfile::tempdir().unwrap();
        unpack_from(&mut &archive[..], root.path()).unwrap();
        let of = |path: &str| root.path().join(path);
        assert_eq!(fs::read(of("srv/deep/link")).unwrap(), vec![7; 10_000]);
        assert_eq!(fs::read(of("etc/hosts")).unwrap(), b"::1 self\n");
        let found = fs::metadata(of("srv/deep/er/file")).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o750);
        let modified = found.modified().unwrap();
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1_234_567_890);
        let cut = unpack_from(&mut &archive[..archive.len() / 2], root.path());
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
