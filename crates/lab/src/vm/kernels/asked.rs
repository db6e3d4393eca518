//! Requests by `debian:...`, and the names of Debian's packages with kernels.

use std::cmp::Reverse;

use netplumb_model::arch::Arch;

use super::KernelStoreError;

/// How the names of packages with kernels begin.
pub(super) const PREFIX: &str = "linux-image-";

/// Sort kernels: longer common prefixes with the wanted version first, then kernels of its flavour, then the newest;
/// each once.
pub(super) fn sort_offered(kernels: &mut Vec<DebianRequest>, wanted: &DebianRequest) {
    // A backport's `+deb12` is not a flavour.
    let plain = |kernel: &DebianRequest| kernel.source().replace("+deb", "~");
    let numbers = |source: &str| -> Vec<u32> {
        let parts = source.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    let letters = |source: &str| source.replace(|c: char| !c.is_alphabetic(), "");
    let (of_wanted, flavour) = (numbers(&plain(wanted)), letters(&plain(wanted)));
    kernels.sort_by_cached_key(|kernel| {
        let source = plain(kernel);
        let of_source = numbers(&source);
        let pairs = of_source.iter().zip(&of_wanted);
        let alike = pairs.take_while(|(a, b)| a == b).count();
        (Reverse(alike), letters(&source) != flavour, Reverse(of_source))
    });
    kernels.dedup();
}

/// Flavours with a metapackage for their current kernel.
const FLAVOURS: [&str; 2] = ["rt", "cloud"];

/// The suffixes of Debian's arm64 kernels with larger pages, and the page size in KiB.
const LARGE_PAGES: [(&str, &str); 2] = [("-16k", "16"), ("-64k", "64")];

/// A request by `debian:...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DebianRequest {
    pub(super) arch: Arch,
    /// The version, flavour or series; none for the current kernel.
    version: Option<String>,
}

impl DebianRequest {
    /// The part after `debian:`: a version (`6.1.0-54`), a flavour (`rt`), or the newest of a series (`6.12`,
    /// `6.12-rt`); each with `:arm64` or `-arm64` for another architecture than this machine's, or that alone.
    pub(super) fn parse(text: &str) -> Result<Self, KernelStoreError> {
        let bad = || KernelStoreError::BadVersion { version: text.to_owned() };
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
        if let Some((bare, kib)) =
            LARGE_PAGES.iter().find_map(|(ending, kib)| Some((bare.strip_suffix(ending)?, kib)))
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
                arch => KernelStoreError::NoLargePages { text, arch, kib, instead },
            });
        }
        let ending = bare.rsplit_once('-').map(|(bare, end)| (bare, arch_of(end)));
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
        Ok(Self { arch, version: (!bare.is_empty()).then(|| bare.to_owned()) })
    }

    /// Debian's current kernel for this machine.
    pub(super) fn current() -> Self {
        Self { arch: Arch::OWN, version: None }
    }

    /// The package, which may be a metapackage.
    pub(super) fn package(&self) -> String {
        let arch = self.arch.debian();
        match &self.version {
            Some(version) => format!("{PREFIX}{version}-{arch}"),
            None => format!("{PREFIX}{arch}"),
        }
    }

    /// The request that stands for a package of an architecture.
    pub(super) fn of_package(package: &str, arch: Arch) -> Self {
        let bare = package.strip_prefix(PREFIX).unwrap_or(package);
        let bare = bare.strip_suffix(arch.debian()).unwrap_or(bare);
        let bare = bare.strip_suffix('-').unwrap_or(bare);
        Self { arch, version: (!bare.is_empty()).then(|| bare.to_owned()) }
    }

    /// The version without its flavour, and that: `6.12` and `-rt` of `6.12-rt`.
    fn parts(&self) -> (&str, &str) {
        let version = self.version.as_deref().unwrap_or_default();
        let at = FLAVOURS.iter().find_map(|flavour| {
            let bare = version.strip_suffix(flavour)?;
            Some(bare.strip_suffix('-').unwrap_or(bare).len())
        });
        version.split_at(at.unwrap_or(version.len()))
    }

    /// Whether it is the current kernel of the default, a flavour or a series: what metapackages are for.
    pub(super) fn is_newest(&self) -> bool {
        let (bare, _) = self.parts();
        bare.is_empty() || bare.split('.').count() == 2 && !bare.contains('-')
    }

    /// Whether a kernel has this flavour, and this series if it is one.
    pub(super) fn includes(&self, kernel: &Self) -> bool {
        let ((bare, flavour), (of_kernel, its_flavour)) = (self.parts(), kernel.parts());
        let is_flavour = |text: &str, of: &str| text.trim_matches('-') == of.trim_matches('-');
        let rest = of_kernel.strip_prefix(bare);
        is_flavour(flavour, its_flavour)
            && (bare.is_empty() || rest.is_some_and(|rest| rest.starts_with('.')))
    }

    /// The series of a kernel, in its flavour: `6.1-rt` of `6.1.0-56-rt`.
    pub(super) fn series(&self) -> Self {
        let (bare, flavour) = self.parts();
        let series: Vec<&str> = bare.splitn(3, '.').take(2).collect();
        Self { arch: self.arch, version: Some(series.join(".") + flavour) }
    }

    /// The source in the spelling that is kept: `debian`, `debian:6.1.0-54`, `debian:6.12:arm64`.
    pub(crate) fn source(&self) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the versions in an error begin with the most similar: of its series, of its flavour, the newest.
    #[test]
    fn similar_versions() {
        let all =
            ["6.1.0-9", "6.1.0-56-rt", "6.12.117+deb12", "6.1.0-56", "6.1.0-56", "6.12.9+deb12-rt"];
        let sorted = |wanted: &str| -> Vec<String> {
            let asked = |text: &str| DebianRequest::parse(&format!("{text}:arm64")).unwrap();
            let mut kernels = all.map(asked).to_vec();
            sort_offered(&mut kernels, &asked(wanted));
            kernels.iter().map(DebianRequest::source).collect()
        };
        let source = |text: &str| DebianRequest::parse(&format!("{text}:arm64")).unwrap().source();
        let (old, new) = (source("6.1.0-56"), source("6.12.117+deb12"));
        assert_eq!(sorted("6.99")[..3], [new, old.clone(), source("6.1.0-9")]);
        assert_eq!(sorted("6.1.0-99")[0], old);
        assert_eq!(sorted("6.12.118-rt")[0], source("6.12.9+deb12-rt"));
        assert_eq!(sorted("6.1.0-9").len(), 5);
    }

    /// Check that versions are accepted with and without suffix, of either architecture, and that
    /// options and patterns of apt are refused.
    #[test]
    fn packages() {
        let package = |text: &str| DebianRequest::parse(text).unwrap().package();
        let source = |text: &str| DebianRequest::parse(text).unwrap().source();
        for arch in Arch::ALL {
            let arch = arch.debian();
            for (asked, wanted) in [
                (format!("6.1.0-54-{arch}"), format!("6.1.0-54-{arch}")),
                (format!("6.1.0-54:{arch}"), format!("6.1.0-54-{arch}")),
                (format!("linux-image-6.1.0-54-{arch}"), format!("6.1.0-54-{arch}")),
                (format!("6.1.0-54-{arch}:{arch}"), format!("6.1.0-54-{arch}")),
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
        assert_eq!(DebianRequest::current().source(), "debian");
        assert_eq!(DebianRequest::current().package(), format!("linux-image-{own}"));
        let other = Arch::ALL.iter().find(|arch| **arch != Arch::OWN).unwrap();
        let other = other.debian();
        assert_eq!(source(other), format!("debian:{other}"));
        assert_eq!(source(&format!("6.12-{other}")), format!("debian:6.12:{other}"));
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
                matches!(DebianRequest::parse(bad), Err(KernelStoreError::BadVersion { .. })),
                "{bad}"
            );
        }
        for (bad, says) in [
            ("6.1:armhf", "unknown architecture \"armhf\""),
            ("6.1:", "unknown architecture"),
            ("rt:", "unknown architecture"),
            ("arm64-16k", "pages of 16 KiB, and guests need pages of 4 KiB: use \"debian:arm64\""),
            ("6.12.117+deb12-arm64-16k", "use \"debian:6.12.117+deb12:arm64\""),
            ("6.12-16k:arm64", "use \"debian:6.12:arm64\""),
            (
                "6.12-16k:amd64",
                "no kernel of amd64 has pages of 16 KiB, which only some of arm64 have",
            ),
            ("6.12-64k:x86-64", "no kernel of amd64 has pages of 64 KiB"),
        ] {
            let error = DebianRequest::parse(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    /// Check which kernels a series or a flavour stands for, where the archive has no metapackage for it.
    #[test]
    fn series() {
        let asked = |text: &str| DebianRequest::parse(text).unwrap();
        for (text, newest, all) in [
            ("6.1", true, &["6.1.0-56", "6.1.0-9"][..]),
            ("6.12-rt", true, &["6.12.117+deb12-rt"]),
            ("rt", true, &["6.1.0-56-rt", "6.12.117+deb12-rt"]),
            ("6.1.0-56", false, &[]),
            ("6.12.117+deb12-rt", false, &[]),
        ] {
            let series = asked(text);
            assert_eq!(series.is_newest(), newest, "{text}");
            let kernels =
                ["6.1.0-56", "6.1.0-9", "6.1.0-56-rt", "6.12.117+deb12-rt", "6.1.0-56-cloud"];
            let found: Vec<&str> = (kernels.into_iter())
                .filter(|kernel| newest && series.includes(&asked(kernel)))
                .collect();
            assert_eq!(found, all, "{text}");
        }
        assert!(
            DebianRequest::current().is_newest()
                && DebianRequest::current().includes(&asked("6.1.0-56"))
        );
        assert_eq!(asked("6.1.0-56-rt").series(), asked("6.1-rt"));
        assert_eq!(asked("6.12.117+deb12").series(), asked("6.12"));
    }

    /// Check that a package of an archive is kept in the spelling that finds it again.
    #[test]
    fn sources_of_packages() {
        for arch in Arch::ALL {
            for version in ["6.1.0-54", "6.12", "6.1.0-54-rt"] {
                let asked = DebianRequest::parse(&format!("{version}:{arch}")).unwrap();
                assert_eq!(DebianRequest::of_package(&asked.package(), *arch), asked);
                let kept = asked.source();
                let again = DebianRequest::parse(kept.strip_prefix("debian:").unwrap());
                assert_eq!(again.unwrap(), asked);
            }
        }
    }
}
