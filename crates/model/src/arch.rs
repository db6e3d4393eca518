//! Architectures of guests: what an architecture is called, by whom.
//!
//! Other differences are known to the crate that deals with them: the format of an image in `kernel`, the machine of a
//! guest in `lab`, calls and exceptions in `instruments`.
//!
//! In `kernel` it is `image/arm64.rs`; in `lab` `vm/board.rs`, `vm/firmware/`, `vm/agent.rs`, `vm/kernels/asked.rs`
//! and `lists.rs` for packages, `modules/toolchain.rs` for compilers; in the plugins plugins/qemu/arch_*.c; of BPF
//! programs crates/sys/bpf/arch.h. scripts/guest.sh builds the agent.

use crate::class::words;

words! {
    /// The architecture of a kernel, and of the programs that run on it.
    Arch, "architecture",
    /// x86-64.
    X86_64 = "x86-64",
    /// AArch64, little-endian.
    Arm64 = "arm64",
}

impl Arch {
    /// The architecture that this program was compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const OWN: Arch = Arch::X86_64;
    /// The architecture that this program was compiled for.
    #[cfg(target_arch = "aarch64")]
    pub const OWN: Arch = Arch::Arm64;

    /// As `uname -m`, QEMU and GNU tools have it.
    pub fn uname(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    /// As GNU tools for it are called, before their own names.
    pub fn gnu(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-linux-gnu",
            Arch::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The kernel build's name for it (`ARCH`).
    pub fn kbuild(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Arm64 => "arm64",
        }
    }

    /// As Debian's packages have it.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// QEMU's program for guests of it.
    pub fn qemu(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Debian's package with that program.
    pub fn qemu_package(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86",
            Arch::Arm64 => "qemu-system-arm",
        }
    }

    /// By any of its names, in letters of either case.
    pub fn named(name: &str) -> Option<Arch> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let names = |arch: Arch| [arch.as_str(), arch.uname(), arch.debian()];
        let mut all = Arch::ALL.iter().copied();
        all.find(|arch| names(*arch).into_iter().any(is))
    }

    /// The name that a knob's level has, from any.
    ///
    /// # Errors
    /// No architecture has that name.
    pub fn level(text: &str) -> Result<String, String> {
        match Arch::named(text) {
            Some(arch) => Ok(arch.as_str().to_string()),
            None => {
                text.parse::<Arch>().map(|arch| arch.to_string()).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each of its names is one architecture's.
    #[test]
    fn names() {
        for (name, arch) in [
            ("x86-64", Arch::X86_64),
            ("x86_64", Arch::X86_64),
            ("amd64", Arch::X86_64),
            ("arm64", Arch::Arm64),
            ("aarch64", Arch::Arm64),
            ("ARM64", Arch::Arm64),
        ] {
            assert_eq!(Arch::named(name), Some(arch), "{name}");
        }
        assert_eq!(Arch::named("armhf"), None);
        assert_eq!(Arch::level("AMD64").unwrap(), "x86-64");
        let error = Arch::level("armhf").unwrap_err();
        assert!(error.contains("x86-64, arm64"), "{error}");
    }
}
