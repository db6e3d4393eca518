//! Where output goes: nothing is replaced but regular files, no recording is lost, and of two
//! runs with one output one is refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{Place, Ran, Running};
use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording};
use netplumb_store::Writer;

const SHORT: &str = "path --link lo --packets 20 --warmup 0 --blocks 1";

/// A place with a recording in it: one block, of one function.
fn place() -> Place {
    let place = Place::new();
    let recording = Recording {
        quantities: vec![(&netplumb_model::timing::INSTRUCTIONS).into()],
        arms: vec![Arm {
            name: "all".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }],
        blocks: vec![Block {
            arm: 0,
            instrument: "exact".into(),
            index: 0,
            ledger: Ledger { offered: 10, delivered: 10, dropped: BTreeMap::new() },
            totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 420, user: 0 }],
            entered: 10,
            returned: 10,
            duration_ns: 0,
        }],
        functions: vec![Function {
            name: "udp_sendmsg".into(),
            module: None,
            layer: Some("transport".into()),
            address: 0xffff_ffff_8100_0000,
            size_bytes: 16,
            source: None,
        }],
        nodes: vec![Node { parent: None, function: 0, tail: false }],
        costs: vec![Cost {
            quantity: 0,
            block: 0,
            direction: Direction::Tx,
            context: Context::Task,
            node: 0,
            calls: 10,
            own: 420,
        }],
        complete: true,
        ..Recording::default()
    };
    let mut writer = Writer::create(&place.path("x.plumb")).unwrap();
    writer.save(&recording).unwrap();
    place
}

/// A node like `/dev/null`, or a block device, if we may make one.
fn node(place: &Place, name: &str, kind: [&str; 3]) -> bool {
    let mut mknod = Command::new("mknod");
    let made = mknod.arg(place.path(name)).args(kind).output();
    let is_made = made.is_ok_and(|made| made.status.success());
    if !is_made {
        crate::common::skip("to make a device node takes root");
    }
    is_made
}

/// Check that a recording is only ever written to a regular file: a device, a pipe, the standard
/// output, a directory and other files, also behind links, are refused before anything is measured,
/// and are not changed.
#[test]
fn a_recording_goes_into_a_file() {
    let place = Place::new();
    place.write("notes", "kept");
    symlink("notes", place.path("link")).unwrap();
    symlink("/dev/null", place.path("to-null")).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    let mut fifo = Command::new("mkfifo");
    assert!(fifo.arg(place.path("pipe")).status().unwrap().success());
    let mut named = vec!["notes", "link", "to-null", "folder", "pipe", "-", "/dev/stdout"];
    if node(&place, "null", ["c", "1", "3"]) && node(&place, "block", ["b", "7", "250"]) {
        named.extend(["null", "block"]);
    }
    let before = place.files();
    for name in named {
        let is_root = netplumb_testkit::is_root();
        let host = is_root.then_some("path --lab host --clock stages");
        for command in ["path", "run x.toml"].into_iter().chain(host) {
            place.write("x.toml", "name = \"x\"\n");
            let mut command = place.plumb(&format!("{command} -q -o {name}"));
            // Nothing could be measured.
            command.env("PLUMB_QEMU", "/bin/false");
            let ran = Running::start(&mut command).finish();
            ran.code(2).says(&[name, "-o"]);
            assert!(!ran.stderr.contains("booting"), "{ran:?}");
        }
    }
    fs::remove_file(place.path("x.toml")).unwrap();
    assert_eq!(place.files(), before);
    assert_eq!(fs::read(place.path("notes")).unwrap(), b"kept");
    let kind = |name: &str| fs::symlink_metadata(place.path(name)).unwrap().file_type();
    assert!(kind("link").is_symlink() && kind("to-null").is_symlink());
    assert!(kind("pipe").is_fifo());
    if before.contains(&"null".into()) {
        assert!(kind("null").is_char_device() && kind("block").is_block_device());
    }
}

/// Check that pages and files for other programs are written into devices and pipes, in place
/// of regular files, and never in place of anything else.
#[test]
fn other_files() {
    let place = place();
    let before = fs::read(place.path("x.plumb")).unwrap();
    let report = |words: &str| place.run(&format!("report x.plumb {words}"));
    symlink("page", place.path("link")).unwrap();
    // A symbolic link to a file that does not exist yet.
    report("--html link").code(0);
    assert!(place.path("link").is_symlink());
    let page = fs::read(place.path("page")).unwrap();
    assert!(page.starts_with(b"<!doctype html>"));
    // The replaced file keeps its permissions.
    fs::set_permissions(place.path("page"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    report("--html page").code(0);
    let mode = fs::metadata(place.path("page")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    let ran = report("--html -");
    ran.code(0).says(&["to standard output"]);
    assert_eq!(ran.stdout.as_bytes(), page);
    report("--html /dev/null --open").code(2).says(&["--open"]);
    if node(&place, "null", ["c", "1", "3"]) && node(&place, "block", ["b", "7", "250"]) {
        for option in ["--html", "--svg", "--markdown"] {
            report(&format!("{option} null")).code(0);
            let refused = report(&format!("{option} block"));
            refused.code(2).says(&["block", "a block device"]);
        }
        let kind = |name: &str| fs::symlink_metadata(place.path(name)).unwrap().file_type();
        assert!(kind("null").is_char_device() && kind("block").is_block_device());
        for name in ["null", "block"] {
            fs::remove_file(place.path(name)).unwrap();
        }
    }
    symlink("x.plumb", place.path("recording")).unwrap();
    for option in ["--html", "--svg"] {
        let refused = report(&format!("{option} recording"));
        refused.code(2).says(&["recording is a recording"]);
    }
    assert_eq!(place.files(), ["link", "page", "recording", "x.plumb"]);
    assert_eq!(fs::read(place.path("x.plumb")).unwrap(), before);
}

/// Check that every earlier recording is kept, and that the output has its path.
#[test]
fn no_recording_is_lost() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for n in 0..3 {
        let ran = place.run(&format!("{SHORT} -o x.plumb"));
        ran.code(0);
        let said = ran.stderr.contains("renamed the existing recording to");
        assert_eq!(said, n > 0, "{ran:?}");
    }
    let names = ["x.plumb", "x.plumb.old", "x.plumb.old.1"];
    assert_eq!(place.files(), names);
    for name in names {
        assert!(place.recording(name).complete);
    }
}

/// Start a run of some seconds, and wait until it measures.
fn measuring(place: &Place) -> Running {
    let words = "path --jobs 1 --proto udp,raw --link lo --packets 20 --blocks 120 -o x.plumb";
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("measuring udp");
    running
}

/// Check that a second run with the same output is refused at once, naming the process that holds
/// it, also under another name of the file, and that the first one continues.
#[test]
fn a_second_run_is_refused() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    symlink("x.plumb", place.path("link")).unwrap();
    let first = measuring(&place);
    for name in ["x.plumb", "link"] {
        let second = place.run(&format!("{SHORT} -o {name}"));
        let process = format!("process {}", first.id());
        second.code(1).says(&[name, "another run", &process]);
        assert!(!second.stderr.contains("measuring"), "{second:?}");
    }
    first.finish().code(0);
    assert!(place.recording("x.plumb").complete);
    assert_eq!(place.files(), ["link", "x.plumb"]);
    // The lock ends with the first.
    place.run(&format!("{SHORT} -o x.plumb")).code(0);
}

/// Check that exactly one of two runs started at once continues, every time.
#[test]
fn two_at_once() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // The states are saved by one.
    place.run(&format!("{SHORT} -o first.plumb")).code(0);
    for n in 0..4 {
        let start = || Running::start(&mut place.plumb(&format!("{SHORT} -o {n}.plumb")));
        let both = [start(), start()].map(Running::finish);
        let codes = both.each_ref().map(|ran| ran.status.code());
        // Or the second began when the first was done.
        let one = codes == [Some(0), Some(1)] || codes == [Some(1), Some(0)];
        assert!(one || codes == [Some(0); 2], "{both:#?}");
        let is_refused = |ran: &&Ran| ran.stderr.contains("locked by another run");
        let refused = both.iter().filter(is_refused).count();
        assert_eq!(refused, usize::from(one), "{both:#?}");
        assert!(place.recording(&format!("{n}.plumb")).complete);
    }
}

/// Check that after a kill at any moment every file there is opens, and none is there but
/// recordings; and that the next run goes well.
#[test]
fn killed_at_any_moment() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    const WORDS: &str =
        "path --jobs 1 --proto udp,raw --size 10,20 --link lo --packets 20 --warmup 0 --blocks 1";
    let begun = std::time::Instant::now();
    place.run(&format!("{WORDS} -o x.plumb")).code(0);
    let begun_again = std::time::Instant::now();
    place.run(&format!("{WORDS} -o x.plumb")).code(0);
    crate::common::tell(&format!("{:?} and {:?}", begun_again - begun, begun_again.elapsed()));
    let whole = begun_again.elapsed();
    for n in 0..netplumb_testkit::kills(8) {
        // Moments that no two runs share: multiples of the golden ratio, modulo one.
        let moment = whole.mul_f64(n as f64 * 0.618_034 % 1.0);
        let running = Running::start(&mut place.plumb(&format!("{WORDS} -q -o x.plumb")));
        std::thread::sleep(moment);
        running.signal(libc::SIGKILL);
        running.finish();
        place.nothing_runs();
        for name in place.files() {
            assert!(name.starts_with("x.plumb"), "{name} after {moment:?}");
            if !name.ends_with("-journal") {
                let read = netplumb_store::read(&place.path(&name));
                assert!(read.is_ok(), "{name} after {moment:?}: {read:?}");
            }
        }
        assert!(Path::new(&place.path("x.plumb")).exists());
        assert_eq!(place.temporary_files(), [""; 0]);
    }
    place.run(&format!("{WORDS} -o x.plumb")).code(0);
    assert!(place.recording("x.plumb").complete);
}

/// Check that an add which a signal ends exits as it does, and leaves nothing in the cache.
#[test]
fn an_add_that_a_signal_ends_leaves_nothing() {
    let Ok(kernel) = crate::common::kernel() else {
        crate::common::skip("there is no kernel to add once more");
        return;
    };
    let place = Place::new();
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let cache = tempfile::TempDir::new().unwrap();
        let (cache, folder) = (cache.path(), &kernel.folder);
        let words = format!(
            "--cache {} kernel add {} --modules {}",
            cache.display(),
            folder.join("vmlinux").display(),
            folder.join("modules").display()
        );
        let started = std::time::Instant::now();
        let running = Running::start(&mut place.plumb(&words));
        // It copies some thousand modules.
        let busy = || {
            let kernels = std::fs::read_dir(cache.join("kernels")).into_iter().flatten();
            kernels.flatten().any(|e| e.path().join("entry/modules/kernel").exists())
        };
        while !busy() {
            assert!(started.elapsed() < crate::common::PATIENCE, "nothing was copied");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        running.signal(signal);
        running.finish().code(code).says(&["interrupted"]);
        let left: Vec<_> = std::fs::read_dir(cache.join("kernels"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != ".lock")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    place.nothing_runs();
}
