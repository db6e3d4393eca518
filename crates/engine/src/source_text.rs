//! The text of source files, kept in recordings so that they can be read anywhere.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use netplumb_model::recording::Recording;

/// Most bytes of a file.
const MAX_BYTES: usize = 512 << 10;
/// Most bytes of all files of a recording.
const MAX_ALL_BYTES: usize = 4 << 20;
/// Names of source files end so. Paths are the program's word, so nothing else is read: a made-up
/// program could name any file.
const ENDINGS: &[&str] = &[
    "S", "c", "cc", "cpp", "cxx", "d", "f90", "go", "h", "hh", "hpp", "hxx", "inc", "inl", "m",
    "nim", "rs", "s", "swift", "zig",
];

/// Keep the text of the files whose lines have costs, where they are found. Functions may be
/// defined in others, of which nothing can be shown.
pub(crate) fn embed(recording: &mut Recording) {
    let mut files: Vec<u32> = (recording.line_costs.iter())
        .map(|c| c.source.file)
        .collect();
    files.sort_unstable();
    files.dedup();
    let mut all: usize = recording.source_texts.values().map(String::len).sum();
    for file in files {
        let Some(path) = recording.source_files.get(file as usize) else {
            continue;
        };
        if recording.source_texts.contains_key(&file) {
            continue;
        }
        if let Some(text) = text(Path::new(path))
            && all + text.len() <= MAX_ALL_BYTES
        {
            all += text.len();
            recording.source_texts.insert(file, text);
        }
    }
}

/// The text of a source file; none if it isn't there, or isn't one.
fn text(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?;
    // Relative to a directory that is not known.
    if !path.is_absolute() || !ENDINGS.contains(&ending) {
        return None;
    }
    // A pipe would wait.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let most = MAX_BYTES as u64 + 1;
    File::open(path)
        .ok()?
        .take(most)
        .read_to_string(&mut text)
        .ok()?;
    (text.len() <= MAX_BYTES && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use netplumb_model::recording::{LineCost, SourceLine};

    use super::*;

    /// Check that files with costs are kept, if they are source, text, and not too large.
    #[test]
    fn what_is_kept() {
        let place = tempfile::TempDir::new().unwrap();
        let large = vec![b'x'; MAX_BYTES + 1];
        let files: [(&str, &[u8]); 5] = [
            ("good.c", b"int x;\n"),
            ("free.c", b"int y;\n"),
            ("secret", b"password\n"),
            ("large.c", &large),
            ("binary.c", &[0xff, 0xfe]),
        ];
        let mut recording = Recording::default();
        for (id, (name, content)) in (0..).zip(files) {
            let path = place.path().join(name);
            fs::write(&path, content).unwrap();
            recording.source_files.push(path.to_str().unwrap().into());
            if name != "free.c" {
                recording.line_costs.push(LineCost {
                    block: 0,
                    function: 0,
                    source: SourceLine { file: id, line: 1 },
                    own: 1,
                });
            }
        }
        embed(&mut recording);
        assert_eq!(recording.source_texts, [(0, "int x;\n".to_string())].into());
    }
}
