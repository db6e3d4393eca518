//! Modules that experiments had built: kept beside the source, so that each is built once.
//!
//! ```text
//! sources/HASH/built/KEY/usbnet+fix.patch   the module
//!                        not-the-same       there if the unmodified build differs
//! ```

use std::fs;
use std::path::PathBuf;

use super::error::{read_failed, write_failed};
use super::{BuildProgress, Change, ModuleBuildError, ModuleBuilder, ModuleRequest};
use super::{check_target, write_module};
use crate::vm::kernels::KernelEntry;
use crate::vm::saved::Key;

/// There if the unmodified build is not the same code as the kernel's own module.
const DIFFERS: &str = "not-the-same";

/// A module that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptModule {
    /// Its file, named after the module and the changes.
    pub path: PathBuf,
    /// Whether the unmodified build is the same code as the kernel's own module.
    pub unmodified_is_the_same: bool,
}

impl ModuleBuilder {
    /// Build a module of a kernel, unless it was built before of the same changes.
    ///
    /// # Errors
    /// As [`ModuleBuilder::build`]; or it can't be kept.
    pub fn kept(
        &self,
        kernel: &KernelEntry,
        request: &ModuleRequest,
        progress: &mut dyn FnMut(BuildProgress),
    ) -> Result<KeptModule, ModuleBuildError> {
        let mut key = Key::default();
        let mut title = request.name.clone();
        key.add("version", env!("CARGO_PKG_VERSION").as_bytes());
        key.add("module", request.name.as_bytes());
        for change in &request.changes {
            let (kind, path) = match change {
                Change::Patch(path) => ("patch", path),
                Change::Cocci(path) => ("cocci", path),
            };
            key.add(kind, &fs::read(path).map_err(read_failed(path))?);
            let name = path.file_name().unwrap_or_default();
            title = format!("{title}+{}", name.to_string_lossy());
        }
        let folder = self.folder.join(&kernel.hash).join("built");
        let folder = folder.join(key.finish());
        let path = folder.join(title);
        let differs = folder.join(DIFFERS);
        if !path.is_file() {
            let built = self.build(kernel, request, progress)?;
            fs::create_dir_all(&folder).map_err(write_failed(&folder))?;
            if !built.unmodified.is_empty() {
                fs::write(&differs, b"").map_err(write_failed(&differs))?;
            }
            // Last: its file says that all is there.
            write_module(&path, &built.elf)?;
        }
        check_target(&path)?;
        Ok(KeptModule {
            unmodified_is_the_same: !differs.exists(),
            path,
        })
    }
}
