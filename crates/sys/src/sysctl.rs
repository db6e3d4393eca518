//! Sysctls, by name: read, and set with reading back.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::netns::Namespace;

/// The file of a sysctl. As in sysctl(8), a slash in a key is a dot in a name, such as a VLAN
/// device's.
pub fn path(key: &str) -> PathBuf {
    let swapped = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let below: String = key.chars().map(swapped).collect();
    Path::new("/proc/sys").join(below)
}

/// Set a sysctl in this thread's namespace, and read it back: another value is an error.
///
/// # Errors
/// The kernel refuses it: the reason, in terms of sysctls.
pub fn set(key: &str, value: &str) -> io::Result<()> {
    let sane = !key.is_empty()
        && key.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('/')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c))
        });
    if !sane {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("invalid sysctl name `{key}`; expected like net.core.rmem_max"),
        ));
    }
    let file = OpenOptions::new().write(true).open(path(key));
    let mut file = file.map_err(|e| explained(&e))?;
    file.write_all(value.as_bytes()).map_err(|e| match e.kind() {
        // The sysctl exists, but not what it names.
        ErrorKind::NotFound => io::Error::new(ErrorKind::Unsupported, no_such_value(key, value)),
        _ => explained(&e),
    })?;
    let back = fs::read_to_string(path(key)).map_err(|e| explained(&e))?;
    if back.split_whitespace().eq(value.split_whitespace()) {
        Ok(())
    } else {
        Err(io::Error::other(format!("it reads back as `{}`", back.trim())))
    }
}

/// Read a sysctl in this thread's namespace.
///
/// # Errors
/// It does not exist: the reason, in terms of sysctls.
pub fn get(key: &str) -> io::Result<String> {
    let value = fs::read_to_string(path(key)).map_err(|e| explained(&e))?;
    Ok(value.trim().to_string())
}

/// Why the kernel does not find a sysctl's new value.
fn no_such_value(key: &str, value: &str) -> String {
    const CONTROL: &str = "net.ipv4.tcp_congestion_control";
    let shown: String = value.chars().take(60).collect();
    let known = match key == CONTROL {
        true => get("net.ipv4.tcp_available_congestion_control").ok(),
        false => None,
    };
    let only = known.map_or(String::new(), |known| {
        let known: Vec<&str> = known.split_whitespace().collect();
        format!(", only {}", known.join(", "))
    });
    format!("this kernel has no `{}`{only}: a module may be missing", shown.escape_debug())
}

/// The system's reason, in terms of sysctls.
fn explained(error: &io::Error) -> io::Error {
    let why = match error.kind() {
        ErrorKind::NotFound => "no such sysctl in this kernel: a module may be missing",
        ErrorKind::PermissionDenied => "it can't be written",
        ErrorKind::InvalidInput => "the kernel rejected this value",
        _ => return io::Error::new(error.kind(), error.to_string()),
    };
    io::Error::new(error.kind(), why)
}

/// Set a sysctl in a namespace, or in the initial one if it is not per namespace.
///
/// # Errors
/// As [`set`].
pub fn set_anywhere(namespace: &Namespace, key: &str, value: &str) -> io::Result<()> {
    match namespace.inside(|| set(key, value)) {
        Err(error) if error.kind() == ErrorKind::NotFound => set(key, value),
        other => other,
    }
}

/// Whether a sysctl exists, and a new network namespace lacks it.
///
/// # Errors
/// No namespace can be made.
pub fn is_of_machine(key: &str) -> io::Result<bool> {
    let is_there = path(key).exists();
    Ok(is_there && !Namespace::new()?.inside(|| Ok(path(key).exists()))?)
}

impl Namespace {
    /// Read a sysctl of this namespace.
    ///
    /// # Errors
    /// It does not exist.
    pub fn sysctl(&self, key: &str) -> io::Result<String> {
        self.inside(|| get(key))
    }

    /// Set a sysctl, and read it back.
    ///
    /// # Errors
    /// The kernel refuses it: the reason, in terms of sysctls.
    pub fn set_sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        self.inside(|| set(key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name can't lead out of /proc/sys.
    #[test]
    fn names_of_settings() {
        for key in ["", "net..x", "net/../x", "net.//.x", "net.core.x y", "a\nb"] {
            let error = set(key, "1").unwrap_err();
            assert!(error.to_string().contains("invalid sysctl name"), "{key}: {error}");
        }
        let error = set("net.core.no_such_setting", "1").unwrap_err();
        assert!(error.to_string().contains("no such sysctl"), "{error}");
    }

    /// Check that the error for an unknown value names the values that the kernel knows.
    #[test]
    fn values_that_are_not_there() {
        let why = no_such_value("net.ipv4.tcp_congestion_control", "warp");
        assert!(why.contains("no `warp`, only ") && why.contains("reno"), "{why}");
        let why = no_such_value("net.core.default_qdisc", "warp");
        assert_eq!(why, "this kernel has no `warp`: a module may be missing");
    }
}
