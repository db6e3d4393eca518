//! Programs that are run to their end, and end with us.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often a program is looked at, and whether it is to end.
const PATIENCE: Duration = Duration::from_millis(20);
/// The most of a program's output that is kept.
const OUTPUT_MAX_BYTES: u64 = 4 << 20;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Its output on both streams.
    pub(crate) output: String,
}

/// A program that reads nothing, speaks English, and ends when we do.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and
    // allocates nothing; it makes the child end with us, so that what it works on is not
    // changed after that.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    command
}

/// Run a program to its end; none if it was cancelled, and then it is gone with all that it
/// had started.
///
/// # Errors
/// It can't be started.
pub(crate) fn run(mut command: Command, cancel: &AtomicBool) -> io::Result<Option<Finished>> {
    let mut output = tempfile::tempfile()?;
    // A group of its own, so that those that it starts end with it.
    let mut child =
        command.stdout(output.try_clone()?).stderr(output.try_clone()?).process_group(0).spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if cancel.load(Ordering::Relaxed) {
            // SAFETY: it takes two integers; the group is the child's, which is not waited
            // for yet, so that its number is nobody else's.
            unsafe { libc::killpg(child.id() as i32, libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PATIENCE);
    };
    let output = text(&mut output)?;
    Ok(Some(Finished { status, output }))
}

fn text(output: &mut File) -> io::Result<String> {
    output.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = command("sh");
        command.args(["-c", script]);
        command
    }

    /// Check that both streams are kept, with the exit code.
    #[test]
    fn output() {
        let never = AtomicBool::new(false);
        let done = run(shell("echo one; echo two >&2; exit 3"), &never).unwrap();
        let done = done.unwrap();
        assert_eq!(done.output, "one\ntwo\n");
        assert_eq!(done.status.code(), Some(3));
    }

    /// Check that a program which is cancelled ends with what it started.
    #[test]
    fn cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("started");
        let script = format!("sleep 100 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let cancel = AtomicBool::new(false);
        let started = thread::scope(|scope| {
            scope.spawn(|| assert!(run(shell(&script), &cancel).unwrap().is_none()));
            while !file.exists() {
                thread::sleep(PATIENCE);
            }
            cancel.store(true, Ordering::Relaxed);
            std::fs::read_to_string(&file).unwrap()
        });
        let of_started = format!("/proc/{}/stat", started.trim());
        let is_gone = || match std::fs::read_to_string(&of_started) {
            Ok(text) => text.contains(") Z "),
            Err(_) => true,
        };
        let begun = Instant::now();
        while !is_gone() {
            assert!(begun.elapsed() < Duration::from_secs(50));
            thread::sleep(PATIENCE);
        }
    }
}
