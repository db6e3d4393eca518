//! `plumb path`: what a packet's path costs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use netplumb_engine::Plan;
use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::experiment::{Bytes, Knobs, Vary, Within};
use netplumb_model::text::counted;
use netplumb_model::timing::TimingSpec;

use super::command::CommandArgs;
use super::live::LiveArgs;
use super::page::PageArgs;
use super::report::{ShowArgs, show};
use crate::exit::{Failure, Usage, told};
use crate::recorder::{RunOptions, record};

/// Arguments of `plumb path`.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// What to send: raw (ICMP echo), udp, tcp; several with commas [default: udp; of the
    /// host's own packets all]
    #[arg(long, value_name = "PROTO", value_delimiter = ',')]
    pub(crate) proto: Vec<Proto>,
    /// ipv4 or ipv6 [default: ipv4; of the host's own packets both]
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    pub(crate) family: Vec<Family>,
    /// lo, veth, virtio-net, e1000, usb-net; several with commas [default: veth]
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    pub(crate) link: Vec<Link>,
    /// A router between the ends
    #[arg(long)]
    pub(crate) forward: bool,
    /// Payload of a packet, like 1400 or 4K; several with commas [default: 10]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) size: Vec<Bytes>,
    /// MTU of the link, like 9000; several with commas
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) mtu: Vec<Bytes>,
    /// A queueing discipline on the sender's egress, as `tc qdisc replace dev DEVICE root` takes
    /// it, like 'netem delay 20us'; again for more, '' for the device's own
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Vec<String>,
    /// On whose egress it is instead: tx, rx, both, router
    #[arg(long, value_name = "WHERE", requires = "qdisc")]
    pub(crate) qdisc_in: Option<Within>,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    pub(crate) direction: Vec<Direction>,
    /// Packets in a block [default: 200; in the lab netns a block is over by time]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) packets: Option<u32>,
    /// Packets before the first block, not counted [default: 200]; before a command in a guest,
    /// connections of the guest's own [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,
    /// Blocks of each kind [default: 5, of a command 1, in the lab netns 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) blocks: Option<u32>,
    /// A kernel that `plumb kernel list` shows; several with commas [default: debian]
    #[arg(long, value_name = "KERNEL", value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,
    /// CPU vulnerability mitigations [default: off]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    pub(crate) mitigations: Option<String>,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS")]
    pub(crate) cmdline: Option<String>,
    /// A setting below /proc/sys in every namespace, like net.core.x=1; again for more, and with
    /// another value of the same to compare them
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) sysctl: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .ok_or_else(|| "it takes KEY=VALUE".to_string())
}

/// Packets in a block, and before the first.
pub(crate) const PACKETS: u32 = 200;
/// Connections of a guest's own before a command.
const COMMAND_WARMUP: u32 = 1;
/// Blocks of each arm.
pub(crate) const BLOCKS: u32 = 5;

/// What was given, or else what is the default.
fn or<T: Clone>(given: &[T], default: T) -> Vec<T> {
    match given {
        [] => vec![default],
        given => given.to_vec(),
    }
}

impl PathArgs {
    /// The arms, their packets and their blocks.
    ///
    /// # Errors
    /// What can't be run, in a sentence.
    pub(crate) fn plan(&self) -> Result<Plan, Usage> {
        let on = |on: bool| if on { "on" } else { "off" }.to_string();
        let mitigations = self.mitigations.clone().unwrap_or_else(|| on(false));
        let mut fixed = vec![("forward", on(self.forward)), ("mitigations", mitigations)];
        fixed.extend(self.cmdline.clone().map(|words| ("cmdline", words)));
        fixed.extend(self.qdisc_in.map(|place| ("qdisc_in", place.to_string())));
        if self.live.bridge {
            fixed.push(("bridge", on(true)));
        }
        fixed.extend(self.live.queues.map(|n| ("queues", n.to_string())));
        fn levels<T: ToString>(key: &str, all: &[T]) -> Vec<(String, String)> {
            all.iter().map(|l| (key.into(), l.to_string())).collect()
        }
        let bytes = |all: &[Bytes]| all.iter().map(|b| b.0).collect::<Vec<_>>();
        let mut vary = [
            levels("proto", &or(&self.proto, Proto::Udp)),
            levels("family", &or(&self.family, Family::V4)),
            levels("link", &or(&self.link, Link::Veth)),
            levels("size_bytes", &bytes(&or(&self.size, Bytes(10)))),
            levels("mtu_bytes", &bytes(&self.mtu)),
            levels("kernel", &or(&self.kernel, "debian".to_string())),
            levels("qdisc", &self.qdisc),
        ]
        .concat();
        // Settings of different names go together; levels of one are compared.
        let pairs = |table: &str, all: &[(String, String)]| -> Vec<(String, String)> {
            let each = all.iter();
            each.map(|(key, level)| (format!("{table}.{key}"), level.clone()))
                .collect()
        };
        vary.extend(pairs("offload", &self.live.offload));
        vary.extend(pairs("sysctl", &self.sysctl));
        let plan = Plan::from_knobs(
            &Knobs::of(fixed).map_err(Usage)?,
            &Vary::of(vary).map_err(Usage)?,
            self.packets.unwrap_or(PACKETS),
            self.warmup.unwrap_or(PACKETS),
            self.blocks.unwrap_or(BLOCKS),
        )
        .map_err(Usage)?;
        Ok(plan)
    }

    /// Which setting of a path has several levels, if one has.
    fn compared(&self) -> Option<&'static str> {
        let twice = |pairs: &[(String, String)]| {
            let named: BTreeSet<&String> = pairs.iter().map(|(name, _)| name).collect();
            named.len() < pairs.len()
        };
        [
            ("--qdisc", self.qdisc.len() > 1),
            ("--mtu", self.mtu.len() > 1),
            ("--offload", twice(&self.live.offload)),
            ("--sysctl", twice(&self.sysctl)),
        ]
        .into_iter()
        .find_map(|(option, several)| several.then_some(option))
    }

    /// What a command's packets are not asked.
    pub(crate) fn check_command(&self) -> Result<(), Usage> {
        // Of a clock of time they are a filter, and choose tables.
        let exact = !self.live.wanted();
        for (option, given) in [
            ("--proto", exact && !self.proto.is_empty()),
            ("--size", !self.size.is_empty()),
            ("--mtu", !self.mtu.is_empty()),
            ("--qdisc", !self.qdisc.is_empty()),
            ("--direction", exact && !self.direction.is_empty()),
            ("--packets", self.packets.is_some()),
            ("--rate", self.live.rate.is_some()),
            ("--stream", self.live.stream),
            ("--resume", self.options.resume),
            ("--bridge", self.live.bridge),
            ("--queues", self.live.queues.is_some()),
            ("--offload", !self.live.offload.is_empty()),
        ] {
            if given {
                return Err(Usage(format!(
                    "{option} is for packets that plumb sends: a command in the lab vm has its \
                     own; leave out one or the other"
                )));
            }
        }
        Ok(())
    }
}

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.live.lab == super::live::Lab::Host && !args.qdisc.is_empty() {
        return Err(Usage(
            "--qdisc: the lab host leaves this machine's devices as they are: use --lab netns, or \
             set it with tc yourself"
                .into(),
        )
        .into());
    }
    if !args.command.is_empty()
        && let Some(option) = args.compared()
    {
        return Err(Usage(format!("{option}: a command runs once: give one level")).into());
    }
    if args.live.wanted() {
        return super::live::run(args, cache);
    }
    super::live::check_exact(&args)?;
    if !args.command.is_empty() {
        return run_command(&args, None, cache);
    }
    let plan = args.plan()?;
    args.show.check()?;
    args.page.check()?;
    let outcome = record(&plan, "path", "", &args.options, cache)?;
    finish(outcome, &args.show, &args.page, &args.direction)
}

/// Run a command in a guest, its instructions counted or timed as `timed` says.
///
/// # Errors
/// What kept it from being measured.
pub(crate) fn run_command(
    args: &PathArgs,
    timed: Option<TimingSpec>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    args.check_command()?;
    let machine = super::command::Machine {
        link: or(&args.link, Link::Veth),
        family: or(&args.family, Family::V4),
        forward: args.forward,
        kernel: or(&args.kernel, "debian".to_string()),
        mitigations: args.mitigations.as_deref() == Some("on"),
        cmdline: args.cmdline.clone().unwrap_or_default(),
        sysctl: args.sysctl.iter().cloned().collect(),
        warmup: args.warmup.unwrap_or(COMMAND_WARMUP),
        blocks: args.blocks.unwrap_or(1),
        timed,
    };
    super::command::run(
        &args.command,
        machine,
        &args.show,
        &args.page,
        &args.direction,
        &args.options,
        cache,
    )
}

/// Show what was measured, and then tell what went wrong, if anything did.
pub(crate) fn finish(
    outcome: crate::recorder::Outcome,
    show_args: &ShowArgs,
    page: &PageArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    let shown = if outcome.recording.blocks.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        show(&outcome.recording, show_args, directions).and_then(|code| {
            page.write(&outcome.recording, directions, &show_args.arm)
                .map(|()| code)
        })
    };
    match outcome.error {
        Some(error) => {
            eprintln!("plumb: {}", told(&error));
            if !outcome.recording.blocks.is_empty() {
                eprintln!(
                    "plumb: measured before that, and shown above: {}",
                    counted(outcome.recording.blocks.len(), "block")
                );
            }
            Ok(ExitCode::from(Failure::of(&error).code()))
        }
        None => shown,
    }
}
