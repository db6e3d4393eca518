//! What QEMU may do on this machine, while a guest runs that may be anyone's.

use std::fs;
use std::time::Duration;

use crate::common::{Place, Running};

/// A QEMU whose parent is this process and that filters its system calls already.
fn child_of(parent: u32) -> Option<String> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is = |key: &str, what: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key));
            value.is_some_and(|value| value.trim().starts_with(what))
        };
        let is_child = is("PPid:", &parent.to_string()) && is("Name:", "qemu");
        // SECCOMP_MODE_FILTER
        is_child && is("Seccomp:", "2")
    })
}

/// Check that QEMU, whose guest may be hostile, has no network, no writable files and no capabilities, and filters its
/// system calls.
#[test]
fn qemu_is_confined() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let mut command = place.plumb("path --link lo --cold --packets 100000 --blocks 50 -o x.plumb");
    let mut running = Running::start(&mut command);
    running.wait_for("measuring");
    let qemu = loop {
        if let Some(qemu) = child_of(running.id()) {
            break qemu;
        }
        assert!(!running.has_ended(), "{}", running.said());
        std::thread::sleep(Duration::from_millis(20));
    };
    let read = |name: &str| fs::read_to_string(format!("/proc/{qemu}/{name}")).unwrap();
    let status = read("status");
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    if fs::read_link(format!("/proc/{qemu}/ns/net")).unwrap() == own {
        crate::common::tell("this kernel refuses namespaces: QEMU has its filter alone");
    } else {
        let mounts = read("mountinfo");
        let is_writable = |line: &&str| line.split(' ').nth(5).is_some_and(|o| !o.contains("ro"));
        assert_eq!(mounts.lines().find(is_writable), None, "{mounts}");
        assert!(status.contains("CapEff:\t000000000000000"), "{status}");
    }
    running.signal(libc::SIGINT);
    running.finish().code(130);
    place.nothing_runs();
}
