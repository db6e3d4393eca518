//! Settings of interfaces of this machine, over arms of a command: set, read back, and restored in every case.
//! The interfaces are a tap device and a veth pair in a throwaway namespace, in which the program is run.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Ran, Running, own, skip};
use netplumb_sys::netns::Namespace;
use netplumb_testkit::has_root;
use tempfile::TempDir;

/// A machine of our own: t0 is a tap device, whose driver has one setting of coalescing, v0 and v1 are joined,
/// with two queues each.
struct Machine {
    namespace: Namespace,
    place: Place,
    journal: TempDir,
}

impl Machine {
    /// None without root.
    fn new() -> Option<Machine> {
        if !has_root() {
            return None;
        }
        if !Command::new("ethtool").arg("--version").output().is_ok_and(|o| o.status.success()) {
            skip("ethtool is not installed: what is there can't be compared");
            return None;
        }
        let machine = Machine {
            namespace: Namespace::new().unwrap(),
            place: Place::new(),
            journal: TempDir::new().unwrap(),
        };
        for line in [
            "ip tuntap add dev t0 mode tap",
            "ip link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1 numtxqueues 2 numrxqueues 2",
            "ip link set lo up",
            "ip link set v0 up",
            "ip link set v1 up",
            "ip addr add 192.0.2.1/24 dev v0",
            "ethtool -C t0 rx-frames 3",
            "ethtool -K v0 tx-tcp-ecn-segmentation off",
        ] {
            own::sh(&machine.namespace, line);
        }
        Some(machine)
    }

    fn plumb(&self, words: &str) -> Command {
        let plumb = self.place.plumb(words);
        own::plumb(&self.namespace, plumb, self.journal.path())
    }

    fn run(&self, words: &str) -> Ran {
        Running::start(&mut self.plumb(words)).finish()
    }

    /// All that a test changes.
    fn state(&self) -> String {
        let mut text = String::new();
        for line in [
            "ethtool -c t0",
            "ethtool -k t0",
            "ethtool -k v0",
            "ethtool -l v0",
            "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem",
        ] {
            text += &own::sh(&self.namespace, line);
        }
        for file in [
            "gro_flush_timeout",
            "napi_defer_hard_irqs",
            "queues/rx-0/rps_cpus",
            "queues/rx-1/rps_cpus",
            "queues/tx-0/xps_cpus",
        ] {
            let path = format!("/sys/class/net/v0/{file}");
            let read = self.namespace.with_sysfs(|| std::fs::read_to_string(&path));
            text += &format!("{file} {:?}\n", read.ok());
        }
        text
    }
}

/// The settings of v0.
const OF_VETH: &str = "--nic v0 --offload tso=off --feature tx-gso-robust=off --channels rx=2 --channels tx=2 \
                       --gro-flush-timeout 20us --napi-defer-hard-irqs 2 --rps-cpus 0 --xps-cpus 0 \
                       --sysctl net.ipv4.tcp_rmem=4096\u{a0}65536\u{a0}65536";

/// A command line whose words may have blanks, written as ones that don't break.
fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    let words = line.split([' ', '\n']).filter(|word| !word.is_empty());
    words.map(|word| word.replace('\u{a0}', " "))
}

/// Check that the interface of the default route is not set without the option for it, by any of the commands.
#[test]
fn as_root_the_default_route() {
    let Some(machine) = Machine::new() else {
        return;
    };
    own::sh(&machine.namespace, "ip route add default via 192.0.2.9 dev v0");
    let before = machine.state();
    for words in ["tune --goal cpu", "stat -q cs --offload tso=off", "profile -q --offload tso=off"]
    {
        let ran = machine.run(&format!("{words} --nic v0 -- true"));
        ran.code(2)
            .says(&["refusing to change v0: it carries the default route", "--even-default-route"]);
        assert_eq!(machine.state(), before, "{words}");
    }
    let words = "stat -q cs --nic v0 --offload tso=off --even-default-route -- true";
    machine.run(words).code(0);
    machine.run("stat -q cs --nic t0 --coalesce rx-frames=8 -- true").code(0);
    assert_eq!(machine.state(), before);
}

/// Check that coalescing, rings' and queues' settings, offloads and sysctls are there while a command runs, of
/// each arm its own, and restored after success and after a command that failed.
#[test]
fn as_root_while_a_command_runs() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    let shown = machine.place.path("shown");
    machine.place.write(
        "show",
        format!(
            "#!/bin/sh\n(ethtool -c t0 | grep rx-frames:; ethtool -k v0 | grep tx-tcp-segmentation; \
             ethtool -l v0 | grep RX:; sysctl net.ipv4.tcp_rmem) >> {}\nexit $1\n",
            shown.display()
        ),
    );
    let line = "stat -q cs --nic t0 --coalesce rx-frames=8 --coalesce rx-frames=16 --blocks 2 -- sh show 0";
    machine.run(line).code(0);
    assert_eq!(machine.state(), before);
    // ethtool has a space or, from 6.3 on, a tab.
    let text = std::fs::read_to_string(&shown).unwrap().replace('\t', " ");
    for level in ["rx-frames: 8", "rx-frames: 16"] {
        assert_eq!(text.matches(level).count(), 2, "{text}");
    }
    let recording = machine.place.recording("stat.plumb");
    assert_eq!((recording.arms.len(), recording.blocks.len()), (2, 4));
    for code in [0, 1] {
        let _ = std::fs::remove_file(&shown);
        let mut command = machine.plumb("stat -q cs");
        command.args(words(OF_VETH)).args(["--", "sh", "show", &code.to_string()]);
        Running::start(&mut command).finish().code(code);
        assert_eq!(machine.state(), before);
        let text = std::fs::read_to_string(&shown).unwrap();
        for part in ["tx-tcp-segmentation: off", "RX:\t\t2\nRX:\t\t2", "65536\t65536"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}

/// Check that settings that were so already, and settings that can't act, are reported as such.
#[test]
fn as_root_without_effect() {
    let Some(machine) = Machine::new() else {
        return;
    };
    own::sh(&machine.namespace, "ip addr add 192.0.2.2/24 dev v1 noprefixroute");
    let before = machine.state();
    let still =
        "stat -q cs --nic t0 --coalesce rx-frames=3 --coalesce rx-frames=8 --blocks 2 -- true";
    let ran = machine.run(still);
    let of_t0 = [
        "idle rx-frames could not act: no packet passed t0 while the command ran",
        "no effect rx-frames of t0 was already 3 (in rx-frames=3)",
    ];
    joined(ran.code(0), &of_t0);
    // An echo to a neighbour that does not answer is asked for: that is a packet.
    // Of each only once in a second.
    machine.place.write("send", "echo > /dev/udp/$1/9\nsleep 0.3\n");
    let ran = machine.run(
        "stat -q cs --nic v0 --offload gro=on --offload tso=on --rps-cpus 0 --napi-defer-hard-irqs 2 -- \
         bash send 192.0.2.77",
    );
    let note = "idle napi_defer_hard_irqs could not act: it defers interrupts by gro_flush_timeout, which is 0";
    let text = joined(ran.code(0), &[note, "no effect tso of v0 was already on"]);
    assert!(!text.contains("no packet passed"), "{text}");
    assert!(!text.contains("rps_cpus of v0 was"), "{text}");
    let ran = machine.run("stat -q cs --nic v0 --threaded on -- bash send 192.0.2.78");
    let note = "idle threaded could not act: v0 has no NAPI without GRO; turn offload gro on";
    joined(ran.code(0), &[note]);
    assert_eq!(machine.state(), before);
}

/// What a command printed, in one line, which has these words.
fn joined(ran: &Ran, words: &[&str]) -> String {
    let text: Vec<&str> = ran.stdout.split_whitespace().collect();
    let text = text.join(" ");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    text
}

/// Check that an experiment file asks before it changes an interface, and lists what it would change.
#[test]
fn as_root_a_file_asks() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    machine.place.write(
        "nics.toml",
        "name = \"nics\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n\
         command = [\"true\"]\n[blocks]\ncount = 3\n[events]\nnames = [\"cs\"]\n[knobs]\nnic = \"t0\"\n\
         [vary]\ncoalesce.rx-frames = [4, 8]\n",
    );
    let asked = machine.run("run -q nics.toml");
    asked.code(2);
    for says in ["t0: the coalescing rx-frames is set to 8", "--yes-change t0"] {
        assert!(asked.stderr.contains(says), "{}", asked.stderr);
    }
    machine.run("run -q nics.toml --yes-change t0").code(0);
    assert_eq!(machine.state(), before);
}

/// Check that settings are restored after Ctrl-C, and after a kill by the next run, and that no other run may
/// change the interface meanwhile.
#[test]
fn as_root_ended_early() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    let line = "stat -q cs --nic t0 --coalesce rx-frames=16 -- sleep 60";
    let frames = || own::sh(&machine.namespace, "ethtool -c t0").replace('\t', " ");
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let running = Running::start(&mut machine.plumb(line));
        let begun = Instant::now();
        while !frames().contains("rx-frames: 16") {
            assert!(begun.elapsed() < crate::common::PATIENCE, "it was never set");
            sleep(Duration::from_millis(5));
        }
        // It was tried before, and is set again for the run.
        sleep(Duration::from_millis(500));
        let other =
            machine.run("stat -q cs -o other.plumb --nic t0 --coalesce rx-frames=9 -- true");
        other.code(3);
        assert!(other.stderr.contains("in use"), "{}", other.stderr);
        running.signal(signal);
        let ran = running.finish();
        if signal == libc::SIGINT {
            ran.code(130);
        } else {
            assert!(frames().contains("rx-frames: 16"));
            machine.run("stat -q cs -o next.plumb -- true").code(0);
        }
        assert_eq!(machine.state(), before);
    }
}

/// Check that what a device has not, or refuses, is one clear line with what to do, and changes nothing.
#[test]
fn as_root_refused() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    for (line, code, says) in [
        ("--nic v0 --coalesce rx-usecs=5", 3, "ethtool -c v0"),
        ("--nic v0 --coalesce adaptive-rx=on", 3, "ethtool -c v0"),
        ("--nic t0 --coalesce rx-frames=16 --coalesce rx-usecs=5", 3, "ethtool -c t0"),
        ("--nic t0 --coalesce rx-frames=100000", 3, "use 64"),
        ("--nic t0 --rings rx=64", 3, "ethtool -g t0"),
        ("--nic v0 --channels rx=9", 3, "ethtool -l v0"),
        ("--nic v0 --feature warp=on", 3, "ethtool -k v0"),
        ("--nic v0 --rps-cpus 4000", 3, "rps_cpus"),
        ("--nic v0 --irq-cpus 0", 3, "no interrupts of its own"),
        ("--nic nosuch --rings rx=64", 2, "t0, v0, v1"),
        ("--nic v0", 2, "no effect by itself"),
        ("--coalesce rx-usecs=5", 2, "needs nic"),
        ("--nic a;b --rings rx=64", 2, "invalid interface"),
    ] {
        let ran = machine.run(&format!("stat -q cs {line} -- true"));
        ran.code(code);
        assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
        assert!(ran.stderr.lines().count() <= 4, "{line}: {}", ran.stderr);
        assert_eq!(machine.state(), before, "{line}");
    }
}
