//! Profiles of what ends, profiles that are killed, and what can't be sampled.

use netplumb_model::timing::CYCLES;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::common::{Place, skip};

/// Check that a process that ends while it is sampled ends the profile, with what there is.
#[test]
fn a_process_ends() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let mut child = place.command(place.path("work")).arg("3").spawn().unwrap();
    let pid = child.id().to_string();
    let waiter = std::thread::spawn(move || child.wait());
    let done = profile(&place, &["--pid", &pid, "--duration", "60s"]);
    waiter.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    assert!(said.contains(&format!("process {pid} has ended")), "{said}");
    let recording = netplumb_store::read(&place.path("profile.plumb")).unwrap();
    check_share(&recording, "heavy", 0.75);
    // It is gone.
    let done = profile(&place, &["--pid", &pid]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("no such process"), "{said}");
}

/// Check that a process without a sample ends in an error, and leaves no recording.
#[test]
fn a_process_that_sleeps() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    let mut child = place.command("sleep").arg("2").spawn().unwrap();
    let pid = child.id().to_string();
    let waiter = std::thread::spawn(move || child.wait());
    let done = profile(&place, &["--pid", &pid, "--duration", "20s", "--frequency", "1"]);
    waiter.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("no samples"), "{said}");
    assert!(!place.path("profile.plumb").exists());
}

/// Check that blocks are in the recording when they end: one that is killed has all but the last.
#[test]
fn killed() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    command.args(["profile", "-q", "--duration", "60s"]);
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let path = place.path("profile.plumb");
    let read = || netplumb_store::read(&path).ok();
    let blocks = || read().map_or(0, |recording| recording.blocks.len());
    let mut seen = BTreeSet::new();
    loop {
        let saved = blocks();
        if saved >= 2 {
            break;
        }
        seen.insert(saved);
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let recording = read().unwrap();
    assert!(!recording.complete);
    // One by one, not when there are several.
    assert_eq!(Vec::from_iter(seen), [0, 1]);
    for (number, block) in (0..).zip(&recording.blocks) {
        let of = recording.costs.iter().filter(|c| c.block == number);
        let sum: u64 = of.map(|c| c.own).sum();
        assert_eq!(sum, block.kernel() + block.user(), "block {number}");
    }
}

/// Check that the last block, which is short, and the one before, which is saved by then, are one in
/// the recording.
#[test]
fn a_short_rest() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let recording = recorded(&place, &["--", "./work", "0.8"]);
    assert!(recording.complete);
    let durations: Vec<u64> = recording.blocks.iter().map(|b| b.duration_ns).collect();
    let shortest = durations.iter().min().unwrap();
    assert!(*shortest > 125_000_000, "{durations:?}");
    for (number, block) in (0..).zip(&recording.blocks) {
        let of = recording.costs.iter().filter(|c| c.block == number);
        let sum: u64 = of.map(|c| c.own).sum();
        assert_eq!(sum, block.kernel() + block.user(), "block {number}");
    }
}

/// A cgroup of the test's own, with what runs in it. Both are gone when it is dropped.
struct Group {
    path: PathBuf,
    running: Option<Child>,
}

impl Group {
    /// In the file system of cgroups, if there is one of version 2.
    fn new(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut of_two = words.filter(|words| words[2] == "cgroup2");
        let root = PathBuf::from(of_two.next()?[1]);
        let path = root.join(format!("plumb-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Group { path, running: None })
    }

    /// Run a program in it, or in a cgroup below it.
    fn run(&mut self, below: Option<&str>, program: &Path) {
        let path = match below {
            Some(below) => {
                let path = self.path.join(below);
                fs::create_dir(&path).unwrap();
                path
            }
            None => self.path.clone(),
        };
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$1\" 20";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(path).arg(program);
        self.running = Some(command.spawn().unwrap());
    }

    fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// As somebody who is done with it.
    fn remove(&mut self) {
        self.stop();
        let below = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.path().is_dir()) {
            fs::remove_dir(entry.path()).unwrap();
        }
        fs::remove_dir(&self.path).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
        if self.path.exists() {
            self.remove();
        }
    }
}

/// Check that only tasks of a cgroup and of those below it are sampled, by a path from /sys and by one
/// below the mount, and that a cgroup that is removed ends the profile, with what there is.
#[test]
fn of_a_cgroup() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    with_frame_pointers(&place, "other", &WORK.replace("heavy", "outside"));
    for below in [None, Some("below")] {
        let Some(mut group) = Group::new("work") else {
            return skip("no file system of cgroups of version 2 that can be written to");
        };
        group.run(below, &place.path("work"));
        let mut other = Command::new(place.path("other")).arg("20").spawn().unwrap();
        let full = group.path.to_str().unwrap().to_string();
        let name = group.path.file_name().unwrap().to_str().unwrap();
        let asked = match below {
            Some(_) => name,
            None => &full,
        };
        let recording = recorded(&place, &["--cgroup", asked, "--duration", "4s"]);
        other.kill().unwrap();
        other.wait().unwrap();
        check_share(&recording, "heavy", 0.75);
        assert_eq!(share(&recording, "outside").0, 0.0);
    }
    let mut group = Group::new("gone").unwrap();
    group.run(None, &place.path("work"));
    let path = group.path.to_str().unwrap().to_string();
    let remover = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1_500));
        group.remove();
    });
    let done = profile(&place, &["--cgroup", &path, "--duration", "60s"]);
    remover.join().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    assert!(said.contains(&format!("the cgroup {path} was removed")), "{said}");
    // It is gone.
    let done = profile(&place, &["--cgroup", &path]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("expected a directory below"), "{said}");
}

/// Check that a cgroup of version 1 is refused, with the path of version 2.
#[test]
fn of_an_old_cgroup() {
    let Some(_turn) = turn() else {
        return;
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(old) = words.filter(|words| words[2] == "cgroup").find_map(|words| {
        let path = Path::new(words[1]);
        path.join("cgroup.procs").exists().then(|| words[1].to_string())
    }) else {
        return skip("no cgroups of version 1");
    };
    let place = Place::new();
    let done = profile(&place, &["--cgroup", &old, "--duration", "1s"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("a cgroup of version 1; expected"), "{said}");
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// Check that a user who may not sample learns which rights are missing and how to get them, and that
/// nothing is left behind.
#[test]
fn without_rights() {
    let Some(_turn) = turn() else {
        return;
    };
    if !Path::new("/usr/bin/setpriv").exists() {
        return skip("setpriv is not installed");
    }
    let place = Place::new();
    for rights in
        [&["--bounding-set=-all", "--inh-caps=-all"][..], &["--reuid=65534", "--clear-groups"]]
    {
        let mut command = place.command("/usr/bin/setpriv");
        command.args(rights).arg(env!("CARGO_BIN_EXE_plumb"));
        // Nobody may read the directory of the test.
        command.args(["profile", "--duration", "1s"]).current_dir("/");
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(3), "{said}");
        for words in ["CAP_BPF", "CAP_PERFMON", "sudo plumb profile", "setcap"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(place.files().is_empty(), "{:?}", place.files());
    assert!(place.temporary_files().is_empty());
}

/// Check that what can't be sampled is an error with a remedy, and that nothing is left behind.
#[test]
fn errors() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    for (words, code, message) in [
        (&["--pid", "4194304"][..], 2, "no such process"),
        (&["--cgroup", "/no/such"], 2, "--cgroup /no/such"),
        (&["--frequency", "200000"], 2, "--frequency"),
        (&["--", "./no-such-command"], 2, "no-such-command"),
        (&["--duration", "0s"], 2, "invalid duration"),
    ] {
        let done = profile(&place, words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(message), "{words:?}: {said}");
    }
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// Check that cycles are counted as such where there is a counter, and refused with a remedy where there is none; and
/// that `auto` always samples, and reports by what.
#[test]
fn by_cycles() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let done = profile(&place, &["--event", "cycles", "--", "./work", "1"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let has_counter = done.status.success();
    if !has_counter {
        assert_eq!(done.status.code(), Some(3), "{said}");
        assert!(said.contains("--event cpu-clock"), "{said}");
        assert!(!place.files().contains(&"profile.plumb".into()));
    }
    let recording = recorded(&place, &["--event", "auto", "--", "./work", "1"]);
    let (event, quantity) = match has_counter {
        true => ("cycles", &CYCLES),
        false => ("cpu-clock", &CPU_TIME),
    };
    assert_eq!(recording.environment["sampled.event"], event);
    let of = recording.costs.first().unwrap().quantity;
    assert!(recording.quantities[of as usize].is(quantity));
}
