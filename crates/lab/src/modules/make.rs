//! One build of a module: a copy of its folder, and `make`.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use netplumb_kernel::config::{ConfigValue, KernelConfig};

use super::change::{self, Change, Work};
use super::error::{ModuleBuildError, read_failed, write_failed};
use super::source::Source;
use crate::child::{self, Finished};
use crate::vm::kernels::KernelEntry;
use crate::vm::kernels::stage::Stage;

/// The compiler that a kernel was built with.
const COMPILER: &str = "CC_VERSION_TEXT";
/// The compiler of LLVM.
const CLANG: &str = "clang";
/// Variables of the environment that builds see.
const ENVIRONMENT: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
/// What make takes for its own in paths.
const NOT_IN_PATHS: [char; 7] = [' ', ':', '\t', '\n', '$', '#', '%'];
/// Lines of a compiler's output that an error shows.
const LINES_MAX: usize = 6;
/// What gives modules their type information.
const BTF_PROGRAM: &str = "pahole";

/// Where a module is in the kernel's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name, as the kernel shows it.
    pub(super) name: String,
    /// Its file, without `.ko`: as the name, but for `-`.
    pub(super) stem: String,
    /// Its folder: `drivers/net/usb`.
    pub(super) folder: PathBuf,
}

/// Where a module's source is, by the place of its file among the kernel's.
pub(super) fn place_of(file: &Path, root: &Path) -> Result<Place, ModuleBuildError> {
    let not_in_tree = || ModuleBuildError::NotInTree {
        path: file.to_owned(),
    };
    let inner = file.strip_prefix(root).map_err(|_| not_in_tree())?;
    let inner = inner.strip_prefix("kernel").map_err(|_| not_in_tree())?;
    let name = inner.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| Some(name.split_once(".ko")?.0));
    let (Some(stem), Some(folder)) = (stem, inner.parent()) else {
        return Err(not_in_tree());
    };
    Ok(Place {
        name: stem.replace('-', "_"),
        stem: stem.to_owned(),
        folder: folder.to_owned(),
    })
}

/// Check that make can work below a folder.
pub(super) fn check_path(store: &Path) -> Result<(), ModuleBuildError> {
    fs::create_dir_all(store).map_err(write_failed(store))?;
    let path = fs::canonicalize(store).map_err(read_failed(store))?;
    match path.to_string_lossy().contains(NOT_IN_PATHS) {
        true => Err(ModuleBuildError::PathForMake { path }),
        false => Ok(()),
    }
}

/// Check that the programs are there that a build needs; the compiler is returned.
pub(super) fn check_programs(
    changes: &[Change],
    kernel: &KernelEntry,
) -> Result<String, ModuleBuildError> {
    let of_changes = changes.iter().map(|change| match change {
        Change::Patch(_) => ("patch", "patch"),
        Change::Cocci(_) => ("spatch", "coccinelle"),
    });
    let compiler = program_of(&compiler_of(kernel).unwrap_or_default());
    for (program, package) in [("make", "make"), ("strip", "binutils")]
        .into_iter()
        .chain([(compiler.as_str(), compiler.as_str())])
        .chain(of_changes)
    {
        need(program, package)?;
    }
    Ok(compiler)
}

/// The compiler that a kernel was built with, as its configuration has it.
pub(super) fn compiler_of(kernel: &KernelEntry) -> Option<String> {
    let text = fs::read_to_string(kernel.config()?).ok()?;
    match KernelConfig::parse(&text).ok()?.get(COMPILER)? {
        ConfigValue::Value(text) => Some(text.clone()),
        _ => None,
    }
}

/// The program of a compiler that calls itself so: `gcc-12 (Debian 12.2.0-14) 12.2.0`,
/// `x86_64-linux-gnu-gcc-12 ...`, `Debian clang version 16.0.6`.
fn program_of(compiler: &str) -> String {
    if compiler.contains(CLANG) {
        return CLANG.to_owned();
    }
    let program = compiler.split_whitespace().next().unwrap_or("gcc");
    let program = program
        .rsplit_once("-gnu-")
        .map_or(program, |(_, name)| name);
    program.to_owned()
}

fn need(program: &str, package: &str) -> Result<(), ModuleBuildError> {
    match is_installed(program) {
        true => Ok(()),
        false => Err(ModuleBuildError::NoProgram {
            program: program.to_owned(),
            package: package.to_owned(),
        }),
    }
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What a build came to.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) elf: Vec<u8>,
    pub(super) has_btf: bool,
    /// The files that the changes changed.
    pub(super) files: Vec<String>,
}

/// Builds a module, with changes and without.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    source: &'a Source,
    place: &'a Place,
    /// What holds the module's folder.
    folder: &'a Path,
    kernel: &'a KernelEntry,
    cancel: &'a AtomicBool,
    compiler: String,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        source: &'a Source,
        place: &'a Place,
        folder: &'a Path,
        kernel: &'a KernelEntry,
        program: &str,
        cancel: &'a AtomicBool,
    ) -> Result<Self, ModuleBuildError> {
        let mut command = child::command(program);
        command.arg("--version");
        let finished = run(program, command, cancel)?;
        let compiler = finished
            .output
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        Ok(Maker {
            source,
            place,
            folder,
            kernel,
            cancel,
            compiler,
        })
    }

    pub(super) fn compiler(&self) -> &str {
        &self.compiler
    }

    /// Build it with these changes.
    pub(super) fn make(&self, changes: &[Change]) -> Result<Made, ModuleBuildError> {
        let stage = Stage::new(&self.source.store)?;
        let top = stage.entry();
        let path = fs::canonicalize(&self.source.store).map_err(read_failed(&self.source.store))?;
        let top = path.join(top.strip_prefix(&self.source.store).unwrap_or(&top));
        let work = top.join("source");
        let of_module = work.join(&self.place.folder);
        copy(&self.folder.join(&self.place.folder), &of_module)?;
        self.source.copy_headers(self.place, self.folder, &work)?;
        let mut headers = Headers::new(self.source, &top.join("kbuild"))?;
        let files = change::apply(
            changes,
            &Work {
                top: &work,
                place: self.place,
                release: &self.kernel.release,
                cancel: self.cancel,
            },
            &mut headers,
        )?;
        let made = work.join(&self.place.folder);
        let target = format!("{}.ko", self.place.stem);
        // The names of the folders here would be in the module.
        let prefix = format!("{}/=", work.display());
        let mut command = child::command("make");
        command
            .arg("-C")
            .arg(&headers.build)
            .arg(format!(
                "-j{}",
                thread::available_parallelism().map_or(1, usize::from)
            ))
            .arg(format!("M={}", made.display()))
            .arg(format!(
                "KCFLAGS=-fmacro-prefix-map={prefix} -fdebug-prefix-map={prefix}"
            ))
            .arg(&target);
        if self.compiler.contains(CLANG) {
            command.arg("LLVM=1");
        }
        // Of the environment, kbuild takes ARCH, CROSS_COMPILE, KBUILD_OUTPUT and others.
        command.env_clear().env("LC_ALL", "C");
        for name in ENVIRONMENT {
            command.envs(env::var_os(name).map(|value| (name, value)));
        }
        let finished = run("make", command, self.cancel)?;
        let module = made.join(&target);
        if !finished.status.success() || !module.is_file() {
            let state = if changes.is_empty() {
                "unmodified"
            } else {
                "changed"
            };
            return Err(ModuleBuildError::Build {
                what: format!("the {state} source of {}", self.place.name),
                output: what_failed(&finished.output, &work),
            });
        }
        self.add_btf(&module)?;
        let mut command = child::command("strip");
        command.arg("--strip-debug").arg(&module);
        run_well("strip", command, self.cancel)?;
        let elf = fs::read(&module).map_err(read_failed(&module))?;
        Ok(Made {
            has_btf: elf.windows(5).any(|name| name == b".BTF\0"),
            elf,
            files,
        })
    }
}

impl Maker<'_> {
    /// Give a module type information (BTF), from its debugging information, if the program for
    /// it is there. The kernel's own build does it as well, with programs that packages of
    /// headers lack.
    fn add_btf(&self, module: &Path) -> Result<(), ModuleBuildError> {
        if !is_installed(BTF_PROGRAM) {
            return Ok(());
        }
        let mut command = child::command(BTF_PROGRAM);
        command
            .args(["-J", "--btf_gen_floats", "--btf_base"])
            .arg(self.kernel.vmlinux())
            .arg(module)
            .env("LLVM_OBJCOPY", "objcopy");
        // A module without it is as good otherwise, and it is said which has none.
        run(BTF_PROGRAM, command, self.cancel).map(drop)
    }
}

/// The folder that make runs in: the kernel's headers as they are, or with some replaced.
#[derive(Debug)]
pub(super) struct Headers {
    /// Where make runs.
    build: PathBuf,
    /// The folder of headers that do not depend on the configuration; none for a build
    /// directory.
    common: Option<PathBuf>,
    /// Where a copy of it goes, if there has to be one.
    copy: PathBuf,
}

impl Headers {
    /// Packages of headers expect to be in `/usr/src`: make a folder whose Makefile names the
    /// place where they are.
    fn new(source: &Source, into: &Path) -> Result<Headers, ModuleBuildError> {
        let copy = into.with_file_name("common");
        let Some(root) = &source.root else {
            return Ok(Headers {
                build: source.headers.clone(),
                common: None,
                copy,
            });
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
        let headers = Headers {
            build: into.to_owned(),
            common,
            copy,
        };
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

    /// A file among the headers that a change may write to, if there is one of that name: from
    /// then on the build uses a copy of all of them.
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

/// Copy a folder, without what a build has left in it.
fn copy(from: &Path, into: &Path) -> Result<(), ModuleBuildError> {
    fs::create_dir_all(into).map_err(write_failed(into))?;
    for entry in fs::read_dir(from).map_err(read_failed(from))? {
        let entry = entry.map_err(read_failed(from))?;
        let (path, target) = (entry.path(), into.join(entry.file_name()));
        let kind = entry.file_type().map_err(read_failed(&path))?;
        if !is_source(&path) {
            continue;
        }
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_file() {
            fs::copy(&path, &target).map_err(write_failed(&target))?;
        }
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let made = path.extension().is_some_and(|ending| {
        ["o", "ko", "mod", "a", "order", "symvers"]
            .iter()
            .any(|made| *made == ending)
    });
    !hidden && !made
}

/// Run a program, whatever it returns.
pub(super) fn run(
    program: &str,
    command: std::process::Command,
    cancel: &AtomicBool,
) -> Result<Finished, ModuleBuildError> {
    match child::run(command, cancel) {
        Ok(Some(finished)) => Ok(finished),
        Ok(None) => Err(ModuleBuildError::Interrupted),
        Err(error) => Err(ModuleBuildError::Program {
            program: program.to_owned(),
            output: error.to_string(),
        }),
    }
}

/// Run a program that has to succeed.
pub(super) fn run_well(
    program: &str,
    command: std::process::Command,
    cancel: &AtomicBool,
) -> Result<Finished, ModuleBuildError> {
    let finished = run(program, command, cancel)?;
    if finished.status.success() {
        return Ok(finished);
    }
    Err(ModuleBuildError::Program {
        program: program.to_owned(),
        output: finished
            .output
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned(),
    })
}

/// The lines of a build's output that say why it failed, with paths as in the source.
fn what_failed(output: &str, work: &Path) -> String {
    let prefix = format!("{}/", work.display());
    let is_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        (line.contains("error") || line.contains("not found")) && !line.starts_with("make")
    };
    let mut lines: Vec<String> = output
        .lines()
        .filter(is_error)
        .take(LINES_MAX)
        .map(|line| format!("  {}", line.replace(&prefix, "")))
        .collect();
    if lines.is_empty() {
        lines.extend(output.lines().last().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that compilers are known by what they call themselves.
    #[test]
    fn compilers() {
        for (text, program) in [
            ("gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc-12"),
            (
                "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0",
                "gcc-12",
            ),
            ("Debian clang version 16.0.6 (15~deb12u1)", "clang"),
            ("", "gcc"),
        ] {
            assert_eq!(program_of(text), program, "{text}");
        }
    }

    /// Check that a module's folder is that of its file, and that one which did not come with
    /// the kernel has none.
    #[test]
    fn places() {
        let root = Path::new("/k/modules");
        let place = |file: &str| place_of(&root.join(file), root);
        let found = place("kernel/sound/core/snd-pcm.ko.xz").unwrap();
        assert_eq!(
            (found.name.as_str(), found.stem.as_str()),
            ("snd_pcm", "snd-pcm")
        );
        assert_eq!(found.folder, Path::new("sound/core"));
        for odd in ["updates/x.ko", "kernel/drivers/x.o"] {
            assert!(
                matches!(place(odd), Err(ModuleBuildError::NotInTree { .. })),
                "{odd}"
            );
        }
    }

    /// Check that of a build's output its errors are shown, as seen from the source.
    #[test]
    fn errors() {
        let output = "  CC [M]  /w/drivers/a.o\n/w/drivers/a.c:3:1: error: unknown type 'x'\n\
                      make[1]: *** [a.o] Error 1\n";
        assert_eq!(
            what_failed(output, Path::new("/w")),
            "  drivers/a.c:3:1: error: unknown type 'x'"
        );
        assert_eq!(what_failed("odd\n", Path::new("/w")), "  odd");
    }
}
