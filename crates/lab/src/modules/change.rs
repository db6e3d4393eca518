//! Changes to a module's source: patches, and semantic patches.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::error::{ModuleBuildError, read_failed, write_failed};
use super::headers::Headers;
use super::place::Place;
use super::sandbox::Sandbox;

/// The largest patch that is read.
const PATCH_MAX_BYTES: u64 = 64 << 20;

/// A change to the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A patch, as `git diff` or `diff -u` writes it.
    Patch(PathBuf),
    /// A semantic patch, for Coccinelle's `spatch`.
    Cocci(PathBuf),
}

/// The changes to a module's source.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// The copy of the source.
    pub(super) top: &'a Path,
    /// The module in it.
    pub(super) place: &'a Place,
    /// The kernel's release.
    pub(super) release: &'a str,
    /// The version of Linux that it is based on, if its package names it.
    pub(super) upstream: Option<&'a str>,
    /// Where the source is kept, unmodified.
    pub(super) source: &'a Path,
    /// A folder beside it that can be read in the sandbox.
    pub(super) beside: &'a Path,
    pub(super) sandbox: &'a Sandbox<'a>,
}

impl Work<'_> {
    /// A copy of a change that can be read in the sandbox.
    fn copy(&self, change: &Path, name: &str) -> Result<PathBuf, ModuleBuildError> {
        let copy = self.beside.join(name);
        fs::write(&copy, bytes_of(change)?).map_err(write_failed(&copy))?;
        self.sandbox.open(&copy)?;
        Ok(copy)
    }
}

/// Check that changes can be read, before anything is built.
pub(super) fn check(changes: &[Change]) -> Result<(), ModuleBuildError> {
    for change in changes {
        match change {
            Change::Patch(path) if names_in(&text_of(path)?).is_empty() => {
                return Err(ModuleBuildError::NotAPatch { path: path.to_owned() });
            }
            Change::Patch(_) => {}
            Change::Cocci(path) => drop(text_of(path)?),
        }
    }
    Ok(())
}

/// Apply changes, in order; the files that they change are returned, as seen from the top of
/// the source.
pub(super) fn apply(
    changes: &[Change],
    work: &Work<'_>,
    headers: &mut Headers,
) -> Result<Vec<String>, ModuleBuildError> {
    let mut changed = BTreeSet::new();
    for change in changes {
        let names = match change {
            Change::Patch(path) => patch(path, work, headers)?,
            Change::Cocci(path) => cocci(path, work)?,
        };
        changed.extend(names.into_iter().map(|name| name.display().to_string()));
    }
    Ok(changed.into_iter().collect())
}

/// Where a patch is to be applied.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// Parts of its names to leave out.
    strip: usize,
    /// The file, as seen from the top of the source.
    file: PathBuf,
}

fn patch(
    path: &Path,
    work: &Work<'_>,
    headers: &mut Headers,
) -> Result<Vec<PathBuf>, ModuleBuildError> {
    let text = text_of(path)?;
    let names = names_in(&text);
    let mut files = Vec::new();
    let mut strip = None;
    for name in &names {
        let elsewhere = || ModuleBuildError::Elsewhere {
            path: path.to_owned(),
            file: name.display().to_string(),
            module: work.place.name.clone(),
            folder: work.place.folder.display().to_string(),
        };
        let target = target(name, &work.place.folder).ok_or_else(elsewhere)?;
        if !target.file.starts_with(&work.place.folder) {
            let common = headers.writable(&target.file)?.ok_or_else(elsewhere)?;
            // Beside the source for the patch to find, and back afterwards.
            let (from, to) = (common.join(&target.file), work.top.join(&target.file));
            work.sandbox.check(&to)?;
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(write_failed(folder))?;
            }
            fs::copy(&from, &to).map_err(write_failed(&to))?;
        }
        if *strip.get_or_insert(target.strip) != target.strip {
            return Err(elsewhere());
        }
        files.push(target.file);
    }
    let strip = strip.unwrap_or(1);
    // Names without folders are in the module's own folder.
    let bare = files
        .iter()
        .zip(&names)
        .any(|(file, name)| name.components().count() < file.components().count() + strip);
    let folder = if bare { work.top.join(&work.place.folder) } else { work.top.to_owned() };
    let mut arguments: Vec<OsString> = [
        // Others can name programs.
        "--unified",
        "--forward",
        "--batch",
        "--no-backup-if-mismatch",
        "--reject-file=-",
        "-d",
    ]
    .map(OsString::from)
    .into();
    arguments.push(folder.into());
    arguments.extend([format!("-p{strip}").into(), "-i".into()]);
    arguments.push(work.copy(path, "change.patch")?.into());
    let finished = work.sandbox.run("patch", &arguments, work.top, &[])?;
    if !finished.status.success() {
        return Err(ModuleBuildError::DoesNotApply {
            path: path.to_owned(),
            release: work.release.to_owned(),
            output: why_not(&finished.output),
            upstream: work.upstream.map(str::to_owned),
            source_folder: work.source.to_owned(),
        });
    }
    for file in &files {
        if let Some(common) = headers.writable(file)? {
            let (from, to) = (work.top.join(file), common.join(file));
            let done = match from.exists() {
                true => fs::write(&to, work.sandbox.read(&from)?),
                // The patch deletes it.
                false => fs::remove_file(&to),
            };
            done.map_err(write_failed(&to))?;
        }
    }
    Ok(files)
}

/// The files that a module is compiled from, as far as an experiment's patches may change them: the sources of its
/// objects and what they include, by kbuild's notes on its unmodified build (`.NAME.o.cmd`). The sources of programs
/// that the build runs (`hostprogs`) are excluded, even if the module includes them, too.
#[derive(Debug)]
pub(super) struct Sources(BTreeSet<PathBuf>);

impl Sources {
    /// The sources of a build in `work` with these headers.
    pub(super) fn from_work(
        work: &Path,
        place: &Place,
        headers: &Headers,
    ) -> Result<Sources, ModuleBuildError> {
        let module = work.join(&place.folder);
        let own = objects_built(&module, place)?;
        let tops = headers.tops();
        let (mut may, mut other) = (BTreeSet::new(), BTreeSet::new());
        let mut folders = vec![module.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(read_failed(&folder))? {
                let path = entry.map_err(read_failed(&folder))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let Some(made) = name.strip_prefix('.').and_then(|name| name.strip_suffix(".cmd"))
                else {
                    continue;
                };
                let text = fs::read(&path).map_err(read_failed(&path))?;
                let text = String::from_utf8_lossy(&text);
                let from = dependencies(&text, work, [&headers.build, &module], &tops);
                // Code that is not compiled for the kernel is for this machine.
                match text.contains("-D__KERNEL__") {
                    true if own.contains(&folder.join(made)) => may.extend(from),
                    true => {}
                    false => other.extend(from),
                }
            }
        }
        Ok(Sources(may.difference(&other).cloned().collect()))
    }

    /// Check that patches changed nothing else in a copy of the source.
    ///
    /// # Errors
    /// They did.
    pub(super) fn check(&self, work: &Work<'_>, headers: &Headers) -> Result<(), ModuleBuildError> {
        let mut folders = vec![work.top.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(read_failed(&folder))? {
                let entry = entry.map_err(read_failed(&folder))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(read_failed(&path))?;
                if kind.is_dir() {
                    folders.push(path);
                    continue;
                }
                let file = path.strip_prefix(work.top).unwrap_or(&path);
                let is_as_before = || {
                    let now = fs::read(&path).ok();
                    let mut tops = [work.source].into_iter().chain(headers.common.as_deref());
                    now.is_some() && tops.any(|top| fs::read(top.join(file)).ok() == now)
                };
                if kind.is_file() && (self.0.contains(file) || is_as_before()) {
                    continue;
                }
                return Err(ModuleBuildError::NotOfModule {
                    file: file.display().to_string(),
                    module: work.place.name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// The objects that a module was made of.
fn objects_built(folder: &Path, place: &Place) -> Result<BTreeSet<PathBuf>, ModuleBuildError> {
    // Their paths, one a line, or all in the first one; from where make ran, or absolute.
    let list = folder.join(format!("{}.mod", place.stem));
    let text = fs::read_to_string(&list).map_err(read_failed(&list))?;
    let objects = text.split_whitespace().filter(|word| word.ends_with(".o"));
    Ok(objects
        .map(|object| {
            let object = Path::new(object);
            let inner = object.ancestors().find(|above| above.ends_with(&place.folder));
            match inner.and_then(|above| object.strip_prefix(above).ok()) {
                Some(below) => folder.join(below),
                None => folder.join(object.file_name().unwrap_or_default()),
            }
        })
        .collect())
}

/// The sources of a target, from fixdep's notes: paths from the top of the source.
fn dependencies(noted: &str, work: &Path, ran_in: [&PathBuf; 2], tops: &[PathBuf]) -> Vec<PathBuf> {
    let words = noted.split_whitespace().map(|word| word.trim_end_matches(['\\', ')']));
    let words =
        words.filter(|word| word.ends_with(".c") || word.ends_with(".h") || word.ends_with(".S"));
    words
        .filter_map(|word| {
            let real =
                (ran_in.iter()).find_map(|folder| fs::canonicalize(folder.join(word)).ok())?;
            let mut tops = [work].into_iter().chain(tops.iter().map(PathBuf::as_path));
            tops.find_map(|top| Some(real.strip_prefix(top).ok()?.to_owned()))
        })
        .collect()
}

/// The text of a patch that changes C files and nothing else: no file that a build runs, no link, no new file, and no
/// change of names.
pub(super) fn of_c_files(path: &Path) -> Result<String, ModuleBuildError> {
    let text = text_of(path)?;
    let is_c = |name: &str| {
        // patch has rules of its own for names with spaces and quotes.
        let name = name.split('\t').next().unwrap_or_default();
        let is_plain = !name.contains(|c: char| c.is_whitespace() || "\"\\".contains(c));
        is_plain && (name.ends_with(".c") || name.ends_with(".h"))
    };
    let other = |line: &&str| {
        // patch reads indented patches, too.
        let header = line.trim_start_matches([' ', '\t', 'X']);
        if header.len() < line.len() {
            let heads = ["--- ", "+++ ", "*** ", "diff ", "Index:", "Prereq:"];
            return heads.iter().any(|head| header.starts_with(head));
        }
        match line.split_once(' ') {
            Some(("+++", "/dev/null")) => false,
            Some(("---" | "+++", name)) => !is_c(name),
            Some(("Index:" | "Prereq:", _)) => true,
            Some(("rename" | "copy", rest)) => rest.starts_with("from ") || rest.starts_with("to "),
            Some(("GIT", rest)) => rest.starts_with("binary"),
            Some(("new" | "old" | "deleted", rest)) => {
                (rest.starts_with("mode ") || rest.starts_with("file mode "))
                    && !rest.ends_with("100644")
            }
            _ => false,
        }
    };
    match text.lines().find(other) {
        Some(line) => Err(ModuleBuildError::NotC {
            path: path.to_owned(),
            line: line.chars().take(80).collect(),
        }),
        None => Ok(text),
    }
}

/// The files that a patch names, as it writes them.
fn names_in(text: &str) -> Vec<PathBuf> {
    let mut names = BTreeSet::new();
    let mut before = None;
    for line in text.lines() {
        let name = |rest: &str| {
            let name = rest.split('\t').next().unwrap_or_default().trim();
            (name != "/dev/null" && !name.is_empty()).then(|| PathBuf::from(name))
        };
        if let Some(rest) = line.strip_prefix("--- ") {
            before = Some(name(rest));
        } else if let (Some(rest), Some(before)) = (line.strip_prefix("+++ "), before.take()) {
            names.extend(name(rest).or(before));
        } else {
            before = None;
        }
    }
    names.into_iter().collect()
}

/// Where a name in a patch leads: `a/drivers/x.c` and `drivers/x.c` from the top of the source,
/// `a/x.c` and `x.c` from the module's folder.
fn target(name: &Path, folder: &Path) -> Option<Target> {
    let is_plain = |part| matches!(part, Component::Normal(_));
    if !name.components().all(is_plain) {
        return None;
    }
    let count = name.components().count();
    let rest = |strip: usize| name.components().skip(strip).collect::<PathBuf>();
    for strip in 0..count {
        let file = rest(strip);
        if file.starts_with(folder) || (file.starts_with("include") && strip <= 1) {
            return Some(Target { strip, file });
        }
    }
    let strip = count.checked_sub(1).filter(|above| *above <= 1)?;
    Some(Target { strip, file: folder.join(rest(strip)) })
}

/// The line with the reason why a patch does not apply, and the file concerned.
fn why_not(output: &str) -> String {
    let mut file = "";
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = name.trim_matches('\'');
        }
        let hunk = line.starts_with("Hunk") && line.contains("FAILED");
        let whole = line.contains("previously applied") || line.contains("can't find file");
        if hunk || whole || line.contains("malformed") {
            let line = line.trim_end_matches("  Skipping patch.").trim_end_matches('.');
            return match file {
                "" => line.to_owned(),
                file => format!("{file}: {line}"),
            };
        }
    }
    output.lines().last().unwrap_or_default().to_owned()
}

fn cocci(path: &Path, work: &Work<'_>) -> Result<Vec<PathBuf>, ModuleBuildError> {
    text_of(path)?;
    let folder = work.top.join(&work.place.folder);
    let files = files_of(&folder, work.place)?;
    let before: Vec<Vec<u8>> = files
        .iter()
        .map(|file| fs::read(folder.join(file)).map_err(read_failed(file)))
        .collect::<Result<_, _>>()?;
    let mut arguments: Vec<OsString> =
        ["--very-quiet", "--in-place", "--no-show-diff", "--sp-file"].map(OsString::from).into();
    arguments.push(work.copy(path, "change.cocci")?.into());
    arguments.extend(files.iter().map(|file| file.into()));
    let finished = work.sandbox.run("spatch", &arguments, &folder, &[])?;
    if !finished.status.success() {
        return Err(ModuleBuildError::Cocci {
            path: path.to_owned(),
            output: refusal(&finished.output),
        });
    }
    let mut changed = Vec::new();
    for (file, before) in files.iter().zip(before) {
        if fs::read(folder.join(file)).map_err(read_failed(file))? != before {
            changed.push(work.place.folder.join(file));
        }
    }
    if changed.is_empty() {
        return Err(ModuleBuildError::MatchesNothing {
            path: path.to_owned(),
            files: files
                .iter()
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    Ok(changed)
}

/// Why spatch failed: line and column of a semantic patch that it can't parse, or its first meaningful line.
fn refusal(output: &str) -> String {
    let said = |line: &&str| {
        let line = line.trim();
        !line.is_empty()
            && !["init_defs_builtins:", "warning:", "HANDLING:", "whole content"]
                .iter()
                .any(|noise| line.starts_with(noise))
    };
    let mut lines = output.lines().filter(said);
    let place = output.lines().find_map(|line| {
        let (_, rest) = line.split_once("File \"")?;
        let (_, place) = rest.split_once("\", ")?;
        let place = place.split(", charpos").next()?;
        Some(place.trim_end_matches(':'))
    });
    let near = output.lines().find_map(|line| {
        let near = line.trim().strip_prefix("around = ")?;
        Some(near.trim_end_matches(','))
    });
    match (place, near) {
        (Some(place), Some(near)) => format!("{place}: syntax error at {near}"),
        (Some(place), None) => format!("{place}: syntax error"),
        _ => match lines.next() {
            // spatch shows its own lexer's tokens behind that.
            Some(line) if line.starts_with("unexpected code before the first rule") => {
                "it has no rule; expected one that begins with `@@`".to_owned()
            }
            Some(line) => line.trim().to_owned(),
            None => "it printed nothing".to_owned(),
        },
    }
}

/// The C files that a module is made of, by its folder's Makefile: `x-y := a.o b.o` or
/// `x-objs`, or `x.c` alone.
fn files_of(folder: &Path, place: &Place) -> Result<Vec<PathBuf>, ModuleBuildError> {
    let alone = PathBuf::from(format!("{}.c", place.stem));
    if folder.join(&alone).is_file() && !folder.join("Makefile").is_file() {
        return Ok(vec![alone]);
    }
    let makefile = folder.join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(read_failed(&makefile))?;
    let mut files = objects(&text, &place.stem)
        .into_iter()
        .map(|object| PathBuf::from(object).with_extension("c"))
        .filter(|file| folder.join(file).is_file())
        .collect::<Vec<_>>();
    if files.is_empty() || folder.join(&alone).is_file() && !files.contains(&alone) {
        files.push(alone);
    }
    Ok(files)
}

/// The objects that a Makefile lists for a module.
fn objects(makefile: &str, stem: &str) -> BTreeSet<String> {
    let joined = makefile.replace("\\\n", " ");
    let mut objects = BTreeSet::new();
    for line in joined.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((name, list)) = line.split_once('=') else {
            continue;
        };
        let name = name.trim().trim_end_matches([':', '+', '?']).trim();
        let of_module = name
            .strip_prefix(stem)
            .is_some_and(|rest| rest == "-objs" || rest == "-y" || rest.starts_with("-$("));
        if of_module {
            let listed = list.split_whitespace().filter(|word| word.ends_with(".o"));
            objects.extend(listed.map(str::to_owned));
        }
    }
    objects
}

fn text_of(path: &Path) -> Result<String, ModuleBuildError> {
    Ok(String::from_utf8_lossy(&bytes_of(path)?).into_owned())
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, ModuleBuildError> {
    let refuse = |reason: String| ModuleBuildError::Change { path: path.to_owned(), reason };
    let metadata = fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !metadata.is_file() {
        return Err(refuse("not a regular file".into()));
    }
    if metadata.len() > PATCH_MAX_BYTES {
        return Err(refuse(format!("larger than {PATCH_MAX_BYTES} bytes")));
    }
    fs::read(path).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests;
