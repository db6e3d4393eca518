//! What tracing calls costs: `plumb trace` beside `plumb path`, and the size of a trace and the time to
//! open it, per call: `make bench`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each is run; the fastest counts.
const ROUNDS: usize = 3;
/// Runs of the same function, and a program with some million calls.
const RUNS: [(&str, &str); 2] = [
    ("path --packets 500 --blocks 1", "without a trace"),
    (
        "trace udp_sendmsg --packets 500 --depth 100 --slowest 1000",
        "with every call below udp_sendmsg",
    ),
];
/// One call with a million below it, in a program of the talk on uftrace.
const LOOP: &str = "long f(long n) { __asm__ volatile(\"\" : \"+r\"(n)); return n; }\n\
                    long g(long n) { __asm__ volatile(\"\" : \"+r\"(n)); return f(n) + f(n + 1); }\n\
                    int main(void) { long s = 0; for (long n = 0; n < 340000; n++) s += g(n); return s == 1; }\n";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("trace: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (words, what) in RUNS {
        let took = fastest(folder.path(), words)?;
        println!("{what}: {:.2} s (plumb {words})", took.as_secs_f64());
    }
    fs::write(folder.path().join("p.c"), LOOP)?;
    let compiled = Command::new("cc")
        .args(["-O1", "-fno-inline", "-static", "-o", "p", "p.c"])
        .current_dir(folder.path())
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: a call with a million below it (no C compiler)");
        return Ok(());
    }
    let experiment = "name = \"million\"\ninstruments = [\"exact\"]\n[workload]\nkind = \"command\"\n\
                      command = [\"./p\"]\n[trace]\nfunction = \"main\"\nsteps = 2_000_000\n";
    fs::write(folder.path().join("million.toml"), experiment)?;
    for words in ["path -o x.plumb -- ./p", "run million.toml -o x.plumb"] {
        let took = fastest(folder.path(), words)?;
        let bytes = fs::metadata(folder.path().join("x.plumb"))?.len();
        let begun = Instant::now();
        let recording = netplumb_store::read(&folder.path().join("x.plumb"))?;
        let open = begun.elapsed();
        let calls: usize = recording.traces.iter().map(|t| t.steps.len()).sum();
        println!(
            "plumb {words}: {:.2} s; {calls} calls, {bytes} bytes, {:.2} for each; opened in {:.0} ms",
            took.as_secs_f64(),
            bytes as f64 / calls.max(1) as f64,
            open.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

/// The fastest of several runs.
fn fastest(folder: &Path, words: &str) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let done = Command::new(env!("CARGO_BIN_EXE_plumb"))
            .args(words.split(' ').take(1))
            .arg("-q")
            .args(words.split(' ').skip(1))
            .current_dir(folder)
            .output()?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into());
        }
        best = best.min(begun.elapsed());
    }
    Ok(best)
}
