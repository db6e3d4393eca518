//! Names of the user's for kernels.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::KernelStoreError;
use crate::child;

const MAX_BYTES: usize = 80;

/// Check that a label is a name, and not one that kernels have anyway.
///
/// # Errors
/// It is not.
pub fn check(label: &str) -> Result<(), KernelStoreError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+~/".contains(&byte);
    let begins = label.starts_with(|first: char| first.is_ascii_alphanumeric());
    let is_hash = label.len() >= 4 && label.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_taken = ["debian", "running"].contains(&label) || is_hash;
    match begins && !is_taken && label.len() <= MAX_BYTES && label.bytes().all(good) {
        true => Ok(()),
        false => Err(KernelStoreError::BadLabel { label: label.to_owned() }),
    }
}

/// The label of a kernel that was built from a git repository, from `git describe`; none without a repository of its
/// own, or without git.
pub fn describe(tree: &Path, cancel: &AtomicBool) -> Option<String> {
    let source = tree.join("source");
    let source = match source.join("Makefile").is_file() {
        true => source,
        false => tree.to_owned(),
    };
    let git = |words: &[&str]| {
        let mut command = child::command("git");
        // It writes nothing, and starts nothing that the repository names.
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .args(["-c", "core.fsmonitor=false", "-C"])
            .arg(&source)
            .args(words);
        let finished = child::run(command, cancel).ok()??;
        let text = finished.output.lines().next_back()?.trim().to_owned();
        finished.status.success().then_some(text)
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let same = fs::canonicalize(top).ok()? == fs::canonicalize(&source).ok()?;
    let described = git(&["describe", "--tags", "--always", "--dirty"]).filter(|_| same)?;
    // A hash alone would be mistaken for the hash of a kernel's content.
    let label = match check(&described) {
        Ok(()) => described,
        Err(_) => format!("g{described}"),
    };
    check(&label).is_ok().then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which names can be labels.
    #[test]
    fn labels() {
        for good in ["before", "v6.1-3-gabc123", "x", "fix/udp", "6.1+mine"] {
            assert!(check(good).is_ok(), "{good}");
        }
        let long = "x".repeat(81);
        for bad in
            ["", "debian", "debian:x", "running", "-x", "a b", "abcd12", "a,b", "\u{1b}[2J", &long]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    /// Check that a kernel is named after its commit, if its folder is a repository of its own.
    #[test]
    fn described() {
        let folder = tempfile::tempdir().unwrap();
        let never = AtomicBool::new(false);
        let git = |words: &[&str]| {
            let mut command = child::command("git");
            command.arg("-C").arg(folder.path());
            command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
            command.args(words).status().is_ok_and(|status| status.success())
        };
        if !git(&["init", "-q"]) {
            return netplumb_testkit::skip("no git");
        }
        fs::create_dir(folder.path().join("build")).unwrap();
        fs::write(folder.path().join("build/x"), "").unwrap();
        assert!(git(&["add", "."]) && git(&["commit", "-qm", "one"]));
        let hash = describe(folder.path(), &never).unwrap();
        assert!(hash.starts_with('g') && hash.len() > 7, "{hash}");
        assert!(git(&["tag", "v6.1"]));
        assert_eq!(describe(folder.path(), &never).as_deref(), Some("v6.1"));
        fs::write(folder.path().join("build/x"), "changed").unwrap();
        assert_eq!(describe(folder.path(), &never).as_deref(), Some("v6.1-dirty"));
        assert_eq!(describe(&folder.path().join("build"), &never), None);
    }
}
