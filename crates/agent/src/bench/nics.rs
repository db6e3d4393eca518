//! Benches on interfaces of this machine: whether they may be changed, the changes, and their
//! journal.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use netplumb_knobs::{Applied, Journal, KnobError, Nic, Planned, Setting, Used};
use netplumb_model::bench::{Bench, BenchArm, DataPath};
use netplumb_model::class::Family;
use netplumb_paths::{Device, PlannedSite, planned};
use netplumb_sys::links::DeviceState;
use netplumb_sys::napi;
use netplumb_sys::netns::Namespace;

use crate::error::{BlockError, NicError};

/// Interfaces by name, in the network namespace of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nics {
    /// Receives the packets that are handled.
    pub nic: String,
    /// Sends the packets.
    pub from: String,
    /// Forwards the packets, unless they are only dropped.
    pub to: Option<String>,
    /// Receives the forwarded packets.
    pub sink: Option<String>,
    /// Interfaces that may be changed (`--yes-change`).
    pub yes_change: Vec<String>,
    /// Whether the default route or this session may use them.
    pub even_default_route: bool,
}

fn cannot(reason: impl Into<String>, remedy: impl Into<String>) -> NicError {
    NicError::CannotRun { reason: reason.into(), remedy: remedy.into() }
}

/// The interfaces, as long as they are in use.
pub struct Own {
    // Restored last.
    keep: Option<Applied>,
    journal: Arc<Journal>,
    pub(super) namespace: Namespace,
    pub(super) from: Device,
    pub(super) nic: Device,
    pub(super) to: Option<Device>,
    pub(super) sink: Option<Device>,
}

impl Nics {
    /// The names, each once, in the order in which packets pass them.
    pub fn names(&self) -> Vec<&str> {
        let mut names = vec![self.from.as_str(), self.nic.as_str()];
        names.extend(self.to.as_deref());
        names.extend(self.sink.as_deref());
        names
    }

    /// "a to b, on by c, out at d".
    pub fn chain_text(&self) -> String {
        let mut text = format!("{} to {}", self.from, self.nic);
        if let Some(to) = &self.to {
            text += &format!(", on by {to}");
        }
        if let Some(sink) = &self.sink {
            text += &format!(", out at {sink}");
        }
        text
    }

    fn find(&self, states: &[DeviceState]) -> Result<Vec<DeviceState>, NicError> {
        let names = self.names();
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(NicError::Asked(format!(
                "--nic, --from, --to and --sink must be different interfaces (got {})",
                names.join(", ")
            )));
        }
        let mut found = Vec::new();
        for name in names {
            match states.iter().find(|s| s.name == name) {
                Some(state) => found.push(state.clone()),
                None => {
                    let all: Vec<&str> = states.iter().map(|s| s.name.as_str()).take(20).collect();
                    return Err(NicError::Asked(format!(
                        "no such device: {name}; expected one of {}",
                        all.join(", ")
                    )));
                }
            }
        }
        Ok(found)
    }

    /// Check that all of them may be changed; the error lists what would be changed.
    fn agreed(&self, all: &BTreeSet<Planned>) -> Result<(), NicError> {
        let yes = |name: &str| self.yes_change.iter().any(|yes| yes == name);
        if self.names().into_iter().all(yes) {
            return Ok(());
        }
        let mut text = String::from("these settings would be changed during the measurement:\n");
        let mut heading = None;
        for planned in all {
            let on = planned.on.as_deref().unwrap_or("this network namespace");
            if heading != Some(on) {
                text += &format!("  {on}\n");
                heading = Some(on);
            }
            text += &format!("    {}\n", planned.what);
        }
        for name in self.names() {
            if !all.iter().any(|p| p.on.as_deref() == Some(name)) {
                text += &format!("  {name}\n    no changes (sender)\n");
            }
        }
        text += "and restored afterwards. Settings that already have the value are not touched. Other \
                 traffic on these interfaces is affected. To proceed, add ";
        text += &format!("--yes-change {}", self.names().join(","));
        Err(NicError::Asked(text))
    }
}

fn device(state: &DeviceState) -> Result<Device, NicError> {
    let mac: Option<[u8; 6]> = state.mac.clone().try_into().ok();
    let mac = mac.filter(|mac| state.ethernet && *mac != [0; 6]);
    let mac = mac.ok_or_else(|| {
        cannot(format!("{} is not an Ethernet interface", state.name), "use an Ethernet interface")
    })?;
    let permanent = state.permanent_mac.clone();
    Ok(Device {
        name: state.name.clone(),
        index: state.index,
        mac,
        permanent_mac: permanent.and_then(|mac| mac.try_into().ok()),
    })
}

/// Check that an interface can be used.
fn is_free(state: &DeviceState, states: &[DeviceState]) -> Result<(), NicError> {
    let name = &state.name;
    if !state.up {
        return Err(cannot(
            format!("{name} is down"),
            format!("`ip link set {name} up`, or use another interface"),
        ));
    }
    if !state.running {
        return Err(cannot(
            format!("{name} has no carrier"),
            "check the cable, and bring up the peer interface",
        ));
    }
    if let Some(master) = state.master {
        let of = states.iter().find(|s| s.index == master);
        let of = of.map_or("another interface", |s| s.name.as_str());
        return Err(cannot(
            format!("{name} is a port of {of}"),
            format!("`ip link set {name} nomaster`, or use another interface"),
        ));
    }
    if let Some(id) = state.xdp {
        return Err(cannot(
            format!("{name} has an XDP program already (number {id})"),
            format!("detach it (`ip link set dev {name} xdp off`), or use another interface"),
        ));
    }
    Ok(())
}

/// Source and destination address of frames, as between namespaces.
pub(super) fn addresses(family: Family) -> (IpAddr, IpAddr) {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match family {
        // Benchmarking addresses: RFC 2544, RFC 5180.
        Family::V4 => (Ipv4Addr::new(198, 18, 1, 1).into(), Ipv4Addr::new(198, 18, 2, 1).into()),
        Family::V6 => (
            Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1).into(),
            Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 1).into(),
        ),
    }
}

impl Own {
    /// Check all, and begin the journal. Nothing is changed yet.
    pub fn begin(nics: &Nics, arms: &[BenchArm]) -> Result<Own, BlockError> {
        let host = BlockError::host;
        let namespace = Namespace::current().map_err(host("find this network namespace"))?;
        let states = namespace.device_states();
        let states = states.map_err(host("list the interfaces"))?;
        let found = nics.find(&states)?;
        for state in &found {
            is_free(state, &states)?;
        }
        let devices: Result<Vec<Device>, NicError> = found.iter().map(device).collect();
        let mut devices = devices?.into_iter();
        let (Some(from), Some(nic)) = (devices.next(), devices.next()) else {
            return Err(NicError::Asked("two interfaces are needed (--nic, --from)".into()).into());
        };
        let to = nics.to.as_ref().and_then(|_| devices.next());
        let sink = nics.sink.as_ref().and_then(|_| devices.next());
        check_queues(&namespace, &nic, arms)?;

        let mut all = BTreeSet::new();
        for arm in arms {
            let crosses = arm.bench == Bench::Forward && arm.path != DataPath::XdpTx;
            let out = if crosses { sink.as_ref() } else { Some(&from) };
            let site = PlannedSite {
                ingress: &nic,
                egress: to.as_ref().filter(|_| crosses),
                sink: out,
                destination: addresses(arm.frames.family).1,
            };
            // Unsupported paths change nothing, and are reported for each arm.
            all.extend(planned(arm.path, arm.bench, &site).unwrap_or_default());
            if arm.apart {
                all.insert(threaded(&nic).planned("on"));
            }
        }
        let indices: Vec<u32> = found.iter().map(|state| state.index).collect();
        let refusal = netplumb_knobs::refusal(&namespace, &states, &indices);
        let refusal = refusal.map_err(host("look up the default route"))?;
        let agreed = nics.agreed(&all);
        if let Some(mut text) = refusal.filter(|_| !nics.even_default_route) {
            if let Err(what) = agreed {
                text += &format!("\n{what}");
            }
            return Err(NicError::Asked(text).into());
        }
        agreed?;

        let own: Vec<Nic> = found.iter().map(Nic::from_state).collect();
        let journal = Journal::begin(&namespace, Used { nics: &own, ..Used::default() }, all)
            .map_err(BlockError::from)?;
        let journal = Arc::new(journal);
        let hold = || namespace.try_clone().map(Namespace::from);
        let held = hold().map_err(host("open a network namespace"))?;
        let mut keep = Applied::new(held, Some(journal.clone()));
        // XDP programs, bridges and forwarding turn some offloads off, and leave them off
        // (dev_disable_lro, net/core/dev.c).
        for nic in &own {
            keep.keep(Setting::Features { nic: nic.clone() }).map_err(BlockError::from)?;
        }
        Ok(Own { keep: Some(keep), journal, namespace, from, nic, to, sink })
    }

    pub(super) fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal)
    }

    pub(super) fn hold(&self) -> Result<Namespace, BlockError> {
        let held = self.namespace.try_clone().map(Namespace::from);
        held.map_err(BlockError::host("open a network namespace"))
    }

    /// Run the path on CPUs of its own, as long as the result lives.
    pub(super) fn put_on(&self, cpus: &[u32]) -> Result<Applied, BlockError> {
        let mut knobs = Applied::new(self.hold()?, Some(self.journal()));
        let made = knobs.make(threaded(&self.nic), "on", || {
            napi::put_on(&self.namespace, &self.nic.name, cpus)
                .map(drop)
                .map_err(BlockError::host("put the path on CPUs of its own"))
        })?;
        if !made {
            return Err(cannot(
                format!("threads poll {} already", self.nic.name),
                format!("`echo 0 > /sys/class/net/{}/threaded` first", self.nic.name),
            )
            .into());
        }
        Ok(knobs)
    }

    /// Restore the remaining settings; the error lists the ones that failed.
    pub fn end(mut self) -> Result<(), NicError> {
        drop(self.keep.take());
        match self.journal.failures() {
            failures if failures.is_empty() => Ok(()),
            failures => Err(NicError::NotPutBack(failures)),
        }
    }
}

fn threaded(nic: &Device) -> Setting {
    let mac = nic.permanent_mac.unwrap_or(nic.mac);
    let mac: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    Setting::Threaded { nic: Nic { name: nic.name.clone(), index: nic.index, mac: mac.join(":") } }
}

fn check_queues(namespace: &Namespace, nic: &Device, arms: &[BenchArm]) -> Result<(), BlockError> {
    let name = &nic.name;
    let queues = namespace.queues(name);
    let queues = queues.map_err(BlockError::host("get the queues of an interface"))?;
    let cores = arms.iter().map(|a| a.cores).max().unwrap_or(1);
    if queues.receive < cores {
        let s = if queues.receive == 1 { "" } else { "s" };
        return Err(cannot(
            format!(
                "{name} has only {} receive queue{s} for {cores} CPUs",
                queues.receive
            ),
            format!(
                "reduce --cores to {}, or increase the queues with `ethtool -L {name}` (`ethtool -l \
                 {name}` shows the maximum)",
                queues.receive
            ),
        )
        .into());
    }
    Ok(())
}

impl From<KnobError> for BlockError {
    fn from(error: KnobError) -> BlockError {
        match error {
            KnobError::InUse { .. } => {
                cannot(error.to_string(), "two runs would change the same").into()
            }
            other => BlockError::Path(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing is changed unless every interface was named.
    #[test]
    fn all_have_to_be_named() {
        let mut nics = Nics { nic: "in".into(), from: "out".into(), ..Nics::default() };
        let all = BTreeSet::from([Planned {
            on: Some("in".into()),
            what: "a program is attached".into(),
        }]);
        for some in [&[][..], &["in"], &["in", "other"]] {
            nics.yes_change = some.iter().map(|s| (*s).to_string()).collect();
            let message = nics.agreed(&all).unwrap_err().to_string();
            for word in ["in\n    a program is attached", "--yes-change out,in"] {
                assert!(message.contains(word), "{message}");
            }
        }
        nics.yes_change = vec!["out".into(), "in".into()];
        nics.agreed(&all).unwrap();
    }
}
