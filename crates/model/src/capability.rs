//! What a machine can measure: the answers that `plumb doctor` prints.
//!
//! Plain data. Whoever tried the thing fills it in, and whoever prints it knows nothing of how it
//! was tried. The JSON of `plumb doctor --json` is a [`Doctor`], field for field.

use serde::{Deserialize, Serialize};

/// The answer to "can this be done here?".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Verdict {
    /// It was tried, and it worked.
    Yes {
        /// What was seen when it worked, for people.
        detail: String,
    },
    /// It worked, but not in full.
    Partly {
        /// What did work.
        detail: String,
        /// Why the rest did not.
        reason: String,
        /// What to do to get the rest.
        remedy: String,
    },
    /// It was tried, and it did not work.
    No {
        /// Why not, in words for people.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Verdict {
    /// A plain yes.
    pub fn yes(detail: impl Into<String>) -> Self {
        Self::Yes {
            detail: detail.into(),
        }
    }

    /// A yes with a reservation.
    pub fn partly(
        detail: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Partly {
            detail: detail.into(),
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// A no, with its reason and what to do.
    pub fn no(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::No {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// Whether the thing can be used at all: yes and partly count.
    pub fn works(&self) -> bool {
        !matches!(self, Self::No { .. })
    }
}

/// What a capability is for; the headings of the list.
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
    /// Room on disk and in memory.
    Resources,
}

impl Group {
    /// Every group, in the order in which people should read them.
    pub const ALL: [Self; 6] = [
        Self::Vm,
        Self::Functions,
        Self::Stages,
        Self::Profile,
        Self::Packets,
        Self::Resources,
    ];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "virtual machine",
            Self::Functions => "kernel functions",
            Self::Stages => "tracepoints",
            Self::Profile => "samples and counters",
            Self::Packets => "packets",
            Self::Resources => "room",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// A stable name for scripts: `fentry`, `xdp-native`, `qemu-plugin`.
    pub id: String,
    /// What it is for.
    pub group: Group,
    /// What was tried, for people.
    pub what: String,
    /// How it went.
    pub verdict: Verdict,
    /// How long the trial took, in milliseconds.
    pub took_ms: f64,
}

/// What is known of the machine before anything is tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// The hardware's name, as `uname -m` gives it.
    pub arch: String,
    /// The distribution's own name for itself.
    pub os: String,
    /// The processor's name.
    pub cpu: String,
    /// Processors online.
    pub cpus: u32,
    /// Memory in all, in MiB.
    pub memory_mib: u64,
    /// Whether the machine says that it is a guest itself.
    pub guest: bool,
    /// The lockdown mode: `none`, `integrity`, `confidentiality`; nothing if it could not be read.
    pub lockdown: Option<String>,
    /// What the process may do: `root`, `ordinary user`, `root in a user namespace`...
    pub privilege: String,
}

/// Whether an instrument works in a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentVerdict {
    /// The instrument's name: `exact`, `functions`, `stages`...
    pub instrument: String,
    /// Whether it works there.
    pub verdict: Verdict,
}

/// A lab, and what works in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// `vm`, `netns` or `host`.
    pub lab: String,
    /// Whether the lab can be built at all.
    pub verdict: Verdict,
    /// What works in it; empty if it can't be built.
    pub instruments: Vec<InstrumentVerdict>,
}

impl Lab {
    /// Whether the lab can be built and at least one instrument works in it.
    pub fn works(&self) -> bool {
        self.verdict.works() && self.instruments.iter().any(|i| i.verdict.works())
    }
}

/// Everything that `plumb doctor` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doctor {
    /// The machine.
    pub machine: Machine,
    /// What was tried, in the order of [`Group::ALL`].
    pub capabilities: Vec<Capability>,
    /// What follows from it for each lab.
    pub labs: Vec<Lab>,
    /// How long it all took, in milliseconds.
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
        let no = Verdict::no("it is broken", "mend it");
        let mut lab = Lab {
            lab: "netns".into(),
            verdict: Verdict::yes("built"),
            instruments: vec![InstrumentVerdict {
                instrument: "stages".into(),
                verdict: no,
            }],
        };
        assert!(!lab.works());
        lab.instruments[0].verdict = Verdict::partly("some", "not all", "do more");
        assert!(lab.works());
        lab.verdict = Verdict::no("no namespaces", "get some");
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
