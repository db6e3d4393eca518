//! Where the files are that programs write about the code that they make at run time.
//!
//! Files of the same name may be of another machine or another process, and others may write where
//! they are: so they are read on the machine that was measured, if they are root's or the user's own, or
//! below the directory that was given.

use std::fs::File;
use std::path::{Path, PathBuf};

use netplumb_instruments::samples::jit::{self, Refused};

use crate::Options;
use crate::facts::Facts;

/// This machine's name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Where they are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Where the programs wrote them.
    Here,
    /// At the same paths below a directory.
    Below(PathBuf),
    /// Not on this machine.
    Elsewhere,
}

impl Place {
    /// The place of the files of the machine that was measured.
    pub(crate) fn from_facts(facts: &Facts, options: &Options) -> Place {
        let own = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
        match &options.symfs {
            Some(root) => Place::Below(root.clone()),
            None if facts.host() == Some(own.trim()) => Place::Here,
            None => Place::Elsewhere,
        }
    }

    /// A file, if it is there.
    ///
    /// # Errors
    /// It is not a file that is read.
    pub(crate) fn open(&self, path: &Path) -> Result<Option<File>, Refused> {
        match self {
            Place::Here => jit::open(path, false),
            Place::Below(root) => {
                jit::open(&root.join(path.strip_prefix("/").unwrap_or(path)), true)
            }
            Place::Elsewhere => Ok(None),
        }
    }
}
