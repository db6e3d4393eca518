//! The disk of a guest: a device in its memory, a file system on it, and the settings of its queue.
//!
//! The device is made by the guest's own kernel, and the file system by this machine's `mkfs`, which
//! is copied into the guest: nothing comes from outside while the guest runs, so that each run has
//! the same disk. The file system's identifiers are fixed.
//!
//! A disk of virtio-blk is one of QEMU's, in memory of this machine. Saved states don't have it: the
//! guest finds it when it looks for PCI devices once more.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netplumb_model::experiment::{
    DISK_DEVICE, DISK_FOLDER, Disk, DiskDevice, DiskPlan, FileSystem, QueueSetting, selected,
};

use netplumb_sys::memory::memfd;

/// Where configfs belongs, the interface to null_blk's devices.
const CONFIG: &str = "/sys/kernel/config";
/// The directory of one of its devices (Documentation/block/null_blk.rst).
const NULL_BLK: &str = "/sys/kernel/config/nullb/plumb";
/// Writing 1 to it makes the kernel look for PCI devices again.
const RESCAN: &str = "/sys/bus/pci/rescan";
/// The slot of QEMU's disk, which no other device gets by itself.
const SLOT: &str = "0x1e";
/// All block devices.
const DEVICES: &str = "/sys/block";
/// Where the disk is mounted first, to put files on it that were copied to its directory.
const ASIDE: &str = "/run/plumb-disk";
/// The largest request, in sectors: the kernel's default for any disk (BLK_DEF_MAX_SECTORS in include/linux/blkdev.h).
const MOST_SECTORS: u32 = 2560;
/// Identifiers of the file system; otherwise they are random.
const UUID: &str = "6e657470-6c75-6d62-8000-000000000001";
const HASH_SEED: &str = "6e657470-6c75-6d62-8000-000000000002";
/// Lines of a program's output that an error has.
const LINES: usize = 6;

/// The parameters of a module that is loaded for a disk.
pub fn parameters(disk: &Disk) -> String {
    match disk.device {
        // Devices are made by configfs: its own first one is not kept in memory.
        DiskDevice::NullBlk => "nr_devices=0".into(),
        DiskDevice::Brd => format!("rd_nr=1 rd_size={}", disk.size_bytes >> 10),
        DiskDevice::VirtioBlk => String::new(),
    }
}

/// The memory of this machine that a disk is in, if it is in no guest's; gone when it is closed.
///
/// # Errors
/// There is not enough.
pub fn backing(disk: &Disk) -> io::Result<Option<OwnedFd>> {
    if disk.device.is_in_guest() {
        return Ok(None);
    }
    let memory = File::from(memfd("netplumb-disk", &[])?);
    memory.set_len(disk.size_bytes)?;
    Ok(Some(memory.into()))
}

/// QEMU's arguments for a disk in this descriptor.
pub fn qemu_args(fd: i32) -> Vec<String> {
    [
        "-blockdev",
        &format!("driver=file,node-name=plumb,filename=/proc/self/fd/{fd},locking=off"),
        "-device",
        &format!("virtio-blk-pci,drive=plumb,addr={SLOT}"),
    ]
    .map(String::from)
    .to_vec()
}

/// A disk that is in place.
#[derive(Debug)]
pub struct Standing {
    /// Its directory below /sys.
    folder: PathBuf,
    queue: Vec<QueueSetting>,
    /// brd takes bios as they come, and counts none.
    is_accounted: bool,
}

/// The account of a disk since the guest started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Requests completed for reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests completed for writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Done {
    /// The difference from `before`.
    #[must_use]
    pub fn since(self, before: Done) -> Done {
        Done {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }

    /// From `/sys/block/DEVICE/stat`; sectors have 512 bytes there (Documentation/block/stat.rst).
    fn parse(text: &str) -> Option<Done> {
        let fields: Vec<u64> =
            text.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let field = |n: usize| fields.get(n).copied();
        Some(Done {
            reads: field(0)?,
            read_bytes: field(2)? * 512,
            writes: field(4)?,
            written_bytes: field(6)? * 512,
        })
    }
}

impl Standing {
    /// Its account; none for a device without one in the kernel.
    pub fn done(&self) -> Option<Done> {
        if !self.is_accounted {
            return None;
        }
        let text = fs::read_to_string(self.folder.join("stat"));
        text.ok().and_then(|text| Done::parse(&text))
    }

    /// Set its queue for programs that open their file after this.
    ///
    /// # Errors
    /// The kernel refuses a value, in a sentence.
    pub fn before_open(&self) -> Result<(), String> {
        self.queue.iter().try_for_each(|setting| self.set(setting, &setting.before))
    }

    /// Change its queue for a program that has opened its file.
    ///
    /// # Errors
    /// As [`Standing::before_open`].
    pub fn after_open(&self) -> Result<(), String> {
        let changed = |setting: &&QueueSetting| setting.after.is_some();
        self.queue.iter().filter(changed).try_for_each(|setting| {
            let value = setting.after.as_deref().unwrap_or_default();
            self.set(setting, value)
        })
    }

    /// Set an attribute of the queue, and read it back.
    fn set(&self, setting: &QueueSetting, value: &str) -> Result<(), String> {
        let name = &setting.name;
        let path = self.folder.join("queue").join(name);
        fs::write(&path, value).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => format!(
                "{name} = {value}: the kernel does not accept it for this disk, which has {}",
                self.value(&path)
            ),
            Some(libc::ENOENT) => format!("{name}: this kernel has no such setting"),
            _ => format!("{name} = {value}: {e}"),
        })?;
        let found = self.value(&path);
        match selected(&found) == value {
            true => Ok(()),
            false => {
                Err(format!("{name} = {value}: the kernel has set {} instead", selected(&found)))
            }
        }
    }

    fn value(&self, path: &Path) -> String {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().to_string()
    }
}

/// Make the disk of a plan and mount it.
///
/// # Errors
/// What failed, in a sentence.
pub fn make(plan: &DiskPlan) -> Result<Standing, String> {
    let disk = &plan.disk;
    let doing = |what: &str| {
        let what = what.to_string();
        move |e: io::Error| format!("disk {disk}: {what}: {e}")
    };
    let before = devices();
    match disk.device {
        DiskDevice::NullBlk => null_blk(disk).map_err(doing("make the device"))?,
        DiskDevice::Brd => {}
        DiskDevice::VirtioBlk => fs::write(RESCAN, "1").map_err(doing("find the device"))?,
    }
    let name = match disk.device {
        DiskDevice::NullBlk => devices().difference(&before).next().cloned(),
        // A guest that booted with it has had it since its module was loaded.
        DiskDevice::VirtioBlk => devices().into_iter().find(|name| name.starts_with("vd")),
        DiskDevice::Brd => devices().into_iter().find(|name| name == "ram0"),
    };
    let name = name.ok_or_else(|| format!("disk {disk}: the kernel made no device"))?;
    let folder = Path::new(DEVICES).join(&name);
    let device = Path::new("/dev").join(&name);
    // Newer kernels name the device of null_blk after its directory.
    if device != Path::new(DISK_DEVICE) {
        symlink(&device, DISK_DEVICE).map_err(doing("link to its device"))?;
    }
    if let Some((program, _)) = disk.file_system.maker() {
        make_file_system(disk, program)?;
        mount_with_files(disk.file_system).map_err(doing("mount it"))?;
    }
    Ok(Standing { folder, queue: plan.queue.clone(), is_accounted: disk.device != DiskDevice::Brd })
}

fn devices() -> BTreeSet<String> {
    let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// null_blk's default number of concurrent requests (g_hw_queue_depth of drivers/block/null_blk/main.c).
const DEFAULT_DEPTH: u32 = 64;

/// A device of null_blk with memory behind it.
fn null_blk(disk: &Disk) -> io::Result<()> {
    super::guest::mount("configfs", CONFIG)?;
    fs::create_dir(NULL_BLK)?;
    // 2: completed by a timer; 0: in the call that hands it to the device.
    let by = if disk.delay_ns > 0 { "2" } else { "0" };
    for (name, value) in [
        ("memory_backed", "1".to_string()),
        ("size", (disk.size_bytes >> 20).to_string()),
        ("submit_queues", "1".to_string()),
        // Otherwise it is 127 KiB, and a read of 128 is split. Older kernels have no such setting.
        ("max_sectors", MOST_SECTORS.to_string()),
        ("irqmode", by.to_string()),
        ("completion_nsec", disk.delay_ns.to_string()),
        (
            "hw_queue_depth",
            match disk.depth {
                0 => DEFAULT_DEPTH,
                depth => depth,
            }
            .to_string(),
        ),
        ("power", "1".to_string()),
    ] {
        match fs::write(Path::new(NULL_BLK).join(name), value) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && name == "max_sectors" => {}
            other => other.map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?,
        }
    }
    Ok(())
}

/// The arguments of `mkfs` for a file system that is the same each time.
fn arguments(file_system: FileSystem) -> Vec<String> {
    let words: &[&str] = match file_system {
        // Blocks of a page, as on disks of a usual size.
        FileSystem::Ext4 => &["-q", "-F", "-b", "4096", "-m", "0", "-U", UUID, "-E"],
        FileSystem::Xfs => &["-q", "-f", "-K", "-m"],
        FileSystem::Raw => &[],
    };
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
    match file_system {
        // Tables that the kernel would fill in later are filled now.
        FileSystem::Ext4 => words.push(format!(
            "hash_seed={HASH_SEED},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        )),
        FileSystem::Xfs => words.push(format!("uuid={UUID}")),
        FileSystem::Raw => {}
    }
    words.push(DISK_DEVICE.to_string());
    words
}

fn make_file_system(disk: &Disk, program: &str) -> Result<(), String> {
    let output = Command::new(maker_path(program))
        .args(arguments(disk.file_system))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C")
        // Otherwise it refuses less than 300 MiB, as too small for use (validate_supported of
        // mkfs/xfs_mkfs.c); its own tests set these.
        .env("TEST_DIR", DISK_FOLDER)
        .env("TEST_DEV", DISK_DEVICE)
        .env("QA_CHECK_FS", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("disk {disk}: run {program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = [output.stdout, output.stderr].concat();
            Err(format!("disk {disk}: {program} failed ({}): {}", output.status, last_lines(&said)))
        }
    }
}

/// Where a program of a disk is in the guest.
pub fn maker_path(program: &str) -> PathBuf {
    Path::new("/usr/sbin").join(program)
}

/// The last lines of a program's output, in one.
pub fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(LINES)..] {
        [] => "it wrote nothing".into(),
        last => last.join("; "),
    }
}

/// Mount the disk. Files that were copied to its directory are put on it.
fn mount_with_files(file_system: FileSystem) -> io::Result<()> {
    let folder = Path::new(DISK_FOLDER);
    let has_files = fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some());
    fs::create_dir_all(folder)?;
    if has_files {
        fs::create_dir_all(ASIDE)?;
        mount(file_system, ASIDE)?;
        copy(folder, Path::new(ASIDE))?;
        unmount(ASIDE)?;
        for entry in fs::read_dir(folder)?.flatten() {
            let path = entry.path();
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(&path)?,
                false => fs::remove_file(&path)?,
            }
        }
    }
    mount(file_system, DISK_FOLDER)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Without times of access, which reading would write.
fn mount(file_system: FileSystem, target: &str) -> io::Result<()> {
    let c = |text: &str| CString::new(text).map_err(io::Error::other);
    let (source, target, kind) = (c(DISK_DEVICE)?, c(target)?, c(file_system.as_str())?);
    // SAFETY: all three are C strings that outlive the call; no data is passed.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOATIME,
            std::ptr::null(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unmount(target: &str) -> io::Result<()> {
    let target = CString::new(target).map_err(io::Error::other)?;
    // SAFETY: a C string that outlives the call.
    match unsafe { libc::umount(target.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a device's statistics are read by their places, and differences taken.
    #[test]
    fn statistics() {
        let text = "     100       5    25600       40       10        0       80        2        0       44       42        0        0        0        0        3        1\n";
        let done = Done::parse(text).unwrap();
        let wanted =
            Done { reads: 100, read_bytes: 25_600 * 512, writes: 10, written_bytes: 80 * 512 };
        assert_eq!(done, wanted);
        assert_eq!(done.since(done), Done::default());
        assert_eq!(Done::parse("1 2 x"), None);
        assert_eq!(Done::parse(""), None);
    }

    /// Check that an error has the end of a program's output, in one line.
    #[test]
    fn what_a_program_wrote() {
        assert_eq!(last_lines(b"\n one \n\ntwo\n"), "one; two");
        assert_eq!(last_lines(b""), "it wrote nothing");
    }
}
