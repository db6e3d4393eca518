//! Source lines of the kernel's code that was executed, where the kernel's debug information was added.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netplumb_instruments::exact::{Image, Lines, LinesError, lines, loss_of};
use netplumb_instruments::image::relocated;
use netplumb_lab::modules::ModuleBuilder;
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::layers::APPLICATION;
use netplumb_model::recording::{Function, Recording, SourceFileId, SourceLine};
use netplumb_model::timing::INSTRUCTIONS;

use crate::source_text;

/// Maximum time to look up lines of one file: a kernel image takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Top-level directories of the kernel's source; paths in debug information may begin above it.
const TOP: [&str; 23] = [
    "arch", "block", "certs", "crypto", "drivers", "fs", "include", "init", "io_uring", "ipc",
    "kernel", "lib", "mm", "net", "rust", "samples", "scripts", "security", "sound", "tools",
    "ubuntu", "usr", "virt",
];

/// Where code and functions of one file are from: by address, a path and a line.
#[derive(Debug, Default)]
struct KnownLines {
    code: HashMap<u64, Option<(Arc<str>, u32)>>,
    functions: HashMap<u64, Option<(Arc<str>, u32)>>,
}

/// The lines of kernels that were looked up, for all arms of a run.
#[derive(Debug, Default)]
pub(crate) struct KernelLines {
    /// By the hash of the kernel, and the name of the module.
    known: HashMap<(String, Option<String>), KnownLines>,
}

/// The kernel, and the user's modules, that lines are looked up for.
pub(crate) struct Booted<'a> {
    pub(crate) kernel: &'a KernelEntry,
    /// The user's modules, by their names: these are not the kernel's.
    pub(crate) own: &'a BTreeMap<String, PathBuf>,
    /// The directory of kernels and sources.
    pub(crate) cache: &'a Path,
    pub(crate) cancel: &'a Arc<AtomicBool>,
}

impl KernelLines {
    /// Add the lines of the kernel that an arm executed, and their text.
    pub(crate) fn add(&mut self, recording: &mut Recording, arm: u32, booted: &Booted<'_>) {
        let Some(image) = booted.kernel.debug_vmlinux() else {
            return;
        };
        // By module: functions' code, by its place in the recording.
        let mut asked: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for (place, code) in recording.code.iter().enumerate() {
            let function = &recording.functions[code.function as usize];
            if code.arm == arm && function.layer.as_deref() != Some(APPLICATION) {
                asked.entry(function.module.clone()).or_default().push(place);
            }
        }
        let mut files = Files::from_recording(recording);
        let mut failed = Vec::new();
        for (module, places) in asked {
            let file = match &module {
                None => Some(image.clone()),
                Some(name) if booted.own.contains_key(name) => None,
                Some(name) => booted.kernel.debug_module(name),
            };
            let Some(file) = file else { continue };
            let known =
                (self.known).entry((booted.kernel.hash.clone(), module.clone())).or_default();
            if let Err(error) =
                look_up(recording, &places, &file, module.is_some(), known, booted.cancel)
            {
                failed.push(format!(
                    "{}: {error}",
                    module.as_deref().unwrap_or("the kernel's image")
                ));
                continue;
            }
            for place in places {
                files.note(recording, place, known);
            }
        }
        recording.source_files = files.names;
        if let Some(loss) = loss_of(&failed) {
            recording.add_loss(INSTRUCTIONS.instrument, loss);
        }
        let builder = ModuleBuilder::new(booted.cache, Arc::clone(booted.cancel));
        source_text::embed_kernel(recording, |paths| {
            // Without the text there are lines nevertheless.
            let found = builder.texts(booted.kernel, paths, source_text::MAX_BYTES as u64);
            found.unwrap_or_default()
        });
    }
}

/// Look up the lines that are missing.
fn look_up(
    recording: &Recording,
    places: &[usize],
    file: &Path,
    is_module: bool,
    known: &mut KnownLines,
    cancel: &AtomicBool,
) -> Result<(), LinesError> {
    let of_all = places.iter().map(|place| &recording.code[*place]);
    let functions: BTreeMap<u64, &Function> = of_all
        .clone()
        .map(|code| (code.address, &recording.functions[code.function as usize]))
        .collect();
    let code: BTreeSet<(u64, u32)> = of_all
        .flat_map(|code| code.insns.iter().map(|insn| (code.address, insn.offset)))
        .filter(|(begin, offset)| !known.code.contains_key(&(begin + u64::from(*offset))))
        .collect();
    if code.is_empty() {
        return Ok(());
    }
    let damaged = |why: &dyn std::fmt::Display| LinesError::Damaged(why.to_string());
    let bytes = fs::read(file).map_err(|error| damaged(&error))?;
    // Where a function is in the file: at its address for the image, but not for a module.
    let (bytes, begins) = match is_module {
        false => (bytes, functions.keys().map(|at| (*at, *at)).collect()),
        true => {
            let bytes = relocated(&bytes)?;
            let image = Image::read("", &bytes, None).map_err(|error| damaged(&error))?;
            (bytes, begins(&image, &functions))
        }
    };
    let code: Vec<(u64, u64)> = code
        .into_iter()
        .filter_map(|(begin, offset)| {
            let offset = u64::from(offset);
            Some((begin + offset, begins.get(&begin)? + offset))
        })
        .collect();
    let (kept, asked): (Vec<u64>, Vec<u64>) = begins.iter().map(|(at, file)| (*at, *file)).unzip();
    let (at, in_file): (Vec<u64>, Vec<u64>) = code.into_iter().unzip();
    let until = Instant::now() + PATIENCE;
    let go_on = || Instant::now() < until && !cancel.load(Ordering::Relaxed);
    let found = lines(&bytes, &asked, &in_file, &go_on)?;
    let named = names(&found);
    let line =
        |line: &Option<(u32, u32)>| line.map(|(file, n)| (Arc::clone(&named[file as usize]), n));
    known.code.extend(at.into_iter().zip(found.code.iter().map(line)));
    known.functions.extend(kept.into_iter().zip(found.functions.iter().map(line)));
    Ok(())
}

/// Where functions of a module begin in its file, by where they begin in the guest.
fn begins(image: &Image, functions: &BTreeMap<u64, &Function>) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for (at, function) in functions {
        let mut named = (image.functions.iter()).filter(|f| f.name == function.name);
        // Two static functions of the same name are ambiguous.
        if let (Some(only), None) = (named.next(), named.next()) {
            found.insert(*at, only.start);
        }
    }
    found
}

/// The paths of files, below the top of the kernel's source where that is known.
fn names(found: &Lines) -> Vec<Arc<str>> {
    found.files.iter().map(|path| below_top(path).into()).collect()
}

/// A path below the top of the kernel's source.
fn below_top(path: &str) -> &str {
    let mut at = 0;
    for part in path.split('/') {
        if TOP.contains(&part) && path.len() > at + part.len() {
            return &path[at..];
        }
        at += part.len() + 1;
    }
    path
}

/// The source files of a recording.
struct Files {
    names: Vec<String>,
    numbers: HashMap<String, SourceFileId>,
}

impl Files {
    fn from_recording(recording: &mut Recording) -> Files {
        let names = std::mem::take(&mut recording.source_files);
        Files { numbers: names.iter().cloned().zip(0..).collect(), names }
    }

    fn line(&mut self, (path, line): &(Arc<str>, u32)) -> SourceLine {
        let file = match self.numbers.get(&**path) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as SourceFileId;
                self.names.push(path.to_string());
                self.numbers.insert(path.to_string(), number);
                number
            }
        };
        SourceLine { file, line: *line }
    }

    /// Note where the code of a function is from.
    fn note(&mut self, recording: &mut Recording, place: usize, known: &KnownLines) {
        let code = &mut recording.code[place];
        for insn in &mut code.insns {
            let at = code.address + u64::from(insn.offset);
            let line = known.code.get(&at).and_then(Option::as_ref);
            insn.source = line.map(|line| self.line(line));
        }
        let defined = known.functions.get(&code.address).and_then(Option::as_ref);
        let defined = defined.map(|line| self.line(line));
        let function = &mut recording.functions[code.function as usize];
        function.source = function.source.or(defined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that paths begin at the top of the kernel's source, wherever it was built.
    #[test]
    fn paths_below_the_top() {
        for (path, below) in [
            ("debian/build/build_amd64_none_amd64/net/ipv4/udp.c", "net/ipv4/udp.c"),
            (
                "/build/reproducible-path/linux-6.1.192/arch/x86/kernel/head_64.S",
                "arch/x86/kernel/head_64.S",
            ),
            ("include/linux/skbuff.h", "include/linux/skbuff.h"),
            ("/src/linux/kernel/sched/core.c", "kernel/sched/core.c"),
            ("drivers", "drivers"),
            ("", ""),
        ] {
            assert_eq!(below_top(path), below);
        }
    }
}
