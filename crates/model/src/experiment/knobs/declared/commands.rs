//! Knobs of commands, and of disks.

use super::super::level::Takes;
use super::{COMMAND, DISKS, Default, Flag, Knob, OF_COMMANDS, Recorded, SWITCH, Said};

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        key: "command",
        takes: Takes::Text {
            what: "string",
            parse: |text| match text.trim() {
                "" => Err("empty command; leave it out for that of [workload]".into()),
                line => Ok(line.into()),
            },
        },
        default: Default::Told("that of `[workload]`"),
        labs: OF_COMMANDS,
        workloads: COMMAND,
        said: Said::Word,
        turn: 29,
        help: "the command of the arm, split into words as by a shell; a program with a `/` is relative to the experiment's directory or the current one",
        ..SWITCH
    },
    Knob {
        key: "disk",
        flag: Flag::Again("disk"),
        takes: Takes::Text { what: "string", parse: super::super::disk::normal },
        default: Default::Told("none"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("disk"),
        turn: 5,
        help: "disk of the guest, `DEVICE:SIZE:FILESYSTEM`, like `null_blk:64M:ext4`, mounted at /disk: a device `null_blk` or `brd` in its memory, or `virtio-blk` of QEMU's, whose figures differ from run to run, with `ext4`, `xfs` or `raw`; of `null_blk`, `:DELAY` after it is how long a request takes, like `:50us`, and `:DEPTH` after that how many it takes at a time; in lab host a disk of this machine, whose queue the next three set: a name, like `sda`, the path of a device, or that of a file on it",
        ..SWITCH
    },
    Knob {
        key: "scheduler",
        flag: Flag::List("scheduler"),
        takes: Takes::Text { what: "scheduler", parse: super::super::disk::scheduler },
        default: Default::Told("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("scheduler"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 6,
        help: "I/O scheduler of the disk: `none`, `mq-deadline`, `bfq` or `kyber`; `A then B` changes it after `plumb read-file` has opened its file",
    },
    Knob {
        key: "nr_requests",
        flag: Flag::List("nr-requests"),
        takes: Takes::Text { what: "number", parse: super::super::disk::requests },
        default: Default::Told("the device's default"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("nr_requests"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 7,
        help: "requests that the disk's queue holds; `A then B` as for `scheduler`",
    },
    Knob {
        key: "read_ahead_kb",
        flag: Flag::List("read-ahead"),
        takes: Takes::Text { what: "KiB", parse: super::super::disk::read_ahead },
        default: Default::Told("the device's default, 128"),
        labs: OF_COMMANDS,
        workloads: DISKS,
        said: Said::As("read_ahead_kb"),
        recorded: Recorded::IfSetWith("disk"),
        turn: 8,
        help: "KiB that the disk's files are read ahead at most, as in `/sys/block/DEVICE/queue/read_ahead_kb`; `A then B` sets A before `plumb read-file` opens its file, and B after",
    },
];
