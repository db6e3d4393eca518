//! What a sample costs, beside `perf record -g` at the same rate, alternating on the same flood of
//! datagrams over loopback: `make bench`.
//!
//! 1. CPU time of the process that samples, per sample, as the kernel accounts it. `plumb profile` also finds the names
//!    of functions, which perf leaves to `perf report`: that is separate.
//! 2. What interrupts took of the flood, per sample: how much more CPU time the flood needed for a
//!    datagram than without anyone who samples, in the same round.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::net::UdpSocket;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each has a turn.
const ROUNDS: usize = 7;
/// Seconds of a turn.
const SECONDS: u64 = 4;
/// Samples of a CPU in a second.
const RATE: &str = "997";

/// Datagrams of all threads.
static SENT: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

/// The figures of one turn, or medians of several.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    samples: f64,
    /// CPU time of the process that samples, without finding names.
    cpu_us: f64,
    names_us: f64,
    /// CPU time of the flood.
    flood_us: f64,
    datagrams: f64,
}

impl Turn {
    fn of_process(&self) -> f64 {
        self.cpu_us / self.samples
    }

    /// Time of interrupts, compared to a turn without samples.
    fn of_interrupts(&self, base: &Turn) -> f64 {
        let before = base.flood_us / base.datagrams;
        (self.flood_us - before * self.datagrams) / self.samples
    }
}

fn main() -> ExitCode {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("profile: skipped, as it takes root");
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A missing tool is not our failure.
            println!("profile: skipped: {error}");
            ExitCode::SUCCESS
        }
    }
}

fn compare() -> Result<bool> {
    let cpus = thread::available_parallelism()?.get();
    println!(
        "\nCPU time of a sample, {RATE} a second of each of {cpus} CPUs, medians of {ROUNDS} \
         alternating rounds of {SECONDS} s\n"
    );
    let floods: Vec<_> = (0..cpus).map(|_| thread::spawn(flood)).collect();
    let folder = tempfile::tempdir()?;
    let seconds = SECONDS.to_string();
    let (mut base, mut perfs) = (vec![], vec![]);
    let (mut auto, mut fp, mut dwarf) = (vec![], vec![], vec![]);
    let mut outcome = Ok(());
    for _ in 0..ROUNDS {
        outcome = (|| {
            base.push(turn(folder.path(), Command::new("sleep").arg(&seconds), |_| {
                Some((0.0, 0.0))
            })?);
            for (turns, stacks) in [(&mut auto, "auto"), (&mut fp, "fp"), (&mut dwarf, "dwarf")] {
                let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
                command.args(["profile", "-q", "--json", "--frequency", RATE]).args([
                    "--user-stacks",
                    stacks,
                    "--duration",
                    &format!("{SECONDS}s"),
                ]);
                turns.push(turn(folder.path(), &mut command, of_plumb)?);
            }
            let mut perf = Command::new("perf");
            perf.args(["record", "-g", "-a", "-e", "cpu-clock", "-F", RATE, "-o", "perf.data"])
                .args(["--", "sleep", &seconds]);
            perfs.push(turn(folder.path(), &mut perf, of_perf)?);
            Ok(())
        })();
        if outcome.is_err() {
            break;
        }
    }
    STOP.store(true, Ordering::Relaxed);
    for flood in floods {
        let _ = flood.join();
    }
    outcome.map_err(|error: Box<dyn std::error::Error>| error)?;
    println!(
        "  {:<34}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "", "process", "interrupts", "both", "names", "samples"
    );
    let each = |name: &str, turns: &[Turn]| {
        let process = median(turns.iter().map(Turn::of_process));
        let rounds = turns.iter().zip(&base);
        let interrupts = median(rounds.map(|(turn, base)| turn.of_interrupts(base)));
        let names = median(turns.iter().map(|turn| turn.names_us / turn.samples));
        let samples = median(turns.iter().map(|turn| turn.samples));
        let both = process + interrupts;
        println!(
            "  {name:<34}{process:>9.1} us{interrupts:>9.1} us{both:>9.1} us{names:>9.1} us\
             {samples:>12.0}"
        );
        both
    };
    let auto = each("plumb profile", &auto);
    let fp = each("plumb profile --user-stacks fp", &fp);
    let dwarf = each("plumb profile --user-stacks dwarf", &dwarf);
    let perf = each("perf record -g", &perfs);
    println!(
        "\n  as parts of perf record -g: {:.2}, by frame pointers only {:.2}, by tables only {:.2}",
        auto / perf,
        fp / perf,
        dwarf / perf
    );
    Ok(auto <= perf && fp <= perf)
}

/// Send to itself, and receive.
fn flood() {
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else {
        return;
    };
    let Ok(to) = socket.local_addr() else { return };
    let mut buffer = [0; 64];
    while !STOP.load(Ordering::Relaxed) {
        let sent = socket.send_to(&buffer[..10], to);
        if sent.and_then(|_| socket.recv(&mut buffer)).is_ok() {
            SENT.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Run a command during the flood; `read` returns how many samples it took, and the CPU time for
/// finding names.
fn turn(
    folder: &std::path::Path,
    command: &mut Command,
    read: fn(&std::process::Output) -> Option<(f64, f64)>,
) -> Result<Turn> {
    let sent = SENT.load(Ordering::Relaxed);
    let (own, children) = (cpu_us(libc::RUSAGE_SELF), cpu_us(libc::RUSAGE_CHILDREN));
    let done = command.current_dir(folder).stdin(Stdio::null()).output()?;
    let sent = SENT.load(Ordering::Relaxed) - sent;
    let (samples, names_us) =
        read(&done).ok_or_else(|| String::from_utf8_lossy(&done.stderr).into_owned())?;
    Ok(Turn {
        samples,
        cpu_us: cpu_us(libc::RUSAGE_CHILDREN) - children - names_us,
        names_us,
        flood_us: cpu_us(libc::RUSAGE_SELF) - own,
        datagrams: sent as f64,
    })
}

/// CPU time of this process, or of commands that have ended.
fn cpu_us(of: libc::c_int) -> f64 {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    unsafe { libc::getrusage(of, &raw mut usage) };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn of_plumb(done: &std::process::Output) -> Option<(f64, f64)> {
    let report: Value = serde_json::from_slice(&done.stdout).ok()?;
    let sum = |quantity: &str| {
        let all = report["scalars"].as_array()?.iter();
        let of = all.filter(|s| s["instrument"] == "samples" && s["quantity"] == quantity);
        Some(of.filter_map(|s| s["value"].as_f64()).sum::<f64>())
    };
    Some((sum("samples")? + sum("idle")?, sum("names")? / 1e3))
}

/// "[ perf record: Captured and wrote 1.234 MB perf.data (12345 samples) ]"
fn of_perf(done: &std::process::Output) -> Option<(f64, f64)> {
    let said = String::from_utf8_lossy(&done.stderr);
    let (before, _) = said.split_once(" samples)")?;
    let (_, samples) = before.rsplit_once('(')?;
    Some((samples.parse().ok()?, 0.0))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
