//! Files streamed into a guest and out of it, over its port.

use std::time::Duration;

use netplumb_lab::vm::initramfs::{self, Module};
use netplumb_lab::vm::machine::{MEMORY_MIB, Machine};
use netplumb_lab::vm::process::{Extra, Guest, Start, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::arch::Arch;
use netplumb_model::class::Link;

const LIMIT: Duration = Duration::from_secs(120);

/// Check that a file of several chunks is read back as it was written, and so is an empty one; and
/// that read and write errors are reported and damage nothing.
#[test]
fn files_both_ways() {
    if !crate::common::has_guests() {
        return;
    }
    let kernel = crate::common::kernel().unwrap();
    let machine = Machine {
        arch: Arch::X86_64,
        qemu: trial::find_qemu(Arch::OWN).unwrap(),
        kernel: kernel.boot_image(),
        pvh: kernel.pvh,
        host: None,
        link: Link::Lo,
        forward: false,
        icount: true,
        mitigations: false,
        cmdline: String::new(),
        seed: 1,
        memory_mib: MEMORY_MIB,
    };
    let modules: Vec<Module> = kernel
        .module_tree()
        .unwrap()
        .resolve(&machine.modules())
        .unwrap()
        .into_iter()
        .map(|m| Module {
            bytes: m.read().unwrap(),
            required: m.required,
            name: m.name,
            options: String::new(),
        })
        .collect();
    let init = std::fs::read(crate::common::agent(Arch::OWN)).unwrap();
    let initramfs = initramfs::build(machine.arch, &init, &modules).unwrap();
    let from = Start::Boot { initramfs: &initramfs, memory: None };
    let mut guest =
        Guest::start(&machine, from, [&[], &[]], Extra::default(), LIMIT, Default::default())
            .unwrap();
    guest.wait_ready(LIMIT).unwrap();
    guest.go_on().unwrap();

    let large: Vec<u8> = (0..1_000_003_u32).map(|n| (n * 7 % 251) as u8).collect();
    for bytes in [&large[..], &[]] {
        guest.write_file("/tmp/f", 0o600, bytes, LIMIT).unwrap();
        assert!(guest.read_file("/tmp/f", LIMIT).unwrap() == bytes);
    }
    for refused in [
        guest.write_file("/nowhere/f", 0o600, &large, LIMIT),
        guest.read_file("/nowhere/f", LIMIT).map(drop),
    ] {
        assert!(
            matches!(&refused, Err(VmError::CommandFailed { message, .. })
                if message.contains("/nowhere/f")),
            "{refused:?}"
        );
    }
    let release = guest.read_file("/proc/sys/kernel/osrelease", LIMIT).unwrap();
    assert_eq!(String::from_utf8_lossy(&release).trim(), kernel.release);
}
