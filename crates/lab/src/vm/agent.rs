//! The program that is PID 1 of a guest: this very program, built for the guest's architecture.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use netplumb_model::arch::Arch;
use object::elf;

/// This program, if guests are of its architecture.
const OWN: &str = "/proc/self/exe";

/// There is no program for guests of an architecture.
#[derive(Debug, thiserror::Error)]
#[error("unavailable: {}: {}", self.reason(), self.remedy())]
pub struct AgentError {
    arch: Arch,
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    /// None was found in these places.
    Missing(Vec<PathBuf>),
    /// The one that the environment names can't be read.
    Named { path: PathBuf, source: io::Error },
    /// It is for another machine, or no program.
    Other { path: PathBuf, found: String },
}

impl AgentError {
    /// Why there is none.
    pub fn reason(&self) -> String {
        let arch = self.arch;
        match &self.kind {
            ErrorKind::Missing(looked) => {
                let looked = looked.iter().map(|path| path.display().to_string());
                format!(
                    "guests of {arch} need this program built for them, which is neither {}",
                    looked.collect::<Vec<_>>().join(" nor ")
                )
            }
            ErrorKind::Named { path, source } => format!(
                "{} is set to {}, which can't be read: {source}",
                variable(arch),
                path.display()
            ),
            ErrorKind::Other { path, found } => {
                format!(
                    "{} is no program for guests of {arch}, but {found}",
                    path.display()
                )
            }
        }
    }

    /// How to get one.
    pub fn remedy(&self) -> String {
        let (arch, variable) = (self.arch, variable(self.arch));
        format!("run `make {arch}` in the source of this program, or name it with {variable}")
    }
}

/// The environment variable that names the program for guests of an architecture.
pub fn variable(arch: Arch) -> String {
    format!("PLUMB_AGENT_{}", arch.uname().to_uppercase())
}

/// Its name beside this program.
pub fn file_name(arch: Arch) -> String {
    format!("plumb-{}", arch.uname())
}

/// The program for guests of an architecture: this one, or one that `$PLUMB_AGENT_AARCH64` (or the like)
/// names, or `plumb-aarch64` beside this program or in `../lib/netplumb`.
///
/// # Errors
/// There is none, or it is for another machine.
pub fn program(arch: Arch) -> Result<PathBuf, AgentError> {
    if arch == Arch::OWN {
        return Ok(OWN.into());
    }
    let own = std::env::current_exe().ok();
    find(arch, std::env::var_os(variable(arch)), own.as_deref())
}

fn find(arch: Arch, named: Option<OsString>, own: Option<&Path>) -> Result<PathBuf, AgentError> {
    if let Some(path) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        return match machine(&path) {
            Ok(found) => check(arch, path, found),
            Err(source) => Err(AgentError {
                arch,
                kind: ErrorKind::Named { path, source },
            }),
        };
    }
    let name = file_name(arch);
    let beside = own.and_then(Path::parent);
    let looked: Vec<PathBuf> = beside
        .into_iter()
        .flat_map(|folder| {
            [
                folder.join(&name),
                folder.join("../lib/netplumb").join(&name),
            ]
        })
        .collect();
    for path in &looked {
        if let Ok(found) = machine(path) {
            return check(arch, path.clone(), found);
        }
    }
    Err(AgentError {
        arch,
        kind: ErrorKind::Missing(looked),
    })
}

/// The machine that an ELF file of 64 bits is for, with its byte order; none of other files.
fn machine(path: &Path) -> io::Result<Option<elf::Machine>> {
    let mut head = Vec::new();
    File::open(path)?.take(20).read_to_end(&mut head)?;
    let is_elf = head.starts_with(&elf::ELFMAG)
        && head.get(4) == Some(&elf::ELFCLASS64.0)
        && head.get(5) == Some(&elf::ELFDATA2LSB.0);
    let machine = head.get(18..20).and_then(|two| two.first_chunk());
    let machine = machine.map(|two| elf::Machine(u16::from_le_bytes(*two)));
    Ok(machine.filter(|_| is_elf))
}

fn check(arch: Arch, path: PathBuf, found: Option<elf::Machine>) -> Result<PathBuf, AgentError> {
    let of = |arch| match arch {
        Arch::X86_64 => elf::EM_X86_64,
        Arch::Arm64 => elf::EM_AARCH64,
    };
    if found == Some(of(arch)) {
        return Ok(path);
    }
    let known = Arch::ALL.iter().find(|arch| found == Some(of(**arch)));
    let found = match (known, found) {
        (Some(known), _) => format!("one for {known}"),
        (None, Some(other)) => format!("one for machine {} of ELF", other.0),
        (None, None) => "no ELF file of 64 bits".to_owned(),
    };
    Err(AgentError {
        arch,
        kind: ErrorKind::Other { path, found },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    fn write(path: &Path, machine: elf::Machine) {
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        head.extend(machine.0.to_le_bytes());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, head).unwrap();
    }

    /// Check where the program is looked for, and in which order.
    #[test]
    fn places() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let find = |named: Option<&str>| {
            let named = named.map(|name| at(name).into());
            super::find(Arch::Arm64, named, Some(&at("bin/plumb")))
        };
        let error = find(None).unwrap_err().to_string();
        for part in ["`make arm64`", "bin/plumb-aarch64", "PLUMB_AGENT_AARCH64"] {
            assert!(error.contains(part), "{error}");
        }
        write(&at("lib/netplumb/plumb-aarch64"), elf::EM_AARCH64);
        fs::create_dir(at("bin")).unwrap();
        let found = fs::canonicalize(find(None).unwrap()).unwrap();
        assert!(found.ends_with("lib/netplumb/plumb-aarch64"), "{found:?}");
        write(&at("bin/plumb-aarch64"), elf::EM_AARCH64);
        assert_eq!(find(None).unwrap(), at("bin/plumb-aarch64"));
        write(&at("other"), elf::EM_AARCH64);
        assert_eq!(find(Some("other")).unwrap(), at("other"));
    }

    /// Check that a file for another machine, or that is no program, is an error that says so, and that
    /// one which is named and missing is not looked for elsewhere.
    #[test]
    fn other_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let find = |name: &str| {
            let own = at("bin/plumb");
            super::find(Arch::Arm64, Some(at(name).into()), Some(&own)).unwrap_err()
        };
        write(&at("bin/plumb-aarch64"), elf::EM_AARCH64);
        write(&at("x86"), elf::EM_X86_64);
        write(&at("riscv"), elf::EM_RISCV);
        fs::write(at("text"), "#!/bin/sh").unwrap();
        fs::write(at("cut"), "\x7fELF\x02").unwrap();
        for (name, part) in [
            ("x86", "one for x86-64"),
            ("riscv", "machine 243"),
            ("text", "no ELF file"),
            ("cut", "no ELF file"),
            ("missing", "can't be read"),
        ] {
            let error = find(name).to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    /// Check that guests of this machine's architecture get this program.
    #[test]
    fn own() {
        assert_eq!(program(Arch::OWN).unwrap(), Path::new(OWN));
    }
}
