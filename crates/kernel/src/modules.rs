//! Kernel modules in a directory: their names, dependencies and load order.
//!
//! Everything is read from the modules themselves (their `.modinfo` section) and from the lists
//! that the kernel's build leaves beside them (`modules.builtin`, `modules.builtin.modinfo`), so
//! a tree straight out of a package or a build works without `depmod`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::compression::{self, UnpackError};
use crate::modinfo::{self, ModuleInfo};

/// The largest module that is read: a big driver with all of its debugging data is under this.
const MODULE_MAX_BYTES: u64 = 1 << 30;
/// The largest list file that is read.
const LIST_MAX_BYTES: u64 = 64 << 20;
/// Maximum depth of directories.
const DEPTH_MAX: usize = 32;
/// Maximum number of names that an error suggests.
const SUGGESTIONS_MAX: usize = 3;

/// Why modules could not be listed, ordered or read.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The directory or a file in it could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The tree has no modules at all.
    #[error(
        "kernel module {name:?} is needed, and the kernel was added without modules: add its image with \
         --modules DIR, like /lib/modules/RELEASE"
    )]
    None {
        /// The given name.
        name: String,
    },
    /// The tree has no module of this name.
    #[error("no kernel module {name:?} in {}{}{}", root.display(), wanted_text(wanted_by), near_text(near))]
    Missing {
        /// The given name.
        name: String,
        /// The chain of modules that depend on it, the direct one last; empty if the caller
        /// requested it.
        wanted_by: Vec<String>,
        /// Similar names of existing modules.
        near: Vec<String>,
        /// The directory that was searched.
        root: PathBuf,
    },
    /// A circular dependency.
    #[error("circular dependency of kernel modules: {}", names.join(" needs "))]
    Circle {
        /// The circle, which begins and ends with the same name.
        names: Vec<String>,
    },
    /// The file can't be unpacked.
    #[error("cannot unpack {}: {source}; copy the module again from its source", path.display())]
    Unpack {
        /// The module's file.
        path: PathBuf,
        /// What went wrong.
        source: UnpackError,
    },
    /// The file is a module, but not for this kernel.
    #[error("the module {} can't be used: {reason}", path.display())]
    WrongModule {
        /// The module's file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The unpacked file is not a module.
    #[error("{} is not a kernel module: {reason}; copy it again from its source", path.display())]
    NotAModule {
        /// The module's file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

fn wanted_text(wanted_by: &[String]) -> String {
    match wanted_by {
        [] => String::new(),
        chain => chain.iter().rev().map(|name| format!(", needed by {name}")).collect(),
    }
}

fn near_text(near: &[String]) -> String {
    match near {
        [] => "; is it built for this kernel?".to_owned(),
        [one] => format!("; a similar name is {one}"),
        several => format!("; similar names are {}", several.join(", ")),
    }
}

/// One module to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFile {
    /// Its name as the kernel shows it, with `_` for every `-`.
    pub name: String,
    /// Its file, perhaps compressed.
    pub path: PathBuf,
    /// Whether it is required. A soft dependency may fail to load, as with `modprobe`:
    /// `crc32c_intel` does on a CPU without the instruction.
    pub required: bool,
}

/// The answer to the kernel's request for a module (`request_module`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The module's name and aliases.
    pub names: Vec<String>,
    /// The module with what it needs, in load order.
    pub modules: Vec<ModuleFile>,
}

impl ModuleFile {
    /// The module's ELF bytes, unpacked.
    pub fn read(&self) -> Result<Vec<u8>, ModuleError> {
        let path = &self.path;
        let data = read_bounded(path, MODULE_MAX_BYTES)?;
        match compression::sniff(&data) {
            None => Ok(data),
            Some(form) => compression::unpack(form, &data, MODULE_MAX_BYTES)
                .map_err(|source| ModuleError::Unpack { path: path.clone(), source }),
        }
    }

    /// The module's information.
    pub fn info(&self) -> Result<ModuleInfo, ModuleError> {
        modinfo::read(&self.read()?)
            .map_err(|reason| ModuleError::NotAModule { path: self.path.clone(), reason })
    }
}

/// The modules of one kernel.
#[derive(Debug, Clone)]
pub struct ModuleTree {
    root: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    builtin_aliases: BTreeSet<String>,
}

impl ModuleTree {
    /// Lists the modules under `root`, such as `/lib/modules/RELEASE` of an installed system.
    ///
    /// Symbolic links are not followed, so nothing outside of the folder is ever read. A module
    /// under `updates/` goes before one of the same name elsewhere, as with `depmod`.
    pub fn open(root: &Path) -> Result<Self, ModuleError> {
        let mut files = BTreeMap::new();
        walk(root, root, 0, &mut files)?;
        let builtin = read_list(&root.join("modules.builtin"))?;
        let builtin = String::from_utf8_lossy(&builtin)
            .lines()
            .filter_map(|line| module_name(Path::new(line.trim())))
            .collect();
        let builtin_aliases = read_list(&root.join("modules.builtin.modinfo"))?;
        let builtin_aliases = modinfo::builtin_aliases(&builtin_aliases);
        Ok(Self { root: root.to_owned(), files, builtin, builtin_aliases })
    }

    /// Puts a file in the place of the module that it names in its `.modinfo` (or else by its file's name), or beside
    /// the others if the name is new; the name is returned. `release` is the kernel's, which the module has to be built
    /// for.
    pub fn replace(&mut self, path: &Path, release: &str) -> Result<String, ModuleError> {
        let refuse = |reason: String| ModuleError::WrongModule { path: path.to_owned(), reason };
        let of_file = module_name(path).ok_or_else(|| {
            refuse("its name does not end in .ko, .ko.xz, .ko.zst or .ko.gz".into())
        })?;
        let mut file = ModuleFile { name: of_file, path: path.to_owned(), required: true };
        let info = file.info()?;
        // Two builds of one module have files of two names.
        if let Some(name) = info.name {
            file.name = name;
        }
        let name = file.name;
        if self.builtin.contains(&name) {
            return Err(refuse(format!(
                "{name} is built into this kernel, and can't be replaced by a module"
            )));
        }
        let vermagic = info.vermagic.unwrap_or_default();
        let built_for = vermagic.split_whitespace().next().unwrap_or_default();
        if built_for != release {
            return Err(refuse(format!(
                "it is built for kernel {}, not {release}; build it with the headers of \
                 {release}",
                if built_for.is_empty() { "(none named)" } else { built_for }
            )));
        }
        let of_kernel = self.flags_beside(&name)?;
        let flags: Vec<&str> = vermagic.split_whitespace().skip(1).collect();
        if let Some(of_kernel) = of_kernel.filter(|of_kernel| *of_kernel != flags) {
            let as_text = |flags: &[String]| match flags {
                [] => "(none)".to_owned(),
                flags => flags.join(" "),
            };
            let flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
            return Err(refuse(format!(
                "it is built for another configuration of {release}: its flags are `{}`, those \
                 of the kernel's modules `{}`; build it with the headers of exactly this kernel \
                 (`plumb module build`)",
                as_text(&flags),
                as_text(&of_kernel)
            )));
        }
        self.files.insert(name.clone(), path.to_owned());
        Ok(name)
    }

    /// The part of `vermagic=` after the release in the kernel's own modules: of the module of that name, or of any.
    /// The kernel compares it whole, or with versions of symbols this part of it (`check_modinfo`, `same_magic`). None
    /// if no module has it.
    fn flags_beside(&self, name: &str) -> Result<Option<Vec<String>>, ModuleError> {
        let Some(file) = self.find(name).or_else(|| self.find(self.files.keys().next()?)) else {
            return Ok(None);
        };
        let vermagic = file.info()?.vermagic;
        Ok(vermagic.map(|text| {
            let words = text.split_whitespace().skip(1);
            words.map(str::to_owned).collect()
        }))
    }

    /// The directory that was listed.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The number of loadable modules.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it lacks loadable modules.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The names of all loadable modules, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Whether the kernel itself contains the module, so that there is nothing to load.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.builtin.contains(&canonical(name))
    }

    /// The loadable module of that name.
    pub fn find(&self, name: &str) -> Option<ModuleFile> {
        let name = canonical(name);
        let path = self.files.get(&name)?.clone();
        Some(ModuleFile { name, path, required: true })
    }

    /// The loadable module of that name, or an error that suggests others.
    pub fn require(&self, name: &str) -> Result<ModuleFile, ModuleError> {
        self.find(name).ok_or_else(|| self.missing(name, Vec::new()))
    }

    fn missing(&self, name: &str, wanted_by: Vec<String>) -> ModuleError {
        if self.is_empty() {
            return ModuleError::None { name: name.to_owned() };
        }
        ModuleError::Missing {
            name: name.to_owned(),
            wanted_by,
            near: self.near(name),
            root: self.root.clone(),
        }
    }

    /// The modules to load, in order, so that each finds what it needs: dependencies first, otherwise in the requested
    /// order, each once.
    ///
    /// Built-in ones are left out. Dependencies are the modules in `depends=`, which must exist, and in `softdep=pre:`,
    /// which may be missing.
    pub fn resolve(&self, wanted: &[&str]) -> Result<Vec<ModuleFile>, ModuleError> {
        let mut resolver = Resolver::new(self);
        for name in wanted {
            resolver.visit(&canonical(name), true)?;
        }
        Ok(resolver.order)
    }

    /// The answers to requests for the modules whose path below the root is wanted. Those whose dependencies are missing
    /// are left out.
    ///
    /// # Errors
    /// A module can't be read.
    pub fn answers(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Answer>, ModuleError> {
        let is_inside = |path: &Path| {
            let below = path.strip_prefix(&self.root).unwrap_or(path);
            below.to_str().is_some_and(&is_wanted)
        };
        let mut resolver = Resolver::new(self);
        let mut answers = Vec::new();
        for name in self.files.iter().filter(|(_, path)| is_inside(path)).map(|(name, _)| name) {
            resolver.begin();
            match resolver.visit(name, true) {
                Ok(()) => {}
                Err(ModuleError::Missing { .. } | ModuleError::Circle { .. }) => continue,
                Err(error) => return Err(error),
            }
            let aliases = resolver.infos.get(name).map(|info| info.aliases.clone());
            let mut names = vec![name.clone()];
            names.extend(aliases.into_iter().flatten().map(|alias| canonical(&alias)));
            answers.push(Answer { names, modules: std::mem::take(&mut resolver.order) });
        }
        Ok(answers)
    }

    /// Names similar to `name`, the most similar first.
    fn near(&self, name: &str) -> Vec<String> {
        let mut scored: Vec<(f64, &String)> = self
            .files
            .keys()
            .map(|have| (strsim::jaro_winkler(name, have), have))
            .filter(|&(score, _)| score > 0.8)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        scored.into_iter().take(SUGGESTIONS_MAX).map(|(_, have)| have.clone()).collect()
    }
}

/// One call of [`ModuleTree::resolve`]: a walk that emits a module after all that it needs.
struct Resolver<'a> {
    tree: &'a ModuleTree,
    infos: HashMap<String, ModuleInfo>,
    /// Where in `order` each emitted module is.
    position: HashMap<String, usize>,
    /// The modules being visited, the outermost first.
    chain: Vec<String>,
    order: Vec<ModuleFile>,
}

impl<'a> Resolver<'a> {
    fn new(tree: &'a ModuleTree) -> Resolver<'a> {
        Resolver {
            tree,
            infos: HashMap::new(),
            position: HashMap::new(),
            chain: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Begin again, with the known modules.
    fn begin(&mut self) {
        self.position.clear();
        self.chain.clear();
        self.order.clear();
    }
}

impl Resolver<'_> {
    fn visit(&mut self, name: &str, required: bool) -> Result<(), ModuleError> {
        if let Some(&at) = self.position.get(name) {
            if required && !self.order[at].required {
                self.require(name)?;
            }
            return Ok(());
        }
        let Some(file) = self.tree.find(name) else {
            if self.tree.is_builtin(name) {
                return Ok(());
            }
            return Err(self.tree.missing(name, self.chain.clone()));
        };
        if let Some(at) = self.chain.iter().position(|open| open == name) {
            let mut names = self.chain[at..].to_vec();
            names.push(name.to_owned());
            return Err(ModuleError::Circle { names });
        }

        let info = self.info(&file)?;
        self.chain.push(name.to_owned());
        for soft in &info.soft_before {
            for found in self.soft_targets(soft)? {
                // A soft dependency on a module that is being loaded anyhow asks for nothing.
                if self.chain.contains(&found) {
                    continue;
                }
                let (length, depth) = (self.order.len(), self.chain.len());
                if self.visit(&found, false).is_err() {
                    // Modules that an incomplete soft dependency has added are dropped.
                    self.chain.truncate(depth);
                    for dropped in self.order.drain(length..) {
                        self.position.remove(&dropped.name);
                    }
                }
            }
        }
        for needed in &info.depends {
            self.visit(&canonical(needed), required)?;
        }
        self.chain.pop();
        self.position.insert(name.to_owned(), self.order.len());
        self.order.push(ModuleFile { required, ..file });
        Ok(())
    }

    /// Marks a module that came in softly, and all that it depends on, as required.
    fn require(&mut self, name: &str) -> Result<(), ModuleError> {
        let Some(&at) = self.position.get(name) else {
            return Ok(());
        };
        if self.order[at].required {
            return Ok(());
        }
        self.order[at].required = true;
        let file = self.order[at].clone();
        for needed in self.info(&file)?.depends {
            self.require(&canonical(&needed))?;
        }
        Ok(())
    }

    fn info(&mut self, file: &ModuleFile) -> Result<ModuleInfo, ModuleError> {
        if let Some(info) = self.infos.get(&file.name) {
            return Ok(info.clone());
        }
        let info = file.info()?;
        self.infos.insert(file.name.clone(), info.clone());
        Ok(info)
    }

    /// The modules that a soft dependency stands for: one by that name, or those that claim it
    /// as an alias, as `crc32c_generic` claims `crc32c`.
    ///
    /// Without `depmod` aliases have no index, and reading every module for one costs seconds, so only modules whose
    /// name begins with the alias are tried.
    fn soft_targets(&mut self, alias: &str) -> Result<Vec<String>, ModuleError> {
        let name = canonical(alias);
        if self.tree.files.contains_key(&name) {
            return Ok(vec![name]);
        }
        if self.tree.builtin.contains(&name) || self.tree.builtin_aliases.contains(alias) {
            return Ok(Vec::new());
        }
        let stem = name.rsplit_once(':').map_or(name.as_str(), |(_, stem)| stem);
        let stem = stem.strip_prefix("crypto_").unwrap_or(stem).to_owned();
        let tree = self.tree;
        let mut found = Vec::new();
        for candidate in tree.files.range(stem.clone()..).map(|(name, _)| name) {
            if !candidate.starts_with(&stem) {
                break;
            }
            let Some(file) = tree.find(candidate) else {
                continue;
            };
            if self.info(&file)?.aliases.iter().any(|have| have == alias) {
                found.push(candidate.clone());
            }
        }
        Ok(found)
    }
}

/// The kernel's own spelling of a module's name.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The module's name, if the file is named as a module's.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().find_map(|e| name.strip_suffix(e))?;
    (!stem.is_empty()).then(|| canonical(stem))
}

fn walk(
    root: &Path,
    folder: &Path,
    depth: usize,
    files: &mut BTreeMap<String, PathBuf>,
) -> Result<(), ModuleError> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    let failed = |source| ModuleError::Read { path: folder.to_owned(), source };
    let mut entries: Vec<fs::DirEntry> =
        fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(root, &path, depth + 1, files)?;
        } else if kind.is_file()
            && let Some(name) = module_name(&path)
        {
            let is_update = |path: &Path| path.starts_with(root.join("updates"));
            let better = is_update(&path);
            if files.get(&name).is_none_or(|have| better && !is_update(have)) {
                files.insert(name, path);
            }
        }
    }
    Ok(())
}

fn read_bounded(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ModuleError> {
    let failed = |source| ModuleError::Read { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    if size_bytes > limit_bytes {
        let reason = format!("it is {size_bytes} bytes, more than the {limit_bytes} allowed");
        return Err(ModuleError::NotAModule { path: path.to_owned(), reason });
    }
    let mut data = Vec::with_capacity(size_bytes as usize);
    file.take(limit_bytes).read_to_end(&mut data).map_err(failed)?;
    Ok(data)
}

/// A list file's bytes; none if the file is missing.
fn read_list(path: &Path) -> Result<Vec<u8>, ModuleError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => read_bounded(path, LIST_MAX_BYTES),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
