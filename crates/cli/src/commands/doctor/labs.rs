//! What the trials mean for each lab.

use netplumb_model::capability::{Capability, InstrumentVerdict, Lab, Verdict};

/// Every lab, judged by what was tried.
pub(super) fn judge(capabilities: &[Capability]) -> Vec<Lab> {
    let tried = Tried(capabilities);
    vec![vm(&tried), netns(&tried), host(&tried)]
}

struct Tried<'a>(&'a [Capability]);

impl Tried<'_> {
    fn verdict(&self, id: &str) -> Verdict {
        let found = self
            .0
            .iter()
            .find(|c| c.id == id)
            .map(|c| c.verdict.clone());
        // Only a trial that crashed leaves no answer.
        found.unwrap_or_else(|| {
            Verdict::no(
                format!("the trial of {id} gave no answer"),
                "report it, with plumb doctor --json",
            )
        })
    }

    fn works(&self, id: &str) -> bool {
        self.verdict(id).works()
    }

    /// The first no among them.
    fn obstacle(&self, ids: &[&str]) -> Option<Verdict> {
        ids.iter().map(|id| self.verdict(id)).find(|v| !v.works())
    }

    /// The answer of the first way that works, or why the others don't.
    fn any(&self, ways: &[(&[&str], &str)]) -> Verdict {
        let mut refusals: Vec<(String, String)> = Vec::new();
        for (needs, detail) in ways {
            match self.obstacle(needs) {
                None => return Verdict::yes(*detail),
                Some(Verdict::No { reason, remedy }) => {
                    if !refusals.iter().any(|(r, _)| *r == reason) {
                        refusals.push((reason, remedy));
                    }
                }
                Some(_) => (),
            }
        }
        let reasons: Vec<&str> = refusals.iter().map(|(r, _)| r.as_str()).collect();
        let remedy = refusals.first().map_or("", |(_, remedy)| remedy.as_str());
        Verdict::no(reasons.join("; and "), remedy)
    }
}

fn entry(instrument: &str, verdict: Verdict) -> InstrumentVerdict {
    InstrumentVerdict {
        instrument: instrument.to_owned(),
        verdict,
    }
}

/// A guest: what it can measure depends on its own kernel, and on what runs it.
fn vm(tried: &Tried<'_>) -> Lab {
    let lab = "vm".to_owned();
    if let Some(obstacle) = tried.obstacle(&["qemu", "qemu-tcg", "kernel", "memory"]) {
        return Lab {
            lab,
            verdict: obstacle,
            instruments: Vec::new(),
        };
    }
    // A kernel that is still to be fetched needs a place to go.
    if let (Verdict::Partly { .. }, no @ Verdict::No { .. }) =
        (tried.verdict("kernel"), tried.verdict("disk"))
    {
        return Lab {
            lab,
            verdict: no,
            instruments: Vec::new(),
        };
    }
    let verdict = match tried.verdict("kernel") {
        Verdict::Partly {
            detail,
            reason,
            remedy,
        } => Verdict::Partly {
            detail: format!("a kernel of your choice in QEMU; {detail}"),
            reason,
            remedy,
        },
        _ => Verdict::yes("a kernel of your choice in QEMU"),
    };
    let exact = match tried.verdict("qemu-plugin") {
        no @ Verdict::No { .. } => no,
        _ => Verdict::yes("instructions of every kernel function; needs no root and no KVM"),
    };
    let inside = |what: &str| match tried.verdict("qemu-kvm") {
        Verdict::No { reason, .. } => Verdict::partly(
            format!("{what}, if the guest's kernel allows (Debian's does)"),
            format!("without KVM a guest's nanoseconds are QEMU's, not the hardware's: {reason}"),
            "compare such times with each other only, or use a machine whose KVM runs guests",
        ),
        _ => Verdict::yes(format!(
            "{what}, if the guest's kernel allows (Debian's does)"
        )),
    };
    let instruments = vec![
        entry("exact", exact),
        entry("functions", inside("fentry and fexit in the guest")),
        entry("stages", inside("tracepoints in the guest")),
        entry("profile", inside("clock samples in the guest")),
        entry("events", inside("software events in the guest")),
        entry("pairs", inside("any two events in the guest")),
        entry("rates", inside("the guest's own counters")),
    ];
    Lab {
        lab,
        verdict,
        instruments,
    }
}

fn netns(tried: &Tried<'_>) -> Lab {
    let lab = "netns".to_owned();
    match tried.obstacle(&["netns", "veth"]) {
        Some(obstacle) => Lab {
            lab,
            verdict: obstacle,
            instruments: Vec::new(),
        },
        None => {
            let frames = if tried.works("live-frames") && tried.works("xdp-native") {
                ", and frames made by XDP"
            } else {
                ""
            };
            let instruments = native(tried);
            let clock = clock(&instruments);
            let detail = format!("two network namespaces joined by veth{frames}{clock}");
            Lab {
                lab,
                verdict: Verdict::yes(detail),
                instruments,
            }
        }
    }
}

fn host(tried: &Tried<'_>) -> Lab {
    let instruments = native(tried);
    let clock = clock(&instruments);
    Lab {
        lab: "host".to_owned(),
        verdict: Verdict::yes(format!("this machine's own interfaces{clock}")),
        instruments,
    }
}

/// Which clock `plumb path` takes there by itself, the best that works.
fn clock(instruments: &[InstrumentVerdict]) -> String {
    let works = |name: &&&str| {
        let mut of = instruments.iter().filter(|i| i.instrument == **name);
        of.any(|i| i.verdict.works())
    };
    match ["functions", "stages"].iter().find(works) {
        Some(clock) => format!("; its clock is `{clock}`"),
        None => String::new(),
    }
}

/// What works on the running kernel.
fn native(tried: &Tried<'_>) -> Vec<InstrumentVerdict> {
    let exact = Verdict::no(
        "it counts the instructions of a guest, never of this machine",
        "use the vm lab",
    );
    vec![
        entry("exact", exact),
        entry("functions", functions(tried)),
        entry(
            "stages",
            tried.any(&[
                (&["tp-btf"], "between typed tracepoints"),
                (&["raw-tp"], "between raw tracepoints"),
            ]),
        ),
        entry("profile", profile(tried)),
        entry("events", events(tried)),
        entry("pairs", pairs(tried)),
        entry("rates", counted(tried)),
    ]
}

/// The cheapest way that works. When there is none, only the two that most kernels have are worth
/// a word.
fn functions(tried: &Tried<'_>) -> Verdict {
    let trampolines = (["fentry", "fexit"].as_slice(), "by fentry and fexit");
    let kprobes = (
        ["kprobe"].as_slice(),
        "by kprobes, at a higher cost per call",
    );
    let best = tried.any(&[
        (&["fsession"], "by fsession"),
        trampolines,
        (&["kprobe-session"], "by kprobe.session"),
        kprobes,
    ]);
    if best.works() {
        best
    } else {
        tried.any(&[trampolines, kprobes])
    }
}

fn profile(tried: &Tried<'_>) -> Verdict {
    let sampled = tried.any(&[(&["perf-event"], "by samples")]);
    match (sampled, tried.verdict("perf-hardware")) {
        (Verdict::Yes { .. }, Verdict::No { reason, remedy }) => Verdict::partly(
            "by samples of the CPU's clock",
            format!(
                "{reason}; so no sample falls where interrupts are off: that time shows where they come on again"
            ),
            remedy,
        ),
        (sampled, _) => sampled,
    }
}

fn events(tried: &Tried<'_>) -> Verdict {
    match (
        tried.verdict("perf-software"),
        tried.verdict("perf-hardware"),
    ) {
        (Verdict::Yes { .. }, Verdict::No { reason, remedy }) => {
            Verdict::partly("software events and tracepoints", reason, remedy)
        }
        (Verdict::Yes { .. }, Verdict::Partly { reason, remedy, .. }) => Verdict::partly(
            "software events; hardware events of our own processes",
            reason,
            remedy,
        ),
        (Verdict::Yes { .. }, Verdict::Yes { .. }) => Verdict::yes("software and hardware events"),
        (other, _) => other,
    }
}

fn pairs(tried: &Tried<'_>) -> Verdict {
    let kinds = [
        ("fentry", "function entries"),
        ("fexit", "function returns"),
        ("kprobe", "kprobes"),
        ("tp-btf", "typed tracepoints"),
        ("raw-tp", "raw tracepoints"),
        ("uprobe", "a process's functions"),
    ];
    let working: Vec<&str> = kinds
        .iter()
        .filter(|(id, _)| tried.works(id))
        .map(|(_, name)| *name)
        .collect();
    if working.is_empty() {
        return tried.any(&[(&["raw-tp"], ""), (&["fentry"], "")]);
    }
    Verdict::yes(format!("between {}", working.join(", ")))
}

fn counted(tried: &Tried<'_>) -> Verdict {
    match tried.verdict("counters") {
        Verdict::Yes { .. } => Verdict::yes("from the kernel's own counters"),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_model::capability::Group;

    const ALL: [&str; 23] = [
        "qemu",
        "qemu-tcg",
        "qemu-kvm",
        "qemu-plugin",
        "kernel",
        "disk",
        "memory",
        "netns",
        "veth",
        "live-frames",
        "xdp-native",
        "fsession",
        "fentry",
        "fexit",
        "kprobe-session",
        "kprobe",
        "tp-btf",
        "raw-tp",
        "uprobe",
        "perf-event",
        "perf-software",
        "perf-hardware",
        "counters",
    ];

    /// A machine on which everything works but these.
    fn machine(broken: &[&str]) -> Vec<Lab> {
        let capabilities: Vec<_> = ALL
            .iter()
            .map(|id| Capability {
                id: (*id).into(),
                group: Group::Vm,
                what: String::new(),
                verdict: if broken.contains(id) {
                    Verdict::no(format!("{id} is broken"), format!("mend {id}"))
                } else {
                    Verdict::yes("")
                },
                took_ms: 0.0,
            })
            .collect();
        judge(&capabilities)
    }

    fn of(labs: &[Lab], lab: &str, instrument: &str) -> Verdict {
        let lab = labs.iter().find(|l| l.lab == lab).unwrap();
        lab.instruments
            .iter()
            .find(|i| i.instrument == instrument)
            .unwrap()
            .verdict
            .clone()
    }

    /// Check that the exact instrument asks for QEMU with plugins, and not for KVM or BPF.
    #[test]
    fn exact_needs_plugins_alone() {
        let labs = machine(&["qemu-kvm", "fentry", "netns", "raw-tp"]);
        assert!(matches!(of(&labs, "vm", "exact"), Verdict::Yes { .. }));
        assert!(matches!(
            of(&labs, "vm", "functions"),
            Verdict::Partly { .. }
        ));
        let labs = machine(&["qemu-plugin"]);
        assert_eq!(
            of(&labs, "vm", "exact"),
            Verdict::no("qemu-plugin is broken", "mend qemu-plugin")
        );
    }

    /// Check that without QEMU the vm lab gives QEMU's own reason.
    #[test]
    fn no_qemu_is_no_vm() {
        let labs = machine(&["qemu"]);
        assert_eq!(labs[0].verdict, Verdict::no("qemu is broken", "mend qemu"));
        assert!(!labs[0].works());
    }

    /// Check that functions fall back in the order of their cost, and that every reason is given
    /// when none is left.
    #[test]
    fn functions_fall_back() {
        let by = |broken: &[&str]| of(&machine(broken), "netns", "functions");
        assert_eq!(by(&["fsession"]), Verdict::yes("by fentry and fexit"));
        assert_eq!(
            by(&["fsession", "fexit", "kprobe-session"]),
            Verdict::yes("by kprobes, at a higher cost per call")
        );
        let none = by(&["fsession", "fentry", "kprobe-session", "kprobe"]);
        let Verdict::No { reason, .. } = none else {
            panic!("{none:?}")
        };
        assert!(reason.contains("fentry is broken") && reason.contains("kprobe is broken"));
    }

    /// Check that without namespaces the host can still be measured.
    #[test]
    fn the_host_needs_no_namespace() {
        let labs = machine(&["netns", "fentry"]);
        assert!(!labs[1].works());
        assert!(labs[2].works());
        assert!(of(&labs, "host", "stages").works());
    }

    /// Check that missing counters are said under profile and events.
    #[test]
    fn samples_without_counters_are_partly_blind() {
        let labs = machine(&["perf-hardware"]);
        let profile = of(&labs, "host", "profile");
        assert!(matches!(profile, Verdict::Partly { reason, .. } if reason.contains("interrupts")));
        assert!(matches!(
            of(&labs, "host", "events"),
            Verdict::Partly { .. }
        ));
    }
}
