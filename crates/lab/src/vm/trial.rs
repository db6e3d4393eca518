//! Tests whether QEMU works, by booting a guest of 64 KiB for each architecture.
//!
//! A version number proves little: /dev/kvm may exist and hang every guest, plugins may be disabled
//! in the build. So a tiny guest is booted with each accelerator, and with the plugin. It takes
//! some 50 ms and leaves no file (the guest's ROM and the plugin are in memory), and every QEMU
//! dies with its parent and is waited for.

mod explain;
mod others;
pub mod release;
mod rom;
mod run;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use netplumb_model::arch::Arch;
use netplumb_model::capability::{Availability, Capability, Group};
use netplumb_sys::threads::{self, Task};

pub use wire::{WirePlugin, probe_wire};

use run::{Ended, memory_file, path_of};

/// Timeout after which a guest counts as hung. It needs some 50 ms, and on a machine under load some seconds.
const LIMIT: Duration = Duration::from_secs(20);
/// The same with KVM, where guests often hang.
const KVM_LIMIT: Duration = Duration::from_secs(3);
/// Of QEMU's version.
pub const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// The environment variable that names another QEMU.
pub const QEMU_VARIABLE: &str = "PLUMB_QEMU";

/// QEMU was not found.
#[derive(Debug, thiserror::Error)]
pub enum QemuMissing {
    /// The variable names a missing file.
    #[error("{QEMU_VARIABLE} is set to {0}: no such file")]
    Named(PathBuf),
    /// No directory of PATH has it.
    #[error("no {} in any directory of PATH", .0.qemu())]
    NotInPath(Arch),
    /// It is older than any that guests are measured in: its version.
    #[error(
        "{} is QEMU {}, and guests need {} or newer (reports, and --lab netns, need none)",
        .0.display(), .1, release::oldest()
    )]
    TooOld(PathBuf, String),
    /// The program is another one, or can't be executed: why.
    #[error("{} is not QEMU: {}", .0.display(), .1)]
    NotQemu(PathBuf, String),
}

impl QemuMissing {
    /// Debian's package with it.
    pub fn package(&self) -> &'static str {
        match self {
            QemuMissing::Named(path)
            | QemuMissing::TooOld(path, _)
            | QemuMissing::NotQemu(path, _) => {
                let is_its = |arch: &&Arch| path.ends_with(arch.qemu());
                let arch = Arch::ALL.iter().find(is_its);
                arch.copied().unwrap_or(Arch::OWN).qemu_package()
            }
            QemuMissing::NotInPath(arch) => arch.qemu_package(),
        }
    }
}

/// How QEMU executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's TCG, configured as for exact counting: instructions drive the clock.
    Tcg,
    /// The kernel's KVM.
    Kvm,
}

/// The result of a trial boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// The guest finished.
    Ran {
        /// Time from starting QEMU to its exit.
        took: Duration,
    },
    /// QEMU exited before the guest finished.
    Died {
        /// The exit status or the signal, in words.
        status: String,
        /// QEMU's standard error.
        said: String,
    },
    /// The guest hung, and QEMU was killed.
    Hung {
        /// How long it had.
        limit: Duration,
        /// QEMU's standard error.
        said: String,
    },
    /// QEMU could not be started.
    NotStarted {
        /// Why not.
        error: String,
    },
}

/// Whether QEMU supports plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginSupport {
    /// This QEMU was built without plugins.
    NotCompiledIn,
    /// This QEMU supports plugins; none was given to try.
    Untried,
    /// The plugin was loaded, and the guest finished.
    Loaded,
    /// The plugin was built for another version of QEMU's plugin interface.
    OtherVersion {
        /// The version that the plugin was built for, if QEMU reports it.
        built_for: Option<u32>,
        /// The nearest version that this QEMU supports, if QEMU reports it.
        supported: Option<u32>,
        /// QEMU's message.
        said: String,
    },
    /// This QEMU does not export a function of its plugin interface.
    NotExported {
        /// The name of the function.
        symbol: String,
    },
    /// The plugin could not be loaded for another reason, or the guest did not finish with it.
    Refused {
        /// QEMU's message.
        said: String,
    },
}

/// Find QEMU for guests of this architecture: `$PLUMB_QEMU` if it is set and not for others, else the
/// first in PATH.
pub fn find_qemu(arch: Arch) -> Result<PathBuf, QemuMissing> {
    let named = std::env::var_os(QEMU_VARIABLE);
    find_in(arch, named, std::env::var_os("PATH"))
}

fn find_in(
    arch: Arch,
    named: Option<OsString>,
    path: Option<OsString>,
) -> Result<PathBuf, QemuMissing> {
    let named = named.filter(|n| !n.is_empty()).map(PathBuf::from);
    if let Some(named) = named.filter(|named| is_for(named, arch)) {
        return if named.is_file() { Ok(named) } else { Err(QemuMissing::Named(named)) };
    }
    std::env::split_paths(&path.unwrap_or_default())
        .map(|folder| folder.join(arch.qemu()))
        .find(|file| file.is_file())
        .ok_or(QemuMissing::NotInPath(arch))
}

/// Whether a QEMU may be for guests of an architecture: not if it has the name of another's.
fn is_for(qemu: &Path, arch: Arch) -> bool {
    let name = qemu.file_name().unwrap_or_default().to_string_lossy();
    let others = Arch::ALL.iter().filter(|other| **other != arch);
    !others.into_iter().any(|other| name.ends_with(other.qemu()))
}

/// QEMU's version: `7.2.22`; within some time at most, and until it is cancelled. A program is run once, until its file
/// changes.
///
/// # Errors
/// It does not print it, in time.
pub fn version(qemu: &Path, limit: Duration, cancel: &AtomicBool) -> Result<String, String> {
    type File = (PathBuf, u64, Option<SystemTime>);
    static KNOWN: Mutex<BTreeMap<File, String>> = Mutex::new(BTreeMap::new());
    let metadata = fs::metadata(qemu).map_err(|e| e.to_string())?;
    let file = (qemu.to_owned(), metadata.ino(), metadata.modified().ok());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(version) = known.get(&file) {
        return Ok(version.clone());
    }
    let version = printed_version(qemu, limit, cancel)?;
    known.insert(file, version.clone());
    Ok(version)
}

fn printed_version(qemu: &Path, limit: Duration, cancel: &AtomicBool) -> Result<String, String> {
    let mut command = Command::new(qemu);
    command.arg("--version");
    let limit = limit.min(VERSION_LIMIT);
    let ended = run::run_until(command, &[], limit, cancel).map_err(|e| e.to_string())?;
    if let Ended::Killed { .. } = ended {
        return Err(format!(
            "it did not print its version (--version) within {} s",
            limit.as_secs()
        ));
    }
    let said = ended.output();
    let version = said.lines().find_map(|l| l.strip_prefix("QEMU emulator version "));
    let word = version.and_then(|v| v.split_whitespace().next());
    word.map(str::to_owned)
        .ok_or_else(|| format!("it does not print its version: {}", first(&said)))
}

/// Whether interrupts of this QEMU's e1000 can be let through at once: until QEMU 10 dropped the property
/// `mitigation` of it (hw/net/e1000.c).
pub fn e1000_is_unthrottled(qemu: &Path, cancel: &AtomicBool) -> bool {
    let mut command = Command::new(qemu);
    command.args(["-device", "e1000-82545em,help"]);
    let ended = run::run_until(command, &[], VERSION_LIMIT, cancel);
    ended.is_ok_and(|ended| ended.output().contains("mitigation="))
}

/// Boot the guest of an architecture.
pub fn boot(qemu: &Path, arch: Arch, accelerator: Accelerator) -> Boot {
    boot_with(qemu, arch, accelerator, None)
}

fn boot_with(qemu: &Path, arch: Arch, accelerator: Accelerator, plugin: Option<&OwnedFd>) -> Boot {
    let firmware = match memory_file(c"plumb-rom", &rom::bytes(arch)) {
        Ok(file) => file,
        Err(e) => {
            return Boot::NotStarted { error: e.to_string() };
        }
    };
    let mut command = Command::new(qemu);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    rom::add_machine(&mut command, arch, accelerator);
    command.args(match accelerator {
        Accelerator::Tcg => {
            ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max"]
                .as_slice()
        }
        Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"].as_slice(),
    });
    command.arg("-bios").arg(path_of(&firmware));
    if let Some(plugin) = plugin {
        command.arg("-plugin").arg(path_of(plugin));
    }
    let shared: Vec<&OwnedFd> = std::iter::once(&firmware).chain(plugin).collect();
    let start = Instant::now();
    let limit = match accelerator {
        Accelerator::Tcg => LIMIT,
        Accelerator::Kvm => KVM_LIMIT,
    };
    match run::run(command, &shared, limit) {
        Err(e) => Boot::NotStarted { error: e.to_string() },
        Ok(Ended::Killed { output }) => Boot::Hung { limit, said: output },
        Ok(Ended::Exited { code, output, .. }) if rom::has_finished(arch, code, &output) => {
            Boot::Ran { took: start.elapsed() }
        }
        Ok(Ended::Exited { status, output, .. }) => Boot::Died { status, said: output },
    }
}

/// Check that QEMU loads a plugin, and runs the trial guest with it.
///
/// # Errors
/// It does not: why, and what to try.
pub fn plugin_loads(qemu: &Path, arch: Arch, plugin: &[u8]) -> Result<(), String> {
    match explain::plugin(&probe_plugin(qemu, arch, Some(plugin))) {
        Availability::Yes { .. } => Ok(()),
        Availability::Partly { reason, remedy, .. } | Availability::No { reason, remedy } => {
            Err(format!("{reason}: {remedy}"))
        }
    }
}

/// Test whether QEMU supports plugins; with the bytes of a plugin, load it and boot the guest.
pub fn probe_plugin(qemu: &Path, arch: Arch, plugin: Option<&[u8]>) -> PluginSupport {
    let Some(bytes) = plugin else {
        // A file that does not exist: QEMU's message shows whether it supports the option.
        let mut command = Command::new(qemu);
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-plugin", "/proc/self/fd/none"]);
        return match run::run(command, &[], LIMIT) {
            Err(e) => PluginSupport::Refused { said: e.to_string() },
            Ok(ended) => match read_refusal(&ended.output()) {
                PluginSupport::Refused { said } if said.contains("load plugin") => {
                    PluginSupport::Untried
                }
                other => other,
            },
        };
    };
    let file = match memory_file(c"plumb-plugin", bytes) {
        Ok(file) => file,
        Err(e) => {
            return PluginSupport::Refused { said: e.to_string() };
        }
    };
    match boot_with(qemu, arch, Accelerator::Tcg, Some(&file)) {
        Boot::Ran { .. } => PluginSupport::Loaded,
        Boot::NotStarted { error } => PluginSupport::Refused { said: error },
        Boot::Hung { said, .. } => {
            PluginSupport::Refused { said: format!("the guest hung with it. {}", first(&said)) }
        }
        Boot::Died { said, status } if said.trim().is_empty() => {
            PluginSupport::Refused { said: format!("QEMU ended with {status}, without output") }
        }
        // Earlier output is not the cause.
        Boot::Died { said, status } if run::is_signal(&status) => PluginSupport::Refused {
            said: format!("QEMU ended with {status}; its output: {}", first(&said)),
        },
        Boot::Died { said, .. } => read_refusal(&said),
    }
}

/// Interpret QEMU's message about a plugin.
fn read_refusal(said: &str) -> PluginSupport {
    let line = said.lines().find(|l| l.contains("plugin")).unwrap_or(first(said)).trim().to_owned();
    // Up to version 7 a QEMU without plugins does not have the option; later it refuses it.
    if line.contains("invalid option") || line.contains("not enabled in this build") {
        return PluginSupport::NotCompiledIn;
    }
    if let Some((_, symbol)) = line.split_once("undefined symbol: ") {
        let end = symbol.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let symbol = symbol[..end.unwrap_or(symbol.len())].to_owned();
        return PluginSupport::NotExported { symbol };
    }
    if line.contains("API version") {
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let after = |mark: &str| line.split_once(mark).and_then(|(_, rest)| number(rest));
        return PluginSupport::OtherVersion {
            built_for: after("requires API version "),
            supported: after("only up to version ").or_else(|| after("minimum version of ")),
            said: line,
        };
    }
    PluginSupport::Refused { said: line }
}

/// The first line that is not empty.
fn first(text: &str) -> &str {
    text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default()
}

/// Run all tests in parallel, and describe the results; with the plugins for counting and for a wire.
pub fn try_all(plugin: Option<&[u8]>, of_wire: Option<&WirePlugin<'_>>) -> Vec<Capability> {
    let start = Instant::now();
    let found = find_qemu(Arch::OWN);
    let qemu_verdict = explain::qemu(&found);
    let qemu = found.ok().filter(|_| qemu_verdict.works());
    let first = capability("qemu", &format!("QEMU for {} guests", Arch::OWN), qemu_verdict, start);
    let timed = |id: &str, what: &str, attempt: &dyn Fn(&Path) -> Availability| {
        let start = Instant::now();
        let verdict = qemu.as_deref().map_or_else(explain::no_qemu, attempt);
        capability(id, what, verdict, start)
    };
    let one = |verdict: Capability| vec![verdict];
    let rest = threads::each(vec![
        Box::new(|| others::capabilities(plugin, of_wire)) as Task<'_, Vec<Capability>>,
        Box::new(|| {
            one(timed("qemu-tcg", "a trial guest under TCG, counting instructions", &|qemu| {
                explain::tcg(Arch::OWN, &boot(qemu, Arch::OWN, Accelerator::Tcg))
            }))
        }),
        Box::new(|| {
            one(timed("qemu-kvm", "a trial guest under KVM", &|qemu| {
                explain::no_kvm()
                    .unwrap_or_else(|| explain::kvm(&boot(qemu, Arch::OWN, Accelerator::Kvm)))
            }))
        }),
        Box::new(|| {
            one(timed("qemu-plugin", "the counting plugin in QEMU", &|qemu| {
                explain::plugin(&probe_plugin(qemu, Arch::OWN, plugin))
            }))
        }),
        Box::new(|| one(wire::capability(Arch::OWN, of_wire))),
        Box::new(|| one(others::agent(Arch::OWN, "agent"))),
    ]);
    // Trials of other architectures last: most runs don't need them.
    let mut rest = rest.into_iter();
    let others = rest.next().unwrap_or_default();
    let rest = rest.flatten().chain(others);
    std::iter::once(first).chain(rest).collect()
}

fn capability(id: &str, what: &str, verdict: Availability, start: Instant) -> Capability {
    let took_ms = (start.elapsed().as_secs_f64() * 1e4).round() / 10.0;
    Capability { id: id.into(), group: Group::Vm, what: what.into(), verdict, took_ms }
}

#[cfg(test)]
mod tests;
