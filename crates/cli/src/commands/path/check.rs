//! Options of `plumb path` that can't be used together.

use netplumb_model::class::Link;
use netplumb_model::experiment::Lab;

use super::args::PathArgs;
use crate::args::live::{EXACT, FUNCTIONS, STAGES};
use crate::exit::{CannotHere, Usage};
use crate::experiment::NOT_RESUMED;

/// Check the options of a measurement of time.
///
/// # Errors
/// Options that can't be used together, and what to do instead.
pub(crate) fn check(args: &PathArgs) -> anyhow::Result<()> {
    let live = &args.live;
    if live.lab != Lab::Vm && live.asks(EXACT) {
        return Err(CannotHere(
            "instrument `exact` counts instructions in a guest: use --lab vm, or --clock functions \
             or stages on this machine"
                .into(),
        )
        .into());
    }
    let clashes = match live.lab {
        Lab::Vm => in_vm(args),
        Lab::Netns => in_netns(args),
        Lab::Host => in_host(args),
    };
    if let Some((option, why)) = clashes
        .into_iter()
        .chain(of_clock(args))
        .find(|(_, why)| why.is_some())
        .and_then(|(option, why)| Some((option, why?)))
    {
        return Err(Usage(format!("{option}: {why}")).into());
    }
    if args.show.for_programs() && args.watch {
        return Err(Usage("--watch can't be used with --json or --csv".into()).into());
    }
    let has_nics = |link: &&str| link.parse().is_ok_and(Link::has_nics);
    if live.lab == Lab::Netns && args.knobs.levels("link").iter().any(has_nics) {
        return Err(Usage(format!(
            "--link: the netns lab has {}; use --lab vm for other links",
            Link::listed(|link| !link.has_nics())
        ))
        .into());
    }
    if live.lab != Lab::Host
        && let Some(link) = args.knobs.levels("link").into_iter().find(is_any)
    {
        return Err(Usage(format!(
            "invalid link `{link}`; expected one of {}",
            Link::CREATED_WORDS.join(", ")
        ))
        .into());
    }
    Ok(())
}

fn is_any(link: &&str) -> bool {
    *link == Link::Any.as_str()
}

/// Options, each with the reason if it can't be used.
type Clashes = Vec<(&'static str, Option<&'static str>)>;

const COST_OF_COMMAND: &str = "it compares blocks of packets that plumb sends: omit the command";

fn in_vm(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let here = "it selects something on this machine, and not in a guest: use --lab host or netns";
    let command = !args.command.is_empty();
    vec![
        ("--interface", live.interface.is_some().then_some(here)),
        ("--netns", live.netns.is_some().then_some(here)),
        ("--pid", live.pid.is_some().then_some(here)),
        ("--cgroup", live.cgroup.is_some().then_some(here)),
        (
            "--watch",
            args.watch.then_some("a guest reports nothing before it has been measured: use --lab netns or host"),
        ),
        (
            "--measure-cost",
            (live.measure_cost && command).then_some(COST_OF_COMMAND),
        ),
        (
            "--duration",
            (live.duration.is_some() && command).then_some("a command in a guest runs until it exits; --timeout SECONDS limits it, in real time"),
        ),
        (
            "--seeds",
            args.options.seeds.is_some().then_some("it is for --clock exact"),
        ),
        (
            "--resume",
            args.options.resume.then_some("it is for --clock exact; measure again, into another file with --output"),
        ),
    ]
}

fn in_netns(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let mut clashes = of_this_kernel(args);
    let filtered = "the netns lab makes its own network namespaces: use --lab host";
    clashes.extend([
        ("--interface", live.interface.is_some().then_some(filtered)),
        ("--netns", live.netns.is_some().then_some(filtered)),
        (
            "--measure-cost",
            (live.measure_cost && !args.command.is_empty()).then_some(COST_OF_COMMAND),
        ),
    ]);
    clashes
}

fn in_host(args: &PathArgs) -> Clashes {
    let live = &args.live;
    let sends = "the host lab sends no packets: use --lab netns, or generate traffic with \
                 `-- COMMAND`";
    let mut clashes = of_this_kernel(args);
    clashes.extend([
        ("--link", args.knobs.has("link").then_some(sends)),
        ("--forward", args.knobs.has("forward").then_some(sends)),
        ("--bridge", args.knobs.has("bridge").then_some(sends)),
        ("--topology", args.knobs.has("topology").then_some(sends)),
        ("--queues", args.knobs.has("queues").then_some(sends)),
        ("--offload", args.knobs.has("offload").then_some(sends)),
        ("--size", args.knobs.has("size_bytes").then_some(sends)),
        ("--mtu", args.knobs.has("mtu_bytes").then_some(sends)),
        ("--packets", args.packets.is_some().then_some(sends)),
        ("--warmup", args.warmup.is_some().then_some(sends)),
        ("--rate", live.rate.is_some().then_some(sends)),
        ("--stream", live.stream.then_some(sends)),
        ("--sysctl", args.knobs.has("sysctl").then_some(sends)),
        (
            "--measure-cost",
            live.measure_cost.then_some("it needs blocks of the same packets: use --lab netns"),
        ),
    ]);
    clashes
}

/// Options that only apply to guests.
fn of_this_kernel(args: &PathArgs) -> Clashes {
    let guests = "it is for guests: use --lab vm";
    vec![
        ("--kernel", args.knobs.has("kernel").then_some(guests)),
        ("--module", args.knobs.has("module").then_some(guests)),
        ("--load", args.knobs.has("load").then_some(guests)),
        ("--mitigations", args.knobs.has("mitigations").then_some(guests)),
        ("--cmdline", args.knobs.has("cmdline").then_some(guests)),
        ("--quick", args.options.quick.then_some(guests)),
        ("--cold", args.options.cold.then_some(guests)),
        ("--jobs", args.options.jobs.is_some().then_some(guests)),
        ("--seeds", args.options.seeds.is_some().then_some(guests)),
        ("--resume", (args.options.resume && !args.is_long()).then_some(NOT_RESUMED)),
        ("--with", (!args.command.with_files().is_empty()).then_some(guests)),
        (
            "--peer",
            args.command
                .peer()
                .is_some()
                .then_some("it is for guests: start the server yourself, or use --lab vm"),
        ),
        (
            "--stdin",
            args.command.takes_stdin().then_some(
                "it is for guests: in the labs host and netns a command has standard input anyway",
            ),
        ),
    ]
}

fn of_clock(args: &PathArgs) -> Clashes {
    let live = &args.live;
    // Only an error unless `functions` is given, too.
    let stages = live.asks(STAGES) && !live.asks(FUNCTIONS);
    let selects = "instrument `stages` measures no functions: use --clock functions";
    vec![
        ("--functions", (stages && !live.functions.is_empty()).then_some(selects)),
        ("--from-recording", (stages && live.from_recording.is_some()).then_some(selects)),
        ("--discover", (stages && live.discover).then_some(selects)),
        ("--max-functions", (stages && live.max_functions.is_some()).then_some(selects)),
        (
            "--one-packet",
            (live.one_packet && args.is_long()).then_some(
                "traces of a run of a minute or more would be too many: use a shorter --duration",
            ),
        ),
        (
            "--duration",
            (live.duration.is_some() && args.packets.is_some() && !args.is_long()).then_some(
                "a block ends after a time or a number of packets: give --duration or --packets",
            ),
        ),
    ]
}

/// Check that instruments that count instructions have no options of timing instruments.
///
/// # Errors
/// The option, and what to do instead.
pub(crate) fn check_exact(args: &PathArgs) -> anyhow::Result<()> {
    let live = &args.live;
    let asked = [
        ("--duration", live.duration.is_some() && !args.is_long() && args.blocks.is_none()),
        ("--rate", live.rate.is_some()),
        ("--stream", live.stream),
        ("--port", live.port.is_some()),
        ("--address", live.address.is_some()),
        ("--interface", live.interface.is_some()),
        ("--netns", live.netns.is_some()),
        ("--pid", live.pid.is_some()),
        ("--cgroup", live.cgroup.is_some()),
        ("--functions", !live.functions.is_empty()),
        ("--from-recording", live.from_recording.is_some()),
        ("--discover", live.discover),
        ("--max-functions", live.max_functions.is_some()),
        ("--max-overhead", live.max_overhead.is_some()),
        ("--measure-cost", live.measure_cost),
        ("--one-packet", live.one_packet),
        ("--watch", args.watch),
    ];
    let goes_on = live.duration.is_some();
    let clashes = [
        ("--blocks", args.blocks.is_some()),
        ("--cold", args.options.cold),
        ("--seeds", args.options.seeds.is_some_and(|n| n > 1)),
    ];
    if let Some((option, _)) = clashes.iter().find(|(_, given)| goes_on && *given) {
        return Err(Usage(format!(
            "{option} can't be used with --duration: guests go on from a saved state until that has \
             passed"
        ))
        .into());
    }
    match asked.iter().find(|(_, asked)| *asked) {
        Some((option, _)) => Err(Usage(format!(
            "{option} can't be used with instrument `{}`: add --lab netns, --lab host or --clock \
             functions",
            live.instruments().map_or_else(|| EXACT.into(), |names| names.join(", "))
        ))
        .into()),
        None => Ok(()),
    }
}
