//! Every knob, declared once. Parsing of files and command lines, merging, arms and their names,
//! recordings, help and reference all use these declarations.

mod commands;
mod device;
mod frames;
mod hosts;
mod nics;
mod packets;
mod wire;

use super::super::nic::Ends;
use super::super::{Kind, Lab};
use super::level::Takes;

/// A setting that an experiment can fix or vary.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name in files and recordings.
    pub key: &'static str,
    /// Its flag on the command line.
    pub flag: Flag,
    /// The levels that it accepts.
    pub takes: Takes,
    /// The level of an arm that does not set it.
    pub default: Default,
    /// The labs that support it.
    pub labs: &'static [Lab],
    /// The workloads that support it.
    pub workloads: &'static [Kind],
    /// How it is written in the name of an arm.
    pub said: ArmNaming,
    /// How it is recorded.
    pub recorded: Recorded,
    /// Its order among knobs that vary together; the smallest changes slowest.
    pub turn: u8,
    /// Its description, in a line; the part before the first semicolon is its short help.
    pub help: &'static str,
}

/// The flag of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// None.
    None,
    /// A flag without value, for on.
    Switch(&'static str),
    /// A comma-separated list of levels.
    List(&'static str),
    /// May be given several times, with a level each.
    Again(&'static str),
    /// May be given several times, with `KEY=LEVEL` each.
    Pairs(&'static str),
}

impl Flag {
    /// Its long name.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Flag::None => None,
            Flag::Switch(name) | Flag::List(name) | Flag::Again(name) | Flag::Pairs(name) => {
                Some(name)
            }
        }
    }
}

/// The default of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// One of the levels that it accepts.
    Level(&'static str),
    /// No level; a description of the default.
    Described(&'static str),
}

/// How a knob is written in the name of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmNaming {
    /// `LEVEL`.
    Word,
    /// `NAME=LEVEL`.
    As(&'static str),
    /// `KEY=LEVEL`, for a table.
    Below,
    /// `KNOB.KEY=LEVEL`, for a table whose keys alone are unclear.
    Dotted,
    /// `NAME=LEVEL`, with `own` for an empty level; of paths, the last components.
    OrOwn(&'static str),
    /// The title of the rules.
    Rules,
}

/// How a knob is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// As a field of the arm.
    Field,
    /// Always.
    Always,
    /// If it is set.
    IfSet,
    /// If another knob is set.
    With(&'static str),
    /// If both are set.
    IfSetWith(&'static str),
}

const VM: &[Lab] = &[Lab::Vm];
/// Where a command runs whose settings can be made.
const OF_COMMANDS: &[Lab] = &[Lab::Vm, Lab::Host];
const HOST: &[Lab] = &[Lab::Host];
const NETNS: &[Lab] = &[Lab::Netns];
const OWN: &[Lab] = &[Lab::Vm, Lab::Netns];
const ALL: &[Lab] = &[Lab::Vm, Lab::Netns, Lab::Host];

const SINGLE: &[Kind] = &[Kind::Packets];
const PACKETS: &[Kind] = &[Kind::Packets, Kind::Stream];
/// The kinds with two hosts.
const HOSTS: &[Kind] = &[Kind::Stream, Kind::Request, Kind::Http];
const PACKETS_AND_HOSTS: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Request, Kind::Http];
const LINKS: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Request, Kind::Http, Kind::Command];
/// The same, and commands on this machine.
const LINKS_AND_WORK: &[Kind] =
    &[Kind::Packets, Kind::Stream, Kind::Request, Kind::Http, Kind::Command, Kind::Work];
const WORK: &[Kind] = &[Kind::Work];
const WEB: &[Kind] = &[Kind::Http];
const STREAM_AND_WEB: &[Kind] = &[Kind::Stream, Kind::Http];
/// The link between the ends; two hosts have a wire.
const BETWEEN: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Command];
const COMMAND: &[Kind] = &[Kind::Command, Kind::Work];
/// Of a command, or of a web server.
const DISKS: &[Kind] = &[Kind::Command, Kind::Work, Kind::Http];
const FRAMES: &[Kind] = &[Kind::Frames];
const LINKS_AND_FRAMES: &[Kind] =
    &[Kind::Packets, Kind::Stream, Kind::Request, Kind::Http, Kind::Command, Kind::Frames];

/// The base of all others: a switch for packets, without a flag.
const SWITCH: Knob = Knob {
    key: "",
    flag: Flag::None,
    takes: Takes::Switch,
    default: Default::Level("off"),
    labs: OWN,
    workloads: LINKS,
    said: ArmNaming::As(""),
    recorded: Recorded::IfSet,
    turn: 0,
    help: "",
};

/// The same for frames.
const OF_FRAMES: Knob = Knob { labs: ALL, workloads: FRAMES, ..SWITCH };

/// The same for two hosts.
const OF_HOSTS: Knob = Knob { labs: VM, workloads: HOSTS, ..SWITCH };

/// A time or share of a wire, in the spelling of the file.
const fn of_wire(what: &'static str, parse: fn(&str) -> Result<String, String>) -> Takes {
    Takes::Text { what, parse }
}

const STRING: Takes = Takes::Text { what: "string", parse: |text| Ok(text.to_string()) };

/// The protocols of packets; a command has a workload of its own.
const PROTOCOLS: &[&str] = &["raw", "udp", "tcp"];

/// A namespace of the topology, which may be the user's.
const NAMESPACE: Takes = Takes::Text {
    what: "namespace",
    parse: |text| match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err(format!("invalid namespace `{text}`; expected like tx, rx, both or router")),
        false => Ok(text.into()),
    },
};

/// A preset, or a file with a topology.
const TOPOLOGY: Takes = Takes::Text {
    what: "topology",
    parse: |text| match text.is_empty() {
        true => Err("empty topology; expected like vxlan, container:in or office.toml".into()),
        false => Ok(text.into()),
    },
};

/// The ends that have a setting, if that is set.
const fn ends(key: &'static str, flag: &'static str, turn: u8, help: &'static str) -> Knob {
    Knob {
        key,
        flag: Flag::List(flag),
        takes: Takes::Word { what: "host", words: Ends::WORDS },
        default: Default::Level("both"),
        said: ArmNaming::As(key),
        turn,
        help,
        ..SWITCH
    }
}

/// All of them, in the order of the names of arms.
pub const KNOBS: &[Knob] = &joined(&PARTS);

/// By topic.
const PARTS: [&[Knob]; 7] = [
    packets::KNOBS,
    commands::KNOBS,
    device::KNOBS,
    hosts::KNOBS,
    nics::KNOBS,
    wire::KNOBS,
    frames::KNOBS,
];

/// How many there are.
const COUNT: usize = {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
};

/// The knobs of all parts, one after the other.
const fn joined(parts: &[&[Knob]]) -> [Knob; COUNT] {
    let mut all = [SWITCH; COUNT];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let mut knob = 0;
        while knob < parts[part].len() {
            all[at] = parts[part][knob];
            at += 1;
            knob += 1;
        }
        part += 1;
    }
    all
}

impl Knob {
    /// The knob of this key.
    pub fn by_key(key: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.key == key)
    }

    /// Its row in the reference of experiment files.
    pub fn row(&self) -> String {
        let default = match (self.default, self.takes) {
            (Default::Described(words), _) => words.to_string(),
            (Default::Level(level), Takes::Word { .. } | Takes::Text { .. }) => {
                format!("`\"{level}\"`")
            }
            (Default::Level(level), _) => level.to_string(),
        };
        let list =
            |words: &mut dyn Iterator<Item = &'static str>| words.collect::<Vec<_>>().join(", ");
        format!(
            "| `{}` | {} | {default} | {} | {} | {} |",
            self.key,
            self.takes.called(),
            list(&mut self.labs.iter().map(|lab| lab.as_str())),
            list(&mut self.workloads.iter().map(|kind| kind.as_str())),
            self.help
        )
    }
}
