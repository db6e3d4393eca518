//! What tracing calls costs: `plumb trace` beside `plumb path`, with arguments and without; and the size of a
//! trace and the time to open it, per call, beside uftrace's where it is installed: `make bench`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each is run; the fastest counts.
const ROUNDS: usize = 3;
/// Runs of the same packets.
const RUNS: [(&str, &str); 3] = [
    ("without a trace", "path --packets 500 --blocks 1"),
    (
        "with every call below udp_sendmsg",
        "trace udp_sendmsg --packets 500 --depth 100 --slowest 1000",
    ),
    ("with their arguments", "trace udp_sendmsg --args --packets 500 --depth 100 --slowest 1000"),
];
/// One call with a million below it.
const LOOP: &str = "long f(long n) { __asm__ volatile(\"\" : \"+r\"(n)); return n; }\n\
                    long g(long n) { __asm__ volatile(\"\" : \"+r\"(n)); return f(n) + f(n + 1); }\n\
                    int main(void) { long s = 0; for (long n = 0; n < 340000; n++) s += g(n); return s == 1; }\n";
/// The same by plumb: without a trace, with one, and with arguments.
const MILLION: [&str; 3] =
    ["path -o x.plumb -- ./p", "run plain.toml -o x.plumb", "run args.toml -o x.plumb"];

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
    let folder = folder.path();
    for (what, words) in RUNS {
        let took = fastest(|| plumb(folder, words))?;
        println!("{what}: {:.2} s (plumb {words})", took.as_secs_f64());
    }
    fs::write(folder.join("p.c"), LOOP)?;
    if !compile(folder, &["-g", "-static", "-o", "p"]) {
        println!("skipped: a call with a million below it (no C compiler)");
        return Ok(());
    }
    for (name, args) in [("plain", false), ("args", true)] {
        let experiment = format!(
            "name = \"{name}\"\ninstruments = [\"exact\"]\n[workload]\nkind = \"command\"\n\
             command = [\"./p\"]\n[trace]\nfunction = \"main\"\nsteps = 2_000_000\nargs = {args}\n"
        );
        fs::write(folder.join(format!("{name}.toml")), experiment)?;
    }
    for words in MILLION {
        let took = fastest(|| plumb(folder, words))?;
        let file = folder.join("x.plumb");
        let bytes = fs::metadata(&file)?.len();
        let begun = Instant::now();
        let recording = netplumb_store::read(&file)?;
        let open = begun.elapsed();
        let calls: usize = recording.traces.iter().map(|t| t.steps.len()).sum();
        tell(&format!("plumb {words}"), took, calls, bytes, open);
    }
    uftrace(folder)
}

/// The same by uftrace, natively and with its calls compiled in.
fn uftrace(folder: &Path) -> Result<()> {
    let version = Command::new("uftrace").arg("--version").output();
    if !version.is_ok_and(|done| done.status.success()) {
        println!("skipped: the same by uftrace (not installed)");
        return Ok(());
    }
    compile(folder, &["-g", "-o", "bare"]);
    compile(folder, &["-g", "-pg", "-o", "pg"]);
    let alone = fastest(|| quietly(folder, &["./bare"]))?;
    println!("the program alone, natively: {:.3} s", alone.as_secs_f64());
    for (what, more) in [("", None), (" -a", Some("-a"))] {
        let mut words = vec!["uftrace", "record", "-d", "traced"];
        words.extend(more);
        words.push("./pg");
        let took = fastest(|| quietly(folder, &words))?;
        let files = fs::read_dir(folder.join("traced"))?;
        let bytes: u64 = files.map(|f| Ok(f?.metadata()?.len())).sum::<Result<u64>>()?;
        let open = fastest(|| quietly(folder, &["uftrace", "report", "-d", "traced"]))?;
        tell(&format!("uftrace record{what}"), took, 1_020_001, bytes, open);
    }
    Ok(())
}

fn tell(what: &str, took: Duration, calls: usize, bytes: u64, open: Duration) {
    println!(
        "{what}: {:.2} s; {calls} calls, {bytes} bytes, {:.2} for each; opened in {:.0} ms",
        took.as_secs_f64(),
        bytes as f64 / calls.max(1) as f64,
        open.as_secs_f64() * 1e3
    );
}

fn compile(folder: &Path, words: &[&str]) -> bool {
    let done = Command::new("cc")
        .args(["-O1", "-fno-inline", "p.c"])
        .args(words)
        .current_dir(folder)
        .status();
    done.is_ok_and(|status| status.success())
}

fn plumb(folder: &Path, words: &str) -> Result<()> {
    let done = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(words.split(' ').take(1))
        .arg("-q")
        .args(words.split(' ').skip(1))
        .current_dir(folder)
        .output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into()),
    }
}

fn quietly(folder: &Path, words: &[&str]) -> Result<()> {
    let done = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match done.success() {
        true => Ok(()),
        false => Err(format!("`{}` failed", words.join(" ")).into()),
    }
}

/// The fastest of several runs.
fn fastest(what: impl Fn() -> Result<()>) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        what()?;
        best = best.min(begun.elapsed());
    }
    Ok(best)
}
