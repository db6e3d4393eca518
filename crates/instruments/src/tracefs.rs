//! Instances of the kernel's tracing: each with its own buffer and settings
//! (Documentation/trace/ftrace.rst, "Instances").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What all names begin with.
const PREFIX: &str = "plumb-";

/// An instance, which is removed when it is dropped. Its name has the process that made it, so that
/// one that was left by a killed process is known.
#[derive(Debug)]
pub(crate) struct Instance(PathBuf);

impl Instance {
    /// Make one for a purpose; a process has one of each.
    pub(crate) fn make(root: &Path, purpose: &str) -> io::Result<Self> {
        let name = format!("{}{}", Self::prefix(purpose), std::process::id());
        let folder = root.join("instances").join(name);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// What names begin with of a purpose.
    pub(crate) fn prefix(purpose: &str) -> String {
        format!("{PREFIX}{purpose}-")
    }

    /// Instances that killed processes left, with what each was for.
    pub(crate) fn left(root: &Path) -> Vec<(String, Self)> {
        let entries = fs::read_dir(root.join("instances"));
        let left = entries.into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name();
            let (purpose, pid) = name.to_str()?.strip_prefix(PREFIX)?.rsplit_once('-')?;
            let pid: u32 = pid.parse().ok()?;
            let is_left = !Path::new(&format!("/proc/{pid}")).exists();
            is_left.then(|| (purpose.to_owned(), Self(entry.path())))
        });
        left.collect()
    }

    /// In tracefs, below `instances`.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Write one of its files.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.0.join(file), text)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("current_tracer", "nop");
        let _ = fs::remove_dir(&self.0);
    }
}
