//! Modules built against the kernels of the catalogue, from the source of that kernel.
//!
//! For a kernel out of a Debian package these are the packages of its headers and its source, in
//! the same version or, where the archive has moved on, in the nearest that their dependencies allow; for
//! one out of a build directory, that directory. Only what the module needs is unpacked, into the user's
//! cache, by any user:
//!
//! ```text
//! sources/HASH/headers/usr/src/...   the packages of headers, and kbuild's programs
//!              source.tar.xz         the kernel's source, as packaged
//!              source.list           where each of its files is in it
//!              trees/...             what of it was needed so far, by folders of modules
//!              packages              the packages whose version is not the kernel's
//!              built/...             modules that experiments had built
//! ```
//!
//! The module is first built unmodified, and compared with the distribution's own: differences between that build and
//! one with changes are then due to the changes.

mod change;
mod compiler;
mod error;
mod headers;
mod kept;
mod make;
mod needs;
mod place;
mod program;
mod sandbox;
mod source;
mod toolchain;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use netplumb_kernel::code::{self, Code, Difference};

pub use change::Change;
pub use error::ModuleBuildError;
pub use kept::KeptModule;

use crate::vm::kernels::{KernelEntry, Progress};
use make::Maker;
use place::Place;
use source::Source;
use toolchain::Toolchain;

/// The largest file that is read to see whether it is a module.
const MODULE_MAX_BYTES: u64 = 1 << 30;

/// A module to build, and its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleRequest {
    /// The module, as `lsmod` shows it or as its file is called.
    pub name: String,
    /// Changes to its source, in this order.
    pub changes: Vec<Change>,
}

/// A module that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltModule {
    /// The module's name.
    pub name: String,
    /// Its ELF file, without debugging information.
    pub elf: Vec<u8>,
    /// The size of its code.
    pub text_bytes: u64,
    /// The difference between the unmodified build and the kernel's own module.
    pub unmodified: Difference,
    /// The size of the code of the kernel's own.
    pub own_text_bytes: u64,
    /// The result of the changes; none without changes.
    pub changed: Option<Difference>,
    /// The files of source that the changes changed.
    pub files: Vec<String>,
    /// Where the module's source is kept, unmodified.
    pub source: PathBuf,
    /// The compiler, as it names itself.
    pub compiler: String,
    /// The compiler of the kernel, if its configuration names it.
    pub compiler_of_kernel: Option<String>,
    /// Packages of the source and the headers whose version is not the kernel's, with their versions.
    pub packages: Vec<String>,
    /// The remedy for using the kernel's compiler, if it exists.
    pub remedy: Option<&'static str>,
    /// Whether it has type information (BTF), without which `functions` can't time it.
    pub has_btf: bool,
}

/// The steps of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildProgress {
    /// A package is fetched, or unpacked.
    Source(Progress),
    /// A build has begun: unmodified, or with the changes.
    Building {
        /// Whether it is the one with the changes.
        changed: bool,
    },
}

/// Builds modules.
#[derive(Debug, Clone)]
pub struct ModuleBuilder {
    folder: PathBuf,
    cancel: Arc<AtomicBool>,
}

impl ModuleBuilder {
    /// One that keeps sources below a cache folder such as `~/.cache/netplumb`, and ends soon
    /// after the flag is set.
    pub fn new(cache: &Path, cancel: Arc<AtomicBool>) -> Self {
        ModuleBuilder { folder: cache.join("sources"), cancel }
    }

    /// Build a module of a kernel.
    ///
    /// # Errors
    /// The kernel has no such module or no source that is known, a program is missing, a change
    /// does not apply, or the build fails.
    pub fn build(
        &self,
        kernel: &KernelEntry,
        request: &ModuleRequest,
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<BuiltModule, ModuleBuildError> {
        // Before anything is fetched.
        own_module(kernel, &request.name)?;
        make::check_path(&self.folder)?;
        let toolchain = self.toolchain(kernel, progress)?;
        self.build_by(&toolchain, kernel, request, false, progress)
    }

    fn toolchain(
        &self,
        kernel: &KernelEntry,
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<Toolchain, ModuleBuildError> {
        Toolchain::find(kernel, &self.folder, &self.cancel, &mut |at| {
            progress(BuildProgress::Source(at));
        })
    }

    fn build_by(
        &self,
        toolchain: &Toolchain,
        kernel: &KernelEntry,
        request: &ModuleRequest,
        is_of_experiment: bool,
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<BuiltModule, ModuleBuildError> {
        let (place, own) = own_module(kernel, &request.name)?;
        change::check(&request.changes)?;
        toolchain::check_changes(&request.changes)?;

        let mut source = Source::prepare(&self.folder, kernel, &self.cancel, &mut |at| {
            progress(BuildProgress::Source(at));
        })?;
        let folder = source.folder(&place, &self.cancel, &mut |at| {
            progress(BuildProgress::Source(at));
        })?;
        let maker =
            Maker::new(&source, &place, &folder, kernel, toolchain, is_of_experiment, &self.cancel);
        progress(BuildProgress::Building { changed: false });
        let plain = maker.make(&[], None)?;
        let plain_code = code_of(&plain.elf, "the unmodified build")?;
        let unmodified = code::compare(&own, &plain_code);
        let (built, changed, code) = if request.changes.is_empty() {
            (plain, None, plain_code)
        } else {
            progress(BuildProgress::Building { changed: true });
            let built = maker.make(&request.changes, plain.sources.as_ref())?;
            let code = code_of(&built.elf, "the changed build")?;
            (built, Some(code::compare(&plain_code, &code)), code)
        };
        Ok(BuiltModule {
            name: place.name.clone(),
            elf: built.elf,
            text_bytes: code.text_bytes,
            own_text_bytes: own.text_bytes,
            unmodified,
            changed,
            files: built.files,
            source: folder.join(&place.folder),
            compiler: toolchain.compiler.clone(),
            compiler_of_kernel: toolchain::compiler_of(kernel),
            packages: source.others.clone(),
            remedy: toolchain.remedy,
            has_btf: built.has_btf,
        })
    }

    /// Fetch the source and headers of a kernel, unless they are there.
    ///
    /// # Errors
    /// Its source is not known, or can't be fetched.
    pub fn fetch(
        &self,
        kernel: &KernelEntry,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ModuleBuildError> {
        Source::prepare(&self.folder, kernel, &self.cancel, progress).map(|_| ())
    }

    /// The text of some source files of a kernel, by their paths in its source: only existing files of at most
    /// `most_bytes`. Nothing if its source was not fetched.
    ///
    /// # Errors
    /// The archive of its source can't be read.
    pub fn texts(
        &self,
        kernel: &KernelEntry,
        files: &BTreeSet<PathBuf>,
        most_bytes: u64,
    ) -> Result<BTreeMap<PathBuf, String>, ModuleBuildError> {
        match Source::kept(&self.folder, kernel) {
            Some(source) if !files.is_empty() => source.texts(files, most_bytes, &self.cancel),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// Forget the sources of a kernel; returns how many bytes were freed.
    ///
    /// # Errors
    /// They can't be removed.
    pub fn forget(&self, hash: &str) -> Result<u64, ModuleBuildError> {
        source::forget(&self.folder.join(hash))
    }

    /// Remove the compilers that none of these kernels was built with; returns how many bytes were freed.
    ///
    /// # Errors
    /// They can't be removed.
    pub fn forget_compilers(&self, kernels: &[KernelEntry]) -> Result<u64, ModuleBuildError> {
        let wanted: BTreeSet<String> = kernels.iter().filter_map(toolchain::kept_for).collect();
        compiler::forget(&self.folder, &wanted)
    }
}

/// Where a module of a kernel is, and the code of the kernel's own.
fn own_module(kernel: &KernelEntry, name: &str) -> Result<(Place, Code), ModuleBuildError> {
    let tree = kernel.module_tree()?;
    let name = name.trim_end_matches(".ko");
    if tree.is_builtin(name) {
        return Err(ModuleBuildError::BuiltIn {
            name: name.to_owned(),
            release: kernel.release.clone(),
        });
    }
    let own = tree.require(name)?;
    let place = place::place_of(&own.path, tree.root())?;
    let code = code_of(&own.read()?, "the kernel's own module")?;
    Ok((place, code))
}

fn code_of(elf: &[u8], what: &str) -> Result<Code, ModuleBuildError> {
    code::code(elf).map_err(|reason| ModuleBuildError::Unreadable { what: what.to_owned(), reason })
}

/// Check that a module can be written to a file: that it is a new one, or a module.
///
/// # Errors
/// Something else is there.
pub fn check_target(target: &Path) -> Result<(), ModuleBuildError> {
    let occupied = || ModuleBuildError::Occupied { path: target.to_owned() };
    let metadata = match fs::metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(error::read_failed(target))?,
    };
    if !metadata.is_file() || metadata.len() > MODULE_MAX_BYTES {
        return Err(occupied());
    }
    let there = fs::read(target).map_err(error::read_failed(target))?;
    match there.is_empty() || code::code(&there).is_ok() {
        true => Ok(()),
        false => Err(occupied()),
    }
}

/// Write a module to a file that [`check_target`] allows.
///
/// # Errors
/// Something else is there, or it can't be written.
pub fn write_module(target: &Path, elf: &[u8]) -> Result<(), ModuleBuildError> {
    check_target(target)?;
    let failed = error::write_failed(target);
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // The temporary file's error has a name that means nothing to a user.
    let made = tempfile::NamedTempFile::new_in(folder);
    let mut file = made.map_err(|error| match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => failed(error.kind().into()),
        Ok(_) => failed(io::ErrorKind::NotADirectory.into()),
        Err(reason) => failed(reason),
    })?;
    file.write_all(elf).map_err(&failed)?;
    let mode = Permissions::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(&failed)?;
    file.persist(target).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests;
