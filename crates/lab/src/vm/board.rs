//! QEMU's machine for each architecture, and all that differs with it.

use netplumb_model::arch::Arch;

use super::acpi;
use super::cpu::{self, Cpu};

/// QEMU's machine for an architecture, and what differs with it.
#[derive(Debug)]
pub(super) struct Board {
    /// QEMU's machine, with options.
    pub(super) machine: &'static str,
    /// The CPU.
    pub(super) cpu: &'static Cpu,
    /// The CPU of two hosts.
    pub(super) hosts_cpu: &'static Cpu,
    /// A note on how instructions count there.
    pub(super) note: &'static str,
    /// The device that pauses the guest.
    pub(super) panic: &'static str,
    /// The kernel's console.
    pub(super) console: &'static str,
    /// Further kernel parameters.
    pub(super) cmdline: &'static str,
    /// Kernel parameters that turn mitigations off.
    pub(super) unmitigated: &'static str,
    /// Kernel parameters of a guest whose programs exceed its root, by default half of its memory.
    pub(super) large_root: &'static str,
    /// The agent's serial port, where there is no virtio port.
    pub(super) fallback: Fallback,
    /// Whether a guest that starts from a saved state needs the ROM that booted its kernel.
    pub(super) boots_by_rom: bool,
    /// The ACPI table in place of QEMU's.
    pub(super) dsdt: Option<&'static [u8]>,
}

/// The serial port that the agent uses without a virtio port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The machine's second one.
    Second,
    /// One on the PCI bus.
    Pci,
}

impl Fallback {
    /// Its name in the guest.
    pub(super) fn path(self) -> &'static str {
        match self {
            Fallback::Second => "/dev/ttyS1",
            Fallback::Pci => "/dev/ttyS0",
        }
    }

    /// Kernel options needed for it.
    pub(super) fn needs(self) -> &'static str {
        match self {
            Fallback::Second => "SERIAL_8250",
            Fallback::Pci => "PCI_HOST_GENERIC with SERIAL_8250_PCI",
        }
    }
}

/// The machine of an architecture.
pub(super) fn board_for(arch: Arch) -> &'static Board {
    match arch {
        Arch::X86_64 => &PC,
        Arch::Arm64 => &VIRT,
    }
}

/// The machine's version is fixed, since the kernel keeps its name and other SMBIOS strings in memory: a longer one
/// moved pages.
///
/// nolapic_timer: the HPET ticks; to calibrate the local APIC's timer the kernel spins for 100 ms on `pause`, which
/// leaves QEMU's execution loop each time: half of the boot time. tsc=reliable, no_timer_check: skip other measurements
/// of the boot; likewise hpet_late_init (/dev/hpet, not the tick) and i8042_init (a keyboard).
static PC: Board = Board {
    machine: "pc-i440fx-7.2",
    cpu: &cpu::X86_64,
    hosts_cpu: &cpu::X86_64_OF_HOSTS,
    note: "each iteration of a rep string instruction counts as one (erms and fsrm off)",
    panic: "pvpanic,ioport=1285",
    console: "ttyS0",
    cmdline: "nolapic_timer tsc=reliable no_timer_check random.trust_cpu=on audit=0 \
              cryptomgr.notests retain_initrd initcall_blacklist=hpet_late_init,i8042_init",
    unmitigated: "mitigations=off",
    large_root: "",
    fallback: Fallback::Second,
    boots_by_rom: true,
    dsdt: Some(acpi::DSDT),
};

/// randomize_kstack_offset: where the stack begins in a system call depends on all random numbers since the
/// boot, and how many instructions `memset` takes for what lies there on its alignment.
static VIRT: Board = Board {
    machine: "virt,gic-version=2",
    cpu: &cpu::ARM64,
    hosts_cpu: &cpu::ARM64,
    note: "every instruction counts as one",
    panic: "pvpanic-pci",
    console: "ttyAMA0",
    cmdline: "random.trust_cpu=on audit=0 cryptomgr.notests retain_initrd",
    unmitigated: "mitigations=off randomize_kstack_offset=off",
    large_root: "rootfstype=ramfs",
    fallback: Fallback::Pci,
    boots_by_rom: false,
    dsdt: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each architecture has a machine of its own, with a way to pause it.
    #[test]
    fn machines() {
        assert!(board_for(Arch::X86_64).panic.starts_with("pvpanic,ioport="));
        assert_eq!(board_for(Arch::Arm64).panic, "pvpanic-pci");
        assert_ne!(board_for(Arch::X86_64).console, board_for(Arch::Arm64).console);
    }
}
