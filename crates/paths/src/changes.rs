//! Temporary changes to a namespace.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use netplumb_knobs::{Applied, Journal, KnobError, Nic, PRESENT, Setting};
use netplumb_model::experiment::Offload;
use netplumb_sys::netns::Namespace;
use netplumb_sys::proc::counters::Counters;

use crate::error::{Doing, PathError};
use crate::{Device, Site, bpf};

type Step = Box<dyn FnOnce(&Namespace) -> io::Result<()> + Send>;

/// The changes in a namespace. Undone when dropped, the last change first; what can't be undone is
/// ignored, since the device or the namespace is gone then. On interfaces of this machine there is
/// a journal, and only changes that it supports are made.
pub(crate) struct Changes {
    pub(crate) namespace: Namespace,
    // Restored after the steps.
    knobs: Applied,
    undo: Vec<Step>,
    /// Descriptions of changes, for users.
    pub(crate) facts: BTreeMap<String, String>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes")
            .field("knobs", &self.knobs)
            .field("steps", &self.undo.len())
            .finish_non_exhaustive()
    }
}

impl Changes {
    pub(crate) fn at(site: &Site) -> Result<Changes, PathError> {
        Ok(Changes {
            namespace: site.namespace()?,
            knobs: Applied::new(site.namespace()?, site.journal.clone()),
            undo: Vec::new(),
            facts: BTreeMap::new(),
        })
    }

    /// The journal, on interfaces of this machine.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.knobs.journal().map(AsRef::as_ref)
    }

    /// A name for an object that plumb creates; unique on interfaces of this machine.
    pub(crate) fn own_name(&self, name: &str) -> String {
        match self.journal() {
            Some(journal) => format!("{name}_{}", journal.word()),
            None => name.into(),
        }
    }

    /// Change a setting temporarily; returns whether it changed.
    pub(crate) fn set(&mut self, setting: Setting, to: &str) -> Result<bool, PathError> {
        Ok(self.knobs.set(setting, to)?)
    }

    /// The same, for a setting that another operation changes.
    pub(crate) fn make(
        &mut self,
        setting: Setting,
        to: &str,
        make: impl FnOnce() -> Result<(), PathError>,
    ) -> Result<bool, PathError> {
        self.knobs.make(setting, to, make)
    }

    /// Run a function when changes are undone. Not on interfaces of this machine: journals don't
    /// support it.
    pub(crate) fn later(&mut self, f: impl FnOnce(&Namespace) -> io::Result<()> + Send + 'static) {
        self.undo.push(Box::new(f));
    }

    /// The kernel's counters in the namespace.
    pub(crate) fn counters(&self) -> Result<Counters, PathError> {
        Counters::read(self.namespace.as_fd())
            .doing(|| "read the kernel's counters in /proc/net".into())
    }

    /// Add a description.
    pub(crate) fn note(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.facts.insert(key.into(), what.into());
    }

    /// Turn on GRO, which a veth needs to accept frames by XDP: without it there is no NAPI, and
    /// they are lost (`veth_xdp_xmit`, drivers/net/veth.c). It merges neither UDP, unless
    /// requested, nor SYNs: `udp_gro_receive`, `tcp_gro_receive`.
    pub(crate) fn gro(&mut self, device: &Device) -> Result<(), PathError> {
        let name = &device.name;
        if !self.set(gro(device), "on")? {
            self.note(format!("path.gro.{name}"), "was on");
            return Ok(());
        }
        self.note(
            format!("path.gro.{name}"),
            "turned on, so that the device accepts frames that XDP sends; it merges neither UDP nor SYNs",
        );
        Ok(())
    }

    /// Restore what another program may leave behind on a device: an XDP program, promiscuous mode.
    pub(crate) fn as_it_was(&mut self, device: &Device) -> Result<(), PathError> {
        let (index, name) = (device.index, device.name.clone());
        let program = self.namespace.inside(|| bpf::xdp_id(index));
        if program.doing(|| format!("query the XDP program of {name}"))? != 0 {
            return Err(PathError::cannot(
                format!("{name} already has an XDP program"),
                format!("detach it (`ip link set dev {name} xdp off`), or use another device"),
            ));
        }
        let states = self.namespace.device_states();
        let states = states.doing(|| "list the devices".into())?;
        let takes_all = states.iter().any(|d| d.index == index && d.promiscuous);
        self.later(move |namespace| {
            namespace.inside(|| bpf::xdp_off(index))?;
            namespace.set_promiscuous(index, takes_all)
        });
        Ok(())
    }

    pub(crate) fn sysctl(&mut self, key: &str, value: &str) -> Result<(), PathError> {
        if self.set(sysctl(key), value)? {
            self.note(format!("path.sysctl.{key}"), value);
        }
        Ok(())
    }

    pub(crate) fn sysctl_of(
        &mut self,
        key: &str,
        device: &Device,
        value: &str,
    ) -> Result<(), PathError> {
        if self.set(sysctl_of(key, device), value)? {
            let key = key.replace("{}", &device.name);
            self.note(format!("path.sysctl.{key}"), value);
        }
        Ok(())
    }

    /// Accept packets from any source, with or without a route to it.
    pub(crate) fn any_source(&mut self, device: &Device, site: &Site) -> Result<(), PathError> {
        if site.destination.is_ipv6() {
            // IPv6 does not check.
            return Ok(());
        }
        self.sysctl(RP_FILTER_ALL, "0")?;
        self.sysctl_of(RP_FILTER, device, "0")
    }

    /// Receive packets to an address, by a route of type `local`, as for an address: a device that
    /// loses its last address would lose its routes and neighbours with it (fib_inetaddr_event,
    /// net/ipv4/fib_frontend.c).
    pub(crate) fn address(&mut self, device: &Device, address: IpAddr) -> Result<(), PathError> {
        let local = self.namespace.is_local(address);
        if local.doing(|| format!("look up the address {address}"))? {
            return Ok(());
        }
        self.set(route(device, address, true), PRESENT).map(drop)
    }

    pub(crate) fn neighbour(
        &mut self,
        device: &Device,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), PathError> {
        let mac: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        self.set(neighbour(device, address), &mac.join(":")).map(drop)
    }

    /// Add a route to an address, unless there is one by the device.
    pub(crate) fn route(&mut self, device: &Device, to: IpAddr) -> Result<(), PathError> {
        if self.namespace.device_to(to).ok().flatten() == Some(device.index) {
            return Ok(());
        }
        self.set(route(device, to, false), PRESENT).map(drop)
    }

    /// Add a route to the network of an address. Not on interfaces of this machine.
    pub(crate) fn network(
        &mut self,
        device: &Device,
        network: IpAddr,
        prefix_len: u8,
    ) -> Result<(), PathError> {
        let index = device.index;
        let added = (self.namespace).add_device_route(index, network, prefix_len);
        if added.doing(|| format!("route {network} by {}", device.name))? {
            self.later(move |namespace| namespace.remove_device_route(index, network, prefix_len));
        }
        Ok(())
    }
}

/// The sysctl of reverse path filtering.
pub(crate) const RP_FILTER_ALL: &str = "net.ipv4.conf.all.rp_filter";
/// The same for an interface.
pub(crate) const RP_FILTER: &str = "net.ipv4.conf.{}.rp_filter";

impl Device {
    /// Its identity for the journal.
    pub(crate) fn nic(&self) -> Nic {
        let mac = self.permanent_mac.unwrap_or(self.mac);
        let mac: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        Nic { name: self.name.clone(), index: self.index, mac: mac.join(":") }
    }
}

pub(crate) fn gro(device: &Device) -> Setting {
    Setting::Feature { nic: device.nic(), which: Offload::Gro }
}

pub(crate) fn sysctl(key: &str) -> Setting {
    Setting::Sysctl { key: key.into(), nic: None }
}

pub(crate) fn sysctl_of(key: &str, device: &Device) -> Setting {
    Setting::Sysctl { key: key.into(), nic: Some(device.nic()) }
}

pub(crate) fn route(device: &Device, to: IpAddr, local: bool) -> Setting {
    Setting::Route { nic: device.nic(), to, local }
}

pub(crate) fn neighbour(device: &Device, address: IpAddr) -> Setting {
    Setting::Neighbour { nic: device.nic(), address }
}

impl From<KnobError> for PathError {
    fn from(error: KnobError) -> PathError {
        let denied = matches!(
            &error,
            KnobError::System { source, .. } if source.raw_os_error() == Some(libc::EPERM)
        );
        match error {
            _ if denied => PathError::cannot(
                error.to_string(),
                "run it as root (CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF)",
            ),
            KnobError::System { doing, source } => {
                PathError::System { doing, source: source.into() }
            }
            other => PathError::Knob(other),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        while let Some(step) = self.undo.pop() {
            let _ = step(&self.namespace);
        }
    }
}
