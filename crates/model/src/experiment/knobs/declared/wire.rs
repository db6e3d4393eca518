//! Knobs of the wire between two hosts, or two NICs of a guest.

use super::{Default, Flag, Knob, PACKETS_AND_HOSTS, SWITCH, Said, VM, of_wire};
use crate::hosts;

/// The base of these.
const OF_WIRES: Knob = Knob { labs: VM, workloads: PACKETS_AND_HOSTS, ..SWITCH };

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "wire_rate",
        flag: Flag::List("wire-rate"),
        takes: of_wire("rate", |text| hosts::rate_of(text).map(|_| text.trim().into())),
        default: Default::Level("1G"),
        said: Said::As("wire_rate"),
        turn: 49,
        help: "bits per second of the wire between two hosts, like 1G or 100M, 100k to 100G; between NICs of one guest there is a wire if one of these is set",
        ..OF_WIRES
    },
    Knob {
        key: "wire_delay",
        flag: Flag::List("wire-delay"),
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("1us"),
        said: Said::As("wire_delay"),
        turn: 50,
        help: "the time that a bit takes from one end of the wire to the other, like 1us or 10ms, at most 1s",
        ..OF_WIRES
    },
    Knob {
        key: "wire_jitter",
        flag: Flag::List("wire-jitter"),
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: Said::As("wire_jitter"),
        turn: 51,
        help: "the longest time that is added to `wire_delay`, a random one for each frame by `seed`; frames stay in order",
        ..OF_WIRES
    },
    Knob {
        key: "wire_loss",
        flag: Flag::List("wire-loss"),
        takes: of_wire("percentage", |text| hosts::loss_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: Said::As("wire_loss"),
        turn: 52,
        help: "the share of frames that the wire loses, like 0.1%, by `seed`",
        ..OF_WIRES
    },
];
