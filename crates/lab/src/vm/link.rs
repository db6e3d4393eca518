//! The parts of each link in a guest, a row each. Its name, and where it exists, are in `netplumb_model::class::Link`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use netplumb_model::class::Link;
use netplumb_model::hosts::{HostOf, Side};
use netplumb_usb::{Ncm, Smsc95xx};

use super::device::{Controller, Device, NicModel, Plugged, port};
use super::usb;
use crate::netns::Nic;

/// The parts of a link in a guest.
#[derive(Debug)]
struct LinkParts {
    /// The NICs at its ends, if it has some: of one wire.
    ends: Option<[&'static NicModel; 2]>,
    /// The NIC of each of two hosts, if it can join some.
    of_host: Option<&'static NicModel>,
    /// Modules besides the NICs' drivers.
    modules: &'static [&'static str],
    /// The emulation that the guest's agent starts before NICs appear: it gets all of the guest's NICs, in the order of
    /// their wires, and runs until the guest ends.
    start: Option<Start>,
}

/// Starts what emulates NICs.
type Start = fn(&[Nic]) -> io::Result<()>;

/// Over UHCI counts differed by tenths of a percent between boots.
const XHCI: Controller = Controller { device: "qemu-xhci,id=usb", modules: &["xhci_pci"] };

const VIRTIO_NET: NicModel = NicModel {
    // tx=timer: packets leave by a timer of the guest's own clock; the default, a bottom
    // half, runs whenever the host gets to it.
    plugged: Plugged::AtStart("virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile="),
    controller: None,
    modules: &["virtio_pci", "virtio_net"],
    icount_shift: 0,
};

const E1000: NicModel = NicModel {
    plugged: Plugged::AtStart("e1000,romfile="),
    controller: None,
    modules: &["e1000"],
    // The driver reads the EEPROM bit by bit with 50 us of spinning between: on a clock of
    // 1 ns that alone is ten seconds of a boot.
    icount_shift: 2,
};

/// The default e1000, 82540EM, has no interrupt moderation that its driver could set.
const E1000_82545EM: NicModel =
    NicModel { plugged: Plugged::AtStart("e1000-82545em,romfile="), ..E1000 };

/// The same, which raises an interrupt whenever there is a reason.
const E1000_UNTHROTTLED: NicModel =
    NicModel { plugged: Plugged::AtStart("e1000-82545em,mitigation=off,romfile="), ..E1000 };

const E1000E: NicModel = NicModel {
    plugged: Plugged::AtStart("e1000e,romfile="),
    controller: None,
    modules: &["e1000e"],
    icount_shift: 0,
};

const USB_NET: NicModel = NicModel {
    // Unmigratable, according to hw/usb/dev-network.c of QEMU.
    plugged: Plugged::Late("usb-net", "usb.0"),
    controller: Some(&XHCI),
    modules: &["usbnet", "cdc_ether"],
    icount_shift: 0,
};

/// In the guest itself, so that it can be saved, and a packet's way depends on nothing outside.
const SMSC95XX: NicModel = NicModel {
    plugged: Plugged::ByAgent,
    controller: None,
    // smsc drives the PHY.
    modules: &["vhci_hcd", "smsc", "smsc95xx"],
    icount_shift: 0,
};

const CDC_NCM: NicModel = NicModel {
    plugged: Plugged::ByAgent,
    controller: None,
    modules: &["vhci_hcd", "cdc_ncm"],
    icount_shift: 0,
};

/// A link without anything.
const NOTHING: LinkParts = LinkParts { ends: None, of_host: None, modules: &[], start: None };

fn parts(link: Link) -> LinkParts {
    match link {
        Link::Lo | Link::Any => NOTHING,
        Link::Veth => LinkParts { modules: &["veth"], ..NOTHING },
        Link::VirtioNet => LinkParts {
            ends: Some([&VIRTIO_NET, &VIRTIO_NET]),
            of_host: Some(&VIRTIO_NET),
            ..NOTHING
        },
        Link::E1000 => {
            LinkParts { ends: Some([&E1000, &E1000]), of_host: Some(&E1000_82545EM), ..NOTHING }
        }
        Link::E1000e => {
            LinkParts { ends: Some([&E1000E, &E1000E]), of_host: Some(&E1000E), ..NOTHING }
        }
        Link::UsbNet => LinkParts { ends: Some([&USB_NET, &E1000]), ..NOTHING },
        Link::Smsc95xx => LinkParts {
            ends: Some([&SMSC95XX, &SMSC95XX]),
            start: Some(|nics| usb::start(nics, |mac| Box::new(Smsc95xx::new(mac)))),
            ..NOTHING
        },
        Link::CdcNcm => LinkParts {
            ends: Some([&CDC_NCM, &CDC_NCM]),
            start: Some(|nics| usb::start(nics, |mac| Box::new(Ncm::new(mac)))),
            ..NOTHING
        },
    }
}

/// The devices of QEMU that a link takes: with a router or a bridge between, of two wires.
pub(super) fn devices(link: Link, two_wires: bool) -> Vec<Device> {
    parts(link).devices(two_wires)
}

/// The NIC of one of two hosts, whose wire is not QEMU's.
pub(super) fn devices_of_host(link: Link, host: HostOf) -> Vec<Device> {
    let model = match (link, host.throttles) {
        (Link::E1000, false) => Some(&E1000_UNTHROTTLED),
        (link, _) => parts(link).of_host,
    };
    let nic = nic_of_host(host.side);
    let device = |model| Device::Nic { model, hub: 0, nic };
    model.map(device).into_iter().collect()
}

/// The NIC of one of two hosts.
pub fn nic_of_host(side: Side) -> Nic {
    nic(side as u8)
}

/// The name of its port in QEMU.
pub fn port_of_host(side: Side) -> String {
    port(&nic_of_host(side))
}

/// The ports of a guest's NICs in QEMU, for this number of wires, in the order of the wires.
pub fn ports(wires: u8) -> Vec<String> {
    nics(wires).iter().map(port).collect()
}

/// Modules of a link besides its devices' drivers.
pub(super) fn modules(link: Link) -> Vec<&'static str> {
    let parts = parts(link);
    // Drivers of NICs that are not QEMU devices.
    let by_agent = parts.ends.into_iter().flatten();
    let by_agent = by_agent.filter(|model| model.plugged == Plugged::ByAgent);
    let modules = by_agent.flat_map(|model| model.modules);
    let mut each: Vec<&str> = Vec::new();
    for module in modules.chain(parts.modules) {
        if !each.contains(module) {
            each.push(module);
        }
    }
    each
}

/// The guest's clock advances by 1 << shift nanoseconds per instruction.
///
/// One, where nothing speaks against it: then a nanosecond is an instruction.
pub fn icount_shift(link: Link) -> u8 {
    let ends = parts(link).ends.into_iter().flatten();
    ends.map(|model| model.icount_shift).max().unwrap_or(0)
}

/// The NICs of a guest with this number of wires, in the order of the wires.
pub fn nics(wires: u8) -> Vec<Nic> {
    (0..wires * 2).map(nic).collect()
}

fn nic(number: u8) -> Nic {
    Nic { mac: [0x52, 0x54, 0, 0x4e, 0x50, number] }
}

/// In a guest, start what a link's NICs take to appear, unless it was started before.
///
/// # Errors
/// The system's reason.
pub fn start(link: Link, wires: u8) -> io::Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    match parts(link).start {
        Some(start) if !STARTED.swap(true, Ordering::Relaxed) => start(&nics(wires)),
        _ => Ok(()),
    }
}

impl LinkParts {
    fn devices(&self, two_wires: bool) -> Vec<Device> {
        let Some(ends) = self.ends else {
            return Vec::new();
        };
        let mut devices = Vec::new();
        for controller in ends.iter().filter_map(|model| model.controller) {
            let device = Device::Controller(controller);
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        for hub in 0..if two_wires { 2 } else { 1 } {
            for (side, model) in ends.into_iter().enumerate() {
                if model.plugged != Plugged::ByAgent {
                    let nic = nic(hub * 2 + side as u8);
                    devices.push(Device::Nic { model, hub, nic });
                }
            }
        }
        devices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check QEMU's arguments for each link, word by word.
    #[test]
    fn every_link_for_qemu() {
        let arguments = |link, two_wires| {
            devices(link, two_wires)
                .iter()
                .flat_map(Device::qemu_args)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(arguments(Link::Lo, false), "");
        assert_eq!(arguments(Link::Veth, true), "");
        assert_eq!(
            arguments(Link::E1000, false),
            "-netdev hubport,id=nic0,hubid=0 \
             -device e1000,romfile=,netdev=nic0,mac=52:54:00:4e:50:00 \
             -netdev hubport,id=nic1,hubid=0 \
             -device e1000,romfile=,netdev=nic1,mac=52:54:00:4e:50:01"
        );
        assert_eq!(
            arguments(Link::VirtioNet, false),
            "-netdev hubport,id=nic0,hubid=0 \
             -device virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile=,\
             netdev=nic0,mac=52:54:00:4e:50:00 \
             -netdev hubport,id=nic1,hubid=0 \
             -device virtio-net-pci,tx=timer,x-txtimer=10000,ioeventfd=off,romfile=,\
             netdev=nic1,mac=52:54:00:4e:50:01"
        );
        assert_eq!(
            arguments(Link::UsbNet, true),
            "-device qemu-xhci,id=usb \
             -netdev hubport,id=nic0,hubid=0 \
             -netdev hubport,id=nic1,hubid=0 \
             -device e1000,romfile=,netdev=nic1,mac=52:54:00:4e:50:01 \
             -netdev hubport,id=nic2,hubid=1 \
             -netdev hubport,id=nic3,hubid=1 \
             -device e1000,romfile=,netdev=nic3,mac=52:54:00:4e:50:03"
        );
    }

    /// Check that a link has NICs where it is declared so, and that the NICs of two wires are in the order of the
    /// wires.
    #[test]
    fn as_declared() {
        for link in Link::ALL {
            assert_eq!(parts(*link).ends.is_some(), link.has_nics(), "{link}");
            let of_hosts = parts(*link).of_host.is_some();
            assert_eq!(of_hosts, link.declared().hosts, "{link}");
        }
        let macs: Vec<u8> = nics(2).iter().map(|nic| nic.mac[5]).collect();
        assert_eq!(macs, [0, 1, 2, 3]);
        let devices = devices(Link::UsbNet, true);
        let of_devices = devices.iter().filter_map(|device| match device {
            Device::Nic { nic, .. } => Some(*nic),
            _ => None,
        });
        assert_eq!(of_devices.collect::<Vec<_>>(), nics(2));
    }

    /// Check that NICs which the agent emulates are not devices of QEMU.
    #[test]
    fn by_the_agent() {
        const EMULATED: NicModel = NicModel {
            plugged: Plugged::ByAgent,
            controller: None,
            modules: &["vhci_hcd"],
            icount_shift: 0,
        };
        let link = LinkParts { ends: Some([&EMULATED, &EMULATED]), ..NOTHING };
        assert_eq!(link.devices(true), []);
    }
}
