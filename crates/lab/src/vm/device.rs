//! Devices of a guest, as values: QEMU's arguments, and their drivers.

use crate::netns::Nic;

/// A device of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The port for messages.
    Agent {
        /// Descriptor of the peer of our end, inherited by QEMU.
        fd: i32,
    },
    /// A plain serial port: the console first, then the agent's fallback.
    Serial {
        /// Its id in QEMU.
        id: &'static str,
        /// Descriptor, as above.
        fd: i32,
    },
    /// One on the PCI bus.
    PciSerial {
        /// Its id in QEMU.
        id: &'static str,
        /// Descriptor, as above.
        fd: i32,
    },
    /// A host controller.
    Controller(&'static Controller),
    /// A NIC on a hub: NICs of one hub are wired to each other.
    Nic {
        /// What kind.
        model: &'static NicModel,
        /// Which hub, from 0.
        hub: u8,
        /// The NIC's MAC address.
        nic: Nic,
    },
}

/// A kind of NIC.
#[derive(Debug, PartialEq, Eq)]
pub struct NicModel {
    /// How it gets into the guest.
    pub(super) plugged: Plugged,
    /// Its host controller, if it is not on the PCI bus.
    pub(super) controller: Option<&'static Controller>,
    /// Modules that drive it.
    pub(super) modules: &'static [&'static str],
    /// Shift of the guest's clock with it: see [`super::link::icount_shift`].
    pub(super) icount_shift: u8,
}

/// How a NIC gets into a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plugged {
    /// It is there from the start: QEMU's device, with options.
    AtStart(&'static str),
    /// Later, since QEMU can't save it: QEMU's device, and its bus.
    Late(&'static str, &'static str),
    /// By the guest's agent, which emulates it: QEMU knows nothing of it.
    ByAgent,
}

/// A host controller that devices are plugged into.
#[derive(Debug, PartialEq, Eq)]
pub struct Controller {
    /// QEMU's device, with options.
    pub(super) device: &'static str,
    /// Modules that drive it.
    pub(super) modules: &'static [&'static str],
}

/// Name of the agent's port, in QEMU and in the guest.
pub const AGENT_PORT: &str = "netplumb.agent";

impl Device {
    /// QEMU's arguments.
    pub fn qemu_args(&self) -> Vec<String> {
        let words: Vec<String> = match self {
            Device::Agent { fd } => vec![
                "-chardev".into(),
                format!("socket,id=agent,fd={fd}"),
                // No ioeventfd: a kick is then handled synchronously, not by another thread at an
                // undefined time.
                "-device".into(),
                "virtio-serial-pci,ioeventfd=off,max_ports=2".into(),
                "-device".into(),
                format!("virtserialport,chardev=agent,name={AGENT_PORT}"),
            ],
            Device::Serial { id, fd } => vec![
                "-chardev".into(),
                format!("socket,id={id},fd={fd}"),
                "-serial".into(),
                format!("chardev:{id}"),
            ],
            Device::PciSerial { id, fd } => vec![
                "-chardev".into(),
                format!("socket,id={id},fd={fd}"),
                "-device".into(),
                format!("pci-serial,chardev={id}"),
            ],
            Device::Controller(controller) => vec!["-device".into(), controller.device.into()],
            Device::Nic { model, hub, nic } => {
                let id = port(nic);
                let mac = mac(nic);
                let mut args = vec!["-netdev".into(), format!("hubport,id={id},hubid={hub}")];
                if let Plugged::AtStart(device) = model.plugged {
                    let device = format!("{device},netdev={id},mac={mac}");
                    args.extend(["-device".into(), device]);
                }
                args
            }
        };
        words
    }

    /// The arguments of `device_add`, for a hot-plugged device.
    pub fn late(&self) -> Option<serde_json::Value> {
        match self {
            Device::Nic { model, nic, .. } => match model.plugged {
                Plugged::Late(driver, bus) => Some(serde_json::json!({
                    "driver": driver,
                    "bus": bus,
                    "netdev": port(nic),
                    "mac": mac(nic),
                })),
                Plugged::AtStart(_) | Plugged::ByAgent => None,
            },
            _ => None,
        }
    }

    /// The modules of its driver; they may be built in.
    pub fn modules(&self) -> &'static [&'static str] {
        match self {
            Device::Agent { .. } => &["virtio_pci", "virtio_console"],
            Device::Serial { .. } | Device::PciSerial { .. } => &[],
            Device::Controller(controller) => controller.modules,
            Device::Nic { model, .. } => model.modules,
        }
    }
}

/// The name of a NIC's port on its hub.
pub(super) fn port(nic: &Nic) -> String {
    format!("nic{}", nic.mac[5])
}

fn mac(nic: &Nic) -> String {
    nic.mac.map(|b| format!("{b:02x}")).join(":")
}
