//! What the trials mean for each lab.

use netplumb_instruments::capability::Tried;
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::capability::{Capability, InstrumentVerdict, Lab, Verdict};
use netplumb_model::experiment::Lab as Where;

/// Every lab, judged by what was tried.
pub(super) fn judge(capabilities: &[Capability]) -> Vec<Lab> {
    let tried = Tried(capabilities);
    vec![vm(&tried), netns(&tried), host(&tried)]
}

/// What works in a lab.
fn instruments(lab: Where, tried: &Tried<'_>) -> Vec<InstrumentVerdict> {
    let all = registry::ALL.into_iter();
    all.map(|instrument| InstrumentVerdict {
        instrument: instrument.name().into(),
        verdict: instrument.can_run(lab, tried),
    })
    .collect()
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
    Lab {
        lab,
        verdict,
        instruments: instruments(Where::Vm, tried),
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
            let instruments = instruments(Where::Netns, tried);
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
    let instruments = instruments(Where::Host, tried);
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
    match registry::PREFERRED.map(Instrument::name).iter().find(works) {
        Some(clock) => format!("; its clock is `{clock}`"),
        None => String::new(),
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

    /// Check that where there are no hardware events, it is said what samples don't see.
    #[test]
    fn samples_without_counters_are_partly_blind() {
        let labs = machine(&["perf-hardware"]);
        let samples = of(&labs, "netns", "samples");
        assert!(matches!(samples, Verdict::Partly { reason, .. } if reason.contains("interrupts")));
    }
}
