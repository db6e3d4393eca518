//! The constraints on arms and their settings.

use std::collections::{BTreeSet, HashSet};

use super::super::error::{Mistake, near};
use super::super::within::Within;
use super::super::{
    DiskPlan, Experiment, FromDevice, Kind, Knob, Knobs, Lab, MAX_ARMS, MAX_NEW_FLOWS, NamedArm,
    ProgramFile, Qdisc, Recorded, Ruleset, Vary, device,
};
use crate::class::{Family, Link, Proto};
use crate::recording::Arm;
use crate::timing::{INSTRUCTIONS, SAMPLED};
use crate::topology::{self, ArmTopology, TopologySpec};

/// Frames are set up for each of their blocks.
const MAX_ARMS_OF_FRAMES: usize = 1_000;
/// Largest UDP payload over IPv4 (RFC 768: 65,535 less 8 of UDP and 20 of IP).
const MAX_SIZE_BYTES: u32 = 65_507;

/// Minimum MTU of Ethernet devices (include/uapi/linux/if_ether.h: ETH_MIN_MTU).
const MIN_MTU_BYTES: u32 = 68;
/// RFC 8200: IPv6 needs at least this.
const MIN_MTU_V6_BYTES: u32 = 1280;
const MAX_MTU_BYTES: u32 = 65_535;

/// Check that an arm can be run.
///
/// # Errors
/// The key that is wrong, and a message.
pub fn check_arm(arm: &Arm) -> Result<(), (&'static str, String)> {
    if arm.size_bytes > MAX_SIZE_BYTES {
        return Err((
            "size_bytes",
            format!(
                "invalid size_bytes `{}`; expected at most {MAX_SIZE_BYTES} (63K)",
                arm.size_bytes
            ),
        ));
    }
    if matches!(arm.proto, Proto::Command | Proto::Work) {
        return Err((
            "proto",
            "command is not a protocol; use [workload] kind = \"command\", or `plumb path -- COMMAND`"
                .into(),
        ));
    }
    if arm.link == Link::Any {
        return Err(("link", "link any is only for traffic in lab host".into()));
    }
    let least = match arm.family {
        Family::V4 => MIN_MTU_BYTES,
        Family::V6 => MIN_MTU_V6_BYTES,
    };
    if let Some(mtu) = arm.knobs.get("mtu_bytes")
        && !mtu.parse().is_ok_and(|mtu: u32| (least..=MAX_MTU_BYTES).contains(&mtu))
    {
        return Err((
            "mtu_bytes",
            format!(
                "invalid mtu_bytes `{mtu}`; expected {least} to {MAX_MTU_BYTES} for {}",
                arm.family
            ),
        ));
    }
    let middles = [("forward", arm.forward), ("bridge", arm.is_on("bridge"))];
    for (key, _) in middles.iter().filter(|(_, is_on)| *is_on) {
        if arm.link == Link::Lo {
            return Err((key, format!("{key} is not supported by link lo; use veth")));
        }
        if let Some(topology) = arm.knobs.get("topology") {
            let why = format!(
                "{key} and topology can't be used together: {key} is the topology of that name, not {topology}"
            );
            return Err((key, why));
        }
    }
    if middles.iter().all(|(_, is_on)| *is_on) {
        return Err(("bridge", "bridge and forward can't be used together".into()));
    }
    if arm.knobs.contains_key("queues") && arm.link != Link::Veth {
        return Err(("queues", format!("queues is not supported by link {}; use veth", arm.link)));
    }
    if arm.is_on("replies") && arm.proto != Proto::Udp {
        let why = format!("replies is for protocol udp; {} has answers of its own", arm.proto);
        return Err(("replies", why));
    }
    let of_device = FromDevice::from_arm(arm).is_some();
    if let Some(key) = ["new_flows", "replies"].iter().find(|key| of_device && arm.is_on(key)) {
        return Err((key, format!("{key} needs packets of a socket: leave sender out")));
    }
    match FromDevice::from_arm(arm) {
        Some(frames) => frames.check(arm)?,
        None => device::check_without(arm)?,
    }
    if let Some(ruleset) = Ruleset::from_arm(arm) {
        ruleset.check(arm).map_err(|why| ("nft", why))?;
    }
    if let Some(qdisc) = Qdisc::from_arm(arm) {
        qdisc.check().map_err(|why| ("qdisc", why))?;
    }
    if let Some(disk) = DiskPlan::from_arm(arm) {
        disk.check()?;
    }
    Ok(())
}

/// Check that a topology has the place that the knob `key` names.
fn check_place(place: &Within, key: &'static str, spec: &TopologySpec) -> Result<(), Mistake> {
    let Within::Named(name) = place else {
        return Ok(());
    };
    let names = || spec.namespaces.iter().map(|namespace| namespace.name.as_str());
    let devices = spec.devices.iter().map(|device| device.name.as_str());
    let is_device = key == "qdisc_in" && devices.clone().any(|device| device == name);
    if is_device || names().any(|known| known == name) {
        return Ok(());
    }
    let known: BTreeSet<&str> = ["tx", "rx", "both"].into_iter().chain(names()).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let (what, hint) = match name.as_str() {
        "router" => ("forward", None),
        "bridge" => ("bridge", None),
        _ => ("", near(name, known.iter().copied().chain(["router", "bridge"]))),
    };
    let needs = match what {
        "" => String::new(),
        what => format!("; --{what} ({what} = \"on\") puts a {name} in between"),
    };
    Err(Mistake {
        hint,
        ..(
            key,
            format!(
                "{key} = \"{name}\": topology {} has no such namespace; expected one of {}{needs}",
                spec.name,
                known.join(", ")
            ),
        )
            .into()
    })
}

impl Experiment {
    pub(super) fn check_arms(&self) -> Result<(), Mistake> {
        if self.explain {
            let why = "explain needs a workload of kind frames";
            return Err(("explain", why.to_string()).into());
        }
        if self.nics.is_some() {
            let why = "[nics] needs a workload of kind frames";
            return Err(("nics", why.to_string()).into());
        }
        let arms = self.arms();
        if arms.len() > MAX_ARMS {
            let why = format!("too many arms ({}); expected at most {MAX_ARMS}", arms.len());
            return Err(("vary", why).into());
        }
        let is_exact = (self.instruments.iter().flatten())
            .all(|name| [INSTRUCTIONS.instrument, SAMPLED.instrument].contains(&name.as_str()));
        let of_flows = ["new_flows", "replies"];
        let flows = arms.iter().find_map(|a| of_flows.into_iter().find(|key| a.is_on(key)));
        if let Some(key) = flows.filter(|_| !is_exact) {
            let why = format!("{key} is supported by instruments `exact` and `samples` alone");
            return Err((key, why).into());
        }
        let blocks = u64::from(self.block_count());
        let all =
            u64::from(self.workload.warmup_packets()) + u64::from(self.workload.packets()) * blocks;
        if let Some(key) = flows.filter(|key| *key == "new_flows") {
            if self.long().is_some() {
                return Err(
                    (key, "new_flows is not supported by runs with a duration".into()).into()
                );
            }
            if all > u64::from(MAX_NEW_FLOWS) {
                let why = format!(
                    "new_flows: {all} packets, warm-up and blocks together, have more than {MAX_NEW_FLOWS} flows, after \
                     which ports would be used again; use fewer packets or blocks"
                );
                return Err((key, why).into());
            }
        }
        for arm in &arms {
            self.check_queues(arm).map_err(|wrong| self.of_arm(arm, wrong))?;
            check_arm(arm).map_err(|wrong| self.of_arm(arm, wrong))?;
            self.check_topology(arm).map_err(|wrong| self.of_arm(arm, wrong))?;
            self.check_host_arm(arm).map_err(|wrong| self.of_arm(arm, wrong))?;
            if self.lab == Lab::Netns && arm.link.has_nics() {
                let why = format!(
                    "link {} is not supported by lab netns, only {}; use lab vm",
                    arm.link,
                    Link::listed(|link| !link.has_nics())
                );
                return Err(self.of_arm(arm, ("link", why)));
            }
        }
        self.check_machine(&arms).map_err(|wrong| {
            match arms.iter().find(|a| a.knobs.contains_key(wrong.0)) {
                Some(arm) => self.of_arm(arm, wrong),
                None => wrong.into(),
            }
        })?;
        self.check_names(&arms)?;
        let mut named = self.instruments.iter().flatten();
        if let Some(arm) = arms.iter().find(|arm| FromDevice::from_arm(arm).is_some())
            && let Some(other) = named.find(|name| {
                ![INSTRUCTIONS.instrument, SAMPLED.instrument].contains(&name.as_str())
            })
        {
            let why = format!(
                "sender = \"device\" is measured by `{}` and `{}`, not by `{other}`",
                INSTRUCTIONS.instrument, SAMPLED.instrument
            );
            return Err(self.of_arm(arm, ("sender", why)));
        }
        match self.workload.kind {
            Kind::Command => self.check_commands(&arms),
            Kind::Work if !arms.is_empty() => self.check_has_commands(&arms),
            _ => Ok(()),
        }
    }

    fn check_commands(&self, arms: &[Arm]) -> Result<(), Mistake> {
        if self.lab != Lab::Vm && arms.len() > 1 {
            let why = "a workload of kind command supports several arms in lab vm only; use a \
                       recording for each, and compare them with `plumb diff`";
            return Err(("vary", why.to_string()).into());
        }
        self.check_has_commands(arms)
    }

    fn check_has_commands(&self, arms: &[Arm]) -> Result<(), Mistake> {
        let has_none = |arm: &&Arm| !arm.knobs.contains_key("command");
        if self.workload.command.is_empty() && arms.iter().any(|arm| has_none(&arm)) {
            let why = format!(
                "a workload of kind {} needs command, like [\"curl\", \"...\"]",
                self.workload.kind
            );
            return Err(("kind", why).into());
        }
        Ok(())
    }

    /// Check that an arm has its topology, and this the places that settings name.
    fn check_topology(&self, arm: &Arm) -> Result<(), Mistake> {
        // A file that was not read yet: the experiment is only looked at.
        if arm.knobs.get("topology").is_some_and(|level| topology::is_file(level)) {
            return Ok(());
        }
        let topology = ArmTopology::from_arm(arm, &self.topologies);
        let topology = topology.map_err(|why| ("topology", why))?;
        topology.check(arm).map_err(|why| ("topology", why))?;
        let spec = &topology.spec;
        for program in ProgramFile::all_of(arm) {
            let key = program.hook.as_str();
            program.check().map_err(|why| (key, why))?;
            let is_lo = arm.link == Link::Lo && program.device == "lo";
            if spec.device(program.device).is_none() && !is_lo {
                let known: Vec<&str> = spec.devices.iter().map(|d| d.name.as_str()).collect();
                return Err(Mistake::unknown(
                    key,
                    "device of the topology",
                    program.device,
                    &known,
                ));
            }
        }
        if let Some(ruleset) = Ruleset::from_arm(arm) {
            check_place(&ruleset.within, "nft_in", spec)?;
        }
        if let Some(qdisc) = Qdisc::from_arm(arm) {
            check_place(&qdisc.within, "qdisc_in", spec)?;
        }
        Ok(())
    }

    /// The mistake in an arm, located in its `[[arm]]` if that sets the knob.
    fn of_arm(&self, arm: &Arm, wrong: impl Into<Mistake>) -> Mistake {
        let wrong = wrong.into();
        let sets = |named: &NamedArm| named.knobs.set_ones().any(|knob| knob.key == wrong.key);
        let of = |named: &NamedArm| named.name == arm.name && sets(named);
        match self.arms.iter().position(of) {
            Some(n) => Mistake::within("arm", n)(wrong),
            None => wrong,
        }
    }

    /// Check that each arm has a name of its own.
    fn check_names(&self, arms: &[Arm]) -> Result<(), Mistake> {
        let mut names = HashSet::new();
        match arms.iter().find(|arm| !names.insert(arm.name.as_str())) {
            Some(arm) => Err(self.duplicate(arm)),
            None => Ok(()),
        }
    }

    /// The mistake of two arms with one name: a duplicate `[[arm]]`, or a duplicate level.
    fn duplicate(&self, arm: &Arm) -> Mistake {
        let what = format!("duplicate arm `{}`", arm.name);
        let written = self.arms.iter().rposition(|named| named.name == arm.name);
        match (written, self.vary.repeated()) {
            (Some(n), _) => Mistake::within("arm", n)(("name", what).into()),
            (None, Some(knob)) => {
                let what = format!("{what}: {} has a duplicate level", knob.key);
                Mistake::within("vary", 0)((knob.key, what).into())
            }
            (None, None) => ("vary", what).into(),
        }
    }

    /// Check that no knob is both fixed and varied, and that knobs which need another one have it.
    pub(super) fn check_settings(&self) -> Result<(), Mistake> {
        let own = std::iter::once((("vary", 0), &self.knobs, &self.vary));
        let figures = self.figures.iter().enumerate();
        let figures = figures.map(|(n, f)| (("figure", n), &f.knobs, &f.vary));
        for ((table, n), knobs, vary) in own.chain(figures) {
            if let Some(key) = vary.also_in(knobs) {
                let knob = Knob::by_key(key.split('.').next().unwrap_or(&key));
                let mistake = Mistake {
                    hint: Some("remove it from one of them".into()),
                    ..(
                        knob.map_or("vary", |knob| knob.key),
                        format!("{key} is set in both knobs and vary"),
                    )
                        .into()
                };
                return Err(Mistake::within(table, n)(mistake));
            }
        }
        let knobs = [&self.knobs].into_iter();
        let knobs = knobs.chain(self.arms.iter().map(|arm| &arm.knobs));
        let knobs = knobs.chain(self.figures.iter().map(|figure| &figure.knobs));
        let vary = [&self.vary].into_iter();
        let vary = vary.chain(self.figures.iter().map(|figure| &figure.vary));
        let mut set: Vec<&'static Knob> = knobs.flat_map(Knobs::set_ones).collect();
        set.extend(vary.flat_map(Vary::set_ones));
        for knob in &set {
            if let Recorded::With(other) | Recorded::IfSetWith(other) = knob.recorded
                && !set.iter().any(|knob| knob.key == other)
            {
                return Err((knob.key, format!("{} needs {other}", knob.key)).into());
            }
        }
        Ok(())
    }

    pub(super) fn check_frames(&self) -> Result<(), Mistake> {
        let arms = self.bench_arms()?;
        if arms.is_empty() || arms.len() > MAX_ARMS_OF_FRAMES {
            let why = format!(
                "invalid number of arms ({}); expected 1 to {MAX_ARMS_OF_FRAMES}",
                arms.len()
            );
            return Err((if self.figures.is_empty() { "vary" } else { "figure" }, why).into());
        }
        self.check_names(&self.arms())?;
        if let Some(n) = (1..arms.len()).find(|n| arms[..*n].contains(&arms[*n])) {
            let name = &self.arms()[n].name;
            let why = format!(
                "arm `{name}` has the same settings as another arm; knobs.again = \"on\" measures \
                 each arm twice"
            );
            return Err(("arm", why).into());
        }
        let first = arms[0].link;
        if arms.iter().any(|arm| arm.link != first) {
            return Err((
                "link",
                "frames support one link per recording; compare recordings with `plumb diff`"
                    .into(),
            )
                .into());
        }
        if first.has_nics() && self.lab != Lab::Vm {
            return Err((
                "link",
                format!(
                    "link {first} needs lab vm (--lab vm, lab = \"vm\"); for interfaces of this \
                     machine use --nic and --from ([nics])"
                ),
            )
                .into());
        }
        if first != Link::Veth && self.explain {
            return Err(
                ("explain", format!("explain is not supported by link {first}; use veth")).into()
            );
        }
        if first != Link::Veth && arms.iter().any(|arm| arm.planted.fault.is_some()) {
            return Err((
                "fault",
                format!("fault (--plant) is not supported by link {first}; use veth"),
            )
                .into());
        }
        for (key, what) in [("kernel", "kernel"), ("load", "list of modules")] {
            if self.vary.get(key).len() > 1 {
                let why = format!(
                    "frames support one {what} per recording; compare recordings with `plumb diff`"
                );
                return Err((key, why).into());
            }
        }
        if self.nics.is_some() != (self.lab == Lab::Host) {
            return Err((
                "lab",
                "frames on interfaces of this machine need both lab = \"host\" and [nics]".into(),
            )
                .into());
        }
        Ok(())
    }

    /// Check that the lab and the workload support every knob.
    pub(super) fn check_places(&self) -> Result<(), (&'static str, String)> {
        let kind = self.workload.kind;
        // Instructions that explain rates are counted in guests.
        let mut labs = vec![self.lab];
        labs.extend(self.explain.then_some(Lab::Vm));
        let named = self.arms.iter().map(|arm| &arm.knobs);
        let knobs = std::iter::once(&self.knobs)
            .chain(named)
            .chain(self.figures.iter().map(|figure| &figure.knobs));
        let vary = std::iter::once(&self.vary).chain(self.figures.iter().map(|f| &f.vary));
        let misplaced = knobs
            .filter_map(|knobs| knobs.misplaced(&labs, kind))
            .chain(vary.filter_map(|vary| vary.misplaced(&labs, kind)))
            .next();
        misplaced.map_or(Ok(()), Err)
    }
}
