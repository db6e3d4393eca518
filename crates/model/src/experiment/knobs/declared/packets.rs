//! Knobs of packets and what they run through.

use super::super::super::qdisc;
use super::super::Offload;
use super::super::level::Takes;
use super::{
    ALL, ArmNaming, BETWEEN, Default, Flag, Knob, LINKS, LINKS_AND_FRAMES, LINKS_AND_WORK,
    NAMESPACE, PACKETS, PACKETS_AND_HOSTS, PROTOCOLS, Recorded, SINGLE, STRING, SWITCH, TOPOLOGY,
    VM,
};
use crate::arch::Arch;
use crate::class::{Family, Link};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "proto",
        flag: Flag::List("proto"),
        takes: Takes::Word { what: "protocol", words: PROTOCOLS },
        default: Default::Level("udp"),
        workloads: PACKETS_AND_HOSTS,
        said: ArmNaming::Word,
        recorded: Recorded::Field,
        turn: 14,
        help: "protocol to send: `raw` (ICMP echo, as ping sends), `udp` or `tcp`",
        ..SWITCH
    },
    Knob {
        key: "family",
        flag: Flag::List("family"),
        takes: Takes::Word { what: "address family", words: Family::WORDS },
        default: Default::Level("ipv4"),
        labs: ALL,
        workloads: LINKS_AND_FRAMES,
        said: ArmNaming::Word,
        recorded: Recorded::Field,
        turn: 13,
        help: "IP version: `ipv4` or `ipv6`",
    },
    Knob {
        key: "link",
        flag: Flag::List("link"),
        takes: Takes::Word { what: "link", words: Link::CREATED_WORDS },
        default: Default::Level("veth"),
        workloads: LINKS_AND_FRAMES,
        said: ArmNaming::Word,
        recorded: Recorded::Field,
        turn: 12,
        help: Link::HELP,
        ..SWITCH
    },
    Knob {
        key: "forward",
        flag: Flag::Switch("forward"),
        workloads: BETWEEN,
        said: ArmNaming::As("forward"),
        recorded: Recorded::Field,
        turn: 15,
        help: "send through a router between sender and receiver; each side has a link of its own; not with `lo`",
        ..SWITCH
    },
    Knob {
        key: "bridge",
        flag: Flag::Switch("bridge"),
        workloads: BETWEEN,
        said: ArmNaming::As("bridge"),
        turn: 16,
        help: "send through a bridge between sender and receiver; not with `lo` or `forward`",
        ..SWITCH
    },
    Knob {
        key: "topology",
        flag: Flag::List("topology"),
        takes: TOPOLOGY,
        default: Default::Described(
            "`direct`; with `forward` or `bridge`, the preset of that name",
        ),
        workloads: BETWEEN,
        said: ArmNaming::As("topology"),
        turn: 101,
        help: "namespaces and devices between sender and receiver: a preset (see `plumb topology list`), a way of it, like `container:in`, or a file; `link` is what its links are made of",
        ..SWITCH
    },
    Knob {
        key: "queues",
        flag: Flag::List("queues"),
        takes: Takes::Number { least: 1, most: 64 },
        default: Default::Described("the device's default; for frames, `cores`"),
        workloads: LINKS_AND_FRAMES,
        said: ArmNaming::As("queues"),
        turn: 17,
        help: "number of queues per veth device, 1 to 64",
        ..SWITCH
    },
    Knob {
        key: "new_flows",
        flag: Flag::Switch("new-flows"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::As("new_flows"),
        turn: 102,
        help: "each packet is the first of a flow of its own: of another port or, for `raw`, another identifier; for `tcp`, a connection that is made, used once and closed",
        ..SWITCH
    },
    Knob {
        key: "replies",
        flag: Flag::Switch("replies"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::As("replies"),
        turn: 103,
        help: "the receiver answers each datagram, so that connection tracking sees both directions; for `udp`",
        ..SWITCH
    },
    Knob {
        key: "size_bytes",
        flag: Flag::List("size"),
        takes: Takes::Bytes,
        default: Default::Level("10"),
        workloads: PACKETS_AND_HOSTS,
        said: ArmNaming::As("size"),
        recorded: Recorded::Field,
        turn: 18,
        help: "payload of a packet in bytes, without headers, like 1400 or 4K; at most 65,507; between two hosts, the size of a request and of its answer, by default 64",
        ..SWITCH
    },
    Knob {
        key: "mtu_bytes",
        flag: Flag::List("mtu"),
        takes: Takes::Bytes,
        default: Default::Described("the device's default"),
        said: ArmNaming::As("mtu"),
        turn: 19,
        help: "MTU of all links, 68 to 65,535; with `ipv6`, at least 1,280; some devices have a lower maximum",
        ..SWITCH
    },
    Knob {
        key: "kernel",
        flag: Flag::List("kernel"),
        takes: STRING,
        default: Default::Level("debian"),
        labs: VM,
        workloads: LINKS_AND_FRAMES,
        said: ArmNaming::As("kernel"),
        recorded: Recorded::Always,
        turn: 0,
        help: "kernel of the guest (see `plumb kernel list`)",
    },
    Knob {
        key: "arch",
        flag: Flag::List("arch"),
        takes: Takes::Text { what: "architecture", parse: Arch::level },
        default: Default::Described("the kernel's"),
        labs: VM,
        said: ArmNaming::As("arch"),
        turn: 99,
        help: "architecture of the guest, `x86-64` or `arm64`; selects the build of `kernel` for it (`debian` is `debian:arm64` on arm64)",
        ..SWITCH
    },
    Knob {
        key: "mitigations",
        flag: Flag::List("mitigations"),
        labs: VM,
        said: ArmNaming::As("mitigations"),
        recorded: Recorded::Always,
        turn: 3,
        help: "mitigations of CPU vulnerabilities in the guest",
        ..SWITCH
    },
    Knob {
        key: "cmdline",
        flag: Flag::Again("cmdline"),
        takes: STRING,
        default: Default::Described("empty"),
        labs: VM,
        said: ArmNaming::As("cmdline"),
        turn: 4,
        help: "additional parameters on the guest kernel's command line",
        ..SWITCH
    },
    Knob {
        key: "sysctl",
        flag: Flag::Pairs("sysctl"),
        takes: Takes::Settings,
        default: Default::Described("empty"),
        said: ArmNaming::Below,
        turn: 20,
        help: "sysctls, as in sysctl(8); values are strings; set in each network namespace, and in guests also if not per namespace; in lab host, this machine's below `net.` and `vm.`",
        labs: ALL,
        workloads: LINKS_AND_WORK,
        ..SWITCH
    },
    Knob {
        key: "offload",
        flag: Flag::Pairs("offload"),
        takes: Takes::Switches { what: "offload", words: Offload::WORDS },
        default: Default::Described("the device's default"),
        said: ArmNaming::Below,
        turn: 21,
        help: "offloads to turn on or off, as by `ethtool -K`; names: `rx-checksum`, `tx-checksum`, `sg`, `tso`, `gso`, `gro`; for every device of the path",
        labs: ALL,
        workloads: LINKS_AND_WORK,
        ..SWITCH
    },
    Knob {
        key: "nft",
        takes: Takes::Rules,
        default: Default::Described("none"),
        workloads: PACKETS,
        said: ArmNaming::Rules,
        turn: 23,
        help: "nftables rules, see below; without any, `nf_tables` is not loaded",
        ..SWITCH
    },
    Knob {
        key: "nft_in",
        takes: NAMESPACE,
        default: Default::Level("tx"),
        workloads: PACKETS,
        said: ArmNaming::As("nft_in"),
        recorded: Recorded::With("nft"),
        turn: 22,
        help: "namespace with the rules: `tx` (the sender), `rx`, `both`, or one of the topology, like `router`",
        ..SWITCH
    },
    Knob {
        key: "qdisc",
        flag: Flag::Again("qdisc"),
        takes: Takes::Text { what: "string", parse: |text| Ok(qdisc::normal(text)) },
        default: Default::Described("the device's default"),
        workloads: PACKETS,
        said: ArmNaming::OrOwn("qdisc"),
        turn: 25,
        help: "root qdisc, as in `tc qdisc replace dev DEV root`; empty for the device's default",
        ..SWITCH
    },
    Knob {
        key: "qdisc_in",
        flag: Flag::List("qdisc-in"),
        takes: NAMESPACE,
        default: Default::Level("tx"),
        workloads: PACKETS,
        said: ArmNaming::As("qdisc_in"),
        recorded: Recorded::IfSetWith("qdisc"),
        turn: 24,
        help: "namespace with the qdisc, on egress: `tx` (the sender), `rx`, `both`, or one of the topology, like `router` (towards the receiver); or a device of the topology",
        ..SWITCH
    },
    Knob {
        key: "xdp",
        flag: Flag::Pairs("xdp"),
        takes: Takes::Objects,
        default: Default::Described("none"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::Dotted,
        turn: 104,
        help: "XDP programs by device of the topology, like `rx0 = \"drop.o\"`; `FILE:PROGRAM` selects one of the object by its section or name; by the driver if it can",
        ..SWITCH
    },
    Knob {
        key: "tc",
        flag: Flag::Pairs("tc"),
        takes: Takes::Objects,
        default: Default::Described("none"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::Dotted,
        turn: 105,
        help: "BPF programs of clsact by device of the topology, at ingress, or with `:egress` after the device at egress; otherwise as `xdp`",
        ..SWITCH
    },
    Knob {
        key: "module",
        flag: Flag::Again("module"),
        takes: Takes::Files,
        default: Default::Described("the kernel's"),
        labs: VM,
        workloads: LINKS,
        said: ArmNaming::OrOwn("module"),
        turn: 1,
        help: "module file to load instead of the kernel's module of that name; relative to the experiment's directory or the current one; or a module to build, like `usbnet` or `usbnet+fix.patch`; or a list of such files and modules",
        ..SWITCH
    },
    Knob {
        key: "load",
        flag: Flag::Again("load"),
        takes: Takes::Modules,
        default: Default::Described("none"),
        labs: VM,
        workloads: LINKS_AND_FRAMES,
        said: ArmNaming::As("load"),
        turn: 100,
        help: "kernel modules to load in the guest, by name, like `br_netfilter`; with their dependencies",
        ..SWITCH
    },
];
