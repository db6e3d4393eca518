//! Knobs of frames that an emulated device sends by itself, and of the random seed.

use super::super::level::Takes;
use super::{ArmNaming, Default, Flag, Knob, PACKETS_AND_HOSTS, Recorded, SINGLE, SWITCH, VM};
use crate::experiment::device::{MAX_PER_TRANSFER, RxFault, Sender};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "seed",
        takes: Takes::Number { least: 1, most: u32::MAX },
        default: Default::Level("1"),
        labs: VM,
        workloads: PACKETS_AND_HOSTS,
        said: ArmNaming::As("seed"),
        turn: 2,
        help: "seed of the guest's random numbers: hash keys, ports, layouts",
        ..SWITCH
    },
    Knob {
        key: "sender",
        flag: Flag::List("sender"),
        takes: Takes::Word { what: "sender", words: Sender::WORDS },
        default: Default::Level("socket"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::As("sender"),
        turn: 26,
        help: "sender of the packets: `socket` or `device`; `socket` is a socket at the other end of the link; `device` is the receiver's emulated device, which passes frames with UDP datagrams to its driver (links smsc95xx and cdc-ncm)",
        ..SWITCH
    },
    Knob {
        key: "rx_fault",
        flag: Flag::List("rx-fault"),
        takes: Takes::Word { what: "fault", words: RxFault::WORDS },
        default: Default::Level("none"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::As("rx_fault"),
        recorded: Recorded::IfSetWith("sender"),
        turn: 27,
        help: "fault in the frames of `sender = \"device\"`: `none`, `bad-size` or `error-bit`; the driver drops the frames, since it rejects the transfer (`bad-size`) or since the status reports a wrong check sequence (`error-bit`); for the links smsc95xx and, bad-size only, cdc-ncm",
    },
    Knob {
        key: "per_transfer",
        flag: Flag::List("per-transfer"),
        takes: Takes::Number { least: 1, most: MAX_PER_TRANSFER },
        default: Default::Level("1"),
        labs: VM,
        workloads: SINGLE,
        said: ArmNaming::As("per_transfer"),
        recorded: Recorded::IfSetWith("sender"),
        turn: 28,
        help: "frames per USB transfer of `sender = \"device\"`, 1 to 16",
    },
];
