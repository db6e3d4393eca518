//! Every knob, declared once. Parsing of files and command lines, merging, arms and their names,
//! recordings, help and reference all use these declarations.

use super::super::nic::{Coalescing, Ends, Ring};
use super::super::{Kind, Lab};
use super::Offload;
use super::level::Takes;
use crate::bench::{
    Bench, DataPath, Fault, FrameKind, FrameSize, LOOKUPS_MOST, rate_of, rate_word,
};
use crate::class::{Family, Link};
use crate::experiment::device::{MAX_PER_TRANSFER, RxFault, Sender};
use crate::experiment::within::Within;
use crate::hosts;
use crate::web::PageCache;

/// A knob.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name in files and recordings.
    pub key: &'static str,
    /// Its flag on the command line.
    pub flag: Flag,
    /// The levels that it accepts.
    pub takes: Takes,
    /// Its default.
    pub default: Default,
    /// The labs that support it.
    pub labs: &'static [Lab],
    /// The workloads that support it.
    pub workloads: &'static [Kind],
    /// How it is written in the name of an arm.
    pub said: Said,
    /// How it is recorded.
    pub recorded: Recorded,
    /// Its order among knobs that vary together; the smallest changes slowest.
    pub turn: u8,
    /// Its description, in a line.
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
    /// A level.
    Level(&'static str),
    /// No level; a description of the default.
    Told(&'static str),
}

/// How a knob is written in the name of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// `LEVEL`.
    Word,
    /// `NAME=LEVEL`.
    As(&'static str),
    /// `KEY=LEVEL`, for a table.
    Below,
    /// `KNOB.KEY=LEVEL`, for a table whose keys say little.
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
const NETNS: &[Lab] = &[Lab::Netns];
const OWN: &[Lab] = &[Lab::Vm, Lab::Netns];
const ALL: &[Lab] = &[Lab::Vm, Lab::Netns, Lab::Host];

const SINGLE: &[Kind] = &[Kind::Packets];
const PACKETS: &[Kind] = &[Kind::Packets, Kind::Stream];
/// Of these, those of two hosts.
const HOSTS: &[Kind] = &[Kind::Stream, Kind::Request, Kind::Http];
const PACKETS_AND_HOSTS: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Request, Kind::Http];
const LINKS: &[Kind] = &[
    Kind::Packets,
    Kind::Stream,
    Kind::Request,
    Kind::Http,
    Kind::Command,
];
const WEB: &[Kind] = &[Kind::Http];
const STREAM_AND_WEB: &[Kind] = &[Kind::Stream, Kind::Http];
/// What is between the ends; two hosts have a wire.
const BETWEEN: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Command];
const BETWEEN_AND_FRAMES: &[Kind] = &[Kind::Packets, Kind::Stream, Kind::Command, Kind::Frames];
const COMMAND: &[Kind] = &[Kind::Command, Kind::Work];
/// Of a command, or of a web server.
const DISKS: &[Kind] = &[Kind::Command, Kind::Work, Kind::Http];
const FRAMES: &[Kind] = &[Kind::Frames];
const LINKS_AND_FRAMES: &[Kind] = &[
    Kind::Packets,
    Kind::Stream,
    Kind::Request,
    Kind::Http,
    Kind::Command,
    Kind::Frames,
];

/// The base of all others: a switch for packets, without a flag.
const SWITCH: Knob = Knob {
    key: "",
    flag: Flag::None,
    takes: Takes::Switch,
    default: Default::Level("off"),
    labs: OWN,
    workloads: LINKS,
    said: Said::As(""),
    recorded: Recorded::IfSet,
    turn: 0,
    help: "",
};

/// The same for frames.
const OF_FRAMES: Knob = Knob {
    labs: ALL,
    workloads: FRAMES,
    ..SWITCH
};

/// The same for two hosts.
const OF_HOSTS: Knob = Knob {
    labs: VM,
    workloads: HOSTS,
    ..SWITCH
};

/// A time or share of a wire, in the spelling of the file.
const fn of_wire(what: &'static str, parse: fn(&str) -> Result<String, String>) -> Takes {
    Takes::Text { what, parse }
}

const STRING: Takes = Takes::Text {
    what: "string",
    parse: |text| Ok(text.to_string()),
};

/// The protocols of packets; a command has a workload of its own.
const PROTOCOLS: &[&str] = &["raw", "udp", "tcp"];

const fn within(what: &'static str) -> Takes {
    Takes::Word {
        what,
        words: Within::WORDS,
    }
}

/// The ends that have a setting, if that is set.
const fn ends(key: &'static str, flag: &'static str, turn: u8, help: &'static str) -> Knob {
    Knob {
        key,
        flag: Flag::List(flag),
        takes: Takes::Word {
            what: "host",
            words: Ends::WORDS,
        },
        default: Default::Level("both"),
        said: Said::As(key),
        turn,
        help,
        ..SWITCH
    }
}

/// All of them, in the order of the names of arms.
pub const KNOBS: &[Knob] = &[
    Knob {
        key: "proto",
        flag: Flag::List("proto"),
        takes: Takes::Word {
            what: "protocol",
            words: PROTOCOLS,
        },
        default: Default::Level("udp"),
        workloads: PACKETS_AND_HOSTS,
        said: Said::Word,
        recorded: Recorded::Field,
        turn: 14,
        help: "protocol to send: `raw` (ICMP echo, as ping sends), `udp` or `tcp`",
        ..SWITCH
    },
    Knob {
        key: "family",
        flag: Flag::List("family"),
        takes: Takes::Word {
            what: "address family",
            words: Family::WORDS,
        },
        default: Default::Level("ipv4"),
        labs: ALL,
        workloads: LINKS_AND_FRAMES,
        said: Said::Word,
        recorded: Recorded::Field,
        turn: 13,
        help: "IP version: `ipv4` or `ipv6`",
    },
    Knob {
        key: "link",
        flag: Flag::List("link"),
        takes: Takes::Word {
            what: "link",
            words: Link::CREATED_WORDS,
        },
        default: Default::Level("veth"),
        workloads: LINKS_AND_FRAMES,
        said: Said::Word,
        recorded: Recorded::Field,
        turn: 12,
        help: Link::HELP,
        ..SWITCH
    },
    Knob {
        key: "forward",
        flag: Flag::Switch("forward"),
        workloads: BETWEEN,
        said: Said::As("forward"),
        recorded: Recorded::Field,
        turn: 15,
        help: "a router between sender and receiver, with a link on each side; not with `lo`",
        ..SWITCH
    },
    Knob {
        key: "bridge",
        flag: Flag::Switch("bridge"),
        workloads: BETWEEN,
        said: Said::As("bridge"),
        turn: 16,
        help: "a bridge between sender and receiver; not with `lo` or `forward`",
        ..SWITCH
    },
    Knob {
        key: "queues",
        flag: Flag::List("queues"),
        takes: Takes::Number { least: 1, most: 64 },
        default: Default::Told("the device's default; for frames, as many as `cores`"),
        workloads: BETWEEN_AND_FRAMES,
        said: Said::As("queues"),
        turn: 17,
        help: "number of queues per veth device, 1 to 64",
        ..SWITCH
    },
    Knob {
        key: "size_bytes",
        flag: Flag::List("size"),
        takes: Takes::Bytes,
        default: Default::Level("10"),
        workloads: PACKETS_AND_HOSTS,
        said: Said::As("size"),
        recorded: Recorded::Field,
        turn: 18,
        help: "payload of a packet in bytes, without headers, like 1400 or 4K; at most 65,507. Between two hosts, the size of a request and of its answer, by default 64",
        ..SWITCH
    },
    Knob {
        key: "mtu_bytes",
        flag: Flag::List("mtu"),
        takes: Takes::Bytes,
        default: Default::Told("the device's default"),
        said: Said::As("mtu"),
        turn: 19,
        help: "MTU of all links, 68 to 65,535, with `ipv6` at least 1,280; some devices have a lower maximum",
        ..SWITCH
    },
    Knob {
        key: "kernel",
        flag: Flag::List("kernel"),
        takes: STRING,
        default: Default::Level("debian"),
        labs: VM,
        workloads: LINKS_AND_FRAMES,
        said: Said::As("kernel"),
        recorded: Recorded::Always,
        turn: 0,
        help: "kernel that the guest boots, as listed by `plumb kernel list`",
    },
    Knob {
        key: "mitigations",
        flag: Flag::List("mitigations"),
        labs: VM,
        said: Said::As("mitigations"),
        recorded: Recorded::Always,
        turn: 3,
        help: "mitigations of CPU vulnerabilities in the guest",
        ..SWITCH
    },
    Knob {
        key: "cmdline",
        flag: Flag::Again("cmdline"),
        takes: STRING,
        default: Default::Told("empty"),
        labs: VM,
        said: Said::As("cmdline"),
        turn: 4,
        help: "additional parameters on the guest kernel's command line",
        ..SWITCH
    },
    Knob {
        key: "sysctl",
        flag: Flag::Pairs("sysctl"),
        takes: Takes::Settings,
        default: Default::Told("empty"),
        said: Said::Below,
        turn: 20,
        help: "sysctls, as in sysctl(8), with values as strings; set in each network namespace, or in the initial one if a sysctl is not per namespace",
        ..SWITCH
    },
    Knob {
        key: "offload",
        flag: Flag::Pairs("offload"),
        takes: Takes::Switches {
            what: "offload",
            words: Offload::WORDS,
        },
        default: Default::Told("the device's default"),
        said: Said::Below,
        turn: 21,
        help: "offloads to turn on or off on every device of the path, as by `ethtool -K`: `rx-checksum`, `tx-checksum`, `sg`, `tso`, `gso`, `gro`",
        ..SWITCH
    },
    Knob {
        key: "nft",
        takes: Takes::Rules,
        default: Default::Told("none"),
        workloads: PACKETS,
        said: Said::Rules,
        turn: 23,
        help: "nftables rules, see below; without any, `nf_tables` is not loaded",
        ..SWITCH
    },
    Knob {
        key: "nft_in",
        takes: within("namespace"),
        default: Default::Level("tx"),
        workloads: PACKETS,
        said: Said::As("nft_in"),
        recorded: Recorded::With("nft"),
        turn: 22,
        help: "namespace that has the rules: `tx` (the sender), `rx`, `both` or `router`",
        ..SWITCH
    },
    Knob {
        key: "qdisc",
        flag: Flag::Again("qdisc"),
        takes: Takes::Text {
            what: "string",
            parse: |text| Ok(super::qdisc::normal(text)),
        },
        default: Default::Told("the device's default"),
        workloads: PACKETS,
        said: Said::OrOwn("qdisc"),
        turn: 25,
        help: "root qdisc, in the syntax of `tc qdisc replace dev DEV root`; empty for the device's default",
        ..SWITCH
    },
    Knob {
        key: "qdisc_in",
        flag: Flag::List("qdisc-in"),
        takes: within("namespace"),
        default: Default::Level("tx"),
        workloads: PACKETS,
        said: Said::As("qdisc_in"),
        recorded: Recorded::IfSetWith("qdisc"),
        turn: 24,
        help: "namespace that has the qdisc, on egress: `tx` (the sender), `rx`, `both` or `router` (towards the receiver)",
        ..SWITCH
    },
    Knob {
        key: "module",
        flag: Flag::Again("module"),
        takes: Takes::Files,
        default: Default::Told("the kernel's"),
        labs: VM,
        workloads: LINKS,
        said: Said::OrOwn("module"),
        turn: 1,
        help: "file of a module, relative to the experiment's directory or the current one, to load instead of the kernel's module of that name; or a module to be built, like `usbnet` or `usbnet+fix.patch`; or a list of these",
        ..SWITCH
    },
    Knob {
        key: "command",
        takes: Takes::Text {
            what: "string",
            parse: |text| match text.trim() {
                "" => Err("empty command; leave it out for that of [workload]".into()),
                line => Ok(line.into()),
            },
        },
        default: Default::Told("that of `[workload]`"),
        labs: OF_COMMANDS,
        workloads: COMMAND,
        said: Said::Word,
        turn: 29,
        help: "the command of the arm, split into words as by a shell; a program with a `/` is relative to the experiment's directory or the current one",
        ..SWITCH
    },
    Knob {
        key: "disk",
        flag: Flag::Again("disk"),
        takes: Takes::Text {
            what: "string",
            parse: super::disk::normal,
        },
        default: Default::Told("none"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("disk"),
        turn: 5,
        help: "disk of the guest, `DEVICE:SIZE:FILESYSTEM`, like `null_blk:64M:ext4`, mounted at /disk: a device `null_blk` or `brd` in its memory, or `virtio-blk` of QEMU's, whose figures differ from run to run, with `ext4`, `xfs` or `raw`; of `null_blk`, `:DELAY` after it is how long a request takes, like `:50us`; in lab host a disk of this machine, whose queue the next three set: a name, like `sda`, the path of a device, or that of a file on it",
        ..SWITCH
    },
    Knob {
        key: "scheduler",
        flag: Flag::List("scheduler"),
        takes: Takes::Text {
            what: "scheduler",
            parse: super::disk::scheduler,
        },
        default: Default::Told("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("scheduler"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 6,
        help: "I/O scheduler of the disk: `none`, `mq-deadline`, `bfq` or `kyber`; `A then B` changes it after `plumb read-file` has opened its file",
    },
    Knob {
        key: "nr_requests",
        flag: Flag::List("nr-requests"),
        takes: Takes::Text {
            what: "number",
            parse: super::disk::requests,
        },
        default: Default::Told("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("nr_requests"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 7,
        help: "requests that the disk's queue holds; `A then B` as for `scheduler`",
    },
    Knob {
        key: "read_ahead_kb",
        flag: Flag::List("read-ahead"),
        takes: Takes::Text {
            what: "KiB",
            parse: super::disk::read_ahead,
        },
        default: Default::Told("the device's default, 128"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("read_ahead_kb"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 8,
        help: "KiB that the disk's files are read ahead at most, as in `/sys/block/DEVICE/queue/read_ahead_kb`; `A then B` sets A before `plumb read-file` opens its file, and B after",
    },
    Knob {
        key: "client",
        flag: Flag::List("client"),
        takes: Takes::Word {
            what: "client",
            words: hosts::Client::WORDS,
        },
        default: Default::Level("plumb"),
        labs: NETNS,
        workloads: STREAM_AND_WEB,
        said: Said::Word,
        recorded: Recorded::IfSet,
        turn: 82,
        help: "program that sends: `plumb`, or for comparison `iperf3` at both ends of a stream, or `wrk` as the client of the web server",
    },
    Knob {
        key: "page_cache",
        flag: Flag::List("page-cache"),
        takes: Takes::Word {
            what: "page cache",
            words: PageCache::WORDS,
        },
        default: Default::Level("warm"),
        labs: VM,
        workloads: WEB,
        said: Said::As("page_cache"),
        recorded: Recorded::IfSet,
        turn: 80,
        help: "where a web server finds its files: `warm`, in the page cache; `cold`, on the disk at first, since the caches are dropped before each block; `direct`, on the disk, read past the page cache (O_DIRECT)",
    },
    Knob {
        key: "sendfile",
        flag: Flag::List("sendfile"),
        default: Default::Level("on"),
        labs: OWN,
        workloads: WEB,
        said: Said::As("sendfile"),
        recorded: Recorded::IfSet,
        turn: 81,
        help: "whether a web server sends files by sendfile(2), or reads and writes them",
        ..SWITCH
    },
    Knob {
        key: "seed",
        takes: Takes::Number {
            least: 1,
            most: u32::MAX,
        },
        default: Default::Level("1"),
        labs: VM,
        workloads: PACKETS_AND_HOSTS,
        said: Said::As("seed"),
        turn: 2,
        help: "seed of the guest's random numbers: hash keys, ports, layouts",
        ..SWITCH
    },
    Knob {
        key: "sender",
        flag: Flag::List("sender"),
        takes: Takes::Word {
            what: "sender",
            words: Sender::WORDS,
        },
        default: Default::Level("socket"),
        labs: VM,
        workloads: SINGLE,
        said: Said::As("sender"),
        turn: 26,
        help: "what sends: `socket`, at the other end of the link, or `device`, the emulated device of the receiver, which hands frames with UDP datagrams to its driver; for the links smsc95xx and cdc-ncm",
        ..SWITCH
    },
    Knob {
        key: "rx_fault",
        flag: Flag::List("rx-fault"),
        takes: Takes::Word {
            what: "fault",
            words: RxFault::WORDS,
        },
        default: Default::Level("none"),
        labs: VM,
        workloads: SINGLE,
        said: Said::As("rx_fault"),
        recorded: Recorded::IfSetWith("sender"),
        turn: 27,
        help: "what is wrong with the frames of `sender = \"device\"`, for which the driver drops them: `none`, `bad-size` (the driver refuses the transfer) or `error-bit` (the status says that the check sequence is wrong); for the links smsc95xx and, bad-size only, cdc-ncm",
    },
    Knob {
        key: "per_transfer",
        flag: Flag::List("per-transfer"),
        takes: Takes::Number {
            least: 1,
            most: MAX_PER_TRANSFER,
        },
        default: Default::Level("1"),
        labs: VM,
        workloads: SINGLE,
        said: Said::As("per_transfer"),
        recorded: Recorded::IfSetWith("sender"),
        turn: 28,
        help: "frames in each USB transfer of `sender = \"device\"`, 1 to 16",
    },
    Knob {
        key: "offload_in",
        flag: Flag::List("offload-in"),
        takes: within("host"),
        default: Default::Level("both"),
        said: Said::As("offload_in"),
        recorded: Recorded::IfSetWith("offload"),
        turn: 46,
        help: "of two hosts, the one whose offloads are set: `tx` (the sender), `rx` or `both`",
        ..OF_HOSTS
    },
    Knob {
        key: "tx_buffer",
        flag: Flag::List("tx-buffer"),
        takes: Takes::Bytes,
        default: Default::Told("the kernel's own, which grows"),
        said: Said::As("tx_buffer"),
        turn: 47,
        help: "of two hosts, the send buffer of the sender's socket (SO_SNDBUF), like 64K; the kernel doubles it",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "rx_buffer",
        flag: Flag::List("rx-buffer"),
        takes: Takes::Bytes,
        default: Default::Told("the kernel's own, which grows"),
        said: Said::As("rx_buffer"),
        turn: 48,
        help: "of two hosts, the receive buffer of the receiver's socket (SO_RCVBUF), like 64K; the kernel doubles it",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "tx_shift",
        flag: Flag::List("tx-shift"),
        takes: Takes::Number { least: 0, most: 6 },
        default: Default::Level("0"),
        said: Said::As("tx_shift"),
        turn: 9,
        help: "of two hosts, the speed of the sender's CPU: an instruction takes 2^N ns, 0 to 6",
        ..OF_HOSTS
    },
    Knob {
        key: "rx_shift",
        flag: Flag::List("rx-shift"),
        takes: Takes::Number { least: 0, most: 6 },
        default: Default::Level("0"),
        said: Said::As("rx_shift"),
        turn: 10,
        help: "of two hosts, the speed of the receiver's CPU, as `tx_shift`",
        ..OF_HOSTS
    },
    Knob {
        key: "buffer",
        flag: Flag::List("buffer"),
        takes: Takes::Bytes,
        default: Default::Told("the kernel's own, which grows"),
        said: Said::As("buffer"),
        turn: 53,
        help: "of two hosts, the buffers of both sockets, as `tx_buffer` and `rx_buffer`, which go before it",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "rx_link",
        flag: Flag::List("rx-link"),
        takes: Takes::Word {
            what: "link",
            words: Link::CREATED_WORDS,
        },
        default: Default::Told("that of `link`"),
        said: Said::As("rx_link"),
        turn: 11,
        help: "of two hosts, the receiver's NIC, if it is another than the sender's: `e1000`, `e1000e` or `virtio-net`",
        ..OF_HOSTS
    },
    Knob {
        key: "throttle",
        flag: Flag::List("throttle"),
        default: Default::Level("on"),
        said: Said::As("throttle"),
        turn: 54,
        help: "of two hosts with link `e1000`, whether the NICs delay interrupts, as `coalesce` sets it: QEMU lets at least 128 us pass; `off` is its `mitigation=off`",
        ..OF_HOSTS
    },
    Knob {
        key: "coalesce",
        flag: Flag::Pairs("coalesce"),
        takes: Takes::Numbers {
            what: "coalescing setting",
            words: Coalescing::WORDS,
            least: 0,
        },
        default: Default::Told("the driver's"),
        said: Said::Below,
        turn: 55,
        help: "when NICs raise interrupts, as by `ethtool -C`: `rx-usecs`, `rx-frames`, `tx-usecs`, `tx-frames`",
        ..SWITCH
    },
    Knob {
        recorded: Recorded::IfSetWith("coalesce"),
        ..ends(
            "coalesce_in",
            "coalesce-in",
            56,
            "ends whose NICs have `coalesce`: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "rings",
        flag: Flag::Pairs("rings"),
        takes: Takes::Numbers {
            what: "ring",
            words: Ring::WORDS,
            least: 1,
        },
        default: Default::Told("the driver's"),
        said: Said::Dotted,
        turn: 57,
        help: "packets that the rings of NICs hold, as by `ethtool -G`: `rx`, `tx`",
        ..SWITCH
    },
    Knob {
        recorded: Recorded::IfSetWith("rings"),
        ..ends(
            "rings_in",
            "rings-in",
            58,
            "ends whose NICs have `rings`: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "feature",
        flag: Flag::Pairs("feature"),
        takes: Takes::Switches {
            what: "feature",
            words: &[],
        },
        default: Default::Told("the device's default"),
        said: Said::Below,
        turn: 59,
        help: "features of devices to turn on or off, by the names of `ethtool -k`, like `rx-vlan-filter` or `tx-tcp-segmentation`",
        ..SWITCH
    },
    Knob {
        recorded: Recorded::IfSetWith("feature"),
        ..ends(
            "feature_in",
            "feature-in",
            60,
            "ends whose devices have `feature`: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "gro_flush_timeout",
        flag: Flag::List("gro-flush-timeout"),
        takes: of_wire("time", |text| {
            hosts::time_of(text).map(|_| text.trim().into())
        }),
        default: Default::Level("0"),
        said: Said::As("gro_flush_timeout"),
        turn: 61,
        help: "time after which a device is polled again, and what GRO holds is handed on, like 20us: `/sys/class/net/DEV/gro_flush_timeout`, there in ns",
        ..SWITCH
    },
    Knob {
        key: "napi_defer_hard_irqs",
        flag: Flag::List("napi-defer-hard-irqs"),
        takes: Takes::Number {
            least: 0,
            most: i32::MAX as u32,
        },
        default: Default::Level("0"),
        said: Said::As("napi_defer_hard_irqs"),
        turn: 62,
        help: "polls without a packet, `gro_flush_timeout` apart, before a device's interrupt is turned on again: `/sys/class/net/DEV/napi_defer_hard_irqs`",
        ..SWITCH
    },
    Knob {
        key: "threaded",
        flag: Flag::List("threaded"),
        said: Said::As("threaded"),
        turn: 63,
        help: "whether kernel threads poll devices (threaded NAPI): `/sys/class/net/DEV/threaded`",
        ..SWITCH
    },
    ends(
        "napi_in",
        "napi-in",
        64,
        "ends whose devices have the three before: `tx` (the sender), `rx` or `both`",
    ),
    Knob {
        key: "module_options",
        flag: Flag::Pairs("module-options"),
        takes: Takes::Settings,
        default: Default::Told("none"),
        labs: VM,
        said: Said::Below,
        turn: 65,
        help: "options of modules that the guest loads, by module, as in modprobe.d(5), like `e1000 = \"TxIntDelay=0 TxAbsIntDelay=0\"`",
        ..SWITCH
    },
    Knob {
        labs: VM,
        workloads: HOSTS,
        recorded: Recorded::IfSetWith("module_options"),
        ..ends(
            "module_options_in",
            "module-options-in",
            66,
            "of two hosts, those whose modules have `module_options`: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "wire_rate",
        flag: Flag::List("wire-rate"),
        takes: of_wire("rate", |text| {
            hosts::rate_of(text).map(|_| text.trim().into())
        }),
        default: Default::Level("1G"),
        said: Said::As("wire_rate"),
        turn: 49,
        help: "between two hosts, bits per second of the wire, like 1G or 100M, 100k to 100G",
        ..OF_HOSTS
    },
    Knob {
        key: "wire_delay",
        flag: Flag::List("wire-delay"),
        takes: of_wire("time", |text| {
            hosts::time_of(text).map(|_| text.trim().into())
        }),
        default: Default::Level("1us"),
        said: Said::As("wire_delay"),
        turn: 50,
        help: "between two hosts, the time that a bit takes from one end of the wire to the other, like 1us or 10ms, at most 1s",
        ..OF_HOSTS
    },
    Knob {
        key: "wire_jitter",
        flag: Flag::List("wire-jitter"),
        takes: of_wire("time", |text| {
            hosts::time_of(text).map(|_| text.trim().into())
        }),
        default: Default::Level("0"),
        said: Said::As("wire_jitter"),
        turn: 51,
        help: "between two hosts, the longest time that is added to `wire_delay`, a random one for each frame by `seed`; frames stay in order",
        ..OF_HOSTS
    },
    Knob {
        key: "wire_loss",
        flag: Flag::List("wire-loss"),
        takes: of_wire("percentage", |text| {
            hosts::loss_of(text).map(|_| text.trim().into())
        }),
        default: Default::Level("0"),
        said: Said::As("wire_loss"),
        turn: 52,
        help: "between two hosts, the share of frames that the wire loses, like 0.1%, by `seed`",
        ..OF_HOSTS
    },
    Knob {
        key: "bench",
        takes: Takes::Word {
            what: "bench",
            words: Bench::WORDS,
        },
        default: Default::Level("drop"),
        recorded: Recorded::Always,
        turn: 30,
        help: "what the data path does with every frame: `drop` or `forward`",
        ..OF_FRAMES
    },
    Knob {
        key: "path",
        flag: Flag::List("path"),
        takes: Takes::Word {
            what: "data path",
            words: DataPath::WORDS,
        },
        default: Default::Told("the first one that supports it"),
        recorded: Recorded::Always,
        turn: 31,
        help: "data path that handles the frames",
        ..OF_FRAMES
    },
    Knob {
        key: "frames",
        flag: Flag::List("frames"),
        takes: Takes::Word {
            what: "kind of frame",
            words: FrameKind::WORDS,
        },
        default: Default::Level("udp"),
        recorded: Recorded::Always,
        turn: 32,
        help: "payload of the frames: `udp`, `tcp-syn` or `icmp`",
        ..OF_FRAMES
    },
    Knob {
        key: "size",
        flag: Flag::List("size"),
        takes: Takes::Text {
            what: "frame size",
            parse: |text| text.parse::<FrameSize>().map(|size| size.to_string()),
        },
        default: Default::Told(
            "the shortest with all headers and a timestamp: 60 over IPv4, 62 over IPv6, more for tcp-syn",
        ),
        recorded: Recorded::Always,
        turn: 33,
        help: "length of a frame in bytes, without the FCS, 60 to 1,514, or `imix`",
        ..OF_FRAMES
    },
    Knob {
        key: "flows",
        flag: Flag::List("flows"),
        takes: Takes::Number {
            least: 1,
            most: 1_000_000,
        },
        default: Default::Level("1"),
        recorded: Recorded::Always,
        turn: 34,
        help: "number of flows, 1 to 1,000,000",
        ..OF_FRAMES
    },
    Knob {
        key: "cores",
        flag: Flag::List("cores"),
        takes: Takes::Number {
            least: 1,
            most: 1_024,
        },
        default: Default::Level("1"),
        recorded: Recorded::Always,
        turn: 35,
        help: "number of CPUs that generate frames and, without `apart`, also handle them; 1 to 1,024",
        ..OF_FRAMES
    },
    Knob {
        key: "rate",
        flag: Flag::List("rate"),
        takes: Takes::Text {
            what: "rate",
            parse: |text| rate_of(text).map(rate_word),
        },
        default: Default::Level("max"),
        recorded: Recorded::Always,
        turn: 36,
        help: "offered load in packets per second, like `250k` or `1.5M`, or `max`",
        ..OF_FRAMES
    },
    Knob {
        key: "batch",
        flag: Flag::List("batch"),
        takes: Takes::Number {
            least: 1,
            most: 256,
        },
        default: Default::Level("64"),
        recorded: Recorded::Always,
        turn: 37,
        help: "frames per batch of the generator, 1 to 256",
        ..OF_FRAMES
    },
    Knob {
        key: "apart",
        flag: Flag::Switch("apart"),
        recorded: Recorded::Always,
        turn: 38,
        help: "handle packets on other CPUs than the generator's, so that CPU use is that of the data path alone",
        ..OF_FRAMES
    },
    Knob {
        key: "stamps",
        flag: Flag::Switch("latency"),
        recorded: Recorded::Always,
        turn: 39,
        help: "measure one-way latency, from a timestamp in each frame: the time when it was due",
        ..OF_FRAMES
    },
    Knob {
        key: "swaps",
        takes: Takes::Number {
            least: 0,
            most: 100_000,
        },
        default: Default::Level("0"),
        turn: 40,
        help: "replacements of the XDP program per block; 0 to 100,000",
        ..OF_FRAMES
    },
    Knob {
        key: "sources",
        flag: Flag::List("blocklist"),
        takes: Takes::Number {
            least: 0,
            most: 10_000_000,
        },
        default: Default::Level("0"),
        turn: 41,
        help: "source addresses on a block list that is updated during the run; for the path `xdp`",
        ..OF_FRAMES
    },
    Knob {
        key: "lookups",
        flag: Flag::List("lookups"),
        takes: Takes::Number {
            least: 0,
            most: LOOKUPS_MOST,
        },
        default: Default::Level("0"),
        turn: 42,
        help: "additional BPF map lookups per packet, to measure what a lookup costs; for the paths `xdp` and `xdp-skb`",
        ..OF_FRAMES
    },
    Knob {
        key: "multi-buffer",
        flag: Flag::Switch("multi-buffer"),
        turn: 43,
        help: "load XDP programs with multi-buffer support (xdp.frags), as devices with a large MTU need; for the paths `xdp`, `xdp-skb`, `xdp-tx`, `xdp-redirect` and `af-xdp`",
        ..OF_FRAMES
    },
    Knob {
        key: "fault",
        flag: Flag::List("plant"),
        takes: Takes::Word {
            what: "fault",
            words: Fault::WORDS,
        },
        default: Default::Told("none"),
        labs: OWN,
        turn: 44,
        help: "fault to inject, to check that no rate is reported: `no-napi`, `full-ring`, `wrong-mac`, `ttl` or `mtu`",
        ..OF_FRAMES
    },
    Knob {
        key: "again",
        flag: Flag::None,
        turn: 45,
        help: "a second arm with the same settings (A/A test): differences are noise",
        ..OF_FRAMES
    },
];

impl Knob {
    /// The knob of this key.
    pub fn of(key: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.key == key)
    }

    /// Its row in the reference of experiment files.
    pub fn row(&self) -> String {
        let default = match (self.default, self.takes) {
            (Default::Told(words), _) => words.to_string(),
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
