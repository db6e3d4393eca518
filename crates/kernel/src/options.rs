//! Options of a kernel's configuration that guests need.

use netplumb_model::arch::Arch;

use crate::config::KernelConfig;

/// An option, and what a guest lacks without it.
#[derive(Debug, PartialEq, Eq)]
pub struct GuestOption {
    /// The option's name, without `CONFIG_`.
    pub name: &'static str,
    /// The options that have to be built in for it to be set, which `make olddefconfig` would not set.
    needs: &'static [&'static str],
    /// Its purpose in a guest.
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
    GuestOption { name, needs, what, is_required: true, archs: Arch::ALL }
}

const fn useful(
    name: &'static str,
    needs: &'static [&'static str],
    what: &'static str,
) -> GuestOption {
    GuestOption { is_required: false, ..required(name, needs, what) }
}

const fn on(arch: &'static [Arch], option: GuestOption) -> GuestOption {
    GuestOption { archs: arch, ..option }
}

/// All of them, the required ones first.
const OPTIONS: [GuestOption; 30] = [
    on(&[Arch::X86_64], required("64BIT", &[], "a kernel of x86-64")),
    required("BLK_DEV_INITRD", &[], "the guest's files are an initramfs"),
    required("BINFMT_ELF", &[], "the guest's agent is an ELF program"),
    required("PRINTK", &[], "the kernel's messages"),
    required("TTY", &[], "the console"),
    required("FUTEX", &[], "the agent's threads"),
    required("EPOLL", &[], "the agent's waits"),
    required("POSIX_TIMERS", &[], "the agent's clocks"),
    required("DEVTMPFS", &[], "the agent's device files"),
    required("PROC_FS", &[], "settings and counters below /proc"),
    required("PROC_SYSCTL", &["PROC_FS"], "settings below /proc/sys"),
    required("SYSFS", &[], "devices and their settings"),
    required("KALLSYMS", &[], "names of the kernel's functions"),
    required("NET", &[], "sockets"),
    required("INET", &["NET"], "IPv4"),
    required("UNIX", &["NET"], "the agent's sockets"),
    required("PACKET", &["NET"], "raw frames"),
    required("NET_NS", &["NET", "MULTIUSER", "NAMESPACES"], "the two ends of a link"),
    on(&[Arch::Arm64], required("PCI_HOST_GENERIC", &["PCI"], "the PCI bus of QEMU's machine")),
    on(
        &[Arch::Arm64],
        required("SERIAL_AMBA_PL011_CONSOLE", &["TTY", "SERIAL_AMBA_PL011"], "the console"),
    ),
    on(&[Arch::X86_64], required("SERIAL_8250_CONSOLE", &["TTY", "SERIAL_8250"], "the console")),
    useful("VIRTIO_PCI", &["PCI", "VIRTIO_MENU"], "the agent's port, which is slow without"),
    useful("VIRTIO_CONSOLE", &["TTY", "VIRTIO_MENU"], "the agent's port, which is slow without"),
    on(
        &[Arch::X86_64],
        useful("X86_IOPL_IOPERM", &[], "saved states; without them every arm boots"),
    ),
    on(&[Arch::X86_64], useful("PVH", &["HYPERVISOR_GUEST"], "a boot that is some seconds faster")),
    useful("VETH", &["NETDEVICES", "NET_CORE"], "link veth"),
    useful("VIRTIO_NET", &["NETDEVICES", "NET_CORE", "PCI", "VIRTIO_MENU"], "link virtio-net"),
    useful("E1000", &["NETDEVICES", "PCI", "ETHERNET", "NET_VENDOR_INTEL"], "link e1000"),
    useful("IPV6", &["NET", "INET"], "IPv6"),
    useful("MODULES", &[], "modules of your own"),
];

/// The options for guests that a configuration lacks, those that no guest works without first.
pub fn missing(config: &KernelConfig, arch: Arch) -> Vec<&'static GuestOption> {
    let lacks =
        |option: &&GuestOption| option.archs.contains(&arch) && !config.is_enabled(option.name);
    OPTIONS.iter().filter(lacks).collect()
}

/// The commands that set options in a kernel's source, one for each list, including the options that they need
/// themselves and the configuration lacks. Options of an earlier command are not set again.
pub fn commands(config: &KernelConfig, lists: &[Vec<&GuestOption>]) -> Vec<String> {
    let mut set: Vec<&str> = Vec::new();
    let mut command = |list: &Vec<&GuestOption>| {
        let before = set.len();
        for option in list {
            for name in option.needs.iter().copied().chain([option.name]) {
                if !config.is_builtin(name) && !set.contains(&name) {
                    set.push(name);
                }
            }
        }
        let words = set[before..].iter().map(|name| format!(" -e {name}"));
        format!("scripts/config{}", words.collect::<String>())
    };
    lists.iter().map(&mut command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> KernelConfig {
        KernelConfig::parse(text).unwrap()
    }

    fn set(command: &str) -> Vec<&str> {
        command.split(" -e ").skip(1).collect()
    }

    /// Check that a configuration with nothing lacks all that its architecture has, and that what the commands
    /// set is enough, and set once, after what it needs.
    #[test]
    fn what_the_commands_set_is_enough() {
        for arch in Arch::ALL {
            let empty = parse("# CONFIG_64BIT is not set\n");
            let all = missing(&empty, *arch);
            let (required, useful): (Vec<_>, Vec<_>) =
                all.iter().partition(|option| option.is_required);
            assert!(required.len() > 15);
            let commands = commands(&empty, &[required, useful]);
            let names: Vec<&str> = commands.iter().flat_map(|command| set(command)).collect();
            let text: String = names.iter().map(|name| format!("CONFIG_{name}=y\n")).collect();
            assert_eq!(missing(&parse(&text), *arch), [] as [&GuestOption; 0]);
            let position = |name: &str| names.iter().rposition(|set| *set == name);
            for (at, name) in names.iter().enumerate() {
                assert_eq!(position(name), Some(at), "{name} is set twice");
            }
            for option in all {
                for need in option.needs {
                    assert!(position(need) < position(option.name), "{option:?}");
                }
            }
        }
    }

    /// Check that a module will do, but not for what has to be built in for another option; that what is set is not set
    /// again, and that options depend on the architecture.
    #[test]
    fn what_is_missing() {
        let all = missing(&parse("CONFIG_NET=y\n"), Arch::X86_64);
        let lacking = ["NET_NS", "SERIAL_8250_CONSOLE", "PVH"];
        let text: String = all
            .iter()
            .filter(|option| !lacking.contains(&option.name))
            .map(|option| format!("CONFIG_{}=m\n", option.name))
            .collect();
        let text = text + "CONFIG_NET=y\nCONFIG_TTY=y\nCONFIG_SERIAL_8250=m\n";
        let config = parse(&text.replace("CONFIG_TTY=m\n", ""));
        let lacks = missing(&config, Arch::X86_64);
        let names: Vec<&str> = lacks.iter().map(|option| option.name).collect();
        assert_eq!(names, lacking);
        assert_eq!(
            commands(&config, &[lacks]),
            [
                "scripts/config -e MULTIUSER -e NAMESPACES -e NET_NS -e SERIAL_8250 -e SERIAL_8250_CONSOLE \
                 -e HYPERVISOR_GUEST -e PVH"
            ]
        );
        let of_arm64 = missing(&config, Arch::Arm64);
        let names: Vec<&str> = of_arm64.iter().map(|option| option.name).collect();
        assert_eq!(names, ["NET_NS", "PCI_HOST_GENERIC", "SERIAL_AMBA_PL011_CONSOLE"]);
    }
}
