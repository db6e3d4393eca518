//! Rates compared with other tools', alternating in the same run: `make bench`.
//!
//! 1. XDP drop: frames made and dropped by `plumb bench drop --path xdp`, and by xdp-trafficgen and
//!    xdp-bench of xdp-tools, over a veth pair of the same kind, each on one CPU. The latter's rate
//!    is xdp-bench's output; the device's counter agrees with both.
//! 2. The packets that dpdk-testpmd counts as received, against what the generator sent.
//! 3. A UDP socket: the rate at which our reader receives generated frames, against iperf3 with its
//!    own sender, which is a socket too and takes most of the time.
//!
//! `PLUMB_XDP_TOOLS` names a directory with `xdp-bench` and `xdp-trafficgen`; without it they are
//! looked up in PATH. Versions before 1.5 need a tracepoint that Linux 6.13 removed, and can't be
//! compared there.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often each has a turn.
const ROUNDS: usize = 5;
/// Duration of a measurement in a round.
const WINDOW: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("rates: skipped, as it takes root");
        return ExitCode::SUCCESS;
    }
    println!("\nrates compared with other tools', medians of {ROUNDS} alternating rounds\n");
    let mut failed = false;
    for (what, compare) in
        [("xdp drop", xdp as fn() -> Result<()>), ("dpdk-testpmd", testpmd), ("udp socket", socket)]
    {
        if let Err(error) = compare() {
            // A tool that is missing, or does not run here, is not our failure.
            println!("  {what:<24}skipped: {error}");
            failed |= error.is::<Ours>();
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Our own program failed.
#[derive(Debug, thiserror::Error)]
#[error("plumb bench {0}")]
struct Ours(String);

/// The document of `plumb bench drop` with these words.
fn ours(words: &str) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let ran = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(["bench", "drop", "--blocks", "1", "--time", "1s", "--json", "--quiet"])
        .args(words.split(' '))
        .current_dir(&folder)
        .output()?;
    if !ran.status.success() {
        let why = String::from_utf8_lossy(&ran.stderr).trim().to_string();
        return Err(Ours(format!("{words}: {why}")).into());
    }
    Ok(serde_json::from_slice(&ran.stdout)?)
}

fn handled_pps(document: &Value) -> f64 {
    let mean = &document["arms"][0]["handled_pps"]["mean"];
    mean.as_f64().unwrap_or(f64::NAN)
}

/// Two namespaces joined by veth, which go away with it.
struct Pair([String; 2]);

impl Pair {
    fn new() -> Result<Pair> {
        let id = std::process::id();
        let pair = Pair([format!("plumb-bench-a{id}"), format!("plumb-bench-b{id}")]);
        let [a, b] = &pair.0;
        for words in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v0 netns {a} type veth peer name v0 netns {b}"),
            format!("-n {a} addr add 198.18.0.1/24 dev v0"),
            format!("-n {b} addr add 198.18.0.2/24 dev v0"),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v0 up"),
        ] {
            let ran = Command::new("ip").args(words.split(' ')).output()?;
            if !ran.status.success() {
                return Err(String::from_utf8_lossy(&ran.stderr).into());
            }
        }
        Ok(pair)
    }

    /// A command in one of them, on the last CPU. `ip netns exec` mounts a new /sys for it, in
    /// which libxdp finds no bpffs.
    fn command(&self, end: usize, program: &str, words: &str) -> Command {
        let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
        let script = "mount -t bpf bpf /sys/fs/bpf; cpu=$1; shift; exec taskset -c $cpu \"$@\"";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[end], "sh", "-c", script, "sh"]);
        command.arg(last.to_string()).arg(program).args(words.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// The output of a program after it was asked to end; its error, if it had ended before.
fn end(mut child: Child) -> Result<String> {
    let early = child.try_wait()?;
    // SAFETY: the process is our child, and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match early {
        Some(status) if !status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(said.lines().last().unwrap_or("it ended").to_string().into())
        }
        _ => Ok(text),
    }
}

fn xdp() -> Result<()> {
    let tool = |name: &str| match std::env::var_os("PLUMB_XDP_TOOLS") {
        Some(folder) => PathBuf::from(folder).join(name).display().to_string(),
        None => name.to_string(),
    };
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(xdp_tools(&tool("xdp-bench"), &tool("xdp-trafficgen"))?);
        // What xdp-trafficgen sends, and its shortest.
        own.push(handled_pps(&ours("--path xdp --family ipv6 --size 62")?));
    }
    tell("xdp drop", "xdp-trafficgen, xdp-bench", own, theirs);
    Ok(())
}

/// xdp-trafficgen's packets per second that xdp-bench reports as dropped.
fn xdp_tools(bench: &str, generator: &str) -> Result<f64> {
    let pair = Pair::new()?;
    let dropping = pair.command(1, bench, "drop v0 -p parse-ip -i 1").spawn()?;
    sleep(WINDOW / 2);
    let sending = pair.command(0, generator, "udp v0 -I 1").spawn()?;
    sleep(WINDOW * 3 + WINDOW / 2);
    let sent = end(sending);
    let dropped = end(dropping)?;
    sent?;
    // "Summary    5,805,001 rx/s    0 err/s": of whole seconds, the best is one in which
    // packets came all the time.
    let rates = dropped.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| w.starts_with("rx/s") || w.starts_with("drop/s"))?;
        words.get(at.checked_sub(1)?)?.replace(',', "").parse::<f64>().ok()
    });
    rates.reduce(f64::max).filter(|pps| *pps > 0.0).ok_or_else(|| {
        format!("xdp-bench printed no rate: {}", dropped.lines().last().unwrap_or_default()).into()
    })
}

fn testpmd() -> Result<()> {
    let document = ours("--path dpdk")?;
    let hop = document["arms"][0]["hops"].as_array().and_then(|hops| hops.last());
    let hop = hop.ok_or("no testpmd here")?;
    let count = |key: &str| hop[key].as_u64().unwrap_or(0);
    println!(
        "  {:<24}{} sent, {} counted by testpmd, {} lost by cause: off by {}",
        "dpdk-testpmd",
        count("entered"),
        count("left"),
        hop["dropped"],
        count("entered").abs_diff(count("left"))
            - hop["dropped"]
                .as_object()
                .map_or(0, |all| { all.values().filter_map(Value::as_u64).sum::<u64>() }),
    );
    Ok(())
}

fn socket() -> Result<()> {
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(iperf3()?);
        own.push(handled_pps(&ours("--path socket")?));
    }
    tell("udp socket", "iperf3", own, theirs);
    Ok(())
}

/// Datagrams per second that iperf3 reports as received.
fn iperf3() -> Result<f64> {
    let pair = Pair::new()?;
    let mut server = pair.command(1, "iperf3", "-s -1").spawn()?;
    sleep(WINDOW / 2);
    let words = "-c 198.18.0.2 -u -b 0 -l 18 -t 2 -J";
    let client = pair.command(0, "iperf3", words).output();
    let _ = server.kill();
    server.wait()?;
    let document: Value = serde_json::from_slice(&client?.stdout)?;
    let sum = &document["end"]["sum"];
    let number = |key: &str| sum[key].as_f64().ok_or("iperf3 printed no figures");
    Ok((number("packets")? - number("lost_packets")?) / number("seconds")?)
}

fn tell(what: &str, peer: &str, own: Vec<f64>, theirs: Vec<f64>) {
    let ratios: Vec<f64> = own.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    let spread = ratios
        .iter()
        .copied()
        .fold((f64::MAX, 0.0), |(low, high): (f64, f64), r| (low.min(r), high.max(r)));
    println!(
        "  {what:<24}{:.2} M/s, {peer} {:.2} M/s: {:.2} of it ({:.2} to {:.2})",
        median(own) / 1e6,
        median(theirs) / 1e6,
        median(ratios),
        spread.0,
        spread.1
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
