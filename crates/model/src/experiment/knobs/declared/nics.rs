//! Knobs of NICs, as ethtool and sysfs have them.

use super::super::super::nic::{Coalescing, Ring};
use super::super::level::Takes;
use super::{Default, Flag, HOSTS, Knob, Recorded, SWITCH, Said, VM, ends, of_wire};
use crate::hosts;

pub(super) const KNOBS: &[Knob] = &[
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
];
