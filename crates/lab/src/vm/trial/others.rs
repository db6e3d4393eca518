//! The requirements of guests of other architectures than this machine's: QEMU for them, and the agent.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use netplumb_model::arch::Arch;
use netplumb_model::capability::{Availability, Capability};

use super::wire::{self, WirePlugin};
use super::{QemuMissing, VERSION_LIMIT, capability, explain, find_qemu, probe_plugin, version};
use crate::vm::agent::{self, Program};

/// Whether guests of the other architectures can run, with the plugins for counting and for a wire.
pub(super) fn capabilities(
    plugin: Option<&[u8]>,
    of_wire: Option<&WirePlugin<'_>>,
) -> Vec<Capability> {
    let others = Arch::ALL.iter().filter(|arch| **arch != Arch::OWN);
    others.flat_map(|arch| of_arch(*arch, plugin, of_wire)).collect()
}

fn of_arch(arch: Arch, plugin: Option<&[u8]>, of_wire: Option<&WirePlugin<'_>>) -> [Capability; 4] {
    let start = Instant::now();
    let found = find_qemu(arch);
    let file = found.as_ref().ok().cloned();
    let qemu = capability(
        &format!("qemu-{}", arch.uname()),
        &format!("QEMU for {arch} guests"),
        qemu(arch, found),
        start,
    );
    let start = Instant::now();
    let counted = capability(
        &format!("qemu-plugin-{}", arch.uname()),
        &format!("a trial {arch} guest with the counting plugin"),
        match file.filter(|_| qemu.verdict.works()) {
            Some(file) => explain::plugin(&probe_plugin(&file, arch, plugin)),
            None => Availability::no("no working QEMU", explain::install(arch)),
        },
        start,
    );
    let agent = agent(arch, &format!("agent-{}", arch.uname()));
    [qemu, counted, wire::capability(arch, of_wire), agent]
}

/// Whether there is an agent for guests of an architecture.
pub(super) fn agent(arch: Arch, id: &str) -> Capability {
    let start = Instant::now();
    let verdict = match agent::program(arch) {
        Ok(Program::InPlumb(_)) => Availability::yes("part of plumb"),
        Ok(Program::At(path)) => Availability::yes(path.display().to_string()),
        Err(error) => Availability::no(error.reason(), error.remedy()),
    };
    capability(id, &format!("the agent of {arch} guests"), verdict, start)
}

fn qemu(arch: Arch, found: Result<PathBuf, QemuMissing>) -> Availability {
    let remedy = || format!("sudo apt-get install {}", arch.qemu_package());
    let file = match found {
        Ok(file) => file,
        Err(missing) => return Availability::no(missing.to_string(), remedy()),
    };
    match version(&file, VERSION_LIMIT, &AtomicBool::new(false)) {
        Ok(version) => explain::started(arch, &file, version),
        Err(error) => {
            Availability::no(format!("{} does not start: {error}", file.display()), remedy())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that there are four answers for each other architecture, and that a missing QEMU is one with
    /// its package.
    #[test]
    fn missing() {
        let all = capabilities(None, None);
        assert_eq!(all.len(), 4 * (Arch::ALL.len() - 1));
        let verdict = qemu(Arch::Arm64, Err(QemuMissing::NotInPath(Arch::Arm64)));
        let Availability::No { reason, remedy } = verdict else {
            panic!("{verdict:?}");
        };
        assert!(reason.contains("qemu-system-aarch64"), "{reason}");
        assert!(remedy.contains("qemu-system-arm"), "{remedy}");
    }
}
