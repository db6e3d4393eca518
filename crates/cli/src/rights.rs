//! The privileges that each lab needs.

use std::fs;

use netplumb_model::experiment::Lab;
use netplumb_sys::proc;

use crate::exit::CannotHere;

/// Numbers of include/uapi/linux/capability.h.
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const BPF: (u32, &str) = (39, "CAP_BPF");

/// Check that the process has the capabilities that the lab needs.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check(lab: Lab) -> Result<(), CannotHere> {
    match missing(lab, effective().unwrap_or(0)).as_slice() {
        [] => Ok(()),
        missing => Err(CannotHere(message(lab, missing))),
    }
}

/// Check that the process has the capabilities to look at all work: to sample it (`what`), by a command
/// of this name.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check_of_work(what: &str, command: &str) -> Result<(), CannotHere> {
    let missing = lacking(&[(BPF, true), (PERFMON, true)], effective().unwrap_or(0));
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(CannotHere(format!(
            "{what} needs {}, which this process lacks: run it as root (sudo plumb {command} ...), or grant the capabilities: sudo setcap \
             cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep $(command -v plumb)",
            missing.join(", ")
        ))),
    }
}

/// Check that the process has the capability to trace calls by the kernel's tracer.
///
/// # Errors
/// It is missing.
pub(crate) fn check_of_calls() -> Result<(), CannotHere> {
    match lacking(&[(SYS_ADMIN, false)], effective().unwrap_or(0)).as_slice() {
        [] => Ok(()),
        missing => Err(CannotHere(format!(
            "timing calls needs {}, which this process lacks: run it as root (sudo plumb trace ...); in guests \
             (--lab vm) it needs no rights",
            missing.join(", ")
        ))),
    }
}

fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    u64::from_str_radix(proc::field(&status, "CapEff")?, 16).ok()
}

fn missing(lab: Lab, effective: u64) -> Vec<&'static str> {
    // As in the kernel: CAP_SYS_ADMIN implies these two.
    let mut needed = vec![(BPF, true), (PERFMON, true), (NET_ADMIN, false)];
    if lab == Lab::Netns {
        needed.push((SYS_ADMIN, false));
    }
    lacking(&needed, effective)
}

/// Those that are missing; some are implied by CAP_SYS_ADMIN.
fn lacking(needed: &[((u32, &'static str), bool)], effective: u64) -> Vec<&'static str> {
    let has = |(number, _): (u32, &str)| effective >> number & 1 == 1;
    let lacks = |(capability, implied): &&((u32, &'static str), bool)| {
        let by_other = *implied && has(SYS_ADMIN);
        !has(*capability) && !by_other
    };
    let lacking = needed.iter().filter(lacks);
    lacking.map(|((_, name), _)| *name).collect()
}

fn message(lab: Lab, missing: &[&str]) -> String {
    let (name, file) = match lab {
        Lab::Netns => ("netns", "cap_bpf,cap_perfmon,cap_net_admin,cap_sys_admin"),
        _ => ("host", "cap_bpf,cap_perfmon,cap_net_admin"),
    };
    let mut text = format!(
        "the {name} lab needs {}, which this process lacks: run it as root (sudo plumb ...), or \
         grant the capabilities: sudo setcap {file}+ep $(command -v plumb)",
        missing.join(", ")
    );
    if lab == Lab::Netns {
        text.push_str(
            "; CAP_SYS_ADMIN is needed to make network namespaces; the vm lab needs none of them",
        );
    } else {
        text.push_str("; the vm lab needs none of them");
    }
    text
}

/// The error that a bench needs root.
pub(crate) const NO_ROOT: &str = "a bench needs root, to make network namespaces and load BPF programs: run it \
                       with sudo";

/// Whether the process runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that root lacks nothing, that an ordinary user lacks all, and that CAP_SYS_ADMIN
    /// implies the others.
    #[test]
    fn capabilities() {
        assert!(missing(Lab::Netns, u64::MAX).is_empty());
        assert_eq!(
            missing(Lab::Netns, 0),
            ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
        );
        assert_eq!(missing(Lab::Host, 1 << 21), ["CAP_NET_ADMIN"]);
        assert!(missing(Lab::Host, 1 << 12 | 1 << 38 | 1 << 39).is_empty());
        assert!(message(Lab::Host, &["CAP_BPF"]).contains("setcap"));
    }
}
