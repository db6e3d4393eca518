//! One build of a module: a copy of its folder, and `make`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use netplumb_kernel::btf::Btf;
use netplumb_kernel::image::BootForm;

use super::change::{self, Change, Sources, Work};
use super::error::{ModuleBuildError, read_failed, write_failed};
use super::headers::Headers;
use super::needs;
use super::place::Place;
use super::program::{is_installed, well};
use super::sandbox::Sandbox;
use super::source::Source;
use super::toolchain::{BTF_PROGRAM, Toolchain};
use crate::vm::kernels::KernelEntry;
use crate::vm::kernels::stage::Stage;

/// Characters that make interprets in paths.
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

/// The result of a build.
#[derive(Debug)]
pub(super) struct BuiltModule {
    pub(super) elf: Vec<u8>,
    pub(super) has_btf: bool,
    /// The files that the changes changed.
    pub(super) files: Vec<String>,
    /// The sources of an experiment's unmodified module.
    pub(super) sources: Option<Sources>,
}

/// Builds a module, with changes and without.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    source: &'a Source,
    place: &'a Place,
    /// The tree with the module's folder.
    folder: &'a Path,
    kernel: &'a KernelEntry,
    toolchain: &'a Toolchain,
    /// Whether changes may be someone else's.
    is_of_experiment: bool,
    cancel: &'a AtomicBool,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        source: &'a Source,
        place: &'a Place,
        folder: &'a Path,
        kernel: &'a KernelEntry,
        toolchain: &'a Toolchain,
        is_of_experiment: bool,
        cancel: &'a AtomicBool,
    ) -> Self {
        Maker { source, place, folder, kernel, toolchain, is_of_experiment, cancel }
    }

    /// Build it with these changes, which may be of `only` some files.
    pub(super) fn make(
        &self,
        changes: &[Change],
        only: Option<&Sources>,
    ) -> Result<BuiltModule, ModuleBuildError> {
        let stage = Stage::new(&self.source.store)?;
        let top = stage.entry();
        let path = fs::canonicalize(&self.source.store).map_err(read_failed(&self.source.store))?;
        let top = path.join(top.strip_prefix(&self.source.store).unwrap_or(&top));
        let work = top.join("source");
        self.source.copy(self.place, self.folder, &work)?;
        let mut headers = Headers::new(self.source, &top.join("kbuild"))?;
        // From here, tracepoints include their own header again (`TRACE_INCLUDE_PATH`).
        let tracing = work.join(needs::TRACING);
        fs::create_dir_all(&tracing).map_err(write_failed(&tracing))?;
        let sandbox = self.sandbox(&top, &work)?;
        let to_apply = Work {
            top: &work,
            place: self.place,
            release: &self.kernel.release,
            upstream: self.source.upstream(self.kernel),
            source: self.folder,
            beside: &top,
            sandbox: &sandbox,
        };
        let files = change::apply(changes, &to_apply, &mut headers)?;
        if let Some(sources) = only {
            sources.check(&to_apply, &headers)?;
        }
        sandbox.open(&top)?;
        let made = work.join(&self.place.folder);
        let target = format!("{}.ko", self.place.stem);
        // The names of the folders here would be in the module.
        let prefix = format!("{}/=", work.display());
        let flags = self.flags(&work, &made, tracing)?;
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut arguments: Vec<OsString> = vec!["-C".into(), headers.build.clone().into()];
        arguments.extend([
            format!("-j{jobs}").into(),
            format!("M={}", made.display()).into(),
            format!(
                "KCFLAGS=-fmacro-prefix-map={prefix} -fdebug-prefix-map={prefix}{flags}{}",
                self.toolchain.flags()
            )
            .into(),
            OsString::from(&target),
        ]);
        arguments.extend(self.toolchain.variables().into_iter().map(OsString::from));
        let finished = sandbox.run("make", &arguments, &made, &[])?;
        let module = made.join(&target);
        if !finished.status.success() || !module.is_file() {
            return Err(ModuleBuildError::Build {
                module: self.place.name.clone(),
                changed: !changes.is_empty(),
                output: what_failed(&finished.output, &work),
            });
        }
        let sources = match self.is_of_experiment && changes.is_empty() {
            true => Some(Sources::from_work(&work, self.place, &headers)?),
            false => None,
        };
        self.add_btf(&sandbox, &module, &top)?;
        let strip = self.toolchain.tool("strip");
        let arguments = ["--strip-debug".into(), module.clone().into()];
        let finished = sandbox.run(&strip, &arguments, &made, &[])?;
        well(&strip, &finished)?;
        let elf = sandbox.read(&module)?;
        Ok(BuiltModule {
            has_btf: elf.windows(5).any(|name| name == b".BTF\0"),
            elf,
            files,
            sources,
        })
    }

    /// Where the build in `work` runs.
    fn sandbox(&self, top: &Path, work: &Path) -> Result<Sandbox<'a>, ModuleBuildError> {
        let mut readable = vec![top, self.folder, &*self.source.headers];
        readable.extend(self.source.root.as_deref());
        readable.extend(self.toolchain.folder());
        // The source of a build directory.
        let source = self.source.headers.join("source");
        readable.extend(source.is_dir().then_some(&*source));
        let sandbox = Sandbox::new(work, &readable, self.cancel)?;
        // Folders of packages are our own.
        for own in [self.source.root.as_deref(), self.toolchain.folder()] {
            own.map_or(Ok(()), |own| sandbox.open(own))?;
        }
        if self.source.root.is_some() {
            sandbox.open(self.folder)?;
        }
        Ok(sandbox)
    }
}

impl Maker<'_> {
    /// Folders to search for headers, as the compiler takes them. Makefiles name them from the top of the source, for
    /// kbuild the top of the headers (`-I$(srctree)/$(src)/..`).
    fn flags(
        &self,
        work: &Path,
        of_module: &Path,
        tracing: PathBuf,
    ) -> Result<String, ModuleBuildError> {
        let makefile = needs::makefile(of_module);
        let searched = needs::searched(&makefile, &self.place.folder);
        let there = searched.iter().filter_map(|folder| {
            let mut places = [work, self.folder].into_iter().map(|top| top.join(folder));
            places.find(|folder| folder.is_dir())
        });
        let folders = there.chain([tracing]);
        Ok(folders.map(|folder| format!(" -I{}", folder.display())).collect())
    }

    /// Give a module type information (BTF), from its debugging information, if the program for it is there. The
    /// kernel's own build does it, too, with programs that packages of headers lack.
    fn add_btf(
        &self,
        sandbox: &Sandbox<'_>,
        module: &Path,
        top: &Path,
    ) -> Result<(), ModuleBuildError> {
        if !is_installed(BTF_PROGRAM) {
            return Ok(());
        }
        let image = self.kernel.unpacked();
        // Beside the source, for the user that builds may not read the kernel's own file.
        let base = top.join("vmlinux");
        if self.kernel.boot() == BootForm::Raw {
            // A raw image has no section of that name.
            let image = fs::read(&image).map_err(read_failed(&image))?;
            let Ok(types) = Btf::find(&image) else {
                return Ok(());
            };
            fs::write(&base, types.bytes()).map_err(write_failed(&base))?;
        } else {
            fs::copy(&image, &base).map_err(write_failed(&base))?;
        }
        sandbox.open(&base)?;
        let mut arguments: Vec<OsString> =
            ["-J", "--btf_gen_floats", "--btf_base"].map(OsString::from).into();
        arguments.extend([base.into(), OsString::from(module)]);
        let objcopy = [("LLVM_OBJCOPY", self.toolchain.tool("objcopy"))];
        // A module without BTF works otherwise, and a note names it.
        sandbox.run(BTF_PROGRAM, &arguments, top, &objcopy).map(drop)
    }
}

/// The lines of a build's output with the cause of its failure, with paths as in the source: the compiler's errors in
/// order; otherwise what a program or make itself could not do.
fn what_failed(output: &str, work: &Path) -> String {
    let prefix = format!("{}/", work.display());
    let by_compiler =
        |line: &str| [": error: ", ": fatal error: "].iter().any(|mark| line.contains(mark));
    let by_make = |line: &str| {
        let known = ["No rule to make target", "No such file", "Permission denied"];
        known.iter().any(|reason| line.contains(reason))
    };
    let by_other = |line: &str| {
        let line = line.to_ascii_lowercase();
        ["error", "not found", "undefined", "denied", "failed", "killed"]
            .iter()
            .any(|word| line.contains(word))
    };
    let is_of_make = |line: &str| line.starts_with("make");
    // `  CC [M]  drivers/x.o`
    let is_step = |line: &str| {
        line.starts_with("  ") && line.trim_start().starts_with(|c: char| c.is_ascii_uppercase())
    };
    let kinds: [&dyn Fn(&str) -> bool; 4] = [
        &|line| by_compiler(line),
        &|line| !is_of_make(line) && by_other(line),
        &|line| is_of_make(line) && by_make(line),
        &|line| !line.trim().is_empty() && !is_of_make(line) && !is_step(line),
    ];
    let of_kind = |kind: &dyn Fn(&str) -> bool| -> Vec<String> {
        let lines = output.lines().filter(|line| kind(line)).take(LINES_MAX);
        lines.map(|line| format!("  {}", line.trim().replace(&prefix, ""))).collect()
    };
    let found = kinds.iter().map(|kind| of_kind(*kind)).find(|lines| !lines.is_empty());
    match found {
        Some(lines) => lines.join("\n"),
        None => output.lines().last().map_or_else(String::new, |line| format!("  {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a build's compiler errors are shown, as seen from the source, and not other lines with that word; and
    /// without any, what could not be done.
    #[test]
    fn errors() {
        let of = |output: &str| what_failed(output, Path::new("/w"));
        let compiler = "  CC [M]  /w/drivers/error.o\n/w/drivers/a.c:2:5: warning: unused variable 'error'\n\
                        \x20   2 | int error;\n/w/drivers/a.c:3:1: error: unknown type 'x'\n\
                        make[1]: *** [a.o] Error 1\nmake: *** [Makefile:250: sub-make] Error 2\n";
        assert_eq!(of(compiler), "  drivers/a.c:3:1: error: unknown type 'x'");
        let missing = "make[1]: *** No rule to make target '/w/b.o', needed by 'c.o'.  Stop.\n\
                       make: *** [Makefile:250: sub-make] Error 2\n";
        assert_eq!(
            of(missing),
            "  make[1]: *** No rule to make target 'b.o', needed by 'c.o'.  Stop."
        );
        let modpost = "ERROR: modpost: \"x\" [/w/a.ko] undefined!\nmake: *** [y] Error 1\n";
        assert_eq!(of(modpost), "  ERROR: modpost: \"x\" [a.ko] undefined!");
        let denied = "  CC [M]  a.o\n/bin/sh: 1: awk: Permission denied\nTerminated\n";
        assert_eq!(of(denied), "  /bin/sh: 1: awk: Permission denied");
        assert_eq!(of("  LD a.o\nodd\nmake: *** [y] Error 1\n"), "  odd");
        assert_eq!(of("make: *** [y] Error 1\n"), "  make: *** [y] Error 1");
    }
}
