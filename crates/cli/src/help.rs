//! Help that fits on a screen: `-h` has the flags that most people need, `--help` has all.

use clap::{Arg, ArgAction, Command};

use crate::args::heading;

/// The short help of a command with more flags than fit on a screen.
struct Summary {
    /// The command, without `plumb`.
    command: &'static str,
    /// Long names of the flags in short help; these come first in long help, too.
    flags: &'static [&'static str],
    /// Command lines for the end of long help, without `plumb`.
    examples: &'static [&'static str],
}

/// The flags of benches of two hosts, without requests.
const OF_HOSTS: &[&str] = &[
    "bytes",
    "write-bytes",
    "requests",
    "connections",
    "lab",
    "link",
    "kernel",
    "blocks",
    "exact",
    "offload",
    "coalesce",
    "sysctl",
    "wire-rate",
    "wire-delay",
    "output",
    "json",
    "html",
];

/// The flags of benches of single requests.
const OF_REQUESTS: &[&str] = &[
    "turns",
    "size",
    "lab",
    "link",
    "kernel",
    "blocks",
    "exact",
    "offload",
    "coalesce",
    "sysctl",
    "wire-rate",
    "wire-delay",
    "output",
    "json",
    "html",
];

/// The flags of benches of data paths.
const OF_PATHS: &[&str] = &[
    "path", "size", "rate", "flows", "cores", "lab", "nic", "from", "latency", "search", "blocks",
    "time", "queues", "output", "csv", "json", "html",
];

const SUMMARIES: &[Summary] = &[
    Summary {
        command: "path",
        flags: &[
            "proto", "size", "lab", "link", "kernel", "clock", "packets", "duration", "sysctl",
            "offload", "qdisc", "layer", "top", "focus", "tree", "output", "json", "html",
        ],
        examples: &[
            "path --proto udp,tcp --size 64,1400",
            "path --offload gro=on --offload gro=off",
            "path --with data -- cat data",
            "path --lab host --clock stages --port 443 --duration 10s",
        ],
    },
    Summary {
        command: "profile",
        flags: &[
            "frequency",
            "event",
            "off-cpu",
            "duration",
            "pid",
            "cgroup",
            "layer",
            "top",
            "focus",
            "threads",
            "output",
            "json",
            "html",
            "watch",
            "folded",
            "pprof",
        ],
        examples: &[
            "profile --duration 10s",
            "profile --pid 1234 --off-cpu",
            "profile --html page.html -- make -j 4",
        ],
    },
    Summary {
        command: "stat",
        flags: &[
            "focus", "by", "ratio", "pid", "cgroup", "duration", "interval", "blocks", "lab",
            "output", "csv", "json", "html", "watch",
        ],
        examples: &[
            "stat --focus network --by cpu --duration 10s",
            "stat page-faults,block:* -- ls -l",
            "stat cs --lab vm --proto udp,tcp",
        ],
    },
    Summary {
        command: "trace",
        flags: &[
            "depth", "slowest", "args", "if", "time", "duration", "pid", "lab", "proto", "kernel",
            "call", "output", "json", "html", "perfetto",
        ],
        examples: &[
            "trace ip_rcv --depth 3",
            "trace udp_sendmsg --args --if 'insns > 5K'",
            "trace vfs_read --lab host --duration 5s",
        ],
    },
    Summary {
        command: "between",
        flags: &[
            "preset", "key", "by", "slow", "pid", "cgroup", "duration", "interval", "lab", "top",
            "output", "json", "html", "watch",
        ],
        examples: &[
            "between --preset disk --duration 10s",
            "between --preset disk --by device --slow p99",
            "between kprobe:vfs_read kretprobe:vfs_read --pid 1234",
        ],
    },
    Summary {
        command: "bench drop",
        flags: OF_PATHS,
        examples: &[
            "bench drop --path xdp,tc,nft-raw --cores 1,2",
            "bench drop --path xdp --rate 250k,max --latency",
        ],
    },
    Summary {
        command: "bench forward",
        flags: OF_PATHS,
        examples: &[
            "bench forward --path xdp-redirect,route",
            "bench forward --nic eth1 --from eth2 --to eth3 --sink eth4",
        ],
    },
    Summary {
        command: "bench stream",
        flags: OF_HOSTS,
        examples: &[
            "bench stream --offload tso=on --offload tso=off",
            "bench stream --wire-delay 1us,10ms --wire-loss 0,0.1%",
        ],
    },
    Summary {
        command: "bench request",
        flags: OF_REQUESTS,
        examples: &["bench request --size 64,1K --coalesce rx-usecs=0 --coalesce rx-usecs=100"],
    },
    Summary {
        command: "bench ping",
        flags: OF_REQUESTS,
        examples: &["bench ping --link e1000,virtio-net"],
    },
    Summary { command: "bench http", flags: OF_HOSTS, examples: &["bench http --sendfile on,off"] },
    Summary {
        command: "tune",
        flags: &[
            "goal",
            "hold",
            "budget",
            "candidates",
            "lab",
            "nic",
            "peer",
            "keep",
            "link",
            "kernel",
            "wire-rate",
            "wire-delay",
            "output",
            "experiment",
            "json",
        ],
        examples: &[
            "tune --goal throughput --hold 'latency<200us'",
            "tune --goal latency --nic eth1 --peer 192.0.2.1 -- iperf3 -c 192.0.2.1 -n 1G",
        ],
    },
    Summary {
        command: "run",
        flags: &[
            "duration",
            "seeds",
            "yes-change",
            "fail-if-claim-fails",
            "resume",
            "jobs",
            "layer",
            "top",
            "arm",
            "output",
            "csv",
            "json",
            "html",
        ],
        examples: &["run experiments/nft-rules.toml --html page.html"],
    },
    Summary {
        command: "report",
        flags: &[
            "direction",
            "layer",
            "arm",
            "top",
            "tree",
            "focus",
            "below",
            "lines",
            "threads",
            "call",
            "csv",
            "json",
            "html",
            "open",
            "folded",
            "pprof",
            "svg",
            "markdown",
        ],
        examples: &[
            "report path.plumb --layer network --top 0",
            "report path.plumb --focus ip_output",
        ],
    },
    Summary {
        command: "diff",
        flags: &[
            "proto",
            "direction",
            "clock",
            "layer",
            "top",
            "tree",
            "below",
            "csv",
            "json",
            "markdown",
            "mail",
            "html",
            "open",
            "fail-if-worse",
        ],
        examples: &[
            "diff before.plumb after.plumb",
            "diff path.plumb:udp path.plumb:tcp --markdown",
        ],
    },
];

/// A command with the help that its users see.
pub(crate) fn shaped(command: Command) -> Command {
    let version = Arg::new("version")
        .short('V')
        .long("version")
        .action(ArgAction::Version)
        .help("Print the version")
        .help_heading(heading::GLOBAL);
    with_help_flags(summarized(command)).disable_version_flag(true).arg(version)
}

/// A command whose short help is a summary, and whose long help ends with examples.
pub(crate) fn summarized(command: Command) -> Command {
    summarized_below(command, "")
}

fn summarized_below(command: Command, path: &str) -> Command {
    let command = each_subcommand(command, |below| {
        let path = format!("{path} {}", below.get_name());
        summarized_below(below, path.trim_start())
    });
    let found = SUMMARIES.iter().find(|summary| summary.command == path);
    let Some(summary) = found else { return command };
    let examples = summary.examples.iter();
    let examples: String = examples.map(|line| format!("\n    plumb {line}")).collect();
    command
        .mut_args(|arg| summarized_arg(arg, summary.flags))
        .after_help(format!("See `plumb {path} --help` for all options."))
        .after_long_help(format!("Examples:\n{examples}"))
}

fn summarized_arg(arg: Arg, flags: &[&str]) -> Arg {
    let Some(long) = arg.get_long() else {
        return arg;
    };
    if let Some(place) = flags.iter().position(|flag| *flag == long) {
        return arg.display_order(place);
    }
    // Of an argument that is not in short help, man pages have the long text only.
    let help = arg.get_long_help().or(arg.get_help()).cloned();
    let order = flags.len() + arg.get_display_order();
    arg.display_order(order).hide_short_help(true).long_help(help.unwrap_or_default())
}

/// Put `--help` below the heading of global options.
fn with_help_flags(command: Command) -> Command {
    let command = each_subcommand(command, with_help_flags);
    let is_summarized = command.get_after_help().is_some();
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("Print help (see more with '--help')")
        .long_help("Print help (see a summary with '-h')")
        .hide_short_help(is_summarized)
        .help_heading(heading::GLOBAL);
    command.disable_help_flag(true).arg(help)
}

fn each_subcommand(mut command: Command, change: impl Fn(Command) -> Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_string()).collect();
    for name in names {
        command = command.mut_subcommand(name, &change);
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Cli;

    /// A terminal.
    const COLUMNS: usize = 100;
    const LINES: usize = 40;
    /// Commands with fewer options than that need no headings.
    const FEW_OPTIONS: usize = 10;

    /// All commands, with their names as they are typed.
    fn all() -> Vec<(String, Command)> {
        fn add(command: &Command, path: &str, all: &mut Vec<(String, Command)>) {
            let path = format!("{path} {}", command.get_name());
            for below in command.get_subcommands() {
                add(below, &path, all);
            }
            all.push((path.trim_start().into(), command.clone()));
        }
        let mut command = crate::command();
        command.build();
        let mut commands = Vec::new();
        add(&command, "", &mut commands);
        commands
    }

    /// Check that short help of every command fits on a screen, and names the long help if flags are
    /// missing.
    #[test]
    fn short_help_fits_on_a_screen() {
        for (path, command) in all() {
            let help = command.clone().term_width(COLUMNS).render_help();
            let help = help.to_string();
            let lines = help.lines().count();
            assert!(lines <= LINES, "{path}: {lines} lines\n{help}");
            let mut own = command.get_arguments().filter(|arg| !arg.is_global_set());
            if own.any(Arg::is_hide_short_help_set) {
                assert!(help.contains(&format!("See `{path} --help`")), "{help}");
            }
        }
    }

    /// Check that long help has every argument below a heading, except where options are few.
    #[test]
    fn long_help_has_headings() {
        for (path, command) in all() {
            let options = command.get_arguments();
            let options = options.filter(|arg| !arg.is_positional() && !arg.is_hide_set());
            let is_global = |arg: &&Arg| arg.get_help_heading() == Some(heading::GLOBAL);
            let options: Vec<&Arg> = options.filter(|arg| !is_global(arg)).collect();
            if options.len() < FEW_OPTIONS {
                continue;
            }
            for option in options {
                let is_below = option.get_help_heading().is_some();
                assert!(is_below, "{path}: {}", option.get_id());
            }
        }
    }

    /// Check that the flags of summaries exist, and that examples are accepted.
    #[test]
    fn summaries_are_true() {
        let commands = all();
        let find = |summary: &Summary| {
            let path = format!("plumb {}", summary.command);
            let found = commands.iter().find(|(name, _)| *name == path);
            &found.unwrap_or_else(|| panic!("{path}")).1
        };
        for summary in SUMMARIES {
            // Some commands share a list.
            let alike = SUMMARIES.iter().filter(|other| other.flags == summary.flags);
            let there: Vec<&str> = alike
                .flat_map(|other| find(other).get_arguments())
                .filter_map(Arg::get_long)
                .collect();
            for flag in summary.flags {
                assert!(there.contains(flag), "{}: --{flag}", summary.command);
            }
            for line in summary.examples {
                let words = shell_words::split(line).unwrap();
                let words = std::iter::once("plumb".into()).chain(words);
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{line}: {error}");
                }
            }
        }
        Cli::command().debug_assert();
        crate::command().debug_assert();
    }
}
