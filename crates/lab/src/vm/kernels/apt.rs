//! Debian's kernel packages, by apt-get: nothing is installed, and no privileges are needed.
//!
//! Packages of this machine's architecture are those of its own lists. For another one there are lists
//! in the cache directory, from the same sources: neither apt's lists nor dpkg's architectures are
//! changed.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netplumb_model::arch::Arch;

use super::collect::go_on;
use super::error::{read_failed, write_failed};
use super::lists::{Lists, REFRESH_AFTER, REFRESH_AGAIN_AFTER};
use super::{KernelStoreError, Progress};
use crate::child::command;

const PREFIX: &str = "linux-image-";
/// Maximum number of other versions that an error lists.
const OFFERED_MAX: usize = 12;

/// Sort what is offered: the longer a version begins as the wanted one does the better, then those of its flavour,
/// then the newest.
fn sort_offered(sources: &mut Vec<String>, wanted: &str) {
    // A backport's `+deb12` is no flavour.
    let plain = |source: &str| source.replace("+deb", "~");
    let numbers = |source: &str| -> Vec<u32> {
        let parts = source.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    let letters = |source: &str| source.replace(|c: char| !c.is_alphabetic(), "");
    let (of_wanted, flavour) = (numbers(wanted), letters(wanted));
    sources.sort_by_cached_key(|source| {
        let (source, of_source) = (plain(source), numbers(source));
        let pairs = of_source.iter().zip(&of_wanted);
        let alike = pairs.take_while(|(a, b)| a == b).count();
        (
            Reverse(alike),
            letters(&source) != flavour,
            Reverse(of_source),
        )
    });
    sources.dedup();
}

/// A package in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) version: String,
    pub(crate) file: String,
    pub(crate) size_bytes: Option<u64>,
}

/// Flavours with a metapackage for their current kernel.
const FLAVOURS: [&str; 2] = ["rt", "cloud"];

/// How Debian's kernels of arm64 with larger pages end, and the size of these in KiB.
const LARGE_PAGES: [(&str, &str); 2] = [("-16k", "16"), ("-64k", "64")];

/// What is asked for by `debian:...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) arch: Arch,
    /// The version, flavour or series; none for the current kernel.
    version: Option<String>,
}

impl Asked {
    /// What comes after `debian:`: a version (`6.1.0-54`), a flavour (`rt`), or the newest of a series
    /// (`6.12`, `6.12-rt`); each with `:arm64` or `-arm64` for another architecture than this
    /// machine's, or that alone.
    pub(super) fn parse(text: &str) -> Result<Self, KernelStoreError> {
        let bad = || KernelStoreError::BadVersion {
            version: text.to_owned(),
        };
        let bare = text.strip_prefix(PREFIX).unwrap_or(text);
        let (bare, named) = match bare.rsplit_once(':') {
            Some(("", _)) => return Err(bad()),
            Some((bare, word)) => match Arch::named(word) {
                Some(arch) => (bare, Some(arch)),
                None => {
                    return Err(KernelStoreError::UnknownArch {
                        word: word.to_owned(),
                        text: text.to_owned(),
                    });
                }
            },
            None => match Arch::named(bare) {
                Some(arch) => ("", Some(arch)),
                None => (bare, None),
            },
        };
        if let Some((bare, kib)) = LARGE_PAGES
            .iter()
            .find_map(|(ending, kib)| Some((bare.strip_suffix(ending)?, kib)))
        {
            let bare = bare.strip_suffix("arm64").unwrap_or(bare);
            let arch = named.unwrap_or(Arch::Arm64);
            let same = Self {
                arch,
                version: Some(bare.trim_end_matches('-').to_owned())
                    .filter(|bare| !bare.is_empty()),
            };
            let (text, instead) = (text.to_owned(), same.source());
            return Err(match arch {
                Arch::Arm64 => KernelStoreError::LargePages { text, kib, instead },
                arch => KernelStoreError::NoLargePages {
                    text,
                    arch,
                    kib,
                    instead,
                },
            });
        }
        let ending = bare
            .rsplit_once('-')
            .map(|(bare, end)| (bare, arch_of(end)));
        let (bare, arch) = match (ending, named) {
            (Some((_, Some(ending))), Some(named)) if ending != named => return Err(bad()),
            (Some((bare, Some(ending))), _) => (bare, ending),
            (_, named) => (bare, named.unwrap_or(Arch::OWN)),
        };
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".+~-".contains(&byte);
        let begins = bare.starts_with(|first: char| first.is_ascii_digit())
            || FLAVOURS.contains(&bare)
            || (bare.is_empty() && named.is_some());
        if !begins || !bare.bytes().all(good) {
            return Err(bad());
        }
        Ok(Self {
            arch,
            version: (!bare.is_empty()).then(|| bare.to_owned()),
        })
    }

    /// Debian's current kernel for this machine.
    pub(super) fn current() -> Self {
        Self {
            arch: Arch::OWN,
            version: None,
        }
    }

    /// The package, which may be a metapackage.
    pub(super) fn package(&self) -> String {
        let arch = self.arch.debian();
        match &self.version {
            Some(version) => format!("{PREFIX}{version}-{arch}"),
            None => format!("{PREFIX}{arch}"),
        }
    }

    /// What of an architecture a package is.
    pub(super) fn of_package(package: &str, arch: Arch) -> Self {
        let bare = package.strip_prefix(PREFIX).unwrap_or(package);
        let bare = bare.strip_suffix(arch.debian()).unwrap_or(bare);
        let bare = bare.strip_suffix('-').unwrap_or(bare);
        Self {
            arch,
            version: (!bare.is_empty()).then(|| bare.to_owned()),
        }
    }

    /// The source in the spelling that is kept: `debian`, `debian:6.1.0-54`, `debian:6.12:arm64`.
    pub(super) fn source(&self) -> String {
        let version = self.version.as_deref();
        let arch = (self.arch != Arch::OWN).then(|| self.arch.debian());
        let words = std::iter::once("debian").chain(version).chain(arch);
        words.collect::<Vec<_>>().join(":")
    }
}

/// The architecture that the name of a kernel ends with: of a source, `debian:6.12:arm64`, or of a release,
/// `6.1.0-56-amd64`.
pub(super) fn arch_in(name: &str) -> Option<Arch> {
    let word = name.rsplit([':', '-']).next()?;
    match name.contains(':') {
        true => Arch::named(word),
        false => arch_of(word),
    }
}

/// The architecture that Debian names so.
fn arch_of(word: &str) -> Option<Arch> {
    Arch::named(word).filter(|arch| arch.debian() == word)
}

/// apt's lists of an architecture.
#[derive(Debug)]
pub(crate) struct Apt {
    arch: Arch,
    /// Lists of our own, for another architecture than this machine's.
    lists: Option<Lists>,
}

impl Apt {
    /// Those of an architecture; lists of our own are below the directory `cache`, and are made when
    /// they are needed.
    pub(crate) fn of(arch: Arch, cache: &Path) -> Self {
        Self {
            arch,
            lists: (arch != Arch::OWN).then(|| Lists::below(cache, arch)),
        }
    }

    /// Where lists of our own are.
    pub(crate) fn folder(arch: Arch, cache: &Path) -> PathBuf {
        Lists::folder(cache, arch)
    }

    /// Fetch lists of our own, if they are missing or older than some hours.
    pub(crate) fn refresh(
        &self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), KernelStoreError> {
        match &self.lists {
            Some(lists) => lists.refresh(REFRESH_AFTER, cancel, progress),
            None => Ok(()),
        }
    }

    /// The same once more, if a package that should be there is not.
    pub(crate) fn refresh_again(
        &self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), KernelStoreError> {
        match &self.lists {
            Some(lists) => lists.refresh(REFRESH_AGAIN_AFTER, cancel, progress),
            None => Ok(()),
        }
    }

    /// The package that contains a kernel: the given one or, for a metapackage, the one that it depends
    /// on now.
    pub(super) fn package_now(&self, asked: &str) -> Result<String, KernelStoreError> {
        let output = self.run("apt-cache", &["depends", "--important", asked])?;
        // A package with a kernel depends on no other.
        Ok(parse_depends(&output.text).unwrap_or_else(|| asked.to_owned()))
    }

    /// The current package of this name in the archive.
    pub(crate) fn offer(&self, package: &str) -> Result<Offer, KernelStoreError> {
        match self.offer_as(package, package)? {
            Some(offer) => Ok(offer),
            None => Err(KernelStoreError::NoPackage {
                package: package.to_owned(),
                lists: self.other_arch(),
                offered: self.offered(package),
            }),
        }
    }

    /// That version of a package, if the archive has it.
    pub(crate) fn offer_of(
        &self,
        package: &str,
        version: &str,
    ) -> Result<Option<Offer>, KernelStoreError> {
        self.offer_as(package, &format!("{package}={version}"))
    }

    fn offer_as(&self, package: &str, asked: &str) -> Result<Option<Offer>, KernelStoreError> {
        let output = self.run("apt-get", &["--print-uris", "download", asked])?;
        let mut lines = output.text.lines();
        let offer = lines.find_map(|line| parse_uri(line, package));
        Ok(offer.filter(|_| output.good))
    }

    /// The packages that a version of one depends on.
    pub(crate) fn depends(
        &self,
        package: &str,
        version: &str,
    ) -> Result<Vec<String>, KernelStoreError> {
        self.depends_of(&[format!("{package}={version}")])
    }

    fn depends_of(&self, packages: &[String]) -> Result<Vec<String>, KernelStoreError> {
        let words = ["depends", "--important"].into_iter();
        let words: Vec<&str> = words.chain(packages.iter().map(String::as_str)).collect();
        let output = self.run("apt-cache", &words)?;
        Ok(dependencies(&output.text).map(str::to_owned).collect())
    }

    /// The current package of this name, and the libraries that it needs, and those that they need.
    pub(crate) fn with_libraries(
        &self,
        package: &str,
    ) -> Result<Vec<(String, Offer)>, KernelStoreError> {
        let mut known = vec![package.to_owned()];
        let mut from = 0;
        while from < known.len() {
            let more = self.depends_of(&known[from..])?;
            from = known.len();
            let more: Vec<&str> = (more.iter().map(String::as_str))
                .filter(|name| !known.iter().any(|known| known == name))
                .collect();
            if more.is_empty() {
                break;
            }
            let words = ["show", "--no-all-versions"].into_iter();
            let words: Vec<&str> = words.chain(more).collect();
            known.extend(libraries(&self.run("apt-cache", &words)?.text));
        }
        // One call for all: each reads the lists.
        let mut words = vec!["--print-uris", "download"];
        words.extend(known.iter().map(String::as_str));
        let uris = self.run("apt-get", &words)?.text;
        let offer = |package: &String| {
            let mut lines = uris.lines();
            let offer = lines.find_map(|line| parse_uri(line, package));
            // Alone, for what is wrong with it.
            Ok((
                package.clone(),
                offer.map_or_else(|| self.offer(package), Ok)?,
            ))
        };
        known.iter().map(offer).collect()
    }

    /// The versions in the archive, the most similar first, of these the newest; none if unknown.
    fn offered(&self, package: &str) -> Vec<String> {
        let pattern = format!("^{PREFIX}[0-9].*-{}$", self.arch.debian());
        let Ok(output) = self.run("apt-cache", &["search", "--names-only", &pattern]) else {
            return Vec::new();
        };
        let source_of = |package| Asked::of_package(package, self.arch).source();
        let mut sources: Vec<String> = output
            .text
            .lines()
            .filter(|line| !line.contains("meta-package"))
            .filter_map(|line| line.split_whitespace().next())
            .map(source_of)
            .collect();
        let wanted = source_of(package);
        sort_offered(&mut sources, &wanted);
        sources.truncate(OFFERED_MAX);
        sources
    }

    /// Fetches the package into the folder; apt checks its hash.
    pub(crate) fn download(
        &self,
        package: &str,
        offer: &Offer,
        folder: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, KernelStoreError> {
        let offers = [(package.to_owned(), offer.clone())];
        self.download_all(package, &offers, folder, cancel, progress)?;
        Ok(folder.join(&offer.file))
    }

    /// Fetches packages into the folder, as what is called `package`; apt checks their hashes.
    pub(crate) fn download_all(
        &self,
        package: &str,
        offers: &[(String, Offer)],
        folder: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), KernelStoreError> {
        let mut command = self.command("apt-get");
        command.args(["--quiet=2", "download"]).current_dir(folder);
        // Exactly that version, in case the lists are updated meanwhile.
        command.args(
            offers
                .iter()
                .map(|(name, o)| format!("{name}={}", o.version)),
        );
        let targets: Vec<PathBuf> = offers.iter().map(|(_, o)| folder.join(&o.file)).collect();
        let sizes: Option<Vec<u64>> = offers.iter().map(|(_, o)| o.size_bytes).collect();
        let total_bytes = sizes.map(|sizes| sizes.iter().sum());
        let failure = wait(command, &folder.join("apt.log"), cancel, &mut || {
            let done = targets
                .iter()
                .filter_map(|target| fs::metadata(target).ok());
            progress(Progress::Fetching {
                package: package.to_owned(),
                done_bytes: done.map(|metadata| metadata.len()).sum(),
                total_bytes,
            });
        })?;
        match failure {
            None if targets.iter().all(|target| target.is_file()) => Ok(()),
            failure => {
                if let Some(lists) = &self.lists {
                    // The archive may have another version by now.
                    lists.outdate();
                }
                Err(KernelStoreError::Fetch {
                    package: package.to_owned(),
                    lists: self.other_arch(),
                    output: failure.unwrap_or_else(|| "it fetched no file".to_owned()),
                })
            }
        }
    }

    /// The architecture, if it is not this machine's.
    fn other_arch(&self) -> Option<Arch> {
        self.lists.as_ref().map(|_| self.arch)
    }

    fn command(&self, program: &'static str) -> Command {
        let mut command = command(program);
        if let Some(lists) = &self.lists {
            command.arg("-c").arg(lists.config());
        }
        command
    }

    fn run(&self, program: &'static str, args: &[&str]) -> Result<Output, KernelStoreError> {
        let output = self
            .command(program)
            .args(args)
            .output()
            .map_err(|source| KernelStoreError::NoApt { program, source })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Output {
            good: output.status.success(),
            text,
        })
    }
}

fn parse_depends(text: &str) -> Option<String> {
    dependencies(text)
        .find(|name| name.starts_with(PREFIX))
        .map(str::to_owned)
}

fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter_map(|line| {
            line.strip_prefix("Depends: ")
                .or_else(|| line.strip_prefix("PreDepends: "))
        })
        // No package has the name of a virtual one.
        .filter(|name| !name.starts_with('<'))
}

/// The packages with libraries, each once, of those that `apt-cache show` shows.
fn libraries(text: &str) -> BTreeSet<String> {
    let stanzas = text.split("\n\n");
    let found = stanzas.filter_map(|stanza| {
        let field = |name: &str| {
            let mut lines = stanza.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.trim())
        };
        // Of other components than main it is `contrib/libs`.
        let section = field("Section")?.rsplit('/').next()?;
        (section == "libs").then(|| field("Package").map(str::to_owned))?
    });
    found.collect()
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

/// Run apt, and tell while it runs; returns why it failed, if it did.
pub(super) fn wait(
    mut command: Command,
    log: &Path,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(),
) -> Result<Option<String>, KernelStoreError> {
    let output = File::create(log).map_err(write_failed(log))?;
    let errors = output.try_clone().map_err(write_failed(log))?;
    let mut child = command
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|source| KernelStoreError::NoApt {
            program: "apt-get",
            source,
        })?;
    let status = loop {
        if let Err(interrupted) = go_on(cancel) {
            // It may have exited: a terminal also sends it the signal.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted);
        }
        tell();
        match child.try_wait().map_err(read_failed(log))? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    if status.success() {
        return Ok(None);
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    Ok(Some(match last_error(&text) {
        "" => status.to_string(),
        line => line.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the versions of an error begin with what is most like the wanted one: of its series, of its flavour,
    /// the newest.
    #[test]
    fn similar_versions() {
        let all = [
            "debian:6.1.0-9:arm64",
            "debian:6.1.0-56-rt:arm64",
            "debian:6.12.117+deb12:arm64",
            "debian:6.1.0-56:arm64",
            "debian:6.1.0-56:arm64",
            "debian:6.12.9+deb12-rt:arm64",
        ];
        let sorted = |wanted: &str| {
            let mut sources = all.map(String::from).to_vec();
            sort_offered(&mut sources, wanted);
            sources
        };
        let (old, new) = ("debian:6.1.0-56:arm64", "debian:6.12.117+deb12:arm64");
        assert_eq!(
            sorted("debian:6.99:arm64")[..3],
            [new, old, "debian:6.1.0-9:arm64"]
        );
        assert_eq!(sorted("debian:6.1.0-99:arm64")[0], old);
        assert_eq!(
            sorted("debian:6.12.118-rt:arm64")[0],
            "debian:6.12.9+deb12-rt:arm64"
        );
        assert_eq!(sorted("debian:6.1.0-9").len(), 5);
    }

    /// Check which dependencies are packages, and which packages have libraries.
    #[test]
    fn packages_with_libraries() {
        let text = "e2fsprogs\n  PreDepends: libc6\n |Depends: debconf\n  Depends: <debconf-2.0>\n    \
                    cdebconf\n  Depends: logsave\n  Suggests: gpart\n";
        let found: Vec<&str> = dependencies(text).collect();
        assert_eq!(found, ["libc6", "logsave"]);
        let text = "Package: libc6\nVersion: 2.36\nSection: libs\n\nPackage: logsave\nSection: admin\n\n\
                    Package: libold\nSection: contrib/libs\n\nPackage: nothing\n\nSection: libs\n";
        let found = libraries(text);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["libc6", "libold"]);
    }

    /// Check that versions are accepted with and without suffix, of either architecture, and that
    /// options and patterns of apt are refused.
    #[test]
    fn packages() {
        let package = |text: &str| Asked::parse(text).unwrap().package();
        let source = |text: &str| Asked::parse(text).unwrap().source();
        for arch in Arch::ALL {
            let arch = arch.debian();
            for (asked, wanted) in [
                (format!("6.1.0-54-{arch}"), format!("6.1.0-54-{arch}")),
                (format!("6.1.0-54:{arch}"), format!("6.1.0-54-{arch}")),
                (
                    format!("linux-image-6.1.0-54-{arch}"),
                    format!("6.1.0-54-{arch}"),
                ),
                (
                    format!("6.1.0-54-{arch}:{arch}"),
                    format!("6.1.0-54-{arch}"),
                ),
                (format!("rt:{arch}"), format!("rt-{arch}")),
                (format!("6.12-rt-{arch}"), format!("6.12-rt-{arch}")),
                (arch.to_owned(), arch.to_owned()),
            ] {
                assert_eq!(package(&asked), format!("linux-image-{wanted}"), "{asked}");
            }
        }
        let own = Arch::OWN.debian();
        for bare in ["6.1.0-54", "6.1.0-54-cloud", "rt", "cloud", "6.12-rt"] {
            assert_eq!(package(bare), format!("linux-image-{bare}-{own}"));
            assert_eq!(source(bare), format!("debian:{bare}"));
            assert_eq!(source(&format!("{bare}-{own}")), format!("debian:{bare}"));
        }
        assert_eq!(Asked::current().source(), "debian");
        assert_eq!(Asked::current().package(), format!("linux-image-{own}"));
        let other = Arch::ALL.iter().find(|arch| **arch != Arch::OWN).unwrap();
        let other = other.debian();
        assert_eq!(source(other), format!("debian:{other}"));
        assert_eq!(
            source(&format!("6.12-{other}")),
            format!("debian:6.12:{other}")
        );
        for bad in [
            "",
            "-o=x",
            "6.1*",
            "6.1 x",
            "six",
            "6/../x",
            ":arm64",
            "6.1-amd64:arm64",
            "6.1:x86:arm64",
            "a:arm64",
        ] {
            assert!(
                matches!(Asked::parse(bad), Err(KernelStoreError::BadVersion { .. })),
                "{bad}"
            );
        }
        for (bad, says) in [
            ("6.1:armhf", "unknown architecture \"armhf\""),
            ("6.1:", "unknown architecture"),
            ("rt:", "unknown architecture"),
            (
                "arm64-16k",
                "pages of 16 KiB, and guests have those of 4 KiB: use \"debian:arm64\"",
            ),
            (
                "6.12.117+deb12-arm64-16k",
                "use \"debian:6.12.117+deb12:arm64\"",
            ),
            ("6.12-16k:arm64", "use \"debian:6.12:arm64\""),
            (
                "6.12-16k:amd64",
                "no kernel of amd64 has pages of 16 KiB, which only some of arm64 have",
            ),
            ("6.12-64k:x86-64", "no kernel of amd64 has pages of 64 KiB"),
        ] {
            let error = Asked::parse(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    /// Check that a package of an archive is kept in the spelling that finds it again.
    #[test]
    fn sources_of_packages() {
        for arch in Arch::ALL {
            for version in ["6.1.0-54", "6.12", "6.1.0-54-rt"] {
                let asked = Asked::parse(&format!("{version}:{arch}")).unwrap();
                assert_eq!(Asked::of_package(&asked.package(), *arch), asked);
                let kept = asked.source();
                let again = Asked::parse(kept.strip_prefix("debian:").unwrap());
                assert_eq!(again.unwrap(), asked);
            }
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
