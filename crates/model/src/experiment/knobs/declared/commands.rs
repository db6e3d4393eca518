//! Knobs of commands, and of disks.

use super::super::super::{disk, objects};
use super::super::level::Takes;
use super::{ArmNaming, COMMAND, DISKS, Default, Flag, Knob, OF_COMMANDS, Recorded, SWITCH};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "command",
        takes: Takes::Text {
            what: "string",
            parse: |text| match text.trim() {
                "" => Err("empty command; leave it out for the command of [workload]".into()),
                line => Ok(line.into()),
            },
        },
        default: Default::Described("the command of `[workload]`"),
        labs: OF_COMMANDS,
        workloads: COMMAND,
        said: ArmNaming::Word,
        turn: 29,
        help: "command of the arm; it is split into words as by a shell, and a program with a `/` is relative to the experiment's directory or the current one",
        ..SWITCH
    },
    Knob {
        key: "disk",
        flag: Flag::Again("disk"),
        takes: Takes::Text { what: "string", parse: objects::disk },
        default: Default::Described("none"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: ArmNaming::As("disk"),
        turn: 5,
        help: "disk of the guest or of this machine, like `null_blk:64M:ext4`; in a guest `DEVICE:SIZE:FILESYSTEM`, mounted at /disk: the device `null_blk` or `brd` in the guest's memory, or QEMU's `virtio-blk`, whose results differ from run to run, with `ext4`, `xfs` or `raw`; `null_blk` takes `:DELAY`, the time of a request, like `:50us`, and then `:DEPTH`, the number of requests in flight; in lab host, the disk whose queue `scheduler`, `nr_requests` and `read_ahead_kb` set: a name, like `sda`, or the path of a device or of a file on the disk",
        ..SWITCH
    },
    Knob {
        key: "scheduler",
        flag: Flag::List("scheduler"),
        takes: Takes::Text { what: "scheduler", parse: disk::scheduler },
        default: Default::Described("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: ArmNaming::As("scheduler"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 6,
        help: "I/O scheduler of the disk: `none`, `mq-deadline`, `bfq` or `kyber`; `A then B` changes it after `plumb read-file` has opened its file",
    },
    Knob {
        key: "nr_requests",
        flag: Flag::List("nr-requests"),
        takes: Takes::Text { what: "number", parse: disk::requests },
        default: Default::Described("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: ArmNaming::As("nr_requests"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 7,
        help: "size of the disk's request queue; `A then B` as for `scheduler`",
    },
    Knob {
        key: "read_ahead_kb",
        flag: Flag::List("read-ahead"),
        takes: Takes::Text { what: "KiB", parse: disk::read_ahead },
        default: Default::Described("the device's default, 128"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: ArmNaming::As("read_ahead_kb"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 8,
        help: "maximum read-ahead of the disk's files in KiB; as in `/sys/block/DEVICE/queue/read_ahead_kb`; `A then B` sets A before `plumb read-file` opens its file, and B after",
    },
];
