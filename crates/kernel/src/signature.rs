//! Signatures of modules: what the kernel's build appends to their files.
//!
//! ```text
//! the ELF file | PKCS #7 message | struct module_signature, 12 bytes | "~Module signature appended~\n"
//! ```

use crate::config::KernelConfig;

/// The end of a signed module (`MODULE_SIG_STRING`, include/linux/module_signature.h).
const MARK: &[u8] = b"~Module signature appended~\n";
/// Size of `struct module_signature`, whose last four bytes are the message's size, most significant
/// first.
const DESCRIPTION: usize = 12;
/// Options with which a kernel takes no module without a signature.
const FORCED: [&str; 3] = [
    "MODULE_SIG_FORCE",
    "LOCK_DOWN_KERNEL_FORCE_INTEGRITY",
    "LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY",
];
/// Words of the command line, likewise.
const FORCING: [&str; 2] = ["module.sig_enforce", "lockdown"];

/// A module without its signature, if it has one: the ELF file alone.
pub fn unsigned(module: &[u8]) -> &[u8] {
    let cut = || {
        let described = module.strip_suffix(MARK)?;
        let (signed, description) =
            described.split_at_checked(described.len().checked_sub(DESCRIPTION)?)?;
        let size = description.last_chunk::<4>()?;
        let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
        signed.get(..signed.len().checked_sub(size)?)
    };
    cut().unwrap_or(module)
}

/// Whether a kernel with this configuration and command line may refuse modules without a signature.
pub fn is_forced(config: &KernelConfig, cmdline: &str) -> bool {
    let asked = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        FORCING.contains(&name) && !["0", "n", "N", "none"].contains(&value)
    };
    FORCED.iter().any(|option| config.is_enabled(option)) || cmdline.split_whitespace().any(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(elf: &[u8], signature: &[u8]) -> Vec<u8> {
        let size = (signature.len() as u32).to_be_bytes();
        [elf, signature, &[0, 0, 2, 0, 0, 0, 0, 0], &size, MARK].concat()
    }

    /// Check that a signature is cut off whole, and that a file without one, or with a damaged one, is
    /// left as it is.
    #[test]
    fn files_without_signatures() {
        assert_eq!(unsigned(&signed(b"module", &[7; 685])), b"module");
        assert_eq!(unsigned(b"module"), b"module");
        assert_eq!(unsigned(MARK), MARK);
        let mut damaged = signed(b"module", b"sign");
        let at = damaged.len() - MARK.len() - 4;
        damaged[at] = 0xff;
        assert_eq!(unsigned(&damaged), damaged);
    }

    /// Check which kernels insist on signatures: by their configuration, or by their command line.
    #[test]
    fn kernels_that_insist() {
        let config = |text: &str| KernelConfig::parse(text).unwrap();
        let debian = config("CONFIG_MODULE_SIG=y\n# CONFIG_MODULE_SIG_FORCE is not set\n");
        assert!(!is_forced(&debian, "console=ttyS0 module.sig_enforce=0"));
        assert!(is_forced(&debian, "module.sig_enforce"));
        assert!(is_forced(&debian, "quiet lockdown=integrity"));
        assert!(is_forced(&config("CONFIG_MODULE_SIG_FORCE=y\n"), ""));
    }
}
