//! Settings below /proc/sys: listed, and tried with other values.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use netplumb_model::message::Sysctl;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::sysctl;

/// Longer values are tables.
const MAX_VALUE_BYTES: usize = 4096;

/// Every setting of a namespace, or of the initial one, in which this thread must be, whose name
/// begins with one of `prefixes` and with none of `skip`: with another value that the kernel
/// accepts, which is tried here and restored.
///
/// # Errors
/// The namespace can't be entered.
pub fn list(
    namespace: &Namespace,
    prefixes: &[String],
    skip: &[String],
    keep_lo: bool,
) -> io::Result<Vec<Sysctl>> {
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
        // Its own devices don't carry packets.
        let device = key.split('.').rev().nth(1).unwrap_or_default();
        let per_device = key.contains(".conf.") || key.contains(".neigh.");
        if !per_device || ["all", "default"].contains(&device) {
            settings.push(setting(key, writable));
        }
    }
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(settings)
}

/// Names below a directory, and whether each can be written.
fn walk(folder: &Path, prefix: &str, keys: &mut BTreeMap<String, bool>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        // A device's name may contain a dot; then the name can't be converted to a path.
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

fn setting(key: String, writable: bool) -> Sysctl {
    let value = match fs::read_to_string(sysctl::path(&key)) {
        Ok(value) if value.len() <= MAX_VALUE_BYTES => value.trim().to_string(),
        Ok(_) => "(long)".into(),
        Err(_) => String::new(),
    };
    let other = if writable {
        others(&value).and_then(|others| try_them(&key, &value, &others))
    } else {
        Err("it can't be written".into())
    };
    Sysctl { key, value, other }
}

/// Other values to try, the best first; or why none are known.
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
        let tried = sysctl::set(key, &other);
        if let Err(error) = sysctl::set(key, value) {
            return Err(format!("it can't be restored once changed: {error}"));
        }
        match tried {
            Ok(()) => return Ok(other),
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("no other value is accepted: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that switches are toggled and numbers doubled, then halved, and that words and lists
    /// are skipped, with the reason.
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
}
