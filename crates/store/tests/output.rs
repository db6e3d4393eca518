//! Where a recording goes, and what becomes of an existing file, as a caller sees it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use netplumb_model::recording::Recording;
use netplumb_store::{Output, StoreError, Writer, read};
use tempfile::TempDir;

/// A recording that is known by its text.
fn recording(text: &str) -> Recording {
    Recording { experiment_toml: text.into(), ..Recording::default() }
}

fn record(path: &Path, text: &str) -> Option<PathBuf> {
    let writer = Writer::begin(Output::claim(path).unwrap(), &recording(text)).unwrap();
    writer.kept().map(Path::to_path_buf)
}

fn text(path: &Path) -> String {
    read(path).unwrap().experiment_toml
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// Check that a recording of the same name is kept, the last as NAME.old, and every one before that
/// under another name.
#[test]
fn old_ones_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let old = |ending: &str| folder.path().join(format!("a.plumb.old{ending}"));
    assert_eq!(record(&path, "1"), None);
    for n in 2..=5 {
        let kept = record(&path, &n.to_string()).unwrap();
        assert_eq!(kept.file_name(), old("").file_name());
    }
    assert_eq!(text(&path), "5");
    assert_eq!(text(&old("")), "4");
    assert_eq!(text(&old(".3")), "3");
    assert_eq!(text(&old(".2")), "2");
    assert_eq!(text(&old(".1")), "1");
    assert_eq!(names(&folder).len(), 5);
}

/// Check that a file named NAME.old that is not ours keeps its name.
#[test]
fn others_files_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    fs::write(folder.path().join("a.plumb.old"), "notes").unwrap();
    record(&path, "1");
    let kept = record(&path, "2").unwrap();
    assert_eq!(kept.file_name().unwrap(), "a.plumb.old.1");
    assert_eq!(text(&kept), "1");
    let notes = fs::read(folder.path().join("a.plumb.old")).unwrap();
    assert_eq!(notes, b"notes");
}

/// Check that other files are neither renamed nor replaced, whatever they are, and that
/// asking leaves nothing.
#[test]
fn only_recordings_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text"), "kept").unwrap();
    symlink("text", path("link")).unwrap();
    let database = rusqlite::Connection::open(path("database")).unwrap();
    database.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(database);
    fs::create_dir(path("folder")).unwrap();
    let before = names(&folder);
    for name in ["text", "link", "database"] {
        let refused = Output::claim(&path(name)).unwrap_err();
        assert!(matches!(refused, StoreError::Foreign(_)), "{refused}");
        assert!(refused.is_usage());
    }
    for name in [path("folder"), "/dev/null".into(), "-".into(), "/dev/stdout".into()] {
        let refused = Output::claim(&name).unwrap_err();
        assert!(matches!(refused, StoreError::NoFile { .. }), "{refused}");
    }
    let refused = Output::claim(&path("none/a.plumb")).unwrap_err();
    assert!(matches!(refused, StoreError::Write { .. }), "{refused}");
    Output::claim(&path("a.plumb")).unwrap();
    assert_eq!(names(&folder), before);
    assert_eq!(fs::read(path("text")).unwrap(), b"kept");
}

/// Check that a link stays one: what it leads to is written, also where there is nothing yet.
#[test]
fn links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("there")).unwrap();
    symlink("there/b.plumb", path("a.plumb")).unwrap();
    record(&path("a.plumb"), "1");
    record(&path("a.plumb"), "2");
    assert!(path("a.plumb").is_symlink());
    assert_eq!(text(&path("there/b.plumb")), "2");
    assert_eq!(text(&path("there/b.plumb.old")), "1");
    // One that leads to itself leads nowhere.
    symlink("loop", path("loop")).unwrap();
    let error = Output::claim(&path("loop")).unwrap_err().to_string();
    assert!(error.contains("Too many levels of symbolic links"), "{error}");
}

/// Check that an empty file, as `mktemp` makes it, becomes the recording.
#[test]
fn an_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "").unwrap();
    assert_eq!(record(&path, "1"), None);
    assert_eq!(text(&path), "1");
    assert_eq!(names(&folder), ["a"]);
}

/// Check that a name is locked from when it is claimed until its writer ends.
#[test]
fn one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    symlink("a.plumb", folder.path().join("link")).unwrap();
    let busy = |path: &Path| {
        let refused = Output::claim(path).unwrap_err();
        let me = Some(std::process::id());
        assert!(matches!(refused, StoreError::Busy { pid, .. } if pid == me));
    };
    let output = Output::claim(&path).unwrap();
    busy(&path);
    let writer = Writer::begin(output, &recording("1")).unwrap();
    busy(&path);
    busy(&folder.path().join("link"));
    Output::claim(&folder.path().join("b.plumb")).unwrap();
    drop(writer);
    Output::claim(&path).unwrap();
}

/// Leave a recording as a writer does that is killed within a transaction: some of its pages are in
/// the file, and a journal has the earlier contents.
fn killed_within(path: &Path) {
    let work = tempfile::tempdir().unwrap();
    let first = work.path().join("a");
    record(&first, "before");
    let connection = rusqlite::Connection::open(&first).unwrap();
    connection.pragma_update(None, "cache_size", 1).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    connection
        .execute("UPDATE recording SET value = 'after' WHERE key = 'experiment'", [])
        .unwrap();
    for n in 1..2000 {
        connection
            .execute("INSERT INTO loss VALUES ('exact', ?, 1, 'm')", [format!("loss {n}")])
            .unwrap();
    }
    fs::copy(&first, path).unwrap();
    let journal = PathBuf::from(format!("{}-journal", path.display()));
    fs::copy(work.path().join("a-journal"), journal).unwrap();
}

/// Check that a journal stays with its file: one that was left by a writer that was killed is
/// not applied to the recording that comes after.
#[test]
fn a_journal_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    killed_within(&path);
    record(&path, "new");
    assert_eq!(names(&folder), ["a.plumb", "a.plumb.old"]);
    assert_eq!(text(&path), "new");
    assert_eq!(text(&folder.path().join("a.plumb.old")), "before");
    // The same where the file was removed and its journal was not.
    let path = folder.path().join("b.plumb");
    killed_within(&path);
    fs::remove_file(&path).unwrap();
    record(&path, "new");
    assert_eq!(text(&path), "new");
    let kept = ["a.plumb", "a.plumb.old", "b.plumb", "b.plumb-journal.old"];
    assert_eq!(names(&folder), kept);
    // Someone else's file that happens to have that name.
    let path = folder.path().join("c.plumb");
    fs::write(folder.path().join("c.plumb-journal"), "dear diary").unwrap();
    let error = Output::claim(&path).unwrap_err();
    assert!(error.is_usage(), "{error}");
}

/// Check that a file appears only with its contents.
#[test]
fn whole_when_it_appears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let output = Output::claim(&path).unwrap();
    assert!(!path.exists());
    let mut writer = Writer::begin(output, &recording("1")).unwrap();
    assert_eq!(text(&path), "1");
    let more = Recording { complete: true, ..recording("1") };
    writer.save(&more).unwrap();
    assert!(read(&path).unwrap().complete);
}

/// Check that a pipe is written to when it has a reader, and that the wait for a reader ends.
#[test]
fn pipes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let target = netplumb_store::target::Target::from_path(&path).unwrap();
    let error = target.write(b"page").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    // Larger than what a pipe holds: the reader sets the pace.
    let bytes = vec![7; 1 << 20];
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    target.write(&bytes).unwrap();
    assert_eq!(reader.join().unwrap(), bytes);
}
