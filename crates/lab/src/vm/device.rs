//! Devices of a guest, as values: QEMU's arguments, and their drivers.

use netplumb_model::class::Link;

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
    /// A USB host controller.
    Usb,
    /// A NIC on a hub: NICs of one hub are connected to each other.
    Nic {
        /// The model.
        model: NicModel,
        /// The hub, from 0.
        hub: u8,
        /// Its address.
        nic: Nic,
    },
}

/// Kinds of NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicModel {
    /// virtio-net over PCI.
    VirtioNet,
    /// Intel 82540EM.
    E1000,
    /// CDC Ethernet over USB.
    UsbNet,
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
            Device::Usb => vec!["-device".into(), "qemu-xhci,id=usb".into()],
            Device::Nic { model, hub, nic } => {
                let id = format!("nic{}", nic.mac[5]);
                let mac = mac(nic);
                // Hot-plugged later: QEMU can't save one (hw/usb/dev-network.c).
                if *model == NicModel::UsbNet {
                    return vec!["-netdev".into(), format!("hubport,id={id},hubid={hub}")];
                }
                let device = match model {
                    // tx=timer: packets are sent by a timer of the guest's clock; the default, a
                    // bottom half, runs at a time that depends on the host.
                    NicModel::VirtioNet => {
                        "virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile="
                    }
                    NicModel::E1000 => "e1000,romfile=",
                    NicModel::UsbNet => "usb-net",
                };
                vec![
                    "-netdev".into(),
                    format!("hubport,id={id},hubid={hub}"),
                    "-device".into(),
                    format!("{device},netdev={id},mac={mac}"),
                ]
            }
        };
        words
    }

    /// The arguments of `device_add`, for a hot-plugged device.
    pub fn late(&self) -> Option<serde_json::Value> {
        match self {
            Device::Nic {
                model: NicModel::UsbNet,
                nic,
                ..
            } => Some(serde_json::json!({
                "driver": "usb-net",
                "bus": "usb.0",
                "netdev": format!("nic{}", nic.mac[5]),
                "mac": mac(nic),
            })),
            _ => None,
        }
    }

    /// The modules of its driver; they may be built in.
    pub fn modules(&self) -> &'static [&'static str] {
        match self {
            Device::Agent { .. } => &["virtio_pci", "virtio_console"],
            Device::Serial { .. } => &[],
            Device::Usb => &["xhci_pci"],
            Device::Nic {
                model: NicModel::VirtioNet,
                ..
            } => &["virtio_pci", "virtio_net"],
            Device::Nic {
                model: NicModel::E1000,
                ..
            } => &["e1000"],
            Device::Nic {
                model: NicModel::UsbNet,
                ..
            } => &["usbnet", "cdc_ether"],
        }
    }
}

fn mac(nic: &Nic) -> String {
    nic.mac.map(|b| format!("{b:02x}")).join(":")
}

/// The devices of a link.
pub fn for_link(link: Link, forward: bool) -> Vec<Device> {
    use NicModel::{E1000, UsbNet, VirtioNet};
    let ends = match link {
        Link::Lo | Link::Veth | Link::Any => return Vec::new(),
        Link::VirtioNet => [VirtioNet, VirtioNet],
        Link::E1000 => [E1000, E1000],
        Link::UsbNet => [UsbNet, E1000],
    };
    let mut devices = Vec::new();
    if ends.contains(&UsbNet) {
        devices.push(Device::Usb);
    }
    for hub in 0..if forward { 2 } else { 1 } {
        for (side, model) in ends.into_iter().enumerate() {
            let number = hub * 2 + side as u8;
            let nic = Nic {
                mac: [0x52, 0x54, 0, 0x4e, 0x50, number],
            };
            devices.push(Device::Nic { model, hub, nic });
        }
    }
    devices
}

/// Modules of links without emulated devices.
pub fn link_modules(link: Link) -> &'static [&'static str] {
    match link {
        Link::Veth => &["veth"],
        Link::Lo | Link::VirtioNet | Link::E1000 | Link::UsbNet | Link::Any => &[],
    }
}

/// The NICs among some devices, in the order of their wires.
pub fn nics(devices: &[Device]) -> Vec<Nic> {
    devices
        .iter()
        .filter_map(|d| match d {
            Device::Nic { nic, .. } => Some(*nic),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check QEMU's arguments for each link, word by word.
    #[test]
    fn every_link_as_told_to_qemu() {
        let told = |link, forward| {
            for_link(link, forward)
                .iter()
                .flat_map(Device::qemu_args)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(told(Link::Lo, false), "");
        assert_eq!(told(Link::Veth, true), "");
        assert_eq!(
            told(Link::E1000, false),
            "-netdev hubport,id=nic0,hubid=0 \
             -device e1000,romfile=,netdev=nic0,mac=52:54:00:4e:50:00 \
             -netdev hubport,id=nic1,hubid=0 \
             -device e1000,romfile=,netdev=nic1,mac=52:54:00:4e:50:01"
        );
        assert_eq!(
            told(Link::VirtioNet, false),
            "-netdev hubport,id=nic0,hubid=0 \
             -device virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile=,\
             netdev=nic0,mac=52:54:00:4e:50:00 \
             -netdev hubport,id=nic1,hubid=0 \
             -device virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile=,\
             netdev=nic1,mac=52:54:00:4e:50:01"
        );
        assert_eq!(
            told(Link::UsbNet, true),
            "-device qemu-xhci,id=usb \
             -netdev hubport,id=nic0,hubid=0 \
             -netdev hubport,id=nic1,hubid=0 \
             -device e1000,romfile=,netdev=nic1,mac=52:54:00:4e:50:01 \
             -netdev hubport,id=nic2,hubid=1 \
             -netdev hubport,id=nic3,hubid=1 \
             -device e1000,romfile=,netdev=nic3,mac=52:54:00:4e:50:03"
        );
    }

    /// Check that a router has a pair of NICs on each side, in order.
    #[test]
    fn a_router_needs_four() {
        let macs: Vec<u8> = nics(&for_link(Link::UsbNet, true))
            .iter()
            .map(|nic| nic.mac[5])
            .collect();
        assert_eq!(macs, [0, 1, 2, 3]);
    }
}
