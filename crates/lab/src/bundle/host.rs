//! The machine that files come from, and its paths.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Directories to search after `$PATH`, which rarely has `sbin` for ordinary users.
const MORE_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
/// The kernel's limit on symbolic links in a path.
const MAX_LINKS: usize = 40;

/// The machine that files come from.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its root directory.
    root: PathBuf,
    /// Directories to search for programs.
    pub(super) path: Vec<PathBuf>,
    /// The current directory.
    current: PathBuf,
}

impl Host {
    /// This machine, with the environment of this process.
    ///
    /// # Errors
    /// The current directory was removed.
    pub fn here() -> io::Result<Host> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(Host {
            root: "/".into(),
            path: std::env::split_paths(&path)
                .chain(std::env::split_paths(MORE_PATH))
                .filter(|p| p.is_absolute())
                .collect(),
            current: std::env::current_dir()?,
        })
    }

    /// A root below a directory, as of packages that were unpacked there.
    pub(crate) fn at(root: &Path) -> Host {
        Host {
            root: root.to_path_buf(),
            path: std::env::split_paths(MORE_PATH).collect(),
            current: "/".into(),
        }
    }

    /// The real path of a path without links.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        self.current.join(path)
    }

    /// The target of a path, and every link on the way to it.
    pub(super) fn walk(&self, path: &Path) -> io::Result<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
        let mut links = Vec::new();
        let mut at = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = parts(path);
        rest.reverse();
        while let Some(part) = rest.pop() {
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let real = self.real(&next);
            let found = fs::symlink_metadata(&real)?;
            if !found.is_symlink() {
                at = next;
                continue;
            }
            let target = fs::read_link(&real)?;
            links.push((next, target.clone()));
            if links.len() > MAX_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            if target.is_absolute() {
                at = "/".into();
            }
            rest.extend(parts(&target).into_iter().rev());
        }
        Ok((at, links))
    }

    /// Whether a program is a version manager's shim for another one: a script in a directory
    /// `shims`, as of pyenv, rbenv and others. It asks the manager which program to run, and the
    /// manager is not copied.
    pub(super) fn is_shim(&self, path: &Path) -> bool {
        let in_shims = path.parent().is_some_and(|folder| folder.ends_with("shims"));
        let script = || -> io::Result<bool> {
            let (place, _) = self.walk(path)?;
            let mut head = [0; 2];
            fs::File::open(self.real(&place))?.read_exact(&mut head)?;
            Ok(head == *b"#!")
        };
        in_shims && script().unwrap_or(false)
    }

    pub(super) fn metadata(&self, path: &Path) -> io::Result<(PathBuf, Metadata)> {
        let (place, _) = self.walk(path)?;
        let found = fs::symlink_metadata(self.real(&place))?;
        Ok((place, found))
    }
}

/// The normal components of a path.
pub(super) fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.into()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

pub(super) fn join(folder: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { folder.to_path_buf() } else { folder.join(below) }
}

/// A path without `.` and `..`, without looking at the file system.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in parts(path) {
        if part == Path::new("..") {
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    clean
}
