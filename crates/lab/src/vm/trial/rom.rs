//! A tiny guest: a firmware ROM that computes for a moment and then reports success.
//!
//! It calls a function and writes memory some thousand times, checks the sum, and reports in a way that
//! ends QEMU. Fewer steps are not enough: on some machines /dev/kvm opens, creates a guest and even runs a
//! few of its instructions, and then hangs.

mod arm64;
mod x86;

use std::process::Command;

use netplumb_model::arch::Arch;

use super::Accelerator;

pub(super) use x86::{EXIT, REACHED, rom_of};

/// The size of a firmware for QEMU: a multiple of 64 KiB.
pub(super) const SIZE: usize = 0x1_0000;

/// The ROM's bytes.
pub(super) fn bytes(arch: Arch) -> Vec<u8> {
    match arch {
        Arch::X86_64 => x86::bytes(),
        Arch::Arm64 => arm64::bytes(),
    }
}

/// Give QEMU the machine that the ROM is for.
pub(super) fn add_machine(command: &mut Command, arch: Arch, accelerator: Accelerator) {
    let machine = match (arch, accelerator) {
        (Arch::X86_64, _) => "pc",
        (Arch::Arm64, Accelerator::Tcg) => "virt",
        // KVM has the interrupt controller of the machine that it runs on.
        (Arch::Arm64, Accelerator::Kvm) => "virt,gic-version=host",
    };
    command.args(["-machine", machine, "-m", "16", "-smp", "1"]);
    command.args(match arch {
        Arch::X86_64 => ["-device", x86::EXIT],
        Arch::Arm64 => ["-serial", "stdio"],
    });
}

/// Whether the guest reported success: by QEMU's exit code, or what it wrote.
pub(super) fn has_finished(arch: Arch, code: Option<i32>, output: &str) -> bool {
    match arch {
        Arch::X86_64 => code == Some(REACHED),
        Arch::Arm64 => code == Some(0) && output.contains(arm64::WORD),
    }
}
