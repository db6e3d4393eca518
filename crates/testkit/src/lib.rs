//! For tests only: golden files, words past the harness, and checks tried many times.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set to anything, it makes [`golden`] write its text.
pub const BLESS: &str = "PLUMB_BLESS";

/// Print why a test does nothing: it passes, and is counted as skipped by `make test`.
///
/// The one way to skip: what `eprintln!` writes is kept by the harness of a test that
/// passes, so that nobody would know.
pub fn skip(why: &str) {
    tell(&format!("skipped: {why}"));
}

/// Whether tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The same, and a skip where they don't: namespaces can't be made, nor BPF programs loaded.
pub fn has_root() -> bool {
    if !is_root() {
        skip("not root");
    }
    is_root()
}

/// Print something that is worth reading also when the test passes.
pub fn tell(what: &str) {
    // In one write, and so in one piece, whoever else writes.
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Check that a text is OpenMetrics, by the parser of Prometheus's Python client. False, with a note,
/// where that is not installed.
///
/// # Panics
/// It is not.
pub fn parse_openmetrics(text: &str) -> bool {
    const READ: &str = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
        print(sum(len(f.samples) for f in read(sys.stdin.read())))";
    const HAVE: &str = "import prometheus_client.openmetrics.parser";
    let quiet = |python: &&str| {
        let mut command = Command::new(python);
        let run = command.args(["-c", HAVE]).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    // Debian's packages are there for Debian's.
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(quiet) else {
        skip("prometheus_client is not installed: apt-get install python3-prometheus-client");
        return false;
    };
    let mut child = Command::new(python)
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{python}: {error}"));
    let mut input = child.stdin.take();
    // A child that does not read all of it reports why.
    let _ = input.as_mut().map(|input| input.write_all(text.as_bytes()));
    drop(input);
    let done = child.wait_with_output().unwrap_or_else(|error| panic!("{python}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{text}");
    let samples: usize = String::from_utf8_lossy(&done.stdout).trim().parse().unwrap_or(0);
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples, lines, "samples of {text}");
    true
}

/// Note what a test ran on, as a line of this system and `on` in the file that `$PLUMB_TEST_RAN` names, if it is set.
pub fn ran(on: &[&str]) {
    let Some(file) = env::var_os("PLUMB_TEST_RAN") else {
        return;
    };
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key| {
        let value = system.lines().find_map(|line| line.strip_prefix(key));
        value.unwrap_or_default().trim_matches('"')
    };
    let system = format!("{} {}", value("NAME="), value("VERSION_ID="));
    let line = format!("{system}\t{}", on.join("\t"));
    // Of a recording that a test tampered with.
    if on.iter().any(|part| part.contains(char::is_control)) {
        return;
    }
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    let _ = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// A second QEMU of another version, to compare with: of `$PLUMB_QEMU_OTHER`, or where `scripts/setup.sh
/// other-qemu` has it. None, with a note, where there is none.
pub fn other_qemu(program: &str) -> Option<PathBuf> {
    of_other_qemus(Path::new(program))
}

/// The QEMU of Debian's backports, which may be newer than any that was tested.
pub fn newest_qemu(program: &str) -> Option<PathBuf> {
    of_other_qemus(&Path::new("newest").join(program))
}

fn of_other_qemus(program: &Path) -> Option<PathBuf> {
    let folder = env::var_os("PLUMB_QEMU_OTHER").map(PathBuf::from).or_else(|| {
        let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let caches = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
        Some(caches.join("netplumb-other-qemu"))
    });
    let qemu = folder.map(|folder| folder.join(program)).filter(|qemu| qemu.is_file());
    if qemu.is_none() {
        let program = program.display();
        skip(&format!("no second {program}: scripts/setup.sh other-qemu"));
    }
    qemu
}

/// How often the same is compared with the same: in `PLUMB_TRIES`, or `few`.
///
/// # Panics
/// The variable is not a number.
pub fn tries(few: usize) -> usize {
    number("PLUMB_TRIES", few)
}

/// Whether tests are to repeat what they do many times over: `make soak`.
pub fn is_soak() -> bool {
    std::env::var_os("PLUMB_TRIES").is_some()
}

/// How many runs are killed: in `PLUMB_KILLS`, or `few`.
///
/// # Panics
/// The variable is not a number.
pub fn kills(few: usize) -> usize {
    number("PLUMB_KILLS", few)
}

fn number(name: &str, otherwise: usize) -> usize {
    match env::var(name) {
        Ok(said) => said.parse().unwrap_or_else(|_| panic!("{name}={said} is no number")),
        Err(_) => otherwise,
    }
}

/// Check that something goes well `well` times of `tries`, where it may go wrong for
/// reasons of the machine's.
///
/// Each try reports what it found. The last is the one after which no other could change the
/// outcome: not the first success, which a mostly broken check has, too.
///
/// # Panics
/// It went wrong too often.
#[track_caller]
pub fn mostly(well: usize, tries: usize, mut one: impl FnMut() -> Result<String, String>) {
    assert!(2 * well > tries && well <= tries, "{well} of {tries} is not most");
    let (mut good, mut bad, mut report) = (0, 0, String::new());
    while good < well && tries - bad >= well {
        let (mark, found) = match one() {
            Ok(found) => {
                good += 1;
                ("as it should be", found)
            }
            Err(found) => {
                bad += 1;
                ("NOT as it should be", found)
            }
        };
        report += &format!("  {mark}: {found}\n");
    }
    assert!(good >= well, "{good} of {}, not {well} of {tries}:\n{report}", good + bad);
    tell(&format!("{good} of {} tries:\n{}", good + bad, report.trim_end()));
}

/// Compare a text with the file that holds the expected one.
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
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;

    use super::*;

    /// Set for the process that skips.
    const SKIPS: &str = "PLUMB_TEST_SKIPS";

    /// Skip when run in the child process; otherwise do nothing.
    #[test]
    fn child() {
        if env::var_os(SKIPS).is_some() {
            eprintln!("this is kept");
            skip("there is no moon tonight");
        }
    }

    /// Check that the note of a skipped test is printed though the harness captures what tests
    /// print, and that the test passes.
    #[test]
    fn a_skip_is_heard() {
        for threads in ["1", "2"] {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "tests::child", "--test-threads", threads])
                .env(SKIPS, "1")
                .output()
                .unwrap();
            assert!(child.status.success(), "{child:?}");
            let stderr = String::from_utf8(child.stderr).unwrap();
            assert_eq!(stderr, "skipped: there is no moon tonight\n");
        }
    }

    /// Check that a try that succeeds often enough passes, that another fails with its message, and
    /// that neither is tried longer than necessary.
    #[test]
    fn most_have_to_go_well() {
        let run = |outcomes: &[bool]| {
            let mut left = outcomes.iter();
            let one = || match left.next() {
                Some(true) => Ok("fine".to_string()),
                Some(false) => Err("odd".to_string()),
                None => panic!("tried too often"),
            };
            let ended = catch_unwind(AssertUnwindSafe(|| mostly(3, 5, one)));
            let outcome = ended.map_err(|why| *why.downcast::<String>().unwrap());
            (outcome, left.len())
        };
        assert_eq!(run(&[true; 3]), (Ok(()), 0));
        assert_eq!(run(&[false, true, false, true, true]), (Ok(()), 0));
        let (outcome, left) = run(&[true, false, false, false, true]);
        assert_eq!(left, 1);
        let outcome = outcome.unwrap_err();
        assert!(outcome.starts_with("1 of 4, not 3 of 5"), "{outcome}");
        assert!(outcome.contains("NOT as it should be: odd"), "{outcome}");
        // One that is right in a third of the tries.
        assert!(run(&[true, false, false, true, false]).0.is_err());
    }

    /// Check that a difference is shown where it is, also at the end.
    #[test]
    fn differences_are_located() {
        let text = difference("f", "a\nb\nc", "a\nx\nc");
        assert!(
            text.starts_with("f differs from line 2 on\n  golden: \"b\"\n  now:    \"x\""),
            "{text}"
        );
        let text = difference("f", "a", "a\n");
        assert!(text.contains("line 2"), "{text}");
        assert!(text.contains("golden: \"(no line)\""), "{text}");
    }
}
