//! The programs that build a kernel's modules: this machine's, or those for another architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use netplumb_kernel::config::{ConfigValue, KernelConfig};
use netplumb_model::arch::Arch;

use super::change::Change;
use super::compiler;
use super::error::ModuleBuildError;
use super::program::{is_installed, need, run};
use crate::child;
use crate::vm::kernels::{KernelEntry, Progress};

/// The compiler that a kernel was built with, as its configuration names it.
const COMPILER: &str = "CC_VERSION_TEXT";
/// The compiler of LLVM, which is one program for all architectures.
const CLANG: &str = "clang";
/// The program that gives modules their type information.
pub(super) const BTF_PROGRAM: &str = "pahole";

/// The programs that build the modules of a kernel.
#[derive(Debug)]
pub(super) struct Toolchain {
    arch: Arch,
    /// How the compiler names itself and its version.
    pub(super) compiler: String,
    /// The compiler that the kernel was built with, or a similar one, run by QEMU.
    of_kernel: Option<PathBuf>,
    /// The remedy for using the kernel's own, if it exists.
    pub(super) remedy: Option<&'static str>,
}

/// The directory with the compiler of a kernel of another architecture than this machine's.
pub(super) fn kept_for(kernel: &KernelEntry) -> Option<String> {
    let of_kernel = compiler_of(kernel).filter(|_| kernel.arch != Arch::OWN)?;
    Some(compiler::DebianGcc::parse(&of_kernel)?.folder(kernel.arch))
}

impl Toolchain {
    /// Check that what it takes is there. For another architecture, the compiler that the kernel was
    /// built with is fetched, where this machine's for it has another version.
    pub(super) fn find(
        kernel: &KernelEntry,
        store: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, ModuleBuildError> {
        let arch = kernel.arch;
        let of_kernel = compiler_of(kernel).unwrap_or_default();
        let name = program_of(&of_kernel);
        need("make", "make")?;
        need(&program_for(arch, "strip"), &package_for(arch, "binutils"))?;
        let compiler = program_for(arch, &name);
        need(&compiler, &package_for(arch, &name))?;
        let here = version(&compiler, cancel)?;
        let wanted = compiler::DebianGcc::parse(&of_kernel).filter(|_| arch != Arch::OWN);
        let wanted =
            wanted.filter(|wanted| compiler::debian_version(&here) != Some(wanted.version));
        let Some(wanted) = wanted else {
            return Ok(Toolchain { arch, compiler: here, of_kernel: None, remedy: None });
        };
        let here_version = compiler::debian_version(&here);
        let found = wanted.fetch(store, arch, here_version, cancel, progress)?;
        Ok(Toolchain {
            arch,
            compiler: match &found {
                Some(found) => of_kernel.replacen(wanted.version, &found.version, 1),
                None => here,
            },
            of_kernel: found.map(|found| found.folder),
            remedy: compiler::remedy(arch),
        })
    }

    fn is_clang(&self) -> bool {
        self.compiler.contains(CLANG)
    }

    /// Variables for kbuild.
    pub(super) fn variables(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_clang() {
            all.push("LLVM=1".to_owned());
        }
        if self.arch != Arch::OWN {
            all.push(format!("ARCH={}", self.arch.kbuild()));
            all.push(format!("CROSS_COMPILE={}-", self.arch.gnu()));
        }
        all
    }

    /// The folder of the kernel's own compiler, if that is used.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.of_kernel.as_deref()
    }

    /// Extra flags for the compiler.
    pub(super) fn flags(&self) -> String {
        match &self.of_kernel {
            Some(folder) => format!(" -B{}", folder.display()),
            None => String::new(),
        }
    }

    /// The program of binutils with that name.
    pub(super) fn tool(&self, name: &str) -> String {
        program_for(self.arch, name)
    }

    /// The versions that a build's code depends on: of the compiler and the BTF program, in their own words.
    pub(super) fn versions(&self, cancel: &AtomicBool) -> Result<[String; 2], ModuleBuildError> {
        let btf = match is_installed(BTF_PROGRAM) {
            true => version(BTF_PROGRAM, cancel)?,
            false => String::new(),
        };
        Ok([self.compiler.clone(), btf])
    }
}

/// Check that the programs are there which changes need.
pub(super) fn check_changes(changes: &[Change]) -> Result<(), ModuleBuildError> {
    changes.iter().try_for_each(|change| match change {
        Change::Patch(_) => need("patch", "patch"),
        Change::Cocci(_) => need("spatch", "coccinelle"),
    })
}

/// The compiler that a kernel was built with, from its configuration.
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
    let program = program.rsplit_once("-gnu-").map_or(program, |(_, name)| name);
    program.to_owned()
}

/// A program as it is called here for an architecture: `aarch64-linux-gnu-gcc-12`.
fn program_for(arch: Arch, name: &str) -> String {
    match arch == Arch::OWN || name == CLANG {
        true => name.to_owned(),
        false => format!("{}-{name}", arch.gnu()),
    }
}

/// Debian's package with it: `gcc-12-aarch64-linux-gnu`.
fn package_for(arch: Arch, name: &str) -> String {
    match arch == Arch::OWN || name == CLANG {
        true => name.to_owned(),
        false => format!("{name}-{}", arch.gnu().replace('_', "-")),
    }
}

/// How a program names itself and its version.
fn version(program: &str, cancel: &AtomicBool) -> Result<String, ModuleBuildError> {
    let mut command = child::command(program);
    command.arg("--version");
    let finished = run(program, command, cancel)?;
    let first = finished.output.lines().next();
    Ok(first.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that compilers are recognised by their version strings.
    #[test]
    fn compilers() {
        for (text, program) in [
            ("gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc-12"),
            ("x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0", "gcc-12"),
            ("Debian clang version 16.0.6 (15~deb12u1)", "clang"),
            ("", "gcc"),
        ] {
            assert_eq!(program_of(text), program, "{text}");
        }
    }

    /// Check what programs and packages for this and another architecture are called.
    #[test]
    fn names() {
        for arch in Arch::ALL.iter().copied().filter(|arch| *arch != Arch::OWN) {
            let (program, package) = match arch {
                Arch::Arm64 => ("aarch64-linux-gnu-gcc-12", "gcc-12-aarch64-linux-gnu"),
                Arch::X86_64 => ("x86_64-linux-gnu-gcc-12", "gcc-12-x86-64-linux-gnu"),
            };
            assert_eq!(program_for(arch, "gcc-12"), program);
            assert_eq!(package_for(arch, "gcc-12"), package);
            assert_eq!(program_for(arch, "clang"), "clang");
            assert_eq!(package_for(arch, "clang"), "clang");
        }
        assert_eq!(program_for(Arch::OWN, "strip"), "strip");
        assert_eq!(package_for(Arch::OWN, "binutils"), "binutils");
    }
}
