//! Files with the debug information of others.

use std::fs;
use std::path::{Path, PathBuf};

use super::{build_id, debug_link, debug_link_checksum};

/// Where debug files are.
const DEBUG_FILES: &str = "/usr/lib/debug";
/// Larger files are not read.
const MAX_DEBUG_BYTES: u64 = 1 << 30;

/// The debug file of an ELF file: by build ID, or by its debug link, in the directories where
/// debuggers look for it; `path` is where the file itself is, if it is somewhere.
pub fn debug_file(path: Option<&Path>, file: &[u8]) -> Option<Vec<u8>> {
    bounded(&debug_path(path, build_id(file), || debug_link(file))?)
}

/// The path of the debug file, for this build ID and debug link.
pub(super) fn debug_path(
    path: Option<&Path>,
    id: Option<String>,
    link: impl FnOnce() -> Option<(String, u32)>,
) -> Option<PathBuf> {
    let by_id = id.and_then(|id| {
        let (folder, rest) = id.split_at_checked(2)?;
        let folder = Path::new(DEBUG_FILES).join(".build-id").join(folder);
        Some(folder.join(format!("{rest}.debug"))).filter(|found| is_bounded(found))
    });
    by_id.or_else(|| {
        let (name, checksum) = link()?;
        let path = fs::canonicalize(path?).ok()?;
        let folder = path.parent()?;
        let global = Path::new(DEBUG_FILES).join(folder.strip_prefix("/").ok()?);
        [folder.to_path_buf(), folder.join(".debug"), global]
            .iter()
            .map(|folder| folder.join(&name))
            // Another build has other addresses.
            .find(|found| bounded(found).is_some_and(|b| debug_link_checksum(&b) == checksum))
    })
}

/// Whether it is a file that is read.
fn is_bounded(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_DEBUG_BYTES)
}

/// The contents of a file, unless it is too large or missing.
fn bounded(path: &Path) -> Option<Vec<u8>> {
    is_bounded(path).then(|| fs::read(path).ok()).flatten()
}
