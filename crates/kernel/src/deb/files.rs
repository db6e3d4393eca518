//! Single files of a package.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::DebError;
use super::archive::{Deb, Entry, UNPACKED_MAX_BYTES, for_each_entry};

/// How much was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files, links among them.
    pub files: u64,
    /// Their contents.
    pub bytes: u64,
}

/// Unpacks the files of a package that `wanted` returns true for, below `into`, under the
/// paths that they have in the package. Symbolic links are restored if they are relative and
/// lead to somewhere below `into`.
///
/// # Errors
/// The package is damaged, names files outside of itself, or a file can't be written or is
/// there already.
pub fn files(
    path: &Path,
    into: &Path,
    wanted: &dyn Fn(&Path) -> bool,
    cancelled: &dyn Fn() -> bool,
) -> Result<Unpacked, DebError> {
    let mut deb = Deb::open(path)?;
    let data = deb.member("data.tar")?;
    unpack(path, data, into, wanted, cancelled)
}

fn unpack(
    path: &Path,
    data: Box<dyn Read + '_>,
    into: &Path,
    wanted: &dyn Fn(&Path) -> bool,
    cancelled: &dyn Fn() -> bool,
) -> Result<Unpacked, DebError> {
    let mut done = Unpacked::default();
    // Made last, so that no file is written through one.
    let mut links: Vec<(PathBuf, PathBuf)> = Vec::new();
    for_each_entry(path, data, |name, entry| {
        if cancelled() {
            return Err(DebError::Cancelled);
        }
        if !wanted(name) {
            return Ok(());
        }
        if is_below_link(into, name) {
            return Err(DebError::Escapes {
                path: path.to_owned(),
                name: name.display().to_string(),
            });
        }
        done.files += 1;
        match entry {
            Entry::File { executable, data } => {
                let target = into.join(name);
                done.bytes += write_mode(path, data, &target, done.bytes, executable)?;
            }
            Entry::Link(target) => links.push((name.to_owned(), target)),
        }
        Ok(())
    })?;
    for (name, target) in links {
        if !stays_within(&name, &target) || is_below_link(into, &name) {
            continue;
        }
        let at = into.join(&name);
        let failed = write_failed(&at);
        make_parent(&at)?;
        symlink(&target, &at).map_err(failed)?;
    }
    Ok(done)
}

/// Whether a folder of a path is a symbolic link, such as from a package that was unpacked before.
fn is_below_link(into: &Path, name: &Path) -> bool {
    let mut folders = name.ancestors().skip(1);
    folders.any(|folder| {
        folder != Path::new("")
            && fs::symlink_metadata(into.join(folder)).is_ok_and(|there| there.is_symlink())
    })
}

/// Whether a link at that path leads to somewhere within the folder that the path is in. `..`
/// may only come first: after a name, which may be a link itself, it leads anywhere.
fn stays_within(name: &Path, target: &Path) -> bool {
    let above = target.components().take_while(|part| *part == Component::ParentDir).count();
    let rest = target.components().skip(above);
    above < name.components().count()
        && target.components().next().is_some()
        && rest.into_iter().all(|part| matches!(part, Component::Normal(_)))
}

/// Writes a file of the package `path`, and returns its size; `so_far` bytes have come out of
/// the package before it.
pub(super) fn write(
    path: &Path,
    data: &mut dyn Read,
    target: &Path,
    so_far: u64,
) -> Result<u64, DebError> {
    write_mode(path, data, target, so_far, false)
}

fn write_mode(
    path: &Path,
    data: &mut dyn Read,
    target: &Path,
    so_far: u64,
    executable: bool,
) -> Result<u64, DebError> {
    let failed = write_failed(target);
    make_parent(target)?;
    // Never through a file, or a link, that is there already.
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(if executable { 0o777 } else { 0o666 })
        .open(target)
        .map_err(&failed)?;
    let mut written = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = data
            .read(&mut buffer)
            .map_err(|source| DebError::Damaged { path: path.to_owned(), source })?;
        if count == 0 {
            return Ok(written);
        }
        written += count as u64;
        if so_far + written > UNPACKED_MAX_BYTES {
            return Err(DebError::TooLarge {
                path: path.to_owned(),
                limit: format!("{UNPACKED_MAX_BYTES} bytes"),
            });
        }
        file.write_all(&buffer[..count]).map_err(&failed)?;
    }
}

fn make_parent(target: &Path) -> Result<(), DebError> {
    match target.parent() {
        Some(folder) => fs::create_dir_all(folder).map_err(write_failed(target)),
        None => Ok(()),
    }
}

fn write_failed(target: &Path) -> impl Fn(std::io::Error) -> DebError {
    move |source| DebError::Write { path: target.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that links are followed in mind, from the folder that they are in.
    #[test]
    fn links() {
        let within = |name: &str, target: &str| stays_within(Path::new(name), Path::new(target));
        assert!(within("usr/src/h/scripts", "../../lib/kbuild/scripts"));
        assert!(within("a", "b"));
        assert!(within("a/b", "../c"));
        for (name, target) in
            [("a", "../b"), ("a/b", "../../c"), ("a", "/etc/passwd"), ("a/b", "c/../d"), ("a", "")]
        {
            assert!(!within(name, target), "{name} -> {target}");
        }
    }
}
