//! Knobs of this machine's own settings: what arms of a command in lab host differ in.

use super::disk::{self, QueueSetting};
use super::{Disk, Experiment, Kind, Lab, NamedArm};
use crate::recording::Arm;

/// The longest name of a disk (include/linux/blkdev.h: DISK_NAME_LEN), and of a path.
const NAME_BYTES: usize = 32;
const PATH_BYTES: usize = 4_095;

/// What an arm sets on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinePlan {
    /// The disk: its name, the path of a device, or that of a file on it.
    pub disk: String,
    /// Settings of its queue, in the order in which they are made.
    pub queue: Vec<QueueSetting>,
}

impl MachinePlan {
    /// That of an arm, if it has one.
    pub fn of(arm: &Arm) -> Option<MachinePlan> {
        let disk = arm.knobs.get("disk").filter(|text| is_of_machine(text))?;
        Some(MachinePlan {
            disk: disk.clone(),
            queue: disk::queue_of(arm),
        })
    }
}

/// Whether a disk is one of this machine, and none of a guest.
pub(super) fn is_of_machine(text: &str) -> bool {
    text.starts_with('/') || !(text.contains(':') || text.parse::<super::DiskDevice>().is_ok())
}

/// The normal form of a disk of this machine.
pub(super) fn normal(text: &str) -> Result<String, String> {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
    let is_path = text.starts_with('/');
    let fits = match is_path {
        true => text.len() <= PATH_BYTES && !text.chars().any(char::is_control),
        false => {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.!".contains(c);
            (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(fits)
        }
    };
    match fits && ![".", ".."].contains(&text) {
        true => Ok(text.into()),
        false => Err(format!(
            "invalid disk `{shown}`; expected in a guest DEVICE:SIZE:FILESYSTEM, like null_blk:64M:ext4, and \
             on this machine a name, like sda, the path of a device, or that of a file on it"
        )),
    }
}

impl Experiment {
    /// Whether a command runs that the experiment names.
    pub fn runs_command(&self) -> bool {
        let own = |arm: &NamedArm| arm.knobs.get("command").is_some();
        self.workload.kind == Kind::Command
            || !self.workload.command.is_empty()
            || self.knobs.get("command").is_some()
            || !self.vary.get("command").is_empty()
            || (!self.arms.is_empty() && self.arms.iter().all(own))
    }

    /// Whether anything is set on this machine, or commands are compared.
    pub fn has_knobs(&self) -> bool {
        !(self.knobs.is_empty() && self.vary.is_empty() && self.arms.is_empty())
    }

    /// Check that disks are of where the command runs, and that there are whole runs to compare.
    pub(super) fn check_machine(&self, arms: &[Arm]) -> Result<(), (&'static str, String)> {
        for arm in arms {
            let Some(text) = arm.knobs.get("disk") else {
                continue;
            };
            match (self.lab, text.parse::<Disk>()) {
                (Lab::Host, Ok(_)) => {
                    let why = format!(
                        "disk `{text}` is one of a guest; expected in lab host a name, like sda, the path of a \
                         device, or that of a file on it"
                    );
                    return Err(("disk", why));
                }
                (Lab::Vm, Err(_)) => {
                    let why = format!(
                        "disk `{text}` is one of this machine; expected in lab vm DEVICE:SIZE:FILESYSTEM, like \
                         null_blk:64M:ext4, or use lab = \"host\" (--lab host)"
                    );
                    return Err(("disk", why));
                }
                _ => {}
            }
        }
        if self.lab != Lab::Host || !self.has_knobs() || self.workload.kind == Kind::Frames {
            return Ok(());
        }
        let first = (self.knobs.set_ones())
            .chain(self.vary.set_ones())
            .chain(self.arms.iter().flat_map(|arm| arm.knobs.set_ones()))
            .map(|knob| knob.key)
            .next();
        let key = first.unwrap_or("arm");
        if self.workload.kind != Kind::Work {
            let why = format!(
                "{key} is set for runs of a command that `plumb stat`, `profile` or `between` measures: use a \
                 workload of kind work"
            );
            return Err((key, why));
        }
        if !self.runs_command() {
            let why = format!(
                "{key} is set for each run of a command: give one ([workload] command, or after `--`)"
            );
            return Err((key, why));
        }
        for (key, given) in [
            ("duration", self.workload.duration.is_some()),
            ("window", self.workload.window.is_some()),
        ] {
            if given {
                let why = format!(
                    "{key} can't be combined with knobs of this machine: each run of the command is a block"
                );
                return Err((key, why));
            }
        }
        let idle = |plan: &MachinePlan| plan.queue.is_empty();
        let plans: Vec<MachinePlan> = arms.iter().filter_map(MachinePlan::of).collect();
        match plans.is_empty() || !plans.iter().all(idle) {
            true => Ok(()),
            false => {
                let why = "disk has no effect by itself in lab host; add read_ahead_kb, scheduler or nr_requests";
                Err(("disk", why.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::disk::normal as disk;

    /// Check that a disk of this machine and one of a guest are recognised as such, and nothing else.
    #[test]
    fn disks() {
        for text in [
            "sda",
            "nvme0n1",
            "loop0",
            "cciss!c0d0",
            "/dev/disk/by-path/pci-0000:00:1f.2",
            "/srv/data",
        ] {
            assert!(is_of_machine(text), "{text}");
            assert_eq!(disk(text).as_deref(), Ok(text));
        }
        let long = "x".repeat(33);
        for text in [
            "",
            ".",
            "..",
            "a/b",
            "../sda",
            "sda;id",
            "a\nb",
            "/dev/\nsda",
            &long,
        ] {
            assert!(disk(text).is_err(), "{text}");
        }
        assert!(!is_of_machine("null_blk"));
        assert!(!is_of_machine("null_blk:64M:ext4"));
    }

    /// Check that arms of lab host differ by what is set on a disk of this machine or by their command,
    /// and that what would have no effect is refused.
    #[test]
    fn arms_of_this_machine() {
        let parse = |rest: &str| {
            let text = format!(
                "name = \"x\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n{rest}"
            );
            Experiment::parse(&text)
        };
        let set = "command = [\"true\"]\n[knobs]\ndisk = \"sda\"\n";
        let both = "[vary]\nread_ahead_kb = [\"128\", \"2048 then 128\"]\nscheduler = [\"none\"]\n";
        let experiment = parse(&format!("{set}{both}")).unwrap();
        let arms = experiment.arms();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["read_ahead_kb=128", "read_ahead_kb=2048 then 128"]);
        let plan = MachinePlan::of(&arms[1]).unwrap();
        assert_eq!(plan.disk, "sda");
        let queue: Vec<_> = plan.queue.iter().map(|s| (&*s.name, &*s.before)).collect();
        assert_eq!(queue, [("scheduler", "none"), ("read_ahead_kb", "2048")]);
        let text = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&text).unwrap().arms(), arms);
        let commands = "[[arm]]\nname = \"a\"\nknobs.command = \"true\"\n\
                        [[arm]]\nname = \"b\"\nknobs.command = \"false\"\n";
        assert_eq!(parse(commands).unwrap().arms().len(), 2);
        assert!(parse("command = [\"true\"]\n").unwrap().arms().is_empty());
        for (rest, says) in [
            (set.to_string(), "no effect by itself"),
            (
                set.replace("sda", "null_blk:64M:ext4") + both,
                "one of a guest",
            ),
            (
                set.replace("command", "duration = \"5s\"\n#") + both,
                "give one",
            ),
            (format!("window = \"1s\"\n{set}{both}"), "each run"),
            (
                set.replace("disk = \"sda\"", "read_ahead_kb = 128"),
                "needs disk",
            ),
            (
                set.replace("disk = \"sda\"", "mtu_bytes = 1400"),
                "not supported",
            ),
            (set.replace("sda", "a/b"), "invalid disk"),
        ] {
            let error = parse(&rest).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        }
        let packets = "name = \"x\"\nlab = \"host\"\n[workload]\nkind = \"command\"\n";
        let error = Experiment::parse(&format!("{packets}{set}{both}")).unwrap_err();
        assert!(error.to_string().contains("kind work"), "{error}");
        let guest = "name = \"x\"\n[workload]\nkind = \"command\"\n";
        let error = Experiment::parse(&format!("{guest}{set}{both}")).unwrap_err();
        assert!(error.to_string().contains("this machine"), "{error}");
    }
}
