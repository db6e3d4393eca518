//! Disks of guests: a command's reads are the same in every run, and planted differences are found.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::Place;
use netplumb_model::quantity::Declared;
use netplumb_model::reads;
use netplumb_model::recording::Recording;

/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// The figure of an arm's only block.
fn figure(recording: &Recording, arm: &str, quantity: &Declared) -> f64 {
    let is_its = |block: u32| {
        let block = &recording.blocks[block as usize];
        recording.arms[block.arm as usize].name == arm
    };
    let mut values = recording
        .scalars_of(quantity)
        .filter(|scalar| scalar.block().is_some_and(is_its))
        .map(|scalar| scalar.value);
    let value = values.next().unwrap_or_else(|| panic!("{arm}: no {}", quantity.name));
    assert_eq!(values.next(), None);
    value
}

/// Calls of a function in an arm.
fn calls(recording: &Recording, arm: &str, name: &str) -> u64 {
    let costs = recording.costs.iter().filter(|cost| {
        let block = &recording.blocks[cost.block as usize];
        let node = &recording.nodes[cost.node as usize];
        let function = &recording.functions[node.function as usize];
        recording.arms[block.arm as usize].name == arm && function.name == name
    });
    costs.map(|cost| cost.calls).sum()
}

/// What an arm cost, by function and context, and what its disk did.
type Costs = BTreeMap<(String, String, String), (u64, u64)>;

/// Figures by arm and quantity.
type Done = BTreeMap<(String, String), f64>;

fn costs(recording: &Recording) -> (Costs, Done) {
    let mut costs = Costs::new();
    for cost in &recording.costs {
        let block = &recording.blocks[cost.block as usize];
        let node = &recording.nodes[cost.node as usize];
        let function = recording.functions[node.function as usize].name.clone();
        let arm = recording.arms[block.arm as usize].name.clone();
        let of = costs.entry((arm, cost.context.to_string(), function)).or_default();
        of.0 += cost.calls;
        of.1 += cost.own;
    }
    let done = recording.scalars.iter().filter_map(|scalar| {
        let block = &recording.blocks[scalar.block()? as usize];
        let arm = recording.arms[block.arm as usize].name.clone();
        let quantity = recording.quantities[scalar.quantity as usize].name.clone();
        Some(((arm, quantity), scalar.value))
    });
    (costs, done.collect())
}

/// Check that a delay planted in the disk is found at its size, in the time from issue to completion, and none of it in
/// the queue before, whatever the delay; and that a planted queue is found there.
#[test]
fn where_a_request_waits() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/readahead-queue.toml");
    let ran = place.run(&format!("run -q {} -o queue.plumb", file.display()));
    ran.code(0);
    for word in ["fails:", "no data:", "not shown:"] {
        assert!(!ran.stdout.contains(word), "{}", ran.stdout);
    }
    let recording = place.recording("queue.plumb");
    let mean_ns = |arm: &str, stage: &str| {
        let of = |block: u32| {
            let arm_of = recording.blocks[block as usize].arm;
            recording.arms[arm_of as usize].name == arm
        };
        let (mut sum, mut count) = (0, 0);
        for (span, one) in recording.stages() {
            if of(span.block) && one.name.starts_with(stage) {
                sum += span.times.total_ns;
                count += span.times.count;
            }
        }
        assert!(count > 0, "{arm} {stage}");
        sum as f64 / count as f64
    };
    for (arm, planted_ns) in [("3.3 ms", 3.3e6), ("6.6 ms", 6.6e6)] {
        let disk_ns = mean_ns(arm, "block_rq_issue");
        assert!((disk_ns / planted_ns - 1.0).abs() < 0.05, "{arm}: {disk_ns}");
        let queue_ns = mean_ns(arm, "block_rq_insert");
        assert!(queue_ns < 0.01 * planted_ns, "{arm}: {queue_ns}");
    }
    assert!(mean_ns("no delay", "block_rq_issue") < 0.1 * 3.3e6);
    // A disk that takes one request at a time has the others wait.
    for (arm, planted_ns) in
        [("7 in flight", 6.0 * 550e3), ("4 in flight", 3.0 * 550e3), ("2 in flight", 3.3e6)]
    {
        let queue_ns = mean_ns(arm, "block_rq_insert");
        assert!((queue_ns / planted_ns - 1.0).abs() < 0.05, "{arm}: {queue_ns}");
    }
}

/// Check that the case of the guide comes out as described: every claim holds, two runs are equal to the instruction
/// and the nanosecond, a planted delay is found, and what runs has a layer.
#[test]
fn what_is_read_ahead() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/readahead.toml");
    let run = |name: &str| {
        let ran = place.run(&format!("run -q {} -o {name}", file.display()));
        ran.code(0);
        (ran.stdout, place.recording(name))
    };
    let (text, one) = run("one.plumb");
    let (_, other) = run("other.plumb");
    for word in ["fails:", "no data:", "not shown:"] {
        assert!(!text.contains(word), "{text}");
    }
    assert!(text.matches("holds:").count() >= 8, "{text}");
    let ((one_costs, one_done), (other_costs, other_done)) = (costs(&one), costs(&other));
    for (key, cost) in &one_costs {
        assert_eq!(other_costs.get(key), Some(cost), "{key:?}");
    }
    assert_eq!(one_costs.len(), other_costs.len());
    assert_eq!(one_done, other_done);

    // A fault reads as many pages as may be read ahead: 32 of 4 KiB, or 512.
    let pages = |arm: &str| {
        let bytes = figure(&one, arm, &reads::DISK_READ_BYTES);
        bytes / PAGE / figure(&one, arm, &reads::MAJOR_FAULTS)
    };
    for (arm, wanted) in [("before", 32.0), ("512", 128.0), ("after", 512.0)] {
        let found = pages(arm);
        // Some are at the ends of the file, or next to pages that are there; and in Linux 6.12, a fault may find its
        // pages being read, and is no major one.
        assert!(found <= 1.1 * wanted && found > 0.6 * wanted, "{arm}: {found}");
    }
    assert_eq!(pages("held open"), pages("after"));
    assert_eq!(pages("opened again"), pages("before"));
    let faults = figure(&one, "before", &reads::MAJOR_FAULTS);
    let reads = calls(&one, "before", "page_cache_ra_unbounded");
    assert!((faults as u64..=(1.1 * faults) as u64).contains(&reads), "{reads} of {faults}");

    // 3.3 ms more for each time that the program waits, whatever it waits for at once: a page that is being read already
    // takes a part of that.
    let time = |arm: &str| figure(&one, arm, &reads::GUEST_TIME);
    let waits = figure(&one, "after", &reads::MAJOR_FAULTS);
    let each_ms = (time("queue") - time("after")) / waits / 1e6;
    assert!((each_ms / 3.3 - 1.0).abs() < 0.1, "{each_ms} ms");

    let (mut all, mut without) = (0, 0);
    for cost in &one.costs {
        let node = &one.nodes[cost.node as usize];
        all += cost.own;
        if one.functions[node.function as usize].layer.is_none() {
            without += cost.own;
        }
    }
    assert!(without * 100 < all, "{without} of {all} instructions");
}

fn has_program(name: &str) -> bool {
    let folders = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
    folders.iter().any(|folder| Path::new(folder).join(name).exists())
}

/// Check that XFS and a RAM disk without a queue work, too, with files of this machine on them.
#[test]
fn other_disks() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("data", vec![7; 3 << 20]);
    let mut disks = vec!["brd:16M:ext4"];
    match has_program("mkfs.xfs") {
        true => disks.push("null_blk:32M:xfs"),
        false => crate::common::tell("mkfs.xfs is not installed: XFS was not tried"),
    }
    for disk in disks {
        let ran = place.run(&format!(
            "path -q --disk {disk} --read-ahead 64 --with data:/disk/data --drop-caches -- plumb \
             read-file /disk/data"
        ));
        ran.code(0);
        assert!(ran.stdout.contains("read 3145728 bytes in 24"), "{}", ran.stdout);
        let recording = place.recording("path.plumb");
        let arm = recording.arms[0].name.clone();
        if disk.starts_with("null_blk") {
            let bytes = figure(&recording, &arm, &reads::DISK_READ_BYTES);
            // With what the file system looks up.
            assert!((3_145_728.0..3_300_000.0).contains(&bytes), "{bytes}");
        }
        assert!(calls(&recording, &arm, "submit_bio") > 0);
    }
}

/// Check that QEMU's disk is read by all instruments of guests, from a saved state and without, and that footers,
/// claims and comparisons report that it differs from run to run.
#[test]
fn a_disk_of_qemu() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let disk = "--disk virtio-blk:64M:ext4 --read-ahead 128 --scheduler mq-deadline --make-file /disk/data:16M \
                --drop-caches";
    let read = "plumb read-file /disk/data --mmap --random --count 16";
    for (command, name) in [
        ("path", "path"),
        ("path --cold", "path"),
        ("stat block:block_rq_issue --lab vm", "stat"),
        ("between --preset disk --lab vm", "between"),
    ] {
        let ran = place.run(&format!("{command} {disk} -q -- {read}"));
        ran.code(0);
        assert!(ran.stdout.contains("not repeatable"), "{command}: {}", ran.stdout);
        let recording = place.recording(&format!("{name}.plumb"));
        if name == "path" {
            let arm = recording.arms[0].name.clone();
            let faults = figure(&recording, &arm, &reads::MAJOR_FAULTS);
            let bytes = figure(&recording, &arm, &reads::DISK_READ_BYTES);
            assert!(bytes / PAGE / faults <= 1.1 * 32.0 && faults >= 10.0, "{bytes} {faults}");
            assert!(calls(&recording, &arm, "virtblk_done") > 0);
        }
    }
    place.write(
        "x.toml",
        format!(
            "name = \"x\"\n[workload]\nkind = \"command\"\ncommand = {:?}\n\
             [setup]\nfiles = {{ \"/disk/data\" = \"8M\" }}\ndrop_caches = true\n\
             [[arm]]\nname = \"outside\"\nknobs.disk = \"virtio-blk:24M:ext4\"\n\
             [[arm]]\nname = \"inside\"\nknobs.disk = \"null_blk:24M:ext4\"\n\
             [[arm]]\nname = \"more\"\nknobs = {{ disk = \"null_blk:24M:ext4\", read_ahead_kb = 512 }}\n\
             [[claim]]\nkind = \"compare\"\nsays = \"one\"\nclasses = [\"command run\"]\n\
             quantity = \"disk read bytes\"\narm = \"outside\"\nagainst = \"inside\"\nis = \"same\"\n\
             [[claim]]\nkind = \"compare\"\nsays = \"other\"\nclasses = [\"command run\"]\n\
             quantity = \"disk read bytes\"\narm = \"more\"\nagainst = \"inside\"\nis = \"more\"\n",
            read.split(' ').collect::<Vec<_>>()
        ),
    );
    let ran = place.run("run -q x.toml");
    ran.code(0);
    for says in ["not shown:", "is not repeatable", "holds:"] {
        assert!(ran.stdout.contains(says), "{says}: {}", ran.stdout);
    }
    let ran = place.run("diff x.plumb:inside x.plumb:outside");
    assert!(ran.stdout.contains("not repeatable"), "{} {}", ran.stdout, ran.stderr);
}

/// Check that an impossible request is one clear line, and that a failed step of the setup shows
/// why.
#[test]
fn what_fails() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let read = "-- plumb read-file /disk/data";
    for (words, code, says) in [
        ("--disk null_blk:64M:ext3 -- true", 2, "ext4, xfs, raw"),
        ("--disk null_blk:4M:ext4 -- true", 2, "8M to 96M"),
        ("--disk virtio-blk:2048M:raw -- true", 2, "1M to 1024M"),
        ("--disk null_blk:8M:raw --make-file /disk/x:1M -- true", 2, "no file system"),
        (
            "--disk null_blk:8M:raw --with /bin/true:/disk/true -- true",
            2,
            "/disk/true can't be made",
        ),
        (
            // The disk of the first arm has the file, and there is none in the second.
            "--disk null_blk:8M:ext4 --disk null_blk:8M:raw --make-file /disk/data:1M -- cat /disk/data",
            1,
            "/disk/data: No such file",
        ),
        ("--disk virtio-blk:64M:ext4:1ms -- true", 2, "no delay"),
        ("--disk /dev/vda --read-ahead 4 -- true", 2, "this machine"),
        ("--read-ahead 128 -- true", 2, "--disk"),
        ("--disk null_blk:64M:ext4", 2, "command"),
        ("--disk brd:16M:ext4 --scheduler bfq -- true", 2, "no queue"),
        ("--disk brd:16M:ext4 --read-ahead 129 -- true", 2, "use 128"),
        ("--disk brd:16M:ext4 --read-ahead=1then -- true", 2, "2048 then 128"),
        ("--disk null_blk:16M:ext4 --nr-requests 100000 -- true", 1, "nr_requests"),
        ("--disk null_blk:16M:ext4 --make-file /disk/data:17M -- true", 2, "don't fit"),
        ("--disk null_blk:16M:ext4 --make-file /disk/data:15M -- true", 1, "No space left"),
        ("--disk null_blk:96M:ext4 --make-file /data:64M -- true", 3, "96 MiB"),
        ("--disk null_blk:16M:ext4 --setup ls\u{a0}/nowhere -- true", 1, "No such file"),
        (&format!("--disk null_blk:16M:ext4 {read}"), 1, "/disk/data"),
        ("--lab netns --disk null_blk:16M:ext4 -- true", 2, "lab vm"),
    ] {
        let mut command = place.plumb("path -q");
        // A blank within a word.
        command.args(words.split(' ').map(|word| word.replace('\u{a0}', " ")));
        let ran = crate::common::Running::start(&mut command).finish();
        ran.code(code);
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
        // clap's errors have the usage below.
        assert!(ran.stderr.lines().count() <= 6, "{words}: {}", ran.stderr);
    }
}
