//! What can be measured on a machine: the results of `plumb doctor`.
//!
//! Plain data, independent of how it was tried. The JSON of `plumb doctor --json` is a [`Doctor`].

use serde::{Deserialize, Serialize};

/// Whether something is available on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Availability {
    /// It was tried, and it worked.
    Yes {
        /// The result of the trial.
        detail: String,
    },
    /// It worked in part.
    Partly {
        /// What worked.
        detail: String,
        /// Why the rest did not work.
        reason: String,
        /// The remedy for the rest.
        remedy: String,
    },
    /// It was tried, and it did not work.
    No {
        /// Why not.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Availability {
    /// Available.
    pub fn yes(detail: impl Into<String>) -> Self {
        Self::Yes { detail: detail.into() }
    }

    /// Available in part.
    pub fn partly(
        detail: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Partly { detail: detail.into(), reason: reason.into(), remedy: remedy.into() }
    }

    /// Not available: the reason and what to do.
    pub fn no(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::No { reason: reason.into(), remedy: remedy.into() }
    }

    /// Whether it is available, at least in part.
    pub fn works(&self) -> bool {
        !matches!(self, Self::No { .. })
    }
}

/// Groups of capabilities, with the headings of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Building and booting a guest, and counting its instructions.
    Vm,
    /// Entry-to-exit time of single kernel functions.
    Functions,
    /// Time between tracepoints.
    Stages,
    /// Samples and counters.
    Profile,
    /// Making, dropping and redirecting packets.
    Packets,
    /// Free disk space and memory.
    Resources,
}

impl Group {
    /// All groups, in the order of the list.
    pub const ALL: [Self; 6] =
        [Self::Vm, Self::Functions, Self::Stages, Self::Profile, Self::Packets, Self::Resources];

    /// Its heading in the list.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "virtual machine",
            Self::Functions => "kernel functions",
            Self::Stages => "tracepoints",
            Self::Profile => "samples and counters",
            Self::Packets => "packets",
            Self::Resources => "disk and memory",
        }
    }
}

/// A capability that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// A stable name for scripts: `fentry`, `xdp-native`, `qemu-plugin`.
    pub id: String,
    /// The group of instruments that needs it.
    pub group: Group,
    /// The trial, in words.
    pub what: String,
    /// Whether it works, and if not, why.
    pub verdict: Availability,
    /// How long the trial took, in milliseconds.
    pub took_ms: f64,
}

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// The hardware's name, as `uname -m` gives it.
    pub arch: String,
    /// The name of the distribution.
    pub os: String,
    /// The processor's name.
    pub cpu: String,
    /// Processors online.
    pub cpus: u32,
    /// Total memory, in MiB.
    pub memory_mib: u64,
    /// Whether the machine is a guest.
    pub guest: bool,
    /// The lockdown mode: `none`, `integrity`, `confidentiality`; none if unknown.
    pub lockdown: Option<String>,
    /// The privileges of the process: `root`, `ordinary user`, `root in a user namespace`...
    pub privilege: String,
}

/// Whether an instrument works in a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentAvailability {
    /// The instrument's name: `exact`, `functions`, `stages`...
    pub instrument: String,
    /// Whether it works there.
    pub verdict: Availability,
}

/// A lab, and which instruments are available in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// `vm`, `netns` or `host`.
    pub lab: String,
    /// Whether the lab is available.
    pub verdict: Availability,
    /// The instruments; empty if the lab is not available.
    pub instruments: Vec<InstrumentAvailability>,
}

impl Lab {
    /// Whether the lab and at least one instrument in it are available.
    pub fn works(&self) -> bool {
        self.verdict.works() && self.instruments.iter().any(|i| i.verdict.works())
    }
}

/// Everything that `plumb doctor` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doctor {
    /// The machine that was examined.
    pub machine: Machine,
    /// The capabilities, in the order of [`Group::ALL`].
    pub capabilities: Vec<Capability>,
    /// Each lab, with its instruments.
    pub labs: Vec<Lab>,
    /// Total time of the trials, in milliseconds.
    pub took_ms: f64,
}

impl Doctor {
    /// Whether at least one lab works.
    pub fn any_lab_works(&self) -> bool {
        self.labs.iter().any(Lab::works)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a lab with no working instrument does not count as working.
    #[test]
    fn a_lab_needs_an_instrument() {
        let no = Availability::no("it is broken", "mend it");
        let mut lab = Lab {
            lab: "netns".into(),
            verdict: Availability::yes("built"),
            instruments: vec![InstrumentAvailability { instrument: "stages".into(), verdict: no }],
        };
        assert!(!lab.works());
        lab.instruments[0].verdict = Availability::partly("some", "not all", "do more");
        assert!(lab.works());
        lab.verdict = Availability::no("no namespaces", "get some");
        assert!(!lab.works());
    }

    /// Check that every group has its own heading and stands once in the order.
    #[test]
    fn groups_are_listed_once() {
        let mut titles: Vec<_> = Group::ALL.iter().map(|g| g.title()).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), Group::ALL.len());
    }
}
