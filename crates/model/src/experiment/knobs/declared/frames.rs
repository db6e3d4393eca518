//! Knobs of frames along a data path.

use super::super::level::Takes;
use super::{Default, Flag, Knob, OF_FRAMES, OWN, Recorded};
use crate::bench::{
    Bench, DataPath, Fault, FrameKind, FrameSize, LOOKUPS_MOST, rate_of, rate_word,
};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "bench",
        takes: Takes::Word { what: "bench", words: Bench::WORDS },
        default: Default::Level("drop"),
        recorded: Recorded::Always,
        turn: 30,
        help: "handling of every frame by the data path: `drop` or `forward`",
        ..OF_FRAMES
    },
    Knob {
        key: "path",
        flag: Flag::List("path"),
        takes: Takes::Word { what: "data path", words: DataPath::WORDS },
        default: Default::Described("the first one that supports it"),
        recorded: Recorded::Always,
        turn: 31,
        help: "data path that handles the frames",
        ..OF_FRAMES
    },
    Knob {
        key: "frames",
        flag: Flag::List("frames"),
        takes: Takes::Word { what: "kind of frame", words: FrameKind::WORDS },
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
        default: Default::Described(
            "the shortest with all headers and a timestamp: 60 over IPv4, 62 over IPv6, more for tcp-syn",
        ),
        recorded: Recorded::Always,
        turn: 33,
        help: "length of a frame in bytes, 60 to 1,514, or `imix`; without the FCS",
        ..OF_FRAMES
    },
    Knob {
        key: "flows",
        flag: Flag::List("flows"),
        takes: Takes::Number { least: 1, most: 1_000_000 },
        default: Default::Level("1"),
        recorded: Recorded::Always,
        turn: 34,
        help: "number of flows, 1 to 1,000,000",
        ..OF_FRAMES
    },
    Knob {
        key: "cores",
        flag: Flag::List("cores"),
        takes: Takes::Number { least: 1, most: 1_024 },
        default: Default::Level("1"),
        recorded: Recorded::Always,
        turn: 35,
        help: "number of CPUs that generate frames, 1 to 1,024; without `apart`, they also handle the frames",
        ..OF_FRAMES
    },
    Knob {
        key: "rate",
        flag: Flag::List("rate"),
        takes: Takes::Text { what: "rate", parse: |text| rate_of(text).map(rate_word) },
        default: Default::Level("max"),
        recorded: Recorded::Always,
        turn: 36,
        help: "offered load in packets per second, like `250k` or `1.5M`, or `max`",
        ..OF_FRAMES
    },
    Knob {
        key: "batch",
        flag: Flag::List("batch"),
        takes: Takes::Number { least: 1, most: 256 },
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
        help: "handle packets on other CPUs than the generator's; CPU use is then the data path's alone",
        ..OF_FRAMES
    },
    Knob {
        key: "stamps",
        flag: Flag::Switch("latency"),
        recorded: Recorded::Always,
        turn: 39,
        help: "measure one-way latency; each frame carries a timestamp, the time when it was due",
        ..OF_FRAMES
    },
    Knob {
        key: "swaps",
        takes: Takes::Number { least: 0, most: 100_000 },
        default: Default::Level("0"),
        turn: 40,
        help: "replacements of the XDP program per block, 0 to 100,000",
        ..OF_FRAMES
    },
    Knob {
        key: "sources",
        flag: Flag::List("blocklist"),
        takes: Takes::Number { least: 0, most: 10_000_000 },
        default: Default::Level("0"),
        turn: 41,
        help: "number of source addresses on a block list; the list is updated during the run; for the path `xdp`",
        ..OF_FRAMES
    },
    Knob {
        key: "lookups",
        flag: Flag::List("lookups"),
        takes: Takes::Number { least: 0, most: LOOKUPS_MOST },
        default: Default::Level("0"),
        turn: 42,
        help: "additional BPF map lookups per packet; measures the cost of a lookup; for the paths `xdp` and `xdp-skb`",
        ..OF_FRAMES
    },
    Knob {
        key: "multi-buffer",
        flag: Flag::Switch("multi-buffer"),
        turn: 43,
        help: "load XDP programs with multi-buffer support (xdp.frags); needed by devices with a large MTU; for the paths `xdp`, `xdp-skb`, `xdp-tx`, `xdp-redirect` and `af-xdp`",
        ..OF_FRAMES
    },
    Knob {
        key: "fault",
        flag: Flag::List("plant"),
        takes: Takes::Word { what: "fault", words: Fault::WORDS },
        default: Default::Described("none"),
        labs: OWN,
        turn: 44,
        help: "fault to inject: `no-napi`, `full-ring`, `wrong-mac`, `ttl` or `mtu`; checks that no rate is reported",
        ..OF_FRAMES
    },
    Knob {
        key: "again",
        flag: Flag::None,
        turn: 45,
        help: "a second arm with the same settings (A/A test); differences are noise",
        ..OF_FRAMES
    },
];
