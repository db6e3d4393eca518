//! Two hosts: virtual seconds for each real second, alone and with instructions counted; an arm from a saved state and
//! without one; whether ten runs on a busy machine are identical; and two namespaces of this machine beside iperf3 in
//! the same run: `make bench`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use netplumb_model::hosts::{THROUGHPUT, clocked};
use netplumb_model::recording::Recording;
use netplumb_stats::ratio::ratio;
use netplumb_stats::welch::mean;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each is run, in turns; medians are printed.
const ROUNDS: usize = 3;
/// Runs on a busy machine.
const BUSY_RUNS: usize = 10;
/// The fact of an arm that stands for the times of all frames.
const FRAMES: &str = "wire.frames";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    // The states are saved by the first run.
    plumb(folder, STREAM)?;
    virtual_seconds(folder)?;
    saved_state(folder)?;
    busy(folder)?;
    beside_iperf3(folder)
}

const STREAM: &str = "bench stream --bytes 16M --blocks 1";

/// The time that passes in the guests while blocks run, and the duration of the whole run.
fn virtual_seconds(folder: &Path) -> Result<()> {
    let ways = [
        ("alone", STREAM),
        ("with instructions counted", "bench stream --bytes 16M --blocks 1 --exact"),
    ];
    let mut took = [const { Vec::new() }; 2];
    let mut passed = [0.0; 2];
    for _ in 0..ROUNDS {
        for (n, (_, words)) in ways.iter().enumerate() {
            let (time, recording) = timed(folder, words)?;
            took[n].push(time);
            let blocks = recording.blocks.iter();
            let wire = blocks.filter(|block| block.instrument == "wire");
            passed[n] = wire.map(|block| block.duration_ns as f64 / 1e9).sum();
        }
    }
    let took = took.map(median);
    for ((what, words), (took, passed)) in ways.iter().zip(took.iter().zip(passed)) {
        println!(
            "two hosts {what}: {passed:.3} virtual seconds in {took:.2} s from saved states, {:.3} for each real second (plumb {words})",
            passed / took
        );
    }
    println!("counting takes {:.2} times as long", took[1] / took[0]);
    Ok(())
}

/// An arm from saved states of both guests, and from their boot.
fn saved_state(folder: &Path) -> Result<()> {
    let words = "bench stream --bytes 1M --blocks 1";
    let (mut saved, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        saved.push(timed(folder, words)?.0);
        cold.push(timed(folder, &format!("{words} --cold"))?.0);
    }
    let (saved, cold) = (median(saved), median(cold));
    println!(
        "an arm of 1 MiB: {saved:.2} s from saved states, {cold:.2} s with both boots, {:.1} times as long (plumb {words})",
        cold / saved
    );
    Ok(())
}

/// Programs that leave no CPU idle; they end with this.
struct Load(Vec<Child>);

impl Load {
    fn new() -> Result<Load> {
        let cpus = std::thread::available_parallelism()?.get();
        let mut children = Vec::new();
        for _ in 0..2 * cpus {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]);
            children.push(shell.spawn()?);
        }
        Ok(Load(children))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether all runs are the same while others have the CPUs.
fn busy(folder: &Path) -> Result<()> {
    let words = "bench stream --bytes 1M --blocks 2";
    let frames = |recording: &Recording| -> Vec<String> {
        let notes = recording.notes.values();
        notes.filter_map(|notes| notes.facts.get(FRAMES).cloned()).collect()
    };
    let (idle, first) = timed(folder, words)?;
    let load = Load::new()?;
    let (mut same, mut took) = (0, Vec::new());
    for _ in 0..BUSY_RUNS {
        let (time, recording) = timed(folder, words)?;
        took.push(time);
        let is_same = frames(&recording) == frames(&first) && recording.scalars == first.scalars;
        same += usize::from(is_same && !frames(&recording).is_empty());
    }
    drop(load);
    println!(
        "{same} of {BUSY_RUNS} runs identical in the times of all frames and in all figures, with {} busy loops beside them: {:.2} s each, \
         {idle:.2} s without (plumb {words})",
        2 * std::thread::available_parallelism()?.get(),
        median(took)
    );
    Ok(())
}

/// A stream between namespaces by our own program and by iperf3, in turns.
fn beside_iperf3(folder: &Path) -> Result<()> {
    // SAFETY: takes nothing, and always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    let iperf3 = Command::new("iperf3").arg("--version").output();
    if !root || !iperf3.is_ok_and(|done| done.status.success()) {
        println!("skipped: namespaces beside iperf3 (not root, or not installed)");
        return Ok(());
    }
    let words = "bench stream --lab netns --client plumb,iperf3 --bytes 512M --blocks 10";
    let (_, recording) = timed(folder, words)?;
    let of = |arm: u32| -> Vec<f64> {
        let throughput = clocked(&THROUGHPUT);
        let is_its = |block: u32| recording.blocks[block as usize].arm == arm;
        (recording.scalars_of(&throughput))
            .filter(|scalar| scalar.block().is_some_and(is_its))
            .map(|scalar| scalar.value)
            .collect()
    };
    let (own, other) = (of(0), of(1));
    let ratio_text = match ratio(&other, &own, [0.0; 2]) {
        Some(ratio) => format!("{:.2} ({:.2} to {:.2})", ratio.value, ratio.low, ratio.high),
        None => "none".into(),
    };
    println!(
        "namespaces: plumb {:.0} Mbit/s, iperf3 {:.0} Mbit/s in the same run, ratio {ratio_text} (plumb {words})",
        mean(&own) / 1e6,
        mean(&other) / 1e6
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How long a command took, and its recording.
fn timed(folder: &Path, words: &str) -> Result<(f64, Recording)> {
    let took = plumb(folder, words)?;
    let recording = netplumb_store::read(&folder.join("x.plumb"))?;
    Ok((took.as_secs_f64(), recording))
}

fn plumb(folder: &Path, words: &str) -> Result<Duration> {
    let begun = Instant::now();
    let done = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(words.split(' '))
        .args(["-q", "-o", "x.plumb"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .output()?;
    match done.status.success() {
        true => Ok(begun.elapsed()),
        false => Err(format!("plumb {words}: {}", String::from_utf8_lossy(&done.stderr)).into()),
    }
}
