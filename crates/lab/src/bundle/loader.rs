//! The search path of the dynamic loader: the cache that `ldconfig` made, the directories that files name, and
//! built-in ones.

use std::path::{Path, PathBuf};

use netplumb_model::arch::Arch;

/// The path of the cache, on the host and in the guest.
pub(super) const CACHE: &str = "/etc/ld.so.cache";
/// Built-in directories of glibc's loaders in various distributions, tried after Debian's.
const GLIBC_FOLDERS: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const MUSL_DEFAULT: &str = "/lib:/usr/local/lib:/usr/lib";

const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;

/// FLAG_ELF_LIBC6, with FLAG_X8664_LIB64 or FLAG_AARCH64_LIB64 (glibc, sysdeps/generic/ldconfig.h).
fn libc6(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0x0303,
        Arch::Arm64 => 0x0a03,
    }
}

/// musl's loader has no cache, but may have a list of directories.
pub(super) fn musl_folders(arch: Arch) -> String {
    format!("/etc/ld-musl-{}.path", arch.uname())
}

/// The kind of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loader {
    Glibc,
    Musl,
}

impl Loader {
    /// From its name.
    pub(super) fn from_interpreter(interpreter: &str) -> Loader {
        match interpreter.rsplit('/').next() {
            Some(name) if name.starts_with("ld-musl") => Loader::Musl,
            _ => Loader::Glibc,
        }
    }

    /// The directories searched last.
    pub(super) fn folders(self, arch: Arch, musl_path_file: Option<&str>) -> Vec<PathBuf> {
        match self {
            Loader::Glibc => {
                let debian = ["/lib", "/usr/lib"].map(|lib| Path::new(lib).join(arch.gnu()));
                let others = GLIBC_FOLDERS.iter().map(PathBuf::from);
                debian.into_iter().chain(others).collect()
            }
            Loader::Musl => musl_path_file
                .unwrap_or(MUSL_DEFAULT)
                .split([':', '\n'])
                .filter(|folder| folder.starts_with('/'))
                .map(PathBuf::from)
                .collect(),
        }
    }
}

/// The remedy for a missing library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Libraries {
    /// An error: the program does not run without it.
    Needed,
    /// Note it: it may never be loaded.
    Noted,
}

/// A library, or the loader itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibraryPath {
    /// Where the guest's loader finds it.
    pub(super) at: PathBuf,
    /// Where this machine has it: in another directory, if it is from a cross compiler's packages.
    pub(super) from: PathBuf,
}

impl LibraryPath {
    pub(super) fn at(path: PathBuf) -> LibraryPath {
        LibraryPath { at: path.clone(), from: path }
    }
}

/// The search directories that dependent files add: each file's DT_RPATH, nearest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    pub(super) rpaths: Vec<PathBuf>,
    pub(super) runpaths: Vec<PathBuf>,
}

/// Where a cross compiler's packages have what a guest of another architecture has below `/`: libc6-arm64-cross
/// has `/lib/ld-linux-aarch64.so.1` below `/usr/aarch64-linux-gnu`.
pub(super) fn cross_root(arch: Arch) -> Option<PathBuf> {
    (arch != Arch::OWN).then(|| Path::new("/usr").join(arch.gnu()))
}

/// All (name, path) entries of the cache for programs of an architecture, in order: a name may occur several
/// times, for CPUs with more features. Empty if the cache is damaged.
pub(super) fn cache_entries(bytes: &[u8], arch: Arch) -> Vec<(String, PathBuf)> {
    // Up to glibc 2.31 the old format came first, the new one after it.
    let start = if bytes.starts_with(OLD_MAGIC) {
        bytes.windows(CACHE_MAGIC.len()).position(|w| w == CACHE_MAGIC)
    } else {
        bytes.starts_with(CACHE_MAGIC).then_some(0)
    };
    let Some(table) = start.map(|at| &bytes[at..]) else {
        return Vec::new();
    };
    let word = |at: usize| -> Option<u32> {
        let four = table.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let string = |at: u32| -> Option<&str> {
        let rest = table.get(at as usize..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    let count = word(CACHE_MAGIC.len()).unwrap_or(0) as usize;
    let fits = table.len().saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
    (0..count.min(fits))
        .filter_map(|n| {
            let at = HEADER_BYTES + n * ENTRY_BYTES;
            if word(at)? != libc6(arch) {
                return None;
            }
            let name = string(word(at + 4)?)?;
            let path = string(word(at + 8)?)?;
            Some((name.to_string(), PathBuf::from(path)))
        })
        .collect()
}

/// A directory of DT_RPATH or DT_RUNPATH, for a file in directory `origin`.
pub(super) fn expand(folder: &str, origin: &Path, arch: Arch) -> PathBuf {
    let origin = origin.to_string_lossy();
    let lib = format!("lib/{}", arch.gnu());
    let expanded = folder
        .replace("${ORIGIN}", &origin)
        .replace("$ORIGIN", &origin)
        .replace("${LIB}", &lib)
        .replace("$LIB", &lib)
        .replace("${PLATFORM}", arch.uname())
        .replace("$PLATFORM", arch.uname());
    // An empty one is the current directory, which does not exist in the guest.
    PathBuf::from(if expanded.is_empty() { "/".into() } else { expanded })
}

#[cfg(test)]
pub(super) fn make_cache(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut strings = Vec::new();
    let base = HEADER_BYTES + entries.len() * ENTRY_BYTES;
    let mut table = CACHE_MAGIC.to_vec();
    table.extend((entries.len() as u32).to_le_bytes());
    table.resize(HEADER_BYTES, 0);
    for (name, path) in entries {
        table.extend(libc6(Arch::X86_64).to_le_bytes());
        for text in [name, path] {
            table.extend(((base + strings.len()) as u32).to_le_bytes());
            strings.extend(text.as_bytes());
            strings.push(0);
        }
        table.extend([0; 12]);
    }
    table.extend(strings);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a cache is read, alone and after one of the old format, and that a damaged one is
    /// empty.
    #[test]
    fn caches() {
        let one = make_cache(&[("liba.so.1", "/opt/liba.so.1"), ("libb.so", "/x/libb.so")]);
        let entries = cache_entries(&one, Arch::X86_64);
        assert_eq!(entries[0], ("liba.so.1".into(), "/opt/liba.so.1".into()));
        assert_eq!(entries.len(), 2);
        let mut both = b"ld.so-1.7.0\0\0\0\0\0".to_vec();
        both.extend(&one);
        assert_eq!(cache_entries(&both, Arch::X86_64), entries);
        for cut in 0..one.len() {
            assert!(cache_entries(&one[..cut], Arch::X86_64).len() <= 2);
        }
        assert!(cache_entries(b"", Arch::X86_64).is_empty());
        let mut wild = one.clone();
        wild[CACHE_MAGIC.len()..CACHE_MAGIC.len() + 4].fill(0xff);
        wild[HEADER_BYTES + 4..HEADER_BYTES + 8].fill(0xff);
        // With a count that is too large, all valid entries are read.
        assert_eq!(cache_entries(&wild, Arch::X86_64)[0].0, "libb.so");
    }

    /// Check the expansion of the loader's variables.
    #[test]
    fn folders_are_expanded() {
        let of = |folder| expand(folder, Path::new("/opt/x/bin"), Arch::X86_64);
        assert_eq!(of("$ORIGIN/../lib"), Path::new("/opt/x/bin/../lib"));
        assert_eq!(of("${ORIGIN}"), Path::new("/opt/x/bin"));
        assert_eq!(of("/usr/$PLATFORM"), Path::new("/usr/x86_64"));
    }

    /// Check that loaders are distinguished, and that musl's list of directories is used.
    #[test]
    fn loaders() {
        assert_eq!(Loader::from_interpreter("/lib64/ld-linux-x86-64.so.2"), Loader::Glibc);
        assert_eq!(Loader::from_interpreter("/lib/ld-musl-x86_64.so.1"), Loader::Musl);
        assert_eq!(
            Loader::Musl.folders(Arch::X86_64, Some("/a\n/b:c\n")),
            [Path::new("/a"), Path::new("/b")]
        );
        assert_eq!(Loader::Musl.folders(Arch::X86_64, None)[0], Path::new("/lib"));
    }
}
