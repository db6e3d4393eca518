//! Prototypes of a guest's functions: of its kernel's and modules' by BTF, of a command's by the debug
//! information of its files. Also where functions were inlined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use netplumb_instruments::exact::{
    self, FIRST_USER_SYMBOL, InFile, Prototypes, Symbol, UserSymbol, Window,
};
use netplumb_kernel::btf::Btf;
use netplumb_kernel::image::KernelImage;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::modules::ModuleTree;
use netplumb_kernel::prototype::Prototype;
use netplumb_lab::bundle::{Bundle, Kind};
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::arch::Arch;
use netplumb_model::symbol::base_name;

use crate::debug_info;

/// Maximum time to read the debug information of a file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Types and debug information of a guest's functions.
pub(crate) struct GuestPrototypes<'a> {
    image: PathBuf,
    arch: Arch,
    /// Its image with debug information, if that was added.
    debug: Option<PathBuf>,
    /// Its types, read when they are needed.
    kernel: OnceLock<Option<Arc<Btf>>>,
    tree: ModuleTree,
    /// Types of modules that were looked up, by module.
    modules: Mutex<HashMap<String, Option<Arc<Btf>>>>,
    /// The command's files, and the paths of those with code.
    files: Option<(&'a Bundle, Vec<PathBuf>)>,
    cancel: &'a AtomicBool,
}

impl std::fmt::Debug for GuestPrototypes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestPrototypes").field("image", &self.image).finish_non_exhaustive()
    }
}

impl<'a> GuestPrototypes<'a> {
    /// The types of a kernel with these modules.
    pub(crate) fn new(
        kernel: &KernelEntry,
        tree: ModuleTree,
        cancel: &'a AtomicBool,
    ) -> GuestPrototypes<'a> {
        GuestPrototypes {
            image: kernel.boot_image(),
            arch: kernel.arch,
            debug: kernel.debug_vmlinux(),
            kernel: OnceLock::new(),
            tree,
            modules: Mutex::default(),
            files: None,
            cancel,
        }
    }

    /// The same with a command's files; `images` are the ones with code.
    pub(crate) fn with_files(self, bundle: &'a Bundle, images: &[PathBuf]) -> GuestPrototypes<'a> {
        GuestPrototypes { files: Some((bundle, images.to_vec())), ..self }
    }

    fn kernel(&self) -> Option<Arc<Btf>> {
        let found = self.kernel.get_or_init(|| {
            let image = KernelImage::open(&self.image).ok()?;
            image.btf().ok().map(Arc::new)
        });
        found.clone()
    }

    /// Whether the kernel has types.
    pub(crate) fn has_types(&self) -> bool {
        self.kernel().is_some()
    }

    /// Whether the kernel's types have a function of this name.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.kernel().is_some_and(|btf| btf.has_function(name))
    }

    /// The functions that a function was inlined into, as far as debug information shows: in the command's files, or
    /// the one named, and in the kernel.
    pub(crate) fn inlined_into(&self, file: Option<&str>, name: &str) -> BTreeSet<String> {
        let until = Instant::now() + PATIENCE;
        let go_on = || Instant::now() < until && !self.cancel.load(Ordering::Relaxed);
        let of = |bytes: &[u8]| exact::inlined_into(bytes, name, &go_on).unwrap_or_default();
        let mut found = BTreeSet::new();
        if let Some((bundle, paths)) = &self.files {
            for path in paths {
                let is = |file| is_file(bundle, path, file);
                let entry = bundle.entries().get(path).filter(|_| file.is_none_or(is));
                let bytes = entry.and_then(debug_info::with_debug);
                found.extend(bytes.iter().flat_map(|bytes| of(bytes)));
            }
        }
        if found.is_empty()
            && file.is_none()
            && let Ok(image) = KernelImage::open(&self.image)
        {
            match exact::has_lines(&image.unpacked) {
                true => found = of(&image.unpacked),
                false => {
                    let added = self.debug.as_ref().and_then(|path| fs::read(path).ok());
                    let debug =
                        added.or_else(|| exact::debug_file(Some(&self.image), &image.unpacked));
                    found.extend(debug.iter().flat_map(|bytes| of(bytes)));
                }
            }
        }
        found
    }

    /// Whether an image of the command's files is the one that is meant.
    pub(crate) fn is_file(&self, number: u32, file: &str) -> bool {
        self.files.as_ref().is_some_and(|(bundle, paths)| {
            let path = paths.get(number as usize);
            path.is_some_and(|path| is_file(bundle, path, file))
        })
    }

    fn module(&self, name: &str) -> Option<Arc<Btf>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let found = modules.entry(name.to_string()).or_insert_with(|| {
            let file = self.tree.find(name)?.read().ok()?;
            Btf::of_file(&file, self.kernel()).ok().map(Arc::new)
        });
        found.clone()
    }
}

/// Whether a file of the guest is meant: by its name or the end of its path there, or by its path on this
/// machine, however that is written.
fn is_file(bundle: &Bundle, path: &Path, file: &str) -> bool {
    let end = file.trim_start_matches("./");
    let host = match bundle.entries().get(path).map(|entry| &entry.kind) {
        Some(Kind::File { host, .. }) => Some(host),
        _ => None,
    };
    let real = |path: &Path| path.canonicalize().ok();
    let is_host =
        || host.is_some_and(|host| real(host).is_some() && real(host) == real(Path::new(file)));
    (!end.is_empty() && path.ends_with(end)) || (file.contains('/') && is_host())
}

impl Prototypes for GuestPrototypes<'_> {
    fn of_kernel(&self, symbol: &netplumb_kernel::symbol::Symbol) -> Option<Arc<Prototype>> {
        let btf = match &symbol.module {
            None => self.kernel(),
            Some(module) => self.module(module),
        }?;
        // The compiler changes the arguments of clones (constprop, isra).
        if base_name(&symbol.name) != symbol.name {
            return None;
        }
        let names = std::iter::once(&symbol.name).chain(&symbol.aliases);
        let found = names.into_iter().find_map(|name| btf.prototype(name, self.arch))?;
        Some(Arc::new(found))
    }

    fn of_programs(&self, functions: &[InFile]) -> Vec<(InFile, Arc<Prototype>)> {
        let Some((bundle, paths)) = &self.files else {
            return Vec::new();
        };
        let until = Instant::now() + PATIENCE;
        let go_on = || Instant::now() < until && !self.cancel.load(Ordering::Relaxed);
        let mut by_file: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (image, address) in functions {
            by_file.entry(*image).or_default().insert(*address);
        }
        let mut all = Vec::new();
        for (image, addresses) in by_file {
            let path = paths.get(image as usize);
            let Some(entry) = path.and_then(|path| bundle.entries().get(path)) else {
                continue;
            };
            let Some(file) = debug_info::with_debug(entry) else {
                continue;
            };
            // Without them, the calls are shown without arguments.
            let found = exact::prototypes(&file, &addresses, &go_on).unwrap_or_default();
            let found = found.into_iter();
            all.extend(found.map(|(address, of)| ((image, address), Arc::new(of))));
        }
        all
    }
}

/// The prototypes of all functions in the calls that were kept in windows.
pub(crate) fn of_calls<'w>(
    known: &dyn Prototypes,
    symbols: &SymbolTable,
    user: &[UserSymbol],
    windows: impl Iterator<Item = &'w Window>,
) -> BTreeMap<Symbol, Arc<Prototype>> {
    let traced = windows.filter_map(|window| window.traced.as_ref());
    let all: BTreeSet<Symbol> = traced.flat_map(|traced| traced.symbols()).collect();
    let mut found = BTreeMap::new();
    let mut in_files: BTreeMap<InFile, Symbol> = BTreeMap::new();
    for symbol in all {
        match symbol.checked_sub(FIRST_USER_SYMBOL) {
            None => {
                let of = symbols.symbols().get(symbol as usize);
                let of = of.and_then(|of| known.of_kernel(of));
                found.extend(of.map(|of| (symbol, of)));
            }
            Some(number) => {
                let of = user.get(number as usize);
                let of = of.filter(|of| of.size_bytes > 0);
                let of = of.and_then(|of| Some((of.image?, of.address)));
                in_files.extend(of.map(|of| (of, symbol)));
            }
        }
    }
    let functions: Vec<InFile> = in_files.keys().copied().collect();
    for (of, prototype) in known.of_programs(&functions) {
        found.extend(in_files.get(&of).map(|symbol| (*symbol, prototype)));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use netplumb_lab::bundle::Host;

    use super::*;

    /// Check that a file of the command is meant by its name, and by its path, however that is written.
    #[test]
    fn files_by_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().canonicalize().unwrap();
        let path = folder.join("program");
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(&path, "no program").unwrap();
        symlink("program", folder.join("link")).unwrap();
        let mut bundle = Bundle::new(Host::here().unwrap());
        bundle.add_with(&path, None).unwrap();
        let is = |file: &str| is_file(&bundle, &path, file);
        let of_folder = |rest: &str| folder.join(rest).display().to_string();
        assert!(is("program") && is("./program"));
        assert!(is(&of_folder("program")) && is(&of_folder("sub/../program")));
        assert!(is(&of_folder("link")));
        assert!(!is("gram") && !is("other/program") && !is("") && !is("./"));
        assert!(!is(&of_folder("sub/program")) && !is(&of_folder("sub")));
    }
}
