//! Names of what this machine has: its interfaces, disks and sysctls.

use super::Lab;
use super::disk::{Disk, DiskDevice};

/// The longest name of a disk (include/linux/blkdev.h: DISK_NAME_LEN), and of a path.
const NAME_BYTES: usize = 32;
const PATH_BYTES: usize = 4_095;

/// Prefixes of this machine's sysctls that an experiment may set. Others can start programs as root
/// (`kernel.core_pattern`, `kernel.modprobe`) or weaken the system for all its users.
const OF_MACHINE: [&str; 2] = ["net.", "vm."];
/// Those that network namespaces may have of their own.
const OF_NAMESPACE: &str = "net.";

/// The name of an interface.
///
/// # Errors
/// The name is not possible.
pub(super) fn interface(text: &str) -> Result<String, String> {
    // dev_valid_name (net/core/dev.c), without what a shell or a terminal would take otherwise.
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let is_name = (1..16).contains(&text.len()) && text.chars().all(fits);
    match is_name && ![".", ".."].contains(&text) && !text.starts_with('-') {
        true => Ok(text.into()),
        false => {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
            Err(format!(
                "invalid interface `{shown}`; expected a name, like eth0; `ip link` lists them"
            ))
        }
    }
}

/// The normal form of a level of knob `disk`.
pub(super) fn disk(text: &str) -> Result<String, String> {
    match is_of_machine(text.trim()) {
        true => own_disk(text.trim()),
        false => Ok(text.parse::<Disk>()?.to_string()),
    }
}

/// Whether a disk is one of this machine, and none of a guest.
pub(super) fn is_of_machine(text: &str) -> bool {
    text.starts_with('/') || !(text.contains(':') || text.parse::<DiskDevice>().is_ok())
}

/// The normal form of a disk of this machine.
fn own_disk(text: &str) -> Result<String, String> {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
    let is_path = text.starts_with('/');
    let fits = match is_path {
        true => text.len() <= PATH_BYTES && !text.chars().any(char::is_control),
        false => {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.!".contains(c);
            (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(fits)
        }
    };
    match fits && ![".", ".."].contains(&text) {
        true => Ok(text.into()),
        false => Err(format!(
            "invalid disk `{shown}`; expected in a guest DEVICE:SIZE:FILESYSTEM, like null_blk:64M:ext4, and \
             on this machine a name, like sda, or the absolute path of a device or of a file on it"
        )),
    }
}

/// Check that a sysctl may be set in a lab.
///
/// # Errors
/// It would be this machine's, and experiments may not set it.
pub(super) fn check_sysctl(lab: Lab, name: &str) -> Result<(), String> {
    let may = match lab {
        Lab::Vm => true,
        Lab::Netns => name.starts_with(OF_NAMESPACE),
        Lab::Host => OF_MACHINE.iter().any(|prefix| name.starts_with(prefix)),
    };
    if may {
        return Ok(());
    }
    let only = match lab {
        Lab::Netns => "net.",
        _ => "net. and vm.",
    };
    Err(format!(
        "sysctl `{name}` would be set on this machine itself; in lab {lab} only those below {only} may be set, in a \
         guest (lab vm) any"
    ))
}
