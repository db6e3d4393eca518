//! Options of a kernel's configuration that guests need.

use netplumb_model::arch::Arch;

use crate::config::KernelConfig;

/// An option, and what a guest lacks without it.
#[derive(Debug, PartialEq, Eq)]
pub struct GuestOption {
    /// Its name.
    pub name: &'static str,
    /// The options that it can't be set without, which `make olddefconfig` would not set.
    needs: &'static [&'static str],
    /// What it is for.
    pub what: &'static str,
    /// Whether no guest works without it.
    pub is_required: bool,
    /// The architectures that have it.
    archs: &'static [Arch],
}

const fn required(
    name: &'static str,
    needs: &'static [&'static str],
    what: &'static str,
) -> GuestOption {
    GuestOption {
        name,
        needs,
        what,
        is_required: true,
        archs: Arch::ALL,
    }
}

const fn useful(
    name: &'static str,
    needs: &'static [&'static str],
    what: &'static str,
) -> GuestOption {
    GuestOption {
        is_required: false,
        ..required(name, needs, what)
    }
}

const fn on(arch: &'static [Arch], option: GuestOption) -> GuestOption {
    GuestOption {
        archs: arch,
        ..option
    }
}

/// All of them, those that no guest works without first.
const OPTIONS: [GuestOption; 30] = [
    on(
        &[Arch::X86_64],
        required("64BIT", &[], "a kernel of x86-64"),
    ),
    required("BLK_DEV_INITRD", &[], "the guest's files are an initramfs"),
    required("BINFMT_ELF", &[], "the guest's agent is an ELF program"),
    required("PRINTK", &[], "the kernel's messages"),
    required("TTY", &[], "the console"),
    required("FUTEX", &[], "the agent's threads"),
    required("EPOLL", &[], "the agent's waits"),
    required("POSIX_TIMERS", &[], "the agent's clocks"),
    required("DEVTMPFS", &[], "the agent's device files"),
    required("PROC_FS", &[], "settings and counters below /proc"),
    required("SYSCTL", &[], "settings below /proc/sys"),
    required("SYSFS", &[], "devices and their settings"),
    required("KALLSYMS", &[], "names of the kernel's functions"),
    required("NET", &[], "sockets"),
    required("INET", &["NET"], "IPv4"),
    required("UNIX", &["NET"], "the agent's sockets"),
    required("PACKET", &["NET"], "raw frames"),
    required("NET_NS", &["NET", "NAMESPACES"], "the two ends of a link"),
    on(
        &[Arch::Arm64],
        required(
            "PCI_HOST_GENERIC",
            &["PCI"],
            "the PCI bus of QEMU's machine",
        ),
    ),
    on(
        &[Arch::Arm64],
        required(
            "SERIAL_AMBA_PL011_CONSOLE",
            &["TTY", "SERIAL_AMBA_PL011"],
            "the console",
        ),
    ),
    on(
        &[Arch::X86_64],
        required(
            "SERIAL_8250_CONSOLE",
            &["TTY", "SERIAL_8250"],
            "the console",
        ),
    ),
    useful(
        "VIRTIO_PCI",
        &["PCI", "VIRTIO_MENU"],
        "the agent's port, which is slow without",
    ),
    useful(
        "VIRTIO_CONSOLE",
        &["TTY", "VIRTIO_MENU"],
        "the agent's port, which is slow without",
    ),
    on(
        &[Arch::X86_64],
        useful(
            "PVH",
            &["HYPERVISOR_GUEST"],
            "a boot that is some seconds faster",
        ),
    ),
    useful("VETH", &["NETDEVICES", "NET_CORE"], "link veth"),
    useful(
        "VIRTIO_NET",
        &["NETDEVICES", "NET_CORE", "PCI", "VIRTIO_MENU"],
        "link virtio-net",
    ),
    useful(
        "E1000",
        &["NETDEVICES", "PCI", "ETHERNET", "NET_VENDOR_INTEL"],
        "link e1000",
    ),
    useful("IPV6", &["NET", "INET"], "IPv6"),
    useful("MODULES", &[], "modules of your own"),
    useful("BPF_SYSCALL", &["NET"], "instruments other than exact"),
];

/// The options for guests that a configuration lacks, those that no guest works without first.
pub fn missing(config: &KernelConfig, arch: Arch) -> Vec<&'static GuestOption> {
    let lacks =
        |option: &&GuestOption| option.archs.contains(&arch) && !config.is_enabled(option.name);
    OPTIONS.iter().filter(lacks).collect()
}

/// The command that sets options in a kernel's source, with what they need themselves and the configuration
/// lacks as well.
pub fn command(config: &KernelConfig, options: &[&GuestOption]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for option in options {
        for name in option.needs.iter().copied().chain([option.name]) {
            if !config.is_enabled(name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let set: Vec<String> = names.iter().map(|name| format!("-e {name}")).collect();
    format!("scripts/config {}", set.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> KernelConfig {
        KernelConfig::parse(text).unwrap()
    }

    /// Check that a configuration with nothing lacks all that its architecture has, and that what the command
    /// sets is enough.
    #[test]
    fn what_the_command_sets_is_enough() {
        for arch in Arch::ALL {
            let empty = parse("# CONFIG_64BIT is not set\n");
            let all = missing(&empty, *arch);
            assert!(all.iter().filter(|option| option.is_required).count() > 15);
            let command = command(&empty, &all);
            let set = command
                .split("-e ")
                .skip(1)
                .map(|name| format!("CONFIG_{}=y\n", name.trim()));
            assert_eq!(
                missing(&parse(&set.collect::<String>()), *arch),
                [] as [&GuestOption; 0]
            );
            let position = |name: &str| command.find(&format!("-e {name}")).unwrap();
            assert!(position("NAMESPACES") < position("NET_NS"));
            assert_eq!(
                command.matches("-e PCI").count(),
                1 + command.matches("PCI_HOST").count()
            );
        }
    }

    /// Check that a module will do, that what is set is not set again, and that options are those of an
    /// architecture.
    #[test]
    fn what_is_missing() {
        let all = missing(&parse("CONFIG_NET=y\n"), Arch::X86_64);
        let text: String = all
            .iter()
            .filter(|option| !["NET_NS", "PVH"].contains(&option.name))
            .map(|option| format!("CONFIG_{}=m\n", option.name))
            .collect();
        let config = parse(&(text + "CONFIG_NET=y\n"));
        let lacks = missing(&config, Arch::X86_64);
        let names: Vec<&str> = lacks.iter().map(|option| option.name).collect();
        assert_eq!(names, ["NET_NS", "PVH"]);
        assert_eq!(
            command(&config, &lacks),
            "scripts/config -e NAMESPACES -e NET_NS -e HYPERVISOR_GUEST -e PVH"
        );
        let of_arm64 = missing(&config, Arch::Arm64);
        let names: Vec<&str> = of_arm64.iter().map(|option| option.name).collect();
        assert_eq!(
            names,
            ["NET_NS", "PCI_HOST_GENERIC", "SERIAL_AMBA_PL011_CONSOLE"]
        );
    }
}
