//! A killed writer leaves files that open, or none, whatever it was doing.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use netplumb_model::loss::Loss;
use netplumb_model::recording::Recording;
use netplumb_store::{Output, Writer, read};

/// Where a process of ours is to write until it is killed.
const WHERE: &str = "PLUMB_TEST_WRITES_TO";

/// Makes one recording after the other, each saved in pieces.
fn write_until_killed(path: &Path) {
    for n in 0_u64.. {
        let mut recording = Recording { experiment_toml: n.to_string(), ..Recording::default() };
        let mut writer = Writer::begin(Output::claim(path).unwrap(), &recording).unwrap();
        for piece in 0..3 {
            let loss =
                |m| Loss { cause: format!("{piece} {m}"), count: n, meaning: "m".repeat(100) };
            let losses = recording.losses.entry("exact".into()).or_default();
            losses.extend((0..200).map(loss));
            recording.complete = piece == 2;
            writer.save(&recording).unwrap();
        }
        // As many as it takes to have names given again.
        if n % 4 == 3 {
            for older in 1..4 {
                let _ = fs::remove_file(format!("{}.old.{older}", path.display()));
            }
        }
    }
}

/// The writer that is killed; it does nothing in an ordinary run of the tests.
#[test]
fn child() {
    if let Some(path) = std::env::var_os(WHERE) {
        write_until_killed(&PathBuf::from(path));
    }
}

/// Check that after a kill at any moment every file opens, that the recording exists once
/// one did, that no other file is left, and that the name is free again.
#[test]
fn at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut was_there = false;
    // Each takes a second or two of reading.
    for n in 0..netplumb_testkit::kills(20) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child"])
            .env(WHERE, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Moments that no two share: multiples of the golden ratio, modulo one.
        sleep(Duration::from_secs_f64(n as f64 * 0.618_034 % 1.0 * 0.1));
        child.kill().unwrap();
        child.wait().unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with("a.plumb"), "{name} after kill {n}");
            if !name.ends_with("-journal") {
                let opened = read(&file);
                assert!(opened.is_ok(), "{name} after kill {n}: {opened:?}");
            }
        }
        assert!(path.exists() || !was_there, "gone after kill {n}");
        was_there = path.exists();
    }
    assert!(was_there, "none was ever made");
    Output::claim(&path).unwrap();
}
