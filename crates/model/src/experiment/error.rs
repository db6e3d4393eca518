//! Errors of an experiment file, told by line.

use std::ops::Range;

use super::old;

/// What is wrong with an experiment file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}{}{}", .source_line.as_ref().map(|l| format!("\n  {line} | {l}")).unwrap_or_default(), .hint.as_ref().map(|h| format!("\n  {h}")).unwrap_or_default())]
pub struct ExperimentError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// The line itself.
    pub source_line: Option<String>,
    /// What to write in its place, where that can be guessed.
    pub hint: Option<String>,
}

impl ExperimentError {
    pub(crate) fn from_toml(text: &str, error: &toml::de::Error) -> Self {
        let what = error.message().lines().collect::<Vec<_>>().join(" ");
        let hint = nearest(&what);
        Self::at(text, error.span(), what, hint)
    }

    /// About the first line that sets `key`, or is of a section that begins so.
    pub(crate) fn about(text: &str, key: &str, what: String) -> Self {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            if sets(line, key) {
                return Self::at(text, Some(start..start + line.len()), what, None);
            }
            start += line.len();
        }
        Self::at(text, None, what, None)
    }

    /// About a word that names nothing that there is, in the first line that has it.
    pub(super) fn about_word(text: &str, what: &str, word: &str, known: &[&str]) -> Self {
        let says = format!("`{word}` is no {what}: they are {}", known.join(", "));
        let quoted = format!("\"{word}\"");
        let nearest = known
            .iter()
            .min_by_key(|known| strsim::damerau_levenshtein(word, known));
        let hint = nearest.map(|known| format!("did you mean `{known}`?"));
        Self::at(text, text.find(&quoted).map(|at| at..at), says, hint)
    }

    fn at(text: &str, span: Option<Range<usize>>, what: String, hint: Option<String>) -> Self {
        let start = span.map_or(0, |s| s.start.min(text.len()));
        let line = text.as_bytes()[..start]
            .iter()
            .filter(|&&b| b == b'\n')
            .count()
            + 1;
        let source_line = text
            .lines()
            .nth(line - 1)
            .map(|l| l.chars().filter(|c| !c.is_control()).take(160).collect());
        let what = what.chars().filter(|c| !c.is_control()).take(400).collect();
        ExperimentError {
            line,
            what,
            source_line,
            hint,
        }
    }
}

/// Whether a line sets a key: by itself, below a dot, or in a table within the line; or
/// begins a section that is called so. With its `=` a key is meant alone.
fn sets(line: &str, key: &str) -> bool {
    let line = line.trim_start();
    if key.ends_with('=') {
        return line.starts_with(key);
    }
    if line.starts_with(&format!("[{key}")) || line.starts_with(&format!("[[{key}")) {
        return true;
    }
    let of_key = |c: char| c.is_alphanumeric() || "_-\"".contains(c);
    let found = line.match_indices(key).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + key.len()..]);
        !before.ends_with(of_key) && after.trim_start().starts_with(['=', '.'])
    });
    found && !line.starts_with('#')
}

/// Serde says "unknown field `x`, expected one of `a`, `b`": find the nearest.
fn nearest(message: &str) -> Option<String> {
    if !message.starts_with("unknown") {
        return None;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let got = quoted.next()?;
    if let Some(new) = old::instead_of(got).filter(|_| message.starts_with("unknown field")) {
        return Some(format!("it is written {new}"));
    }
    let (best, distance) = quoted
        .map(|candidate| (candidate, strsim::damerau_levenshtein(got, candidate)))
        .min_by_key(|(_, distance)| *distance)?;
    (distance <= got.len().max(best.len()) / 2).then(|| format!("did you mean `{best}`?"))
}
