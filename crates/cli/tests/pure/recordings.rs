//! Recordings of every kind report the same figures as when they were made.
//!
//! `recordings/NAME.plumb.xz` is a recording, one of each kind: `NAME.txt` and `NAME.csv` are the output of the program
//! of that time, except for words that were changed since.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Place, Running};
use netplumb_kernel::compression::{self, Compression};
use netplumb_model::recording::env;
use netplumb_testkit::has_root;

/// Every kind, and whether functions or stages of it go to other programs' formats.
const KINDS: &[(&str, bool)] = &[
    ("bench", false),
    ("command", true),
    ("exact", true),
    ("explain", false),
    ("functions", true),
    ("scan", true),
    ("search", false),
    ("seeds", true),
    // Cut short: killed while it was being made.
    ("short", true),
    ("stages", true),
];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/recordings")
}

/// Put a recording where it can be read, and return its bytes.
fn unpacked(place: &Place, name: &str) -> Vec<u8> {
    let packed = fs::read(kept().join(format!("{name}.plumb.xz"))).unwrap();
    let bytes = compression::unpack(Compression::Xz, &packed, 8 << 20).unwrap();
    fs::write(place.path(&format!("{name}.plumb")), &bytes).unwrap();
    bytes
}

/// Check that reports and tables have the figures that they had.
#[test]
fn the_same_figures() {
    let place = Place::new();
    for (name, _) in KINDS {
        let before = unpacked(&place, name);
        for (format, suffix) in [("", "txt"), ("--csv", "csv")] {
            let ran = place.run(&format!("report {name}.plumb {format}"));
            ran.code(0);
            let golden = kept().join(format!("{name}.{suffix}"));
            // Of some the table is too long to be kept.
            if golden.exists() {
                netplumb_testkit::golden(&golden, &ran.stdout);
            }
        }
        let file = fs::read(place.path(&format!("{name}.plumb"))).unwrap();
        assert!(file == before, "{name}: the file was changed");
    }
}

/// Check that they open in every way there is, and are no different from themselves.
#[test]
fn every_format() {
    let place = Place::new();
    for (name, has_tree) in KINDS {
        unpacked(&place, name);
        let _ = fs::remove_file(place.path("out.md"));
        for format in ["--json", "--html out.html"] {
            place.run(&format!("report {name}.plumb {format}")).code(0);
            let _ = fs::remove_file(place.path("out.html"));
        }
        place.run(&format!("report {name}.plumb --markdown out.md")).code(0);
        let code = if *has_tree { 0 } else { 2 };
        place.run(&format!("report {name}.plumb --openmetrics")).code(code);
        let (one, other) = (format!("{name}.plumb"), format!("{name}-too.plumb"));
        fs::copy(place.path(&one), place.path(&other)).unwrap();
        place.run(&format!("diff {one} {other}")).code(0);
    }
}

/// Check that a redacted recording of each kind has all figures and no secret, that `report --redact` prints the same, and
/// that the texts in it are listed.
#[test]
fn nothing_identifying_is_left() {
    let place = Place::new();
    for (name, _) in KINDS {
        unpacked(&place, name);
        let ran = place.run(&format!("redact {name}.plumb -o given.plumb"));
        ran.code(0);
        assert!(ran.stdout.starts_with("What is left:\n"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("plumb.argv"), "{}", ran.stdout);
        let bytes = fs::read(place.path("given.plumb")).unwrap();
        let before = place.recording(&format!("{name}.plumb"));
        let identifies = [env::ARGV, env::CMDLINE].map(|key| before.environment.get(key));
        for text in identifies.into_iter().flatten().filter(|text| text.len() > 8) {
            let is_there = bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!is_there, "{name}: {text}");
        }
        let rows = |file: &str| {
            let ran = place.run(&format!("report {file} --csv"));
            let rows = ran.code(0).stdout.lines().map(|line| {
                let cells = line.split(',').map(|cell| cell.parse::<f64>().ok());
                cells.flatten().map(f64::to_bits).collect::<Vec<_>>()
            });
            rows.collect::<Vec<_>>()
        };
        assert_eq!(rows(&format!("{name}.plumb")), rows("given.plumb"), "{name}");
        let shown = place.run(&format!("report {name}.plumb --redact --json"));
        let given = place.run("report given.plumb --json");
        assert_eq!(shown.code(0).stdout, given.code(0).stdout, "{name}");
        fs::remove_file(place.path("given.plumb")).unwrap();
    }
    place.run("report exact.plumb --keep paths").code(2);
    place.run("redact exact.plumb -o given.plumb --keep everything").code(2);
    place.run("redact exact.plumb").code(2);
    place.run("redact none.plumb -o given.plumb").code(1);
    assert!(!place.path("given.plumb").exists());
}

/// Check that what root writes for a caller of sudo belongs to that caller in a directory of theirs, also if it replaces a
/// file, and to root elsewhere.
#[test]
fn files_belong_to_who_called_sudo() {
    use std::os::unix::fs::{MetadataExt, chown};
    const CALLER: u32 = 65_534;
    if !has_root() {
        return;
    }
    let place = Place::new();
    unpacked(&place, "short");
    fs::create_dir(place.path("theirs")).unwrap();
    chown(place.path("theirs"), Some(CALLER), Some(CALLER)).unwrap();
    let outputs = [("theirs/a.html", CALLER), ("theirs/a.html", CALLER), ("own.html", 0)];
    for (file, owner) in outputs {
        let mut command = place.plumb(&format!("report short.plumb --html {file}"));
        command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
        Running::start(&mut command).finish().code(0);
        assert_eq!(fs::metadata(place.path(file)).unwrap().uid(), owner, "{file}");
    }
    let mut command = place.plumb("redact short.plumb -o theirs/b.plumb");
    command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
    Running::start(&mut command).finish().code(0);
    assert_eq!(fs::metadata(place.path("theirs/b.plumb")).unwrap().uid(), CALLER);
}

/// Check that a loss of an old recording, which does not name its instrument, is in the report of
/// each.
#[test]
fn losses_of_nobody_in_particular() {
    let place = Place::new();
    unpacked(&place, "explain");
    for by in ["rates", "exact"] {
        let ran = place.run(&format!("report explain.plumb --clock {by}"));
        crate::common::prints(ran.code(0), &["12,096 stack addresses outside of the kernel"]);
    }
}
