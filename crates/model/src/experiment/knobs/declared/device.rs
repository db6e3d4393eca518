//! Knobs of what an emulated device sends by itself, and of chance.

use super::super::level::Takes;
use super::{Default, Flag, Knob, PACKETS_AND_HOSTS, Recorded, SINGLE, SWITCH, Said, VM};
use crate::experiment::device::{MAX_PER_TRANSFER, RxFault, Sender};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "seed",
        takes: Takes::Number { least: 1, most: u32::MAX },
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
        takes: Takes::Word { what: "sender", words: Sender::WORDS },
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
        takes: Takes::Word { what: "fault", words: RxFault::WORDS },
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
        takes: Takes::Number { least: 1, most: MAX_PER_TRANSFER },
        default: Default::Level("1"),
        labs: VM,
        workloads: SINGLE,
        said: Said::As("per_transfer"),
        recorded: Recorded::IfSetWith("sender"),
        turn: 28,
        help: "frames in each USB transfer of `sender = \"device\"`, 1 to 16",
    },
];
