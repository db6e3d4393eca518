//! Restores settings left by a killed run.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use netplumb_sys::netns::Namespace;

use crate::applied::{Put, put_back};
use crate::error::KnobError;
use crate::file::{self, Contents, Done, FORMAT, Place};
use crate::journal::{is_live, journals, take_turn};

/// The directory of `ip netns`.
const NAMES: &str = "/run/netns";

/// Changes that were restored, and others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// A line for each restored change, the last change first.
    pub put_back: Vec<String>,
    /// A line for each change that was not restored, with the reason.
    pub left: Vec<String>,
}

impl Recovered {
    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        self.put_back.is_empty() && self.left.is_empty()
    }
}

/// Restore the changes of killed runs. Changes of running ones are left alone.
///
/// # Errors
/// There are journals that can't be read: that needs root.
pub fn recover() -> io::Result<Recovered> {
    recover_in(Path::new(file::FOLDER))
}

/// The same for journals in another directory.
///
/// # Errors
/// As [`recover`].
pub fn recover_in(folder: &Path) -> io::Result<Recovered> {
    let mut recovered = Recovered::default();
    if journals(folder)?.is_empty() {
        return Ok(recovered);
    }
    let _turn = take_turn(folder)?;
    for path in journals(folder)? {
        match is_live(&path) {
            Ok(true) => continue,
            // The run has ended since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => drop(other?),
        }
        if one(&path, &file::read(&path)?, &mut recovered)? {
            fs::remove_file(&path)?;
        }
    }
    Ok(recovered)
}

/// Restore the changes of a journal; returns whether all were restored.
fn one(path: &Path, contents: &Contents, recovered: &mut Recovered) -> io::Result<bool> {
    let file_name = path.display();
    let header = match &contents.header {
        Some(header) if header.format == FORMAT => header,
        None if contents.unknown.is_empty() => return Ok(true),
        _ => {
            recovered.left.push(format!(
                "{file_name} was written by another version of plumb: run that version, or restore the settings in it by hand and remove the file"
            ));
            return Ok(false);
        }
    };
    if header.boot != file::boot()? {
        return Ok(true);
    }
    let own = Namespace::current()?;
    let namespace = find(header.place)?;
    let mut lost = 0;
    let mut journal = OpenOptions::new().append(true).open(path)?;
    // The change of an incomplete line was not made.
    journal.set_len(contents.whole_bytes as u64)?;
    let unknown = &contents.unknown;
    let mut all = true;
    for entry in contents.entries.iter().rev() {
        let after = entry.after.as_deref();
        let within = match &namespace {
            Some(namespace) => namespace,
            None if entry.setting.is_of_machine() => &own,
            None => {
                lost += 1;
                continue;
            }
        };
        match put_back(within, &entry.setting, &entry.before, after) {
            Ok(Put::Back) => {
                let what = entry.setting.whose();
                let restored = match entry.before.as_str() {
                    none if entry.setting.is_absence(none) => format!("{what}: removed"),
                    before => format!("{what}: {before} again"),
                };
                recovered.put_back.push(restored);
            }
            Ok(Put::Unchanged) => {}
            Ok(Put::Gone) => recovered.left.push(format!("{}: it is gone", entry.setting.whose())),
            Err(error @ KnobError::Changed { .. }) => recovered.left.push(error.to_string()),
            Err(error) => {
                all = false;
                recovered.left.push(format!("{error}: will be retried at the next start"));
                continue;
            }
        }
        journal.write_all(&file::line(&Done { done: entry.n })?)?;
    }
    if lost > 0 {
        recovered.left.push(format!("{lost} changes in a network namespace that is gone"));
    }
    if !unknown.is_empty() {
        recovered.left.push(format!(
            "{file_name}: lines {unknown:?} were written by another version of plumb: restore their settings by hand, and remove the file"
        ));
    }
    Ok(all && unknown.is_empty())
}

/// Find a namespace: the current one, a named one, or a process's.
fn find(place: Place) -> io::Result<Option<Namespace>> {
    let is =
        |namespace: &Namespace| Place::in_namespace(namespace).is_ok_and(|found| found == place);
    let own = Namespace::current()?;
    if is(&own) {
        return Ok(Some(own));
    }
    let mut seen = BTreeSet::new();
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().bytes().all(|b| b.is_ascii_digit())
    });
    let paths =
        names.map(|entry| entry.path()).chain(processes.map(|entry| entry.path().join("ns/net")));
    for path in paths {
        // It may have been removed meanwhile.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        if let Ok(namespace) = Namespace::find(&path.to_string_lossy())
            && is(&namespace)
        {
            return Ok(Some(namespace));
        }
    }
    Ok(None)
}
