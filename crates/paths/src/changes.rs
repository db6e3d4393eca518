//! Changes to a namespace that are undone.

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

/// What was changed in a namespace. Dropped, all is as it was, the last change first;
/// what can't be undone is left: by then the device or the namespace is gone. On the
/// user's own interfaces a journal has it, and only what it can have is done.
pub(crate) struct Changes {
    pub(crate) namespace: Namespace,
    // Put back after the steps.
    knobs: Applied,
    undo: Vec<Step>,
    /// What was changed, for people.
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

    /// Whether it is on the user's own interfaces: the journal.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.knobs.journal().map(AsRef::as_ref)
    }

    /// A name for what plumb makes, which is unique on the user's own interfaces.
    pub(crate) fn own_name(&self, name: &str) -> String {
        match self.journal() {
            Some(journal) => format!("{name}_{}", journal.word()),
            None => name.into(),
        }
    }

    /// Change a setting, which is restored; whether it was otherwise.
    pub(crate) fn set(&mut self, setting: Setting, to: &str) -> Result<bool, PathError> {
        Ok(self.knobs.set(setting, to)?)
    }

    /// The same, where it comes about by something else.
    pub(crate) fn make(
        &mut self,
        setting: Setting,
        to: &str,
        make: impl FnOnce() -> Result<(), PathError>,
    ) -> Result<bool, PathError> {
        self.knobs.make(setting, to, make)
    }

    /// What is to be done when all is undone. Not on the user's own interfaces: no journal
    /// has it.
    pub(crate) fn later(&mut self, f: impl FnOnce(&Namespace) -> io::Result<()> + Send + 'static) {
        self.undo.push(Box::new(f));
    }

    /// What the kernel has counted in the namespace.
    pub(crate) fn counters(&self) -> Result<Counters, PathError> {
        Counters::read(self.namespace.as_fd())
            .doing(|| "read the kernel's counters in /proc/net".into())
    }

    /// Say something of it.
    pub(crate) fn note(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.facts.insert(key.into(), what.into());
    }

    /// GRO, which a veth needs so that it takes frames that XDP sends it: without there
    /// is no NAPI, and they vanish (`veth_xdp_xmit`, drivers/net/veth.c). UDP is not
    /// merged by it unless that is asked for, nor are SYNs: `udp_gro_receive`,
    /// `tcp_gro_receive`.
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

    /// What another program may leave behind at a device: a program of XDP, and that it
    /// takes all frames.
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

    /// Packets are taken from any source, whether there is a route to it or not.
    pub(crate) fn any_source(&mut self, device: &Device, site: &Site) -> Result<(), PathError> {
        if site.destination.is_ipv6() {
            // IPv6 does not look.
            return Ok(());
        }
        self.sysctl(RP_FILTER_ALL, "0")?;
        self.sysctl_of(RP_FILTER, device, "0")
    }

    /// Have packets to an address taken in. By a route, as there is for an address: a device
    /// that loses its last address would lose its routes and neighbours with it
    /// (fib_inetaddr_event, net/ipv4/fib_frontend.c).
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
        self.set(neighbour(device, address), &mac.join(":"))
            .map(drop)
    }

    /// A route to one address, unless packets to it leave by the device anyhow.
    pub(crate) fn route(&mut self, device: &Device, to: IpAddr) -> Result<(), PathError> {
        if self.namespace.device_to(to).ok().flatten() == Some(device.index) {
            return Ok(());
        }
        self.set(route(device, to, false), PRESENT).map(drop)
    }

    /// A route to the network that an address is in. Not on the user's own interfaces.
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

/// Whether packets are taken from sources that they would not be sent back to.
pub(crate) const RP_FILTER_ALL: &str = "net.ipv4.conf.all.rp_filter";
/// The same of an interface.
pub(crate) const RP_FILTER: &str = "net.ipv4.conf.{}.rp_filter";

impl Device {
    /// It, for the journal.
    pub(crate) fn nic(&self) -> Nic {
        let mac = self.permanent_mac.unwrap_or(self.mac);
        let mac: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        Nic {
            name: self.name.clone(),
            index: self.index,
            mac: mac.join(":"),
        }
    }
}

pub(crate) fn gro(device: &Device) -> Setting {
    Setting::Feature {
        nic: device.nic(),
        which: Offload::Gro,
    }
}

pub(crate) fn sysctl(key: &str) -> Setting {
    Setting::Sysctl {
        key: key.into(),
        nic: None,
    }
}

pub(crate) fn sysctl_of(key: &str, device: &Device) -> Setting {
    Setting::Sysctl {
        key: key.into(),
        nic: Some(device.nic()),
    }
}

pub(crate) fn route(device: &Device, to: IpAddr, local: bool) -> Setting {
    Setting::Route {
        nic: device.nic(),
        to,
        local,
    }
}

pub(crate) fn neighbour(device: &Device, address: IpAddr) -> Setting {
    Setting::Neighbour {
        nic: device.nic(),
        address,
    }
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
            KnobError::System { doing, source } => PathError::System {
                doing,
                source: source.into(),
            },
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
