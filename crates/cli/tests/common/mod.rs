//! What the end-to-end tests share: the program, a directory per run, and whether guests can be
//! booted here.

// Each test binary has a copy, and none uses all of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

pub(crate) mod explained;
pub(crate) mod left;
pub(crate) mod own;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};
use netplumb_lab::vm::{agent, trial};
use netplumb_model::arch::Arch;
use netplumb_model::recording::{Recording, env};
#[allow(unused_imports)]
pub(crate) use netplumb_testkit::{skip, tell};
use serde_json::Value;
use tempfile::TempDir;

/// What any one run may take. Two guests at a time on a slow machine are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(400);

/// Marks the processes of one run: QEMU inherits it.
const MARK: &str = "PLUMB_TEST_MARK";

/// Where the kernels are, as the command has it.
pub(crate) fn cache() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("PLUMB_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("netplumb")))
        .or_else(|| Some(variable("HOME")?.join(".cache/netplumb")))
        .unwrap_or_default()
}

/// The agent for guests of an architecture, which is beside the program under test, if it was built.
pub(crate) fn agent(arch: Arch) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_plumb")).with_file_name(agent::file_name(arch))
}

/// The kernel that guests boot, or why there are no guests.
pub(crate) fn kernel() -> Result<KernelEntry, String> {
    if trial::find_qemu(Arch::OWN).is_err() {
        return Err("qemu-system-x86_64 is not installed".into());
    }
    KernelStore::new(&cache()).find("debian").map_err(|error| error.to_string())
}

/// Whether guests can be booted; prints a note if not.
pub(crate) fn has_guests() -> bool {
    match kernel() {
        Ok(_) => true,
        Err(why) => {
            skip(&why);
            false
        }
    }
}

/// Whether these kernels are in the user's catalogue, which missing ones are added to; with a skip, if that is not
/// possible, or a note, if the archive has dropped one.
pub(crate) fn has_kernels(place: &Place, kernels: &[&str]) -> bool {
    for kernel in kernels {
        if place.run(&format!("kernel show {kernel}")).status.success() {
            continue;
        }
        let added = place.run(&format!("kernel add {kernel}"));
        if !added.status.success() {
            let why = format!("no kernel {kernel}: {}", added.stderr.trim());
            let is_gone = why.contains("the archive of this machine's apt has no ")
                && !why.contains("lists can't be fetched");
            match is_gone {
                true => tell(&why),
                false => skip(&why),
            }
            return false;
        }
    }
    true
}

/// The oldest kernel that guests are tested on, Debian 12's, and the newest, Debian 13's: BPF programs have to load
/// and measure the same on both.
pub(crate) const OLDEST_AND_NEWEST: [&str; 2] = ["debian:6.1", "debian:6.12"];

/// Functions that ask whether a page is the first of its allocation, and from Debian 13's kernel on take an instruction
/// more or less for it. Where pages are depends on the boot: on how long QEMU's firmware takes, which is another SeaBIOS
/// in every QEMU, and on the size of what is unpacked.
pub(crate) fn is_by_place(recording: &Recording, function: &str) -> bool {
    let release = recording.environment.get(env::KERNEL);
    let is_newer = release.is_some_and(|release| !release.starts_with("6.1."));
    is_newer && ["__check_object_size", "kfree"].contains(&function)
}

/// Those of them that are there or can be added.
pub(crate) fn oldest_and_newest(place: &Place) -> Vec<&'static str> {
    let is_there = |kernel: &&str| has_kernels(place, &[kernel]);
    OLDEST_AND_NEWEST.into_iter().filter(is_there).collect()
}

/// Whether the interrupt throttle of a QEMU's e1000 can be turned off; since QEMU 10 it can't.
pub(crate) fn can_unthrottle(qemu: &Path) -> bool {
    let help = Command::new(qemu).args(["-device", "e1000-82545em,help"]).output().unwrap();
    String::from_utf8_lossy(&help.stdout).contains("mitigation=")
}

/// A place to run the program in: an empty working directory, an empty directory for temporary
/// files, and a mark on every process started from it.
#[derive(Debug)]
pub(crate) struct Place {
    cwd: TempDir,
    tmp: TempDir,
    mark: String,
    made_unix_s: u64,
}

impl Place {
    /// A new one.
    pub(crate) fn new() -> Place {
        let cwd = TempDir::new().unwrap();
        // The directory's name is unique already: no random number is needed.
        let mark = format!("{MARK}={}", cwd.path().display());
        Place {
            cwd,
            tmp: TempDir::new().unwrap(),
            mark,
            made_unix_s: UNIX_EPOCH.elapsed().unwrap().as_secs(),
        }
    }

    /// A path in the working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.cwd.path().join(name)
    }

    /// Create a file with this text in the working directory.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Names in the working directory, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        names(self.cwd.path())
    }

    /// Names in the directory for temporary files, sorted.
    pub(crate) fn temporary_files(&self) -> Vec<String> {
        names(self.tmp.path())
    }

    /// A command that will run here.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let (name, value) = self.mark.split_once('=').unwrap();
        command
            .current_dir(self.cwd.path())
            .env("TMPDIR", self.tmp.path())
            .env(name, value)
            .stdin(Stdio::null());
        // A test that is run by `nohup` would hand it on that SIGHUP is ignored.
        // SAFETY: signal(2) is async-signal-safe, and takes no lock.
        unsafe {
            command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            })
        };
        command
    }

    /// The program with these words, which hold no blanks themselves.
    pub(crate) fn plumb(&self, words: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_plumb"));
        command.args(words.split_whitespace());
        command
    }

    /// The program, run to its end.
    pub(crate) fn run(&self, words: &str) -> Ran {
        Running::start(&mut self.plumb(words)).finish()
    }

    /// A recording here.
    pub(crate) fn recording(&self, name: &str) -> Recording {
        let recording = netplumb_store::read(&self.path(name)).unwrap();
        self.note_ran(&recording);
        recording
    }

    /// Note what a recording was made on here: `scripts/tests.py` keeps it for docs/compatibility.md.
    fn note_ran(&self, recording: &Recording) {
        let facts = &recording.environment;
        let fact = |key: &str| facts.get(key).map_or("", String::as_str);
        // Others are of files that came with the test, or of perf.
        let is_import = facts.contains_key(env::IMPORTED);
        if is_import || !fact(env::STARTED).parse().is_ok_and(|started| self.made_unix_s <= started)
        {
            return;
        }
        let instruments: BTreeSet<&str> =
            (recording.blocks.iter()).map(|block| block.instrument.as_str()).collect();
        let (qemu, lab) = (fact(env::QEMU), fact(env::LAB));
        for arm in 0..recording.arms.len() {
            let kernel = recording.fact(arm, env::KERNEL).unwrap_or_default();
            let (qemu, arch) = match lab {
                "vm" => (qemu, recording.arch(arm)),
                _ => ("", Arch::OWN),
            };
            for instrument in &instruments {
                netplumb_testkit::ran(&[qemu, kernel, arch.debian(), lab, instrument]);
            }
        }
    }

    /// Processes started by what ran here that still exist.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            // Another user's, or ended meanwhile: not ours.
            let Ok(environment) = fs::read(entry.path().join("environ")) else {
                continue;
            };
            if environment.split(|b| *b == 0).any(|variable| variable == self.mark.as_bytes()) {
                let command = fs::read(entry.path().join("comm")).unwrap_or_default();
                found.push(format!(
                    "{} {}",
                    entry.file_name().to_string_lossy(),
                    String::from_utf8_lossy(&command).trim()
                ));
            }
        }
        found
    }

    /// Check that no process is left. One that was killed with its parent may
    /// take a moment to go.
    pub(crate) fn nothing_runs(&self) {
        let started = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(10), "left running: {left:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    /// Check the exit code.
    #[track_caller]
    pub(crate) fn code(&self, code: i32) -> &Ran {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Check that the errors hold all of these.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Ran {
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {self:#?}");
        }
        self
    }
}

/// Check that nothing was lost, and that every instruction is in some function's cost.
#[track_caller]
pub(crate) fn check_whole(recording: &Recording) {
    assert!(recording.complete);
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    for (id, block) in recording.blocks.iter().enumerate() {
        let arm = &recording.arms[block.arm as usize].name;
        assert!(block.ledger.closes(), "{arm}: {:?}", block.ledger);
        assert_eq!(block.ledger.offered, block.ledger.delivered, "{arm}");
        let of_block = recording.costs.iter().filter(|c| c.block as usize == id);
        let insns: u64 = of_block.map(|c| c.own).sum();
        assert_eq!(insns, block.kernel(), "{arm}");
    }
}

/// Check that the output holds all of these.
#[track_caller]
pub(crate) fn prints(ran: &Ran, words: &[&str]) {
    for word in words {
        assert!(ran.stdout.contains(word), "no `{word}` in:\n{}", ran.stdout);
    }
}

/// A program that runs, with its output gathered as it comes.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    started: Instant,
    lines: Receiver<String>,
    seen: String,
    stdout: thread::JoinHandle<String>,
}

impl Running {
    /// Start it.
    pub(crate) fn start(command: &mut Command) -> Running {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, started, lines, seen: String::new(), stdout }
    }

    /// Wait for a line of the errors that holds these words.
    pub(crate) fn wait_for(&mut self, words: &str) {
        while !self.seen.contains(words) {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push_str(&line);
                    self.seen.push('\n');
                }
                Err(_) => panic!("no `{words}` in:\n{}", self.seen),
            }
        }
    }

    /// Whether its errors held these words, as far as they were waited for.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        self.seen.contains(words)
    }

    /// Its errors, as far as they were waited for.
    pub(crate) fn said(&self) -> &str {
        &self.seen
    }

    /// The process's PID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Send a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a process that we started and have not waited for.
        let result = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(result, 0);
    }

    /// Wait for its end.
    pub(crate) fn finish(mut self) -> Ran {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("still running after {PATIENCE:?}: {}", self.seen);
            }
            thread::sleep(Duration::from_millis(10));
        };
        let took = self.started.elapsed();
        let stdout = self.stdout.join().unwrap();
        for line in self.lines {
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
        Ran { status, stdout, stderr: self.seen, took }
    }
}

/// A cache with the same kernels as the usual one, but its own saved states.
pub(crate) fn own_cache() -> TempDir {
    let own = TempDir::new().unwrap();
    let kernels = cache().join("kernels");
    std::os::unix::fs::symlink(kernels, own.path().join("kernels")).unwrap();
    own
}

/// A catalogue with `debian` alone, and of its modules only the folders named.
pub(crate) fn poorer_cache(modules: &[&str]) -> TempDir {
    let kernel = kernel().unwrap();
    let cache = TempDir::new().unwrap();
    let entry = cache.path().join("kernels").join(&kernel.hash);
    fs::create_dir_all(entry.join("modules")).unwrap();
    fs::copy(kernel.folder.join("kernel.toml"), entry.join("kernel.toml")).unwrap();
    for name in ["vmlinux", "vmlinuz", "config"] {
        if kernel.folder.join(name).exists() {
            std::os::unix::fs::symlink(kernel.folder.join(name), entry.join(name)).unwrap();
        }
    }
    for name in ["modules.builtin", "modules.builtin.modinfo"] {
        let from = kernel.folder.join("modules").join(name);
        fs::copy(from, entry.join("modules").join(name)).unwrap();
    }
    for folder in modules {
        copy_folder(
            &kernel.folder.join("modules").join(folder),
            &entry.join("modules").join(folder),
        );
    }
    cache
}

/// Copy a folder and all in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Check that an arm of a bench has a block that counts, and that its packets are all
/// accounted for, on every hop; how many came out.
pub(crate) fn closes(arm: &Value) -> u64 {
    assert_eq!(arm["valid_blocks"], 1, "{arm:#}");
    let hops = arm["hops"].as_array().unwrap();
    let mut came = hops[0]["entered"].as_u64().unwrap();
    for hop in hops {
        let n = |key: &str| hop[key].as_u64().unwrap();
        let dropped = hop["dropped"].as_object().unwrap().values();
        let dropped: u64 = dropped.map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(n("entered"), came, "{arm:#}");
        assert_eq!(n("entered"), n("left") + dropped, "{arm:#}");
        came = n("left");
    }
    assert!(came > 0, "{arm:#}");
    came
}

/// Run an experiment file of this text.
pub(crate) fn experiment(text: &str) -> Ran {
    let place = Place::new();
    place.write("x.toml", text);
    let ran = place.run("run x.toml");
    assert_eq!(place.files(), ["x.toml"], "{ran:?}");
    ran
}

/// An ELF file that is accepted as a kernel: one segment to load, with the banner in it.
pub(crate) fn vmlinux(banner: &str) -> Vec<u8> {
    let text = format!("Linux version {banner}\n\0");
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0x100_0000_u64, 64, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    let length = text.len() as u64;
    for word in [120, 0x100_0000, 0x100_0000, length, length, 4] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(text.as_bytes());
    out
}
