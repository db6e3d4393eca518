//! Identifies an interface, also if it was renamed.

use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;
use serde::{Deserialize, Serialize};

use crate::error::KnobError;

/// An interface: by its index, which a namespace does not reuse by itself, and by its MAC address,
/// since an index can be requested.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Nic {
    /// Its name when it was identified.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its permanent MAC address, or its current one if it has none; in hexadecimal.
    pub mac: String,
}

fn hex(mac: &[u8]) -> String {
    let bytes: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    bytes.join(":")
}

fn address(state: &DeviceState) -> String {
    hex(state.permanent_mac.as_deref().unwrap_or(&state.mac))
}

impl Nic {
    /// From the state of a device.
    pub fn from_state(state: &DeviceState) -> Nic {
        Nic { name: state.name.clone(), index: state.index, mac: address(state) }
    }

    /// Whether a device is this interface.
    pub fn is(&self, state: &DeviceState) -> bool {
        self.index == state.index && self.mac == address(state)
    }

    /// Its current state.
    ///
    /// # Errors
    /// It is gone, or a query of the namespace failed.
    pub fn state(&self, namespace: &Namespace) -> Result<DeviceState, KnobError> {
        let states = namespace.device_states();
        let states = states.map_err(KnobError::system("list the interfaces"))?;
        let mut states = states.into_iter();
        states
            .find(|state| self.is(state))
            .ok_or_else(|| KnobError::Gone { what: "interface", name: self.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(index: u32, name: &str, mac: u8, permanent: Option<u8>) -> DeviceState {
        DeviceState {
            index,
            name: name.into(),
            mac: vec![2, 0, 0, 0, 0, mac],
            permanent_mac: permanent.map(|mac| vec![2, 0, 0, 0, 0, mac]),
            ..DeviceState::default()
        }
    }

    /// Check that an interface is recognised with another name or a changed address, and that
    /// another one in its place is not.
    #[test]
    fn the_same_or_another() {
        let nic = Nic::from_state(&state(3, "eth3", 7, Some(1)));
        assert!(nic.is(&state(3, "eth3", 7, Some(1))));
        assert!(nic.is(&state(3, "wan", 9, Some(1))));
        assert!(!nic.is(&state(3, "eth3", 7, Some(2))));
        assert!(!nic.is(&state(4, "eth3", 7, Some(1))));
        let veth = Nic::from_state(&state(3, "v0", 7, None));
        assert!(veth.is(&state(3, "v1", 7, None)));
        assert!(!veth.is(&state(3, "v0", 8, None)));
    }
}
