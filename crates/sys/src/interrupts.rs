//! The interrupts of a network interface.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::netns::Namespace;

/// Interfaces by name.
const NICS: &str = "/sys/class/net";
const INTERRUPTS: &str = "/proc/interrupts";

/// The numbers of a namespace's interface's interrupts, for its queues or for all; none if it is virtual.
///
/// # Errors
/// /proc is not mounted.
pub fn of_nic(namespace: &Namespace, name: &str) -> io::Result<BTreeSet<u32>> {
    let table = fs::read_to_string(INTERRUPTS)?;
    namespace.with_sysfs(|| of_nic_in(Path::new(NICS), &table, name))
}

fn of_nic_in(nics: &Path, table: &str, name: &str) -> io::Result<BTreeSet<u32>> {
    let in_use: BTreeSet<u32> = lines(table).map(|(irq, _)| irq).collect();
    let device = nics.join(name).join("device");
    if !device.exists() {
        return Ok(BTreeSet::new());
    }
    // A virtio device has its PCI device's.
    let above = device.join("..");
    let is_virtio = fs::read_link(device.join("subsystem"))
        .is_ok_and(|bus| bus.file_name().is_some_and(|bus| bus == "virtio"));
    let folders = match is_virtio {
        true => vec![device.as_path(), above.as_path()],
        false => vec![device.as_path()],
    };
    for folder in &folders {
        let entries = fs::read_dir(folder.join("msi_irqs")).into_iter().flatten();
        let own: BTreeSet<u32> = (entries.flatten())
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|irq| in_use.contains(irq))
            .collect();
        if !own.is_empty() {
            return Ok(own);
        }
    }
    // Drivers name an interrupt after their interface, which may be shared.
    let is_own = |actions: &str| {
        let mut words = actions.split([',', ' ']).map(str::trim);
        words.any(|word| {
            let parts: Vec<&str> = word.split(['-', ':', '@']).collect();
            parts.contains(&name)
        })
    };
    let named: BTreeSet<u32> =
        (lines(table)).filter(|(_, actions)| is_own(actions)).map(|(irq, _)| irq).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let single = folders.iter().find_map(|folder| {
        let irq = fs::read_to_string(folder.join("irq")).ok()?;
        irq.trim().parse().ok().filter(|irq| in_use.contains(irq))
    });
    Ok(single.into_iter().collect())
}

/// The numbered interrupts, each with the text after its counts.
fn lines(table: &str) -> impl Iterator<Item = (u32, &str)> {
    table.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let is_count = |c: char| c.is_ascii_digit() || c == ' ';
        Some((number.trim().parse().ok()?, rest.trim_start_matches(is_count)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const TABLE: &str = "           CPU0       CPU1
  1:          0          9   IO-APIC   1-edge      i8042
 11:          0          0   IO-APIC  11-fasteoi   uhci_hcd:usb1, eth1
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      12454 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 50:          7          0 PCI-MSI 1-edge      i40e-eth5-TxRx-0
 51:          7          0 PCI-MSI 1-edge      eth50-rx-0
NMI:          0          0   Non-maskable interrupts
";

    /// Check that interrupts are found of a PCI device, of one that virtio drives, by name and by number, and
    /// none of a virtual interface.
    #[test]
    fn of_any_kind() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (nics, bus) = (root.join("net"), root.join("bus"));
        let make = |path: &Path| fs::create_dir_all(path).unwrap();
        for irq in ["37", "38", "39"] {
            make(&root.join("pci/a/virtio2"));
            make(&root.join("pci/a/msi_irqs"));
            fs::write(root.join("pci/a/msi_irqs").join(irq), "msix").unwrap();
        }
        make(&root.join("pci/b/msi_irqs"));
        fs::write(root.join("pci/b/msi_irqs/51"), "msi").unwrap();
        make(&root.join("pci/c"));
        fs::write(root.join("pci/c/irq"), "11\n").unwrap();
        for bus_name in ["virtio", "pci"] {
            make(&bus.join(bus_name));
        }
        for (name, device, bus_name) in [
            ("eth0", "pci/a/virtio2", "virtio"),
            ("eth50", "pci/b", "pci"),
            ("eth1", "pci/c", "pci"),
            ("eth5", "pci/d", "pci"),
            ("eth7", "pci/c", "pci"),
        ] {
            make(&root.join(device));
            make(&nics.join(name));
            symlink(root.join(device), nics.join(name).join("device")).unwrap();
            let subsystem = root.join(device).join("subsystem");
            if !subsystem.exists() {
                symlink(bus.join(bus_name), subsystem).unwrap();
            }
        }
        make(&nics.join("veth0"));
        for (name, irqs) in [
            ("eth0", &[37, 38][..]),
            ("eth50", &[51]),
            ("eth1", &[11]),
            ("eth5", &[50]),
            ("eth7", &[11]),
            ("veth0", &[]),
            ("none", &[]),
        ] {
            let found = of_nic_in(&nics, TABLE, name).unwrap();
            assert_eq!(found, irqs.iter().copied().collect(), "{name}");
        }
    }
}
