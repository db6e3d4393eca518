//! Describes the results of QEMU's trials.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use netplumb_model::arch::Arch;
use netplumb_model::capability::Availability;

use super::release::{self, Release};
use super::{Boot, PluginSupport, QEMU_VARIABLE, QemuMissing, VERSION_LIMIT, first, version};

/// How to get QEMU for guests of an architecture.
pub(super) fn install(arch: Arch) -> String {
    let package = arch.qemu_package();
    format!("sudo apt-get install {package}, or name another with {QEMU_VARIABLE}")
}

const WITHOUT_KVM: &str =
    "guests run under TCG instead, which exact counting uses anyway; times need KVM";

/// Whether QEMU was found, and starts.
pub(super) fn qemu(found: &Result<PathBuf, QemuMissing>) -> Availability {
    match found {
        Err(missing) => Availability::no(missing.to_string(), install(Arch::OWN)),
        Ok(path) => match version(path, VERSION_LIMIT, &AtomicBool::new(false)) {
            Ok(version) => started(Arch::OWN, path, version),
            Err(error) => Availability::no(
                format!("{} does not start: {error}", path.display()),
                format!("install it again, or name another with {QEMU_VARIABLE}"),
            ),
        },
    }
}

/// The availability of a QEMU that starts, by its release.
pub(super) fn started(arch: Arch, path: &Path, version: String) -> Availability {
    match Release::from_version(&version) {
        Release::TooOld => Availability::no(
            QemuMissing::TooOld(path.to_path_buf(), version).to_string(),
            install(arch),
        ),
        Release::Tested => Availability::yes(format!("{version}, {}", path.display())),
        Release::Untested => Availability::yes(format!(
            "{version}, {}; untested: {} were tested",
            path.display(),
            release::tested("and")
        )),
    }
}

/// The result of all other trials without QEMU.
pub(super) fn no_qemu() -> Availability {
    Availability::no("no working QEMU", install(Arch::OWN))
}

/// Why KVM is not tried, if so.
pub(super) fn no_kvm() -> Option<Availability> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let (reason, remedy) = match opened.err()?.kind() {
        io::ErrorKind::NotFound => (
            "no /dev/kvm".to_owned(),
            "switch on virtualisation in the firmware and load kvm_intel or kvm_amd; a virtual \
             machine needs nested virtualisation from its host",
        ),
        io::ErrorKind::PermissionDenied => {
            ("this user may not open /dev/kvm".to_owned(), open_to_us("/dev/kvm"))
        }
        other => (format!("/dev/kvm does not open: {other}"), "load kvm_intel or kvm_amd"),
    };
    Some(Availability::no(reason, format!("{remedy}; until then {WITHOUT_KVM}")))
}

/// How to get access to a device: by its group, if that has access.
fn open_to_us(device: &str) -> &'static str {
    let by_group =
        std::fs::metadata(device).is_ok_and(|m| m.gid() != 0 && m.mode() & 0o060 == 0o060);
    if by_group {
        "join its group (sudo usermod -aG kvm $USER) and log in again"
    } else {
        "sudo setfacl -m u:$USER:rw /dev/kvm"
    }
}

/// Describe a boot with TCG.
pub(super) fn tcg(arch: Arch, boot: &Boot) -> Availability {
    match boot {
        Boot::Ran { took } => {
            Availability::yes(format!("ran to its end in {} ms", took.as_millis()))
        }
        failed => Availability::no(
            how_it_failed(failed),
            format!(
                "try another QEMU ({} or newer, with TCG): install {}, or set {QEMU_VARIABLE}",
                release::oldest(),
                arch.qemu_package()
            ),
        ),
    }
}

/// Describe a trial of a wire in a QEMU of this version.
pub(super) fn wire(
    arch: Arch,
    version: &Result<String, String>,
    tried: Result<(), String>,
) -> Availability {
    match tried {
        Ok(()) => Availability::yes(match version {
            Ok(version) if Release::from_version(version) == Release::Untested => {
                format!(
                    "QEMU {version} is untested; the trial passed: every frame came at its time"
                )
            }
            _ => "every frame came at its time".to_owned(),
        }),
        Err(why) => Availability::no(
            why,
            format!(
                "for two hosts use a distribution's QEMU {}: install {}, or name it with \
                 {QEMU_VARIABLE}; guests alone, and --lab netns, don't need the wire",
                release::tested("or"),
                arch.qemu_package()
            ),
        ),
    }
}

/// Describe a boot with KVM.
pub(super) fn kvm(boot: &Boot) -> Availability {
    match boot {
        Boot::Ran { took } => {
            Availability::yes(format!("ran to its end in {} ms", took.as_millis()))
        }
        failed => Availability::no(
            format!("/dev/kvm opens, but {}", how_it_failed(failed)),
            format!("nothing to do: {WITHOUT_KVM} on a machine whose KVM runs guests"),
        ),
    }
}

fn how_it_failed(boot: &Boot) -> String {
    let quoted = |said: &str| match first(said) {
        "" => String::new(),
        line => format!(" ({line})"),
    };
    match boot {
        Boot::Ran { .. } => "it ran".into(),
        Boot::Died { status, said } => {
            format!("QEMU ended with {status} before the guest finished{}", quoted(said))
        }
        Boot::Hung { limit, said } => {
            format!("the guest hung and was killed after {} s{}", limit.as_secs(), quoted(said))
        }
        Boot::NotStarted { error } => format!("QEMU could not be started ({error})"),
    }
}

/// Describe a trial of the plugin.
pub(super) fn plugin(support: &PluginSupport) -> Availability {
    let other = "use a QEMU with plugins, as Debian 12's and newer are, or build it with \
                 --enable-plugins and set PLUMB_QEMU; measurements without instructions \
                 (--clock stages, functions) don't need them";
    match support {
        PluginSupport::Loaded => Availability::yes("loaded, and the trial guest ran with it"),
        PluginSupport::Untried => Availability::yes("QEMU takes plugins"),
        PluginSupport::NotCompiledIn => {
            Availability::no("this QEMU was built without plugins", other)
        }
        PluginSupport::NotExported { symbol } => Availability::no(
            format!(
                "this QEMU does not export {symbol}: it was linked without its plugin interface"
            ),
            other,
        ),
        PluginSupport::OtherVersion { built_for, supported, said } => {
            let reason = match (built_for, supported) {
                (Some(built), Some(takes)) => format!(
                    "the plugin uses version {built} of QEMU's plugin interface, and this QEMU \
                     takes version {takes}"
                ),
                _ => format!("this QEMU has another version of the plugin interface: {said}"),
            };
            Availability::no(
                reason,
                format!(
                    "use QEMU {}, with {QEMU_VARIABLE} if it is not the first in PATH; \
                     measurements without instructions (--clock stages, functions) don't need it",
                    release::tested("or")
                ),
            )
        }
        PluginSupport::Refused { said } => {
            Availability::no(format!("QEMU did not load it: {said}"), other)
        }
    }
}
