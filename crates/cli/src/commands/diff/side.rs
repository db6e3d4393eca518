//! The two sides of a comparison, as given on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use netplumb_model::recording::Recording;
use netplumb_report::printable;

use crate::exit::Usage;

/// One side: a recording and, if one was given, an arm.
pub(super) struct SideRequest {
    pub(super) path: PathBuf,
    arm: Option<String>,
}

impl SideRequest {
    /// `FILE` or `FILE:ARM`. File names may contain colons: if the whole is an existing file, it is
    /// that; else the longest existing file, and the rest is the arm.
    pub(super) fn parse(text: &OsStr) -> SideRequest {
        let whole = Path::new(text);
        if whole.exists() {
            return SideRequest { path: whole.into(), arm: None };
        }
        let bytes = text.as_bytes();
        let mut colons: Vec<usize> = (0..bytes.len()).filter(|n| bytes[*n] == b':').collect();
        let split = |at: usize| SideRequest {
            path: PathBuf::from(OsStr::from_bytes(&bytes[..at])),
            arm: Some(String::from_utf8_lossy(&bytes[at + 1..]).into_owned()),
        };
        colons.reverse();
        colons
            .iter()
            .find(|at| Path::new(OsStr::from_bytes(&bytes[..**at])).exists())
            // If none exists, the error names the likeliest one.
            .or(colons.last().filter(|at| **at > 0))
            .map_or_else(|| SideRequest { path: whole.into(), arm: None }, |at| split(*at))
    }

    pub(super) fn read(&self) -> anyhow::Result<Recording> {
        let recording = netplumb_store::read(&self.path)?;
        if recording.blocks.is_empty() {
            anyhow::bail!("{}: the recording is empty: nothing was measured", self.path.display());
        }
        Ok(recording)
    }

    /// Its name in the output.
    pub(super) fn name(&self) -> String {
        let file = self.path.display();
        match &self.arm {
            Some(arm) => format!("{file}, arm {arm}"),
            None => file.to_string(),
        }
    }

    /// The requested arms.
    pub(super) fn arms(&self, recording: &Recording) -> anyhow::Result<Vec<usize>> {
        let measured = |arm: &usize| recording.blocks.iter().any(|b| b.arm as usize == *arm);
        let all: Vec<usize> = (0..recording.arms.len()).filter(measured).collect();
        let Some(asked) = &self.arm else {
            return Ok(all);
        };
        let name = |n: &usize| recording.arms[*n].name.as_str();
        let exact: Vec<usize> = all.iter().copied().filter(|n| name(n) == asked).collect();
        if !exact.is_empty() {
            return Ok(exact);
        }
        // Words that several arms have in common select them all.
        let words: Vec<&str> = asked.split_whitespace().collect();
        let among = |arm: &str| words.iter().all(|w| arm.split_whitespace().any(|a| a == *w));
        let several: Vec<usize> = all.iter().copied().filter(|n| among(name(n))).collect();
        if !words.is_empty() && !several.is_empty() {
            return Ok(several);
        }
        let mut near: Vec<(usize, &str)> =
            all.iter().map(|n| (strsim::damerau_levenshtein(asked, name(n)), name(n))).collect();
        near.sort_unstable();
        let near: Vec<String> = near.iter().take(8).map(|(_, n)| printable(n, 80)).collect();
        let more = match all.len().saturating_sub(near.len()) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Err(Usage(format!(
            "{}: no such arm `{}`; it has {}{more}",
            self.path.display(),
            printable(asked, 80),
            near.join(", ")
        ))
        .into())
    }
}

/// The arms of a recording, by their names.
pub(super) fn names(recording: &Recording) -> String {
    const MANY: usize = 12;
    let mut names: Vec<String> =
        recording.arms.iter().take(MANY).map(|a| printable(&a.name, 80)).collect();
    if recording.arms.len() > MANY {
        names.push(format!("and {} more", recording.arms.len() - MANY));
    }
    names.join(", ")
}
