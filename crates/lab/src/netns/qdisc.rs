//! Qdiscs: set by `tc`, which is copied into a guest, and read back.

use std::env;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netplumb_model::experiment::Qdisc;

/// The path of `tc` in a guest.
pub const TC: &str = "/usr/sbin/tc";
/// The error if there is no `tc`.
pub const NO_TC: &str = "queueing disciplines are set by this machine's `tc`, which is not \
                         installed: apt-get install iproute2";
/// Maximum length of messages of `tc`.
const SHOWN_CHARACTERS: usize = 600;

/// Set the root qdisc of a device of this namespace; returns what reads back.
pub(super) fn apply(qdisc: &Qdisc, device: &str) -> io::Result<String> {
    let tc = program().ok_or_else(|| io::Error::new(ErrorKind::Unsupported, NO_TC))?;
    let mut words = vec!["qdisc", "replace", "dev", device, "root"];
    words.extend(qdisc.words().iter().map(String::as_str));
    run(&tc, &words, qdisc)?;
    let listing = run(&tc, &["qdisc", "show", "dev", device], qdisc)?;
    match root_of(&listing) {
        Some((kind, options)) if kind == qdisc.kind() => Ok(options),
        other => Err(io::Error::other(format!(
            "`{}` reads back as `{}`",
            qdisc.words().join(" "),
            other.map_or("none".into(), |(_, options)| options)
        ))),
    }
}

/// The path of `tc`. Init has no PATH, and a user's PATH often lacks `sbin`.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = env::split_paths(&path).filter(|folder| folder.is_absolute());
    [TC, "/sbin/tc", "/usr/bin/tc", "/bin/tc"]
        .map(PathBuf::from)
        .into_iter()
        .chain(own.map(|folder| folder.join("tc")))
        .find(|path| Path::is_file(path))
}

fn run(tc: &Path, words: &[&str], qdisc: &Qdisc) -> io::Result<String> {
    let output = Command::new(tc)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("can't run {}: {e}", tc.display())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refusal(&String::from_utf8_lossy(&output.stderr), qdisc))
}

/// The error for a message of `tc`.
fn refusal(said: &str, qdisc: &Qdisc) -> io::Error {
    let kind = qdisc.kind();
    let said: String =
        said.chars().filter(|c| !c.is_control() || *c == '\n').take(SHOWN_CHARACTERS).collect();
    let said = said.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // Messages of the kernel (net/sched/sch_api.c, qdisc_create); before 5.0 tc only printed the
    // error's name.
    let unknown = ["qdisc kind is unknown", "Specified qdisc not found", "No such file"];
    if unknown.iter().any(|words| said.contains(words)) {
        let module = qdisc.module().unwrap_or_default();
        return io::Error::new(
            ErrorKind::Unsupported,
            format!(
                "qdisc `{kind}` is not supported by this kernel: not built in, and no module {module}; use another qdisc, or --lab vm, whose kernels have most (tc says: {})",
                said.trim()
            ),
        );
    }
    io::Error::other(format!("tc says: {}", said.trim()))
}

/// The name and the parameters of the root qdisc in the output of `tc qdisc show`, without what
/// differs each time.
fn root_of(listing: &str) -> Option<(String, String)> {
    let line = listing
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&"qdisc") && words.get(3) == Some(&"root"))?;
    let kind = *line.get(1)?;
    let mut rest = &line[4..];
    if let ["refcnt", _, more @ ..] = rest {
        rest = more;
    }
    Some((kind.to_string(), [&[kind], rest].concat().join(" ")))
}

#[cfg(test)]
mod tests {
    use netplumb_model::experiment::{Knobs, Lab};

    use super::*;

    fn netem() -> Qdisc {
        let knobs = Knobs::from_pairs([("qdisc", "netem delay 20us")]).unwrap();
        Qdisc::from_arm(&knobs.arm("one".into(), Lab::Vm)).unwrap()
    }

    /// Check that the root is found in a listing, without its handle and reference count.
    #[test]
    fn a_listing_is_read() {
        let of =
            |listing: &str| root_of(listing).map(|(kind, options)| format!("{kind}: {options}"));
        let netem = "qdisc netem 8001: root refcnt 2 limit 1000 delay 20us\n";
        assert_eq!(of(netem).unwrap(), "netem: netem limit 1000 delay 20us");
        let many = "qdisc fq_codel 0: parent :1 limit 10240p\nqdisc mq 0: root \n";
        assert_eq!(of(many).unwrap(), "mq: mq");
        assert_eq!(of("qdisc noqueue 0: root refcnt 2 \n").unwrap(), "noqueue: noqueue");
        assert_eq!(of(""), None);
        assert_eq!(of("qdisc\n"), None);
    }

    /// Check that a kernel without a qdisc is distinguished from arguments that `tc` rejects.
    #[test]
    fn refusals() {
        let lacks = refusal("Error: Specified qdisc kind is unknown.\n", &netem());
        assert_eq!(lacks.kind(), ErrorKind::Unsupported);
        let text = lacks.to_string();
        assert!(text.contains("sch_netem") && text.contains("--lab vm"), "{text}");
        let words = refusal("What is \"dealy\"?\nUsage: ... netem\n\u{1b}[0m", &netem());
        assert_eq!(words.kind(), ErrorKind::Other);
        let text = words.to_string();
        assert!(text.contains("What is \"dealy\"? Usage"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
