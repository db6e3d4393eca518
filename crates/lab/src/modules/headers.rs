//! The headers that a module is built with: the kernel's as they are, or with some replaced.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::error::{ModuleBuildError, read_failed, write_failed};
use super::source::Source;

/// The folder that make runs in: the kernel's headers as they are, or with some replaced.
#[derive(Debug)]
pub(super) struct Headers {
    /// Where make runs.
    pub(super) build: PathBuf,
    /// The folder of headers that do not depend on the configuration; none for a build
    /// directory.
    pub(super) common: Option<PathBuf>,
    /// Where a copy of it goes, if there has to be one.
    copy: PathBuf,
}

impl Headers {
    /// Packages of headers expect to be in `/usr/src`: make a folder whose Makefile names the
    /// place where they are.
    pub(super) fn new(source: &Source, into: &Path) -> Result<Headers, ModuleBuildError> {
        let copy = into.with_file_name("common");
        let Some(root) = &source.root else {
            return Ok(Headers { build: source.headers.clone(), common: None, copy });
        };
        fs::create_dir_all(into).map_err(write_failed(into))?;
        link_all(&source.headers, into, &["Makefile"])?;
        let makefile = source.headers.join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(read_failed(&makefile))?;
        let root = fs::canonicalize(root).map_err(read_failed(root))?;
        let common = text
            .split_whitespace()
            .find_map(|word| word.strip_suffix("/Makefile")?.strip_prefix('/'))
            .map(|path| root.join(path));
        let headers = Headers { build: into.to_owned(), common, copy };
        headers.point_to(headers.common.as_deref())?;
        Ok(headers)
    }

    fn point_to(&self, common: Option<&Path>) -> Result<(), ModuleBuildError> {
        let Some(common) = common else {
            return Ok(());
        };
        let makefile = self.build.join("Makefile");
        let text = format!("include {}/Makefile\n", common.display());
        fs::write(&makefile, text).map_err(write_failed(&makefile))
    }

    /// The tops of the trees that headers are in, as they are.
    pub(super) fn tops(&self) -> Vec<PathBuf> {
        let all = [Some(&self.build), self.common.as_ref()].into_iter().flatten();
        all.filter_map(|top| fs::canonicalize(top).ok()).collect()
    }

    /// A header that a change may write to, if it exists: from then on the build uses a copy of all headers.
    pub(super) fn writable(&mut self, name: &Path) -> Result<Option<PathBuf>, ModuleBuildError> {
        let Some(common) = self.common.clone() else {
            return Ok(None);
        };
        if !name.starts_with("include") || !common.join(name).is_file() {
            return Ok(None);
        }
        if !self.copy.is_dir() {
            link_tree(&common, &self.copy)?;
            self.point_to(Some(&self.copy))?;
        }
        let file = self.copy.join(name);
        let is_link = fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_symlink());
        if is_link {
            fs::remove_file(&file).map_err(write_failed(&file))?;
            fs::copy(common.join(name), &file).map_err(write_failed(&file))?;
        }
        Ok(Some(self.copy.clone()))
    }
}

/// Link all that is in a folder, but for some.
fn link_all(from: &Path, into: &Path, but: &[&str]) -> Result<(), ModuleBuildError> {
    for entry in fs::read_dir(from).map_err(read_failed(from))? {
        let entry = entry.map_err(read_failed(from))?;
        let name = entry.file_name();
        if but.iter().any(|but| *but == name) {
            continue;
        }
        let path = fs::canonicalize(entry.path()).map_err(read_failed(&entry.path()))?;
        symlink(path, into.join(&name)).map_err(write_failed(&into.join(&name)))?;
    }
    Ok(())
}

/// Folders as they are, with links to all files.
fn link_tree(from: &Path, into: &Path) -> Result<(), ModuleBuildError> {
    fs::create_dir_all(into).map_err(write_failed(into))?;
    for entry in fs::read_dir(from).map_err(read_failed(from))? {
        let entry = entry.map_err(read_failed(from))?;
        let (path, target) = (entry.path(), into.join(entry.file_name()));
        if entry.file_type().map_err(read_failed(&path))?.is_dir() {
            link_tree(&path, &target)?;
        } else {
            let path = fs::canonicalize(&path).map_err(read_failed(&path))?;
            symlink(path, &target).map_err(write_failed(&target))?;
        }
    }
    Ok(())
}
