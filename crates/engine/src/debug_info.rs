//! Debug information of a command's files: symbols before it runs, source lines of executed code
//! afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netplumb_instruments::exact::{
    self, FIRST_USER_SYMBOL, Images, Lines, LinesError, Symbol, UserCode, UserSymbol, Window,
};
use netplumb_lab::bundle::{Bundle, Entry, Kind};
use netplumb_model::recording::{FunctionId, LineCost, Recording, SourceFileId, SourceLine};
use netplumb_model::timing::INSTRUCTIONS;

use crate::collect::{SourceLines, Translation};
use crate::source_text;

/// Maximum time to look up lines: a browser takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files of a bundle that contain code, with their indices.
pub(crate) fn images(bundle: &Bundle) -> (Images, Vec<PathBuf>) {
    let mut images = Images::default();
    let mut paths = Vec::new();
    let names = names(bundle);
    for (path, entry) in bundle.entries() {
        let Some(file) = code(entry) else { continue };
        let name = names.get(path).map_or("", String::as_str);
        let debug = debug_file(entry, &file);
        // Files that are not programs for x86-64 can't run.
        if images.add(name, &file, debug.as_deref()).is_ok() {
            paths.push(path.clone());
        }
    }
    (images, paths)
}

/// Names of files with code: as much of the end of each path as makes it unique.
fn names(bundle: &Bundle) -> HashMap<&PathBuf, String> {
    let is_file = |entry: &Entry| matches!(entry.kind, Kind::File { .. });
    let files = bundle.entries().iter().filter(|(_, entry)| is_file(entry));
    let mut same: HashMap<&OsStr, Vec<&PathBuf>> = HashMap::new();
    for (path, _) in files {
        let name = path.file_name().unwrap_or_default();
        same.entry(name).or_default().push(path);
    }
    let mut names = HashMap::new();
    for (name, mut paths) in same {
        if paths.len() > 1 {
            // Files without code don't count.
            paths.retain(|path| bundle.entries().get(*path).and_then(code).is_some());
        }
        for path in &paths {
            let parts = path.components().count();
            let end =
                |parts_of: usize| -> PathBuf { path.components().skip(parts - parts_of).collect() };
            let is_only = |end: &PathBuf| paths.iter().filter(|p| p.ends_with(end)).count() == 1;
            let shortest = (1..=parts).map(end).find(is_only);
            let shortest = shortest.unwrap_or_else(|| name.into());
            names.insert(*path, shortest.to_string_lossy().into_owned());
        }
    }
    names
}

/// The content of an ELF file.
fn code(entry: &Entry) -> Option<Vec<u8>> {
    let Kind::File { .. } = entry.kind else {
        return None;
    };
    let file = entry.read().ok()?;
    file.starts_with(b"\x7fELF").then_some(file)
}

/// The debug file of an entry with this content.
fn debug_file(entry: &Entry, file: &[u8]) -> Option<Vec<u8>> {
    let host = match &entry.kind {
        Kind::File { host, .. } => Some(host.as_path()),
        _ => None,
    };
    exact::debug_file(host, file)
}

/// The content of the file that has the debug information of an ELF file, if one has.
pub(crate) fn with_debug(entry: &Entry) -> Option<Vec<u8>> {
    let file = code(entry)?;
    match exact::has_lines(&file) {
        true => Some(file),
        false => debug_file(entry, &file),
    }
}

/// The executed code of a command.
pub(crate) struct ExecutedCode<'a> {
    pub(crate) symbols: &'a [UserSymbol],
    /// Blocks of code by id, from all windows.
    pub(crate) code: &'a BTreeMap<u32, UserCode>,
    pub(crate) windows: &'a [Window],
}

/// Add source lines of the executed code to a recording, where debug information has them: where
/// functions are defined, and the cost of each line. `paths` has the indices of images in the
/// bundle. Returns the lines of instructions.
pub(crate) fn add_lines(
    recording: &mut Recording,
    translation: &Translation,
    ran: &ExecutedCode<'_>,
    bundle: &Bundle,
    paths: &[PathBuf],
    cancel: &AtomicBool,
) -> SourceLines {
    let until = Instant::now() + PATIENCE;
    let go_on = || Instant::now() < until && !cancel.load(Ordering::Relaxed);
    // Including earlier arms' sources.
    let mut sources = Sources::from_paths(std::mem::take(&mut recording.source_files));
    let mut failed: Vec<String> = Vec::new();
    for (image, path) in (0..).zip(paths) {
        let Some(entry) = bundle.entries().get(path) else {
            continue;
        };
        let asked = LookupAddresses::from_executed(ran, image);
        if asked.functions.is_empty() && asked.code.is_empty() {
            continue;
        }
        match asked.lines(entry, &go_on) {
            Ok(lines) => sources.add(image, &asked, &lines),
            // The run was cancelled: don't wait for lines.
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
            // Static functions of one name are one function: keep the first definition.
            function.source.get_or_insert(source);
        }
    }
    // The windows are the last blocks of the recording.
    let first = recording.blocks.len().saturating_sub(ran.windows.len()) as u32;
    for (block, window) in (first..).zip(ran.windows) {
        let costs = line_costs(window, ran.code, &sources.code, translation);
        let costs = costs.into_iter();
        recording.line_costs.extend(costs.map(|((function, source), own)| LineCost {
            block,
            function,
            source,
            own,
        }));
    }
    recording.source_files = sources.files;
    if let Some(loss) = exact::loss_of(&failed) {
        recording.add_loss(INSTRUCTIONS.instrument, loss);
    }
    source_text::embed(recording);
    sources.code
}

/// Addresses to look up in a file, and the code that they belong to.
struct LookupAddresses {
    functions: Vec<u64>,
    symbols: Vec<Symbol>,
    code: Vec<u64>,
}

impl LookupAddresses {
    fn from_executed(ran: &ExecutedCode<'_>, image: u32) -> LookupAddresses {
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
        LookupAddresses { functions, symbols, code: code.into_iter().collect() }
    }

    fn lines(&self, entry: &Entry, go_on: &dyn Fn() -> bool) -> Result<Lines, LinesError> {
        // Read again, to save memory while the command runs.
        let Some(debug) = with_debug(entry) else {
            return Ok(Lines::default());
        };
        exact::lines(&debug, &self.functions, &self.code, go_on)
    }
}

/// Source lines, with the file ids of the recording.
#[derive(Default)]
struct Sources {
    files: Vec<String>,
    numbers: HashMap<String, SourceFileId>,
    functions: Vec<(Symbol, SourceLine)>,
    code: SourceLines,
}

impl Sources {
    fn from_paths(files: Vec<String>) -> Sources {
        Sources { numbers: files.iter().cloned().zip(0..).collect(), files, ..Sources::default() }
    }

    fn add(&mut self, image: u32, asked: &LookupAddresses, lines: &Lines) {
        let files: Vec<SourceFileId> = lines.files.iter().map(|path| self.file(path)).collect();
        let source = |(file, line): (u32, u32)| SourceLine { file: files[file as usize], line };
        for (symbol, line) in asked.symbols.iter().zip(&lines.functions) {
            self.functions.extend(line.map(|l| (*symbol, source(l))));
        }
        for (address, line) in asked.code.iter().zip(&lines.code) {
            self.code.extend(line.map(|l| ((image, *address), source(l))));
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

/// The cost of each line of each function in a window.
fn line_costs(
    window: &Window,
    code: &BTreeMap<u32, UserCode>,
    sources: &SourceLines,
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
