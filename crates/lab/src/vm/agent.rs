//! The program that is PID 1 of a guest, `plumb-agent`, built for the guest's architecture.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memchr::memmem;
use netplumb_model::arch::Arch;
use netplumb_sys::memory::memfd;
use object::read::elf::FileHeader as _;
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache, elf};

/// The output of this version's agent outside of guests, which no other program has.
pub const MARK: &str =
    concat!("this is plumb-agent ", env!("CARGO_PKG_VERSION"), " of Netplumb, init of its guests");
/// Several times its size.
const MAX_BYTES: u64 = 256 << 20;

/// No program exists for guests of an architecture.
#[derive(Debug, thiserror::Error)]
#[error("unavailable: {}: {}", self.reason(), self.remedy())]
pub struct AgentError {
    arch: Arch,
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    /// None is in this program's file, nor here.
    Missing(PathBuf),
    /// The program that the environment names can't be read.
    Named { path: PathBuf, source: io::Error },
    /// It is for another machine, or no program.
    Other { path: PathBuf, found: String },
}

impl AgentError {
    /// Why it is missing or unusable.
    pub fn reason(&self) -> String {
        let arch = self.arch;
        match &self.kind {
            ErrorKind::Missing(beside) => {
                format!(
                    "guests of {arch} need plumb-agent built for them, which is neither in plumb itself nor {}",
                    beside.display()
                )
            }
            ErrorKind::Named { path, source } => format!(
                "{} is set to {}, which can't be read: {source}",
                variable(arch),
                path.display()
            ),
            ErrorKind::Other { path, found } => {
                format!("{} is no program for guests of {arch}: it is {found}", path.display())
            }
        }
    }

    /// How to get one.
    pub fn remedy(&self) -> String {
        let (arch, variable) = (self.arch, variable(self.arch));
        let target = match arch == Arch::OWN {
            true => "build".to_owned(),
            false => arch.to_string(),
        };
        format!("run `make {target}` in the source of this program, or name it with {variable}")
    }
}

/// The environment variable that names the program for guests of an architecture.
pub fn variable(arch: Arch) -> String {
    format!("PLUMB_AGENT_{}", arch.uname().to_uppercase())
}

/// The agent's name beside this program.
pub fn file_name(arch: Arch) -> String {
    match arch == Arch::OWN {
        true => "plumb-agent".into(),
        false => format!("plumb-agent-{}", arch.uname()),
    }
}

/// The section of this program's file that holds the agent for guests of an architecture
/// (`scripts/embed.sh` adds it).
fn section(arch: Arch) -> String {
    format!(".plumb.agent.{}", arch.uname())
}

/// Where the program for guests is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// In plumb's own file; the path is of a copy that lasts as long as the process.
    InPlumb(PathBuf),
    /// In a file of its own.
    At(PathBuf),
}

impl Program {
    /// Where it can be read.
    pub fn into_path(self) -> PathBuf {
        match self {
            Self::InPlumb(path) | Self::At(path) => path,
        }
    }
}

/// The program for guests of an architecture: the one in `$PLUMB_AGENT_AARCH64` (or the like), the one in this
/// program's file, or `plumb-agent` (`plumb-agent-aarch64`) beside that.
///
/// # Errors
/// It is missing, or for another machine.
pub fn program(arch: Arch) -> Result<Program, AgentError> {
    static FOUND: Mutex<BTreeMap<Arch, Program>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = found.get(&arch) {
        return Ok(program.clone());
    }
    let own = std::env::current_exe().ok();
    let program = find(arch, std::env::var_os(variable(arch)), own.as_deref())?;
    found.insert(arch, program.clone());
    Ok(program)
}

fn find(arch: Arch, named: Option<OsString>, own: Option<&Path>) -> Result<Program, AgentError> {
    if let Some(path) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        return match read(&path) {
            Ok(bytes) => check(arch, path, &bytes),
            Err(source) => Err(AgentError { arch, kind: ErrorKind::Named { path, source } }),
        };
    }
    if let Some(path) = embedded(arch) {
        return Ok(Program::InPlumb(path));
    }
    let beside = own.map(|own| own.with_file_name(file_name(arch)));
    match beside.as_deref().map(read) {
        Some(Ok(bytes)) => check(arch, beside.unwrap_or_default(), &bytes),
        _ => Err(AgentError { arch, kind: ErrorKind::Missing(beside.unwrap_or_default()) }),
    }
}

/// The agent in the file that this process runs, which may no longer be the one at its path, as a file in
/// memory that lasts as long as the process.
fn embedded(arch: Arch) -> Option<PathBuf> {
    let file = ReadCache::new(File::open("/proc/self/exe").ok()?);
    let elf = object::File::parse(&file).ok()?;
    let bytes = elf.section_by_name(&section(arch))?.data().ok()?;
    let agent = memfd("plumb-agent", bytes).ok()?;
    let path = format!("/proc/self/fd/{}", agent.as_raw_fd());
    std::mem::forget(agent);
    Some(path.into())
}

/// A file, or as much of it as a program may have: a device has no end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The machine that an ELF file of 64 bits is for; none of other files.
fn machine(bytes: &[u8]) -> Option<elf::Machine> {
    let is_elf = bytes.starts_with(&elf::ELFMAG)
        && bytes.get(4) == Some(&elf::ELFCLASS64.0)
        && bytes.get(5) == Some(&elf::ELFDATA2LSB.0);
    let two = bytes.get(18..20)?.first_chunk()?;
    is_elf.then(|| elf::Machine(u16::from_le_bytes(*two)))
}

/// Whether an ELF file of 64 bits ends before its table of sections, which linkers write last.
fn is_cut(bytes: &[u8]) -> bool {
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes);
    header.map_or(true, |header| header.section_headers(LittleEndian, bytes).is_err())
}

fn check(arch: Arch, path: PathBuf, bytes: &[u8]) -> Result<Program, AgentError> {
    let of = |arch| match arch {
        Arch::X86_64 => elf::EM_X86_64,
        Arch::Arm64 => elf::EM_AARCH64,
    };
    let machine = machine(bytes);
    let known = Arch::ALL.iter().find(|arch| machine == Some(of(**arch)));
    let found = match (known, machine) {
        (Some(known), _) if *known != arch => format!("for {known}"),
        (Some(_), _) if is_cut(bytes) => "cut off".to_owned(),
        (Some(_), _) if memmem::find(bytes, MARK.as_bytes()).is_none() => {
            format!("not plumb-agent {}, which this program needs", env!("CARGO_PKG_VERSION"))
        }
        (Some(_), _) => return Ok(Program::At(path)),
        (None, Some(other)) => format!("for machine {} of ELF", other.0),
        (None, None) => "no ELF file of 64 bits".to_owned(),
    };
    Err(AgentError { arch, kind: ErrorKind::Other { path, found } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header without sections, and some text behind it.
    fn elf_file(machine: elf::Machine, text: &str) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        bytes.extend(machine.0.to_le_bytes());
        bytes.resize(size_of::<elf::FileHeader64<LittleEndian>>(), 0);
        bytes.extend(text.as_bytes());
        bytes
    }

    fn write(path: &Path, machine: elf::Machine) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, elf_file(machine, MARK)).unwrap();
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
        for part in ["`make arm64`", "bin/plumb-agent-aarch64", "PLUMB_AGENT_AARCH64"] {
            assert!(error.contains(part), "{error}");
        }
        write(&at("bin/plumb-agent-aarch64"), elf::EM_AARCH64);
        assert_eq!(find(None).unwrap(), Program::At(at("bin/plumb-agent-aarch64")));
        write(&at("other"), elf::EM_AARCH64);
        assert_eq!(find(Some("other")).unwrap(), Program::At(at("other")));
    }

    /// Check that the error for a file that is for another machine, or not a program, gives that reason, and that a
    /// missing file that was named is not looked for elsewhere.
    #[test]
    fn other_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let find = |name: &str| {
            let own = at("bin/plumb");
            super::find(Arch::Arm64, Some(at(name).into()), Some(&own)).unwrap_err()
        };
        write(&at("bin/plumb-agent-aarch64"), elf::EM_AARCH64);
        write(&at("x86"), elf::EM_X86_64);
        write(&at("riscv"), elf::EM_RISCV);
        fs::write(at("text"), "#!/bin/sh").unwrap();
        fs::write(at("cut"), "\x7fELF\x02").unwrap();
        fs::write(at("hello"), elf_file(elf::EM_AARCH64, "hello")).unwrap();
        let mut half = elf_file(elf::EM_AARCH64, MARK);
        // A table of sections behind its end.
        half[0x28..0x30].copy_from_slice(&0x1_0000_u64.to_le_bytes());
        half[0x3a] = size_of::<elf::SectionHeader64<LittleEndian>>() as u8;
        half[0x3c] = 9;
        fs::write(at("half"), half).unwrap();
        for (name, part) in [
            ("hello", "not plumb-agent"),
            ("half", "cut off"),
            ("x86", "for x86-64"),
            ("riscv", "machine 243"),
            ("text", "no ELF file"),
            ("cut", "no ELF file"),
            ("missing", "can't be read"),
        ] {
            let error = find(name).to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}
