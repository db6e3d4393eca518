//! Runs installed programs in a namespace.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netplumb_sys::netns::Namespace;

use crate::error::{Doing, PathError};

/// Maximum length of a program's messages.
const TOLD_CHARACTERS: usize = 600;

/// An installed program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) path: PathBuf,
    name: String,
}

impl Tool {
    /// Find a program by name; `package` is its Debian package.
    pub(crate) fn find(name: &str, package: &str) -> Result<Tool, PathError> {
        Tool::find_in(env::var_os("PATH").as_deref(), name, package)
    }

    /// The same in these directories, and in root's program directories, which `$PATH` may lack.
    pub(crate) fn find_in(
        folders: Option<&OsStr>,
        name: &str,
        package: &str,
    ) -> Result<Tool, PathError> {
        let folders = folders.unwrap_or_default();
        let mut found = env::split_paths(folders)
            .filter(|folder| !folder.as_os_str().is_empty())
            .map(|folder| folder.join(name))
            .chain(
                (!folders.is_empty())
                    .then(|| ["/usr/sbin", "/sbin"].map(|f| Path::new(f).join(name)))
                    .into_iter()
                    .flatten(),
            )
            .filter(|path| runs(path));
        match found.next() {
            Some(path) => Ok(Tool { path, name: name.into() }),
            None => Err(PathError::cannot(
                format!("`{name}` is not installed"),
                format!("apt-get install {package}"),
            )),
        }
    }

    /// Run it in a namespace, with `input`; returns its output.
    pub(crate) fn run(
        &self,
        namespace: &Namespace,
        arguments: &[&str],
        input: &str,
    ) -> io::Result<String> {
        let mut command = Command::new(&self.path);
        command
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        dies_with_us(&mut command);
        // A child is in the namespace of the thread that starts it.
        let mut child = namespace.inside(|| command.spawn())?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said: String = String::from_utf8_lossy(&output.stderr)
            .chars()
            .filter(|c| !c.is_control() || *c == '\n')
            .take(TOLD_CHARACTERS)
            .collect();
        Err(io::Error::other(format!("{} says: {}", self.name, said.trim())))
    }

    /// Its version: the first line that it prints.
    pub(crate) fn version(&self, namespace: &Namespace) -> Result<String, PathError> {
        let said = self.run(namespace, &["--version"], "");
        let said = said.doing(|| format!("query the version of {}", self.name))?;
        Ok(said.lines().next().unwrap_or_default().trim().to_string())
    }
}

/// Kill the child if this process is killed: changes are restored then.
fn dies_with_us(command: &mut Command) {
    let ask = || {
        // SAFETY: takes numbers, and touches no memory.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec nothing is done but a system call.
    unsafe { command.pre_exec(ask) };
}

fn runs(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the error of a missing program names its package.
    #[test]
    fn what_to_install() {
        for folders in [None, Some(OsStr::new("")), Some(OsStr::new("/nowhere"))] {
            let error = Tool::find_in(folders, "no-such-nft", "nftables").unwrap_err();
            let text = error.to_string();
            assert!(text.contains("`no-such-nft` is not installed"), "{text}");
            assert!(text.contains("apt-get install nftables"), "{text}");
        }
        // An empty $PATH has no directories.
        assert!(Tool::find_in(Some(OsStr::new("")), "sh", "dash").is_err());
        assert!(Tool::find_in(Some(OsStr::new("/bin")), "sh", "dash").is_ok());
    }
}
