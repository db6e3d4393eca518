//! Knobs of the wire between two hosts, or two NICs of a guest.

use super::{ArmNaming, Default, Flag, Knob, PACKETS_AND_HOSTS, SWITCH, VM, of_wire};
use crate::hosts;

/// The base of these.
const OF_WIRES: Knob = Knob { labs: VM, workloads: PACKETS_AND_HOSTS, ..SWITCH };

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "wire_rate",
        flag: Flag::List("wire-rate"),
        takes: of_wire("rate", |text| hosts::rate_of(text).map(|_| text.trim().into())),
        default: Default::Level("1G"),
        said: ArmNaming::As("wire_rate"),
        turn: 49,
        help: "bit rate of the wire between two hosts, like 1G or 100M; 100k to 100G; the NICs of one guest have a wire if one of the wire's knobs is set",
        ..OF_WIRES
    },
    Knob {
        key: "wire_delay",
        flag: Flag::List("wire-delay"),
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("1us"),
        said: ArmNaming::As("wire_delay"),
        turn: 50,
        help: "propagation delay of the wire, like 1us or 10ms; at most 1s",
        ..OF_WIRES
    },
    Knob {
        key: "wire_jitter",
        flag: Flag::List("wire-jitter"),
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: ArmNaming::As("wire_jitter"),
        turn: 51,
        help: "maximum random delay added to `wire_delay` for each frame; depends on `seed`; frames stay in order",
        ..OF_WIRES
    },
    Knob {
        key: "wire_loss",
        flag: Flag::List("wire-loss"),
        takes: of_wire("percentage", |text| hosts::loss_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: ArmNaming::As("wire_loss"),
        turn: 52,
        help: "share of frames lost on the wire, like 0.1%; depends on `seed`",
        ..OF_WIRES
    },
];
