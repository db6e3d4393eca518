//! Disks of guests, and the queues of their block devices: their knobs.
//!
//! `netplumb_lab::vm::disk` makes the disk in the guest; the steps there before a command are in `setup.rs` here and
//! `guest/disk.rs` of `netplumb_agent`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::knobs::Bytes;
use crate::class::words;
use crate::recording::Arm;
use crate::text::nanoseconds;

words! {
    /// The block device of a guest's disk.
    DiskDevice, "disk device",
    /// In the guest's memory, with a queue and an I/O scheduler, whose requests complete at once or after a delay.
    NullBlk = "null_blk",
    /// In the guest's memory, without a queue: requests complete before the call returns.
    Brd = "brd",
    /// A device of QEMU's in this machine's memory. Its requests complete when this machine has done
    /// them, so that no two runs are the same.
    VirtioBlk = "virtio-blk",
}

impl DiskDevice {
    /// Whether what a guest does with it is the same in each run.
    pub fn repeats(self) -> bool {
        self != DiskDevice::VirtioBlk
    }

    /// Whether it is in the guest's own memory.
    pub fn is_in_guest(self) -> bool {
        self != DiskDevice::VirtioBlk
    }

    /// The module's name, with `_` for every `-`.
    pub fn module(self) -> &'static str {
        match self {
            DiskDevice::NullBlk => "null_blk",
            DiskDevice::Brd => "brd",
            DiskDevice::VirtioBlk => "virtio_blk",
        }
    }

    fn most_bytes(self) -> u64 {
        match self.is_in_guest() {
            true => MOST_BYTES,
            false => MOST_OUTSIDE_BYTES,
        }
    }
}

words! {
    /// The file system on a disk.
    FileSystem, "file system",
    /// ext4.
    Ext4 = "ext4",
    /// XFS.
    Xfs = "xfs",
    /// Nothing: it is read and written as a device.
    Raw = "raw",
}

words! {
    /// An I/O scheduler.
    IoScheduler, "scheduler",
    /// Requests go to the device in the order that they come.
    None = "none",
    /// By deadline.
    MqDeadline = "mq-deadline",
    /// Budget fair queueing.
    Bfq = "bfq",
    /// Two latency targets.
    Kyber = "kyber",
}

/// Where the disk's file system is mounted in a guest.
pub const DISK_FOLDER: &str = "/disk";
/// The link to its device in a guest.
pub const DISK_DEVICE: &str = "/dev/plumb";
/// The guest has 256 MiB for everything, and the disk is in its memory.
const MOST_BYTES: u64 = 96 << 20;
/// Part of this machine's memory, as much as is written to it.
const MOST_OUTSIDE_BYTES: u64 = 1 << 30;
/// Two seconds: a slow request is not a timeout of the block layer, which is 30 s.
const MOST_DELAY_NS: u64 = 2_000_000_000;
/// null_blk's default is 64.
const MOST_DEPTH: u32 = 1024;

impl FileSystem {
    /// The smallest disk that it fits on.
    fn least_bytes(self) -> u64 {
        match self {
            // Smaller ones have no journal (misc/mke2fs.c, figure_journal_size).
            FileSystem::Ext4 => 8 << 20,
            // XFS_MIN_DATA_BLOCKS and a log beside it (mkfs/xfs_mkfs.c).
            FileSystem::Xfs => 24 << 20,
            FileSystem::Raw => 1 << 20,
        }
    }

    /// The program that makes it, and the package that has the program; none for a bare device.
    pub fn maker(self) -> Option<(&'static str, &'static str)> {
        match self {
            FileSystem::Ext4 => Some(("mkfs.ext4", "e2fsprogs")),
            FileSystem::Xfs => Some(("mkfs.xfs", "xfsprogs")),
            FileSystem::Raw => None,
        }
    }

    /// Whether nothing is mounted.
    pub fn is_raw(self) -> bool {
        self == FileSystem::Raw
    }
}

impl IoScheduler {
    /// The module's name, with `_` for every `-`; none if it has no module.
    fn module(self) -> Option<&'static str> {
        match self {
            IoScheduler::None => None,
            IoScheduler::MqDeadline => Some("mq_deadline"),
            IoScheduler::Bfq => Some("bfq"),
            IoScheduler::Kyber => Some("kyber_iosched"),
        }
    }
}

/// A disk: `null_blk:64M:ext4`, with a delay of each request `null_blk:64M:ext4:50us`, and if it takes one request at
/// a time `null_blk:64M:ext4:50us:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kind of block device, such as `null_blk`.
    pub device: DiskDevice,
    /// Its size; a multiple of a MiB.
    pub size_bytes: u64,
    /// The file system on it.
    pub file_system: FileSystem,
    /// How long after its arrival at the device a request completes; 0 for at once.
    pub delay_ns: u64,
    /// How many requests it takes at a time, while others wait in its queue; 0 for the driver's default.
    pub depth: u32,
}

impl FromStr for Disk {
    type Err = String;

    fn from_str(text: &str) -> Result<Disk, String> {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
        let wrong = || {
            format!(
                "invalid disk `{shown}`; expected DEVICE:SIZE:FILESYSTEM, \
                 DEVICE:SIZE:FILESYSTEM:DELAY or DEVICE:SIZE:FILESYSTEM:DELAY:DEPTH, like \
                 null_blk:64M:ext4, null_blk:64M:ext4:50us or null_blk:64M:ext4:50us:1"
            )
        };
        let parts: Vec<&str> = text.trim().split(':').map(str::trim).collect();
        let ([device, size, file_system]
        | [device, size, file_system, _]
        | [device, size, file_system, _, _]) = parts[..]
        else {
            return Err(wrong());
        };
        let device: DiskDevice = device.parse().map_err(|e| format!("disk `{shown}`: {e}"))?;
        let file_system: FileSystem =
            file_system.parse().map_err(|e| format!("disk `{shown}`: {e}"))?;
        let size = size.parse::<Bytes>().map_err(|e| format!("disk `{shown}`: {e}"))?;
        let size_bytes = u64::from(size.0);
        let delay_ns = match parts.get(3) {
            None => 0,
            Some(delay) => delay_of(delay).ok_or_else(|| {
                format!(
                    "disk `{shown}`: invalid delay; expected a time up to 2s, like 50us or 3300us"
                )
            })?,
        };
        let depth = match parts.get(4) {
            None => 0,
            Some(depth) => {
                (depth.parse().ok()).filter(|depth| (1..=MOST_DEPTH).contains(depth)).ok_or_else(
                    || format!("disk `{shown}`: invalid depth; expected 1 to {MOST_DEPTH}"),
                )?
            }
        };
        let least = file_system.least_bytes();
        let most = device.most_bytes();
        if !(least..=most).contains(&size_bytes) || size_bytes % (1 << 20) != 0 {
            return Err(format!(
                "disk `{shown}`: invalid size; expected {}M to {}M with {file_system}, in whole MiB{}",
                least >> 20,
                most >> 20,
                match device.is_in_guest() {
                    true => ": it is in the guest's memory, which has 256 MiB",
                    false => "",
                }
            ));
        }
        for (given, what) in [(delay_ns > 0, "delay"), (depth > 0, "depth")] {
            if given && device != DiskDevice::NullBlk {
                return Err(format!("disk `{shown}`: {device} has no {what}: use null_blk"));
            }
        }
        Ok(Disk { device, size_bytes, file_system, delay_ns, depth })
    }
}

/// A delay of a disk, like "50us" or "3.3ms".
fn delay_of(text: &str) -> Option<u64> {
    let ns = nanoseconds(text)?;
    (ns <= MOST_DELAY_NS as f64).then(|| ns.round() as u64)
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disk { device, size_bytes, file_system, delay_ns, depth } = self;
        write!(f, "{device}:{}M:{file_system}", size_bytes >> 20)?;
        match delay_ns {
            0 if *depth == 0 => {}
            ns if ns % 1_000 == 0 => write!(f, ":{}us", ns / 1_000)?,
            ns => write!(f, ":{ns}ns")?,
        }
        match depth {
            0 => Ok(()),
            depth => write!(f, ":{depth}"),
        }
    }
}

/// The separator of the values before and after a file is opened.
const THEN: &str = " then ";

/// A setting's value before a program opens its file, and its value afterwards: `2048`, or `2048 then 128`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSetting {
    /// The name of the attribute in the `queue` directory of the device.
    pub name: String,
    /// Its value when the file is opened.
    pub before: String,
    /// Its value while the file is held open.
    pub after: Option<String>,
}

/// The normal form of a setting whose values `one` has checked.
fn timed(text: &str, one: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let spaced = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let values = spaced.split(THEN).map(&one);
    let values = values.collect::<Result<Vec<String>, String>>()?;
    match values.len() {
        1 | 2 => Ok(values.join(THEN)),
        _ => Err(
            "too many values; expected one, or that before and that after a file is opened, like \
             `2048 then 128`"
                .into(),
        ),
    }
}

fn whole(text: &str, least: u32, most: u32) -> Result<String, String> {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    match text.parse::<u32>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n.to_string()),
        _ => Err(format!(
            "invalid value `{shown}`; expected {least} to {most}, or two like `2048 then 128`: before a \
             file is opened, and after"
        )),
    }
}

/// KiB of a page, the unit of read-ahead; where pages are larger, the kernel's own number is read back.
const PAGE_KB: u32 = 4;

/// The normal form of a level of knob `read_ahead_kb`.
pub(super) fn read_ahead(text: &str) -> Result<String, String> {
    timed(text, |one| {
        let level = whole(one, 0, 1 << 20)?;
        let kb: u32 = level.parse().unwrap_or(0);
        match kb % PAGE_KB {
            0 => Ok(level),
            rest => Err(format!(
                "invalid value `{level}`; files are read ahead by pages of {PAGE_KB} KiB: use {}",
                kb - rest
            )),
        }
    })
}

/// The normal form of a level of knob `nr_requests`.
pub(super) fn requests(text: &str) -> Result<String, String> {
    timed(text, |one| whole(one, 1, 1 << 20))
}

/// The normal form of a level of knob `scheduler`.
pub(super) fn scheduler(text: &str) -> Result<String, String> {
    timed(text, |one| {
        let found = one.parse::<IoScheduler>();
        found.map(|s| s.as_str().to_string()).map_err(|e| e.to_string())
    })
}

/// The value of an attribute of a queue: of a list, the one in brackets.
pub fn selected(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(inside, _)| inside)
}

/// The settings of a queue, by knob, in the order in which they have to be set: another scheduler has
/// other limits.
const QUEUE: [&str; 3] = ["scheduler", "nr_requests", "read_ahead_kb"];

/// The settings of an arm's disk, in the order in which they are made.
pub(super) fn queue_of(arm: &Arm) -> Vec<QueueSetting> {
    let queue = QUEUE.iter().filter_map(|name| {
        let level = arm.knobs.get(*name)?;
        let (before, after) = match level.split_once(THEN) {
            Some((before, after)) => (before, Some(after.to_string())),
            None => (level.as_str(), None),
        };
        Some(QueueSetting { name: (*name).to_string(), before: before.to_string(), after })
    });
    queue.collect()
}

/// A disk with the settings of its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPlan {
    /// The disk to make in the guest.
    pub disk: Disk,
    /// Settings of its queue, in the order in which they are made.
    pub queue: Vec<QueueSetting>,
}

impl DiskPlan {
    /// The disk of an arm, if it sets one.
    pub fn from_arm(arm: &Arm) -> Option<DiskPlan> {
        let disk = arm.knobs.get("disk")?.parse().ok()?;
        let queue = queue_of(arm);
        Some(DiskPlan { disk, queue })
    }

    /// Modules of the kernel that it needs, where they are modules.
    pub fn modules(&self) -> Vec<&'static str> {
        let device = self.disk.device.module();
        let file_system = match self.disk.file_system {
            FileSystem::Raw => None,
            other => Some(other.as_str()),
        };
        let schedulers = self
            .queue
            .iter()
            .filter(|setting| setting.name == "scheduler")
            .flat_map(|setting| [Some(setting.before.as_str()), setting.after.as_deref()])
            .flatten()
            .filter_map(|word| word.parse::<IoScheduler>().ok()?.module());
        let first = std::iter::once(device).chain(file_system);
        first.chain(schedulers).collect()
    }

    /// Whether a setting changes while a file is open.
    pub fn changes(&self) -> bool {
        self.queue.iter().any(|setting| setting.after.is_some())
    }

    /// Check that the device has these settings.
    ///
    /// # Errors
    /// The knob, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let is_set = |name: &str| self.queue.iter().any(|setting| setting.name == name);
        let mut of_queues = QUEUE.into_iter().filter(|name| *name != "read_ahead_kb");
        match of_queues.find(|name| is_set(name)) {
            Some(name) if self.disk.device == DiskDevice::Brd => Err((
                name,
                format!("{name} is not supported by disk brd, which has no queue; use null_blk"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::objects::disk;
    use crate::experiment::{Experiment, check_arm};

    /// Check that disks are read in all their forms, and written so that they read back.
    #[test]
    fn disks() {
        for (text, normal) in [
            ("null_blk:64M:ext4", "null_blk:64M:ext4"),
            ("brd:65536K:xfs", "brd:64M:xfs"),
            ("virtio-blk:512M:ext4", "virtio-blk:512M:ext4"),
            ("null_blk:1M:raw", "null_blk:1M:raw"),
            ("null_blk:64M:ext4:3.3ms", "null_blk:64M:ext4:3300us"),
            (" null_blk : 8M : ext4 : 1500ns", "null_blk:8M:ext4:1500ns"),
            ("null_blk:8M:ext4:0us", "null_blk:8M:ext4"),
            ("null_blk:8M:ext4:550us:1", "null_blk:8M:ext4:550us:1"),
            ("null_blk:8M:ext4:0us:32", "null_blk:8M:ext4:0us:32"),
        ] {
            assert_eq!(disk(text).as_deref(), Ok(normal));
            assert_eq!(disk(normal).as_deref(), Ok(normal));
        }
        for (text, says) in [
            ("null_blk", "DEVICE:SIZE"),
            ("null_blk:64M:ext4:1us:2:3", "DEVICE:SIZE"),
            ("null_blk:64M:ext4:1us:0", "1 to 1024"),
            ("null_blk:64M:ext4:1us:many", "1 to 1024"),
            ("brd:64M:ext4:0us:1", "no depth: use null_blk"),
            ("floppy:64M:ext4", "null_blk, brd"),
            ("", "DEVICE:SIZE"),
            ("brd:64M:ext3", "ext4, xfs, raw"),
            ("brd:64X:ext4", "invalid size"),
            ("brd:4M:ext4", "8M to 96M"),
            ("brd:1G:ext4", "invalid size"),
            ("null_blk:512M:ext4", "256 MiB"),
            ("null_blk:64M:ext4:1", "50us"),
            ("null_blk:64M:ext4:3s", "up to 2s"),
            ("brd:64M:ext4:1us", "use null_blk"),
            ("virtio-blk:64M:ext4:1us", "use null_blk"),
            ("virtio-blk:2048M:ext4", "8M to 1024M"),
        ] {
            let error = disk(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    /// Check that the selected one of several schedulers is read.
    #[test]
    fn selected_values() {
        assert_eq!(selected("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(selected("[none]"), "none");
        assert_eq!(selected("128"), "128");
    }

    /// Check that settings are read with one value and with two, and that nothing else is accepted.
    #[test]
    fn settings_before_and_after() {
        assert_eq!(read_ahead("128").as_deref(), Ok("128"));
        assert_eq!(read_ahead("2048  then 128").as_deref(), Ok("2048 then 128"));
        assert_eq!(scheduler("none then mq-deadline").as_deref(), Ok("none then mq-deadline"));
        assert_eq!(requests("32").as_deref(), Ok("32"));
        for wrong in ["", "x", "128 then", "4 then 8 then 12", "-1", "129"] {
            assert!(read_ahead(wrong).is_err(), "{wrong}");
        }
        assert!(scheduler("noop").unwrap_err().contains("mq-deadline"));
        assert!(requests("0").is_err());
    }

    /// Check that an arm's settings are passed on in the order in which they can be made, with the
    /// modules that they need, and that a device without a queue has no scheduler.
    #[test]
    fn plans_of_arms() {
        let arms = |knobs: &str| {
            let text = format!(
                "name = \"x\"\n[workload]\nkind = \"command\"\ncommand = [\"true\"]\n[knobs]\n{knobs}"
            );
            Experiment::parse(&text).map(|e| e.arms())
        };
        let all = "disk = \"null_blk:64M:ext4\"\nread_ahead_kb = \"2048 then 128\"\n\
                   nr_requests = 16\nscheduler = \"bfq\"\n";
        let arm = arms(all).unwrap().remove(0);
        let plan = DiskPlan::from_arm(&arm).unwrap();
        let set: Vec<(&str, &str, Option<&str>)> = (plan.queue.iter())
            .map(|s| (s.name.as_str(), s.before.as_str(), s.after.as_deref()))
            .collect();
        assert_eq!(
            set,
            [
                ("scheduler", "bfq", None),
                ("nr_requests", "16", None),
                ("read_ahead_kb", "2048", Some("128"))
            ]
        );
        assert_eq!(plan.modules(), ["null_blk", "ext4", "bfq"]);
        assert!(check_arm(&arm).is_ok());
        let error = |knobs: &str| arms(knobs).unwrap_err().to_string();
        let brd = "disk = \"brd:64M:ext4\"\nscheduler = \"none\"\n";
        assert!(error(brd).contains("has no queue"));
        assert!(error("read_ahead_kb = 128\n").contains("needs disk"));
    }
}
