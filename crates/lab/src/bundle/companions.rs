//! Files that known programs need in addition to libraries: the rules of rules/companions.toml.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

use super::{Bundle, BundleError};

const BUILT_IN: &str = include_str!("../../rules/companions.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    program: Vec<String>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    libraries: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // INVARIANT: the file is part of the binary, and a test parses it.
    #[allow(clippy::unwrap_used)]
    toml::from_str::<Rules>(BUILT_IN).unwrap().rule
});

/// Add the files that the program at `path` is known to need. Returns the names of kernel modules
/// among them.
///
/// # Errors
/// A file exists and can't be read.
pub fn add(bundle: &mut Bundle, path: &Path) -> Result<Vec<String>, BundleError> {
    let mut modules = Vec::new();
    for name in bundle.programs_of(path) {
        for rule in RULES.iter() {
            if !matchers(&rule.program).iter().any(|g| g.is_match(&name)) {
                continue;
            }
            let without = matchers(&rule.without);
            let wanted = |below: &Path| {
                let name = below.file_name().unwrap_or_default();
                !without.iter().any(|g| g.is_match(name))
            };
            for pattern in &rule.files {
                for path in found(bundle, Path::new(pattern)) {
                    bundle.add_folder_where(&path, &wanted)?;
                }
            }
            for library in &rule.libraries {
                bundle.add_library(library)?;
            }
            modules.extend(rule.modules.iter().cloned());
        }
    }
    Ok(modules)
}

fn matchers(patterns: &[String]) -> Vec<GlobMatcher> {
    patterns
        .iter()
        // A test parses every rule.
        .filter_map(|p| Some(Glob::new(p).ok()?.compile_matcher()))
        .collect()
}

/// The host's files that match a pattern, whose last component may contain `*`.
fn found(bundle: &Bundle, pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(last)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let last = last.to_string_lossy();
    if !last.contains('*') {
        let there = bundle.host_has(pattern);
        return there.then(|| pattern.to_path_buf()).into_iter().collect();
    }
    let Ok(glob) = Glob::new(&last) else {
        return Vec::new();
    };
    let glob = glob.compile_matcher();
    bundle
        .host_folder(folder)
        .into_iter()
        .filter(|name| glob.is_match(name))
        .map(|name| folder.join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every pattern of the rules is valid, and that paths are absolute.
    #[test]
    fn rules_can_be_read() {
        for rule in RULES.iter() {
            for pattern in rule.program.iter().chain(&rule.files).chain(&rule.without) {
                Glob::new(pattern).unwrap();
            }
            assert!(rule.files.iter().all(|f| f.starts_with('/')), "{rule:?}");
        }
    }
}
