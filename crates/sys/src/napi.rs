//! Threaded NAPI: with `threaded`, kernel threads poll a device, which can be bound to CPUs of
//! their own (Linux 5.12, 5fdd2f0e5c64 "net: add sysfs attribute to control napi threaded mode").

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::cpus;
use crate::netns::Namespace;

/// Timeout for threads to appear.
const PATIENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(5);

/// Turn on threaded NAPI for a device of a namespace, and bind the threads to these CPUs in turn;
/// returns their number. The device has to use NAPI already: a veth with an XDP program or GRO.
///
/// # Errors
/// The kernel lacks the setting, or no thread appears.
pub fn put_on(namespace: &Namespace, device: &str, on: &[u32]) -> io::Result<usize> {
    let before = threads_of(device)?;
    write_threaded(namespace, device)?;
    let begun = Instant::now();
    let mine = loop {
        let mut now = threads_of(device)?;
        now.retain(|pid| !before.contains(pid));
        if !now.is_empty() {
            break now;
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::new(
                ErrorKind::Unsupported,
                format!("{device} has no NAPI thread: does its driver use NAPI?"),
            ));
        }
        thread::sleep(NAP);
    };
    for (pid, cpu) in mine.iter().zip(on.iter().cycle()) {
        cpus::pin(*pid, *cpu)?;
    }
    Ok(mine.len())
}

fn write_threaded(namespace: &Namespace, device: &str) -> io::Result<()> {
    set_threaded(namespace, device, true)
}

/// Whether a device of a namespace has threaded NAPI.
///
/// # Errors
/// There is no such device, or the kernel lacks the setting.
pub fn is_threaded(namespace: &Namespace, device: &str) -> io::Result<bool> {
    let path = threaded(device)?;
    let text = with_sysfs(namespace, || fs::read_to_string(&path))?;
    Ok(text.trim() != "0")
}

/// Turn threaded NAPI of a device on or off.
///
/// # Errors
/// As [`is_threaded`].
pub fn set_threaded(namespace: &Namespace, device: &str, on: bool) -> io::Result<()> {
    let path = threaded(device)?;
    with_sysfs(namespace, || fs::write(&path, if on { "1" } else { "0" }))
}

fn threaded(device: &str) -> io::Result<String> {
    // Not a valid device name (dev_valid_name, net/core/dev.c).
    if device.contains('/') || [".", "..", ""].contains(&device) {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(format!("/sys/class/net/{device}/threaded"))
}

fn with_sysfs<T: Send>(
    namespace: &Namespace,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    namespace.with_sysfs(f).map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::new(
            ErrorKind::Unsupported,
            "threaded NAPI is not supported by this kernel (Linux 5.12)",
        ),
        _ => error,
    })
}

/// Kernel threads that poll a device of this name, in any namespace: `napi/rx0-12`.
fn threads_of(device: &str) -> io::Result<Vec<i32>> {
    // The kernel truncates names to 15 bytes.
    let begins: String = format!("napi/{device}-").chars().take(15).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let comm = fs::read_to_string(Path::new("/proc").join(&name).join("comm"));
        if comm.is_ok_and(|comm| comm.starts_with(&begins)) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}
