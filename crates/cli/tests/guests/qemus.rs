//! Every QEMU that is there: guests and their counts are the same in all of them, and an independent count
//! agrees in each.
//!
//! The other one is Debian 13's beside Debian 12's, which `scripts/setup.sh other-qemu` gets, as it does the newest, of
//! Debian 13's backports.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Place, Running, can_unthrottle, check_whole, has_kernels, is_by_place, skip};
use netplumb_lab::vm::{agent, trial};
use netplumb_model::arch::Arch;
use netplumb_model::class::Direction;
use netplumb_model::recording::{Recording, env};
use netplumb_testkit::{newest_qemu, other_qemu};
use serde_json::Value;

/// QEMUs for guests of an architecture, the usual one first; none, with a note, where there are no guests.
fn qemus(place: &Place, arch: Arch) -> Vec<PathBuf> {
    let has_agent =
        std::env::var_os(agent::variable(arch)).is_some() || crate::common::agent(arch).is_file();
    if !has_agent {
        skip(&format!("no program for guests of {arch}: make {arch}"));
        return Vec::new();
    }
    if !has_kernels(place, &[&format!("debian:{arch}")]) {
        return Vec::new();
    }
    let Ok(usual) = trial::find_qemu(arch) else {
        skip(&format!("no {}", arch.qemu()));
        return Vec::new();
    };
    std::iter::once(usual).chain(other_qemu(arch.qemu())).collect()
}

/// Run the program with a QEMU; returns its recording.
fn run_with(place: &Place, qemu: &Path, words: &str) -> Recording {
    let mut command = place.plumb(words);
    command.args(["--output", "w.plumb"]).env("PLUMB_QEMU", qemu);
    Running::start(&mut command).finish().code(0);
    let recording = place.recording("w.plumb");
    fs::remove_file(place.path("w.plumb")).unwrap();
    recording
}

/// What each function of packets cost in each block.
/// Blocks are in the order in which they ended, which of arms in parallel is any.
fn costs(recording: &Recording) -> BTreeMap<((u32, u32), String), u64> {
    let mut sums = BTreeMap::new();
    for cost in (recording.costs.iter()).filter(|cost| cost.direction != Direction::Other) {
        let function = recording.nodes[cost.node as usize].function;
        let name = recording.functions[function as usize].name.clone();
        let block = &recording.blocks[cost.block as usize];
        let of = (block.arm, block.index);
        *sums.entry((of, name)).or_default() += cost.own;
    }
    sums
}

/// Check that datagrams cost the same in every QEMU, function by function, on the oldest and the newest kernel:
/// the CPU is the same, and so is the ACPI table that the kernel gets.
#[test]
fn vm_every_qemu_counts_the_same() {
    let place = Place::new();
    for arch in Arch::ALL {
        let qemus = qemus(&place, *arch);
        let Some((usual, others)) = qemus.split_first().filter(|(_, others)| !others.is_empty())
        else {
            continue;
        };
        for kernel in crate::common::OLDEST_AND_NEWEST {
            if !has_kernels(&place, &[&format!("{kernel}:{arch}")]) {
                continue;
            }
            for link in ["--link lo", "--link veth", "--link veth --forward"] {
                let words = format!(
                    "path --arch {arch} --kernel {kernel} {link} --proto udp --family ipv4,ipv6 \
                     --packets 100 --blocks 2"
                );
                let first = run_with(&place, usual, &words);
                let expected = costs(&first);
                assert!(expected.len() > 300, "{}", expected.len());
                for other in others {
                    let recording = run_with(&place, other, &words);
                    assert_eq!(recording.environment.get(env::CPU_LACKS), None);
                    let versions = [&first, &recording].map(|r| &r.environment[env::QEMU]);
                    let costs = costs(&recording);
                    let differ: Vec<_> = (expected.iter())
                        .filter(|(of, own)| {
                            costs.get(of) != Some(own) && !is_by_place(&first, &of.1)
                        })
                        .map(|(of, own)| (of, own, costs.get(of)))
                        .collect();
                    assert!(
                        differ.is_empty() && costs.len() == expected.len(),
                        "{words}: {versions:?}: {differ:?}"
                    );
                }
            }
        }
    }
}

/// Check that the newest QEMU of Debian counts the same, and has two hosts the same twice; or that one whose plugin
/// interface has moved on is refused before a guest boots.
#[test]
fn vm_the_newest_qemu() {
    let place = Place::new();
    for arch in Arch::ALL {
        let Some(usual) = qemus(&place, *arch).into_iter().next() else {
            continue;
        };
        let Some(newest) = newest_qemu(arch.qemu()) else {
            continue;
        };
        let words = format!("path --arch {arch} --link lo --packets 100 --blocks 2");
        let mut command = place.plumb(&format!("{words} --output w.plumb"));
        let ran = Running::start(command.env("PLUMB_QEMU", &newest)).finish();
        if ran.status.code() == Some(3) {
            assert!(ran.stderr.contains("plugin"), "{ran:?}");
            continue;
        }
        ran.code(0);
        let counted = costs(&place.recording("w.plumb"));
        fs::remove_file(place.path("w.plumb")).unwrap();
        let expected = costs(&run_with(&place, &usual, &words));
        assert!(expected.len() > 100 && counted == expected, "{arch}");
        if *arch == Arch::OWN {
            let [one, other] = [(); 2].map(|()| frames(&place, &newest));
            assert!(!one.is_empty() && one == other, "{one:?} {other:?}");
        }
    }
}

/// Hashes of the times of all frames between two hosts, by arm.
fn frames(place: &Place, qemu: &Path) -> Vec<String> {
    let recording = run_with(place, qemu, "bench stream --bytes 256K --blocks 2");
    let notes = recording.notes.values();
    notes.map(|n| n.facts["wire.frames"].clone()).collect()
}

/// A QEMU for which the arguments of another are changed.
fn script(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Check that a feature of the CPU which QEMU can't emulate is in the recording and in the footer, from a saved
/// state and without: TCG has no PCID.
#[test]
fn vm_what_a_qemu_lacks_is_recorded() {
    let place = Place::new();
    for qemu in qemus(&place, Arch::X86_64) {
        let text = format!(
            "#!/bin/bash\nargs=()\nfor a; do case $a in base,*) a=$a,pcid=on ;; esac; args+=(\"$a\"); done\n\
             exec {} \"${{args[@]}}\"\n",
            qemu.display()
        );
        let lacking = script(&place, "bin/qemu-system-x86_64", &text);
        for how in ["", "--cold"] {
            let words = format!("path --arch x86-64 --link lo --packets 20 --blocks 2 {how}");
            let recording = run_with(&place, &lacking, &words);
            let lacks = recording.environment.get(env::CPU_LACKS);
            assert_eq!(lacks.map(String::as_str), Some("pcid"), "{words}");
        }
    }
}

/// Check that two hosts are the same in every run of each QEMU, to the nanosecond.
#[test]
fn vm_two_hosts_in_every_qemu() {
    let place = Place::new();
    for qemu in qemus(&place, Arch::OWN) {
        let first = frames(&place, &qemu);
        assert!(!first.is_empty() && first == frames(&place, &qemu), "{}", qemu.display());
    }
}

/// Check that an experiment of two hosts has the same report twice, in QEMUs other than the usual one: other tests
/// run experiments in that.
#[test]
fn vm_an_experiment_of_two_hosts_repeats() {
    let place = Place::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/offload-turns.toml");
    for qemu in qemus(&place, Arch::OWN).into_iter().skip(1) {
        let report = || {
            let words = format!("run {} --json --output w.plumb", file.display());
            let mut command = place.plumb(&words);
            let ran = Running::start(command.env("PLUMB_QEMU", &qemu)).finish();
            ran.code(0);
            fs::remove_file(place.path("w.plumb")).unwrap();
            let mut report: Value = serde_json::from_str(&ran.stdout).unwrap();
            let environment = report["environment"].as_object_mut().unwrap();
            assert!(environment.remove("plumb.started_unix_s").is_some());
            report
        };
        assert_eq!(report(), report(), "{}", qemu.display());
    }
}

/// Check that an e1000 that can't be without its throttle is refused before hosts boot, with what to do.
#[test]
fn vm_a_throttle_that_stays_on() {
    let place = Place::new();
    for qemu in qemus(&place, Arch::X86_64) {
        let can = can_unthrottle(&qemu);
        let words = "bench request --turns 2 --blocks 1 --throttle off --output w.plumb";
        let mut command = place.plumb(words);
        let ran = Running::start(command.env("PLUMB_QEMU", &qemu)).finish();
        ran.code(if can { 0 } else { 3 });
        assert!(can || ran.stderr.contains("leave that out"), "{ran:?}");
        let _ = fs::remove_file(place.path("w.plumb"));
        // A search leaves it out.
        let words = "tune -q --goal latency --budget 1s --candidates 2 --output t.plumb";
        let mut command = place.plumb(words);
        let ran = Running::start(command.env("PLUMB_QEMU", &qemu)).finish();
        ran.code(0);
        fs::remove_file(place.path("t.plumb")).unwrap();
    }
}

/// A QEMU with the witness of plugins/qemu/count.c in addition to the plugin that counts.
fn with_witness(place: &Place, arch: Arch, qemu: &Path) -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/qemu");
    let names = ["count.c", "arch.c", "arch_arm64.c", "arch_x86.c", "plugin_api.c"];
    let built = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-fPIC", "-std=gnu11", "-shared", "-o"])
        .arg(place.path("count.so"))
        .args(names.map(|name| sources.join(name)))
        .status()
        .unwrap();
    assert!(built.success());
    let text = format!(
        "#!/bin/sh\nexec {} \"$@\" -plugin file={},out={}\n",
        qemu.display(),
        place.path("count.so").display(),
        place.path("counts").display(),
    );
    let wrapper = script(place, &format!("bin/{}", arch.qemu()), &text);
    wrapper.display().to_string()
}

/// Check that a witness which counts by address alone agrees with the instrument: in all instructions,
/// and in each function's own. Static functions of one name are one function, at the address of one of
/// them: what the witness has outside of all functions is what these have more.
#[test]
fn vm_an_independent_count_agrees() {
    let place = Place::new();
    let of = [
        (Arch::X86_64, "lo", "udp"),
        (Arch::X86_64, "veth", "tcp"),
        (Arch::Arm64, "e1000", "udp"),
        (Arch::Arm64, "lo", "tcp"),
    ];
    let of = of.map(|(arch, link, proto)| {
        qemus(&place, arch).into_iter().map(move |qemu| (arch, link, proto, qemu))
    });
    for (arch, link, proto, qemu) in of.into_iter().flatten() {
        let qemu = with_witness(&place, arch, &qemu);
        let words =
            format!("path --arch {arch} --link {link} --proto {proto} --cold --output w.plumb");
        let mut command = place.plumb(&words);
        // The witness writes a file.
        command.env("PLUMB_QEMU", &qemu).env("PLUMB_CONFINE_QEMU", "0");
        crate::common::Running::start(&mut command).finish().code(0);
        let recording = place.recording("w.plumb");
        check_whole(&recording);
        let mut own: BTreeMap<u64, u64> = BTreeMap::new();
        for cost in &recording.costs {
            let function = recording.nodes[cost.node as usize].function;
            let address = recording.functions[function as usize].address;
            *own.entry(address).or_default() += cost.own;
        }
        let sizes: BTreeMap<u64, u64> = (recording.functions.iter())
            .map(|function| (function.address, function.size_bytes))
            .collect();
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut all, mut outside) = (0, 0);
        for line in fs::read_to_string(place.path("counts")).unwrap().lines() {
            let (address, times) = line.split_once(' ').unwrap();
            let address = u64::from_str_radix(address, 16).unwrap();
            let times: u64 = times.parse().unwrap();
            all += times;
            let of = sizes.range(..=address).next_back();
            match of.filter(|(start, size)| address < **start + **size) {
                Some((start, _)) => *counted.entry(*start).or_default() += times,
                None => outside += times,
            }
        }
        assert_eq!(all, own.values().sum::<u64>(), "{arch} {link} {proto}");
        let mut more = 0;
        let mut differ = 0;
        for (address, own) in &own {
            let counted = counted.get(address).copied().unwrap_or(0);
            assert!(*own >= counted, "{arch} {address:x}: {own} {counted}");
            differ += usize::from(*own != counted);
            more += own - counted;
        }
        assert_eq!(more, outside, "{arch} {link} {proto}");
        assert!(own.len() > 100 && differ * 20 < own.len(), "{differ} of {}", own.len());
    }
}
