//! Knobs of this machine's own settings: what arms of a command in lab host differ in.
//!
//! `experiment/machine.rs` of `plumb` makes each a `Setting` of `netplumb_knobs`; `live/machine.rs` of
//! `netplumb_engine` sets them around each run. `interrupts` and `steering` of `netplumb_sys` find the interrupts of
//! an interface, and set the CPUs of its queues.

use std::collections::BTreeMap;

use super::disk::{self, QueueSetting};
use super::nic;
use super::objects::{check_sysctl, is_of_machine};
use super::{Disk, Experiment, Kind, Lab, NamedArm, NicSettings, Offload};
use crate::hosts::Side;
use crate::recording::Arm;

/// An arm's settings on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachinePlan {
    /// The disk, with settings of its queue.
    pub disk: Option<OwnDisk>,
    /// The interface, with its settings.
    pub nic: Option<OwnNic>,
    /// Sysctls.
    pub sysctl: BTreeMap<String, String>,
}

/// A disk of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnDisk {
    /// The disk's name, or the path of a device or of a file on the disk.
    pub name: String,
    /// Settings of its queue, in the order in which they are made.
    pub queue: Vec<QueueSetting>,
}

/// An interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNic {
    /// The interface's name, as `ip link` shows it.
    pub name: String,
    /// Offloads.
    pub offload: BTreeMap<Offload, bool>,
    /// All other settings of NICs.
    pub settings: NicSettings,
    /// The CPUs of its interrupts.
    pub irq_cpus: Option<String>,
}

impl OwnNic {
    fn from_arm(arm: &Arm) -> Option<OwnNic> {
        let name = arm.knobs.get("nic")?.clone();
        let offload = arm.table("offload");
        Some(OwnNic {
            name,
            offload: offload
                .filter_map(|(name, on)| Some((name.parse().ok()?, on == "on")))
                .collect(),
            // This machine is a single end: settings for either side apply to it.
            settings: NicSettings::from_arm(arm, Side::Tx),
            irq_cpus: arm.knobs.get("irq_cpus").cloned(),
        })
    }

    fn is_idle(&self) -> bool {
        self.offload.is_empty() && self.settings.is_empty() && self.irq_cpus.is_none()
    }
}

impl MachinePlan {
    /// An arm's settings; empty, if it sets nothing.
    pub fn from_arm(arm: &Arm) -> MachinePlan {
        let disk = arm.knobs.get("disk").filter(|text| is_of_machine(text));
        MachinePlan {
            disk: disk.map(|name| OwnDisk { name: name.clone(), queue: disk::queue_of(arm) }),
            nic: OwnNic::from_arm(arm),
            sysctl: (arm.table("sysctl"))
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        }
    }
}

/// Whether a setting of an arm is of an interface, where the lab is this machine.
pub fn is_of_nic(key: &str) -> bool {
    let table = key.split_once('.').map_or(key, |(table, _)| table);
    table == "irq_cpus" || OF_NIC.contains(&table)
}

/// Settings that are of an interface in lab host.
const OF_NIC: [&str; 10] = [
    "coalesce",
    "rings",
    "channels",
    "offload",
    "feature",
    "gro_flush_timeout",
    "napi_defer_hard_irqs",
    "threaded",
    "rps_cpus",
    "xps_cpus",
];

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

    /// Check that disks are of where the command runs, that sysctls of this machine are such as may be set,
    /// and that there are whole runs to compare.
    pub(super) fn check_machine(&self, arms: &[Arm]) -> Result<(), (&'static str, String)> {
        let sysctls = arms.iter().flat_map(|arm| arm.table("sysctl"));
        for (name, _) in sysctls {
            check_sysctl(self.lab, name).map_err(|why| ("sysctl", why))?;
        }
        let features = arms.iter().flat_map(|arm| arm.table("feature"));
        for (name, on) in features {
            nic::check_feature(name, on).map_err(|why| ("feature", why))?;
        }
        for arm in arms {
            let Some(text) = arm.knobs.get("disk") else {
                continue;
            };
            match (self.lab, text.parse::<Disk>()) {
                (Lab::Host, Ok(_)) => {
                    let why = format!(
                        "disk `{text}` is one of a guest; expected in lab host a name, like sda, or the \
                         absolute path of a device or of a file on it"
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
        self.check_own_nics(arms)?;
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
        let disks: Vec<OwnDisk> =
            (arms.iter()).filter_map(|arm| MachinePlan::from_arm(arm).disk).collect();
        match disks.is_empty() || !disks.iter().all(|disk| disk.queue.is_empty()) {
            true => Ok(()),
            false => {
                let why = "disk has no effect by itself in lab host; add read_ahead_kb, scheduler or nr_requests";
                Err(("disk", why.into()))
            }
        }
    }

    /// Check that settings of NICs are of an interface, and that an interface has any.
    fn check_own_nics(&self, arms: &[Arm]) -> Result<(), (&'static str, String)> {
        let is_set = |arm: &Arm, key: &str| {
            let table = format!("{key}.");
            let mut keys = arm.knobs.keys();
            keys.any(|known| known == key || known.starts_with(&table))
        };
        let nics: Vec<Option<OwnNic>> = arms.iter().map(OwnNic::from_arm).collect();
        for (arm, nic) in arms.iter().zip(&nics) {
            let set = OF_NIC.into_iter().find(|key| is_set(arm, key));
            if let (Some(key), None) = (set, nic) {
                let why = format!(
                    "{key} needs nic in lab host: the interface of this machine that has it, like nic = \"eth0\" (--nic eth0)"
                );
                return Err((key, why));
            }
        }
        let mut there = nics.iter().flatten().peekable();
        match there.peek().is_none() || there.any(|nic| !nic.is_idle()) {
            true => Ok(()),
            false => {
                let why = format!(
                    "nic has no effect by itself; add irq_cpus or one of {}",
                    OF_NIC.join(", ")
                );
                Err(("nic", why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::objects::disk;

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
        for text in ["", ".", "..", "a/b", "../sda", "sda;id", "a\nb", "/dev/\nsda", &long] {
            assert!(disk(text).is_err(), "{text}");
        }
        assert!(!is_of_machine("null_blk"));
        assert!(!is_of_machine("null_blk:64M:ext4"));
    }

    /// Check that counts by task are of all CPUs or of a cgroup, and refused of anything else before it runs.
    #[test]
    fn counts_by_task() {
        let parse = |rest: &str| {
            Experiment::parse(&format!(
                "name = \"x\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n\
                 duration = \"5s\"\n{rest}[events]\nby = \"task\"\n"
            ))
        };
        assert!(parse("").is_ok());
        assert!(parse("[filter]\ncgroup = \"a\"\n").is_ok());
        for rest in ["command = [\"true\"]\n", "[filter]\npid = 1\n"] {
            let error = parse(rest).unwrap_err().to_string();
            assert!(error.contains("with --cgroup"), "{rest}: {error}");
        }
    }

    /// Check that arms of lab host differ by the settings of a disk of this machine or by their command, and that
    /// settings without effect are refused.
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
        let disk = MachinePlan::from_arm(&arms[1]).disk.unwrap();
        assert_eq!(disk.name, "sda");
        let queue: Vec<_> = disk.queue.iter().map(|s| (&*s.name, &*s.before)).collect();
        assert_eq!(queue, [("scheduler", "none"), ("read_ahead_kb", "2048")]);
        let text = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&text).unwrap().arms(), arms);
        let commands = "[[arm]]\nname = \"a\"\nknobs.command = \"true\"\n\
                        [[arm]]\nname = \"b\"\nknobs.command = \"false\"\n";
        assert_eq!(parse(commands).unwrap().arms().len(), 2);
        assert!(parse("command = [\"true\"]\n").unwrap().arms().is_empty());
        for (rest, says) in [
            (set.to_string(), "no effect by itself"),
            (set.replace("sda", "null_blk:64M:ext4") + both, "one of a guest"),
            (set.replace("command", "duration = \"5s\"\n#") + both, "give one"),
            (format!("window = \"1s\"\n{set}{both}"), "each run"),
            (set.replace("disk = \"sda\"", "read_ahead_kb = 128"), "needs disk"),
            (set.replace("disk = \"sda\"", "mtu_bytes = 1400"), "not supported"),
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

    /// Check that arms of lab host differ by the settings of an interface, in the order in which they are
    /// made, and that one without the other is refused.
    #[test]
    fn interfaces_of_this_machine() {
        let parse = |rest: &str| {
            let text = format!(
                "name = \"x\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n\
                 command = [\"true\"]\n[knobs]\n{rest}"
            );
            Experiment::parse(&text)
        };
        let experiment = parse(
            "nic = \"eth0\"\nirq_cpus = \"1,0\"\noffload = { tso = false }\n\
             sysctl = { \"net.core.busy_poll\" = \"0\" }\n[vary]\ncoalesce.rx-usecs = [0, 50]\n",
        )
        .unwrap();
        let arms = experiment.arms();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["rx-usecs=0", "rx-usecs=50"]);
        let plan = MachinePlan::from_arm(&arms[1]);
        let nic = plan.nic.unwrap();
        assert_eq!((nic.name.as_str(), nic.irq_cpus.as_deref()), ("eth0", Some("0-1")));
        assert_eq!(nic.offload, [(Offload::Tso, false)].into());
        assert_eq!(nic.settings.coalesce.values().collect::<Vec<_>>(), [&50]);
        assert_eq!(plan.sysctl["net.core.busy_poll"], "0");
        for (rest, says) in [
            ("coalesce = { rx-usecs = 5 }\n", "needs nic in lab host"),
            ("nic = \"eth0\"\n", "no effect by itself"),
            ("nic = \"a/b\"\nrings = { rx = 64 }\n", "invalid interface"),
            ("nic = \"eth0\"\nirq_cpus = \"x\"\n", "list of CPUs"),
            ("nic = \"eth0\"\ncoalesce = { adaptive-rx = 1 }\n", "\"on\" or \"off\""),
            ("nic = \"eth0\"\nrings_in = \"tx\"\n", "not supported"),
        ] {
            let error = parse(rest).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        }
    }
}
