//! The text of source files, kept in recordings so that they can be read anywhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use netplumb_model::layers::APPLICATION;
use netplumb_model::recording::Recording;

/// Most bytes of a file.
pub(crate) const MAX_BYTES: usize = 512 << 10;
/// Most bytes of all files of a recording.
const MAX_ALL_BYTES: usize = 4 << 20;
/// Lines of the kernel's source to keep around the executed ones.
const AROUND: u32 = 8;
/// Names of source files end so. Paths are the program's word, so nothing else is read: a made-up
/// program could name any file.
const ENDINGS: &[&str] = &[
    "S", "c", "cc", "cpp", "cxx", "d", "f90", "go", "h", "hh", "hpp", "hxx", "inc", "inl", "m",
    "nim", "rs", "s", "swift", "zig",
];

/// Keep the text of the files whose lines have costs, if they are found. Functions may be defined
/// in other files, which can't be shown.
pub(crate) fn embed(recording: &mut Recording) {
    let mut files: Vec<u32> = (recording.line_costs.iter()).map(|c| c.source.file).collect();
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

/// Keep the text of executed kernel lines, with some lines around them; other lines are empty, for the files of a
/// packet's path are large and many. `read` reads files by their paths in the source.
pub(crate) fn embed_kernel(
    recording: &mut Recording,
    read: impl FnOnce(&BTreeSet<PathBuf>) -> BTreeMap<PathBuf, String>,
) {
    // Of each file, the lines that were executed, and how often.
    let mut lines: BTreeMap<u32, (u64, BTreeSet<u32>)> = BTreeMap::new();
    for code in &recording.code {
        let function = &recording.functions[code.function as usize];
        if function.layer.as_deref() == Some(APPLICATION) {
            continue;
        }
        let insns = code.insns.iter().filter_map(|insn| Some((insn.source?, insn.times)));
        let of_function = function.source.map(|source| (source, 0));
        for (source, times) in insns.chain(of_function) {
            let of_file = lines.entry(source.file).or_default();
            of_file.0 += times;
            of_file.1.insert(source.line);
        }
    }
    lines.retain(|file, _| !recording.source_texts.contains_key(file));
    let path = |file: u32| recording.source_files.get(file as usize).map(PathBuf::from);
    let texts = read(&lines.keys().filter_map(|file| path(*file)).collect());
    let mut all: usize = recording.source_texts.values().map(String::len).sum();
    let mut files: Vec<(u32, (u64, BTreeSet<u32>))> = lines.into_iter().collect();
    files.sort_by_key(|(file, (times, _))| (Reverse(*times), *file));
    for (file, (_, executed)) in files {
        let Some(text) = path(file).and_then(|path| texts.get(&path)) else {
            continue;
        };
        let text = around(text, &executed);
        if all + text.len() <= MAX_ALL_BYTES && !text.contains('\0') {
            all += text.len();
            recording.source_texts.insert(file, text);
        }
    }
}

/// Some lines of a text and those around them, the others empty.
fn around(text: &str, lines: &BTreeSet<u32>) -> String {
    let mut out = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let near = u32::saturating_sub(number, AROUND)..=number + AROUND;
        if lines.range(near).next().is_some() {
            out.push_str(line);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end_matches('\n').len());
    out.push('\n');
    out
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
    File::open(path).ok()?.take(most).read_to_string(&mut text).ok()?;
    (text.len() <= MAX_BYTES && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use netplumb_model::code::{FunctionCode, Instruction};
    use netplumb_model::recording::{Function, LineCost, SourceLine};

    use super::*;

    /// Check that executed lines of the kernel's source are kept with their surroundings, each under its number, and
    /// nothing of files without such lines.
    #[test]
    fn what_is_kept_of_the_kernel() {
        let function = |layer: Option<&str>| Function {
            name: "f".into(),
            module: None,
            layer: layer.map(String::from),
            address: 0,
            size_bytes: 0,
            source: None,
        };
        let code = |function, file, line| FunctionCode {
            arm: 0,
            function,
            address: 0,
            insns: vec![
                Instruction::new(0, &[0x90], 3).unwrap().at(Some(SourceLine { file, line })),
            ],
        };
        let names = ["net/a.c", "net/b.c", "/src/program.c", "net/missing.c"];
        let mut recording = Recording {
            functions: vec![function(Some("network")), function(Some(APPLICATION))],
            source_files: names.map(String::from).to_vec(),
            code: vec![code(0, 0, 40), code(1, 2, 1), code(0, 3, 1)],
            ..Recording::default()
        };
        let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        embed_kernel(&mut recording, |asked| {
            let wanted = ["net/a.c", "net/missing.c"].map(PathBuf::from);
            assert_eq!(*asked, BTreeSet::from(wanted));
            BTreeMap::from([(PathBuf::from("net/a.c"), text)])
        });
        assert_eq!(recording.source_texts.keys().collect::<Vec<_>>(), [&0]);
        let kept: Vec<&str> = recording.source_texts[&0].lines().collect();
        assert_eq!((kept.len(), kept[39], kept[0]), (48, "line 40", ""));
        let full = kept.iter().filter(|line| !line.is_empty()).count();
        assert_eq!(full, 17);
    }

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
