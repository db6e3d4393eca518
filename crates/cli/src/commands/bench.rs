//! `plumb bench`: how fast packets are dropped or forwarded, by which path.

mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use netplumb_engine::Progress;
use netplumb_engine::bench::{
    self, BenchEvent, BenchOptions, BenchPlan, ExplainPlan, GuestLab, Nics, SamplePlan,
};
use netplumb_engine::live::random_seed;
use netplumb_model::bench::{
    Bench, BenchArm, BenchFile, DataPath, Fault, FrameKind, FrameSize, Frames, Offered, Planted,
    rate_of,
};
use netplumb_model::class::Family;
use netplumb_model::recording::Recording;
use netplumb_paths::LOOKUPS_MOST;
use netplumb_report::rates;

use super::page::PageArgs;
use super::report::{ShowArgs, columns, print};
use crate::exit::{CannotHere, Usage};
use crate::recorder::{Outcome, RunOptions, record_by};

/// What there is to be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// How fast packets are dropped
    Drop(BenchArgs),
    /// How fast packets are sent on, by the same NIC or another one
    Forward(BenchArgs),
    /// Whether a program of XDP can be replaced under load: no packet is lost by it, and each
    /// meets one program
    Swap(SwapArgs),
    /// What the kernel's verifier says of programs: by line, why it refuses one
    Verify {
        /// A compiled object of BPF programs [default: one of ours that is unsafe]
        file: Option<PathBuf>,
    },
}

/// Arguments of a bench. Each combination of lists is an arm; blocks of all arms are run in
/// shuffled order.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What handles the packets: `all` that can here, or names with commas
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        default_value = "all"
    )]
    path: Vec<String>,
    /// Bytes of a frame without its checksum, or `imix`; several with commas
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "60"
    )]
    size: Vec<FrameSize>,
    /// What frames carry: udp, tcp-syn or icmp
    #[arg(long, value_name = "KIND", default_value = "udp")]
    frames: FrameKind,
    /// Version of IP: ipv4 or ipv6
    #[arg(long, value_name = "FAMILY", default_value = "ipv4")]
    family: Family,
    /// Flows that the frames belong to; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: Vec<u32>,
    /// CPUs that send, and handle what they sent; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    cores: Vec<u32>,
    /// Packets a second that are offered, like 250k or 1.5M, or `max`; several with commas
    #[arg(long, value_name = "PPS", value_delimiter = ',', default_value = "max", value_parser = rate_of)]
    rate: Vec<Offered>,
    /// Give the path CPUs of its own: what they do is then the path's alone
    #[arg(long)]
    apart: bool,
    /// Have frames say when they were to be sent, and tell how long they took
    #[arg(long)]
    latency: bool,
    /// Search for the rate that loses nothing (RFC 9971); with --latency, tell how long packets
    /// take at 10, 50 and 90 % of it. --time is the longest trial
    #[arg(long, conflicts_with = "rate")]
    search: bool,
    /// Drop by a list of so many sources, which changes while packets run; for the path xdp
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    blocklist: Option<u32>,
    /// Have the program look into a map so often for each packet, for nothing: what a lookup
    /// costs; for the paths xdp and xdp-skb; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=i64::from(LOOKUPS_MOST)))]
    lookups: Vec<u32>,
    /// Break the lab on purpose, to see that no rate comes of it: no-napi, full-ring, wrong-mac,
    /// ttl or mtu
    #[arg(long, value_name = "FAULT", conflicts_with = "nic")]
    plant: Option<Fault>,
    /// Measure each arm twice, as two: what differs between the same and the same is noise
    #[arg(long)]
    twice: bool,
    #[command(flatten)]
    nics: NicArgs,
    /// Frames that are made at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    batch: u32,
    /// Blocks of each arm
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: u32,
    /// How long each block is measured, like 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::live::duration)]
    time: Duration,
    /// How long packets run before that
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = super::live::duration)]
    warmup: Duration,
    /// Also tell why: the kernel instructions of a packet along each path, counted in guests,
    /// where its nanoseconds went here, and the functions that make the difference
    #[arg(long)]
    explain: bool,
    /// Where packets run: netns, or a guest (vm), whose rates compare with each other only
    #[arg(
        long,
        value_name = "LAB",
        value_enum,
        default_value = "netns",
        conflicts_with = "nic"
    )]
    lab: BenchLab,
    /// The guests' kernel, one that `plumb kernel list` shows
    #[arg(long, value_name = "KERNEL", default_value = "debian")]
    kernel: String,
    #[command(flatten)]
    out: OutArgs,
}

/// Interfaces of this machine, or of the network namespace that this is run in.
#[derive(Debug, Args)]
struct NicArgs {
    /// Measure on interfaces of your own: packets come in here
    #[arg(long, value_name = "NIC", requires = "from")]
    nic: Option<String>,
    /// They are sent from this one, which a cable joins to it
    #[arg(long, value_name = "NIC", requires = "nic")]
    from: Option<String>,
    /// bench forward: they are sent on by this one
    #[arg(long, value_name = "NIC", requires_all = ["nic", "sink"])]
    to: Option<String>,
    /// bench forward: they come out here, at the other end of its cable
    #[arg(long, value_name = "NIC", requires = "to")]
    sink: Option<String>,
    /// That these may be changed; without it, what would be changed is told
    #[arg(long, value_name = "NIC,NIC", value_delimiter = ',', requires = "nic")]
    yes_change: Vec<String>,
    /// Even if the default route, or your session, is over one of them
    #[arg(long, requires = "nic")]
    even_default_route: bool,
}

impl NicArgs {
    fn nics(&self, bench: Bench) -> anyhow::Result<Option<Nics>> {
        if bench == Bench::Drop && self.to.is_some() {
            return Err(Usage("--to and --sink are for `bench forward`".into()).into());
        }
        let (Some(nic), Some(from)) = (&self.nic, &self.from) else {
            return Ok(None);
        };
        Ok(Some(Nics {
            nic: nic.clone(),
            from: from.clone(),
            to: self.to.clone(),
            sink: self.sink.clone(),
            yes_change: self.yes_change.clone(),
            even_default_route: self.even_default_route,
        }))
    }
}

/// Where packets run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchLab {
    /// Network namespaces of this machine, joined by veth
    Netns,
    /// The same in a QEMU guest that boots any kernel
    Vm,
}

/// What guests are for.
#[derive(Debug, Clone, Copy, Default)]
struct Guests<'a> {
    /// Rates are measured in one.
    rates: bool,
    /// Instructions are counted in some.
    explain: bool,
    /// What they boot.
    kernel: &'a str,
}

/// Batches of frames in a block whose instructions are counted, and such blocks.
const EXPLAIN: ExplainPlan = ExplainPlan {
    batches: 16,
    blocks: 3,
};

/// Arguments of a replacement under load.
#[derive(Debug, Args)]
pub(crate) struct SwapArgs {
    /// How often the program is replaced in each block
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    swaps: u32,
    /// The path: xdp, xdp-skb, xdp-tx or xdp-redirect
    #[arg(long, value_name = "PATH", default_value = "xdp")]
    path: DataPath,
    /// CPUs that send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    cores: u32,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: u32,
    /// How long each block is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::live::duration)]
    time: Duration,
    #[command(flatten)]
    out: OutArgs,
}

/// Where what was measured goes.
#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// The recording [default: bench-drop.plumb, bench-forward.plumb or bench-swap.plumb]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A line for each block, as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Everything, as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    page: PageArgs,
}

impl OutArgs {
    fn options(&self) -> RunOptions {
        RunOptions {
            output: self.output.clone(),
            quiet: self.quiet,
            ..RunOptions::plain()
        }
    }
}

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(command: BenchCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Drop(args) => measure(Bench::Drop, &args, cache),
        BenchCommand::Forward(args) => measure(Bench::Forward, &args, cache),
        BenchCommand::Swap(args) => swap(&args, cache),
        BenchCommand::Verify { file: Some(file) } => verify::file(&file),
        BenchCommand::Verify { file: None } => verify::refusal(),
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

const NO_ROOT: &str = "a bench makes network namespaces and loads programs into the kernel, which \
                       takes root: run it with sudo";

fn measure(bench: Bench, args: &BenchArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    args.out.page.check()?;
    let plan = BenchPlan {
        arms: arms(bench, args)?,
        blocks: args.blocks,
        window: args.time,
        warmup: args.warmup,
        search: args.search,
        nics: args.nics.nics(bench)?,
    };
    let guests = Guests {
        rates: args.lab == BenchLab::Vm,
        explain: args.explain,
        kernel: &args.kernel,
    };
    let name = format!("bench-{bench}");
    let outcome = record(&plan, &name, "", guests, &args.out.options(), cache)?;
    finish(outcome, args.out.csv, args.out.json, &args.out.page)
}

/// Replace programs under load.
fn swap(args: &SwapArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    args.out.page.check()?;
    let bench = match args.path {
        DataPath::Xdp | DataPath::XdpSkb => Bench::Drop,
        DataPath::XdpTx | DataPath::XdpRedirect => Bench::Forward,
        other => {
            return Err(Usage(format!(
                "`{other}` has no program that is replaced: it takes xdp, xdp-skb, xdp-tx or \
                 xdp-redirect"
            ))
            .into());
        }
    };
    let plan = BenchPlan {
        arms: vec![BenchArm {
            bench,
            path: args.path,
            frames: Frames {
                kind: FrameKind::Udp,
                family: Family::V4,
                size: FrameSize::Bytes(60),
                flows: 1,
            },
            offered: Offered::Most,
            cores: args.cores,
            batch: 64,
            apart: false,
            stamped: false,
            swaps: args.swaps,
            sources: 0,
            planted: Planted::default(),
        }],
        blocks: args.blocks,
        window: args.time,
        warmup: Duration::from_millis(100),
        search: false,
        nics: None,
    };
    let (name, options) = ("bench-swap", args.out.options());
    let outcome = record(&plan, name, "", Guests::default(), &options, cache)?;
    finish(outcome, args.out.csv, args.out.json, &args.out.page)
}

/// Run the file of a bench.
///
/// # Errors
/// What kept it from measuring.
pub(super) fn run_file(
    file: &BenchFile,
    text: &str,
    show_args: &ShowArgs,
    page: &PageArgs,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    page.check()?;
    let (window, warmup) = file.times();
    let plan = BenchPlan {
        // Checked when it was read.
        arms: file.arms().unwrap_or_default(),
        blocks: file.blocks.count,
        window,
        warmup,
        search: false,
        nics: None,
    };
    let outcome = record(&plan, &file.name, text, Guests::default(), options, cache)?;
    let (csv, json) = show_args.formats();
    finish(outcome, csv, json, page)
}

fn record(
    plan: &BenchPlan,
    name: &str,
    text: &str,
    guests: Guests<'_>,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    if !guests.rates && !is_root() {
        return Err(CannotHere(format!("{NO_ROOT}, or in a guest (--lab vm)")).into());
    }
    record_by(
        |engine, recording, save, teller| {
            let lab = GuestLab {
                kernel: guests.kernel,
                options: engine,
                tell: &|event| teller.tell(event),
            };
            // What is missing is told before anything is measured.
            if guests.rates || guests.explain {
                lab.check()?;
            }
            let options = BenchOptions {
                cancel: &engine.cancel,
                seed: random_seed(),
                guest: guests.rates.then_some(&lab),
                sampled: guests.explain.then_some(SamplePlan {
                    blocks: EXPLAIN.blocks,
                    layers: &engine.layers,
                }),
            };
            bench::run_bench(plan, &options, recording, &mut *save, &mut |event| {
                teller.tell(match event {
                    BenchEvent::Note(note) => Progress::Note(note),
                    BenchEvent::Block(_, done, all) => Progress::Blocks(done, all),
                });
            })?;
            match guests.explain {
                true => bench::explain(&plan.arms, EXPLAIN, &lab, recording, save),
                false => Ok(()),
            }
        },
        name,
        text,
        options,
        cache,
    )
}

fn finish(outcome: Outcome, csv: bool, json: bool, page: &PageArgs) -> anyhow::Result<ExitCode> {
    let recording = &outcome.recording;
    let all = rates::arms(recording);
    if !recording.blocks.is_empty() || all.iter().any(|a| a.failed.is_some()) {
        show(recording, csv, json)?;
        page.write(recording, &[], &[])?;
    }
    if let Some(error) = outcome.error {
        return Err(error);
    }
    if recording.blocks.is_empty() {
        return Err(CannotHere("no path that was asked for can run here".into()).into());
    }
    let bad = all
        .iter()
        .filter(|a| a.failed.is_none() && a.valid.is_empty());
    Ok(match bad.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Show the recording of a bench.
///
/// # Errors
/// Its file can't be read as one of a bench, or nothing be written.
pub(super) fn show(recording: &Recording, csv: bool, json: bool) -> anyhow::Result<ExitCode> {
    let text = if csv {
        rates::csv::render(recording)
    } else if json {
        rates::json::render(recording)
    } else {
        let mut text = match recording.experiment_toml.as_str() {
            "" => String::new(),
            text => rates::figures::render(&BenchFile::parse(text)?, recording, columns()) + "\n",
        };
        text.push_str(&rates::terminal::render(recording, columns()));
        text
    };
    print(&text)
}

/// Every combination.
fn arms(bench: Bench, args: &BenchArgs) -> anyhow::Result<Vec<BenchArm>> {
    let possible = DataPath::of(bench);
    let mut paths: Vec<DataPath> = Vec::new();
    for word in &args.path {
        if word == "all" {
            paths.extend(possible);
            continue;
        }
        let path = word.parse::<DataPath>().ok();
        match path.filter(|path| possible.contains(path)) {
            Some(path) => paths.push(path),
            None => {
                let names: Vec<&str> = possible.iter().map(|p| p.as_str()).collect();
                return Err(Usage(format!(
                    "`{}` is no path of `bench {bench}`: they are {}, or `all`",
                    word.chars().take(40).collect::<String>(),
                    names.join(", ")
                ))
                .into());
            }
        }
    }
    if args.blocklist.is_some() && (bench != Bench::Drop || paths != [DataPath::Xdp]) {
        return Err(Usage(
            "--blocklist is for `bench drop --path xdp`: its program looks into the list".into(),
        )
        .into());
    }
    let looks = args.lookups.iter().any(|n| *n > 0);
    let program = |p: &DataPath| matches!(p, DataPath::Xdp | DataPath::XdpSkb);
    if looks && (bench != Bench::Drop || args.blocklist.is_some() || !paths.iter().all(program)) {
        return Err(Usage(
            "--lookups is for `bench drop --path xdp,xdp-skb` without --blocklist: their program \
             looks into a map"
                .into(),
        )
        .into());
    }
    let mut arms: Vec<BenchArm> = Vec::new();
    for &path in &paths {
        for &size in &args.size {
            for &flows in &args.flows {
                for &cores in &args.cores {
                    for &offered in &args.rate {
                        arms.extend(args.lookups.iter().map(|&lookups| BenchArm {
                            bench,
                            path,
                            frames: Frames {
                                kind: args.frames,
                                family: args.family,
                                size,
                                flows,
                            },
                            offered,
                            cores,
                            batch: args.batch,
                            apart: args.apart,
                            stamped: args.latency,
                            swaps: 0,
                            sources: args.blocklist.unwrap_or(0),
                            planted: Planted {
                                lookups,
                                fault: args.plant,
                                again: false,
                            },
                        }));
                    }
                }
            }
        }
    }
    let mut different: Vec<BenchArm> = Vec::new();
    for mut arm in arms {
        if different.contains(&arm) {
            continue;
        }
        different.push(arm);
        if args.twice {
            arm.planted.again = true;
            different.push(arm);
        }
    }
    Ok(different)
}
