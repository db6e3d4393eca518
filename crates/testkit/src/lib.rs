//! For tests only: golden files, and words past the harness.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Set to anything, it makes [`golden`] write what it was given.
pub const BLESS: &str = "PLUMB_BLESS";

/// Say why a test does nothing: it passes, and is counted as skipped by `make test`.
///
/// The one way to skip: what `eprintln!` writes is kept by the harness of a test that
/// passes, so that nobody would know.
pub fn skip(why: &str) {
    tell(&format!("skipped: {why}"));
}

/// Say something that is worth reading also when the test passes.
pub fn tell(what: &str) {
    // In one write, and so in one piece, whoever else writes.
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Compare a text with the file that holds what it is to be.
///
/// With `PLUMB_BLESS=1 cargo test` the file is written instead; look at the
/// difference before it is committed.
///
/// # Panics
/// They differ, or the file can't be read or written.
#[track_caller]
pub fn golden(path: &Path, text: &str) {
    let shown = path.display();
    if env::var_os(BLESS).is_some() {
        if let Err(e) = write(path, text) {
            panic!("writing {shown}: {e}");
        }
        return;
    }
    let golden = match fs::read_to_string(path) {
        Ok(golden) => golden,
        Err(e) => panic!("reading {shown}: {e}; `{BLESS}=1 cargo test` writes it"),
    };
    if golden != text {
        panic!("{}", difference(&shown.to_string(), &golden, text));
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// The first line that differs, and all of the new text.
fn difference(path: &str, golden: &str, text: &str) -> String {
    let mut old = golden.split('\n');
    let mut new = text.split('\n');
    let mut line = 1;
    let (was, is) = loop {
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => line += 1,
            (a, b) => break (a.unwrap_or("(no line)"), b.unwrap_or("(no line)")),
        }
    };
    format!(
        "{path} differs from line {line} on\n  golden: {was:?}\n  now:    {is:?}\n\
         If that is right, `{BLESS}=1 cargo test` updates it. The whole text:\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the process that skips.
    const SKIPS: &str = "PLUMB_TEST_SKIPS";

    /// What skips, in a process of its own; otherwise nothing.
    #[test]
    fn child() {
        if env::var_os(SKIPS).is_some() {
            eprintln!("this is kept");
            skip("there is no moon tonight");
        }
    }

    /// Check that a skipped test says so though the harness keeps what tests write, and
    /// that it passes.
    #[test]
    fn a_skip_is_heard() {
        for threads in ["1", "2"] {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "tests::child", "--test-threads", threads])
                .env(SKIPS, "1")
                .output()
                .unwrap();
            assert!(child.status.success(), "{child:?}");
            let told = String::from_utf8(child.stderr).unwrap();
            assert_eq!(told, "skipped: there is no moon tonight\n");
        }
    }

    /// Check that a difference is shown where it is, also at the end.
    #[test]
    fn differences_are_located() {
        let told = difference("f", "a\nb\nc", "a\nx\nc");
        assert!(
            told.starts_with("f differs from line 2 on\n  golden: \"b\"\n  now:    \"x\""),
            "{told}"
        );
        let told = difference("f", "a", "a\n");
        assert!(told.contains("line 2"), "{told}");
        assert!(told.contains("golden: \"(no line)\""), "{told}");
    }
}
