//! Looks up libraries as the dynamic loader does.

use std::fs;
use std::path::{Path, PathBuf};

use super::elf::{self, Needs};
use super::host::clean;
use super::loader::{self, Chain, Libraries, LibraryPath, Loader};
use super::{Bundle, BundleError, Missing};

impl Bundle {
    /// Add the libraries of the ELF file at `path`, recursively.
    pub(super) fn add_libraries_of(
        &mut self,
        path: &Path,
        chain: &Chain,
        libraries: Libraries,
    ) -> Result<(), BundleError> {
        let (place, _) = self.metadata(path)?;
        if !self.loaded.insert(place.clone()) {
            return Ok(());
        }
        let needs = elf::read(&self.host.real(&place), path, self.arch)?;
        // $ORIGIN of a program is its real path; of a library the path where it was found.
        let file = if needs.interpreter.is_some() { &place } else { path };
        let origin = file.parent().unwrap_or(Path::new("/")).to_path_buf();
        self.add_needed(&needs, path, &origin, chain, libraries)
    }

    pub(super) fn add_needed(
        &mut self,
        needs: &Needs,
        path: &Path,
        origin: &Path,
        above: &Chain,
        libraries: Libraries,
    ) -> Result<(), BundleError> {
        let mut loader = Loader::Glibc;
        if let Some(interpreter) = &needs.interpreter {
            loader = Loader::from_interpreter(interpreter);
            let at = clean(&self.host.absolute(Path::new(interpreter)));
            let found = match self.host_has(&at) {
                true => Some(LibraryPath::at(at)),
                false if self.is_brought(&at) => None,
                false => {
                    let found = self.of_cross_packages(&at);
                    Some(found.ok_or_else(|| BundleError::MissingLoader {
                        loader: interpreter.clone(),
                        needed_by: path.to_path_buf(),
                        arch: self.arch,
                    })?)
                }
            };
            if let Some(found) = found {
                self.add_found(&found)?;
            }
            let config = match loader {
                Loader::Glibc => loader::CACHE.into(),
                Loader::Musl => loader::musl_folders(self.arch),
            };
            if self.host_has(Path::new(&config)) {
                self.add_way_to_file(Path::new(&config))?;
            }
        }
        let expanded = |folders: &[String]| -> Vec<PathBuf> {
            let arch = self.arch;
            folders.iter().map(|f| loader::expand(f, origin, arch)).collect()
        };
        // DT_RUNPATH overrides DT_RPATH, both its own and its dependents'.
        let mut chain = Chain::default();
        if needs.runpath.is_empty() {
            chain.rpaths = expanded(&needs.rpath);
            chain.rpaths.extend(above.rpaths.iter().cloned());
        } else {
            chain.runpaths = expanded(&needs.runpath);
        }
        for name in &needs.libraries {
            let found = self.find_library(name, &chain, loader)?;
            if found.is_empty() {
                match libraries {
                    Libraries::Needed => {
                        return Err(BundleError::MissingLibrary {
                            library: name.clone(),
                            needed_by: path.to_path_buf(),
                            arch: self.arch,
                        });
                    }
                    Libraries::Noted => {
                        self.missing.insert(Missing {
                            library: name.clone(),
                            needed_by: path.to_path_buf(),
                        });
                        continue;
                    }
                }
            }
            // Its dependencies are searched in these DT_RPATHs.
            let below = Chain {
                rpaths: if needs.runpath.is_empty() {
                    chain.rpaths.clone()
                } else {
                    above.rpaths.clone()
                },
                runpaths: Vec::new(),
            };
            for library in &found {
                if self.is_brought(&library.at) {
                    continue; // With what it needs.
                }
                self.add_found(library)?;
                self.add_libraries_of(&library.from, &below, libraries)?;
            }
        }
        Ok(())
    }

    /// Add a library, with the links on the way to it.
    pub(super) fn add_found(&mut self, found: &LibraryPath) -> Result<(), BundleError> {
        if found.from == found.at {
            return self.add_way_to_file(&found.at);
        }
        let (place, file) = self.metadata(&found.from)?;
        let to = self.add_place(&found.at)?;
        self.add_plain(&place, &file, &to)
    }

    /// A path of a guest of another architecture, as a cross compiler's packages have it.
    fn of_cross_packages(&self, at: &Path) -> Option<LibraryPath> {
        let root = loader::cross_root(self.arch)?;
        let from = root.join(at.strip_prefix("/").unwrap_or(at));
        self.fits(&from).then(|| LibraryPath { at: at.to_path_buf(), from })
    }

    /// The library where the loader finds it: none, one, or several for CPUs with more features, since
    /// the guest's are not known here.
    pub(super) fn find_library(
        &mut self,
        name: &str,
        chain: &Chain,
        loader: Loader,
    ) -> Result<Vec<LibraryPath>, BundleError> {
        let found = self.on_this_machine(name, chain, loader);
        if !found.is_empty() || name.contains('/') {
            return Ok(found.into_iter().map(LibraryPath::at).collect());
        }
        let folders = loader.folders(self.arch, None).into_iter();
        let mut crossed = folders.filter_map(|folder| self.of_cross_packages(&folder.join(name)));
        Ok(crossed.next().into_iter().collect())
    }

    fn on_this_machine(&mut self, name: &str, chain: &Chain, loader: Loader) -> Vec<PathBuf> {
        if name.contains('/') {
            let path = clean(&self.host.absolute(Path::new(name)));
            return self.fits(&path).then_some(path).into_iter().collect();
        }
        for folder in chain.rpaths.iter().chain(&chain.runpaths) {
            let path = folder.join(name);
            if self.fits(&path) {
                return vec![path];
            }
        }
        if loader == Loader::Glibc {
            let paths: Vec<PathBuf> = self
                .cache()
                .iter()
                .filter(|(known, _)| known == name)
                .map(|(_, path)| path.clone())
                .collect();
            let paths: Vec<PathBuf> = paths.into_iter().filter(|p| self.fits(p)).collect();
            if !paths.is_empty() {
                return paths;
            }
        }
        let list = match loader {
            Loader::Glibc => None,
            Loader::Musl => {
                let list = loader::musl_folders(self.arch);
                fs::read_to_string(self.host.real(Path::new(&list))).ok()
            }
        };
        for folder in loader.folders(self.arch, list.as_deref()) {
            let path = folder.join(name);
            if self.fits(&path) {
                return vec![path];
            }
        }
        Vec::new()
    }

    fn cache(&mut self) -> &[(String, PathBuf)] {
        let (host, arch) = (&self.host, self.arch);
        self.cache.get_or_insert_with(|| {
            let bytes = host
                .walk(Path::new(loader::CACHE))
                .and_then(|(place, _)| fs::read(host.real(&place)));
            loader::cache_entries(&bytes.unwrap_or_default(), arch)
        })
    }

    /// Whether there is a library for the guest at a path: the loader continues if there is one for
    /// another machine.
    fn fits(&self, path: &Path) -> bool {
        if self.is_brought(path) {
            return true;
        }
        match self.host.metadata(path) {
            Ok((place, found)) if found.is_file() => !matches!(
                elf::read(&self.host.real(&place), path, self.arch),
                Err(BundleError::WrongArchitecture { .. } | BundleError::Damaged { .. })
            ),
            _ => false,
        }
    }
}
