//! The files that a command's code is from: their symbols before it runs, and their
//! lines afterwards, of what ran.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netplumb_instruments::exact::{
    self, FIRST_USER_SYMBOL, Images, Lines, LinesError, Symbol, UserCode, UserSymbol, Window,
};
use netplumb_lab::bundle::{Bundle, Entry, Kind};
use netplumb_model::loss::Loss;
use netplumb_model::recording::{FunctionId, LineCost, Recording, SourceFileId, SourceLine};
use netplumb_model::timing::INSTRUCTIONS;

use crate::collect::Translation;

/// Where debug files are.
const DEBUG_FILES: &str = "/usr/lib/debug";
/// A larger file with symbols is left alone.
const MAX_DEBUG_BYTES: u64 = 1 << 30;
/// Lines are not looked for any longer: those of a browser take a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files of a bundle that hold code, and where each is in it.
pub(crate) fn images(bundle: &Bundle) -> (Images, Vec<PathBuf>) {
    let mut images = Images::default();
    let mut paths = Vec::new();
    for (path, entry) in bundle.entries() {
        let Some(file) = code(entry) else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let debug = debug_file(entry, &file);
        // What is no program of this machine runs nowhere.
        if images.add(&name, &file, debug.as_deref()).is_ok() {
            paths.push(path.clone());
        }
    }
    (images, paths)
}

/// The content of an ELF file.
fn code(entry: &Entry) -> Option<Vec<u8>> {
    let Kind::File { .. } = entry.kind else {
        return None;
    };
    let file = entry.read().ok()?;
    file.starts_with(b"\x7fELF").then_some(file)
}

/// The file that has the debug information of another: by its build ID, or by the
/// name that it has for it, where debuggers look for that.
fn debug_file(entry: &Entry, file: &[u8]) -> Option<Vec<u8>> {
    let by_id = exact::build_id(file).and_then(|id| {
        let (folder, rest) = id.split_at_checked(2)?;
        let folder = Path::new(DEBUG_FILES).join(".build-id").join(folder);
        bounded(&folder.join(format!("{rest}.debug")))
    });
    by_id.or_else(|| {
        let Kind::File { host, .. } = &entry.kind else {
            return None;
        };
        let (name, checksum) = exact::debug_link(file)?;
        let host = fs::canonicalize(host).ok()?;
        let folder = host.parent()?;
        let global = Path::new(DEBUG_FILES).join(folder.strip_prefix("/").ok()?);
        [folder.to_path_buf(), folder.join(".debug"), global]
            .iter()
            .filter_map(|folder| bounded(&folder.join(&name)))
            // One of another build has other addresses.
            .find(|found| exact::debug_link_checksum(found) == checksum)
    })
}

/// A file, unless it is too large, or none.
fn bounded(path: &Path) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= MAX_DEBUG_BYTES)
        .then(|| fs::read(path).ok())
        .flatten()
}

/// What ran of a command's own code.
pub(crate) struct Ran<'a> {
    pub(crate) symbols: &'a [UserSymbol],
    /// By number: the blocks of all windows.
    pub(crate) code: &'a BTreeMap<u32, UserCode>,
    pub(crate) windows: &'a [Window],
}

/// Add the lines of what ran to a recording, where files tell them: those of its
/// functions, and what each cost. `paths` has the images' places in the bundle.
pub(crate) fn add_lines(
    recording: &mut Recording,
    translation: &Translation,
    ran: &Ran<'_>,
    bundle: &Bundle,
    paths: &[PathBuf],
    cancel: &AtomicBool,
) {
    let until = Instant::now() + PATIENCE;
    let go_on = || Instant::now() < until && !cancel.load(Ordering::Relaxed);
    let mut sources = Sources::default();
    let mut failed: Vec<String> = Vec::new();
    for (image, path) in (0..).zip(paths) {
        let Some(entry) = bundle.entries().get(path) else {
            continue;
        };
        let asked = Asked::of(ran, image);
        if asked.functions.is_empty() && asked.code.is_empty() {
            continue;
        }
        match asked.lines(entry, &go_on) {
            Ok(lines) => sources.add(image, &asked, &lines),
            // Whoever ended the run does not wait for lines.
            Err(LinesError::TooSlow) if cancel.load(Ordering::Relaxed) => break,
            Err(error) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                failed.push(format!("{name}: {error}"));
            }
        }
    }
    for (symbol, source) in sources.functions {
        if let Some(function) = translation.function(symbol)
            && let Some(function) = recording.functions.get_mut(function as usize)
        {
            // Static functions of one name are one, of which this is the first.
            function.source.get_or_insert(source);
        }
    }
    // The last blocks of the recording are those of the windows.
    let first = recording.blocks.len().saturating_sub(ran.windows.len()) as u32;
    for (block, window) in (first..).zip(ran.windows) {
        let costs = line_costs(window, ran.code, &sources.code, translation);
        let costs = costs.into_iter();
        recording
            .line_costs
            .extend(costs.map(|((function, source), insns)| LineCost {
                block,
                function,
                source,
                insns,
            }));
    }
    recording.source_files = sources.files;
    if let Some(why) = failed.first() {
        let meaning = format!("{why}; function names and costs are not affected");
        let loss = Loss::new(
            "files without line information",
            failed.len() as u64,
            meaning,
        );
        recording.add_loss(INSTRUCTIONS.instrument, loss);
    }
}

/// What a file is asked for: addresses, and whose they are.
struct Asked {
    functions: Vec<u64>,
    symbols: Vec<Symbol>,
    code: Vec<u64>,
}

impl Asked {
    fn of(ran: &Ran<'_>, image: u32) -> Asked {
        let (symbols, functions) = (FIRST_USER_SYMBOL..)
            .zip(ran.symbols)
            .filter(|(_, s)| s.image == Some(image) && s.size_bytes > 0)
            .map(|(number, s)| (number, s.address))
            .unzip();
        let code: BTreeSet<u64> = ran
            .code
            .values()
            .filter(|code| code.image == image)
            .flat_map(|code| code.insns.iter().map(|(address, _)| *address))
            .collect();
        Asked {
            functions,
            symbols,
            code: code.into_iter().collect(),
        }
    }

    fn lines(&self, entry: &Entry, go_on: &dyn Fn() -> bool) -> Result<Lines, LinesError> {
        // Read again: while the command ran there was better use for the memory.
        let Some(file) = code(entry) else {
            return Ok(Lines::default());
        };
        let debug = match exact::has_lines(&file) {
            true => file,
            false => match debug_file(entry, &file) {
                Some(debug) => debug,
                None => return Ok(Lines::default()),
            },
        };
        exact::lines(&debug, &self.functions, &self.code, go_on)
    }
}

/// Lines by the recording's numbers of files.
#[derive(Default)]
struct Sources {
    files: Vec<String>,
    numbers: HashMap<String, SourceFileId>,
    functions: Vec<(Symbol, SourceLine)>,
    /// By image and address.
    code: HashMap<(u32, u64), SourceLine>,
}

impl Sources {
    fn add(&mut self, image: u32, asked: &Asked, lines: &Lines) {
        let files: Vec<SourceFileId> = lines.files.iter().map(|path| self.file(path)).collect();
        let source = |(file, line): (u32, u32)| SourceLine {
            file: files[file as usize],
            line,
        };
        for (symbol, line) in asked.symbols.iter().zip(&lines.functions) {
            self.functions.extend(line.map(|l| (*symbol, source(l))));
        }
        for (address, line) in asked.code.iter().zip(&lines.code) {
            self.code
                .extend(line.map(|l| ((image, *address), source(l))));
        }
    }

    fn file(&mut self, path: &str) -> SourceFileId {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.files.len() as SourceFileId;
        self.files.push(path.to_string());
        self.numbers.insert(path.to_string(), number);
        number
    }
}

/// What each line of each function cost in a window.
fn line_costs(
    window: &Window,
    code: &BTreeMap<u32, UserCode>,
    sources: &HashMap<(u32, u64), SourceLine>,
    translation: &Translation,
) -> BTreeMap<(FunctionId, SourceLine), u64> {
    let mut costs: BTreeMap<(FunctionId, SourceLine), u64> = BTreeMap::new();
    if sources.is_empty() {
        return costs;
    }
    for ran in &window.user_code {
        let Some(code) = code.get(&ran.block) else {
            continue;
        };
        let more = (ran.insns as usize).saturating_sub(code.insns.len()) as u64;
        for (n, (address, symbol)) in code.insns.iter().take(ran.insns as usize).enumerate() {
            let Some(source) = sources.get(&(code.image, *address)) else {
                continue;
            };
            let Some(function) = translation.function(*symbol) else {
                continue;
            };
            let last = n + 1 == code.insns.len();
            let each = if last { 1 + more } else { 1 };
            *costs.entry((function, *source)).or_default() += each * ran.times;
        }
    }
    costs
}

#[cfg(test)]
mod tests;
