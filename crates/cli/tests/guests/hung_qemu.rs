//! A QEMU that never gets anywhere, in each of the ways there are: `--timeout` holds, and neither
//! it nor its children are left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::{Place, Running};
use netplumb_lab::vm::trial;
use netplumb_model::arch::Arch;

/// What each does when it was started as QEMU is; `control` is the control channel.
const STUBS: [(&str, &str); 8] = [
    // By a program that it started, which holds all of our pipes.
    ("opens-nothing", "subprocess.run(['sleep', '1000'], close_fds=False)"),
    (
        "ignores-signals",
        "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except: pass\n\
         while True: subprocess.run(['sleep', '1000'], close_fds=False)",
    ),
    ("says-nothing", "control.recv(1); time.sleep(1000)"),
    ("greets", "greet(); time.sleep(1000)"),
    ("is-stopped", "greet(); os.kill(os.getpid(), signal.SIGSTOP)"),
    (
        "says-no-end",
        "try:\n    while True: control.sendall(b'x' * 65536)\nexcept OSError: time.sleep(1000)",
    ),
    ("events-without-end", "greet()\nwhile True: control.sendall(b'{\"event\": \"X\"}\\n')"),
    ("answers", "greet(); answer(lambda what: {})"),
];

fn stub(does: &str) -> String {
    format!(
        "#!/usr/bin/env python3\n\
         import json, os, re, signal, socket, subprocess, sys, time\n\
         if sys.argv[1:2] == ['--version']: print('QEMU emulator version 7.2.22'); sys.exit()\n\
         fd = re.search(r'id=control,fd=(\\d+)', ' '.join(sys.argv)).group(1)\n\
         control = socket.socket(fileno=int(fd))\n\
         def greet(): control.sendall(b'{{\"QMP\": {{}}}}\\n')\n\
         def answer(how):\n\
         \x20   for line in control.makefile('r'):\n\
         \x20       said = {{'return': how(json.loads(line)['execute'])}}\n\
         \x20       control.sendall(json.dumps(said).encode() + b'\\n')\n\
         {does}\n"
    )
}

/// Whether there is what the stubs are written in.
fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("-V").output();
    let is_there = found.is_ok_and(|ran| ran.status.success());
    if !is_there {
        crate::common::skip("python3 is not installed");
    }
    is_there
}

/// Check that each of them ends at the limit, with an error that has a remedy.
#[test]
fn the_limit_holds() {
    if !crate::common::has_guests() || !has_python() {
        return;
    }
    for (name, does) in STUBS {
        let place = Place::new();
        place.write("qemu", stub(does));
        fs::set_permissions(place.path("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = place.plumb("path --link lo --cold --timeout 2 -o x.plumb");
        command.env("PLUMB_QEMU", place.path("qemu"));
        let ran = Running::start(&mut command).finish();
        let why = match name {
            "says-no-end" => "QEMU's control channel: a line of more than 1048576 bytes",
            "is-stopped" => "as its QEMU is stopped (SIGSTOP",
            _ => "--timeout",
        };
        ran.code(1).says(&[why]);
        // Wide, for a machine that is busy; one that hangs takes a minute or for ever.
        assert!(ran.took < Duration::from_secs(30), "{name}: {ran:?}");
        place.nothing_runs();
        assert_eq!(place.files(), ["qemu"], "{name}");
    }
}

/// Check that the limit also applies to a QEMU that does not print its version, and works otherwise.
#[test]
fn the_version() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let qemu = trial::find_qemu(Arch::OWN).unwrap();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) exec sleep 1000;; esac\nexec {} \"$@\"\n",
        qemu.display()
    );
    place.write("qemu", text);
    fs::set_permissions(place.path("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
    let cache = crate::common::own_cache();
    let words = format!("--cache {} path --link lo --timeout 5 -o x.plumb", cache.path().display());
    let mut command = place.plumb(&words);
    command.env("PLUMB_QEMU", place.path("qemu"));
    let ran = Running::start(&mut command).finish();
    ran.code(3).says(&["--version", "within 5 s"]);
    place.nothing_runs();
}

/// Check that a signal does not have to wait for it.
#[test]
fn a_signal_ends_it() {
    if !crate::common::has_guests() || !has_python() {
        return;
    }
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let place = Place::new();
        place.write("qemu", stub("time.sleep(1000)"));
        fs::set_permissions(place.path("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = place.plumb("path --link lo --cold --timeout 1000 -o x.plumb");
        command.env("PLUMB_QEMU", place.path("qemu"));
        let mut running = Running::start(&mut command);
        running.wait_for("measuring");
        std::thread::sleep(Duration::from_millis(500));
        running.signal(signal);
        running.finish().code(code).says(&["interrupted"]);
        place.nothing_runs();
        assert_eq!(place.files(), ["qemu"]);
    }
}
