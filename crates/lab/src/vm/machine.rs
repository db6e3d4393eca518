//! The machine of a guest: the command lines of QEMU and of the kernel.

use std::path::PathBuf;

use netplumb_model::arch::Arch;
use netplumb_model::class::Link;
use netplumb_model::hosts::HostOf;
use netplumb_sys::guest;

use super::board::{self, Board, Fallback};
use super::cpu::Cpu;
use super::device::Device;
use super::link::{self, icount_shift};
use super::random;
use super::rest::{RESTS, requests_item};

/// Enough for the largest distribution kernel and our workloads.
pub const MEMORY_MIB: u32 = 256;
/// For commands with more files than that has room for.
pub const LARGE_MEMORY_MIB: u32 = 1024;

/// The configuration of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The architecture of its CPU and kernel.
    pub arch: Arch,
    /// The QEMU program to run.
    pub qemu: PathBuf,
    /// The file for `-kernel`: on x86-64 an ELF image with a PVH entry, or a bzImage.
    pub kernel: PathBuf,
    /// Whether it is an ELF image with a PVH entry.
    pub pvh: bool,
    /// The type of link.
    pub link: Link,
    /// Which of two hosts it is; none if both ends are in it.
    pub host: Option<HostOf>,
    /// Whether there is a router in between.
    pub forward: bool,
    /// Whether the guest's clock counts instructions; without, twice as fast and a little less
    /// exact.
    pub icount: bool,
    /// CPU vulnerability mitigations.
    pub mitigations: bool,
    /// Additional kernel parameters.
    pub cmdline: String,
    /// The seed of its random numbers; usually 1.
    pub seed: u32,
    /// The size of its memory: [`MEMORY_MIB`] or [`LARGE_MEMORY_MIB`].
    pub memory_mib: u32,
}

/// Descriptors that QEMU inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inherited {
    /// The initramfs; not read by a guest that resumes from a saved state.
    pub initramfs: i32,
    /// Peer of the console's socket.
    pub console: i32,
    /// Peer of the fallback's socket.
    pub fallback: i32,
    /// Peer of the agent's socket.
    pub agent: i32,
    /// Peer of the control channel's socket.
    pub control: i32,
    /// Requests for the guest after each pause.
    pub requests: [i32; RESTS],
    /// Where the guest's memory is.
    pub memory: Memory,
    /// Whether it waits for a saved state, to be loaded by the control channel.
    pub incoming: bool,
}

/// The memory of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// QEMU's own memory.
    Own,
    /// A file in this descriptor.
    Shared(i32),
    /// A private copy of a file in this descriptor (copy-on-write).
    Private(i32),
}

/// How instructions count on an architecture, in words for a report.
pub fn counting_note(arch: Arch) -> &'static str {
    board::board_for(arch).note
}

/// The name of the CPU of guests of an architecture.
pub fn cpu(arch: Arch) -> &'static str {
    board::board_for(arch).cpu.name
}

/// The argument of QEMU's `-cpu` for it.
pub fn cpu_option(arch: Arch) -> String {
    board::board_for(arch).cpu.option()
}

/// The name of the CPU of two hosts of an architecture.
pub fn hosts_cpu(arch: Arch) -> &'static str {
    board::board_for(arch).hosts_cpu.name
}

/// The ACPI table in the initramfs of an architecture, which affects its memory layout.
pub fn dsdt(arch: Arch) -> Option<&'static [u8]> {
    board::board_for(arch).dsdt
}

/// Kernel parameters that enlarge the root of a guest with a web server, by architecture.
pub fn large_root(arch: Arch) -> &'static str {
    board::board_for(arch).large_root
}

impl Machine {
    fn board(&self) -> &'static Board {
        board::board_for(self.arch)
    }

    /// The devices of the link.
    fn link_devices(&self) -> Vec<Device> {
        match self.host {
            Some(host) => link::devices_of_host(self.link, host),
            None => link::devices(self.link, self.forward),
        }
    }

    /// The modules for the guest, without dependencies: the drivers of the agent's port, and [`Machine::link_modules`].
    pub fn modules(&self) -> Vec<&'static str> {
        let mut modules: Vec<&str> = Device::Agent { fd: -1 }.modules().to_vec();
        for module in self.link_modules() {
            if !modules.contains(&module) {
                modules.push(module);
            }
        }
        modules
    }

    /// The required modules: the agent can use a serial port instead.
    pub fn link_modules(&self) -> Vec<&'static str> {
        let mut modules: Vec<&str> = Vec::new();
        for device in self.link_devices() {
            modules.extend(
                device
                    .modules()
                    .iter()
                    .filter(|m| !modules.contains(m))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        modules.extend(link::modules(self.link));
        modules
    }

    /// An instruction takes 1 << shift nanoseconds of its clock.
    fn icount_shift(&self) -> u8 {
        self.host.map_or_else(|| icount_shift(self.link), |host| host.icount_shift)
    }

    /// The kernel's command line.
    pub fn kernel_cmdline(&self) -> String {
        // nokaslr: addresses are the same in every boot. retain_initrd: unused memory is not poisoned
        // before it is freed.
        let board = self.board();
        let mut line =
            format!("console={} loglevel=4 panic=-1 nokaslr {}", board.console, board.cmdline);
        if !self.mitigations {
            line.push(' ');
            line.push_str(board.unmitigated);
        }
        if !self.cmdline.trim().is_empty() {
            line.push(' ');
            line.push_str(self.cmdline.trim());
        }
        // The kernel mixes its command line into its random numbers. It has the form of a module
        // parameter, so that the kernel neither complains nor passes it to init.
        if self.seed != 1 {
            line.push_str(&format!(" netplumb.seed={}", self.seed));
        }
        // Passed to init as an environment variable.
        line.push_str(&format!(" {}=1", guest::VARIABLE));
        line
    }

    /// The CPU that QEMU emulates.
    fn cpu(&self) -> &'static Cpu {
        match self.host {
            Some(_) => self.board().hosts_cpu,
            None => self.board().cpu,
        }
    }

    /// QEMU's command line.
    pub fn qemu_args(&self, fds: Inherited, more: &[String]) -> Vec<String> {
        let board = self.board();
        let machine = match fds.memory {
            Memory::Own => board.machine.to_owned(),
            Memory::Shared(_) | Memory::Private(_) => {
                format!("{},memory-backend=ram", board.machine)
            }
        };
        let mut args: Vec<String> = [
            "-name",
            "netplumb",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-machine",
            &machine,
            "-accel",
            "tcg,thread=single",
            "-cpu",
            &self.cpu().option(),
            "-smp",
            "1",
            "-rtc",
            "clock=vm,base=2026-01-01",
        ]
        .map(String::from)
        .to_vec();
        args.extend(["-seed".into(), self.seed.to_string()]);
        if self.icount {
            args.extend(["-icount".into(), format!("shift={},sleep=off", self.icount_shift())]);
            args.extend(random::qemu_args(self.seed));
        }
        args.extend(memory_args(fds.memory, self.memory_mib));
        args.extend(match fds.incoming {
            // The only device that depends on the kernel is the ROM that booted it.
            true => {
                let rom = board.boots_by_rom.then(|| ["-option-rom", self.boot_rom()]);
                let words = rom.into_iter().flatten().chain(["-incoming", "defer"]);
                words.map(String::from).collect()
            }
            false => vec![
                "-kernel".into(),
                self.kernel.display().to_string(),
                "-initrd".into(),
                format!("/proc/self/fd/{}", fds.initramfs),
                "-append".into(),
                self.kernel_cmdline(),
            ],
        });
        args.extend(
            [
                "-device",
                board.panic,
                "-action",
                "panic=pause",
                "-chardev",
                &format!("socket,id=control,fd={}", fds.control),
                "-mon",
                "chardev=control,mode=control",
            ]
            .map(String::from),
        );
        for (rest, fd) in fds.requests.iter().enumerate() {
            args.push("-fw_cfg".into());
            let name = requests_item(rest);
            args.push(format!("name={name},file=/proc/self/fd/{fd}"));
        }
        let devices = [
            Device::Serial { id: "console", fd: fds.console },
            match board.fallback {
                Fallback::Second => Device::Serial { id: "fallback", fd: fds.fallback },
                Fallback::Pci => Device::PciSerial { id: "fallback", fd: fds.fallback },
            },
            Device::Agent { fd: fds.agent },
        ];
        for device in devices.iter().chain(&self.link_devices()) {
            args.extend(device.qemu_args());
        }
        args.extend_from_slice(more);
        args
    }

    /// Devices that are hot-plugged while the guest is paused, as arguments of `device_add`.
    pub fn late_devices(&self) -> Vec<serde_json::Value> {
        self.link_devices().iter().filter_map(Device::late).collect()
    }

    /// Whether a guest can be saved with all its devices: not with those that QEMU can't save,
    /// which are plugged in after the first pause.
    pub fn can_be_saved_whole(&self) -> bool {
        self.late_devices().is_empty()
    }

    /// The option ROM that starts the kernel (hw/i386/x86.c of QEMU).
    fn boot_rom(&self) -> &'static str {
        if self.pvh { "pvh.bin" } else { "linuxboot_dma.bin" }
    }

    /// The inputs of a saved state, apart from the caller's: QEMU's arguments, without descriptors and paths.
    pub fn description(&self) -> Vec<String> {
        let nothing = Inherited {
            initramfs: -1,
            console: -1,
            fallback: -1,
            agent: -1,
            control: -1,
            requests: [-1; RESTS],
            memory: Memory::Shared(-1),
            incoming: false,
        };
        // The kernel's path does not matter.
        let anywhere = Machine { kernel: PathBuf::new(), ..self.clone() };
        let mut words = anywhere.qemu_args(nothing, &[]);
        words.extend(self.late_devices().iter().map(ToString::to_string));
        words
    }
}

fn memory_args(memory: Memory, mib: u32) -> Vec<String> {
    let mut args = vec!["-m".into(), mib.to_string()];
    let (fd, share) = match memory {
        Memory::Own => return args,
        Memory::Shared(fd) => (fd, "on"),
        Memory::Private(fd) => (fd, "off"),
    };
    args.extend([
        "-object".into(),
        format!("memory-backend-file,id=ram,size={mib}M,mem-path=/proc/self/fd/{fd},share={share}"),
    ]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            arch: Arch::X86_64,
            qemu: "/q".into(),
            kernel: "/k/vmlinux".into(),
            pvh: true,
            link: Link::UsbNet,
            host: None,
            forward: false,
            icount: true,
            mitigations: false,
            cmdline: " slab_nomerge ".into(),
            seed: 1,
            memory_mib: MEMORY_MIB,
        }
    }

    /// Check that another seed is passed to QEMU and to the kernel, and that the first one changes
    /// neither command line.
    #[test]
    fn another_seed() {
        let lucky = Machine { seed: 7, ..machine() };
        assert!(lucky.kernel_cmdline().contains(" netplumb.seed=7 "));
        assert!(!machine().kernel_cmdline().contains("seed"));
        let fds = Inherited {
            initramfs: 3,
            console: 4,
            fallback: 5,
            agent: 6,
            control: 7,
            requests: [8, 9],
            memory: Memory::Own,
            incoming: false,
        };
        let args = lucky.qemu_args(fds, &[]);
        let at = args.iter().position(|a| a == "-seed").unwrap();
        assert_eq!(args[at + 1], "7");
        assert!(args.iter().any(|a| a.ends_with("string=00000000000000000000000000000007")));
    }

    /// Check the whole command line, word by word.
    #[test]
    fn the_command_line() {
        let fds = Inherited {
            initramfs: 3,
            console: 4,
            fallback: 5,
            agent: 6,
            control: 7,
            requests: [8, 9],
            memory: Memory::Own,
            incoming: false,
        };
        let args = machine().qemu_args(fds, &["-plugin".into(), "file=x".into()]);
        assert_eq!(
            args.join(" ").replace(&machine().cpu().option(), "CPU"),
            "-name netplumb -nodefaults -no-user-config -display none -no-reboot -machine pc-i440fx-7.2 \
             -accel tcg,thread=single -cpu CPU -smp 1 \
             -rtc clock=vm,base=2026-01-01 -seed 1 -icount shift=2,sleep=off \
             -fw_cfg name=opt/netplumb/random,string=00000000000000000000000000000001 -m 256 \
             -kernel /k/vmlinux -initrd /proc/self/fd/3 -append console=ttyS0 loglevel=4 \
             panic=-1 nokaslr nolapic_timer tsc=reliable no_timer_check random.trust_cpu=on \
             audit=0 cryptomgr.notests retain_initrd \
             initcall_blacklist=hpet_late_init,i8042_init mitigations=off slab_nomerge \
             PLUMB_GUEST=1 \
             -device pvpanic,ioport=1285 -action panic=pause \
             -chardev socket,id=control,fd=7 -mon chardev=control,mode=control \
             -fw_cfg name=opt/netplumb/requests0,file=/proc/self/fd/8 \
             -fw_cfg name=opt/netplumb/requests1,file=/proc/self/fd/9 \
             -chardev socket,id=console,fd=4 -serial chardev:console \
             -chardev socket,id=fallback,fd=5 -serial chardev:fallback \
             -chardev socket,id=agent,fd=6 -device virtio-serial-pci,ioeventfd=off,max_ports=2 \
             -device virtserialport,chardev=agent,name=netplumb.agent \
             -device qemu-xhci,id=usb \
             -netdev hubport,id=nic0,hubid=0 \
             -netdev hubport,id=nic1,hubid=0 \
             -device e1000,romfile=,netdev=nic1,mac=52:54:00:4e:50:01 \
             -plugin file=x"
        );
    }

    /// Check that each module is listed once.
    #[test]
    fn modules_once() {
        let modules = machine().modules();
        assert_eq!(
            modules,
            ["virtio_pci", "virtio_console", "xhci_pci", "usbnet", "cdc_ether", "e1000"]
        );
    }
}
