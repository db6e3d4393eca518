use super::*;

fn tried(id: &str, group: Group, what: &str, verdict: Availability) -> Capability {
    Capability { id: id.into(), group, what: what.into(), verdict, took_ms: 1.0 }
}

fn works_as(instrument: &str, verdict: Availability) -> InstrumentAvailability {
    InstrumentAvailability { instrument: instrument.into(), verdict }
}

fn sample() -> Doctor {
    let locked = || {
        Availability::no(
            "the kernel is locked down (lockdown=integrity)",
            "measure in the vm lab, or boot with lockdown=none",
        )
    };
    Doctor {
        machine: Machine {
            kernel: "6.1.0-40-amd64".into(),
            arch: "x86_64".into(),
            os: "Debian GNU/Linux 12 (bookworm)".into(),
            cpu: "Example CPU".into(),
            cpus: 2,
            memory_mib: 4096,
            guest: true,
            lockdown: Some("integrity".into()),
            privilege: "root".into(),
        },
        capabilities: vec![
            tried("qemu", Group::Vm, "QEMU for x86-64 guests", Availability::yes("7.2.22")),
            tried(
                "qemu-kvm",
                Group::Vm,
                "a trial guest under KVM",
                Availability::no("the guest hung", "nothing need be done: guests run under TCG"),
            ),
            tried("fentry", Group::Functions, "a program on a function's entry", locked()),
            tried("fexit", Group::Functions, "a program on a function's return", locked()),
            tried(
                "raw-tp",
                Group::Stages,
                "a program on a raw tracepoint",
                Availability::yes("attached"),
            ),
            tried(
                "perf-software",
                Group::Profile,
                "software events",
                Availability::partly("for our own processes only", "not root", "run as root"),
            ),
        ],
        labs: vec![
            Lab {
                lab: "vm".into(),
                verdict: Availability::yes("a stock kernel in QEMU"),
                instruments: vec![works_as("exact", Availability::yes("to the instruction"))],
            },
            Lab {
                lab: "netns".into(),
                verdict: Availability::yes("two namespaces"),
                instruments: vec![
                    works_as("functions", locked()),
                    works_as("stages", Availability::yes("by raw tracepoints")),
                ],
            },
            Lab {
                lab: "host".into(),
                verdict: Availability::yes("this machine's own interfaces"),
                instruments: vec![
                    works_as("functions", locked()),
                    works_as("stages", Availability::yes("by raw tracepoints")),
                ],
            },
            Lab {
                lab: "other".into(),
                verdict: Availability::no("it can't be built", "mend it"),
                instruments: vec![],
            },
        ],
        took_ms: 3210.0,
    }
}

/// Check that the page equals the reviewed one. To change it, review the difference, then copy
/// the new text over the golden file.
#[test]
fn the_page_matches_the_golden_file() {
    assert_eq!(render(&sample(), 80), include_str!("golden.txt"));
}

/// Check that no line is wider than the terminal, whatever its width.
#[test]
fn lines_fit_the_terminal() {
    for columns in [60, 72, 100, 160] {
        for line in render(&sample(), columns).lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
    }
}

/// Check that nothing is left at the end of a line, so that output can be compared as text.
#[test]
fn lines_have_no_trailing_blanks() {
    assert!(render(&sample(), 80).lines().all(|l| l == l.trim_end()));
}
