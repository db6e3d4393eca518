//! Settings below /proc/sys: set and read back, listed, and tried with other values.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use netplumb_model::message::Setting;

use super::Namespace;
use super::netlink::Netlink;

/// Longer values are tables.
const MAX_VALUE_BYTES: usize = 4096;

/// As sysctl(8) has it: a slash in a key is a dot in a name, as that of a VLAN's device.
fn path(key: &str) -> PathBuf {
    let swapped = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let below: String = key.chars().map(swapped).collect();
    Path::new("/proc/sys").join(below)
}

/// Set in the namespace that this thread is in, and read back: a value that the
/// kernel took as another is an error.
pub(super) fn set_sysctl(key: &str, value: &str) -> io::Result<()> {
    let sane = !key.is_empty()
        && key.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('/')
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c))
        });
    if !sane {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("`{key}` is no name of a setting"),
        ));
    }
    fs::write(path(key), value).map_err(|e| told(&e))?;
    let back = fs::read_to_string(path(key)).map_err(|e| told(&e))?;
    if back.split_whitespace().eq(value.split_whitespace()) {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "it reads back as `{}`",
            back.trim()
        )))
    }
}

/// What a setting of the namespace that this thread is in is set to.
pub(super) fn get_sysctl(key: &str) -> io::Result<String> {
    let value = fs::read_to_string(path(key)).map_err(|e| told(&e))?;
    Ok(value.trim().to_string())
}

/// The system's reason, in words about settings.
fn told(error: &io::Error) -> io::Error {
    let why = match error.kind() {
        ErrorKind::NotFound => "this kernel has no such setting: a module may be missing",
        ErrorKind::PermissionDenied => "it can't be written",
        ErrorKind::InvalidInput => "the kernel does not take this value",
        _ => return io::Error::new(error.kind(), error.to_string()),
    };
    io::Error::new(error.kind(), why)
}

/// Set in a namespace; what only the first namespace of a kernel has is set there.
pub(super) fn set_anywhere(namespace: &Namespace, key: &str, value: &str) -> io::Result<()> {
    match namespace.inside(|| set_sysctl(key, value)) {
        Err(error) if error.kind() == ErrorKind::NotFound => set_sysctl(key, value),
        other => other,
    }
}

/// Every setting that a namespace has, or the kernel's first, which this thread is to
/// be in, whose name begins with one of `prefixes` and with none of `skip`: with
/// another value that the kernel takes, tried here and put back.
///
/// # Errors
/// The namespace can't be entered.
pub fn list(
    namespace: &Namespace,
    prefixes: &[String],
    skip: &[String],
    keep_lo: bool,
) -> io::Result<Vec<Setting>> {
    let begins = |key: &str, with: &[String]| with.iter().any(|p| key.starts_with(p.as_str()));
    let wanted = |key: &String| begins(key, prefixes) && !begins(key, skip);
    let (devices, mut keys) = namespace.inside(|| {
        let devices = Netlink::open()?.devices()?;
        let mut keys = BTreeMap::new();
        walk(Path::new("/proc/sys/net"), "net", &mut keys);
        Ok((devices, keys))
    })?;
    keys.retain(|key, _| wanted(key));
    let mut first = BTreeMap::new();
    walk(Path::new("/proc/sys/net"), "net", &mut first);
    first.retain(|key, _| wanted(key) && !keys.contains_key(key));
    let of_device = |key: &str| {
        key.split('.').any(|part| {
            let known = devices.iter().any(|d| d.name == part);
            known && !(keep_lo && part == "lo")
        })
    };
    let mut settings = Vec::new();
    for (key, writable) in keys {
        if !of_device(&key) {
            settings.push(namespace.inside(|| Ok(setting(key, writable)))?);
        }
    }
    for (key, writable) in first {
        // Its own devices are not those that packets run over.
        let device = key.split('.').rev().nth(1).unwrap_or_default();
        let per_device = key.contains(".conf.") || key.contains(".neigh.");
        if !per_device || ["all", "default"].contains(&device) {
            settings.push(setting(key, writable));
        }
    }
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(settings)
}

/// Names below a folder, and whether each can be written.
fn walk(folder: &Path, prefix: &str, keys: &mut BTreeMap<String, bool>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        // A device's name may hold a dot; then the path can't be made of the name.
        if name.contains('.') {
            continue;
        }
        let key = format!("{prefix}.{name}");
        if metadata.is_dir() {
            walk(&entry.path(), &key, keys);
        } else {
            keys.insert(key, metadata.permissions().mode() & 0o200 != 0);
        }
    }
}

fn setting(key: String, writable: bool) -> Setting {
    let value = match fs::read_to_string(path(&key)) {
        Ok(value) if value.len() <= MAX_VALUE_BYTES => value.trim().to_string(),
        Ok(_) => "(long)".into(),
        Err(_) => String::new(),
    };
    let other = if writable {
        others(&value).and_then(|others| try_them(&key, &value, &others))
    } else {
        Err("it can't be written".into())
    };
    Setting { key, value, other }
}

/// Other values worth trying, the best first; why there are none.
fn others(value: &str) -> Result<Vec<i64>, String> {
    let Ok(number) = value.parse::<i64>() else {
        return Err(match value.split_whitespace().count() {
            0 => "it is empty, or can't be read",
            1 => "its value is a word",
            _ => "its value is a list",
        }
        .into());
    };
    let mut others = match number {
        0 => vec![1, 2],
        1 => vec![0, 2],
        n => vec![n.saturating_mul(2), n / 2, n.saturating_add(1), n - 1, 1, 0],
    };
    others.retain(|other| *other != number);
    Ok(others)
}

fn try_them(key: &str, value: &str, others: &[i64]) -> Result<String, String> {
    let mut why = String::new();
    for other in others {
        let other = other.to_string();
        let tried = set_sysctl(key, &other);
        if let Err(error) = set_sysctl(key, value) {
            return Err(format!("once changed, it can't be put back: {error}"));
        }
        match tried {
            Ok(()) => return Ok(other),
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("no other value is taken: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a switch is turned and a number doubled, then halved, and that words
    /// and lists are left alone, with the reason.
    #[test]
    fn other_values() {
        assert_eq!(others("0").unwrap()[0], 1);
        assert_eq!(others("1").unwrap()[0], 0);
        assert_eq!(others("300").unwrap()[..2], [600, 150]);
        assert_eq!(others("-1").unwrap()[0], -2);
        assert!(!others("2").unwrap().contains(&2));
        assert!(others("cubic").unwrap_err().contains("word"));
        assert!(others("4096 131072 6291456").unwrap_err().contains("list"));
        assert!(others("").unwrap_err().contains("empty"));
    }

    /// Check that a name can't lead out of /proc/sys.
    #[test]
    fn names_of_settings() {
        for key in ["", "net..x", "net/../x", "net.//.x", "net.core.x y", "a\nb"] {
            let error = set_sysctl(key, "1").unwrap_err();
            assert!(error.to_string().contains("no name"), "{key}: {error}");
        }
        let error = set_sysctl("net.core.no_such_setting", "1").unwrap_err();
        assert!(error.to_string().contains("no such setting"), "{error}");
    }
}
