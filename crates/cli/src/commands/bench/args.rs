//! What a bench is asked, and the arms that come of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use netplumb_engine::bench::Nics;
use netplumb_model::bench::{
    Bench, BenchArm, DataPath, Fault, FrameKind, FrameSize, Frames, LOOKUPS_MOST, Offered, Planted,
    rate_of,
};
use netplumb_model::class::{Family, Link};

use super::super::page::PageArgs;
use super::Format;
use crate::exit::Usage;
use crate::recorder::RunOptions;

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
    pub(super) path: Vec<String>,
    /// Bytes of a frame without its checksum, or `imix`; several with commas [default: the
    /// shortest that holds all headers, and the stamp of --latency: 60 over IPv4, 62 over IPv6,
    /// more for tcp-syn]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(super) size: Vec<FrameSize>,
    /// What frames carry: udp, tcp-syn or icmp
    #[arg(long, value_name = "KIND", default_value = "udp")]
    pub(super) frames: FrameKind,
    /// Version of IP: ipv4 or ipv6
    #[arg(long, value_name = "FAMILY", default_value = "ipv4")]
    pub(super) family: Family,
    /// Flows that the frames belong to; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) flows: Vec<u32>,
    /// CPUs that send, and handle what they sent; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) cores: Vec<u32>,
    /// Packets a second that are offered, like 250k or 1.5M, or `max`; several with commas
    #[arg(long, value_name = "PPS", value_delimiter = ',', default_value = "max", value_parser = rate_of)]
    pub(super) rate: Vec<Offered>,
    /// Give the path CPUs of its own: what they do is then the path's alone
    #[arg(long)]
    pub(super) apart: bool,
    /// Have frames say when they were to be sent, and tell how long they took
    #[arg(long)]
    pub(super) latency: bool,
    /// Search for the rate that loses nothing (RFC 9971); with --latency, tell how long packets
    /// take at 10, 50 and 90 % of it. --time is the longest trial
    #[arg(long, conflicts_with = "rate")]
    pub(super) search: bool,
    /// Drop by a list of so many sources, which changes while packets run; for the path xdp
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) blocklist: Option<u32>,
    /// Have the program look into a map so often for each packet, for nothing: what a lookup
    /// costs; for the paths xdp and xdp-skb; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=i64::from(LOOKUPS_MOST)))]
    pub(super) lookups: Vec<u32>,
    /// Have XDP programs take frames in several buffers, as they must on a device whose MTU is
    /// too large for one; for the paths xdp, xdp-skb, xdp-tx, xdp-redirect and af-xdp
    #[arg(long)]
    pub(super) multi_buffer: bool,
    /// Break the lab on purpose, to see that no rate comes of it: no-napi, full-ring, wrong-mac,
    /// ttl or mtu
    #[arg(long, value_name = "FAULT", conflicts_with = "nic")]
    pub(super) plant: Option<Fault>,
    /// Measure each arm twice, as two: what differs between the same and the same is noise
    #[arg(long)]
    pub(super) twice: bool,
    #[command(flatten)]
    pub(super) nics: NicArgs,
    /// Frames that are made at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) batch: u32,
    /// Blocks of each arm
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) blocks: u32,
    /// How long each block is measured, like 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::super::live::duration)]
    pub(super) time: Duration,
    /// How long packets run before that
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = super::super::live::duration)]
    pub(super) warmup: Duration,
    /// Also tell why: the kernel instructions of a packet along each path, counted in guests,
    /// where its nanoseconds went here, and the functions that make the difference
    #[arg(long)]
    pub(super) explain: bool,
    /// Where packets run: netns, or a guest (vm), whose rates compare with each other only
    #[arg(
        long,
        value_name = "LAB",
        value_enum,
        default_value = "netns",
        conflicts_with = "nic"
    )]
    pub(super) lab: BenchLab,
    /// Over what in a guest: veth between namespaces, or NICs that QEMU emulates (e1000,
    /// virtio-net, usb-net), two that a cable joins, and two more to send on by
    #[arg(
        long,
        value_name = "LINK",
        default_value = "veth",
        conflicts_with = "nic"
    )]
    pub(super) link: Link,
    /// The guests' kernel, one that `plumb kernel list` shows
    #[arg(long, value_name = "KERNEL", default_value = "debian")]
    pub(super) kernel: String,
    #[command(flatten)]
    pub(super) out: OutArgs,
}

/// Interfaces of this machine, or of the network namespace that this is run in.
#[derive(Debug, Args)]
pub(super) struct NicArgs {
    /// Measure on interfaces of your own: packets come in here
    #[arg(long, value_name = "NIC", requires = "from")]
    pub(super) nic: Option<String>,
    /// They are sent from this one, which a cable joins to it
    #[arg(long, value_name = "NIC", requires = "nic")]
    pub(super) from: Option<String>,
    /// bench forward: they are sent on by this one
    #[arg(long, value_name = "NIC", requires_all = ["nic", "sink"])]
    pub(super) to: Option<String>,
    /// bench forward: they come out here, at the other end of its cable
    #[arg(long, value_name = "NIC", requires = "to")]
    pub(super) sink: Option<String>,
    /// That these may be changed; without it, what would be changed is told
    #[arg(long, value_name = "NIC,NIC", value_delimiter = ',', requires = "nic")]
    pub(super) yes_change: Vec<String>,
    /// Even if the default route, or your session, is over one of them
    #[arg(long, requires = "nic")]
    pub(super) even_default_route: bool,
}

impl NicArgs {
    pub(super) fn nics(&self, bench: Bench) -> anyhow::Result<Option<Nics>> {
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
pub(super) enum BenchLab {
    /// Network namespaces of this machine, joined by veth
    Netns,
    /// The same in a QEMU guest that boots any kernel
    Vm,
}

/// Arguments of a replacement under load.
#[derive(Debug, Args)]
pub(crate) struct SwapArgs {
    /// How often the program is replaced in each block
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) swaps: u32,
    /// The path: xdp, xdp-skb, xdp-tx or xdp-redirect
    #[arg(long, value_name = "PATH", default_value = "xdp")]
    pub(super) path: DataPath,
    /// CPUs that send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) cores: u32,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) blocks: u32,
    /// How long each block is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::super::live::duration)]
    pub(super) time: Duration,
    #[command(flatten)]
    pub(super) out: OutArgs,
}

/// Where what was measured goes.
#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// The recording [default: bench-drop.plumb, bench-forward.plumb or bench-swap.plumb]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// A line for each block, as CSV
    #[arg(long, conflicts_with = "json")]
    pub(super) csv: bool,
    /// Everything, as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Details of every arm, not only of those that lost packets or are invalid
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(super) all: bool,
    /// No progress
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) page: PageArgs,
}

impl OutArgs {
    pub(super) fn format(&self) -> Format {
        Format::of(self.csv, self.json, self.all)
    }

    pub(super) fn options(&self) -> RunOptions {
        RunOptions {
            output: self.output.clone(),
            quiet: self.quiet,
            ..RunOptions::plain()
        }
    }
}

impl BenchArgs {
    /// The sizes asked for, or the shortest frame that holds what it has to.
    fn sizes(&self) -> Vec<FrameSize> {
        if !self.size.is_empty() {
            return self.size.clone();
        }
        let frames = Frames {
            kind: self.frames,
            family: self.family,
            size: FrameSize::Imix,
            flows: 1,
        };
        vec![FrameSize::Bytes(frames.size_bytes_least(self.latency))]
    }

    /// Over what packets run in a guest.
    pub(super) fn link(&self) -> anyhow::Result<Link> {
        let wrong = |why: &str| Err(Usage(why.into()).into());
        match self.link {
            Link::Veth => Ok(Link::Veth),
            Link::Lo | Link::Any => {
                wrong("--link is veth, or a NIC that QEMU emulates: e1000, virtio-net or usb-net")
            }
            _ if self.lab != BenchLab::Vm => wrong(
                "--link is for guests, which have such NICs: add --lab vm; your own are named by \
                 --nic and --from",
            ),
            _ if self.explain => {
                wrong("--explain counts over veth: leave --link out, or run it once more with it")
            }
            _ if self.plant.is_some() => wrong("--plant breaks labs of veth: leave --link out"),
            link => Ok(link),
        }
    }
}

/// Every combination.
pub(super) fn arms(bench: Bench, args: &BenchArgs) -> anyhow::Result<Vec<BenchArm>> {
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
    let link = args.link()?;
    let has_buffers = |p: &DataPath| {
        use DataPath::{AfXdp, Xdp, XdpRedirect, XdpSkb, XdpTx};
        matches!(p, Xdp | XdpSkb | XdpTx | XdpRedirect | AfXdp)
    };
    if args.multi_buffer && !paths.iter().all(has_buffers) {
        return Err(Usage(
            "--multi-buffer is for the paths that are XDP programs: xdp, xdp-skb, xdp-tx, \
             xdp-redirect and af-xdp"
                .into(),
        )
        .into());
    }
    let mut arms: Vec<BenchArm> = Vec::new();
    for &path in &paths {
        for size in args.sizes() {
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
                            queues: None,
                            batch: args.batch,
                            apart: args.apart,
                            stamped: args.latency,
                            swaps: 0,
                            sources: args.blocklist.unwrap_or(0),
                            multi_buffer: args.multi_buffer,
                            link,
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
