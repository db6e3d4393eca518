//! Assigns arms to guests. A guest boots once for all arms with the same kernel, command line and
//! devices, which only a boot can change.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_lab::vm::files::Program;
use netplumb_lab::vm::kernels::{KernelEntry, KernelStoreError};
use netplumb_lab::vm::machine::MEMORY_MIB;
use netplumb_model::arch::Arch;
use netplumb_model::class::Link;
use netplumb_model::experiment::{
    ArmKernel, Experiment, FromDevice, NicSettings, ProgramFile, Qdisc, Ruleset, Scan, files,
    module_options,
};
use netplumb_model::hosts::{HostOf, Side};
use netplumb_model::message::RunPlan;
use netplumb_model::recording::{Arm, Derivation, MadeBy};
use netplumb_model::topology::{ArmTopology, TopologySpec};

use crate::run::{Options, Progress, fetching};

/// More would take longer than a day.
pub(crate) const MAX_ARMS: usize = 1000;

/// The plan of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The arms, in the order of the recording.
    pub arms: Vec<Arm>,
    /// Packets in a block.
    pub packets: u32,
    /// Warm-up packets.
    pub warmup_packets: u32,
    /// Blocks of each arm.
    pub blocks: u32,
    /// Settings to change one at a time, in additional arms.
    pub scan: Option<Scan>,
    /// The topologies that arms may name besides the presets.
    pub topologies: Vec<TopologySpec>,
}

/// A boot of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPlan {
    /// The kernel, by name.
    pub kernel: String,
    /// Its architecture, if it is named.
    pub arch: Option<Arch>,
    /// CPU vulnerability mitigations.
    pub mitigations: bool,
    /// Additional kernel parameters.
    pub cmdline: String,
    /// Whether an arm has nftables rules.
    pub nft: bool,
    /// Whether the guest has modules that its kernel may request. Only the kernel knows what rules need that were not
    /// generated.
    pub requests: bool,
    /// Modules to load, by name.
    pub load: Vec<String>,
    /// Other modules, if the kernel has them as modules.
    pub more_modules: Vec<&'static str>,
    /// Whether an arm sets a qdisc, and the modules of all qdiscs: the same for all arms, so that
    /// they share a boot and have no other difference.
    pub qdisc: bool,
    /// See [`GuestPlan::qdisc`].
    pub qdisc_modules: BTreeSet<String>,
    /// Files of modules to load instead of the kernel's.
    pub own_modules: Vec<String>,
    /// Options of modules, by module.
    pub module_options: BTreeMap<String, String>,
    /// The seed of random numbers.
    pub seed: u32,
    /// The size of its memory.
    pub memory_mib: u32,
    /// Programs that it needs in addition.
    pub programs: Vec<Program>,
    /// The type of link.
    pub link: Link,
    /// Which of two hosts it is; none if both ends are in it.
    pub host: Option<HostOf>,
    /// What is between sender and receiver.
    pub topology: TopologySpec,
    /// The arms, by index.
    pub arms: Vec<usize>,
}

impl GuestPlan {
    /// Find its kernel; a damaged one is fetched again.
    ///
    /// # Errors
    /// There is none of that name and architecture, or it is damaged and can't be fetched again.
    pub(crate) fn kernel_in(
        &self,
        options: &Options,
        tell: &dyn Fn(Progress),
    ) -> Result<KernelEntry, KernelStoreError> {
        let store = options.kernels();
        store.find_whole(&self.kernel, self.arch, &mut fetching("guests", tell))
    }
}

impl Plan {
    /// The plan of an experiment.
    pub fn from_experiment(experiment: &Experiment) -> Plan {
        Plan {
            arms: experiment.arms(),
            packets: experiment.workload.packets(),
            warmup_packets: experiment.workload.warmup_packets(),
            blocks: experiment.block_count(),
            scan: experiment.scan.clone(),
            topologies: experiment.topologies.clone(),
        }
    }

    /// The plan with every arm repeated for a number of random seeds.
    ///
    /// # Errors
    /// The arms have seeds of their own, or would be too many.
    pub fn with_seeds(mut self, seeds: u32) -> Result<Plan, String> {
        if seeds < 2 {
            return Ok(self);
        }
        if let Some(arm) = self.arms.iter().find(|a| a.knobs.contains_key("seed")) {
            return Err(format!(
                "seeds can't be used together with knob seed (arm `{}`)",
                arm.name
            ));
        }
        if self.scan.is_some() {
            return Err("seeds can't be used together with a scan".into());
        }
        if self.arms.len().saturating_mul(seeds as usize) > MAX_ARMS {
            return Err(format!(
                "too many arms ({} with {seeds} seeds each); expected at most {MAX_ARMS}",
                self.arms.len()
            ));
        }
        let own = std::mem::take(&mut self.arms);
        self.arms.extend(own.iter().cloned());
        for seed in 2..=seeds {
            for arm in &own {
                let mut repeat = arm.clone();
                repeat.name = format!("{} seed={seed}", arm.name);
                repeat.knobs.insert("seed".into(), seed.to_string());
                repeat.made = Some(Derivation { from: arm.name.clone(), by: MadeBy::Seed });
                self.arms.push(repeat);
            }
        }
        Ok(self)
    }

    /// The boots, in the order in which the arms first need them.
    pub fn guests(&self) -> Vec<GuestPlan> {
        let mut guests: Vec<GuestPlan> = Vec::new();
        for (index, arm) in self.arms.iter().enumerate() {
            let knob = |key: &str| arm.knobs.get(key).cloned().unwrap_or_default();
            let qdisc = Qdisc::from_arm(arm);
            let kernel = ArmKernel::from_arm(arm);
            let ruleset = Ruleset::from_arm(arm);
            let topology = self.topology(arm).spec;
            let qdiscs: Vec<Qdisc> = {
                let devices = topology.devices.iter();
                let own = devices.filter_map(|device| Qdisc::from_words(&device.qdisc));
                own.chain(qdisc).collect()
            };
            let new = GuestPlan {
                kernel: kernel.name,
                arch: kernel.arch,
                mitigations: arm.is_on("mitigations"),
                cmdline: knob("cmdline"),
                nft: ruleset.is_some() || topology.has_rules(),
                requests: ruleset.is_some_and(|ruleset| !ruleset.is_generated())
                    || !ProgramFile::all_of(arm).is_empty(),
                load: files(&knob("load")).map(str::to_owned).collect(),
                more_modules: Vec::new(),
                qdisc: !qdiscs.is_empty(),
                qdisc_modules: qdiscs.iter().filter_map(Qdisc::module).collect(),
                own_modules: files(&knob("module")).map(str::to_owned).collect(),
                module_options: module_options(arm, None),
                seed: arm.read("seed").unwrap_or(1),
                memory_mib: MEMORY_MIB,
                programs: Vec::new(),
                link: arm.link,
                host: None,
                topology,
                arms: vec![index],
            };
            // Settings that can be changed in a running guest.
            let but_for = |g: &GuestPlan| GuestPlan {
                requests: false,
                qdisc: false,
                qdisc_modules: BTreeSet::new(),
                arms: Vec::new(),
                ..g.clone()
            };
            match guests.iter_mut().find(|g| but_for(g) == but_for(&new)) {
                Some(guest) => {
                    guest.arms.push(index);
                    guest.requests |= new.requests;
                    guest.qdisc |= new.qdisc;
                    guest.qdisc_modules.extend(new.qdisc_modules);
                }
                None => guests.push(new),
            }
        }
        guests
    }

    /// The topology of an arm, which was checked.
    pub(crate) fn topology(&self, arm: &Arm) -> ArmTopology {
        ArmTopology::from_arm(arm, &self.topologies).unwrap_or_else(|_| ArmTopology::direct())
    }

    /// The guest's plan for an arm.
    pub fn run_plan(&self, arm: &Arm) -> RunPlan {
        RunPlan {
            proto: arm.proto,
            host: None,
            family: arm.family,
            link: arm.link,
            topology: self.topology(arm),
            queues: arm.read("queues"),
            size_bytes: arm.size_bytes,
            mtu_bytes: arm.read("mtu_bytes"),
            packets: self.packets,
            block_ns: None,
            rate_pps: None,
            stream: false,
            new_flows: arm.is_on("new_flows"),
            replies: arm.is_on("replies"),
            warmup_packets: self.warmup_packets,
            blocks: self.blocks,
            aligned: true,
            sysctl: (arm.table("sysctl"))
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            offload: (arm.table("offload"))
                .filter_map(|(name, level)| Some((name.parse().ok()?, level == "on")))
                .collect(),
            nics: [Side::Tx, Side::Rx].map(|side| NicSettings::from_arm(arm, side)),
            nft: Ruleset::from_arm(arm),
            qdisc: Qdisc::from_arm(arm),
            // Read by who starts the guest.
            programs: Vec::new(),
            from_device: FromDevice::from_arm(arm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_model::class::Proto;
    use netplumb_model::experiment::{Hook, Offload, Within};

    fn plan(text: &str) -> Plan {
        Plan::from_experiment(&Experiment::parse(text).unwrap())
    }

    /// Check that arms share a boot unless they differ in something that needs another.
    #[test]
    fn boots_are_shared() {
        let plan = plan(
            "name = \"x\"\n[vary]\nproto = [\"udp\", \"tcp\"]\nmitigations = [\"on\", \"off\"]\n",
        );
        let guests = plan.guests();
        assert_eq!(guests.len(), 2);
        assert!(guests.iter().all(|g| g.arms.len() == 2));
        assert_eq!(guests.iter().filter(|g| g.mitigations).count(), 1);
    }

    /// Check that settings are passed to the guest by name.
    #[test]
    fn settings_are_passed_on() {
        let plan = plan("name = \"x\"\n[knobs]\nmtu_bytes = 9000\nsysctl.\"net.core.x\" = \"1\"\n");
        let run = plan.run_plan(&plan.arms[0]);
        assert_eq!(run.mtu_bytes, Some(9000));
        assert_eq!(run.sysctl.get("net.core.x").map(String::as_str), Some("1"));
    }

    /// Check that there is an arm for every combination, named after what varies, and that arms
    /// share boots where possible.
    #[test]
    fn every_combination_is_an_arm() {
        let plan = plan(
            "name = \"x\"\n[vary]\nproto = [\"udp\", \"raw\"]\nlink = [\"veth\", \"e1000\"]\n\
             [workload]\npackets = 7\nwarmup_packets = 8\n[blocks]\ncount = 9\n",
        );
        let names: Vec<&str> = plan.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["udp veth", "raw veth", "udp e1000", "raw e1000"]);
        let boots: Vec<(Link, Vec<usize>)> =
            plan.guests().into_iter().map(|g| (g.link, g.arms)).collect();
        assert_eq!(boots, [(Link::Veth, vec![0, 1]), (Link::E1000, vec![2, 3])]);
        let run = plan.run_plan(&plan.arms[1]);
        assert_eq!((run.packets, run.warmup_packets, run.blocks), (7, 8, 9));
        assert_eq!((run.proto, run.mtu_bytes), (Proto::Raw, None));
    }

    /// Check that there is one arm if nothing varies, and that every knob that only a boot can
    /// change needs another guest.
    #[test]
    fn boots_differ() {
        let plan = plan("name = \"x\"\n");
        assert_eq!(plan.guests().len(), 1);
        let mut arms = vec![plan.arms[0].clone(); 12];
        arms[1].forward = true;
        arms[2].link = Link::UsbNet;
        arms[3].knobs.insert("kernel".into(), "other".into());
        arms[4].knobs.insert("cmdline".into(), "quiet".into());
        arms[5].knobs.insert("mitigations".into(), "on".into());
        arms[6].size_bytes = 1_000;
        arms[7].knobs.insert("seed".into(), "2".into());
        arms[8].knobs.insert("module".into(), "/x/veth.ko".into());
        arms[9].knobs.insert("nft.rules".into(), "0".into());
        // Rules of any kind share one.
        (arms[10].knobs).insert("nft".into(), "add table ip t".into());
        (arms[11].knobs).insert("load".into(), "br_netfilter".into());
        let guests = Plan { arms, ..plan }.guests();
        let boots: Vec<Vec<usize>> = guests.into_iter().map(|g| g.arms).collect();
        assert_eq!(
            boots,
            [
                vec![0, 6],
                vec![1],
                vec![2],
                vec![3],
                vec![4],
                vec![5],
                vec![7],
                vec![8],
                vec![9, 10],
                vec![11]
            ]
        );
    }

    /// Check that rules and offloads are passed to the guest unchanged.
    #[test]
    fn rules_and_offloads_are_passed_on() {
        let plan = plan(
            "name = \"x\"\n[knobs]\nnft = { set = 9, hook = \"input\" }\nnft_in = \"rx\"\n\
             offload = { tso = \"off\", gro = true }\n",
        );
        let run = plan.run_plan(&plan.arms[0]);
        assert_eq!(
            run.offload.into_iter().collect::<Vec<_>>(),
            [(Offload::Tso, false), (Offload::Gro, true)]
        );
        let ruleset = run.nft.unwrap();
        assert_eq!(ruleset.within, Within::Rx);
        assert_eq!(ruleset.expected(), Some((1, 9)));
        assert!(format!("{ruleset:?}").contains(&format!("{:?}", Hook::Input)));
        let guest = plan.guests().remove(0);
        assert!(guest.nft && !guest.requests);
    }

    /// Check that qdiscs are passed to the guest, and that arms with different qdiscs share a boot
    /// that has all their modules.
    #[test]
    fn queueing_disciplines_are_passed_on() {
        let plan = plan(
            "name = \"x\"\n[vary]\nqdisc = [\"\", \"netem delay 5us\", \"netem delay 25us\", \
             \"fq\", \"pfifo\"]\n",
        );
        let guests = plan.guests();
        assert_eq!(guests.len(), 1);
        assert!(guests[0].qdisc);
        let modules: Vec<&str> = guests[0].qdisc_modules.iter().map(String::as_str).collect();
        assert_eq!(modules, ["sch_fq", "sch_netem"]);
        assert_eq!(guests[0].arms, [0, 1, 2, 3, 4]);
        let words = |arm: usize| plan.run_plan(&plan.arms[arm]).qdisc.map(|q| q.words().join(" "));
        assert_eq!(words(0), None);
        assert_eq!(words(2).as_deref(), Some("netem delay 25us"));
    }

    /// Check that seeds repeat every arm, that the first seed is the default, and that arms with
    /// seeds of their own are an error.
    #[test]
    fn seeds_repeat_arms() {
        let two = "name = \"x\"\n[vary]\nproto = [\"udp\", \"tcp\"]\n";
        let seeded = plan(two).with_seeds(3).unwrap();
        let names: Vec<&str> = seeded.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["udp", "tcp", "udp seed=2", "tcp seed=2", "udp seed=3", "tcp seed=3"]);
        assert_eq!(seeded.arms[5].repeats(), Some("tcp"));
        let seeds: Vec<u32> = seeded.guests().iter().map(|g| g.seed).collect();
        assert_eq!(seeds, [1, 2, 3]);
        assert_eq!(plan(two).with_seeds(1).unwrap(), plan(two));
        let own = plan("name = \"x\"\n[vary]\nseed = [1, 2]\n");
        assert!(own.with_seeds(2).unwrap_err().contains("knob seed"));
        assert!(plan(two).with_seeds(1_000).unwrap_err().contains("too many arms"));
    }
}
