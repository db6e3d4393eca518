//! Modules built for experiments, kept beside the source, so that each is built once.
//!
//! ```text
//! sources/HASH/built/KEY/usbnet+fix.patch.ko   the module
//!                        not-the-same          there if the unmodified build differs
//!                        sums                  their checksums
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::error::write_failed;
use super::source::{is_whole, keep};
use super::{BuildProgress, Change, ModuleBuildError, ModuleBuilder, ModuleRequest};
use super::{change, check_target, make, write_module};
use crate::sums;
use crate::vm::kernels::KernelEntry;
use crate::vm::kernels::stage::Stage;
use crate::vm::saved::Key;

/// There if the unmodified build is not the same code as the kernel's own module.
const DIFFERS: &str = "not-the-same";

/// A module that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptModule {
    /// Its file, named after the module and the patches.
    pub path: PathBuf,
    /// Whether the unmodified build is the same code as the kernel's own module.
    pub unmodified_is_the_same: bool,
    /// The remedy for using the kernel's own compiler, if it exists.
    pub remedy: Option<&'static str>,
}

/// The inputs of a build, apart from the kernel.
fn key(name: &str, patches: &[String], tools: &[String]) -> String {
    let mut key = Key::default();
    key.add("version", env!("CARGO_PKG_VERSION").as_bytes());
    key.add("module", name.as_bytes());
    for patch in patches {
        key.add("patch", patch.as_bytes());
    }
    for tool in tools {
        key.add("tool", tool.as_bytes());
    }
    key.finish()
}

impl ModuleBuilder {
    /// Build a module of a kernel, unless it was built before of the same patches. These may change C
    /// files only that the module is compiled from: building then runs no program of theirs.
    ///
    /// # Errors
    /// As [`ModuleBuilder::build`]; or a patch changes other files, or the module can't be kept.
    pub fn kept(
        &self,
        kernel: &KernelEntry,
        name: &str,
        patches: &[&Path],
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<KeptModule, ModuleBuildError> {
        let mut title = name.to_owned();
        let mut texts = Vec::new();
        for patch in patches {
            texts.push(change::of_c_files(patch)?);
            let name = patch.file_name().unwrap_or_default();
            title = format!("{title}+{}", name.to_string_lossy());
        }
        make::check_path(&self.folder)?;
        let toolchain = self.toolchain(kernel, progress)?;
        let tools = toolchain.versions(&self.cancel)?;
        let built_here = self.folder.join(&kernel.hash).join("built");
        let folder = built_here.join(key(name, &texts, &tools));
        let path = folder.join(title + ".ko");
        let differs = folder.join(DIFFERS);
        let mut tell = |at| progress(BuildProgress::Source(at));
        let is_whole = is_whole(&folder, &mut tell)?;
        if is_whole && !path.is_file() {
            // An older version was killed before that was written.
            sums::remove(&folder).map_err(write_failed(&folder))?;
        }
        if !path.is_file() {
            let patches = patches.iter().map(|path| path.to_path_buf());
            let request = ModuleRequest {
                name: name.to_owned(),
                changes: patches.map(Change::Patch).collect(),
            };
            let built = self.build_by(&toolchain, kernel, &request, true, progress)?;
            let stage = Stage::new(&self.folder)?;
            let entry = stage.entry();
            fs::create_dir_all(&entry).map_err(write_failed(&entry))?;
            if !built.unmodified.is_empty() {
                let differs = entry.join(DIFFERS);
                fs::write(&differs, b"").map_err(write_failed(&differs))?;
            }
            let file = path.file_name().unwrap_or_default();
            write_module(&entry.join(file), &built.elf)?;
            fs::create_dir_all(&built_here).map_err(write_failed(&built_here))?;
            keep(&entry, &folder)?;
        }
        check_target(&path)?;
        Ok(KeptModule { unmodified_is_the_same: !differs.exists(), remedy: toolchain.remedy, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a module is built again after an upgrade of the compiler, once pahole is there, and of
    /// another patch; and not otherwise.
    #[test]
    fn keys() {
        let of = |patch: &str, tools: [&str; 2]| {
            key("usbnet", &[patch.to_owned()], &tools.map(str::to_owned))
        };
        let one = of("-a\n+b\n", ["gcc-12 12.2.0-14", ""]);
        assert_eq!(one, of("-a\n+b\n", ["gcc-12 12.2.0-14", ""]));
        assert_ne!(one, of("-a\n+b\n", ["gcc-12 12.2.0-14+deb12u1", ""]));
        assert_ne!(one, of("-a\n+b\n", ["gcc-12 12.2.0-14", "v1.24"]));
        assert_ne!(one, of("-a\n+c\n", ["gcc-12 12.2.0-14", ""]));
    }
}
