//! Knobs of two hosts.

use super::super::level::Takes;
use super::{
    ArmNaming, Default, Flag, Knob, NETNS, OF_HOSTS, OWN, Recorded, STREAM_AND_WEB, SWITCH, VM, WEB,
};
use crate::class::Link;
use crate::experiment::Ends;
use crate::hosts;
use crate::web::PageCache;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "client",
        flag: Flag::List("client"),
        takes: Takes::Word { what: "client", words: hosts::Client::WORDS },
        default: Default::Level("plumb"),
        labs: NETNS,
        workloads: STREAM_AND_WEB,
        said: ArmNaming::Word,
        recorded: Recorded::IfSet,
        turn: 82,
        help: "sending program: `plumb`, `iperf3` or `wrk`; for comparison, `iperf3` runs at both ends of a stream, and `wrk` is the client of the web server",
    },
    Knob {
        key: "page_cache",
        flag: Flag::List("page-cache"),
        takes: Takes::Word { what: "page cache", words: PageCache::WORDS },
        default: Default::Level("warm"),
        labs: VM,
        workloads: WEB,
        said: ArmNaming::As("page_cache"),
        recorded: Recorded::IfSet,
        turn: 80,
        help: "location of a web server's files: `warm`, `cold` or `direct`; `warm`: in the page cache; `cold`: on disk at first, as the caches are dropped before each block; `direct`: on disk, read past the page cache (O_DIRECT)",
    },
    Knob {
        key: "sendfile",
        flag: Flag::List("sendfile"),
        default: Default::Level("on"),
        labs: OWN,
        workloads: WEB,
        said: ArmNaming::As("sendfile"),
        recorded: Recorded::IfSet,
        turn: 81,
        help: "send a web server's files by sendfile(2); with `off`, by read and write",
        ..SWITCH
    },
    Knob {
        key: "offload_in",
        flag: Flag::List("offload-in"),
        takes: Takes::Word { what: "host", words: Ends::WORDS },
        default: Default::Level("both"),
        said: ArmNaming::As("offload_in"),
        recorded: Recorded::IfSetWith("offload"),
        turn: 46,
        help: "host that `offload` applies to, of two hosts: `tx` (the sender), `rx` or `both`",
        ..OF_HOSTS
    },
    Knob {
        key: "tx_buffer",
        flag: Flag::List("tx-buffer"),
        takes: Takes::Bytes,
        default: Default::Described("the kernel's own, which grows"),
        said: ArmNaming::As("tx_buffer"),
        turn: 47,
        help: "send buffer of the sender's socket (SO_SNDBUF), like 64K; for two hosts; the kernel doubles it",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "rx_buffer",
        flag: Flag::List("rx-buffer"),
        takes: Takes::Bytes,
        default: Default::Described("the kernel's own, which grows"),
        said: ArmNaming::As("rx_buffer"),
        turn: 48,
        help: "receive buffer of the receiver's socket (SO_RCVBUF), like 64K; for two hosts; the kernel doubles it",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "tx_shift",
        flag: Flag::List("tx-shift"),
        takes: Takes::Number { least: 0, most: 6 },
        default: Default::Level("0"),
        said: ArmNaming::As("tx_shift"),
        turn: 9,
        help: "speed of the sender's CPU: an instruction takes 2^N ns, 0 to 6; for two hosts",
        ..OF_HOSTS
    },
    Knob {
        key: "rx_shift",
        flag: Flag::List("rx-shift"),
        takes: Takes::Number { least: 0, most: 6 },
        default: Default::Level("0"),
        said: ArmNaming::As("rx_shift"),
        turn: 10,
        help: "speed of the receiver's CPU, as `tx_shift`; for two hosts",
        ..OF_HOSTS
    },
    Knob {
        key: "buffer",
        flag: Flag::List("buffer"),
        takes: Takes::Bytes,
        default: Default::Described("the kernel's own, which grows"),
        said: ArmNaming::As("buffer"),
        turn: 53,
        help: "buffers of both sockets; for two hosts; `tx_buffer` and `rx_buffer` take precedence",
        labs: OWN,
        ..OF_HOSTS
    },
    Knob {
        key: "rx_link",
        flag: Flag::List("rx-link"),
        takes: Takes::Word { what: "link", words: Link::CREATED_WORDS },
        default: Default::Described("the same as `link`"),
        said: ArmNaming::As("rx_link"),
        turn: 11,
        help: "receiver's NIC, if it differs from the sender's: `e1000`, `e1000e` or `virtio-net`; for two hosts",
        ..OF_HOSTS
    },
    Knob {
        key: "throttle",
        flag: Flag::List("throttle"),
        default: Default::Level("on"),
        said: ArmNaming::As("throttle"),
        turn: 54,
        help: "delay interrupts in the NIC, as set by `coalesce`; for two hosts with link `e1000`; QEMU delays them by at least 128 us; `off` is QEMU's `mitigation=off`",
        ..OF_HOSTS
    },
];
