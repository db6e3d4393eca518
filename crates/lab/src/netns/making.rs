//! A topology that is being made.

use std::collections::BTreeMap;
use std::io;

use netplumb_model::topology::DeviceSpec;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;

use super::plan::{Doing, TopologyError, TopologyPlan};

/// The namespaces of a topology, by name.
pub(super) type Namespaces = [(String, Namespace)];

/// A step towards a topology: the plan, the namespaces that exist, and whether they are this machine's.
pub(super) struct Making<'a> {
    pub(super) plan: &'a TopologyPlan,
    pub(super) namespaces: &'a Namespaces,
    pub(super) on_machine: bool,
    pub(super) macs: BTreeMap<&'a str, [u8; 6]>,
}

impl Making<'_> {
    pub(super) fn namespace(&self, name: &str) -> Result<&Namespace, TopologyError> {
        let found = self.namespaces.iter().find(|(known, _)| known == name);
        found.map(|(_, namespace)| namespace).doing(|| format!("find the namespace {name}"))
    }

    /// The MAC address to give a device.
    pub(super) fn mac(&self, device: &DeviceSpec) -> [u8; 6] {
        self.macs.get(device.name.as_str()).copied().unwrap_or_default()
    }
}

/// A device by its name.
pub(super) fn find(netlink: &mut Netlink, name: &str) -> io::Result<DeviceState> {
    let found = netlink.devices()?.into_iter().find(|device| device.name == name);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the device is gone"))
}
