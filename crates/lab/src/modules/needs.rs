//! The parts of the source that a module's folder needs: by its Makefile, and by the includes of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::error::{ModuleBuildError, read_failed};

/// Where `define_trace.h` is, from which a header of tracepoints is included again.
pub(super) const TRACING: &str = "include/trace";
/// Folders that packages of headers have.
const HEADERS: [&str; 2] = ["include", "arch"];
/// Variables of Makefiles may be of others.
const DEPTH_MAX: usize = 8;

/// The Makefile of a folder, with its lines joined; empty if it does not exist.
pub(super) fn makefile(folder: &Path) -> String {
    let mut files = ["Kbuild", "Makefile"].map(|name| folder.join(name)).into_iter();
    let text = files.find_map(|path| fs::read(path).ok()).unwrap_or_default();
    String::from_utf8_lossy(&text).replace("\\\n", " ")
}

/// Whether a Makefile has more for a folder than that it has modules of its own (`obj-m += NAME/`).
pub(super) fn mentions(makefile: &str, folder: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mentions = |line: &str| {
        line.match_indices(folder).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + folder.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    };
    let mut lines = makefile.lines().map(without_comment);
    lines.any(|line| !line.trim_start().starts_with("obj-") && mentions(line))
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// The folders that a Makefile has the compiler search (`-I`), from the top of the source, without those
/// that packages of headers have; the module's own folder is the first.
pub(super) fn searched(makefile: &str, folder: &Path) -> Vec<PathBuf> {
    let mut variables = BTreeMap::new();
    for line in makefile.lines().map(without_comment) {
        if let Some((name, value)) = line.split_once('=') {
            let name = name.trim_end_matches([':', '?', '+']).trim();
            variables.entry(name).or_insert_with(|| value.trim());
        }
    }
    let mut folders = vec![folder.to_owned()];
    for line in makefile.lines().map(without_comment) {
        for (at, _) in line.match_indices("-I") {
            let Some(word) = line[at + 2..].split_whitespace().next() else {
                continue;
            };
            let found = expand(word, &variables, 0).and_then(|word| from_top(&word, folder));
            if let Some(found) = found
                && !folders.contains(&found)
            {
                folders.push(found);
            }
        }
    }
    folders
}

/// A word with a Makefile's own variables expanded; none if it has others.
fn expand(word: &str, variables: &BTreeMap<&str, &str>, depth: usize) -> Option<String> {
    const KEPT: [&str; 3] = ["srctree", "src", "obj"];
    let Some((before, rest)) = word.split_once("$(") else {
        return Some(word.to_owned());
    };
    let (name, after) = rest.split_once(')')?;
    if depth > DEPTH_MAX {
        return None;
    }
    let value = match KEPT.contains(&name) {
        true => format!("\0{name}\0"),
        false => (*variables.get(name)?).to_owned(),
    };
    expand(&format!("{before}{value}{after}"), variables, depth + 1)
}

/// A path of a Makefile, as [`expand`] leaves it, from the top of the source.
fn from_top(word: &str, folder: &Path) -> Option<PathBuf> {
    let inner = word.strip_prefix("\0srctree\0/").unwrap_or(word);
    let of_folder = ["\0src\0", "\0obj\0"].iter().find_map(|name| inner.strip_prefix(name));
    let path = match of_folder {
        Some(rest) => resolve(folder, Path::new(rest.trim_start_matches('/')), Path::new(""))?,
        None if inner.contains('\0') => return None,
        None => resolve(Path::new(""), Path::new(inner), Path::new(""))?,
    };
    let is_known = HEADERS.iter().any(|known| path.starts_with(known));
    (!is_known && path != Path::new("")).then_some(path)
}

/// Headers that files below a folder of the source include by a path that leads out of their
/// own folder, and that are not there.
pub(super) fn missing_headers(
    top: &Path,
    folder: &Path,
) -> Result<BTreeSet<PathBuf>, ModuleBuildError> {
    let mut missing = BTreeSet::new();
    let mut folders = vec![top.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.map_err(read_failed(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_c = path.extension().is_some_and(|ending| ending == "c" || ending == "h");
            if !is_c {
                continue;
            }
            let text = fs::read(&path).map_err(read_failed(&path))?;
            let text = String::from_utf8_lossy(&text);
            let included = text.lines().filter_map(included);
            let included = included.filter_map(|name| resolve(&folder, Path::new(name), top));
            for wanted in included.chain(traced(&text)) {
                if !top.join(&wanted).exists() {
                    missing.insert(wanted);
                }
            }
        }
    }
    Ok(missing)
}

/// The path in `#include "../x.h"`, if it leads out of the folder.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    let (path, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    path.contains("../").then_some(path)
}

/// The tracepoint header that a file has included again, if it is elsewhere: `TRACE_INCLUDE_PATH` is a path from
/// [`TRACING`].
fn traced(text: &str) -> Option<PathBuf> {
    let defined = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| {
            let rest = line.trim_start().strip_prefix('#')?.trim_start();
            let rest = rest.strip_prefix("define")?.trim_start().strip_prefix(name)?;
            rest.split_whitespace().next()
        })
    };
    let path = defined("TRACE_INCLUDE_PATH ").filter(|path| path.contains("../"))?;
    let file = defined("TRACE_INCLUDE_FILE ")?;
    let path = Path::new(path).join(format!("{file}.h"));
    resolve(Path::new(TRACING), &path, Path::new(""))
}

/// Where a path leads from a folder, seen from the top; none if it leads out of that.
fn resolve(folder: &Path, path: &Path, top: &Path) -> Option<PathBuf> {
    let mut at = folder.strip_prefix(top).ok()?.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(part) => at.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !at.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which folders below its own a module needs, and that it needs none of other modules.
    #[test]
    fn folders_below() {
        let text = "obj-$(CONFIG_USB) += usb/\nxfs-y += $(addprefix libxfs/, xfs_ag.o)\n\
                    mlx-y := main.o en/rx.o # lib/\n";
        for (folder, needed) in [("usb", false), ("libxfs", true), ("en", true), ("lib", false)] {
            assert_eq!(mentions(text, folder), needed, "{folder}");
        }
        assert!(!mentions(text, "xfs"));
    }

    /// Check the search folders for the compiler, in every form that Makefiles give them.
    #[test]
    fn searched_folders() {
        let of = |text: &str| {
            let found = searched(text, Path::new("drivers/net/wifi/mvm"));
            let found = found.into_iter().skip(1);
            found.map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("ccflags-y += -I $(srctree)/$(src)/../\n"), ["drivers/net/wifi"]);
        assert_eq!(
            of("TOP = $(srctree)/$(src)/..\nccflags-y := -I$(TOP)/a -I$(src)/b -I$(obj)\n"),
            ["drivers/net/wifi/a", "drivers/net/wifi/mvm/b"]
        );
        assert_eq!(of("ccflags-y += -I$(srctree)/net/mac80211 -Iinclude/x"), ["net/mac80211"]);
        assert!(of("ccflags-y += -I$(UNKNOWN)/x -I$(srctree)/../..\n# -Inet\n").is_empty());
        assert!(of("A = $(B)\nB = $(A)\nccflags-y += -I$(A)\n").is_empty());
    }

    /// Check that the header which tracepoints include again is found.
    #[test]
    fn tracepoints() {
        let text =
            "#define TRACE_INCLUDE_PATH ../../net/wifi\n#define TRACE_INCLUDE_FILE w_trace\n";
        assert_eq!(traced(text), Some(PathBuf::from("net/wifi/w_trace.h")));
        assert_eq!(traced("#define TRACE_INCLUDE_PATH .\n#define TRACE_INCLUDE_FILE x\n"), None);
        assert_eq!(traced("int x;\n"), None);
    }

    /// Check which includes lead out of a folder, and to where.
    #[test]
    fn includes() {
        assert_eq!(included("#include \"../core.h\""), Some("../core.h"));
        assert_eq!(included(" # include \"a/../b.h\" /* c */"), Some("a/../b.h"));
        for line in ["#include <../x.h>", "#include \"x.h\"", "int x;"] {
            assert_eq!(included(line), None, "{line}");
        }
        let top = Path::new("/t");
        let to = |path: &str| resolve(Path::new("/t/a/b"), Path::new(path), top);
        assert_eq!(to("../c.h"), Some(PathBuf::from("a/c.h")));
        assert_eq!(to("../../../etc/passwd"), None);
        assert_eq!(to("/etc/passwd"), None);
    }

    /// Check that a header which is included from elsewhere is missed until it is there.
    #[test]
    fn missing() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("a/b/c/x.c"), "#include \"../../core.h\"\n#include \"../y.h\"\n")
            .unwrap();
        let wanted = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let missing = || missing_headers(top, Path::new("a/b")).unwrap();
        assert_eq!(missing(), wanted(&["a/b/y.h", "a/core.h"]));
        fs::write(top.join("a/core.h"), "").unwrap();
        fs::write(top.join("a/b/y.h"), "").unwrap();
        assert!(missing().is_empty());
    }
}
