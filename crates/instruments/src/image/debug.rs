//! Files with the debug information of others.

use std::fs;
use std::path::Path;

use super::{build_id, debug_link, debug_link_checksum};

/// Where debug files are.
const DEBUG_FILES: &str = "/usr/lib/debug";
/// Larger files are not read.
const MAX_DEBUG_BYTES: u64 = 1 << 30;

/// The debug file of an ELF file: by build ID, or by its debug link, in the directories where
/// debuggers look for it; `path` is where the file itself is, if it is somewhere.
pub fn debug_file(path: Option<&Path>, file: &[u8]) -> Option<Vec<u8>> {
    let by_id = build_id(file).and_then(|id| {
        let (folder, rest) = id.split_at_checked(2)?;
        let folder = Path::new(DEBUG_FILES).join(".build-id").join(folder);
        bounded(&folder.join(format!("{rest}.debug")))
    });
    by_id.or_else(|| {
        let (name, checksum) = debug_link(file)?;
        let path = fs::canonicalize(path?).ok()?;
        let folder = path.parent()?;
        let global = Path::new(DEBUG_FILES).join(folder.strip_prefix("/").ok()?);
        [folder.to_path_buf(), folder.join(".debug"), global]
            .iter()
            .filter_map(|folder| bounded(&folder.join(&name)))
            // The addresses of another build differ.
            .find(|found| debug_link_checksum(found) == checksum)
    })
}

/// The contents of a file, unless it is too large or missing.
fn bounded(path: &Path) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= MAX_DEBUG_BYTES)
        .then(|| fs::read(path).ok())
        .flatten()
}
