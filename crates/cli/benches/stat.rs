//! `plumb stat` beside `perf stat`, alternating, on a program that makes a known number of system
//! calls: whether counts are equal, and what counting costs: `make bench`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each has a turn.
const ROUNDS: usize = 15;
/// System calls of a turn.
const WRITES: u64 = 1_000_000;
/// The counted events: two of a system call.
const EVENTS: &str =
    "syscalls:sys_enter_write,raw_syscalls:sys_enter,context-switches,minor-faults";

const PROGRAM: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    int main(int argc, char **argv)\n{\n\tint fd = open(\"/dev/null\", O_WRONLY);\n\
    \tfor (long i = atol(argv[1]); i > 0; i--)\n\t\tif (write(fd, \"x\", 1) != 1)\n\t\t\treturn 1;\n\
    \treturn 0;\n}\n";

/// A turn: how long it took, and the system calls that were counted.
type Turn = (f64, Option<u64>);

fn main() -> ExitCode {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("stat: skipped, as it takes root");
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A missing tool is not our failure.
            println!("stat: skipped: {error}");
            ExitCode::SUCCESS
        }
    }
}

fn compare() -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    std::fs::write(at.join("writes.c"), PROGRAM)?;
    let built = Command::new("cc")
        .args(["-O1", "-static", "-o", "writes", "writes.c"])
        .current_dir(at)
        .status()?;
    if !built.success() {
        return Err("cc failed".into());
    }
    println!(
        "\nCounting a program of {WRITES} system calls, medians of {ROUNDS} alternating rounds\n"
    );
    let (mut alone, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let mut equal = true;
    for _ in 0..ROUNDS {
        alone.push(run(at, &[])?.0);
        let (ns, counted) = plumb(at)?;
        equal &= counted == Some(WRITES);
        ours.push(ns);
        let (ns, counted) = perf(at)?;
        equal &= counted == Some(WRITES);
        theirs.push(ns);
    }
    let [alone, ours, theirs] = [alone, ours, theirs].map(median);
    println!("  alone       {alone:8.1} ns per system call");
    println!("  plumb stat  {ours:8.1}, {:+.1} ns", ours - alone);
    println!("  perf stat   {theirs:8.1}, {:+.1} ns", theirs - alone);
    println!("  counts      {} of both are {WRITES}", if equal { "all" } else { "NOT all" });
    // The kernel does the same for both: what starting takes is the difference.
    let fine = equal && ours - alone <= (theirs - alone) * 1.25 + 20.0;
    println!("  {}", if fine { "ok" } else { "NOT ok" });
    Ok(fine)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run(at: &Path, before: &[&str]) -> Result<(f64, String, String)> {
    let many = WRITES.to_string();
    let words: Vec<&str> = [before, &["./writes", &many]].concat();
    let begun = Instant::now();
    let done =
        Command::new(words[0]).args(&words[1..]).current_dir(at).stdin(Stdio::null()).output()?;
    let ns = begun.elapsed().as_nanos() as f64 / WRITES as f64;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !done.status.success() {
        return Err(text(&done.stderr).into());
    }
    Ok((ns, text(&done.stdout), text(&done.stderr)))
}

fn plumb(at: &Path) -> Result<Turn> {
    let words = [env!("CARGO_BIN_EXE_plumb"), "stat", "-q", "--json", EVENTS, "--"];
    let (ns, out, _) = run(at, &words)?;
    let document: Value = serde_json::from_str(&out)?;
    let rows = document["events"].as_array().ok_or("no events")?;
    let row = rows.iter().find(|row| row["event"] == "syscalls:sys_enter_write");
    Ok((ns, row.and_then(|row| row["count"].as_u64())))
}

fn perf(at: &Path) -> Result<Turn> {
    let (ns, _, said) = run(at, &["perf", "stat", "-x,", "-e", EVENTS, "--"])?;
    let row = said.lines().find(|line| line.contains("sys_enter_write"));
    let count = row.and_then(|row| row.split(',').next()?.parse().ok());
    Ok((ns, count))
}
