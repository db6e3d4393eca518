//! One build of a module: a copy of its folder, and `make`.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use netplumb_kernel::btf::Btf;
use netplumb_kernel::image::BootForm;

use super::change::{self, Change, Work};
use super::error::{ModuleBuildError, read_failed, write_failed};
use super::headers::Headers;
use super::needs;
use super::place::Place;
use super::program::{run, run_well};
use super::source::Source;
use super::toolchain::{BTF_PROGRAM, Toolchain, is_installed};
use crate::child;
use crate::vm::kernels::KernelEntry;
use crate::vm::kernels::stage::Stage;

/// Variables of the environment that builds see.
const ENVIRONMENT: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
/// What make takes for its own in paths.
const NOT_IN_PATHS: [char; 7] = [' ', ':', '\t', '\n', '$', '#', '%'];
/// Lines of a compiler's output that an error shows.
const LINES_MAX: usize = 6;

/// Check that make can work below a folder.
pub(super) fn check_path(store: &Path) -> Result<(), ModuleBuildError> {
    fs::create_dir_all(store).map_err(write_failed(store))?;
    let path = fs::canonicalize(store).map_err(read_failed(store))?;
    match path.to_string_lossy().contains(NOT_IN_PATHS) {
        true => Err(ModuleBuildError::PathForMake { path }),
        false => Ok(()),
    }
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
    toolchain: &'a Toolchain,
    cancel: &'a AtomicBool,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        source: &'a Source,
        place: &'a Place,
        folder: &'a Path,
        kernel: &'a KernelEntry,
        toolchain: &'a Toolchain,
        cancel: &'a AtomicBool,
    ) -> Self {
        Maker {
            source,
            place,
            folder,
            kernel,
            toolchain,
            cancel,
        }
    }

    /// Build it with these changes.
    pub(super) fn make(&self, changes: &[Change]) -> Result<Made, ModuleBuildError> {
        let stage = Stage::new(&self.source.store)?;
        let top = stage.entry();
        let path = fs::canonicalize(&self.source.store).map_err(read_failed(&self.source.store))?;
        let top = path.join(top.strip_prefix(&self.source.store).unwrap_or(&top));
        let work = top.join("source");
        self.source.copy(self.place, self.folder, &work)?;
        let mut headers = Headers::new(self.source, &top.join("kbuild"))?;
        let files = change::apply(
            changes,
            &Work {
                top: &work,
                place: self.place,
                release: &self.kernel.release,
                upstream: self.source.upstream(self.kernel),
                source: self.folder,
                cancel: self.cancel,
            },
            &mut headers,
        )?;
        let made = work.join(&self.place.folder);
        let target = format!("{}.ko", self.place.stem);
        // The names of the folders here would be in the module.
        let prefix = format!("{}/=", work.display());
        let flags = self.flags(&work, &made)?;
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
                "KCFLAGS=-fmacro-prefix-map={prefix} -fdebug-prefix-map={prefix}{flags}{}",
                self.toolchain.flags()
            ))
            .arg(&target);
        self.toolchain.apply(&mut command);
        // Of the environment, kbuild takes ARCH, CROSS_COMPILE, KBUILD_OUTPUT and others.
        command.env_clear().env("LC_ALL", "C");
        for name in ENVIRONMENT {
            command.envs(env::var_os(name).map(|value| (name, value)));
        }
        let finished = run("make", command, self.cancel)?;
        let module = made.join(&target);
        if !finished.status.success() || !module.is_file() {
            return Err(ModuleBuildError::Build {
                module: self.place.name.clone(),
                changed: !changes.is_empty(),
                output: what_failed(&finished.output, &work),
            });
        }
        self.add_btf(&module, &top)?;
        let strip = self.toolchain.tool("strip");
        let mut command = child::command(&strip);
        command.arg("--strip-debug").arg(&module);
        run_well(&strip, command, self.cancel)?;
        let elf = fs::read(&module).map_err(read_failed(&module))?;
        Ok(Made {
            has_btf: elf.windows(5).any(|name| name == b".BTF\0"),
            elf,
            files,
        })
    }
}

impl Maker<'_> {
    /// Folders to search for headers, as the compiler takes them. Makefiles name them from the top of the
    /// source, which for kbuild is that of the headers (`-I$(srctree)/$(src)/..`).
    fn flags(&self, work: &Path, of_module: &Path) -> Result<String, ModuleBuildError> {
        // From here, tracepoints include their own header again (`TRACE_INCLUDE_PATH`).
        let tracing = work.join(needs::TRACING);
        fs::create_dir_all(&tracing).map_err(write_failed(&tracing))?;
        let makefile = needs::makefile(of_module);
        let searched = needs::searched(&makefile, &self.place.folder);
        let there = searched.iter().filter_map(|folder| {
            let mut places = [work, self.folder].into_iter().map(|top| top.join(folder));
            places.find(|folder| folder.is_dir())
        });
        let folders = there.chain([tracing]);
        Ok(folders
            .map(|folder| format!(" -I{}", folder.display()))
            .collect())
    }

    /// Give a module type information (BTF), from its debugging information, if the program for
    /// it is there. The kernel's own build does it as well, with programs that packages of
    /// headers lack.
    fn add_btf(&self, module: &Path, work: &Path) -> Result<(), ModuleBuildError> {
        if !is_installed(BTF_PROGRAM) {
            return Ok(());
        }
        let mut base = self.kernel.unpacked();
        if self.kernel.boot() == BootForm::Raw {
            // A raw image has no section of that name.
            let image = fs::read(&base).map_err(read_failed(&base))?;
            let Ok(types) = Btf::find(&image) else {
                return Ok(());
            };
            base = work.join("vmlinux.btf");
            fs::write(&base, types.bytes()).map_err(write_failed(&base))?;
        }
        let mut command = child::command(BTF_PROGRAM);
        command
            .args(["-J", "--btf_gen_floats", "--btf_base"])
            .arg(base)
            .arg(module)
            .env("LLVM_OBJCOPY", self.toolchain.tool("objcopy"));
        // A module without it is as good otherwise, and it is said which has none.
        run(BTF_PROGRAM, command, self.cancel).map(drop)
    }
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
