//! What a process needs to be allowed for each lab.

use std::fs;

use netplumb_model::experiment::Lab;
use netplumb_sys::proc;

use crate::exit::CannotHere;

/// Numbers of include/uapi/linux/capability.h.
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const BPF: (u32, &str) = (39, "CAP_BPF");

/// Check that the process may do what the lab takes.
///
/// # Errors
/// It may not: which capabilities it lacks, and how to get them.
pub(crate) fn check(lab: Lab) -> Result<(), CannotHere> {
    match missing(lab, effective().unwrap_or(0)).as_slice() {
        [] => Ok(()),
        missing => Err(CannotHere(told(lab, missing))),
    }
}

fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    u64::from_str_radix(proc::field(&status, "CapEff")?, 16).ok()
}

fn missing(lab: Lab, effective: u64) -> Vec<&'static str> {
    let has = |(number, _): (u32, &str)| effective >> number & 1 == 1;
    // As the kernel has it: who has CAP_SYS_ADMIN has these two.
    let mut needed = vec![(BPF, true), (PERFMON, true), (NET_ADMIN, false)];
    if lab == Lab::Netns {
        needed.push((SYS_ADMIN, false));
    }
    let lacks = |(capability, implied): &((u32, &'static str), bool)| {
        let by_other = *implied && has(SYS_ADMIN);
        !has(*capability) && !by_other
    };
    let lacking = needed.into_iter().filter(lacks);
    lacking.map(|((_, name), _)| name).collect()
}

fn told(lab: Lab, missing: &[&str]) -> String {
    let (name, file) = match lab {
        Lab::Netns => ("netns", "cap_bpf,cap_perfmon,cap_net_admin,cap_sys_admin"),
        _ => ("host", "cap_bpf,cap_perfmon,cap_net_admin"),
    };
    let mut text = format!(
        "the lab `{name}` needs {}, which this process does not have: run it as root (sudo plumb \
         ...), or give the program what it needs: sudo setcap {file}+ep $(command -v plumb)",
        missing.join(", ")
    );
    if lab == Lab::Netns {
        text.push_str(
            "; CAP_SYS_ADMIN is for making network namespaces; the vm lab needs none of them",
        );
    } else {
        text.push_str("; the vm lab needs none of them");
    }
    text
}

/// That a bench needs root.
pub(crate) const NO_ROOT: &str = "a bench makes network namespaces and loads programs into the kernel, which \
                       takes root: run it with sudo";

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that root lacks nothing, nobody lacks all, and that the general capability
    /// stands for the particular ones.
    #[test]
    fn capabilities() {
        assert!(missing(Lab::Netns, u64::MAX).is_empty());
        assert_eq!(
            missing(Lab::Netns, 0),
            ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
        );
        assert_eq!(missing(Lab::Host, 1 << 21), ["CAP_NET_ADMIN"]);
        assert!(missing(Lab::Host, 1 << 12 | 1 << 38 | 1 << 39).is_empty());
        assert!(told(Lab::Host, &["CAP_BPF"]).contains("setcap"));
    }
}
