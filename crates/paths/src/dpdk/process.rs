//! testpmd as a child process: start in a namespace, monitoring, end, removal of its files.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netplumb_sys::netns::Namespace;

use super::telemetry::{Port, Telemetry};
use crate::error::{Doing, PathError};
use crate::tool::Tool;

/// Timeout of its start, which takes a second or two.
const START: Duration = Duration::from_secs(20);
/// Timeout of its end.
const END: Duration = Duration::from_secs(3);
const NAP: Duration = Duration::from_millis(20);
/// How much of the end of its output is kept.
const OUTPUT_BYTES: usize = 4096;
/// Where DPDK makes a directory of files of its processes, whoever runs them: by a variable, without which only root's are
/// there (eal_create_runtime_dir).
const RUNTIME: (&str, &str) = ("RUNTIME_DIRECTORY", "/run");

/// To give each its own directory.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The state of the child, shared with its thread.
#[derive(Debug, Default)]
struct State {
    output: Vec<u8>,
    /// How it exited.
    ended: Option<String>,
}

/// A running testpmd; dropping it ends the program.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    state: Arc<Mutex<State>>,
    stdin: Option<ChildStdin>,
    keeper: Option<JoinHandle<()>>,
    telemetry: Option<Telemetry>,
    folder: PathBuf,
    pub(super) version: String,
}

impl Process {
    /// Start it, and wait until its `workers` forwarding threads are running.
    pub(super) fn start(
        tool: &Tool,
        namespace: &Namespace,
        arguments: &[String],
        workers: usize,
    ) -> Result<Process, PathError> {
        let doing = || "start dpdk-testpmd".to_string();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("plumb-{}-{number}", std::process::id());
        let mut command = Command::new(&tool.path);
        let (output, input) = io::pipe().doing(doing)?;
        command
            .env(RUNTIME.0, RUNTIME.1)
            .arg(format!("--file-prefix={prefix}"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(input.try_clone().doing(doing)?)
            .stderr(input);
        // SAFETY: between fork and exec it makes one system call, which is safe there.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let state = Arc::new(Mutex::new(State::default()));
        let (started, start) = mpsc::channel();
        let namespace = Namespace::from(namespace.try_clone().doing(doing)?);
        let kept = state.clone();
        // A child dies with the thread that started it, not with the process
        // (PR_SET_PDEATHSIG): so it has a thread that lives as long as it does.
        let keeper = std::thread::Builder::new()
            .name("dpdk-testpmd".into())
            .spawn(move || keep(command, &namespace, &started, output, &kept))
            .doing(doing)?;
        let child = start.recv().unwrap_or_else(|_| Err(io::Error::other("it has crashed")));
        let (pid, stdin) = child.doing(doing)?;
        let mut process = Process {
            pid,
            state,
            stdin,
            keeper: Some(keeper),
            telemetry: None,
            folder: Path::new(RUNTIME.1).join("dpdk").join(prefix),
            version: String::new(),
        };
        let telemetry = process.at_work(workers)?;
        process.version = telemetry.version.clone();
        process.telemetry = Some(telemetry);
        Ok(process)
    }

    /// Wait until it is running.
    fn at_work(&self, workers: usize) -> Result<Telemetry, PathError> {
        let start = Instant::now();
        let mut telemetry = None;
        let mut before: Vec<u64> = Vec::new();
        loop {
            self.check()?;
            if telemetry.is_none() {
                telemetry = Telemetry::connect(&self.folder).ok();
            }
            // It reports the start of forwarding only when it ends; but its forwarding threads then
            // poll and use all of their CPUs.
            let ticks = ticks(self.pid);
            if ticks.len() == workers && before.len() != workers {
                before = ticks;
            } else if ticks.len() == workers
                && works(&before, &ticks)
                && let Some(telemetry) = telemetry
            {
                return Ok(telemetry);
            }
            if start.elapsed() > START {
                let late = io::Error::from(io::ErrorKind::TimedOut);
                return Err(late)
                    .doing(|| format!("start dpdk-testpmd; its output: {}", self.output_text()));
            }
            std::thread::sleep(NAP);
        }
    }

    /// The end of its output.
    fn output_text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&state.output);
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("; ")
    }

    /// Check that it is running.
    pub(super) fn check(&self) -> Result<(), PathError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = state.ended.clone();
        drop(state);
        match ended {
            None => Ok(()),
            Some(how) => Err(PathError::System {
                doing: "go on with dpdk-testpmd".into(),
                source: format!("it ended ({how}); its output: {}", self.output_text()).into(),
            }),
        }
    }

    /// The counters of a port.
    pub(super) fn port(&self, number: u32) -> io::Result<Port> {
        match &self.telemetry {
            Some(telemetry) => telemetry.port(number),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Start the child, collect its output, and wait for it.
fn keep(
    mut command: Command,
    namespace: &Namespace,
    started: &mpsc::Sender<io::Result<(u32, Option<ChildStdin>)>>,
    mut output: io::PipeReader,
    state: &Mutex<State>,
) {
    // A child is in the namespace of the thread that starts it.
    let child = namespace.inside(|| command.spawn());
    // It holds the pipe's other end too.
    drop(command);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok((child.id(), child.stdin.take())));
    let mut buffer = [0; 1024];
    while let Ok(bytes) = output.read(&mut buffer) {
        if bytes == 0 {
            break;
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.output.extend(&buffer[..bytes]);
        let over = state.output.len().saturating_sub(OUTPUT_BYTES);
        state.output.drain(..over);
    }
    let ended = match child.wait() {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.ended = Some(ended);
}

/// CPU ticks of its forwarding threads.
fn ticks(pid: u32) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut ticks = Vec::new();
    for task in tasks.into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        ticks.extend(worker_ticks(&stat));
    }
    ticks
}

/// The ticks in a line of /proc/PID/task/TID/stat, if it is of a forwarding thread: `rte-worker-1`,
/// or `dpdk-worker1` from DPDK 23.11 on.
fn worker_ticks(stat: &str) -> Option<u64> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    if !name.starts_with("rte-worker") && !name.starts_with("dpdk-worker") {
        return None;
    }
    // The state is the first one after the name; utime and stime are the 14th and 15th
    // of all.
    let mut numbers = rest.split_whitespace().skip(11);
    let user: u64 = numbers.next()?.parse().ok()?;
    let system: u64 = numbers.next()?.parse().ok()?;
    Some(user + system)
}

/// Whether all threads have used CPU since.
fn works(before: &[u64], now: &[u64]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(b, n)| *n >= b + 3)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.telemetry = None;
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b"quit\n");
        }
        let start = Instant::now();
        let over = |keeper: &JoinHandle<()>| keeper.is_finished();
        if let Some(keeper) = self.keeper.take() {
            while !over(&keeper) && start.elapsed() < END {
                std::thread::sleep(NAP);
            }
            if !over(&keeper) {
                let pid = self.pid as libc::pid_t; // of a process, and so no more than 2^22
                // SAFETY: takes numbers. The child has not been waited for while its
                // keeper is there, so the number is still its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            let _ = keeper.join();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ticks are read for forwarding threads, of both names, and for no others.
    #[test]
    fn threads_at_work() {
        let stat = |name: &str| {
            format!("77 ({name}) R 1 77 77 0 -1 4194368 5 0 0 0 38 57 0 0 20 0 7 0 1 2 3")
        };
        assert_eq!(worker_ticks(&stat("rte-worker-1")), Some(95));
        assert_eq!(worker_ticks(&stat("dpdk-worker1")), Some(95));
        assert_eq!(worker_ticks(&stat("dpdk-testpmd")), None);
        assert_eq!(worker_ticks(""), None);
        assert!(works(&[95], &[98]));
        assert!(!works(&[95, 1], &[98, 1]));
        assert!(!works(&[95], &[]));
    }
}
