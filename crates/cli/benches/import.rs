//! perf.data of many samples: `plumb import` and reports against perf on the same file, with time,
//! memory and size: `make bench`.
//!
//! `PLUMB_PERF_DATA` names a file to take instead of one that is recorded here.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long is recorded, and how often: some 600,000 samples on two CPUs.
const SECONDS: &str = "16";
const FREQUENCY: &str = "20000";
/// What the CPUs do: many programs, with system calls and without.
const LOAD: &str = "while :; do tar cf - /usr/include 2>/dev/null | gzip -1 | sha256sum; \
                    find /usr/share -name '*.txt' 2>/dev/null | xargs -n 50 cat 2>/dev/null | \
                    sort | uniq -c | tail -1; done >/dev/null 2>&1";
/// How often each is run; the fastest counts.
const ROUNDS: usize = 3;

/// Time and memory of a command.
#[derive(Debug, Clone, Copy)]
struct Took {
    wall: Duration,
    cpu: Duration,
    memory_bytes: u64,
}

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Skipped>() => {
            println!("import: skipped: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("import: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What can't be done here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Skipped(String);

fn compare() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = match std::env::var_os("PLUMB_PERF_DATA") {
        Some(path) => fs::canonicalize(PathBuf::from(path))?,
        None => recorded(folder.path())?,
    };
    let data = data.to_str().ok_or("the name of the file is no text")?;
    let plumb = env!("CARGO_BIN_EXE_plumb");
    let import = took(folder.path(), plumb, &["import", data, "-o", "x.plumb"])?;
    let script = took(folder.path(), "perf", &["script", "-i", data]);
    let theirs = took(folder.path(), "perf", &["report", "-i", data, "--stdio"]);
    let tree = took(folder.path(), plumb, &["report", "x.plumb", "--tree"])?;
    let page = took(folder.path(), plumb, &["report", "x.plumb", "--html", "x.html"])?;
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    let (before, after) = (bytes(Path::new(data)), bytes(&folder.path().join("x.plumb")));
    println!("\nperf.data, the fastest of {ROUNDS}\n");
    println!(
        "  size                  perf.data {:>7.1} MB   recording {:>6.1} MB   1 : {:.1}",
        mb(before),
        mb(after),
        before as f64 / after.max(1) as f64
    );
    for (what, theirs, ours) in [
        ("perf script, import", &script, import),
        ("perf report, report", &theirs, tree),
        ("perf report, page", &theirs, page),
    ] {
        let Ok(theirs) = theirs else {
            println!("  {what:<22}{}", shown("plumb", ours));
            continue;
        };
        println!(
            "  {what:<22}{}   {}   {:.1} times the CPU time, {:.1} times the memory",
            shown("perf", *theirs),
            shown("plumb", ours),
            theirs.cpu.as_secs_f64() / ours.cpu.as_secs_f64().max(1e-3),
            theirs.memory_bytes as f64 / ours.memory_bytes.max(1) as f64
        );
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn shown(who: &str, took: Took) -> String {
    format!(
        "{who} {:.2} s ({:.2} s of CPU), {:.0} MB",
        took.wall.as_secs_f64(),
        took.cpu.as_secs_f64(),
        mb(took.memory_bytes)
    )
}

/// A load, stopped with all that it started.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // SAFETY: a signal to the group that this process made, whose leader has not been waited for.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// Record all CPUs while they are busy.
fn recorded(folder: &Path) -> Result<PathBuf> {
    use std::os::unix::process::CommandExt;
    let cpus = std::thread::available_parallelism()?.get();
    let load = |_| Command::new("sh").args(["-c", LOAD]).process_group(0).spawn().map(Load);
    let loads: std::io::Result<Vec<Load>> = (0..cpus).map(load).collect();
    let loads = loads?;
    let recorded = Command::new("perf")
        .args(["record", "-q", "-F", FREQUENCY, "-a", "-g", "-o", "x.data"])
        .args(["--", "sleep", SECONDS])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    drop(loads);
    match recorded {
        Ok(status) if status.success() => Ok(folder.join("x.data")),
        Ok(_) => Err(Skipped("perf can't record here".into()).into()),
        Err(error) => Err(Skipped(format!("perf: {error}")).into()),
    }
}

/// The fastest of some runs.
fn took(folder: &Path, program: &str, words: &[&str]) -> Result<Took> {
    let mut best: Option<Took> = None;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let child = Command::new(program)
            .args(words)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // SAFETY: `rusage` is numbers, and zero is a value of each.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        let mut status = 0;
        // SAFETY: both are written to, and the child is this process's own; `child` is not waited
        // for anywhere else.
        let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut used) };
        if waited < 0 || !ExitStatus::from_raw(status).success() {
            return Err(format!("{program} {} failed", words.join(" ")).into());
        }
        let time = |of: libc::timeval| {
            Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
        };
        let took = Took {
            wall: began.elapsed(),
            cpu: time(used.ru_utime) + time(used.ru_stime),
            // In KiB.
            memory_bytes: used.ru_maxrss as u64 * 1024,
        };
        best = match best {
            Some(best) if best.wall <= took.wall => Some(best),
            _ => Some(took),
        };
    }
    best.ok_or_else(|| "no rounds".into())
}
