//! The queue of a loop device: set, read back and restored; and what a killed run has left. Needs
//! root.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

use netplumb_knobs::{Applied, BlockDisk, Journal, KnobError, Setting, Used, recover_in};
use netplumb_sys::netns::Namespace;
use tempfile::TempDir;

/// A loop device on a file of its own; released when dropped.
struct Loop {
    device: String,
    folder: TempDir,
    /// The device keeps its scheduler when it is detached.
    scheduler: String,
}

impl Loop {
    /// None where there are no loop devices.
    fn new() -> Option<Loop> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("image");
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&path).output();
        let device = made.ok().filter(|made| made.status.success());
        let Some(device) = device else {
            netplumb_testkit::skip("no loop devices");
            return None;
        };
        let mut own = Loop {
            device: String::from_utf8(device.stdout).unwrap().trim().into(),
            folder,
            scheduler: String::new(),
        };
        let namespace = Namespace::current().unwrap();
        own.scheduler = own.setting("scheduler").read(&namespace).unwrap();
        Some(own)
    }

    fn disk(&self) -> BlockDisk {
        let found = BlockDisk::find(&self.device).unwrap();
        assert_eq!(found.note, None);
        assert!(self.device.ends_with(&found.disk.name));
        found.disk
    }

    fn setting(&self, which: &str) -> Setting {
        Setting::BlockQueue { disk: self.disk(), which: which.into() }
    }

    /// The text of an attribute.
    fn text(&self, which: &str) -> String {
        let name = self.disk().name;
        let text = fs::read_to_string(format!("/sys/block/{name}/queue/{which}"));
        text.unwrap().trim().into()
    }

    fn journal(&self, planned: &[(Setting, &str)]) -> Result<Arc<Journal>, KnobError> {
        let disks = [self.disk()];
        let used = Used { disks: &disks, ..Used::default() };
        let planned = planned.iter().map(|(s, to)| s.planned(to));
        let namespace = Namespace::current().unwrap();
        Journal::begin_in(self.folder.path(), &namespace, used, planned).map(Arc::new)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if !self.scheduler.is_empty() {
            let name = self.device.rsplit('/').next().unwrap_or_default();
            let _ = fs::write(format!("/sys/block/{name}/queue/scheduler"), &self.scheduler);
        }
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

fn knobs(journal: &Arc<Journal>) -> Applied {
    Applied::new(Namespace::current().unwrap(), Some(Arc::clone(journal)))
}

/// Check that settings of a queue are made, read back and restored, with what changes along with the
/// scheduler; that a killed run's are restored by the next one, and that two runs don't share a disk.
#[test]
fn a_queue() {
    let Some(own) = Loop::new() else { return };
    let settings = [
        (own.setting("scheduler"), "none"),
        (own.setting("nr_requests"), "32"),
        (own.setting("read_ahead_kb"), "256"),
    ];
    // Values that are neither the kernel's own nor the scheduler's.
    let name = own.disk().name;
    let write = |which: &str, value: &str| {
        fs::write(format!("/sys/block/{name}/queue/{which}"), value).unwrap();
    };
    let first = [
        ("scheduler", "mq-deadline"),
        ("nr_requests", "48"),
        ("iosched/read_expire", "123"),
        ("read_ahead_kb", "64"),
    ];
    for (which, value) in first {
        write(which, value);
    }
    let texts = || first.map(|(which, _)| own.text(which));
    let before = texts();
    let journal = own.journal(&settings).unwrap();
    let mut applied = knobs(&journal);
    for (setting, to) in &settings {
        assert!(applied.set(setting.clone(), to).unwrap());
    }
    assert!(own.text("scheduler").contains("[none]"));
    assert_eq!(own.text("nr_requests"), "32");
    assert_eq!(own.text("read_ahead_kb"), "256");
    let error = own.journal(&[]).unwrap_err();
    assert!(matches!(error, KnobError::InUse { .. }), "{error}");
    // As if it had been killed now: its journal, which no process holds.
    let left = TempDir::new().unwrap();
    for file in fs::read_dir(own.folder.path()).unwrap().flatten() {
        if file.file_name().to_string_lossy().ends_with(".journal") {
            fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
        }
    }
    drop(applied);
    assert_eq!(texts(), before);
    assert!(journal.failures().is_empty(), "{:?}", journal.failures());
    drop(journal);

    write("scheduler", "none");
    write("nr_requests", "32");
    write("read_ahead_kb", "256");
    let recovered = recover_in(left.path()).unwrap();
    assert_eq!(texts(), before);
    assert!(recovered.left.is_empty(), "{recovered:?}");
    assert!(recovered.put_back.len() >= 4, "{recovered:?}");
    assert!(recover_in(left.path()).unwrap().is_empty());
}

/// Check that a value that the kernel rounds or does not know is refused, with the kernel's value,
/// and nothing left changed.
#[test]
fn what_is_refused() {
    let Some(own) = Loop::new() else { return };
    let settings = [
        (own.setting("read_ahead_kb"), "130", "use 128"),
        (own.setting("scheduler"), "noop", "expected one of "),
        (own.setting("zoned_x"), "1", "no such attribute"),
        (own.setting("../size"), "1", "can't read"),
    ];
    let planned: Vec<_> = settings.iter().map(|(s, to, _)| (s.clone(), *to)).collect();
    let journal = own.journal(&planned).unwrap();
    let before = ["read_ahead_kb", "scheduler"].map(|which| own.text(which));
    for (setting, to, says) in settings {
        let error = knobs(&journal).set(setting, to).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(["read_ahead_kb", "scheduler"].map(|which| own.text(which)), before);
    let gone = Setting::BlockQueue {
        disk: BlockDisk { inode: 1, ..own.disk() },
        which: "scheduler".into(),
    };
    let error = gone.read(&Namespace::current().unwrap());
    assert!(matches!(error, Err(KnobError::Gone { .. })));
}
