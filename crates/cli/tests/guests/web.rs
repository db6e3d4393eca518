//! A web server on one of two hosts: all files come, the same in every run, from memory and from a disk.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{Place, Ran};
use netplumb_model::class::Direction;
use netplumb_model::hosts::{BUSY, FROM_DISK, INSTRUMENT, RETRANSMITTED, THROUGHPUT, TURN, TURNS};
use netplumb_model::quantity::{Declared, Subject};
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::INSTRUCTIONS;

/// Few requests: a hundred have the exact shares.
const FEW: &str = "bench http -q --requests 100 --connections 8 --directories 1 --blocks 1";

/// Whether there are guests, and a server for them.
fn can_serve() -> bool {
    let has = Path::new("/usr/sbin/nginx").exists();
    if !has {
        netplumb_testkit::skip("no nginx (apt-get install nginx-core)");
    }
    has && crate::common::has_guests()
}

/// The value of an arm's only block.
fn figure_of_arm(
    recording: &Recording,
    arm: &str,
    quantity: &Declared,
    label: Option<&str>,
) -> f64 {
    let arm = recording.arms.iter().position(|a| a.name == arm);
    let arm = arm.unwrap_or_else(|| panic!("{:?}", recording.arms)) as u32;
    let mut its = recording.scalars_of(quantity).filter(|scalar| {
        let block = scalar.block().unwrap();
        scalar.item.label.as_deref() == label && recording.blocks[block as usize].arm == arm
    });
    its.next().unwrap().value
}

/// All figures of blocks, and the times of frames.
fn figures(recording: &Recording) -> BTreeSet<String> {
    let scalars = recording.scalars.iter().filter(|s| s.of != Subject::Run);
    let mut all: BTreeSet<String> = scalars.map(|s| format!("{s:?}")).collect();
    for notes in recording.notes.values() {
        all.insert(notes.facts["wire.frames"].clone());
    }
    all
}

fn measured(place: &Place, words: &str) -> (Ran, Recording) {
    let ran = place.run(&format!("{FEW} -o x.plumb {words}"));
    ran.code(0);
    let recording = place.recording("x.plumb");
    for block in recording.blocks.iter().filter(|b| b.instrument == INSTRUMENT) {
        assert_eq!(block.ledger.offered, block.ledger.delivered, "{ran:?}");
        // A hundred files of SPECweb99 have 14.7 KB each on average; one of them has most of it.
        assert!((300_000..2_500_000).contains(&block.ledger.offered));
    }
    (ran, recording)
}

/// Check that a server sends the requested files, each time in the same time; that a slow one is
/// busy, and answers more if the NIC segments.
#[test]
fn files_come() {
    if !can_serve() {
        return;
    }
    let place = Place::new();
    let words = "--tx-shift 2 --rx-link e1000e --offload tso=on --offload tso=off";
    let (_, first) = measured(&place, words);
    let (_, second) = measured(&place, words);
    assert_eq!(figures(&first), figures(&second));
    for arm in ["tso=on", "tso=off"] {
        assert!(figure_of_arm(&first, arm, &BUSY, Some("sender")) > 0.95);
        assert!(figure_of_arm(&first, arm, &BUSY, Some("receiver")) < 0.8);
        assert_eq!(figure_of_arm(&first, arm, &RETRANSMITTED, None), 0.0);
        let turns = figure_of_arm(&first, arm, &TURNS, None);
        assert!((500.0..20_000.0).contains(&turns), "{turns}");
        // Eight at a time.
        let mean_ns = figure_of_arm(&first, arm, &TURN, Some("mean"));
        let at_a_time = mean_ns * turns / 1e9;
        assert!((4.0..8.5).contains(&at_a_time), "{at_a_time}");
    }
    let ratio = figure_of_arm(&first, "tso=on", &TURNS, None)
        / figure_of_arm(&first, "tso=off", &TURNS, None);
    assert!((1.1..2.5).contains(&ratio), "{ratio}");
    assert_eq!(place.processes(), [""; 0]);
}

/// Check that `plumb diff` names the web server's files where they were not the same, and not where they were.
#[test]
fn another_server_is_named() {
    if !can_serve() {
        return;
    }
    let place = Place::new();
    place.run(&format!("{FEW} -o one.plumb")).code(0);
    place.run(&format!("{FEW} -o same.plumb")).code(0);
    let line = "differs   nginx and its libraries: ";
    let same = place.run("diff one.plumb same.plumb");
    assert!(!same.code(0).stdout.contains("differs"), "{}", same.stdout);
    let folder = place.path("programs");
    std::fs::create_dir(&folder).unwrap();
    let nginx = folder.join("nginx");
    std::fs::copy("/usr/sbin/nginx", &nginx).unwrap();
    let file = std::fs::File::options().append(true).open(&nginx).unwrap();
    // A byte after its last section, which nobody reads.
    file.set_len(file.metadata().unwrap().len() + 1).unwrap();
    drop(file);
    let path = std::env::var_os("PATH").unwrap();
    let folders = [folder].into_iter().chain(std::env::split_paths(&path));
    let mut command = place.plumb(&format!("{FEW} -o other.plumb"));
    command.env("PATH", std::env::join_paths(folders).unwrap());
    crate::common::Running::start(&mut command).finish().code(0);
    let other = place.run("diff one.plumb other.plumb");
    crate::common::prints(other.code(0), &[line]);
}

/// Check what comes from a disk, with the page cache and past it, and that waiting for it takes time.
#[test]
fn files_of_a_disk() {
    if !can_serve() {
        return;
    }
    let place = Place::new();
    let (ran, recording) = measured(
        &place,
        // Slow enough that neither the wire nor what nginx of this machine does is the limit.
        "--disk null_blk:32M:ext4:2ms --page-cache warm,cold,direct",
    );
    let arms = ["warm", "cold", "direct"].map(|level| format!("page_cache={level}"));
    let shares = arms.each_ref().map(|arm| figure_of_arm(&recording, arm, &FROM_DISK, None));
    assert_eq!(shares[0], 0.0);
    // Some files are asked for again.
    assert!((0.2..1.2).contains(&shares[1]), "{shares:?}");
    assert!((0.2..1.2).contains(&shares[2]), "{shares:?}");
    let rates = arms.each_ref().map(|arm| figure_of_arm(&recording, arm, &THROUGHPUT, None));
    assert!(rates[0] > rates[1] && rates[0] > rates[2], "{rates:?}");
    assert!(ran.stdout.contains(" disk "), "{ran:?}");
}

/// Check that the functions of both hosts are counted: sendfile where it is asked for.
#[test]
fn functions_of_a_server() {
    if !can_serve() {
        return;
    }
    let place = Place::new();
    let entered = |words: &str| {
        let (_, recording) = measured(&place, &format!("--exact {words}"));
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        let functions = recording.nodes.iter().map(|node| node.function);
        let names = functions.map(|f| recording.functions[f as usize].name.clone());
        names.collect::<BTreeSet<_>>()
    };
    let with = entered("--sendfile on");
    let without = entered("--sendfile off");
    assert!(with.contains("do_sendfile") && !without.contains("do_sendfile"));
    assert!(without.contains("tcp_sendmsg") || without.contains("tcp_sendmsg_locked"));
}

/// Check that what the server's own program asks of the kernel is the sender's: without TSO its driver is called once
/// for each frame that is on the wire.
#[test]
fn all_that_a_server_sends() {
    if !can_serve() {
        return;
    }
    let place = Place::new();
    let (_, recording) = measured(&place, "--exact --offload tso=off");
    let is_counted = |block: &&Block| block.instrument == INSTRUCTIONS.instrument;
    let [block] = &recording.blocks.iter().filter(is_counted).collect::<Vec<_>>()[..] else {
        panic!("{:?}", recording.blocks);
    };
    let calls: u64 = (recording.costs.iter())
        .filter(|cost| {
            let function = recording.nodes[cost.node as usize].function as usize;
            let name = &recording.functions[function].name;
            cost.direction == Direction::Tx && name == "e1000_xmit_frame"
        })
        .map(|cost| cost.calls)
        .sum();
    let frames = block.ledger.offered;
    // One at either end of the window may be half in it.
    assert!(frames > 300 && calls.abs_diff(frames) <= 2, "{calls} of {frames}");
}

/// Check that what can't be measured is reported before anything boots.
#[test]
fn what_it_cannot() {
    let place = Place::new();
    place.run(&format!("{FEW} --page-cache cold")).code(2).says(&["needs a disk"]);
}
