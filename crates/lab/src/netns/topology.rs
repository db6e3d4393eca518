//! Topologies: namespaces, links and addresses, as a plan has them.
//!
//! Neighbours are permanent, and router solicitations and duplicate address detection of IPv6 are off, so that only
//! the workload's packets are on the links.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::{NicSettings, Qdisc, Within};
use netplumb_model::hosts::Side;
use netplumb_model::topology::{DeviceSpec, NamespaceSpec};
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::sysctl;

use super::names::Names;
use super::plan::{Doing, Nic, Refusal, TopologyError, TopologyPlan};
use super::programs::{self, Loaded};
use super::wire::{nap, until, wire_to_other_host};
use super::{devices, nft, nic, offload, qdisc};

/// Time for devices and IPv6 to settle before anything is measured.
const SETTLE: Duration = Duration::from_secs(3);

/// A topology that is set up.
#[derive(Debug)]
pub struct Topology {
    /// The sender's namespace.
    pub tx: Namespace,
    /// The receiver's namespace; may be the same.
    pub rx: Namespace,
    /// The other namespaces, by name.
    pub between: Vec<(String, Namespace)>,
    /// Address of the sender.
    pub tx_address: IpAddr,
    /// Address of the receiver.
    pub rx_address: IpAddr,
    /// The address that packets for the receiver are sent to.
    pub to_address: IpAddr,
    /// Notes on knobs, by name.
    pub notes: BTreeMap<String, String>,
    /// The names of the namespaces, if they have any.
    pub names: Option<Names>,
    /// Which of two hosts it belongs to: both ends are the same then.
    pub host: Option<Side>,
    programs: Vec<Loaded>,
}

/// Where a setting is made: a namespace with its name in the plan, and the device of its egress.
struct Place<'a> {
    namespace: &'a Namespace,
    name: &'a str,
    device: &'a str,
}

impl Topology {
    /// Set up a topology on this machine, with names. What killed runs left behind is not removed:
    /// see [`super::names::sweep`].
    ///
    /// # Errors
    /// What failed, and the system's reason; nothing is left behind.
    pub fn build_named(plan: &TopologyPlan) -> Result<Topology, TopologyError> {
        let names = Names::new().doing(|| "write the journal of namespaces".into())?;
        let mut topology = Topology::join(plan, &[], Some(names))?;
        topology.apply(plan)?;
        Ok(topology)
    }

    /// Set up a topology in a guest. `nics` are the guest's, for links that need some.
    ///
    /// # Errors
    /// What failed, and the system's reason.
    pub fn build(plan: &TopologyPlan, nics: &[Nic]) -> Result<Topology, TopologyError> {
        let mut topology = Topology::join(plan, nics, None)?;
        topology.apply(plan)?;
        if plan.link != Link::Lo {
            std::thread::sleep(SETTLE);
        }
        Ok(topology)
    }

    /// Whether a topology can be changed into another one. One with changed settings can't: they
    /// would remain.
    pub fn can_become(standing: &TopologyPlan, wanted: &TopologyPlan) -> bool {
        let plain = TopologyPlan {
            sysctl: BTreeMap::new(),
            offload: BTreeMap::new(),
            nics: Default::default(),
            nft: None,
            qdisc: None,
            programs: Vec::new(),
            ..wanted.clone()
        };
        *standing == plain && !wanted.sysctl.keys().any(|key| acts_on_creation(key))
    }

    /// Change it to a plan that it [can become](Self::can_become).
    ///
    /// # Errors
    /// What failed, and the system's reason.
    pub fn change(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        for namespace in self.all() {
            change_settings(namespace, &plan.sysctl)?;
        }
        self.settings(plan)?;
        if !plan.offload.is_empty() || plan.nics.iter().any(|nic| !nic.is_empty()) {
            // The link may have been down, and needs the same time as at first.
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    /// Apply what needs the devices: the topology's own rules and qdiscs, and the settings of the arm.
    fn apply(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        for spec in &plan.topology.spec.namespaces {
            let Some(namespace) = self.namespace(plan, &spec.name) else { continue };
            change_settings(namespace, &of_devices(spec))?;
            if !spec.nft.is_empty() {
                namespace
                    .inside(|| nft::apply(&[&spec.nft], None))
                    .doing(|| format!("apply the nft rules of namespace {}", spec.name))?;
            }
        }
        for device in plan.topology.spec.devices.iter().filter(|device| !device.qdisc.is_empty()) {
            let Some(namespace) = self.namespace(plan, &device.namespace) else { continue };
            let wanted = Qdisc::from_words(&device.qdisc);
            (namespace
                .inside(|| wanted.map_or(Ok(String::new()), |q| qdisc::apply(&q, &device.name))))
            .doing(|| format!("set the queueing discipline of {}", device.name))?;
        }
        self.settings(plan)
    }

    /// Apply the settings of an arm: offloads, NICs, rules and a qdisc.
    fn settings(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        let mut notes = BTreeMap::new();
        let of_nics = self.nics(plan);
        if !plan.offload.is_empty() || !of_nics.is_empty() {
            for namespace in self.all().into_iter().filter(|_| !plan.offload.is_empty()) {
                let offload_notes = namespace
                    .inside(|| offload::set_all(&plan.offload, plan.link == Link::Lo))
                    .doing(|| "set offloads".into())?;
                notes.extend(offload_notes);
            }
            for (namespace, settings) in of_nics {
                let nic_notes = nic::set_all(namespace, settings, plan.link == Link::Lo);
                notes.extend(nic_notes.doing(|| "set up the NIC".into())?);
            }
            // Some drivers take the link down for that.
            let nap = nap(self.names.is_some());
            for namespace in self.all() {
                namespace
                    .inside(|| until(|| Netlink::open()?.all_ready(), nap, "no carrier"))
                    .doing(|| "bring the link up again".into())?;
            }
        }
        if let Some((ruleset, text)) = &plan.nft {
            for place in self.within(&ruleset.within, plan) {
                // Those of the topology come first, and stay.
                let own = plan.topology.spec.namespace(place.name).map_or("", |spec| &spec.nft);
                let expected = ruleset.expected().filter(|_| own.is_empty());
                let (rules, elements) = (place.namespace)
                    .inside(|| nft::apply(&[own, text], expected))
                    .doing(|| "apply the nft rules".into())?;
                notes.insert("nft.rules".into(), rules.to_string());
                notes.insert("nft.set_elements".into(), elements.to_string());
            }
        }
        if let Some(qdisc) = &plan.qdisc {
            for Place { namespace, device, .. } in self.within(&qdisc.within, plan) {
                let note = namespace
                    .inside(|| qdisc::apply(qdisc, device))
                    .doing(|| format!("set the queueing discipline of {device}"))?;
                notes.insert(format!("qdisc.{device}"), note);
            }
        }
        for program in &plan.programs {
            let device = plan.topology.spec.device(&program.device);
            let namespace = device.and_then(|device| self.namespace(plan, &device.namespace));
            let (loaded, note) = programs::attach(program, namespace.unwrap_or(&self.tx))
                .doing(|| format!("attach the BPF program to {}", program.device))?;
            self.programs.push(loaded);
            let egress = if program.egress { ".egress" } else { "" };
            notes.insert(format!("bpf.{}.{}{egress}", program.hook, program.device), note);
        }
        self.notes = notes;
        Ok(())
    }

    /// The ends whose devices have settings, with these.
    fn nics<'a>(&'a self, plan: &'a TopologyPlan) -> Vec<(&'a Namespace, &'a NicSettings)> {
        let [tx, rx] = &plan.nics;
        let ends = match self.host {
            // Both namespaces are the same one.
            Some(Side::Tx) => vec![(&self.tx, tx)],
            Some(Side::Rx) => vec![(&self.tx, rx)],
            None if plan.link == Link::Lo => vec![(&self.tx, tx)],
            None => vec![(&self.tx, tx), (&self.rx, rx)],
        };
        let set = ends.into_iter().filter(|(_, settings)| !settings.is_empty());
        set.collect()
    }

    /// A namespace by its name in the plan.
    fn namespace(&self, plan: &TopologyPlan, name: &str) -> Option<&Namespace> {
        match name {
            _ if plan.topology.sender().is_some_and(|device| device.namespace == name) => {
                Some(&self.tx)
            }
            _ if plan.topology.receiver().is_some_and(|device| device.namespace == name) => {
                Some(&self.rx)
            }
            _ => self.between(name),
        }
    }

    /// A namespace that is neither the sender's nor the receiver's.
    pub fn between(&self, name: &str) -> Option<&Namespace> {
        let found = self.between.iter().find(|(known, _)| known == name);
        found.map(|(_, namespace)| namespace)
    }

    /// The namespaces of a place, each with the device of its egress: for the sender and the receiver their own, else
    /// the last link of the namespace, which leads to the receiver.
    fn within<'a>(&'a self, within: &'a Within, plan: &'a TopologyPlan) -> Vec<Place<'a>> {
        let lo = plan.link == Link::Lo;
        let place = |namespace, device: Option<&'a DeviceSpec>| Place {
            namespace,
            name: device.map_or("", |device| &device.namespace),
            device: match device {
                Some(device) if !lo => &device.name,
                _ => "lo",
            },
        };
        let tx = place(&self.tx, plan.topology.sender());
        let rx = place(&self.rx, plan.topology.receiver());
        match within {
            Within::Tx => vec![tx],
            Within::Rx => vec![rx],
            // On lo they are the same.
            Within::Both if lo => vec![tx],
            Within::Both => vec![tx, rx],
            Within::Named(name) => {
                let devices = || plan.topology.spec.devices.iter();
                let own = devices().find(|device| device.name == *name);
                let within = |d: &&DeviceSpec| d.namespace == *name;
                let link = || devices().rfind(|d| within(d) && d.kind.is_wired());
                let found = own.or_else(link).or_else(|| devices().rfind(within));
                let namespace = found.map_or(name.as_str(), |device| device.namespace.as_str());
                let namespace = self.namespace(plan, namespace);
                namespace.map(|namespace| place(namespace, found)).into_iter().collect()
            }
        }
    }

    /// A device that was removed meanwhile, and the namespace that had it.
    pub fn gone(&self, plan: &TopologyPlan) -> Option<String> {
        if plan.link == Link::Lo || self.host.is_some() {
            return None;
        }
        plan.topology.spec.devices.iter().find_map(|device| {
            let namespace = self.namespace(plan, &device.namespace)?;
            let devices = namespace.inside(|| Netlink::open()?.devices()).ok()?;
            let is_gone = !devices.iter().any(|d| d.name == device.name);
            let name = &device.name;
            let end = match name {
                name if *name == plan.topology.way.from => "sender",
                name if *name == plan.topology.way.to => "receiver",
                _ => device.namespace.as_str(),
            };
            is_gone.then(|| format!("the device {name} of the {end}"))
        })
    }

    /// All its namespaces.
    pub fn all(&self) -> Vec<&Namespace> {
        [&self.tx, &self.rx]
            .into_iter()
            .take(if self.host.is_some() { 1 } else { 2 })
            .chain(self.between.iter().map(|(_, namespace)| namespace))
            .collect()
    }

    fn join(
        plan: &TopologyPlan,
        nics: &[Nic],
        mut names: Option<Names>,
    ) -> Result<Topology, TopologyError> {
        let mut new = |end: &str| {
            let made = Namespace::new().and_then(|namespace| {
                if let Some(names) = &mut names {
                    names.give(end, &namespace)?;
                }
                Ok(namespace)
            });
            made.doing(|| "make a network namespace".into())
        };
        if plan.link == Link::Lo {
            let tx = new("tx")?;
            prepare(&tx, plan, &NamespaceSpec::default())?;
            let address: IpAddr = match plan.family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            };
            return Topology::of_one(tx, [address; 2], names, None);
        }
        if let Some(side) = plan.host {
            let namespace = new("tx")?;
            prepare(&namespace, plan, &NamespaceSpec::default())?;
            return Topology::one_end(namespace, plan, side, nics);
        }
        let mut all = Vec::new();
        for spec in &plan.topology.spec.namespaces {
            let namespace = new(&spec.name)?;
            prepare(&namespace, plan, spec)?;
            all.push((spec.name.clone(), namespace));
        }
        devices::make(plan, &all, nics, names.is_some())?;
        let [sender, receiver] = [plan.topology.sender(), plan.topology.receiver()];
        let address = |device: Option<&DeviceSpec>| {
            let address = device.and_then(|device| device.address(plan.family));
            address.map(|address| address.addr()).ok_or_else(|| TopologyError {
                what: "find the ends".into(),
                source: io::Error::other(format!("no {} address", plan.family)),
            })
        };
        let (tx_address, rx_address) = (address(sender)?, address(receiver)?);
        let at = plan.topology.way.at.iter().copied().find(|at| plan.family.is_of(*at));
        let mut take = |device: Option<&DeviceSpec>| {
            let name = device.map(|device| device.namespace.as_str());
            let at = all.iter().position(|(known, _)| Some(known.as_str()) == name);
            at.map(|at| all.remove(at).1)
        };
        let tx = take(sender).doing(|| "find the sender".into())?;
        let rx = match take(receiver) {
            Some(rx) => rx,
            // Both are in one.
            None => Namespace::from(tx.try_clone().doing(|| "open a network namespace".into())?),
        };
        Ok(Topology {
            tx,
            rx,
            between: all,
            tx_address,
            rx_address,
            to_address: at.unwrap_or(rx_address),
            notes: BTreeMap::new(),
            names,
            host: None,
            programs: Vec::new(),
        })
    }

    /// A topology of one namespace.
    fn of_one(
        tx: Namespace,
        [tx_address, rx_address]: [IpAddr; 2],
        names: Option<Names>,
        host: Option<Side>,
    ) -> Result<Topology, TopologyError> {
        let rx = Namespace::from(tx.try_clone().doing(|| "open a network namespace".into())?);
        Ok(Topology {
            tx,
            rx,
            between: Vec::new(),
            tx_address,
            rx_address,
            to_address: rx_address,
            notes: BTreeMap::new(),
            names,
            host,
            programs: Vec::new(),
        })
    }

    /// The end of one of two hosts: `nics` has the NICs of both, the sender's first.
    fn one_end(
        namespace: Namespace,
        plan: &TopologyPlan,
        side: Side,
        nics: &[Nic],
    ) -> Result<Topology, TopologyError> {
        let ([tx_nic, rx_nic], Some(tx), Some(rx)) =
            (nics, plan.topology.sender(), plan.topology.receiver())
        else {
            return Err(TopologyError {
                what: format!("wire {}", plan.link),
                source: io::Error::other("the machine has too few NICs"),
            });
        };
        let (own, peer) = match side {
            Side::Tx => ((tx, tx_nic), (rx, rx_nic)),
            Side::Rx => ((rx, rx_nic), (tx, tx_nic)),
        };
        wire_to_other_host(plan, &namespace, own, peer)?;
        let addresses = [tx, rx].map(|end| end.address(plan.family).map(|net| net.addr()));
        let [Some(tx_address), Some(rx_address)] = addresses else {
            return Err(TopologyError {
                what: "find the ends".into(),
                source: io::Error::other(format!("no {} address", plan.family)),
            });
        };
        Topology::of_one(namespace, [tx_address, rx_address], None, Some(side))
    }
}

/// The settings of a namespace that are a device's, and can be made once it exists.
fn of_devices(spec: &NamespaceSpec) -> BTreeMap<String, String> {
    let late = spec.sysctl.iter().filter(|(key, _)| is_of_device(key));
    late.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether a sysctl is one of a device: `net.ipv4.conf.wg0.rp_filter`.
fn is_of_device(key: &str) -> bool {
    let mut words = key.split('.').skip_while(|word| !["conf", "neigh"].contains(word)).skip(1);
    words.next().is_some_and(|device| !["all", "default"].contains(&device))
}

/// Bring up loopback, set forwarding, disable background traffic, and apply the settings of the namespace and then the
/// plan's.
fn prepare(
    namespace: &Namespace,
    plan: &TopologyPlan,
    spec: &NamespaceSpec,
) -> Result<(), TopologyError> {
    let on = |b| if b { "1" } else { "0" };
    let (v6, router) = (plan.uses(Family::V6), spec.forwards);
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            // Tunnels' fallback devices may be there, too.
            for device in netlink.devices()?.iter().filter(|device| device.loopback) {
                netlink.set_up(device.index, None)?;
            }
            // A kernel without IPv6 lacks these, and has no such traffic.
            for (key, value) in [
                ("net.ipv6.conf.all.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.accept_ra", "0"),
                ("net.ipv6.conf.default.accept_dad", "0"),
                ("net.ipv6.conf.default.router_solicitations", "0"),
                ("net.ipv6.conf.all.forwarding", on(v6 && router)),
                ("net.ipv4.ip_forward", on(plan.uses(Family::V4) && router)),
            ] {
                match sysctl::set(key, value) {
                    Err(e) if !v6 && e.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
            Ok(())
        })
        .doing(|| "prepare a network namespace".into())?;
    let own = spec.sysctl.iter().filter(|(key, _)| !is_of_device(key));
    change_settings(namespace, &own.map(|(k, v)| (k.clone(), v.clone())).collect())?;
    change_settings(namespace, &plan.sysctl)
}

fn change_settings(
    namespace: &Namespace,
    settings: &BTreeMap<String, String>,
) -> Result<(), TopologyError> {
    for (key, value) in settings {
        sysctl::set_anywhere(namespace, key, value)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::Unsupported => {
                    Refusal::NotTaken(error.to_string()).into()
                }
                ErrorKind::InvalidInput => Refusal::Asked(error.to_string()).into(),
                _ => error,
            })
            .doing(|| format!("set {key} to `{value}`"))?;
    }
    Ok(())
}

/// Whether a setting only affects devices that are created later.
fn acts_on_creation(key: &str) -> bool {
    key.split('.').any(|word| word == "default") || key == "net.core.default_qdisc"
}
