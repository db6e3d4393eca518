//! Modules of an experiment or a command line: files, found relative to a directory, and ones that
//! are built for it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use netplumb_lab::modules::ModuleBuilder;
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_model::experiment::{ArmKernel, Experiment, Module, files as files_of, of_files};
use netplumb_report::printable;

use crate::exit::WrongKey;
use crate::files;
use crate::signals;
use crate::steps::{Steps, building};

/// Who wrote the names of modules and patches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Names<'a> {
    /// The author of an experiment, which has this directory.
    InFile(&'a Path),
    /// Whoever runs the command.
    Typed,
}

impl Names<'_> {
    fn folder(&self) -> &Path {
        match self {
            Names::InFile(folder) => folder,
            Names::Typed => Path::new(""),
        }
    }
}

/// Let the experiment name its modules by their absolute paths; modules from source are built,
/// unless they were before.
///
/// # Errors
/// There is no such file, or a module can't be built.
pub(crate) fn prepare(
    experiment: &mut Experiment,
    names: Names<'_>,
    cache: &Path,
) -> anyhow::Result<()> {
    for (kernels, modules) in experiment.modules_mut() {
        let builder = Builder { kernels: &kernels, cache };
        let mut files = Vec::new();
        for module in files_of(modules) {
            let file = match Module::parse(module) {
                Module::File(file) => existing(names.folder(), file)?,
                Module::Built { name, patches } => builder.build(names, name, &patches)?,
            };
            files.push(file.display().to_string());
        }
        *modules = of_files(&files).map_err(|why| WrongKey::usage("module", why))?;
    }
    Ok(())
}

/// The absolute path of a file.
fn existing(folder: &Path, file: &str) -> anyhow::Result<PathBuf> {
    let file = std::path::absolute(folder.join(file))?;
    let there = std::fs::metadata(&file)
        .with_context(|| format!("{}: can't read the module", file.display()))?;
    match there.is_file() {
        true => Ok(file),
        false => {
            let why = format!("{}: not a regular file, which a module has to be", file.display());
            Err(WrongKey::usage("module", why).into())
        }
    }
}

/// The path of a patch: below the experiment's directory, for its text goes into the module.
fn existing_patch(names: Names<'_>, patch: &str) -> anyhow::Result<PathBuf> {
    let found = match names {
        Names::InFile(folder) => files::below(folder, patch),
        Names::Typed => Path::new(patch).canonicalize().map(Some),
    };
    let found =
        found.with_context(|| format!("{}: can't read the patch", printable(patch, 200)))?;
    found.ok_or_else(|| {
        let why = format!(
            "invalid patch `{}`; expected a file below the experiment's directory",
            printable(patch, 200)
        );
        WrongKey::usage("module", why).into()
    })
}

struct Builder<'a> {
    kernels: &'a BTreeSet<ArmKernel>,
    cache: &'a Path,
}

impl Builder<'_> {
    fn build(&self, names: Names<'_>, name: &str, patches: &[&str]) -> anyhow::Result<PathBuf> {
        let [kernel] = &self.kernels.iter().collect::<Vec<_>>()[..] else {
            let why = "a module is built for one kernel; write an [[arm]] for each kernel with its own \
                       `module`, or build the files with `plumb module build`";
            return Err(WrongKey::usage("module", why).into());
        };
        let kernel = KernelStore::new(self.cache).find_for(&kernel.name, kernel.arch)?;
        let patches: Vec<PathBuf> = (patches.iter())
            .map(|patch| existing_patch(names, patch))
            .collect::<anyhow::Result<_>>()?;
        let patches: Vec<&Path> = patches.iter().map(PathBuf::as_path).collect();
        let cancel = signals::watch().context("can't watch for signals")?;
        let mut steps = Steps::new();
        let kept =
            ModuleBuilder::new(self.cache, cancel).kept(&kernel, name, &patches, &mut |progress| {
                building(&mut steps, name, progress)
            });
        steps.clear();
        let kept = kept?;
        if !kept.unmodified_is_the_same {
            eprintln!(
                "plumb: {name}: the unmodified build is not the same code as the kernel's own module; \
                 compare with module = \"{name}\", not with \"\"{}",
                kept.remedy.map_or(String::new(), |remedy| format!("; or {remedy}"))
            );
        }
        Ok(kept.path)
    }
}
