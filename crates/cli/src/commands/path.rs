//! `plumb path`: what a packet's path costs.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use netplumb_engine::Plan;
use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::experiment::{Bytes, Knobs, Vary};

use super::command::CommandArgs;
use super::page::PageArgs;
use super::report::{ShowArgs, show};
use crate::exit::{Failure, told};
use crate::recorder::{RunOptions, record};

/// Arguments of `plumb path`.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// What to send: raw (ICMP echo), udp, tcp; several with commas
    #[arg(
        long,
        value_name = "PROTO",
        value_delimiter = ',',
        default_value = "udp"
    )]
    proto: Vec<Proto>,
    /// ipv4 or ipv6
    #[arg(
        long,
        value_name = "FAMILY",
        value_delimiter = ',',
        default_value = "ipv4"
    )]
    family: Vec<Family>,
    /// lo, veth, virtio-net, e1000, usb-net; several with commas
    #[arg(
        long,
        value_name = "LINK",
        value_delimiter = ',',
        default_value = "veth"
    )]
    link: Vec<Link>,
    /// A router between the ends
    #[arg(long)]
    forward: bool,
    /// Payload of a packet, like 10 or 64K; several with commas
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "10"
    )]
    size: Vec<Bytes>,
    /// MTU of the link
    #[arg(long, value_name = "BYTES")]
    mtu: Option<Bytes>,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Packets in a block
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    packets: u32,
    /// Packets before the first block, not counted
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warmup: u32,
    /// Blocks of each kind [default: 5, of a command 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    /// A kernel that `plumb kernel list` shows; several with commas
    #[arg(
        long,
        value_name = "KERNEL",
        value_delimiter = ',',
        default_value = "debian"
    )]
    kernel: Vec<String>,
    /// CPU vulnerability mitigations
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = ["on", "off"])]
    mitigations: String,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS")]
    cmdline: Option<String>,
    /// A setting below /proc/sys in every namespace, like net.core.x=1
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    sysctl: Vec<(String, String)>,
    #[command(flatten)]
    command: CommandArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .ok_or_else(|| "it takes KEY=VALUE".to_string())
}

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    args.command.check()?;
    if !args.command.is_empty() {
        let machine = super::command::Machine {
            link: args.link,
            family: args.family,
            forward: args.forward,
            kernel: args.kernel,
            mitigations: args.mitigations == "on",
            cmdline: args.cmdline.unwrap_or_default(),
            sysctl: args.sysctl.into_iter().collect(),
            blocks: args.blocks.unwrap_or(1),
        };
        return super::command::run(
            args.command,
            machine,
            &args.show,
            &args.page,
            &args.options,
            cache,
        );
    }
    let fixed = Knobs {
        forward: Some(args.forward),
        mtu_bytes: args.mtu,
        mitigations: Some(args.mitigations == "on"),
        cmdline: args.cmdline.clone(),
        sysctl: args.sysctl.iter().cloned().collect(),
        ..Knobs::default()
    };
    let vary = Vary {
        proto: args.proto,
        family: args.family,
        link: args.link,
        size_bytes: args.size,
        kernel: args.kernel,
        ..Vary::default()
    };
    let plan = Plan::from_knobs(
        &fixed,
        &vary,
        args.packets,
        args.warmup,
        args.blocks.unwrap_or(5),
    )
    .map_err(crate::exit::Usage)?;
    args.show.check()?;
    args.page.check()?;
    let outcome = record(&plan, "path", "", &args.options, cache)?;
    finish(outcome, &args.show, &args.page, &args.direction)
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
                    "plumb: {} blocks were measured before that, and are shown above",
                    outcome.recording.blocks.len()
                );
            }
            Ok(ExitCode::from(Failure::of(&error).code()))
        }
        None => shown,
    }
}
