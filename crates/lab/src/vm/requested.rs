//! Modules that the guest's kernel requests (`request_module`): of rules and the like it alone knows what they need,
//! and asks the program in `/proc/sys/kernel/modprobe` for it, which in our guests is the agent.
//!
//! They come in an archive of QEMU's firmware configuration device, read when they are requested: neither a saved state
//! nor a guest's memory depends on its content.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;

use cpio::newc::{Builder, Reader};
use netplumb_kernel::modules::{Answer, ModuleError, canonical};

use super::bulk::{self, BulkItem};

/// Name of the item.
const ITEM: &str = "opt/netplumb/modules";
/// The first entry: for each name that may be requested, a line with it and the modules to load, in order.
const INDEX: &str = "requests";
/// The path that the kernel calls us by.
const MODPROBE: &str = "/modprobe";
const SETTING: &str = "/proc/sys/kernel/modprobe";
const INIT: &str = "/init";
/// Modules that were requested in vain, and modules that were loaded, a line each.
const IN_VAIN: &str = "/tmp/requested-in-vain";
const LOADED: &str = "/tmp/requested-modules";
/// Marks a module that may fail to load.
const SOFT: char = '?';

/// QEMU's arguments for an archive in descriptor `fd`.
pub fn qemu_args(fd: i32) -> Vec<String> {
    bulk::args_of(ITEM, fd)
}

/// An archive of the answers to all requests.
///
/// # Errors
/// A module can't be read.
pub fn archive(answers: &[Answer]) -> Result<Vec<u8>, ModuleError> {
    let mut index = String::new();
    let mut modules = BTreeMap::new();
    for answer in answers {
        let mut order = String::new();
        for module in &answer.modules {
            order.push(' ');
            order.extend((!module.required).then_some(SOFT));
            order.push_str(&module.name);
            if !modules.contains_key(&module.name) {
                modules.insert(module.name.clone(), module.read()?);
            }
        }
        for name in &answer.names {
            index.push_str(&format!("{name}{order}\n"));
        }
    }
    let mut archive = Vec::new();
    let index = (INDEX.to_string(), index.into_bytes());
    for (name, bytes) in std::iter::once(index).chain(modules) {
        let mut writer = Builder::new(&name).write(&mut archive, bytes.len() as u32);
        // A vector takes all that is written to it.
        let written = writer.write_all(&bytes).and_then(|()| writer.finish());
        debug_assert!(written.is_ok());
    }
    let ended = cpio::newc::trailer(&mut archive);
    debug_assert!(ended.is_ok());
    Ok(archive)
}

/// In the guest: have the kernel call us for modules, if it has an archive of them.
///
/// # Errors
/// The kernel doesn't take it.
pub fn answer_requests() -> io::Result<()> {
    let is_set = || fs::read_to_string(SETTING).is_ok_and(|path| path.trim() == MODPROBE);
    if is_set() || BulkItem::open(ITEM)?.is_none() {
        return Ok(());
    }
    symlink(INIT, MODPROBE)?;
    fs::write(SETTING, MODPROBE)
}

/// The module that the kernel requests of this process: called as modprobe(8) is by `call_modprobe` in
/// kernel/module/kmod.c.
pub fn request() -> Option<String> {
    let mut words = std::env::args();
    (words.next()? == MODPROBE).then(|| words.next_back()).flatten()
}

/// In the guest: answer a request. What fails is noted for [`in_vain`].
///
/// # Errors
/// The module is missing, or doesn't load.
pub fn answer(name: &str) -> io::Result<()> {
    let answered = load(name);
    if let Err(error) = &answered {
        note(IN_VAIN, &format!("{name} ({error})"));
    }
    answered
}

fn note(file: &str, line: &str) {
    if let Ok(mut notes) = OpenOptions::new().create(true).append(true).open(file) {
        // The kernel hears of it in any case.
        let _ = writeln!(notes, "{line}");
    }
}

/// Modules that the kernel requested in vain since the last call.
pub fn in_vain() -> Vec<String> {
    taken(IN_VAIN)
}

/// The modules that were loaded at the kernel's request since the last call.
pub fn loaded() -> Vec<String> {
    taken(LOADED)
}

fn taken(file: &str) -> Vec<String> {
    let notes = fs::read_to_string(file).unwrap_or_default();
    let _ = fs::remove_file(file);
    notes.lines().map(String::from).collect()
}

fn load(name: &str) -> io::Result<()> {
    let mut item = BulkItem::open(ITEM)?.ok_or(io::ErrorKind::NotFound)?;
    for (module, required, bytes) in found(&mut item, name)? {
        match insert(&bytes) {
            Ok(true) => note(LOADED, &module),
            Err(error) if required => {
                return Err(io::Error::new(error.kind(), format!("{module}: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The modules that a request for `name` loads, in order, whether each is required, and its bytes.
fn found(mut source: &mut dyn Read, name: &str) -> io::Result<Vec<(String, bool, Vec<u8>)>> {
    let wanted = canonical(name);
    let mut order: Vec<(String, bool, Vec<u8>)> = Vec::new();
    let mut missing = 0;
    loop {
        let mut reader = Reader::new(source)?;
        let entry = reader.entry();
        if entry.is_trailer() {
            return Err(io::Error::other("the archive of modules lacks one"));
        }
        let of_module = entry.name().to_string();
        if of_module == INDEX {
            let mut index = String::new();
            reader.read_to_string(&mut index)?;
            let lines = index.lines().filter_map(|line| line.split_once(' '));
            for word in
                (lines.filter(|(name, _)| *name == wanted)).flat_map(|(_, words)| words.split(' '))
            {
                let (module, required) = match word.strip_prefix(SOFT) {
                    Some(soft) => (soft, false),
                    None => (word, true),
                };
                if !order.iter().any(|(name, ..)| name == module) {
                    order.push((module.to_string(), required, Vec::new()));
                }
            }
            if order.is_empty() {
                let why = "the kernel has no such module";
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            missing = order.len();
        } else if let Some((_, _, bytes)) = order.iter_mut().find(|(name, ..)| *name == of_module) {
            reader.read_to_end(bytes)?;
            missing -= 1;
        }
        if missing == 0 {
            return Ok(order);
        }
        source = reader.finish()?;
    }
}

/// Load a module; returns whether it was not loaded before.
fn insert(module: &[u8]) -> io::Result<bool> {
    // SAFETY: the pointer and the length are the slice's, and the parameters are a C string; the kernel copies both.
    let result = unsafe {
        libc::syscall(libc::SYS_init_module, module.as_ptr(), module.len(), c"".as_ptr())
    };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(true),
        _ if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_kernel::modules::ModuleFile;

    /// Check that a module is found by its name and by the kernel's alias, with its dependencies in order, and nothing
    /// else.
    #[test]
    fn requests_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let module = |name: &str, required| {
            let path = folder.path().join(format!("{name}.ko"));
            fs::write(&path, format!("code of {name}")).unwrap();
            ModuleFile { name: name.into(), path, required }
        };
        let answers = [
            Answer {
                names: vec!["nf_tables".into(), canonical("nfnetlink-subsys-10")],
                modules: vec![module("crc32c_intel", false), module("nf_tables", true)],
            },
            Answer {
                names: vec!["nft_log".into(), canonical("nft-expr-log")],
                modules: vec![module("nf_tables", true), module("nft_log", true)],
            },
        ];
        let archive = archive(&answers).unwrap();
        let of = |name: &str| {
            let found = found(&mut &archive[..], name)?;
            let text = |(name, required, bytes): (String, bool, Vec<u8>)| {
                assert_eq!(bytes, format!("code of {name}").as_bytes());
                format!("{name} {required}")
            };
            io::Result::Ok(found.into_iter().map(text).collect::<Vec<_>>())
        };
        let log = ["nf_tables true", "nft_log true"];
        for name in ["nft-expr-log", "nft_log", "nft-log"] {
            assert_eq!(of(name).unwrap(), log, "{name}");
        }
        let tables = ["crc32c_intel false", "nf_tables true"];
        assert_eq!(of("nfnetlink-subsys-10").unwrap(), tables);
        for name in ["nft-expr", "log", "requests", ""] {
            let error = of(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }
}
