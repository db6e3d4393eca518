//! Makes recordings of the files of other programs: of perf's `perf.data`.
//!
//! A file is never in memory as a whole: `stream` reads it from begin to end, finds its records, and
//! refuses what makes no sense; `records` notes where they are, and reads them again by their times;
//! `linux-perf-data` parses them; `gather` keeps samples and the places in code that their stacks are
//! made of; `names` gives these names when all is read; and `slices` cuts it into blocks.

mod attributes;
mod bytes;
mod events;
mod facts;
mod frames;
mod gather;
mod header;
mod jitdump;
mod made;
mod names;
mod records;
mod sample;
mod slices;
mod spaces;
mod stream;
mod unpack;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use netplumb_model::loss::Loss;
use netplumb_model::recording::{Recording, env};

/// What `perf record --threads` and `--kcore` call the file in the directory that they write.
const DATA: &str = "data";

/// What to import, and what to find names by.
#[derive(Debug, Clone)]
pub struct Options {
    /// The blocks that the recording is cut into.
    pub blocks: u32,
    /// A copy of `/proc/kallsyms` of the machine that was measured.
    pub kallsyms: Option<PathBuf>,
    /// The root directory of its files.
    pub symfs: Option<PathBuf>,
    /// perf's cache of files: `~/.debug`.
    pub cache: Option<PathBuf>,
}

/// Why a file can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It does not exist.
    #[error("{}: no such file; record one with `perf record -a -g`", .0.display())]
    Missing(PathBuf),
    /// It can't be opened or read.
    #[error("can't read {}: {source}", .path.display())]
    Unreadable {
        /// The file, as the caller named it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{}: not a perf.data file; expected one by `perf record`", .0.display())]
    NotPerfData(PathBuf),
    /// It is one that is not supported.
    #[error("{}: unsupported perf.data: {what}; {remedy}", .path.display())]
    Unsupported {
        /// The file, as the caller named it.
        path: PathBuf,
        /// The unsupported kind, version or feature.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Its beginning makes no sense.
    #[error("{}: damaged perf.data ({why}); record it again", .path.display())]
    Damaged {
        /// The file, as the caller named it.
        path: PathBuf,
        /// The reason, as a phrase.
        why: String,
    },
    /// Nothing was sampled.
    #[error("{}: no samples in it{}; record for longer, or with -a", .path.display(), .cut)]
    Empty {
        /// The file, as the caller named it.
        path: PathBuf,
        /// How it was cut short, if it was.
        cut: &'static str,
    },
    /// What to find names by can't be used.
    #[error("--kallsyms {}: {why}", .path.display())]
    Kallsyms {
        /// The kallsyms file, as the caller named it.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

/// Damage to the file that a recording was made of, despite its samples: it was cut short, or damaged.
pub fn damage(recording: &Recording) -> impl Iterator<Item = &Loss> {
    let causes = [slices::CUT, slices::STOPPED, slices::INVALID];
    (recording.all_losses()).filter(move |loss| causes.contains(&&*loss.cause))
}

/// What follows if the samples are of another architecture than this machine's, whose name is as the
/// file has it.
pub fn foreign(recording: &Recording) -> Option<String> {
    let arch = recording.environment.get(env::IMPORTED_ARCH)?;
    let here = recording.environment.get(env::IMPORTED_ON)?;
    (arch != here).then(|| {
        format!(
            "sampled on {arch}, and this machine is {here}: symbols and files of this machine are not used, but \
             for files with the same build ID; names are found by --kallsyms FILE (a copy of \
             /proc/kallsyms of that machine) and --symfs DIR (its files)"
        )
    })
}

/// The samples of a perf.data file, as a recording.
///
/// # Errors
/// It can't be read, is something else, or has no samples. A file that was cut short is not an
/// error: the recording notes it.
pub fn perf_data(path: &Path, options: &Options) -> Result<Recording, ImportError> {
    if !path.is_dir() {
        return perf_data_of(|| File::open(path), path, options);
    }
    let data = path.join(DATA);
    if !data.is_file() {
        return Err(ImportError::NotPerfData(path.into()));
    }
    import(|| File::open(data), threads(path), path, options)
}

/// The files that the threads of `perf record --threads` wrote, next to `data`.
fn threads(folder: &Path) -> io::Result<Vec<File>> {
    let number = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix(DATA)?.strip_prefix('.')?.parse::<u32>().ok()
    };
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(number) = number(&path).filter(|_| path.is_file()) {
            parts.push((number, path));
        }
    }
    parts.sort();
    parts.into_iter().map(|(_, path)| File::open(path)).collect()
}

/// The same for an open file, from its beginning, wherever it is positioned. `path` is its name in
/// errors.
///
/// # Errors
/// As those of [`perf_data`].
pub fn perf_data_of(
    open: impl FnOnce() -> io::Result<File>,
    path: &Path,
    options: &Options,
) -> Result<Recording, ImportError> {
    import(open, Ok(Vec::new()), path, options)
}

fn import(
    open: impl FnOnce() -> io::Result<File>,
    parts: io::Result<Vec<File>>,
    path: &Path,
    options: &Options,
) -> Result<Recording, ImportError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ImportError::Missing(path.into()),
        _ => ImportError::Unreadable { path: path.into(), source },
    };
    // Checked first, since it takes no time.
    let kallsyms = options.kallsyms.as_deref().map(names::given).transpose()?;
    let file = open().map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let bytes = metadata.is_file().then_some(metadata.len());
    let file = BufReader::with_capacity(1 << 18, file);
    let parts = parts.map_err(unreadable)?;
    let (facts, records) =
        stream::read(file, bytes, parts).map_err(|wrong| wrong.into_import_error(path))?;
    let gathered = gather::gather(facts, records, options);
    if gathered.samples() == 0 {
        let cut = match gathered.facts.cut {
            true => " (it is cut short)",
            false => "",
        };
        return Err(ImportError::Empty { path: path.into(), cut });
    }
    slices::recording(gathered, options, kallsyms, path)
}

/// Why a file can't be read.
#[derive(Debug)]
enum Wrong {
    Io(io::Error),
    NotPerfData,
    Unsupported(String, &'static str),
    Damaged(String),
}

impl Wrong {
    fn into_import_error(self, path: &Path) -> ImportError {
        let path = path.to_path_buf();
        match self {
            Wrong::Io(source) => ImportError::Unreadable { path, source },
            Wrong::NotPerfData => ImportError::NotPerfData(path),
            Wrong::Unsupported(what, remedy) => ImportError::Unsupported { path, what, remedy },
            Wrong::Damaged(why) => ImportError::Damaged { path, why },
        }
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong::Io(error)
    }
}

/// As many bytes as there are, up to the length of `into`.
fn fill(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
