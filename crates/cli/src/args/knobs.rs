//! Flags of knobs, generated from the declarations for every command that has the knob.

use std::fmt;
use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use netplumb_model::experiment::{
    Flag, KNOBS, Kind, Knob, KnobDefault, Knobs, Lab, Recorded, Takes, Vary, default_of_hosts,
    is_of_hosts, is_of_web,
};

use super::heading;

/// Headings of knobs, by key; settings are all others.
const HEADINGS: &[(&str, &[&str])] = &[
    (
        heading::WORKLOAD,
        &[
            "proto",
            "family",
            "size_bytes",
            "sender",
            "rx_fault",
            "per_transfer",
            "client",
            "page_cache",
            "sendfile",
            "path",
            "frames",
            "size",
            "flows",
            "cores",
            "rate",
            "batch",
        ],
    ),
    (
        heading::LAB,
        &[
            "link",
            "rx_link",
            "forward",
            "bridge",
            "topology",
            "kernel",
            "arch",
            "mitigations",
            "cmdline",
            "module",
            "load",
            "tx_shift",
            "rx_shift",
        ],
    ),
    (heading::MEASUREMENT, &["apart", "stamps"]),
    (heading::DISK, &["disk", "scheduler", "nr_requests", "read_ahead_kb"]),
    (heading::WIRE, &["wire_rate", "wire_delay", "wire_jitter", "wire_loss"]),
];

fn heading_of(key: &str) -> &'static str {
    let found = HEADINGS.iter().find(|(_, keys)| keys.contains(&key));
    found.map_or(heading::SETTINGS, |(heading, _)| heading)
}

/// The set of knobs of a command.
pub(crate) trait Shows: Clone + Send + Sync + 'static {
    /// Whether it includes a knob.
    fn shows(knob: &Knob) -> bool;

    /// The default of a knob, if it is another one here.
    fn default_of(_: &Knob) -> Option<String> {
        None
    }
}

/// Knobs of packets that plumb sends, and of commands.
#[derive(Debug, Clone)]
pub(crate) struct OfPackets;

impl Shows for OfPackets {
    fn shows(knob: &Knob) -> bool {
        let of = |kind| knob.workloads.contains(&kind);
        of(Kind::Packets) || of(Kind::Command)
    }
}

/// Knobs of this machine, for the commands that run on it.
#[derive(Debug, Clone)]
pub(crate) struct OfMachine;

impl Shows for OfMachine {
    fn shows(knob: &Knob) -> bool {
        knob.workloads.contains(&Kind::Work) && knob.labs.contains(&Lab::Host)
    }
}

/// Knobs of workloads that run in any lab: packets, commands, and settings of this machine.
#[derive(Debug, Clone)]
pub(crate) struct OfPlaces;

impl Shows for OfPlaces {
    fn shows(knob: &Knob) -> bool {
        OfPackets::shows(knob) || OfMachine::shows(knob)
    }
}

/// Knobs of two hosts.
#[derive(Debug, Clone)]
pub(crate) struct OfHosts;

impl Shows for OfHosts {
    fn shows(knob: &Knob) -> bool {
        // Two hosts send TCP only.
        is_of_hosts(knob) && knob.key != "proto"
    }

    fn default_of(knob: &Knob) -> Option<String> {
        default_of_hosts(knob)
    }
}

/// Knobs of two hosts, one with a web server.
#[derive(Debug, Clone)]
pub(crate) struct OfWeb;

impl Shows for OfWeb {
    fn shows(knob: &Knob) -> bool {
        (OfHosts::shows(knob) && knob.key != "size_bytes") || is_of_web(knob)
    }

    fn default_of(knob: &Knob) -> Option<String> {
        default_of_hosts(knob)
    }
}

/// Knobs of frames along a data path.
#[derive(Debug, Clone)]
pub(crate) struct OfFrames;

impl Shows for OfFrames {
    fn shows(knob: &Knob) -> bool {
        knob.workloads.contains(&Kind::Frames)
    }

    fn default_of(knob: &Knob) -> Option<String> {
        (knob.key == "path").then(|| "all that this machine supports".into())
    }
}

/// The levels given on a command line, by knob.
#[derive(Clone)]
pub(crate) struct KnobArgs<S> {
    /// By the knob's name in a recording.
    given: Vec<(String, String)>,
    shows: PhantomData<S>,
}

impl<S> fmt::Debug for KnobArgs<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.given).finish()
    }
}

impl<S> KnobArgs<S> {
    /// All of them, by the knob's name in a recording.
    pub(crate) fn given(&self) -> &[(String, String)] {
        &self.given
    }

    /// The levels of a knob.
    pub(crate) fn levels(&self, key: &str) -> Vec<&str> {
        let of = self.given.iter().filter(|(name, _)| name == key);
        of.map(|(_, level)| level.as_str()).collect()
    }

    /// The disks and interfaces of this machine whose settings are given, which allows to change them.
    pub(crate) fn of_machine(&self) -> Vec<String> {
        let names = ["disk", "nic"].into_iter().flat_map(|key| self.levels(key));
        names.map(String::from).collect()
    }

    /// Whether a knob was given, or one of a table.
    pub(crate) fn has(&self, key: &str) -> bool {
        let table = format!("{key}.");
        let mut names = self.given.iter().map(|(name, _)| name);
        names.any(|name| name == key || name.starts_with(&table))
    }
}

impl<S: Shows> KnobArgs<S> {
    fn knobs() -> impl Iterator<Item = (&'static Knob, &'static str)> {
        let shown = KNOBS.iter().filter(|knob| S::shows(knob));
        shown.filter_map(|knob| Some((knob, knob.flag.name()?)))
    }
}

/// `all` is expanded later.
pub(crate) const ALL: &str = "all";

/// Parse a level to its form in recordings; for a table with the key.
fn level(knob: &Knob, text: &str) -> Result<String, String> {
    if knob.key == "path" && text == ALL {
        return Ok(text.into());
    }
    match knob.flag {
        Flag::Pairs(_) => {
            let expected = match knob.takes {
                Takes::Settings => "expected KEY=VALUE",
                Takes::Numbers { .. } => "expected NAME=NUMBER, like rx-usecs=100",
                _ => "expected NAME=on or NAME=off, like gro=on",
            };
            let (key, level) = text.split_once('=').ok_or(expected)?;
            Knobs::from_pairs([(format!("{}.{key}", knob.key), level)])?;
            Ok(text.into())
        }
        _ => {
            let level = knob.takes.parse(text)?;
            Ok(level.text().unwrap_or(text).to_string())
        }
    }
}

/// Short help, which is the help up to its first semicolon with a default that is a level, and long
/// help.
fn help(knob: &Knob, own_default: Option<String>) -> [String; 2] {
    let mut letters = knob.help.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    let mut long = first.unwrap_or_default() + letters.as_str();
    let mut short = long.split(';').next().unwrap_or_default().to_string();
    // The knob's own help lacks long lists of words.
    if let Takes::Word { words, .. } = knob.takes
        && !words.iter().any(|word| knob.help.contains(word))
    {
        long.push_str(&format!(" ({})", words.join(", ")));
    }
    long.push_str(match knob.flag {
        Flag::List(_) => "; comma-separated list",
        Flag::Again(_) => match knob.takes {
            Takes::Files | Takes::Modules => "; comma-separated list; may be repeated, to compare",
            _ => "; may be repeated",
        },
        Flag::Pairs(_) => "; may be repeated, with the same key to compare values",
        Flag::Switch(_) | Flag::None => "",
    });
    let default = match (knob.flag, knob.default) {
        (Flag::Switch(_), _) => String::new(),
        (_, KnobDefault::Level(level) | KnobDefault::Described(level)) => {
            format!(" [default: {}]", own_default.as_deref().unwrap_or(level))
        }
    };
    if own_default.is_some() || matches!(knob.default, KnobDefault::Level(_)) {
        short.push_str(&default);
    }
    long.push_str(&default);
    // Plain text has no marks for code.
    [short, long].map(|text| text.replace('`', ""))
}

fn value_name(knob: &Knob) -> &'static str {
    match (knob.flag, knob.takes) {
        (Flag::Pairs(_), Takes::Settings) => "KEY=VALUE",
        (Flag::Pairs(_), Takes::Numbers { .. }) => "NAME=N",
        (Flag::Pairs(_), _) => "NAME=on|off",
        (_, Takes::Switch) => "on|off",
        (_, Takes::Number { .. }) => "N",
        (_, Takes::Bytes) => "BYTES",
        (_, Takes::Files | Takes::Modules) => "MODULE",
        (_, Takes::Text { what, .. } | Takes::Word { what, .. }) => match (what, knob.key) {
            ("rate", "wire_rate") => "BITS",
            ("rate", _) => "PPS",
            ("time", _) => "TIME",
            ("percentage", _) => "PERCENT",
            ("host", _) => "HOST",
            ("KiB", _) => "KB",
            ("number", _) => "N",
            ("scheduler", _) => "SCHEDULER",
            ("CPUs", _) => "CPUS",
            ("interface", _) => "NIC",
            (_, "disk") => "DISK",
            ("frame size", _) => "SIZE",
            ("protocol", _) => "PROTO",
            (_, "family") => "VERSION",
            ("kind of frame", _) => "KIND",
            (_, "kernel") => "KERNEL",
            (_, "cmdline") => "PARAMETERS",
            (_, "qdisc") => "QDISC",
            ("link", _) => "LINK",
            (_, "path") => "PATH",
            (_, "fault") => "FAULT",
            _ => "NAME",
        },
        _ => "NAME",
    }
}

impl<S: Shows> Args for KnobArgs<S> {
    fn augment_args(mut command: Command) -> Command {
        for (knob, name) in Self::knobs() {
            let [short, long] = help(knob, S::default_of(knob));
            let mut arg = Arg::new(name)
                .long(name)
                .help(short)
                .long_help(long)
                .help_heading(heading_of(knob.key));
            arg = match knob.flag {
                Flag::Switch(_) => arg.action(ArgAction::SetTrue),
                _ => arg
                    .action(ArgAction::Append)
                    .value_name(value_name(knob))
                    .value_parser(move |text: &str| level(knob, text)),
            };
            if let Flag::List(_) = knob.flag {
                arg = arg.value_delimiter(',');
            }
            if let Recorded::With(other) | Recorded::IfSetWith(other) = knob.recorded
                && let Some(other) = Knob::by_key(other).and_then(|other| other.flag.name())
            {
                arg = arg.requires(other);
            }
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Shows> FromArgMatches for KnobArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (knob, name) in Self::knobs() {
            if let Flag::Switch(_) = knob.flag {
                if matches.get_flag(name) {
                    given.push((knob.key.to_string(), "on".to_string()));
                }
                continue;
            }
            for level in matches.get_many::<String>(name).into_iter().flatten() {
                given.push(match (knob.flag, level.split_once('=')) {
                    (Flag::Pairs(_), Some((key, level))) => {
                        (format!("{}.{key}", knob.key), level.to_string())
                    }
                    _ => (knob.key.to_string(), level.clone()),
                });
            }
        }
        Ok(KnobArgs { given, shows: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The knobs that all arms share, and the ones that vary. Where no knob varies, the arm is named
/// after the protocol.
pub(crate) fn levels<S>(
    knobs: &KnobArgs<S>,
    kind: Kind,
    lab: Lab,
) -> Result<(Knobs, Vary), String> {
    let (mut fixed, mut vary) = (Vec::new(), Vec::new());
    let given = knobs.given();
    if kind == Kind::Packets && !knobs.has("proto") {
        vary.push(("proto".to_string(), "udp".to_string()));
    }
    for (key, level) in given {
        // For traffic of other programs these two are filters.
        let filters = (key == "family" && lab == Lab::Host) || key == "proto";
        if filters && !matches!(kind, Kind::Packets | Kind::Work) {
            continue;
        }
        let alone = given.iter().filter(|(other, _)| other == key).count() == 1;
        let level = (key.clone(), level.clone());
        match alone && key != "proto" {
            true => fixed.push(level),
            false => vary.push(level),
        }
    }
    Ok((Knobs::from_pairs(fixed)?, Vary::from_pairs(vary)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<S: Shows>(words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let command = KnobArgs::<S>::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(words);
        let matches = matches.map_err(|e| e.to_string())?;
        let args = KnobArgs::<S>::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        Ok(args.given)
    }

    /// Check that every knob with a flag is accepted by its commands, and that levels are parsed as
    /// in files, or refused with the expected form.
    #[test]
    fn flags_of_knobs() {
        let all = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let each = pairs.iter();
            each.map(|(k, l)| (k.to_string(), l.to_string())).collect()
        };
        let given = parse::<OfPackets>(&[
            "--size",
            "10,4K",
            "--offload",
            "gro=on",
            "--offload",
            "gro=off",
            "--forward",
            "--queues",
            "2",
            "--qdisc",
            "netem  delay 20us",
            "--qdisc",
            "",
        ]);
        let wanted = [
            ("forward", "on"),
            ("queues", "2"),
            ("size_bytes", "10"),
            ("size_bytes", "4096"),
            ("offload.gro", "on"),
            ("offload.gro", "off"),
            ("qdisc", "netem delay 20us"),
            ("qdisc", ""),
        ];
        assert_eq!(given, Ok(all(&wanted)));
        let given = parse::<OfFrames>(&["--path", "xdp,all", "--rate", "0.25M", "--latency"]);
        let wanted = [("path", "xdp"), ("path", "all"), ("rate", "250k"), ("stamps", "on")];
        assert_eq!(given, Ok(all(&wanted)));
        for (words, says) in [
            (&["--link", "vet"][..], "veth"),
            (&["--offload", "speed=on"], "gro"),
            (&["--offload", "gro=1"], "on or off"),
            (&["--offload", "gro"], "gro=on"),
            (&["--sysctl", "net"], "KEY=VALUE"),
            (&["--coalesce", "rx-usecs"], "NAME=NUMBER"),
            (&["--coalesce", "adaptive-rx=2"], "on or off"),
            (&["--rps-cpus", "x"], "list of CPUs"),
            (&["--rings", "rx=many"], "1 or more"),
            (&["--queues", "65"], "1 to 64"),
            (&["--qdisc-in", "rx"], "--qdisc"),
            (&["--cores", "1"], "--cores"),
        ] {
            let error = parse::<OfPackets>(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
        let with_headings = HEADINGS.iter().flat_map(|(_, keys)| *keys);
        assert!(with_headings.copied().all(|key| Knob::by_key(key).is_some()));
        let shown = |knob: &&Knob| {
            OfPackets::shows(knob)
                || OfFrames::shows(knob)
                || OfPlaces::shows(knob)
                || OfHosts::shows(knob)
                || OfWeb::shows(knob)
        };
        assert!(KNOBS.iter().filter(|k| k.flag.name().is_some()).all(|k| shown(&k)));
    }
}
