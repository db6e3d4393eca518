//! The privileges that each lab needs.

use std::fs;

use netplumb_model::experiment::Lab;
use netplumb_sys::netns::with_own_memory;
use netplumb_sys::proc;

use crate::exit::CannotHere;

/// A capability of include/uapi/linux/capability.h.
#[derive(Debug, Clone, Copy)]
struct Capability {
    number: u32,
    name: &'static str,
    /// Whether the kernel takes CAP_SYS_ADMIN for it, too.
    is_implied: bool,
}

const fn capability(number: u32, name: &'static str, is_implied: bool) -> Capability {
    Capability { number, name, is_implied }
}

const DAC_READ_SEARCH: Capability = capability(2, "CAP_DAC_READ_SEARCH", false);
const NET_ADMIN: Capability = capability(12, "CAP_NET_ADMIN", false);
const NET_RAW: Capability = capability(13, "CAP_NET_RAW", false);
const SYS_PTRACE: Capability = capability(19, "CAP_SYS_PTRACE", false);
const SYS_ADMIN: Capability = capability(21, "CAP_SYS_ADMIN", false);
const SYSLOG: Capability = capability(34, "CAP_SYSLOG", true);
const PERFMON: Capability = capability(38, "CAP_PERFMON", true);
const BPF: Capability = capability(39, "CAP_BPF", true);

/// The last words of messages about what guests do as well.
const OR_IN_GUESTS: &str = "; lab vm needs none of them";

/// What is done with capabilities.
#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    /// As the subject of a sentence.
    what: &'a str,
    /// The command, after `plumb`.
    command: &'a str,
    /// Those without which it fails.
    needs: &'a [Capability],
    /// Those without which less is seen: tracepoints by their names, files of other users' processes, names of the kernel.
    sees_by: &'a [Capability],
    /// What else the user may do.
    or: &'a str,
}

/// Check that the process has the capabilities that the lab needs, and prepare it for making namespaces.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check(lab: Lab) -> Result<(), CannotHere> {
    let needs = [BPF, PERFMON, NET_ADMIN, SYS_ADMIN];
    match lab {
        Lab::Netns => {
            let (what, or) = ("the netns lab", OR_IN_GUESTS);
            check_all(&Work { what, command: "...", needs: &needs, sees_by: &[], or })?;
            keep_names_to_itself()
        }
        _ => {
            let (what, or) = ("the host lab", OR_IN_GUESTS);
            check_all(&Work { what, command: "...", needs: &needs[..3], sees_by: &[], or })
        }
    }
}

/// Check that the process has the capabilities for a bench on this machine, and prepare it for making namespaces.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check_of_bench() -> Result<(), CannotHere> {
    let needs = [BPF, PERFMON, NET_ADMIN, NET_RAW, SYS_ADMIN];
    let (what, or) = ("a bench", "; in a guest (--lab vm) it needs none of them");
    check_all(&Work { what, command: "bench ...", needs: &needs, sees_by: &[], or })?;
    keep_names_to_itself()
}

/// Check that the process has the capabilities to load programs of all kinds, without attaching them.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check_of_verifying() -> Result<(), CannotHere> {
    let (what, command) = ("loading BPF programs", "bench verify ...");
    check_all(&Work { what, command, needs: &[BPF, PERFMON, NET_ADMIN], sees_by: &[], or: "" })
}

/// Check that the process has the capabilities to look at all work: to sample it (`what`), by a command
/// of this name.
///
/// # Errors
/// The missing capabilities, and how to get them.
pub(crate) fn check_of_work(what: &str, command: &str) -> Result<(), CannotHere> {
    let (needs, sees_by) = (&[BPF, PERFMON], &[DAC_READ_SEARCH, SYS_PTRACE, SYSLOG]);
    check_all(&Work { what, command: &format!("{command} ..."), needs, sees_by, or: "" })
}

/// Check that the process may trace calls by the kernel's tracer, whose files are root's.
///
/// # Errors
/// It may not.
pub(crate) fn check_of_calls() -> Result<(), CannotHere> {
    match lacking(&[SYS_ADMIN], effective()).as_slice() {
        [] => Ok(()),
        missing => Err(CannotHere(format!(
            "timing calls needs {}, which this process lacks: run it as root (sudo plumb trace ...); in guests \
             (--lab vm) it needs no rights",
            missing.join(", ")
        ))),
    }
}

/// Check that the process is root's, as settings of this machine and the journal that restores them are.
///
/// # Errors
/// It is another user's.
pub(crate) fn check_of_settings() -> Result<(), CannotHere> {
    match is_root() {
        true => Ok(()),
        false => {
            Err(CannotHere("changing settings of this machine needs root: run it with sudo".into()))
        }
    }
}

fn check_all(work: &Work<'_>) -> Result<(), CannotHere> {
    if let Some(why) = refusal(work, effective()) {
        return Err(CannotHere(why));
    }
    // Root of a user namespace has every capability in it, but BPF and perf want capabilities in the initial namespace.
    let ids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    match is_initial(&ids) {
        true => Ok(()),
        false => Err(CannotHere(format!(
            "{} needs capabilities outside of user namespaces, and this process is in one (a container without root, \
             or unshare --user): run it outside{}",
            work.what, work.or
        ))),
    }
}

/// Why the work can't be done with these capabilities; none if it can.
fn refusal(work: &Work<'_>, effective: u64) -> Option<String> {
    let missing = lacking(work.needs, effective);
    if missing.is_empty() {
        return None;
    }
    let all = work.needs.iter().chain(work.sees_by);
    let file: Vec<String> = all.map(|capability| capability.name.to_lowercase()).collect();
    Some(format!(
        "{} needs {}, which this process lacks: run it as root (sudo plumb {}), or grant the capabilities: sudo setcap \
         {}+ep $(command -v plumb){}",
        work.what,
        missing.join(", "),
        work.command,
        file.join(","),
        work.or
    ))
}

/// Capabilities that are missing.
fn lacking(needs: &[Capability], effective: u64) -> Vec<&'static str> {
    let has = |one: &Capability| effective >> one.number & 1 == 1;
    let may = |one: &Capability| has(one) || one.is_implied && has(&SYS_ADMIN);
    needs.iter().filter(|one| !may(one)).map(|one| one.name).collect()
}

/// The effective capabilities, a bit for each.
fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").ok();
    let field = status.as_deref().and_then(|status| proc::field(status, "CapEff"));
    field.and_then(|field| u64::from_str_radix(field, 16).ok()).unwrap_or(0)
}

/// Whether this is /proc/self/uid_map of the initial user namespace: all users are themselves.
fn is_initial(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Without root, give this thread and what it starts a /run of their own: namespaces get names below /run/netns, and are
/// journaled in /run/netplumb, which are root's. What is made there ends with the process, however it ends.
fn keep_names_to_itself() -> Result<(), CannotHere> {
    if is_root() {
        return Ok(());
    }
    with_own_memory(c"/run").map_err(|source| {
        CannotHere(format!(
            "without root, names of network namespaces need a file system of their own at /run, which can't be mounted \
             ({source}): run it as root (sudo plumb ...)"
        ))
    })
}

/// Whether the process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(needs: &[Capability]) -> Work<'_> {
        Work { what: "it", command: "x", needs, sees_by: &[SYSLOG], or: OR_IN_GUESTS }
    }

    /// Check that root lacks nothing, that an ordinary user lacks all, that CAP_SYS_ADMIN implies some of the others, and
    /// that the message names what to grant.
    #[test]
    fn capabilities() {
        let needs = [BPF, PERFMON, NET_ADMIN, SYS_ADMIN];
        assert_eq!(refusal(&of(&needs), u64::MAX), None);
        assert_eq!(refusal(&of(&needs[..3]), 1 << 12 | 1 << 38 | 1 << 39), None);
        assert_eq!(lacking(&needs[..3], 1 << 21), ["CAP_NET_ADMIN"]);
        assert_eq!(
            refusal(&of(&needs), 0).unwrap(),
            "it needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN, which this process lacks: run it as root (sudo \
             plumb x), or grant the capabilities: sudo setcap cap_bpf,cap_perfmon,cap_net_admin,cap_sys_admin,cap_syslog+ep \
             $(command -v plumb); lab vm needs none of them"
        );
    }

    /// Check that the initial user namespace is recognised, and no other is taken for it.
    #[test]
    fn user_namespaces() {
        assert!(is_initial("         0          0 4294967295\n"));
        for other in ["", "         0       1000          1\n", "0 0 1000\n1000 2000 65536\n"] {
            assert!(!is_initial(other), "{other}");
        }
    }
}
