//! Settings of a disk of this machine, over arms of a command: set, read back, and restored in every
//! case. The disk is a loop device of the test's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Place;
use netplumb_model::events::COUNT;
use netplumb_model::recording::Recording;

/// Where journals of settings are.
const JOURNALS: &str = "/run/netplumb";
const LIMIT: Duration = Duration::from_secs(20);

/// A loop device with ext4 and a file on it, mounted; all of it is removed when it is dropped.
struct Disk {
    device: String,
    mounted: PathBuf,
    /// The device keeps its scheduler when it is detached.
    scheduler: String,
}

fn works(program: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new(program).args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&ran.stdout).trim().to_string();
    ran.status.success().then_some(said)
}

impl Disk {
    /// None where there is no root, or no loop device.
    fn new(place: &Place) -> Option<Disk> {
        let image = place.path("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let image = image.to_str().unwrap();
        works("mkfs.ext4", &["-q", "-F", image])?;
        let device = works("losetup", &["--find", "--show", image])?;
        let mounted = place.path("mounted");
        fs::create_dir(&mounted).unwrap();
        let mut disk = Disk { device, mounted, scheduler: String::new() };
        let all = disk.text("scheduler");
        let inside = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        disk.scheduler = inside?.0.into();
        works("mount", &[&disk.device, disk.mounted.to_str()?])?;
        fs::write(disk.file(), vec![7; 32 << 20]).unwrap();
        works("sync", &[])?;
        Some(disk)
    }

    fn file(&self) -> PathBuf {
        self.mounted.join("data")
    }

    fn name(&self) -> &str {
        self.device.rsplit('/').next().unwrap()
    }

    fn attribute(&self, which: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/queue/{which}", self.name()))
    }

    fn text(&self, which: &str) -> String {
        let text = fs::read_to_string(self.attribute(which)).unwrap();
        text.trim().into()
    }

    fn set(&self, which: &str, value: &str) {
        fs::write(self.attribute(which), value).unwrap();
    }

    /// All that a test changes.
    fn all(&self) -> [String; 3] {
        ["scheduler", "nr_requests", "read_ahead_kb"].map(|which| self.text(which))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.scheduler.is_empty() {
            let _ = fs::write(self.attribute("scheduler"), &self.scheduler);
        }
        let _ = works("umount", &[self.mounted.to_str().unwrap_or_default()]);
        let _ = works("losetup", &["--detach", &self.device]);
    }
}

fn disk(place: &Place) -> Option<Disk> {
    let disk = Disk::new(place);
    if disk.is_none() {
        crate::common::skip("no loop devices with ext4");
    }
    disk
}

/// Counts of the first event in each block of an arm.
fn counts(recording: &Recording, arm: &str, event: &str) -> Vec<f64> {
    let of = |block: u32| {
        let block = &recording.blocks[block as usize];
        recording.arms[block.arm as usize].name == arm
    };
    let all = recording.scalars_of(&COUNT).filter(|scalar| {
        scalar.block().is_some_and(of) && scalar.item.label.as_deref() == Some(event)
    });
    all.map(|scalar| scalar.value).collect()
}

/// Check that read-ahead is set before each run, also while the file is open, that it shows in the counts, and that it
/// is restored after success and after a command that failed.
#[test]
fn as_root_read_ahead() {
    let place = Place::new();
    let Some(disk) = disk(&place) else { return };
    disk.set("read_ahead_kb", "64");
    let before = disk.all();
    let file = disk.file();
    let file = file.display();
    let added = "filemap:mm_filemap_add_to_page_cache";
    let read = format!("plumb read-file {file} --mmap --random --count 32 --cold");
    place.write(
        "disks.toml",
        format!(
            "name = \"disks\"\nlab = \"host\"\ninstruments = [\"events\"]\n\
             [workload]\nkind = \"work\"\ncommand = {:?}\n\
             [blocks]\ncount = 3\n\
             [events]\nnames = [\"{added}\"]\n\
             [knobs]\ndisk = \"{file}\"\n\
             [vary]\nread_ahead_kb = [\"128\", \"2048\", \"2048 then 128\"]\n\
             [[arm]]\nname = \"opened again\"\nknobs.read_ahead_kb = \"2048 then 128\"\n\
             knobs.command = \"{read} --reopen\"\n",
            read.split(' ').collect::<Vec<_>>()
        ),
    );
    let asked = place.run("run -q disks.toml");
    asked.code(2);
    for says in ["read_ahead_kb is set to 2048", &format!("--yes-change {}", disk.name())] {
        assert!(asked.stderr.contains(says), "{}", asked.stderr);
    }
    let ran = place.run(&format!("run -q disks.toml --yes-change {}", disk.name()));
    ran.code(0);
    assert_eq!(disk.all(), before);
    assert!(ran.stdout.contains("set       read_ahead_kb"), "{}", ran.stdout);
    let recording = place.recording("disks.plumb");
    let pages = |arm: &str| {
        let all = counts(&recording, arm, added);
        assert_eq!(all.len(), 3, "{arm}");
        all.iter().sum::<f64>() / 3.0 / 32.0
    };
    // A fault reads as many pages as may be read ahead: 32 of 4 KiB, or 512. Some are next to pages
    // that are there.
    let [few, many] = ["128", "2048"].map(|kb| pages(&format!("read_ahead_kb={kb}")));
    assert!(few <= 33.0 && many > 150.0, "{few} {many}");
    let held = pages("read_ahead_kb=2048 then 128");
    assert!((held / many - 1.0).abs() < 0.1, "{held} {many}");
    let again = pages("opened again");
    assert!((again / few - 1.0).abs() < 0.1, "{again} {few}");

    let settings = format!("stat -q cs --disk {} --read-ahead 128,256", disk.device);
    place.run(&format!("{settings} -- false")).code(1);
    assert_eq!(disk.all(), before);
    let ran = place.run(&format!(
        "stat -q cs --disk {} --read-ahead=128\u{a0}then\u{a0}256 -- plumb read-file /nowhere",
        disk.device
    ));
    ran.code(1);
    assert_eq!(disk.all(), before);
}

/// Check that a scheduler is compared by each of the commands that run on this machine, and restored
/// with the number of requests.
#[test]
fn as_root_schedulers() {
    let place = Place::new();
    let Some(disk) = disk(&place) else { return };
    disk.set("scheduler", "mq-deadline");
    disk.set("nr_requests", "48");
    let before = disk.all();
    let (device, file) = (&disk.device, disk.file());
    let rest = format!(
        "--disk {device} --scheduler none,mq-deadline --nr-requests 32 --blocks 3 -- plumb read-file {} --cold \
         --chunk 4K",
        file.display()
    );
    for command in
        ["stat -q block:block_rq_issue", "between -q --preset disk", "profile -q --frequency 9999"]
    {
        let ran = place.run(&format!("{command} {rest}"));
        ran.code(0);
        assert_eq!(disk.all(), before, "{command}");
        let name = command.split(' ').next().unwrap();
        let recording = place.recording(&format!("{name}.plumb"));
        assert_eq!(recording.arms.len(), 2, "{command}");
        assert_eq!(recording.blocks.len(), 6, "{command}");
        assert!(recording.complete);
    }
}

/// Wait for a file, and remove it.
fn wait_for(path: &Path) {
    let begun = Instant::now();
    while fs::remove_file(path).is_err() {
        assert!(begun.elapsed() < LIMIT, "the program never began");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Check that settings are restored after Ctrl-C, and after a kill by the next run; that no other run
/// may use the disk meanwhile, and that nothing of a run is left.
#[test]
fn as_root_ended_early() {
    let place = Place::new();
    let Some(disk) = disk(&place) else { return };
    disk.set("read_ahead_kb", "64");
    let before = disk.all();
    place.write("program", "#!/bin/sh\ntouch begun\nexec sleep 60\n");
    let line = format!(
        "stat -q cs --disk {} --read-ahead 192 --scheduler mq-deadline -- sh program",
        disk.device
    );
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let running = crate::common::Running::start(&mut place.plumb(&line));
        // plumb tries and restores each setting first, and sets it again for the run.
        wait_for(&place.path("begun"));
        assert_eq!(disk.text("read_ahead_kb"), "192");
        assert!(disk.text("scheduler").contains("[mq-deadline]"));
        let other = place.run(&format!(
            "stat -q cs -o other.plumb --disk {} --read-ahead 128 -- true",
            disk.file().display()
        ));
        other.code(3);
        assert!(other.stderr.contains("in use"), "{}", other.stderr);
        running.signal(signal);
        let ran = running.finish();
        if signal == libc::SIGINT {
            ran.code(130);
        } else {
            assert_eq!(disk.text("read_ahead_kb"), "192");
            let next = place.run("stat -q cs -o next.plumb -- true");
            next.code(0);
            assert_eq!(disk.all(), before);
            let next = place.run("stat cs -o next.plumb -- true");
            assert!(!next.stderr.contains("restored"), "{}", next.stderr);
        }
        assert_eq!(disk.all(), before);
    }
    let own = fs::read_dir(JOURNALS).into_iter().flatten().flatten();
    let name = disk.name();
    for entry in own {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(!text.contains(&format!("\"{name}\"")), "{text}");
    }
}

/// Check that what can't be is one clear line with what to do, and changes nothing.
#[test]
fn as_root_refused() {
    let place = Place::new();
    let Some(disk) = disk(&place) else { return };
    let before = disk.all();
    let device = &disk.device;
    for (words, code, says) in [
        (format!("--disk {device} --read-ahead 130 -- true"), 2, "use 128"),
        (format!("--disk {device} --nr-requests 1000000 -- true"), 3, "nr_requests"),
        (format!("--disk {device} --scheduler noop -- true"), 2, "mq-deadline"),
        (format!("--disk {device} -- true"), 2, "no effect by itself"),
        (format!("--disk {device} --read-ahead 4,8"), 2, "each run of a command"),
        (format!("--disk {device} --read-ahead 4,8 --duration 2s -- true"), 2, "each run"),
        (format!("--disk {device} --read-ahead=4\u{a0}then\u{a0}8 -- true"), 2, "plumb read-file"),
        ("--disk nosuch --read-ahead 4 -- true".into(), 2, "vda"),
        ("--disk /nowhere --read-ahead 4 -- true".into(), 2, "No such file"),
        ("--disk /proc --read-ahead 4 -- true".into(), 2, "lsblk"),
        ("--disk ../sda --read-ahead 4 -- true".into(), 2, "invalid disk"),
        ("--disk null_blk:8M:ext4 --read-ahead 4 -- true".into(), 2, "guest"),
        ("--mtu 1500 -- true".into(), 2, "not supported"),
    ] {
        let mut command = place.plumb("stat -q cs");
        // A blank within a word.
        command.args(words.split(' ').map(|word| word.replace('\u{a0}', " ")));
        let ran = crate::common::Running::start(&mut command).finish();
        ran.code(code);
        let says = match says {
            // Some disk of the machine's own.
            "vda" => "expected one of",
            says => says,
        };
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
        assert!(ran.stderr.lines().count() <= 6, "{words}: {}", ran.stderr);
        assert_eq!(disk.all(), before, "{words}");
    }
}
