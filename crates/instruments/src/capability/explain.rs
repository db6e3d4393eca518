//! From an error number to a reason and a remedy in words.

use netplumb_model::capability::Availability;
use netplumb_sys::errno;

use super::context::{Cap, Context};
use super::program::Failure;

/// The requirements of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    /// Privileges.
    pub(super) caps: &'static [Cap],
    /// Kernel options, all required.
    pub(super) config: &'static [&'static str],
    /// The first kernel that can do it.
    pub(super) since: Option<(u32, u32)>,
}

/// The remedy if only another kernel helps.
pub(super) const OTHER_KERNEL: &str = "use a kernel that supports it in the vm lab";

/// The privileges that measuring the running kernel needs; one remedy for every such trial.
const ASK_ROOT: &str = "run as root or give CAP_BPF+CAP_PERFMON+CAP_NET_ADMIN: sudo plumb doctor";

/// Why a trial failed, and what to do.
pub(super) fn no(context: &Context, need: &Need, failure: &Failure) -> Availability {
    let lacking: Vec<_> = need.config.iter().filter(|o| context.config.lacks(o)).copied().collect();
    if !lacking.is_empty() {
        return Availability::no(
            format!("this kernel was built without {}", lacking.join(" and ")),
            format!(
                "boot a kernel built with {0}, or use one in the vm lab",
                lacking.join(" and ")
            ),
        );
    }
    if let Some((major, minor)) = need.since.filter(|since| context.version < *since) {
        return Availability::no(
            format!("it needs Linux {major}.{minor} or newer, and this is {}", context.release),
            format!("boot Linux {major}.{minor} or newer, or use such a kernel in the vm lab"),
        );
    }
    match failure.errno {
        libc::EPERM | libc::EACCES => denied(context, need, failure),
        libc::EINVAL
        | libc::EOPNOTSUPP
        | libc::ENOENT
        | libc::ENODEV
        | libc::ENOSYS
        | errno::ENOTSUPP => Availability::no(
            format!("not supported by this kernel: {}", words(failure)),
            OTHER_KERNEL,
        ),
        libc::EBUSY | libc::EEXIST => Availability::no(
            format!("in use by something else: {}", words(failure)),
            "stop the other tracer (`bpftool link` lists what is attached) and try again",
        ),
        libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => Availability::no(
            format!("out of memory, or over a limit: {}", words(failure)),
            "free memory or raise the limit (ulimit -l, ulimit -n) and try again",
        ),
        _ => Availability::no(
            words(failure),
            "look at the end of the kernel's log: sudo dmesg | tail",
        ),
    }
}

fn denied(context: &Context, need: &Need, failure: &Failure) -> Availability {
    let privilege = &context.privilege;
    let missing: Vec<_> =
        need.caps.iter().filter(|c| !privilege.has(**c)).map(|c| c.name()).collect();
    if !missing.is_empty() {
        let root = privilege.uid == 0;
        let who = if root { "root, but" } else { "not root, and" };
        let remedy = match (root, need.caps.contains(&Cap::SysAdmin)) {
            (true, _) => format!(
                "give the container {} (docker run --privileged), or run outside it",
                missing.join("+")
            ),
            (false, true) => "run as root: sudo plumb doctor".to_owned(),
            (false, false) => ASK_ROOT.to_owned(),
        };
        return Availability::no(format!("{who} without {}", missing.join(", ")), remedy);
    }
    if privilege.user_namespace {
        return Availability::no(
            "root in a user namespace is not root to the kernel",
            "run outside the container, or in one without a user namespace",
        );
    }
    if let Some(mode) = context.locked_down() {
        return Availability::no(
            format!("the kernel is locked down (lockdown={mode}): {}", words(failure)),
            "use the vm lab, or boot with lockdown=none (with Secure Boot, switch that off)",
        );
    }
    let filter = if privilege.seccomp {
        (
            "a seccomp filter probably forbids it (a container's)",
            "run outside the container, or with --security-opt seccomp=unconfined",
        )
    } else {
        (
            "a security module may forbid it",
            "look at the end of the kernel's log: sudo dmesg | tail",
        )
    };
    Availability::no(
        format!("{}, although the capabilities are there; {}", words(failure), filter.0),
        filter.1,
    )
}

/// The failure in one line: the operation, the error, the verifier's message.
pub(super) fn words(failure: &Failure) -> String {
    let said = errno::words(failure.errno);
    match &failure.log {
        Some(log) => format!("{} failed: {said}: {log}", failure.doing),
        None => format!("{} failed: {said}", failure.doing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::btf::Missing;
    use crate::capability::context::{Config, Privilege};

    fn context(uid: u32, effective: u64) -> Context {
        Context {
            privilege: Privilege { uid, effective, ..Privilege::default() },
            release: "6.1.0-40-amd64".into(),
            version: (6, 1),
            lockdown: Some("none".into()),
            config: Config::default(),
            perf_event_paranoid: Some(2),
            targets: Err(Missing { errno: libc::ENOENT }),
        }
    }

    const NEED: Need =
        Need { caps: &[Cap::Bpf, Cap::Perfmon], config: &["CONFIG_KPROBES"], since: Some((5, 8)) };

    fn answer(context: &Context, errno: i32) -> (String, String) {
        match no(context, &NEED, &Failure::new("loading the program", errno)) {
            Availability::No { reason, remedy } => (reason, remedy),
            other => panic!("not a no: {other:?}"),
        }
    }

    /// Check that for an ordinary user the missing privileges are named, and how to get them.
    #[test]
    fn an_ordinary_user_is_sent_to_root() {
        let (reason, remedy) = answer(&context(1000, 0), libc::EPERM);
        assert_eq!(reason, "not root, and without CAP_BPF, CAP_PERFMON");
        assert!(remedy.contains("sudo plumb doctor"));
    }

    /// Check that a missing option is named before any privilege: root would not help.
    #[test]
    fn a_missing_option_comes_first() {
        let mut context = context(1000, 0);
        context.config = Config::parse("CONFIG_BPF=y\n");
        let (reason, remedy) = answer(&context, libc::EPERM);
        assert!(reason.contains("CONFIG_KPROBES"));
        assert!(remedy.contains("the vm lab"));
    }

    /// Check that lockdown is blamed only if the process has the privileges.
    #[test]
    fn lockdown_is_named_to_root() {
        let mut context = context(0, u64::MAX);
        context.lockdown = Some("integrity".into());
        let (reason, remedy) = answer(&context, libc::EPERM);
        assert!(reason.contains("lockdown=integrity"));
        assert!(remedy.contains("lockdown=none") && remedy.contains("the vm lab"));
    }

    /// Check that the required version is reported for an old kernel.
    #[test]
    fn an_old_kernel_is_named() {
        let mut context = context(0, u64::MAX);
        context.version = (5, 4);
        assert!(answer(&context, libc::EINVAL).0.contains("Linux 5.8"));
    }

    /// Check that root without privileges is recognised as in a container, and that a user
    /// namespace and a seccomp filter are distinguished.
    #[test]
    fn containers_differ() {
        let (reason, remedy) = answer(&context(0, 0), libc::EPERM);
        assert!(reason.contains("root, but without") && remedy.contains("container"));
        let mut inside = context(0, u64::MAX);
        inside.privilege.seccomp = true;
        assert!(answer(&inside, libc::EPERM).0.contains("seccomp"));
        inside.privilege.user_namespace = true;
        assert!(answer(&inside, libc::EPERM).0.contains("user namespace"));
    }

    /// Check that every error number, known or not, gets a reason and a remedy.
    #[test]
    fn every_errno_has_words() {
        for errno in 1..600 {
            let (reason, remedy) = answer(&context(0, u64::MAX), errno);
            assert!(!reason.is_empty() && !remedy.is_empty());
        }
        assert!(answer(&context(0, u64::MAX), 524).0.contains("ENOTSUPP"));
    }
}
