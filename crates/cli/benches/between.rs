//! `plumb between` beside bpftrace, alternating, on a program that makes a known number of system calls,
//! and beside biolatency (libbpf-tools) on a known number of requests of a disk: what pairing an event
//! with another one costs, and whether any pair is lost: `make bench`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 9;
/// System calls of a turn: as many pairs.
const WRITES: u64 = 500_000;
/// Requests of a disk of a turn, and how often each has one.
const REQUESTS: u64 = 20_000;
const FEWER: usize = 5;

/// It prints how long its calls took, without the start and the end of a tool.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct timespec from, to;
	int fd = open("/dev/null", O_WRONLY);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (long i = atol(argv[1]); i > 0; i--)
		if (write(fd, "x", 1) != 1)
			return 1;
	clock_gettime(CLOCK_MONOTONIC, &to);
	FILE *took = fopen("took", "w");
	fprintf(took, "%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
	return fclose(took);
}
"#;

/// The same as a script, with a histogram as `biolatency` of bpftrace has it.
const SCRIPT: &str = "tracepoint:raw_syscalls:sys_enter /comm == \"writes\"/ { @begun[tid] = nsecs; } \
    tracepoint:raw_syscalls:sys_exit /@begun[tid]/ { \
    @ns = hist(nsecs - @begun[tid]); @ended = count(); delete(@begun[tid]); } \
    END { clear(@begun); }";

fn main() -> ExitCode {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("between: skipped, as it takes root");
        return ExitCode::SUCCESS;
    }
    let mut fine = true;
    for part in [compare, requests] {
        match part() {
            Ok(one) => fine &= one,
            // A missing tool is not our failure.
            Err(error) => println!("between: skipped: {error}"),
        }
    }
    match fine {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A loop device on a file; released when dropped.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Requests of a disk, each by itself, as by `dd iflag=direct`.
fn requests() -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let image = at.join("image");
    std::fs::File::create(&image)?.set_len(REQUESTS * 4096)?;
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output()?;
    if !made.status.success() {
        return Err("no loop devices".into());
    }
    let device = Loop(String::from_utf8(made.stdout)?.trim().into());
    let input = format!("if={}", device.0);
    let count = format!("count={REQUESTS}");
    let dd = ["dd", &input, "of=/dev/null", "bs=4K", &count, "iflag=direct"];
    println!(
        "\nPairing issue and completion of {REQUESTS} requests of a loop device, medians of {FEWER} alternating rounds\n"
    );
    let (mut alone, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lost_here, mut lost_there) = (0, 0);
    for _ in 0..FEWER {
        alone.push(reading(&dd)?.0);
        let events = ["block:block_rq_issue", "block:block_rq_complete"];
        let words =
            [&[env!("CARGO_BIN_EXE_plumb"), "between", "-q", "--json"][..], &events, &["--"], &dd]
                .concat();
        let (ns, out) = reading_in(at, &words)?;
        lost_here += REQUESTS.saturating_sub(total_of(&out)?);
        ours.push(ns);
        let (ns, pairs) = biolatency(&device.0, &dd)?;
        lost_there += REQUESTS.saturating_sub(pairs);
        theirs.push(ns);
    }
    let [alone, ours, theirs] = [alone, ours, theirs].map(median);
    println!("  alone                       {alone:8.0} ns per request");
    for (name, ns) in [("plumb between", ours), ("biolatency", theirs)] {
        println!("  {name:<26}  {ns:8.0}, {:+.0} ns per request", ns - alone);
    }
    println!("  requests lost               {lost_here} by plumb, {lost_there} by biolatency");
    println!("  {}", if lost_here == 0 { "ok" } else { "NOT ok" });
    Ok(lost_here == 0)
}

/// dd's time per request, and what else is printed.
fn reading(words: &[&str]) -> Result<(f64, String)> {
    reading_in(Path::new("."), words)
}

fn reading_in(at: &Path, words: &[&str]) -> Result<(f64, String)> {
    let done = Command::new(words[0])
        .args(&words[1..])
        .current_dir(at)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if !done.status.success() {
        return Err(said.into());
    }
    let seconds = said
        .split("copied, ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok())
        .ok_or("dd said no time")?;
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok((seconds * 1e9 / REQUESTS as f64, out))
}

/// The same under biolatency, and how many requests its histogram has.
fn biolatency(device: &str, dd: &[&str]) -> Result<(f64, u64)> {
    let name = device.trim_start_matches("/dev/");
    let tool =
        Command::new("/usr/sbin/biolatency").args(["-d", name]).stdout(Stdio::piped()).spawn()?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let ns = reading(dd);
    // SAFETY: takes numbers; the process is our child, which was not waited for yet.
    unsafe { libc::kill(tool.id() as libc::pid_t, libc::SIGINT) };
    let out = tool.wait_with_output()?;
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    // `low -> high : count |***|`
    let rows = out.lines().filter(|line| line.contains("->"));
    let counts = rows.filter_map(|line| {
        let after = line.split(':').nth(1)?;
        after.split_whitespace().next()?.parse::<u64>().ok()
    });
    Ok((ns?.0, counts.sum()))
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
        "\nPairing the entry and exit of {WRITES} system calls, medians of {ROUNDS} alternating rounds\n"
    );
    let (mut alone, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lost_here, mut lost_there) = (0, 0);
    for _ in 0..ROUNDS {
        alone.push(of_program(at, &[])?.0);
        let (ns, pairs) = plumb(at, &[])?;
        lost_here += WRITES.saturating_sub(pairs);
        ours.push(ns);
        let (ns, pairs) = bpftrace(at)?;
        lost_there += WRITES.saturating_sub(pairs);
        theirs.push(ns);
    }
    let stacks: Result<Vec<f64>> =
        (0..ROUNDS).map(|_| Ok(plumb(at, &["--by", "stack"])?.0)).collect();
    let [alone, ours, theirs, stacks] = [alone, ours, theirs, stacks?].map(median);
    println!("  alone                       {alone:8.1} ns per system call");
    for (name, ns) in
        [("plumb between", ours), ("plumb between --by stack", stacks), ("bpftrace", theirs)]
    {
        println!("  {name:<26}  {ns:8.1}, {:+.1} ns per pair", ns - alone);
    }
    println!("  pairs lost                  {lost_here} by plumb, {lost_there} by bpftrace");
    let fine = lost_here == 0 && ours - alone <= (theirs - alone) * 1.25 + 20.0;
    println!("  {}", if fine { "ok" } else { "NOT ok" });
    Ok(fine)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The program's time per call, and its other output.
fn of_program(at: &Path, before: &[&str]) -> Result<(f64, String)> {
    let many = WRITES.to_string();
    let script = format!("./writes {many}");
    let words: Vec<&str> = match before {
        [] => vec!["./writes", &many],
        [.., "-c"] => [before, &[script.as_str()]].concat(),
        _ => [before, &["./writes", &many]].concat(),
    };
    let done =
        Command::new(words[0]).args(&words[1..]).current_dir(at).stdin(Stdio::null()).output()?;
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
    }
    let took: f64 = std::fs::read_to_string(at.join("took"))?.trim().parse()?;
    Ok((took / WRITES as f64, out))
}

fn plumb(at: &Path, more: &[&str]) -> Result<(f64, u64)> {
    let events = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];
    let words =
        [&[env!("CARGO_BIN_EXE_plumb"), "between", "-q", "--json"][..], more, &events, &["--"]]
            .concat();
    let (ns, out) = of_program(at, &words)?;
    Ok((ns, total_of(&out)?))
}

/// How many pairs there are in plumb's JSON.
fn total_of(out: &str) -> Result<u64> {
    let document: Value = serde_json::from_str(out)?;
    let stages = document["times"][0]["stages"].as_array().ok_or("no stages")?;
    let total = stages.iter().find(|stage| stage["name"] == "total");
    let pairs = total.and_then(|stage| stage["count"].as_u64());
    Ok(pairs.unwrap_or(0))
}

fn bpftrace(at: &Path) -> Result<(f64, u64)> {
    let (ns, out) = of_program(at, &["bpftrace", "-e", SCRIPT, "-c"])?;
    let line = out.lines().find_map(|line| line.strip_prefix("@ended: "));
    Ok((ns, line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)))
}
