//! Collects the files of a kernel from each kind of source.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use netplumb_kernel::deb;
use netplumb_kernel::image::{BootForm, KernelImage};
use netplumb_kernel::modules::ModuleTree;
use netplumb_model::arch::Arch;

use super::KernelStoreError;
use super::error::{read_failed, write_failed};

/// The lists of the kernel's build, beside its modules, that are needed.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

/// The images of a build, the smallest and most complete first.
const BUILT_IMAGES: [&str; 6] = [
    "arch/x86/boot/bzImage",
    "arch/arm64/boot/Image",
    "arch/arm64/boot/Image.gz",
    "arch/arm64/boot/vmlinuz.efi",
    "arch/arm64/boot/Image.zst",
    "vmlinux",
];

/// The package of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) sha256: String,
}

/// The collected files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Collected {
    pub(super) arch: Arch,
    pub(super) release: String,
    /// The form that boots.
    pub(super) boot: BootForm,
    /// None if it was not added from a package.
    pub(super) package: Option<Package>,
}

/// Unpack a package, whose file has this hash.
pub(super) fn from_deb(
    path: &Path,
    sha256: String,
    into: &Path,
    cancel: &AtomicBool,
) -> Result<Collected, KernelStoreError> {
    let unpacked = deb::unpack(path, into, &|| cancel.load(Ordering::Relaxed));
    // Whatever failed.
    go_on(cancel)?;
    let unpacked = unpacked?;
    let mut collected = unpack_image(&unpacked.vmlinuz, path, into)?;
    if collected.boot != BootForm::BzImage {
        fs::remove_file(&unpacked.vmlinuz).map_err(write_failed(&unpacked.vmlinuz))?;
    }
    make_folder(&into.join("modules"))?;
    let (name, version) = (unpacked.control.package, unpacked.control.version);
    collected.package = Some(Package { name, version, sha256 });
    Ok(collected)
}

/// Collect an image with its modules and configuration.
pub(super) fn from_image(
    image: &Path,
    modules: Option<&Path>,
    into: &Path,
    cancel: &AtomicBool,
) -> Result<Collected, KernelStoreError> {
    let collected = take_image(image, into)?;
    let release = &collected.release;
    let mut beside = vec![image.with_file_name(format!("config-{release}"))];
    if let Some(modules) = modules {
        let modules = modules_of(modules, release);
        copy_modules(&modules, &into.join("modules"), cancel)?;
        beside.push(modules.join("config"));
    }
    if let Some(config) = beside.iter().find(|path| path.is_file()) {
        copy(config, &into.join("config"))?;
    }
    Ok(collected)
}

/// Collect the output of `make`: the image, the configuration, and the modules of `modules.order`.
pub(super) fn from_build_tree(
    folder: &Path,
    into: &Path,
    cancel: &AtomicBool,
) -> Result<Collected, KernelStoreError> {
    let candidates = BUILT_IMAGES.map(|name| folder.join(name));
    let image = candidates
        .iter()
        .find(|path| path.is_file())
        .ok_or_else(|| KernelStoreError::NotBuilt { path: folder.to_owned() })?;
    let collected = take_image(image, into)?;
    let config = folder.join(".config");
    if config.is_file() {
        copy(&config, &into.join("config"))?;
    }
    let modules = into.join("modules");
    copy_lists(folder, &modules)?;
    for module in built_modules(folder)? {
        go_on(cancel)?;
        copy(&folder.join(&module), &modules.join("kernel").join(&module))?;
    }
    Ok(collected)
}

/// The modules of a build directory, below it.
pub(super) fn built_modules(folder: &Path) -> Result<Vec<PathBuf>, KernelStoreError> {
    let order = folder.join("modules.order");
    if !order.is_file() {
        return Ok(Vec::new());
    }
    let order = fs::read_to_string(&order).map_err(read_failed(&order))?;
    Ok(order.lines().filter_map(module_path).collect())
}

/// A line of `modules.order`: `kernel/drivers/a.ko`, or `drivers/a.o` since Linux 6.2.
fn module_path(line: &str) -> Option<PathBuf> {
    let line = line.trim();
    let line = line.strip_prefix("kernel/").unwrap_or(line);
    let path = Path::new(line).with_extension("ko");
    let inner = path.components().all(|part| matches!(part, Component::Normal(_)));
    (!line.is_empty() && inner).then_some(path)
}

/// Files of the running kernel.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) release: String,
    pub(super) image: PathBuf,
    pub(super) modules: Option<PathBuf>,
}

/// Find the files of the running kernel below `root`.
pub(super) fn find_running(root: &Path) -> Result<Running, KernelStoreError> {
    let path = root.join("proc/sys/kernel/osrelease");
    let release = fs::read_to_string(&path).map_err(read_failed(&path))?.trim().to_owned();
    let looked = vec![
        root.join(format!("boot/vmlinuz-{release}")),
        root.join(format!("lib/modules/{release}/vmlinuz")),
        root.join(format!("usr/lib/modules/{release}/vmlinuz")),
    ];
    for image in &looked {
        match fs::File::open(image) {
            Ok(_) => {
                let modules = root.join("lib/modules").join(&release);
                let modules = modules.is_dir().then_some(modules);
                return Ok(Running { release, image: image.clone(), modules });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(KernelStoreError::RunningImageUnreadable { path: image.clone() });
            }
            Err(_) => {}
        }
    }
    Err(KernelStoreError::NoRunningImage { release, looked })
}

/// Check that the modules belong to the image.
pub(super) fn check_modules(folder: &Path, release: &str) -> Result<(), KernelStoreError> {
    let tree = ModuleTree::open(&folder.join("modules"))?;
    let Some(first) = tree.names().next().and_then(|name| tree.find(name)) else {
        return Ok(());
    };
    let vermagic = first.info()?.vermagic.unwrap_or_default();
    match vermagic.split_whitespace().next() {
        Some(modules_release) if modules_release != release => {
            Err(KernelStoreError::OtherModules {
                release: release.to_owned(),
                modules_release: modules_release.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// All regular files below a directory; links are ignored.
pub(super) fn files_under(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), KernelStoreError> {
    for entry in fs::read_dir(folder).map_err(read_failed(folder))? {
        let entry = entry.map_err(read_failed(folder))?;
        let kind = entry.file_type().map_err(read_failed(folder))?;
        if kind.is_dir() {
            files_under(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Create the directories of an entry and add the image, if needed also as a bzImage.
fn take_image(image: &Path, into: &Path) -> Result<Collected, KernelStoreError> {
    make_folder(&into.join("modules"))?;
    let collected = unpack_image(image, image, into)?;
    if collected.boot == BootForm::BzImage {
        copy(image, &into.join("vmlinuz"))?;
    }
    Ok(collected)
}

/// Write the unpacked form of an image, `named` in errors, since it may be in a package.
fn unpack_image(image: &Path, named: &Path, into: &Path) -> Result<Collected, KernelStoreError> {
    let kernel = KernelImage::open(image)
        .map_err(|source| KernelStoreError::Image { path: named.to_owned(), source })?;
    let target = into.join(unpacked_name(kernel.boot));
    fs::write(&target, &kernel.unpacked).map_err(write_failed(&target))?;
    Ok(Collected { arch: kernel.arch, release: kernel.release, boot: kernel.boot, package: None })
}

/// The file name of an image's unpacked form.
pub(super) fn unpacked_name(boot: BootForm) -> &'static str {
    match boot {
        BootForm::Elf | BootForm::BzImage => "vmlinux",
        BootForm::Raw => "Image",
    }
}

/// The module directory of a release, from this directory or a root that contains it.
fn modules_of(given: &Path, release: &str) -> PathBuf {
    let within = [given.join("lib/modules").join(release), given.join(release)];
    within.into_iter().find(|path| path.is_dir()).unwrap_or_else(|| given.to_owned())
}

fn copy_modules(from: &Path, into: &Path, cancel: &AtomicBool) -> Result<(), KernelStoreError> {
    let tree = ModuleTree::open(from)?;
    if tree.is_empty() {
        return Err(KernelStoreError::NoModules { path: from.to_owned() });
    }
    for module in tree.names().filter_map(|name| tree.find(name)) {
        go_on(cancel)?;
        let inner = module.path.strip_prefix(from).unwrap_or(&module.path);
        copy(&module.path, &into.join(inner))?;
    }
    copy_lists(from, into)
}

fn copy_lists(from: &Path, into: &Path) -> Result<(), KernelStoreError> {
    for list in LISTS {
        let path = from.join(list);
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
            copy(&path, &into.join(list))?;
        }
    }
    Ok(())
}

/// An error if cancelled.
pub(super) fn go_on(cancel: &AtomicBool) -> Result<(), KernelStoreError> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(KernelStoreError::Interrupted),
        false => Ok(()),
    }
}

fn make_folder(folder: &Path) -> Result<(), KernelStoreError> {
    fs::create_dir_all(folder).map_err(write_failed(folder))
}

fn copy(from: &Path, to: &Path) -> Result<(), KernelStoreError> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    // Opened separately, so that an error names the right file.
    let mut source = fs::File::open(from).map_err(read_failed(from))?;
    let mut target = fs::File::create(to).map_err(write_failed(to))?;
    io::copy(&mut source, &mut target).map_err(write_failed(to))?;
    Ok(())
}
