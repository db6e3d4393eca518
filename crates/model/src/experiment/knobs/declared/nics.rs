//! Knobs of NICs, as ethtool and sysfs have them.

use super::super::super::machine::interface;
use super::super::super::nic::{Channel, Coalescing, Ring, cpu_list};
use super::super::level::Takes;
use super::{
    ALL, Default, Flag, HOST, HOSTS, Knob, LINKS_AND_WORK, Recorded, SWITCH, Said, VM, WORK, ends,
    of_wire,
};
use crate::hosts;

/// Of the ends of a lab, and of an interface of this machine while a command runs.
const OF_NICS: Knob = Knob { labs: ALL, workloads: LINKS_AND_WORK, ..SWITCH };

/// The same of an interface of this machine only.
const OF_OWN: Knob =
    Knob { labs: HOST, workloads: WORK, recorded: Recorded::IfSetWith("nic"), ..SWITCH };

const CPUS: Takes = Takes::Text { what: "CPUs", parse: cpu_list };

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "coalesce",
        flag: Flag::Pairs("coalesce"),
        takes: Takes::Numbers {
            what: "coalescing setting",
            words: Coalescing::WORDS,
            least: 0,
            switches: Coalescing::SWITCHES,
        },
        default: Default::Told("the driver's"),
        said: Said::Below,
        turn: 55,
        help: "when NICs raise interrupts, as by `ethtool -C`: `rx-usecs`, `rx-frames`, `tx-usecs`, `tx-frames`; `adaptive-rx` and `adaptive-tx` are switches, for drivers that adapt the rest by themselves",
        ..OF_NICS
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
        takes: Takes::Numbers { what: "ring", words: Ring::WORDS, least: 1, switches: &[] },
        default: Default::Told("the driver's"),
        said: Said::Dotted,
        turn: 57,
        help: "packets that the rings of NICs hold, as by `ethtool -G`: `rx`, `tx`",
        ..OF_NICS
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
        takes: Takes::Switches { what: "feature", words: &[] },
        default: Default::Told("the device's default"),
        said: Said::Below,
        turn: 59,
        help: "features of devices to turn on or off, by the names of `ethtool -k`, like `rx-vlan-filter` or `tx-tcp-segmentation`",
        ..OF_NICS
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
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: Said::As("gro_flush_timeout"),
        turn: 61,
        help: "time after which a device is polled again, and what GRO holds is handed on, like 20us: `/sys/class/net/DEV/gro_flush_timeout`, there in ns",
        ..OF_NICS
    },
    Knob {
        key: "napi_defer_hard_irqs",
        flag: Flag::List("napi-defer-hard-irqs"),
        takes: Takes::Number { least: 0, most: i32::MAX as u32 },
        default: Default::Level("0"),
        said: Said::As("napi_defer_hard_irqs"),
        turn: 62,
        help: "polls without a packet, `gro_flush_timeout` apart, before a device's interrupt is turned on again: `/sys/class/net/DEV/napi_defer_hard_irqs`",
        ..OF_NICS
    },
    Knob {
        key: "threaded",
        flag: Flag::List("threaded"),
        said: Said::As("threaded"),
        turn: 63,
        help: "whether kernel threads poll devices (threaded NAPI): `/sys/class/net/DEV/threaded`",
        ..OF_NICS
    },
    ends(
        "napi_in",
        "napi-in",
        64,
        "ends whose devices have the three before: `tx` (the sender), `rx` or `both`",
    ),
    Knob {
        key: "channels",
        flag: Flag::Pairs("channels"),
        takes: Takes::Numbers { what: "channel", words: Channel::WORDS, least: 0, switches: &[] },
        default: Default::Told("the driver's"),
        said: Said::Dotted,
        turn: 83,
        help: "queues of NICs that are in use, as by `ethtool -L`: `rx`, `tx`, `combined`; at most as many as `ethtool -l` shows, of veth those of `queues`",
        ..OF_NICS
    },
    Knob {
        key: "rps_cpus",
        flag: Flag::Again("rps-cpus"),
        takes: CPUS,
        default: Default::Told("none"),
        said: Said::As("rps_cpus"),
        turn: 84,
        help: "CPUs that go on with received packets (receive packet steering), like `0-3,6`, or `none`: `/sys/class/net/DEV/queues/rx-N/rps_cpus` of all queues",
        ..OF_NICS
    },
    Knob {
        key: "xps_cpus",
        flag: Flag::Again("xps-cpus"),
        takes: CPUS,
        default: Default::Told("the driver's"),
        said: Said::As("xps_cpus"),
        turn: 85,
        help: "CPUs that send by each queue (transmit packet steering), like `0-3,6`, or `none`: `/sys/class/net/DEV/queues/tx-N/xps_cpus` of all queues",
        ..OF_NICS
    },
    ends(
        "steering_in",
        "steering-in",
        86,
        "ends whose devices have the three before: `tx` (the sender), `rx` or `both`",
    ),
    Knob {
        key: "nic",
        flag: Flag::Again("nic"),
        takes: Takes::Text { what: "interface", parse: interface },
        default: Default::Told("none"),
        said: Said::As("nic"),
        recorded: Recorded::IfSet,
        turn: 87,
        help: "in lab host, the interface of this machine that has the settings of NICs while a command runs: `coalesce`, `rings`, `channels`, `offload`, `feature`, `gro_flush_timeout`, `napi_defer_hard_irqs`, `threaded`, `rps_cpus`, `xps_cpus`, `irq_cpus`; they are restored after each run",
        ..OF_OWN
    },
    Knob {
        key: "irq_cpus",
        flag: Flag::Again("irq-cpus"),
        takes: CPUS,
        default: Default::Told("the kernel's"),
        said: Said::As("irq_cpus"),
        turn: 88,
        help: "CPUs that all interrupts of `nic` are handled on, like `0-3,6`: `/proc/irq/N/smp_affinity_list`",
        ..OF_OWN
    },
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
