//! Disk space, memory, and a kernel to boot.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use netplumb_model::capability::{Availability, Capability, Group};
use netplumb_sys::proc;

/// Memory for a guest of 256 MiB, QEMU and plumb, in MiB: QEMU takes some 300 to save a state, and 70 from one.
const MEMORY_MIB: u64 = 512;

/// Disk space for a distribution's kernel, downloaded and unpacked, and for recordings, in MiB.
const DISK_MIB: u64 = 1024;

/// Check them all.
pub(super) fn try_all(cache: &Path) -> Vec<Capability> {
    let tried = |id: &str, group, what: &str, attempt: &dyn Fn() -> Availability| {
        let start = Instant::now();
        let verdict = attempt();
        let took_ms = (start.elapsed().as_secs_f64() * 1e4).round() / 10.0;
        Capability { id: id.into(), group, what: what.into(), verdict, took_ms }
    };
    vec![
        tried("kernel", Group::Vm, "guest kernel", &|| kernel(cache, has_apt())),
        tried("disk", Group::Resources, "disk space for kernels and recordings", &|| disk(cache)),
        tried("memory", Group::Resources, "memory for a guest", &|| {
            memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
        }),
        tried("counters", Group::Resources, "counters of interfaces and CPUs", &counters),
    ]
}

fn has_apt() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("apt-get").is_file())
}

/// Every kernel in the cache is a directory with a `kernel.toml`.
fn kernel(cache: &Path, apt: bool) -> Availability {
    let kernels = cache.join("kernels");
    let count = fs::read_dir(&kernels).map_or(0, |entries| {
        entries.flatten().filter(|e| e.path().join("kernel.toml").is_file()).count()
    });
    match count {
        0 if apt => Availability::partly(
            "none yet, but apt-get can download one",
            format!("no kernel in {}", kernels.display()),
            "plumb kernel add debian",
        ),
        0 => Availability::no(
            format!("no kernel in {}, and no apt-get to download one", kernels.display()),
            "plumb kernel add FILE, with a .deb package, a vmlinuz or a kernel build directory",
        ),
        1 => Availability::yes(format!("1 in {}", kernels.display())),
        n => Availability::yes(format!("{n} in {}", kernels.display())),
    }
}

/// The directory itself, or its nearest existing parent.
fn nearest(folder: &Path) -> PathBuf {
    folder.ancestors().find(|a| a.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn disk(cache: &Path) -> Availability {
    let folder = nearest(cache);
    let Ok(name) = CString::new(folder.as_os_str().as_bytes()) else {
        return Availability::no(
            "the name of the cache directory contains a NUL",
            "use another one",
        );
    };
    // SAFETY: the name is NUL-terminated.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK) } < 0 {
        return Availability::no(
            format!("{} is not writable", folder.display()),
            "set PLUMB_CACHE to a directory of yours",
        );
    }
    // SAFETY: a structure of plain integers, for which zero is a value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is NUL-terminated, and the structure outlives the call.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut stat) } < 0 {
        let error = std::io::Error::last_os_error();
        return Availability::no(format!("{}: {error}", folder.display()), "check the file system");
    }
    room(&folder, stat.f_bavail.saturating_mul(stat.f_frsize) >> 20)
}

fn room(folder: &Path, free_mib: u64) -> Availability {
    if free_mib >= DISK_MIB {
        return Availability::yes(format!("{} free in {}", size(free_mib), folder.display()));
    }
    Availability::no(
        format!(
            "only {} free in {}; a kernel needs up to {}",
            size(free_mib),
            folder.display(),
            size(DISK_MIB)
        ),
        "free some, remove a kernel with plumb kernel rm, or set PLUMB_CACHE to another disk",
    )
}

fn memory(meminfo: &str) -> Availability {
    let free = proc::number(meminfo, "MemAvailable");
    match free.map(|kib| kib / 1024) {
        None => Availability::no("no MemAvailable in /proc/meminfo", "mount /proc"),
        Some(mib) if mib >= MEMORY_MIB => Availability::yes(format!("{} free", size(mib))),
        Some(mib) => Availability::no(
            format!("only {} free; a guest needs {}", size(mib), size(MEMORY_MIB)),
            "stop other programs, or use a machine with more memory",
        ),
    }
}

/// The counters that `rates` reads.
fn counters() -> Availability {
    for file in ["/proc/net/dev", "/proc/stat"] {
        if let Err(error) = fs::read(file) {
            return Availability::no(format!("{file}: {error}"), "mount /proc");
        }
    }
    Availability::yes("readable")
}

fn size(mib: u64) -> String {
    if mib >= 1024 { format!("{:.1} GiB", mib as f64 / 1024.0) } else { format!("{mib} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a directory counts as a kernel only with its description, and that the remedy for
    /// an empty cache is right with and without apt-get.
    #[test]
    fn kernels_are_counted() {
        let cache = std::env::temp_dir().join(format!("plumb-doctor-test-{}", std::process::id()));
        let kernel_folder = cache.join("kernels").join("abc");
        fs::create_dir_all(&kernel_folder).unwrap();
        let fetched = kernel(&cache, true);
        assert!(
            matches!(fetched, Availability::Partly { remedy, .. } if remedy == "plumb kernel add debian")
        );
        assert!(matches!(kernel(&cache, false), Availability::No { .. }));
        fs::write(kernel_folder.join("kernel.toml"), "").unwrap();
        assert!(matches!(kernel(&cache, false), Availability::Yes { .. }));
        fs::remove_dir_all(&cache).unwrap();
    }

    /// Check that too little space is reported with the figure.
    #[test]
    fn little_room_is_named() {
        assert!(
            matches!(room(Path::new("/x"), 10), Availability::No { reason, .. } if reason.contains("10 MiB"))
        );
        let small = "MemTotal: 4000000 kB\nMemAvailable:  512000 kB\n";
        assert!(
            matches!(memory(small), Availability::No { reason, .. } if reason.contains("500 MiB"))
        );
        assert!(memory("MemAvailable: 2097152 kB\n").works());
    }

    /// Check that a missing cache is judged by the directory in which it will be created.
    #[test]
    fn the_nearest_folder_is_asked() {
        assert_eq!(nearest(Path::new("/tmp/no/such/folder")), Path::new("/tmp"));
    }
}
