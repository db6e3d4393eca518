//! The CPU of guests: by name, and as QEMU's `-cpu` argument.

/// A CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    /// Its name in recordings. Any difference that the kernel could see gives another name.
    pub(super) name: &'static str,
    /// QEMU's model of it.
    base: &'static str,
    /// Its complete list of features; the base model has none by itself.
    features: &'static [&'static str],
    /// The features left out of `features`.
    without: &'static [&'static str],
}

impl Cpu {
    /// QEMU's argument.
    pub(super) fn option(&self) -> String {
        let has = |feature: &&&str| !self.without.contains(feature);
        let features = self.features.iter().filter(has);
        features.fold(self.base.to_owned(), |option, feature| format!("{option},{feature}=on"))
    }
}

/// QEMU's own models change: `max` has another family since QEMU 10, and other features, for which the kernel patches
/// itself. This one is `max` of QEMU 7.2, less ERMS, FSRM and PCOMMIT, with the same CPUID in every QEMU since.
/// (PCOMMIT was never built, QEMU 10 has no name for it, and no kernel uses it.)
///
/// `rep` string instructions count once per iteration; without ERMS and FSRM the kernel's copies use
/// the eight-byte kind.
pub(super) static X86_64: Cpu =
    Cpu { name: "netplumb-x86-1", base: BASE, features: FEATURES, without: &[] };

/// The CPU of two hosts has no cmpxchg16b. QEMU before 8.0 leaves any bits in EFLAGS after it: its helper reads what
/// the flags depend on before the translator has stored that (target/i386/tcg/translate.c, case 0x1c7). The kernel
/// allocates memory by that instruction. An interrupt right after it (a host under load has thousands) makes them last,
/// and with the direction flag the next `rep stos` clears other memory.
pub(super) static X86_64_OF_HOSTS: Cpu =
    Cpu { name: "netplumb-x86-1,-cx16", base: BASE, features: FEATURES, without: &["cx16"] };

/// The CPU of a Raspberry Pi 4: without LSE atomics and pointer authentication, which the kernel then leaves out.
/// QEMU's model follows that processor, and has stayed the same.
pub(super) static ARM64: Cpu =
    Cpu { name: "cortex-a72", base: "cortex-a72", features: &[], without: &[] };

const BASE: &str = "base,vendor=AuthenticAMD,family=15,model=107,stepping=1,\
                    model-id=QEMU TCG CPU version 2.5+,level=13,xlevel=0x8000000a,phys-bits=40";

/// By QEMU's names, in the order of the alphabet.
const FEATURES: &[&str] = &[
    "3dnow",
    "3dnowext",
    "abm",
    "acpi",
    "adx",
    "aes",
    "apic",
    "arat",
    "avx",
    "avx2",
    "bmi1",
    "bmi2",
    "clflush",
    "clflushopt",
    "clwb",
    "cmov",
    "cr8legacy",
    "cx16",
    "cx8",
    "de",
    "f16c",
    "fma",
    "fpu",
    "fsgsbase",
    "fxsr",
    "hypervisor",
    "la57",
    "lahf-lm",
    "lm",
    "mca",
    "mce",
    "mmx",
    "mmxext",
    "monitor",
    "movbe",
    "mpx",
    "msr",
    "mtrr",
    "npt",
    "nx",
    "pae",
    "pat",
    "pclmulqdq",
    "pdpe1gb",
    "pge",
    "pks",
    "pku",
    "pni",
    "popcnt",
    "pse",
    "pse36",
    "rdrand",
    "rdtscp",
    "sep",
    "smap",
    "smep",
    "ss",
    "sse",
    "sse2",
    "sse4.1",
    "sse4.2",
    "sse4a",
    "ssse3",
    "svm",
    "svme-addr-chk",
    "syscall",
    "tsc",
    "umip",
    "vaes",
    "vgif",
    "xgetbv1",
    "xsave",
    "xsaveopt",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the two models differ as in their names, and that no feature is given twice.
    #[test]
    fn options() {
        let all = X86_64.option();
        assert!(all.starts_with("base,vendor=AuthenticAMD,family=15,model=107,stepping=1,"));
        assert!(all.contains(",cx16=on,cx8=on,"));
        assert_eq!(X86_64_OF_HOSTS.option(), all.replace(",cx16=on", ""));
        assert!(FEATURES.is_sorted());
        for absent in ["erms", "fsrm", "pcommit"] {
            assert!(!FEATURES.contains(&absent), "{absent}");
        }
        assert_eq!(ARM64.option(), "cortex-a72");
    }
}
