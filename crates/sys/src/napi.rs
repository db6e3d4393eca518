//! NAPI of a device, by its files in sysfs.
//!
//! With `threaded`, kernel threads poll it, which can be bound to CPUs of their own (Linux 5.12,
//! 5fdd2f0e5c64 "net: add sysfs attribute to control napi threaded mode").

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
/// The device does not exist, or the kernel lacks the setting.
pub fn is_threaded(namespace: &Namespace, device: &str) -> io::Result<bool> {
    Ok(File::Threaded.read(namespace, device)? != 0)
}

/// Turn threaded NAPI of a device on or off.
///
/// # Errors
/// As [`is_threaded`].
pub fn set_threaded(namespace: &Namespace, device: &str, on: bool) -> io::Result<()> {
    File::Threaded.write(namespace, device, u64::from(on))
}

/// A file of /sys/class/net/DEVICE, with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// Whether kernel threads poll it.
    Threaded,
    /// Nanoseconds after which it is polled again.
    GroFlushTimeout,
    /// Polls without a packet before its interrupt is turned on again.
    NapiDeferHardIrqs,
}

impl File {
    /// Its name in sysfs, below the device.
    pub fn name(self) -> &'static str {
        match self {
            File::Threaded => "threaded",
            File::GroFlushTimeout => "gro_flush_timeout",
            File::NapiDeferHardIrqs => "napi_defer_hard_irqs",
        }
    }

    /// The error for kernels without the file.
    fn since(self) -> &'static str {
        match self {
            File::Threaded => "threaded NAPI is not supported by this kernel (Linux 5.12)",
            // 3b47d30396ba "net: gro: add a per device gro flush timer".
            File::GroFlushTimeout => {
                "gro_flush_timeout is not supported by this kernel (Linux 3.19)"
            }
            // 6f8b12d661d0 "net: napi: add hard irqs deferral feature".
            File::NapiDeferHardIrqs => {
                "napi_defer_hard_irqs is not supported by this kernel (Linux 5.8)"
            }
        }
    }

    /// The number in the file.
    ///
    /// # Errors
    /// The device does not exist, or the kernel lacks the setting.
    pub fn read(self, namespace: &Namespace, device: &str) -> io::Result<u64> {
        let path = self.path(device)?;
        let text = self.with_sysfs(namespace, || fs::read_to_string(&path))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// Write a number.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn write(self, namespace: &Namespace, device: &str, number: u64) -> io::Result<()> {
        let path = self.path(device)?;
        self.with_sysfs(namespace, || fs::write(&path, number.to_string()))
    }

    fn path(self, device: &str) -> io::Result<String> {
        // Not a valid device name (dev_valid_name, net/core/dev.c).
        if device.contains('/') || [".", "..", ""].contains(&device) {
            return Err(ErrorKind::InvalidInput.into());
        }
        Ok(format!("/sys/class/net/{device}/{}", self.name()))
    }

    fn with_sysfs<T: Send>(
        self,
        namespace: &Namespace,
        f: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        namespace.with_sysfs(f).map_err(|error| match error.kind() {
            ErrorKind::NotFound => io::Error::new(ErrorKind::Unsupported, self.since()),
            _ => error,
        })
    }
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
