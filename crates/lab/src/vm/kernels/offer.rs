//! Packages as `apt-cache show` shows them.

use netplumb_kernel::deb::{Dependency, compare, dependencies};
use netplumb_model::arch::Arch;

/// A version of a package in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) package: String,
    pub(crate) version: String,
    pub(super) size_bytes: Option<u64>,
    /// The packages that it depends on: all are needed, each by one of its alternatives.
    pub(crate) depends: Vec<Vec<Dependency>>,
    arch: String,
    section: String,
}

impl Offer {
    /// An architecture's packages in the output of `apt-cache show`, in its order.
    pub(super) fn parse_all(text: &str, arch: Arch) -> Vec<Self> {
        let stanzas = text.split("\n\n").filter_map(Self::parse);
        stanzas.filter(|offer| [arch.debian(), "all"].contains(&offer.arch.as_str())).collect()
    }

    fn parse(stanza: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = stanza.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.trim())
        };
        // One that is only installed has no file.
        field("Filename")?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".+~-:".contains(&byte);
        let plain = |name: &str| field(name).filter(|text| text.bytes().all(good));
        let needed = ["Pre-Depends", "Depends"].into_iter().filter_map(field);
        Some(Self {
            package: plain("Package")?.to_owned(),
            version: plain("Version")?.to_owned(),
            size_bytes: field("Size").and_then(|size| size.parse().ok()),
            depends: needed.flat_map(dependencies).collect(),
            arch: plain("Architecture")?.to_owned(),
            section: field("Section").unwrap_or_default().to_owned(),
        })
    }

    /// The name of the file that `apt-get download` writes.
    pub(crate) fn file(&self) -> String {
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.package, self.arch)
    }

    /// Whether it has libraries.
    pub(super) fn is_library(&self) -> bool {
        // Of other components than main it is `contrib/libs`.
        self.section.rsplit('/').next() == Some("libs")
    }
}

/// The versions of packages, the newest first, each once.
pub(super) fn versions(offers: &[Offer]) -> Vec<String> {
    let mut versions: Vec<String> = offers.iter().map(|offer| offer.version.clone()).collect();
    versions.sort_by(|a, b| compare(b, a));
    versions.dedup();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Package: libc6\nVersion: 2.36-9\nArchitecture: amd64\nSection: libs\nFilename: p/c\n\
        Pre-Depends: libgcc-s1\nDepends: x (>= 2), a | b\nSize: 12\n\n\
        Package: bind9-host\nVersion: 1:9.18-1~deb12u3\nArchitecture: amd64\nSection: net\nFilename: p/b\n\n\
        Package: libc6\nVersion: 2.36-9\nArchitecture: arm64\nSection: libs\nFilename: p/c\n\n\
        Package: installed\nVersion: 1\nArchitecture: amd64\n\n\
        Package: ../x\nVersion: 1\nArchitecture: amd64\nFilename: p/x\n\n\
        Package: libold\nVersion: 1\nArchitecture: all\nSection: contrib/libs\nFilename: p/o\n";

    /// Check the parsing of packages: fetchable packages of this architecture, and what they need.
    #[test]
    fn shown() {
        let offers = Offer::parse_all(SHOWN, Arch::X86_64);
        let files: Vec<String> = offers.iter().map(Offer::file).collect();
        assert_eq!(
            files,
            [
                "libc6_2.36-9_amd64.deb",
                "bind9-host_1%3a9.18-1~deb12u3_amd64.deb",
                "libold_1_all.deb"
            ]
        );
        let libraries: Vec<bool> = offers.iter().map(Offer::is_library).collect();
        assert_eq!(libraries, [true, false, true]);
        let needed: Vec<String> =
            (offers[0].depends.iter().flatten()).map(Dependency::to_string).collect();
        assert_eq!(needed, ["libgcc-s1", "x (>= 2)", "a", "b"]);
        assert_eq!(offers[0].size_bytes, Some(12));
    }
}
