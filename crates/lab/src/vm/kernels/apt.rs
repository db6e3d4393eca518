//! Debian's archive, by apt: nothing is installed, and no privileges are needed.
//!
//! For this machine's architecture, its own package lists are used, as long as these serve. Where they don't, and for
//! other architectures, there are lists in the cache directory, from the same sources: neither apt's lists nor dpkg's
//! architectures are changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use netplumb_kernel::deb::{Dependency, distance};
use netplumb_model::arch::Arch;

use super::asked::{DebianRequest, PREFIX, sort_offered};
use super::collect::go_on;
use super::error::{MissingPackage, elsewhere};
use super::lists::{Lists, REFRESH_AFTER, REFRESH_AGAIN_AFTER};
use super::offer::{self, Offer};
use super::program::wait;
use super::{KernelStoreError, Progress};
use crate::child::command;

/// How many kernels are checked for a substitute.
const TRIED_MAX: usize = 8;

/// The archive, as it is asked for one purpose.
pub(crate) struct Archive<'a> {
    cache: &'a Path,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Progress),
    is_fresh: bool,
}

/// Query the archive by this machine's package lists and, if they lack a package or it is gone, again by lists just
/// fetched into the cache directory.
pub(crate) fn ask<T>(
    cache: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
    mut work: impl FnMut(&mut Archive<'_>) -> Result<T, KernelStoreError>,
) -> Result<T, KernelStoreError> {
    let mut archive = Archive { cache, cancel, progress, is_fresh: false };
    let asked = work(&mut archive);
    // Ctrl-C on a terminal also interrupts apt.
    go_on(cancel)?;
    let error = match asked {
        Err(error) if error.may_be_outdated() => error,
        asked => return asked,
    };
    archive.is_fresh = true;
    let asked = work(&mut archive);
    go_on(cancel)?;
    match asked {
        Err(KernelStoreError::NoLists { output, .. }) => Err(error.by_old_lists(output)),
        asked => asked,
    }
}

impl Archive<'_> {
    /// Whether the lists are current.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// apt for packages of an architecture.
    pub(crate) fn apt(&mut self, arch: Arch) -> Result<Apt, KernelStoreError> {
        let needs_own = arch != Arch::OWN || self.is_fresh;
        let lists = needs_own.then(|| Lists::below(self.cache, arch));
        if let Some(lists) = &lists {
            let age = match self.is_fresh {
                true => REFRESH_AGAIN_AFTER,
                false => REFRESH_AFTER,
            };
            lists.refresh(age, self.cancel, self.progress)?;
        }
        Ok(Apt { arch, lists })
    }

    /// Fetch packages into the folder, shown as `title`; apt checks their hashes.
    pub(crate) fn download(
        &mut self,
        apt: &Apt,
        title: &str,
        offers: &[Offer],
        folder: &Path,
    ) -> Result<(), KernelStoreError> {
        let mut command = apt.command("apt-get");
        command.args(["--quiet=2", "download"]).current_dir(folder);
        let named = offers.iter().map(|o| format!("{}={}", o.package, o.version));
        command.args(named);
        let files: Vec<PathBuf> = offers.iter().map(|o| folder.join(o.file())).collect();
        let sizes: Option<Vec<u64>> = offers.iter().map(|offer| offer.size_bytes).collect();
        let total_bytes = sizes.map(|sizes| sizes.iter().sum());
        let failure = wait(command, &folder.join("apt.log"), self.cancel, &mut || {
            let done = files.iter().filter_map(|file| fs::metadata(file).ok());
            (self.progress)(Progress::Fetching {
                package: title.to_owned(),
                done_bytes: done.map(|metadata| metadata.len()).sum(),
                total_bytes,
            });
        })?;
        match failure {
            None if files.iter().all(|file| file.is_file()) => Ok(()),
            failure => Err(KernelStoreError::Fetch {
                package: title.to_owned(),
                output: failure.unwrap_or_else(|| "it fetched no file".to_owned()),
            }),
        }
    }
}

/// apt's lists of an architecture.
#[derive(Debug)]
pub(crate) struct Apt {
    arch: Arch,
    /// Lists of our own, instead of this machine's.
    lists: Option<Lists>,
}

impl Apt {
    /// Where lists of our own are.
    pub(crate) fn folder(arch: Arch, cache: &Path) -> PathBuf {
        Lists::folder(cache, arch)
    }

    /// The package with the requested kernel: by name, by a metapackage's dependency, or the newest of the flavour or
    /// series where the dependency doesn't lead to one.
    pub(super) fn image(&self, asked: &DebianRequest) -> Result<Offer, KernelStoreError> {
        let package = asked.package();
        let mut wanted = asked.clone();
        if let Some(found) = self.candidate(&package)? {
            let mut needed = found.depends.iter().flatten();
            let Some(kernel) = needed.find(|needed| needed.package.starts_with(PREFIX)) else {
                // A package with a kernel depends on no other.
                return Ok(found);
            };
            if let Some(offer) = self.candidate(&kernel.package)? {
                return Ok(offer);
            }
            wanted = DebianRequest::of_package(&kernel.package, self.arch).series();
        }
        let images = self.images(&package)?;
        let mut newest = images.iter().filter(|image| wanted.is_newest() && wanted.includes(image));
        let newest = newest.next().map(|image| self.candidate(&image.package()));
        if let Some(offer) = newest.transpose()?.flatten() {
            return Ok(offer);
        }
        let there: Vec<String> = images.iter().map(DebianRequest::source).collect();
        // Another distribution's archive has none.
        let remedy = match there.first() {
            Some(first) => format!("`plumb kernel add {first}`"),
            None => elsewhere(self.arch),
        };
        Err(self.missing(&Dependency::on(&package), there, Some(remedy)))
    }

    /// The current version of a package, if there is one.
    pub(crate) fn candidate(&self, package: &str) -> Result<Option<Offer>, KernelStoreError> {
        let mut found = self.show(&["--no-all-versions"], &[package])?.into_iter();
        Ok(found.find(|offer| offer.package == package))
    }

    /// The same, where there should be one.
    pub(crate) fn current(&self, package: &str) -> Result<Offer, KernelStoreError> {
        let missing = || self.missing(&Dependency::on(package), Vec::new(), None);
        self.candidate(package)?.ok_or_else(missing)
    }

    /// Of the acceptable versions of a package, the nearest to the given one.
    pub(crate) fn nearest(
        &self,
        wanted: &Dependency,
        version: &str,
    ) -> Result<Offer, KernelStoreError> {
        let mut offers = self.show(&[], &[&wanted.package])?;
        offers.retain(|offer| offer.package == wanted.package);
        let allowed = offers.iter().filter(|offer| wanted.allows(&offer.version));
        match allowed.min_by_key(|offer| distance(&offer.version, version)) {
            Some(nearest) => Ok(nearest.clone()),
            None => Err(self.missing(wanted, offer::versions(&offers), None)),
        }
    }

    /// A package, and the libraries that it needs, and those that they need.
    pub(crate) fn with_libraries(&self, package: Offer) -> Result<Vec<Offer>, KernelStoreError> {
        let mut found = vec![package];
        let mut from = 0;
        while from < found.len() {
            let needed: Vec<Dependency> = (found[from..].iter())
                .flat_map(|offer| offer.depends.iter().flatten())
                .filter(|needed| found.iter().all(|offer| offer.package != needed.package))
                .cloned()
                .collect();
            from = found.len();
            let names: Vec<&str> = needed.iter().map(|needed| needed.package.as_str()).collect();
            if names.is_empty() {
                break;
            }
            // Virtual packages have no entry.
            for offer in self.show(&["--no-all-versions"], &names)? {
                let new = found.iter().all(|known| known.package != offer.package);
                if !new || !offer.is_library() {
                    continue;
                }
                // The candidate has another source, or is newer than its dependent.
                let refusing = needed.iter().find(|needed| {
                    needed.package == offer.package && !needed.allows(&offer.version)
                });
                found.push(match refusing {
                    Some(needed) => self.nearest(needed, &offer.version)?,
                    None => offer,
                });
            }
        }
        Ok(found)
    }

    /// The kernels in the archive, sorted by similarity to the package's, then the newest first.
    fn images(&self, package: &str) -> Result<Vec<DebianRequest>, KernelStoreError> {
        let pattern = format!("^{PREFIX}[0-9].*-{}$", self.arch.debian());
        let output = self.run("apt-cache", &["search", "--names-only", &pattern])?;
        let names = output.lines().filter_map(|line| line.split_whitespace().next());
        let mut images: Vec<DebianRequest> = names
            .map(|name| DebianRequest::of_package(name, self.arch))
            .filter(|image| !image.is_newest())
            .collect();
        sort_offered(&mut images, &DebianRequest::of_package(package, self.arch));
        Ok(images)
    }

    /// The kernel in the archive that is most similar to the package's, among those whose offer passes `check`.
    pub(crate) fn image_with(
        &self,
        package: &str,
        check: impl Fn(&Offer) -> Result<(), KernelStoreError>,
    ) -> Option<(DebianRequest, Offer)> {
        let images = self.images(package).ok()?.into_iter().take(TRIED_MAX);
        let mut offered = images.filter_map(|image| {
            let offer = self.candidate(&image.package()).ok()??;
            Some((image, offer))
        });
        offered.find(|(_, offer)| check(offer).is_ok())
    }

    fn missing(
        &self,
        wanted: &Dependency,
        there: Vec<String>,
        remedy: Option<String>,
    ) -> KernelStoreError {
        KernelStoreError::Missing(Box::new(MissingPackage {
            wanted: wanted.to_string(),
            arch: (self.arch != Arch::OWN).then_some(self.arch),
            there,
            remedy,
            no_newer_lists: None,
        }))
    }

    fn show(&self, options: &[&str], packages: &[&str]) -> Result<Vec<Offer>, KernelStoreError> {
        let words: Vec<&str> = [&["show"], options, packages].concat();
        Ok(Offer::parse_all(&self.run("apt-cache", &words)?, self.arch))
    }

    fn command(&self, program: &'static str) -> Command {
        let mut command = command(program);
        if let Some(lists) = &self.lists {
            command.arg("-c").arg(lists.config());
        }
        command
    }

    /// Its output; empty for unknown packages.
    fn run(&self, program: &'static str, args: &[&str]) -> Result<String, KernelStoreError> {
        let output = self.command(program).args(args).output();
        let output = output.map_err(|source| KernelStoreError::NoApt { program, source })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
