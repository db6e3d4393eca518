//! A kernel in the store, and its `kernel.toml`.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use netplumb_kernel::image::BootForm;
use netplumb_kernel::modules::{ModuleError, ModuleTree};
use netplumb_model::arch::Arch;
use serde::{Deserialize, Serialize};

use super::KernelStoreError;
use super::collect::{self, Collected, Package};
use super::error::{read_failed, write_failed};
use crate::sums::{self, Flaw};

const FILE: &str = "kernel.toml";
/// The format of `kernel.toml`; raised when an older program could misread it.
const FORMAT: u32 = 2;
/// The format for x86-64 kernels, read by programs that know no other architecture.
const FORMAT_X86_64: u32 = 1;

/// Where a kernel was added from, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedFrom {
    /// The source: `debian`, `debian:6.1.0-54`, `running` or a path.
    pub source: String,
    /// When it was last added from there, in UTC by RFC 3339.
    pub added: String,
    /// A name of the user's for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The package's name, if it was a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The package's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_version: Option<String>,
    /// The hash of the package's file, to recognise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_sha256: Option<String>,
}

impl AddedFrom {
    fn to_package(&self) -> Option<Package> {
        Some(Package {
            name: self.package.clone()?,
            version: self.package_version.clone()?,
            sha256: self.package_sha256.clone()?,
        })
    }
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// The format of the description.
    format: u32,
    /// The hash of its content, in hex.
    pub hash: String,
    /// Its release, as `uname -r` gives it.
    pub release: String,
    /// Its architecture; x86-64 in entries without one.
    #[serde(default = "x86_64")]
    pub arch: Arch,
    /// Whether the ELF file can be booted as it is (x86-64).
    pub pvh: bool,
    /// The size of the unpacked image.
    pub vmlinux_bytes: u64,
    /// How many modules it has.
    pub modules: u64,
    /// The size of its modules, as stored.
    pub modules_bytes: u64,
    /// Where it was added from, the first one first.
    pub sources: Vec<AddedFrom>,
    /// The kernel's directory in the store.
    #[serde(skip_deserializing)]
    pub folder: PathBuf,
}

/// The architecture of entries from before there were others.
fn x86_64() -> Arch {
    Arch::X86_64
}

impl KernelEntry {
    /// The first twelve digits of the hash.
    pub fn short(&self) -> &str {
        &self.hash[..12.min(self.hash.len())]
    }

    /// The names of the user's for it.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().filter_map(|from| from.label.as_deref())
    }

    /// The source that it was first added from.
    pub fn source(&self) -> &str {
        self.sources.first().map_or("unknown", |from| &from.source)
    }

    /// When it was first added, in UTC by RFC 3339.
    pub fn added(&self) -> &str {
        self.sources.first().map_or("", |from| &from.added)
    }

    /// The form that boots.
    pub fn boot(&self) -> BootForm {
        match self.arch {
            Arch::X86_64 if self.pvh => BootForm::Elf,
            Arch::X86_64 => BootForm::BzImage,
            Arch::Arm64 => BootForm::Raw,
        }
    }

    /// Its unpacked form: the ELF file, or the raw image of arm64.
    pub fn unpacked(&self) -> PathBuf {
        self.folder.join(collect::unpacked_name(self.boot()))
    }

    /// The image for QEMU: the bzImage if the ELF file can't be booted, else what was unpacked.
    pub fn boot_image(&self) -> PathBuf {
        let vmlinuz = self.folder.join("vmlinuz");
        if self.boot() == BootForm::BzImage && vmlinuz.is_file() {
            vmlinuz
        } else {
            self.unpacked()
        }
    }

    /// The kernel's configuration, if it is known.
    pub fn config(&self) -> Option<PathBuf> {
        let path = self.folder.join("config");
        path.is_file().then_some(path)
    }

    /// Check the lengths of its files, and the content of those that `wanted` accepts by their paths in its
    /// directory.
    ///
    /// # Errors
    /// One is damaged, or can't be read.
    pub fn check(&self, wanted: &dyn Fn(&Path) -> bool) -> Result<(), KernelStoreError> {
        sums::check(&self.folder, wanted).map_err(|flaw| match flaw {
            Flaw::Missing => self.damaged("it was removed".to_owned()),
            Flaw::Damaged(reason) | Flaw::Unreadable(reason) => self.damaged(reason),
        })
    }

    fn damaged(&self, reason: String) -> KernelStoreError {
        KernelStoreError::DamagedEntry {
            folder: self.folder.clone(),
            source_of: self.sources.first().map(|from| from.source.clone()),
            reason,
        }
    }

    /// Its module directory; may be empty.
    pub fn modules_dir(&self) -> PathBuf {
        self.folder.join("modules")
    }

    /// The kernel's loadable modules, as stored.
    pub fn module_tree(&self) -> Result<ModuleTree, ModuleError> {
        ModuleTree::open(&self.modules_dir())
    }

    /// The version of the package that it is from, if it is from one.
    pub fn package_version(&self) -> Option<&str> {
        let mut sources = self.sources.iter();
        sources.find_map(|from| from.package_version.as_deref())
    }

    /// The directory that it was built in, if it still exists.
    pub fn build_directory(&self) -> Option<PathBuf> {
        let mut paths = self.sources.iter().map(|from| PathBuf::from(&from.source));
        paths.find(|path| path.is_absolute() && path.join("Makefile").is_file())
    }

    /// Its package, if that is of this name and version. Only for packages of an archive, where the
    /// version determines the contents.
    pub(super) fn archive_package(&self, name: &str, version: &str) -> Option<Package> {
        let from_archive = self.sources.iter().filter(|from| from.source.starts_with("debian"));
        from_archive
            .filter_map(AddedFrom::to_package)
            .find(|package| package.name == name && package.version == version)
    }

    /// Whether it is from the archive's package of this name.
    pub(super) fn is_of_package(&self, name: &str) -> bool {
        let mut packages = self.sources.iter().filter_map(AddedFrom::to_package);
        self.sources.iter().any(|from| from.source.starts_with("debian"))
            && packages.any(|package| package.name == name)
    }

    /// Its package, if that has this hash.
    pub(super) fn package_of_hash(&self, sha256: &str) -> Option<Package> {
        self.sources
            .iter()
            .filter_map(AddedFrom::to_package)
            .find(|package| package.sha256 == sha256)
    }

    /// Describes the files that are in `folder`.
    pub(super) fn describe(
        folder: &Path,
        hash: String,
        collected: &Collected,
    ) -> Result<Self, KernelStoreError> {
        let unpacked = folder.join(collect::unpacked_name(collected.boot));
        let unpacked_bytes = fs::metadata(&unpacked).map_err(read_failed(&unpacked))?.len();
        let mut files = Vec::new();
        collect::files_under(&folder.join("modules"), &mut files)?;
        let mut modules_bytes = 0;
        for file in &files {
            modules_bytes += fs::metadata(file).map_err(read_failed(file))?.len();
        }
        let modules = ModuleTree::open(&folder.join("modules"))?.len() as u64;
        Ok(Self {
            format: match collected.arch {
                Arch::X86_64 => FORMAT_X86_64,
                Arch::Arm64 => FORMAT,
            },
            hash,
            release: collected.release.clone(),
            arch: collected.arch,
            pvh: collected.boot == BootForm::Elf,
            vmlinux_bytes: unpacked_bytes,
            modules,
            modules_bytes,
            sources: Vec::new(),
            folder: folder.to_owned(),
        })
    }

    /// Record that it was added from these sources now.
    pub(super) fn note(&mut self, sources: &[String], package: Option<&Package>) {
        let added = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        for source in sources {
            let known = self.sources.iter().find(|have| have.source == *source);
            let from = AddedFrom {
                source: source.clone(),
                added: added.clone(),
                label: known.and_then(|have| have.label.clone()),
                package: package.map(|package| package.name.clone()),
                package_version: package.map(|package| package.version.clone()),
                package_sha256: package.map(|package| package.sha256.clone()),
            };
            match self.sources.iter_mut().find(|have| have.source == *source) {
                Some(have) => *have = from,
                None => self.sources.push(from),
            }
        }
    }

    /// Read an entry's description; none if the entry does not exist.
    pub(super) fn load(folder: &Path) -> Result<Option<Self>, KernelStoreError> {
        let path = folder.join(FILE);
        let damaged = |reason: String| KernelStoreError::DamagedEntry {
            folder: folder.to_owned(),
            source_of: None,
            reason,
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // Removed since the directory was listed, or never there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(read_failed(&path)(error));
            }
            Err(error) => return Err(damaged(format!("{FILE}: {error}"))),
        };
        // Entries of older versions have neither.
        if !sums::is_intact(&text).unwrap_or(!sums::is_sealed(folder)) {
            return Err(damaged(format!("{FILE} is cut, or has another checksum")));
        }
        let mut entry: Self = toml::from_str(&text)
            .map_err(|error| damaged(format!("{FILE}: {}", error.message())))?;
        if entry.format > FORMAT {
            return Err(KernelStoreError::NewerEntry { folder: folder.to_owned() });
        }
        entry.folder = folder.to_owned();
        Ok(Some(entry))
    }

    /// Write the description, atomically.
    pub(super) fn save(&self) -> Result<(), KernelStoreError> {
        let path = self.folder.join(FILE);
        let failed = write_failed(&path);
        let kept = Self { folder: PathBuf::new(), ..self.clone() };
        let text = toml::to_string(&kept).map_err(|error| failed(io::Error::other(error)))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(&failed)?;
        file.write_all(sums::sealed(&text).as_bytes()).map_err(&failed)?;
        // For all users who can read the cache.
        let mode = Permissions::from_mode(0o644);
        file.as_file().set_permissions(mode).map_err(&failed)?;
        file.as_file().sync_all().map_err(&failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        sums::sync_folder(&self.folder);
        Ok(())
    }
}
