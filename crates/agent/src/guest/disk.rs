//! A command's surroundings in its guest: the disk, and the set-up before it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use netplumb_lab::vm::disk::{self, Done, Standing, last_lines};
use netplumb_model::experiment::{DISK_FOLDER, DiskPlan};
use netplumb_model::message::{CommandPlan, SetupPlan};
use netplumb_model::quantity::Figure;
use netplumb_model::reads;
use netplumb_sys::netns;
use netplumb_workload::ends::Ends;

/// Where the environment's programs are.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How much of a file is written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Make the disk of a plan, if it has one, and carry out its setup.
///
/// # Errors
/// What failed, in a sentence.
pub(super) fn set_up(plan: &CommandPlan, ends: &Ends) -> Result<Option<Standing>, String> {
    loaded(&plan.setup)?;
    let disk = match &plan.disk {
        Some(disk) => {
            let standing = disk::make(disk)?;
            standing.before_open()?;
            Some(standing)
        }
        None => None,
    };
    let is_raw = |disk: &DiskPlan| disk.disk.file_system.is_raw();
    for (path, bytes) in &plan.setup.files {
        // They would be in memory.
        if plan.disk.as_ref().is_some_and(is_raw) && Path::new(path).starts_with(DISK_FOLDER) {
            continue;
        }
        write_file(path, *bytes).map_err(|e| format!("[setup]: make the file {path}: {e}"))?;
    }
    for (program, words) in &plan.setup.commands {
        run(plan, ends, program, words)?;
    }
    // So that no work of the setup is left to do during the runs.
    sync();
    Ok(disk)
}

/// Check that modules that came with the guest are loaded.
fn loaded(setup: &SetupPlan) -> Result<(), String> {
    let is_loaded = |name: &&String| Path::new("/sys/module").join(name).exists();
    match setup.modules.iter().find(|name| !is_loaded(name)) {
        Some(name) => Err(format!(
            "the kernel did not load its module {name}: `plumb kernel list` shows the guest's kernel"
        )),
        None => Ok(()),
    }
}

/// A file whose pages all differ, written to its device.
fn write_file(path: &str, bytes: u32) -> io::Result<()> {
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(path)?;
    let mut piece = vec![0u8; PIECE_BYTES];
    let mut left = bytes as usize;
    let mut number = 0u64;
    while left > 0 {
        for word in piece.chunks_exact_mut(8) {
            word.copy_from_slice(&number.to_le_bytes());
            number += 1;
        }
        let now = left.min(piece.len());
        file.write_all(&piece[..now])?;
        left -= now;
    }
    file.sync_all()
}

fn run(plan: &CommandPlan, ends: &Ends, program: &str, words: &[String]) -> Result<(), String> {
    let shown = words.join(" ");
    let namespace = ends.tx_namespace.as_raw_fd();
    let mut command = Command::new(program);
    if let Some((name, rest)) = words.split_first() {
        command.arg0(name).args(rest);
    }
    command
        .current_dir(&plan.folder)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("LANG", "C")
        .stdin(Stdio::null());
    // SAFETY: the closure makes a system call only; the namespace is held open until it has run.
    unsafe {
        command.pre_exec(move || netns::enter(BorrowedFd::borrow_raw(namespace)));
    }
    let output = command.output().map_err(|e| format!("[setup]: run `{shown}`: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = match output.stderr.is_empty() {
                true => output.stdout,
                false => output.stderr,
            };
            Err(format!("[setup]: `{shown}` failed ({}): {}", output.status, last_lines(&said)))
        }
    }
}

fn sync() {
    // SAFETY: sync takes nothing.
    unsafe { libc::sync() };
}

/// Write back and drop the caches of files, so that a run reads them from their disk.
///
/// # Errors
/// The kernel refuses.
pub(super) fn drop_caches() -> io::Result<()> {
    sync();
    // Pages, and with them directory entries and inodes (Documentation/admin-guide/sysctl/vm.rst).
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Page faults of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) major: u64,
    pub(super) minor: u64,
}

impl Faults {
    pub(super) fn from_rusage(usage: &libc::rusage) -> Faults {
        Faults { major: usage.ru_majflt as u64, minor: usage.ru_minflt as u64 }
    }
}

/// Figures of a run apart from its instructions.
pub(super) fn figures(done: Option<Done>, faults: Faults, guest_ns: u64) -> Vec<Figure> {
    let of_disk = done.map(|done| {
        [
            (&reads::DISK_READS, done.reads),
            (&reads::DISK_READ_BYTES, done.read_bytes),
            (&reads::DISK_WRITES, done.writes),
            (&reads::DISK_WRITTEN_BYTES, done.written_bytes),
        ]
    });
    let own = [
        (&reads::MAJOR_FAULTS, faults.major),
        (&reads::MINOR_FAULTS, faults.minor),
        (&reads::GUEST_TIME, guest_ns),
    ];
    (of_disk.into_iter().flatten().chain(own))
        .map(|(quantity, value)| Figure::new(quantity, value as f64))
        .collect()
}
