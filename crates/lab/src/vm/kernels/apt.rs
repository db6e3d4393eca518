//! Debian's kernel packages, by apt-get: nothing is installed, and no privileges are needed.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::collect::go_on;
use super::error::{read_failed, write_failed};
use super::{KernelStoreError, Progress};
use crate::child::command;

const META_PACKAGE: &str = "linux-image-amd64";
const PREFIX: &str = "linux-image-";
const SUFFIX: &str = "-amd64";
/// Maximum number of other versions that an error lists.
const OFFERED_MAX: usize = 12;

/// A package in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) version: String,
    pub(crate) file: String,
    pub(crate) size_bytes: Option<u64>,
}

/// Flavours with a metapackage for their current kernel.
const FLAVOURS: [&str; 2] = ["rt", "cloud"];

/// The package of a version: `6.1.0-54`, with `-amd64` or without; of a flavour (`rt`), or the
/// newest of a series (`6.12`, `6.12-rt`).
pub(super) fn package_of(version: &str) -> Result<String, KernelStoreError> {
    let bare = version.strip_prefix(PREFIX).unwrap_or(version);
    let bare = bare.strip_suffix(SUFFIX).unwrap_or(bare);
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".+~-".contains(&byte);
    let begins = bare.starts_with(|first: char| first.is_ascii_digit()) || FLAVOURS.contains(&bare);
    if !begins || !bare.bytes().all(good) {
        return Err(KernelStoreError::BadVersion {
            version: version.to_owned(),
        });
    }
    Ok(format!("{PREFIX}{bare}{SUFFIX}"))
}

/// The source that gives this package.
pub(super) fn source_of(package: &str) -> String {
    let bare = package.strip_prefix(PREFIX).unwrap_or(package);
    format!("debian:{}", bare.strip_suffix(SUFFIX).unwrap_or(bare))
}

/// The package that contains a kernel: the given one or, for a metapackage, the one that it depends
/// on now. Without a name, Debian's current kernel.
pub(super) fn package_now(asked: Option<&str>) -> Result<String, KernelStoreError> {
    let package = asked.unwrap_or(META_PACKAGE);
    let output = run("apt-cache", &["depends", "--important", package])?;
    match (parse_depends(&output.text), asked) {
        (Some(package), _) => Ok(package),
        // A package with a kernel depends on no other.
        (None, Some(asked)) => Ok(asked.to_owned()),
        (None, None) => Err(KernelStoreError::NoPackage {
            package: package.to_owned(),
            offered: vec![],
        }),
    }
}

fn parse_depends(text: &str) -> Option<String> {
    dependencies(text)
        .find(|name| name.starts_with(PREFIX))
        .map(str::to_owned)
}

/// The current package of this name in the archive.
pub(super) fn offer(package: &str) -> Result<Offer, KernelStoreError> {
    match offer_as(package, package)? {
        Some(offer) => Ok(offer),
        None => Err(KernelStoreError::NoPackage {
            package: package.to_owned(),
            offered: offered(package),
        }),
    }
}

/// That version of a package, if the archive has it.
pub(crate) fn offer_of(package: &str, version: &str) -> Result<Option<Offer>, KernelStoreError> {
    offer_as(package, &format!("{package}={version}"))
}

fn offer_as(package: &str, asked: &str) -> Result<Option<Offer>, KernelStoreError> {
    let output = run("apt-get", &["--print-uris", "download", asked])?;
    let offer = output
        .text
        .lines()
        .find_map(|line| parse_uri(line, package));
    Ok(offer.filter(|_| output.good))
}

/// The packages that a version of one depends on.
pub(crate) fn depends(package: &str, version: &str) -> Result<Vec<String>, KernelStoreError> {
    let asked = format!("{package}={version}");
    let output = run("apt-cache", &["depends", "--important", &asked])?;
    Ok(dependencies(&output.text).map(str::to_owned).collect())
}

fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
}

/// A line such as `'http://...' linux-image-6.1.0-54-amd64_6.1.190-1_amd64.deb 70491372 SHA256:...`.
fn parse_uri(line: &str, package: &str) -> Option<Offer> {
    let mut words = line.split_whitespace();
    words.next().filter(|uri| uri.starts_with('\''))?;
    let file = words.next()?;
    let rest = file.strip_prefix(package)?.strip_prefix('_')?;
    let version = rest.rsplit_once('_')?.0;
    // A version with an epoch has its colon escaped in the file's name.
    let version = version.replace("%3a", ":");
    let size_bytes = words.next().and_then(|word| word.parse().ok());
    (!file.contains('/')).then(|| Offer {
        version,
        file: file.to_owned(),
        size_bytes,
    })
}

/// The versions in the archive, the most similar first; none if unknown.
fn offered(package: &str) -> Vec<String> {
    let Ok(output) = run(
        "apt-cache",
        &["search", "--names-only", "^linux-image-[0-9].*-amd64$"],
    ) else {
        return Vec::new();
    };
    let mut sources: Vec<String> = output
        .text
        .lines()
        .filter(|line| !line.contains("meta-package"))
        .filter_map(|line| line.split_whitespace().next())
        .map(source_of)
        .collect();
    let wanted = source_of(package);
    let alike = |have: &String| {
        have.bytes()
            .zip(wanted.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    sources.sort_by_cached_key(|have| (Reverse(alike(have)), have.len(), have.clone()));
    sources.dedup();
    sources.truncate(OFFERED_MAX);
    sources
}

/// Fetches the package into the folder; apt checks its hash.
pub(crate) fn download(
    package: &str,
    offer: &Offer,
    folder: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, KernelStoreError> {
    let log = folder.join("apt.log");
    let output = File::create(&log).map_err(write_failed(&log))?;
    let errors = output.try_clone().map_err(write_failed(&log))?;
    // Exactly that version, in case the lists are updated meanwhile.
    let wanted = format!("{package}={}", offer.version);
    let mut child = command("apt-get")
        .args(["--quiet=2", "download", &wanted])
        .current_dir(folder)
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|source| KernelStoreError::NoApt {
            program: "apt-get",
            source,
        })?;
    let target = folder.join(&offer.file);
    let status = loop {
        if let Err(interrupted) = go_on(cancel) {
            // It may have exited: a terminal also sends it the signal.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted);
        }
        let done_bytes = fs::metadata(&target).map_or(0, |metadata| metadata.len());
        progress(Progress::Fetching {
            package: package.to_owned(),
            done_bytes,
            total_bytes: offer.size_bytes,
        });
        match child.try_wait().map_err(read_failed(&log))? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    if status.success() && target.is_file() {
        return Ok(target);
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    let output = match last_error(&text) {
        "" => status.to_string(),
        line => line.to_owned(),
    };
    Err(KernelStoreError::Fetch {
        package: package.to_owned(),
        output,
    })
}

/// The line with the error.
fn last_error(text: &str) -> &str {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .find(|line| line.starts_with("E:"))
        .or_else(|| lines().next_back())
        .unwrap_or_default()
}

struct Output {
    good: bool,
    text: String,
}

fn run(program: &'static str, args: &[&str]) -> Result<Output, KernelStoreError> {
    let output = command(program)
        .args(args)
        .output()
        .map_err(|source| KernelStoreError::NoApt { program, source })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Output {
        good: output.status.success(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are accepted with and without suffix, and that options and patterns of
    /// apt are refused.
    #[test]
    fn packages() {
        for version in ["6.1.0-54", "6.1.0-54-amd64", "linux-image-6.1.0-54-amd64"] {
            assert_eq!(package_of(version).unwrap(), "linux-image-6.1.0-54-amd64");
        }
        assert_eq!(
            package_of("6.1.0-54-cloud").unwrap(),
            "linux-image-6.1.0-54-cloud-amd64"
        );
        for (asked, package) in [
            ("rt", "linux-image-rt-amd64"),
            ("cloud", "linux-image-cloud-amd64"),
            ("6.12-rt", "linux-image-6.12-rt-amd64"),
        ] {
            assert_eq!(package_of(asked).unwrap(), package);
            assert_eq!(source_of(package), format!("debian:{asked}"));
        }
        assert_eq!(source_of("linux-image-6.1.0-54-amd64"), "debian:6.1.0-54");
        for bad in ["", "-o=x", "6.1*", "6.1 x", "six", "6/../x"] {
            assert!(
                matches!(package_of(bad), Err(KernelStoreError::BadVersion { .. })),
                "{bad}"
            );
        }
    }

    /// Check the parsing of apt's output.
    #[test]
    fn apt_output() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(
            parse_depends(text).as_deref(),
            Some("linux-image-6.1.0-56-amd64")
        );
        assert_eq!(parse_depends("linux-image-amd64\n"), None);
        let line = "'http://deb.debian.org/x_6.1.190-1_amd64.deb' \
                    linux-image-6.1.0-54-amd64_6.1.190-1_amd64.deb 70491372 SHA256:d788";
        let offer = parse_uri(line, "linux-image-6.1.0-54-amd64").unwrap();
        assert_eq!(
            (offer.version.as_str(), offer.size_bytes),
            ("6.1.190-1", Some(70_491_372))
        );
        assert_eq!(parse_uri("E: Unable to locate package x", "x"), None);
        assert_eq!(
            last_error("W: unsandboxed\nE: 404 not found\n"),
            "E: 404 not found"
        );
    }
}
