//! Requirements of guests' disks on this machine.

use std::path::Path;

use anyhow::Context;
use netplumb_engine::{CommandArm, EngineError};
use netplumb_lab::bundle::{Bundle, BundleError, Kind};
use netplumb_lab::vm::disk::maker_path;
use netplumb_lab::vm::files::Program;
use netplumb_model::arch::Arch;
use netplumb_model::experiment::{DISK_DEVICE, DISK_FOLDER, Disk, DiskPlan, Setup};

use crate::exit::{CannotHere, WrongKey};
use crate::signals;
use crate::steps::Steps;

/// Room that a guest of 256 MiB has for a disk and for files copied into it, apart from the kernel, the agent, and the
/// page cache of files that are read.
const ROOM_BYTES: u64 = 96 << 20;

/// Add the programs that make file systems: this machine's or, for guests of another architecture, Debian's, below the
/// directory `cache`.
///
/// # Errors
/// This machine lacks one: which package has it; or that can't be fetched.
pub(super) fn add(
    bundle: &mut Bundle,
    arms: &[CommandArm],
    (arch, cache): (Arch, &Path),
) -> anyhow::Result<()> {
    for arm in arms {
        let changes = |plan: &DiskPlan| plan.changes() && arm.reads.is_none();
        let plan = DiskPlan::from_arm(&arm.arm);
        if plan.as_ref().is_some_and(changes) {
            let why = "`A then B` changes a setting while `plumb read-file` holds its file open: this \
                       command is another";
            return Err(WrongKey::usage("read_ahead_kb", why).into());
        }
        let Some(file_system) = plan.map(|plan| plan.disk.file_system) else {
            continue;
        };
        let Some((program, package)) = file_system.maker() else {
            continue;
        };
        if arch != Arch::OWN {
            let maker = Program::Mkfs(file_system);
            let cancel = signals::watch().context("can't watch for signals")?;
            let mut steps = Steps::new();
            let fetched = maker.fetch(arch, cache, &cancel, &mut |at| steps.show(&at));
            steps.clear();
            let files = fetched.and_then(|()| maker.bundle(arch, cache));
            bundle.add_all(files.map_err(EngineError::from)?)?;
            continue;
        }
        let path = maker_path(program);
        let found = match bundle.add_program(program) {
            Err(BundleError::NotFound(_)) => {
                let why = format!(
                    "{program} of this machine makes the guest's file system, and is not installed: \
                     apt-get install {package}"
                );
                return Err(CannotHere(why).into());
            }
            other => other?,
        };
        if found != path {
            bundle.add_with(&found, Some(&path))?;
        }
    }
    Ok(())
}

/// Check that disks and files fit in a guest's memory.
///
/// # Errors
/// They don't.
pub(super) fn check_size(
    arms: &[CommandArm],
    bundle: &Bundle,
    setup: &Setup,
) -> anyhow::Result<()> {
    let disks = arms.iter().filter_map(|arm| DiskPlan::from_arm(&arm.arm));
    let disks: Vec<Disk> = disks.map(|plan| plan.disk).collect();
    let largest = disks.iter().map(|disk| disk.size_bytes).max().unwrap_or(0);
    let inside = disks.iter().filter(|disk| disk.device.is_in_guest());
    let inside = inside.map(|disk| disk.size_bytes).max().unwrap_or(0);
    let sum = |on_disk: bool| -> u64 {
        let is_on = |path: &Path| path.starts_with(DISK_FOLDER);
        let made = setup.files.iter();
        let made = made.filter(|(path, _)| is_on(Path::new(path)) == on_disk);
        made.map(|(_, size)| u64::from(size.0)).sum()
    };
    // Where one has a file system, the arms of the others are without the files.
    let all_raw = !disks.is_empty() && disks.iter().all(|disk| disk.file_system.is_raw());
    let made = setup.files.keys().map(Path::new);
    let mut files = made.chain(bundle.entries().keys().map(|path| path.as_path()));
    let on_disk = |path: &&Path| path.starts_with(DISK_FOLDER) && *path != Path::new(DISK_FOLDER);
    if let Some(path) = files.find(on_disk).filter(|_| all_raw) {
        let why = format!(
            "{} can't be made: a disk that is raw has no file system, and none is mounted there; use ext4 or xfs, or \
             read {DISK_DEVICE}",
            path.display()
        );
        return Err(WrongKey::usage("files", why).into());
    }
    let copied = bundle.entries().values().filter_map(|entry| match entry.kind {
        Kind::File { size_bytes, .. } => Some(size_bytes),
        Kind::Folder | Kind::Link(_) => None,
    });
    if largest > 0 && sum(true) > largest {
        let why = format!(
            "files of {} MiB don't fit on a disk of {} MiB",
            sum(true).div_ceil(1 << 20),
            largest >> 20
        );
        return Err(WrongKey::usage("files", why).into());
    }
    let elsewhere = if largest > 0 { sum(false) } else { sum(false) + sum(true) };
    let all = inside + elsewhere + copied.sum::<u64>();
    if (inside > 0 || elsewhere > 0) && all > ROOM_BYTES {
        let why = format!(
            "the disk, the files that are made and those that are copied need {} MiB, and a guest has \
             room for {} MiB: make the disk or the files smaller",
            all.div_ceil(1 << 20),
            ROOM_BYTES >> 20
        );
        return Err(CannotHere(why).into());
    }
    Ok(())
}
