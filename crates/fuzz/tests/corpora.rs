//! Reads every input that fuzzing found worth keeping, and files that the repository has anyway.

use std::fs;
use std::path::{Path, PathBuf};

use netplumb_fuzz::{TARGETS, Target, named};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a folder, in order; none if there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Check that no kept input is a panic, that each corpus is a target's, and that each has valid inputs: a target that takes
/// nothing for valid tries only the beginning of a parser.
#[test]
fn every_input_is_read() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(&corpora).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(named(&name).is_some(), "corpus/{name} is of no target");
    }
    for Target { name, run, .. } in TARGETS {
        let inputs = files(&corpora.join(name));
        let valid = inputs.iter().filter(|input| run(&fs::read(input).unwrap()));
        assert!(valid.count() > 0, "corpus/{name} has no valid input");
    }
}

/// Check that experiments and rules of the repository, whole and cut short at any place, are no panic.
#[test]
fn own_files_cut_short() {
    let of = [
        ("experiment", "experiments"),
        ("rules", "crates/kernel/rules"),
        ("kallsyms", "crates/kernel/testdata"),
    ];
    for (target, folder) in of {
        let run = named(target).unwrap().run;
        for file in files(&root().join(folder)) {
            let bytes = fs::read(file).unwrap();
            assert!(run(&bytes) || folder != "experiments", "{target}");
            let step = (bytes.len() / 50).max(1);
            for end in (0..bytes.len()).step_by(step) {
                run(&bytes[..end]);
            }
        }
    }
}
