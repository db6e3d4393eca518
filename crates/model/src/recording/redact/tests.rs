use std::collections::BTreeMap;

use super::*;
use crate::class::{Family, Link, Proto};
use crate::recording::{Function, SourceFileId};
use crate::samples::Thread;

const HOST: &str = "build-17";
const USER: &str = "ada";
const ADDRESS: &str = "192.0.2.7";
const CMDLINE: &str = "BOOT_IMAGE=/vmlinuz root=UUID=8c1f quiet";
const LINE: &str = "/home/ada/bin/server --token hunter2 -p 80";

fn arm(name: &str, command: &str) -> Arm {
    Arm {
        name: name.into(),
        proto: Proto::Command,
        family: Family::V4,
        link: Link::Lo,
        forward: false,
        size_bytes: 0,
        knobs: BTreeMap::from([("command".into(), command.into())]),
        made: None,
    }
}

/// A recording with a secret of each kind in each place that may have one.
fn recording() -> Recording {
    let facts = [
        (env::ARGV, format!("plumb path -- {LINE}")),
        (env::CMDLINE, CMDLINE.into()),
        (env::IMPORTED_HOST, HOST.into()),
        (env::KERNEL, "6.1.0-57-amd64".into()),
        ("kernel.version", format!("#1 SMP ({USER}@{HOST}) gcc 12.2.0")),
        ("client.url", format!("http://{ADDRESS}:8080/x")),
        ("wire.peer", format!("{ADDRESS}/24, 2001:db8::7, 52:54:00:12:34:56")),
    ];
    let function = |name: &str, module: Option<&str>, address| Function {
        name: name.into(),
        module: module.map(String::from),
        layer: None,
        address,
        size_bytes: 16,
        source: None,
    };
    Recording {
        environment: facts.map(|(key, value)| (key.to_string(), value)).into(),
        arms: vec![arm(LINE, LINE), arm("command=curl -u ada:hunter2 x", "curl -u ada:hunter2 x")],
        functions: vec![
            function("udp_sendmsg", None, 0xffff_ffff_a3c0_0000),
            function("ip_rcv", None, 0xffff_ffff_a3d0_0040),
            function("main", Some("/home/ada/bin/server"), 0x1000),
            function("uprobe:/home/ada/bin/server:main", Some("(event)"), 0),
            function("memcpy@GLIBC_2.14", Some("/usr/lib/x86_64-linux-gnu/libc.so.6"), 0x2000),
        ],
        source_files: vec!["/home/ada/src/server.c".into(), "net/ipv4/udp.c".into()],
        source_texts: BTreeMap::from([(0 as SourceFileId, "char key[] = \"hunter2\";".into())]),
        threads: vec![Thread { pid: 7, tid: 7, name: "ada".into() }],
        trace_texts: vec![format!("connect({ADDRESS}:443)")],
        ..Recording::default()
    }
}

fn all(recording: &Recording) -> String {
    let texts = recording.texts().into_iter().map(|(what, text)| format!("{what}: {text}\n"));
    let sources = recording.source_texts.values().cloned();
    texts.chain([recording.experiment_toml.clone()]).chain(sources).collect()
}

/// Check that no secret is left anywhere, and that what is none is as it was.
#[test]
fn nothing_is_left() {
    let made = recording().redacted(&Redaction::default());
    let text = all(&made);
    for secret in ["ada", HOST, ADDRESS, "2001:db8", "52:54", "hunter2", "UUID", "/home", "8080"] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    for kept in [
        "6.1.0-57-amd64",
        "gcc 12.2.0",
        "udp_sendmsg",
        "…/server",
        "uprobe:…/server:main",
        "net/ipv4/udp.c",
        "…2/server.c",
        "memcpy@GLIBC_2.14",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "connect((address))",
    ] {
        assert!(text.contains(kept), "no {kept} in\n{text}");
    }
    let names: Vec<&str> = made.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["server …", "command=curl …"]);
    // Distances stay, and not where the kernel was.
    let [udp, ip, main, ..] = &made.functions[..] else { panic!("{made:?}") };
    assert_eq!(ip.address - udp.address, 0x10_0040);
    assert_eq!((udp.address, main.address), (KERNEL_TEXT, 0x1000));
}

/// Check that each kind stays alone if it is to be kept.
#[test]
fn what_is_kept() {
    let secrets = [
        (Secret::Hosts, HOST),
        (Secret::Addresses, ADDRESS),
        (Secret::Commands, "--token hunter2"),
        (Secret::Paths, "/home/(user)/bin/server"),
        (Secret::KernelCmdline, "UUID=8c1f"),
        (Secret::Source, "char key[]"),
    ];
    for (kept, word) in secrets {
        let redaction = Redaction { keep: BTreeSet::from([kept]), ..Redaction::default() };
        let text = all(&recording().redacted(&redaction));
        assert!(text.contains(word), "{kept:?}: no {word} in\n{text}");
        for (other, word) in secrets.iter().filter(|(other, _)| *other != kept) {
            assert!(!text.contains(word), "{kept:?}: {other:?} {word} in\n{text}");
        }
    }
    let keep = Secret::ALL.into_iter().collect();
    let same = recording().redacted(&Redaction { keep, ..Redaction::default() });
    assert_eq!(same, recording());
}

/// Check that an experiment stays one, with claims about the same arms.
#[test]
fn an_experiment_stays_one() {
    let file = r#"
name = "mine"
title = "What ada asks of build-17"
[workload]
kind = "command"
command = ["/home/ada/bin/server", "--token", "hunter2"]
[[arms]]
command = "/home/ada/bin/server --token hunter2"
[[arms]]
command = "/home/ada/bin/server --token other"
"#;
    let made = Recording {
        experiment_toml: file.into(),
        arms: vec![
            arm("a", "/home/ada/bin/server --token hunter2"),
            arm("b", "/home/ada/bin/server --token other"),
        ],
        ..recording()
    };
    let hosts = BTreeSet::from([HOST.to_string()]);
    let made = made.redacted(&Redaction { hosts, ..Redaction::default() });
    let text = &made.experiment_toml;
    for secret in ["ada", "hunter2", HOST, "/home"] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    let levels: Vec<&str> = made.arms.iter().map(|arm| arm.knobs["command"].as_str()).collect();
    assert_eq!(levels, ["server …", "server … 2"]);
    assert!(text.is_empty() || levels.iter().all(|level| text.contains(level)), "{text}");
}

/// Check that files of one name in two directories stay two, as programs and as arms.
#[test]
fn files_of_one_name_differ() {
    let mut recording = recording();
    recording.arms = vec![arm("/home/ada/new/server", ""), arm("/srv/old/server", "")];
    let [new, old] = ["/home/ada/new/server", "/srv/old/server"]
        .map(|module| Function { module: Some(module.into()), ..recording.functions[2].clone() });
    recording.functions = vec![new, old];
    let made = recording.redacted(&Redaction::default());
    assert_ne!(made.arms[0].name, made.arms[1].name);
    assert_ne!(made.functions[0].module, made.functions[1].module);
    let names: Vec<&str> = made.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert!(names.iter().all(|name| name.ends_with("/server")), "{names:?}");
}
