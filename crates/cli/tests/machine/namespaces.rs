//! Two hosts as namespaces of this machine, with other programs running.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Running, left, skip};
use netplumb_model::hosts::{
    BUFFER, BUSY, CLOCKED, RETRANSMITTED, THROUGHPUT, TURN, TURNS, clocked,
};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_testkit::has_root;

/// Whether namespaces can be made here, and these programs are installed.
fn has(programs: &[&str]) -> bool {
    if !has_root() {
        return false;
    }
    let is_here = |program: &str| {
        let folders = ["/usr/local/bin", "/usr/sbin", "/usr/bin"];
        folders.iter().any(|folder| Path::new(folder).join(program).exists())
    };
    match programs.iter().find(|program| !is_here(program)) {
        None => true,
        Some(program) => {
            skip(&format!("no {program}"));
            false
        }
    }
}

/// The figures of each block of an arm with a label.
fn figures_of_arm(
    recording: &Recording,
    arm: &str,
    quantity: &Declared,
    label: Option<&str>,
) -> Vec<f64> {
    let arm = recording.arms.iter().position(|a| a.name == arm);
    let arm = arm.unwrap_or_else(|| panic!("{:?}", recording.arms)) as u32;
    let quantity = clocked(quantity);
    let its = recording.scalars_of(&quantity).filter(|scalar| {
        let block = &recording.blocks[scalar.block().unwrap() as usize];
        scalar.item.label.as_deref() == label && block.arm == arm
    });
    its.map(|scalar| scalar.value).collect()
}

/// What a bench measured, in which every byte is accounted for.
fn measured(place: &Place, words: &str) -> Recording {
    let ran = place.run(&format!("bench {words} --lab netns -q -o x.plumb"));
    ran.code(0);
    let recording = place.recording("x.plumb");
    for block in &recording.blocks {
        assert_eq!(block.instrument, CLOCKED);
        let dropped: u64 = block.ledger.dropped.values().sum();
        assert_eq!(block.ledger.offered, block.ledger.delivered + dropped);
        assert!(!block.ledger.dropped.contains_key("unaccounted"), "{ran:?}");
    }
    fs::remove_file(place.path("x.plumb")).unwrap();
    recording
}

/// Check that a stream arrives by our own program and by iperf3 in the same run, in turns, and that
/// ours has CPU use and no other figure of a wire.
#[test]
fn a_stream_beside_iperf3() {
    if !has(&["iperf3"]) {
        return;
    }
    let place = Place::new();
    let recording =
        measured(&place, "stream --client plumb,iperf3 --bytes 64M --blocks 3 --connections 2");
    assert_eq!(recording.blocks.len(), 6);
    for arm in ["plumb", "iperf3"] {
        let rates = figures_of_arm(&recording, arm, &THROUGHPUT, None);
        assert_eq!(rates.len(), 3, "{arm}");
        assert!(rates.iter().all(|rate| *rate > 1e6), "{rates:?}");
        assert_eq!(figures_of_arm(&recording, arm, &RETRANSMITTED, None).len(), 3);
    }
    let busy = figures_of_arm(&recording, "plumb", &BUSY, Some("sender"));
    assert!(busy.iter().all(|busy| (0.2..=1.0).contains(busy)), "{busy:?}");
    for block in &recording.blocks {
        assert!(block.ledger.offered >= 64 << 20, "{:?}", block.ledger);
    }
}

/// Check that all turns of requests and echoes are there, with their times in order.
#[test]
fn requests_and_echoes() {
    if !has(&[]) {
        return;
    }
    let place = Place::new();
    for (words, bytes) in [
        ("request --turns 200 --size 64,1000 --blocks 2", 1000),
        ("ping --turns 200 --size 1000 --family ipv6 --blocks 2", 1000),
    ] {
        let recording = measured(&place, words);
        let last = recording.arms.last().unwrap().name.clone();
        let least = figures_of_arm(&recording, &last, &TURN, Some("least"));
        let median = figures_of_arm(&recording, &last, &TURN, Some("median"));
        let rate = figures_of_arm(&recording, &last, &TURNS, None);
        assert_eq!((least.len(), rate.len()), (2, 2), "{words}");
        assert!(least.iter().zip(&median).all(|(least, median)| least <= median && *least > 0.0));
        assert_eq!(recording.blocks.last().unwrap().ledger.offered, 200 * bytes);
        assert!(figures_of_arm(&recording, &last, &THROUGHPUT, None).is_empty());
    }
}

/// Check that nginx sends all files to our client and to wrk, with sendfile and without.
#[test]
fn a_web_server_beside_wrk() {
    if !has(&["nginx", "wrk"]) {
        return;
    }
    let place = Place::new();
    let recording = measured(
        &place,
        "http --client plumb,wrk --sendfile on,off --requests 500 --directories 1 --blocks 1",
    );
    assert_eq!(recording.blocks.len(), 4);
    let mut by_client: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for block in &recording.blocks {
        let arm = &recording.arms[block.arm as usize];
        assert_eq!(figures_of_arm(&recording, &arm.name, &TURNS, None).len(), 1);
        assert!(figures_of_arm(&recording, &arm.name, &TURN, Some("99%"))[0] > 0.0);
        let bytes = block.ledger.delivered;
        by_client.entry(arm.level("client").unwrap()).or_default().push(bytes);
    }
    // The files that are asked for are the same ones.
    assert_eq!(by_client["plumb"][0], by_client["plumb"][1]);
    assert_eq!(by_client["wrk"].len(), 2);
}

/// Check that the size recorded for a buffer is the kernel's answer, which is doubled, and that a feature is off only
/// where it should be.
#[test]
fn settings_of_either_end() {
    if !has(&[]) {
        return;
    }
    let place = Place::new();
    let recording = measured(
        &place,
        "stream --bytes 4M --blocks 1 --tx-buffer 8K --feature tx-tcp-segmentation=off \
         --feature-in tx --mtu 9000",
    );
    let arm = recording.arms[0].name.clone();
    assert_eq!(figures_of_arm(&recording, &arm, &BUFFER, Some("sender")), [16384.0]);
    assert_ne!(figures_of_arm(&recording, &arm, &BUFFER, Some("receiver")), [16384.0]);
}

/// Check that a run that is killed leaves namespaces that the next one removes, and no web server.
#[test]
fn nothing_is_left() {
    if !has(&["nginx"]) {
        return;
    }
    let place = Place::new();
    let words = "bench http --lab netns --requests 100000 --blocks 1000 -o long.plumb";
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("measuring");
    let folder = format!("/proc/{0}/task", running.id());
    let threads = fs::read_dir(folder).unwrap().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let children: String = threads.filter_map(of_thread).collect();
    let children: Vec<&str> = children.split_whitespace().collect();
    let is_nginx = |child: &str| {
        let name = fs::read_to_string(format!("/proc/{child}/comm"));
        name.is_ok_and(|name| name.trim() == "nginx")
    };
    assert!(children.iter().any(|child| is_nginx(child)), "{children:?}");
    let run = left::name_of_run(running.id());
    assert_eq!(left::namespaces(&run).len(), 2);
    running.signal(libc::SIGKILL);
    running.finish();
    // Its own environment is empty, and it is not the only one of its name: it is known by its parent.
    let begun = Instant::now();
    while children.iter().any(|child| is_nginx(child)) {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(50));
    }
    place.nothing_runs();
    assert_eq!(place.temporary_files(), [""; 0]);
    let next = "bench request --lab netns --turns 10 --blocks 1 -o next.plumb";
    left::nothing_left(&place, &run, next);
}

/// Check that a program that is not installed is named with what installs it, and that this can't be measured here.
#[test]
fn programs_that_are_missing() {
    if !has(&[]) {
        return;
    }
    let place = Place::new();
    for (words, program) in [("stream --client iperf3", "iperf3"), ("http", "nginx")] {
        let words = format!("bench {words} --lab netns --blocks 1 -q");
        let plumb = place.plumb(&words);
        // Where nothing is installed, wherever it is looked for.
        let mut command = Command::new("unshare");
        let line = "mount -t tmpfs none /usr/sbin && mount -t tmpfs none /usr/bin && exec \"$@\"";
        command.args(["--mount", "sh", "-c", line, "sh"]);
        command.arg(plumb.get_program()).args(plumb.get_args());
        for (name, value) in plumb.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.current_dir(plumb.get_current_dir().unwrap());
        let ran = Running::start(&mut command).finish();
        let remedy = format!("apt-get install {program}");
        ran.code(3).says(&[&remedy]);
        assert_eq!(ran.stdout, "", "{words}");
    }
}

/// Check that what namespaces can't do is reported at once.
#[test]
fn what_they_cannot() {
    let place = Place::new();
    for (words, why) in [
        ("stream --link e1000", "joined by veth"),
        ("stream --wire-rate 100M", "wire_rate"),
        ("stream --exact", "sockets"),
        ("stream --client wrk", "kind http"),
        ("stream --client iperf3 --rx-buffer 8K", "buffer"),
        ("http --page-cache cold", "page_cache"),
        ("request --seeds 3", "seeds need lab"),
    ] {
        let ran = place.run(&format!("bench {words} --lab netns"));
        ran.code(2).says(&[why]);
    }
}
