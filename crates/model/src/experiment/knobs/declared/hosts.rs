//! Knobs of two hosts.

use super::super::level::Takes;
use super::{
    Default, Flag, Knob, NETNS, OF_HOSTS, OWN, Recorded, STREAM_AND_WEB, SWITCH, Said, VM, WEB,
    within,
};
use crate::class::Link;
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
        said: Said::Word,
        recorded: Recorded::IfSet,
        turn: 82,
        help: "program that sends: `plumb`, or for comparison `iperf3` at both ends of a stream, or `wrk` as the client of the web server",
    },
    Knob {
        key: "page_cache",
        flag: Flag::List("page-cache"),
        takes: Takes::Word { what: "page cache", words: PageCache::WORDS },
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
        takes: Takes::Word { what: "link", words: Link::CREATED_WORDS },
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
];
