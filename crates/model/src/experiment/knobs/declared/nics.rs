//! Knobs of NICs, as ethtool and sysfs have them.

use super::super::super::nic::{Channel, Coalescing, Ring, cpu_list};
use super::super::super::objects::interface;
use super::super::level::Takes;
use super::{
    ALL, ArmNaming, Default, Flag, HOST, HOSTS, Knob, LINKS_AND_WORK, Recorded, SWITCH, VM, WORK,
    ends, of_wire,
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
        default: Default::Described("the driver's"),
        said: ArmNaming::Below,
        turn: 55,
        help: "interrupt coalescing of NICs, as by `ethtool -C`; numbers: `rx-usecs`, `rx-frames`, `tx-usecs`, `tx-frames`; switches, for drivers that adapt the rest by themselves: `adaptive-rx`, `adaptive-tx`",
        ..OF_NICS
    },
    Knob {
        recorded: Recorded::IfSetWith("coalesce"),
        ..ends(
            "coalesce_in",
            "coalesce-in",
            56,
            "ends that `coalesce` applies to: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "rings",
        flag: Flag::Pairs("rings"),
        takes: Takes::Numbers { what: "ring", words: Ring::WORDS, least: 1, switches: &[] },
        default: Default::Described("the driver's"),
        said: ArmNaming::Dotted,
        turn: 57,
        help: "ring sizes of NICs in packets, as by `ethtool -G`: `rx`, `tx`",
        ..OF_NICS
    },
    Knob {
        recorded: Recorded::IfSetWith("rings"),
        ..ends(
            "rings_in",
            "rings-in",
            58,
            "ends that `rings` applies to: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "feature",
        flag: Flag::Pairs("feature"),
        takes: Takes::Switches { what: "feature", words: &[] },
        default: Default::Described("the device's default"),
        said: ArmNaming::Below,
        turn: 59,
        help: "device features to turn on or off; names are as in `ethtool -k`, like `rx-vlan-filter` or `tx-tcp-segmentation`",
        ..OF_NICS
    },
    Knob {
        recorded: Recorded::IfSetWith("feature"),
        ..ends(
            "feature_in",
            "feature-in",
            60,
            "ends that `feature` applies to: `tx` (the sender), `rx` or `both`",
        )
    },
    Knob {
        key: "gro_flush_timeout",
        flag: Flag::List("gro-flush-timeout"),
        takes: of_wire("time", |text| hosts::time_of(text).map(|_| text.trim().into())),
        default: Default::Level("0"),
        said: ArmNaming::As("gro_flush_timeout"),
        turn: 61,
        help: "time after which a device is polled again, like 20us; packets held by GRO are passed on then; as in `/sys/class/net/DEV/gro_flush_timeout`, which is in ns",
        ..OF_NICS
    },
    Knob {
        key: "napi_defer_hard_irqs",
        flag: Flag::List("napi-defer-hard-irqs"),
        takes: Takes::Number { least: 0, most: i32::MAX as u32 },
        default: Default::Level("0"),
        said: ArmNaming::As("napi_defer_hard_irqs"),
        turn: 62,
        help: "empty polls before a device's interrupt is enabled again; the polls are `gro_flush_timeout` apart; as in `/sys/class/net/DEV/napi_defer_hard_irqs`",
        ..OF_NICS
    },
    Knob {
        key: "threaded",
        flag: Flag::List("threaded"),
        said: ArmNaming::As("threaded"),
        turn: 63,
        help: "poll devices in kernel threads (threaded NAPI); as in `/sys/class/net/DEV/threaded`",
        ..OF_NICS
    },
    ends(
        "napi_in",
        "napi-in",
        64,
        "ends that `gro_flush_timeout`, `napi_defer_hard_irqs` and `threaded` apply to: `tx` (the sender), `rx` or `both`",
    ),
    Knob {
        key: "channels",
        flag: Flag::Pairs("channels"),
        takes: Takes::Numbers { what: "channel", words: Channel::WORDS, least: 0, switches: &[] },
        default: Default::Described("the driver's"),
        said: ArmNaming::Dotted,
        turn: 83,
        help: "number of NIC queues in use, as by `ethtool -L`: `rx`, `tx`, `combined`; maximum: see `ethtool -l` (veth: `queues`)",
        ..OF_NICS
    },
    Knob {
        key: "rps_cpus",
        flag: Flag::Again("rps-cpus"),
        takes: CPUS,
        default: Default::Described("none"),
        said: ArmNaming::As("rps_cpus"),
        turn: 84,
        help: "CPUs that process received packets (RPS), like `0-3,6`, or `none`; as in `/sys/class/net/DEV/queues/rx-N/rps_cpus`, for all queues",
        ..OF_NICS
    },
    Knob {
        key: "xps_cpus",
        flag: Flag::Again("xps-cpus"),
        takes: CPUS,
        default: Default::Described("the driver's"),
        said: ArmNaming::As("xps_cpus"),
        turn: 85,
        help: "CPUs that send on each queue (XPS), like `0-3,6`, or `none`; as in `/sys/class/net/DEV/queues/tx-N/xps_cpus`, for all queues",
        ..OF_NICS
    },
    ends(
        "steering_in",
        "steering-in",
        86,
        "ends that `channels`, `rps_cpus` and `xps_cpus` apply to: `tx` (the sender), `rx` or `both`",
    ),
    Knob {
        key: "nic",
        flag: Flag::Again("nic"),
        takes: Takes::Text { what: "interface", parse: interface },
        default: Default::Described("none"),
        said: ArmNaming::As("nic"),
        recorded: Recorded::IfSet,
        turn: 87,
        help: "interface of this machine to set up while a command runs; in lab host; takes `coalesce`, `rings`, `channels`, `offload`, `feature`, `gro_flush_timeout`, `napi_defer_hard_irqs`, `threaded`, `rps_cpus`, `xps_cpus` and `irq_cpus`, which are restored after each run",
        ..OF_OWN
    },
    Knob {
        key: "irq_cpus",
        flag: Flag::Again("irq-cpus"),
        takes: CPUS,
        default: Default::Described("the kernel's"),
        said: ArmNaming::As("irq_cpus"),
        turn: 88,
        help: "CPUs that handle the interrupts of `nic`, like `0-3,6`; as in `/proc/irq/N/smp_affinity_list`, for all its interrupts",
        ..OF_OWN
    },
    Knob {
        key: "module_options",
        flag: Flag::Pairs("module-options"),
        takes: Takes::Settings,
        default: Default::Described("none"),
        labs: VM,
        said: ArmNaming::Below,
        turn: 65,
        help: "module options by module, as in modprobe.d(5), like `e1000 = \"TxIntDelay=0 TxAbsIntDelay=0\"`; of modules that the guest loads",
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
            "hosts that `module_options` applies to, of two hosts: `tx` (the sender), `rx` or `both`",
        )
    },
];
