//! Steps in a guest before a command is measured, outside of its window.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Wrong;
use super::knobs::{Bytes, is_module};

/// Limit, so that an experiment can be read before it is run.
const MAX_STEPS: usize = 64;

/// The steps, in the order in which they are made: modules, files, commands; caches before each run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Modules of the guest's kernel to load, with what they need.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Files to make, by their path in the guest, each with its size.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileSize>,
    /// Commands to run, each with its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Vec<String>>,
    /// Whether the caches of files are written back and dropped before each run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drop_caches: bool,
}

/// The size of a file: a number of bytes, or with a unit ("16M").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize(pub u32);

impl std::str::FromStr for FileSize {
    type Err = String;

    fn from_str(text: &str) -> Result<FileSize, String> {
        text.parse::<Bytes>().map(|bytes| FileSize(bytes.0))
    }
}

impl Serialize for FileSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for FileSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileSize, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, like 4096 or \"16M\"")]
        enum Written {
            Number(u32),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(FileSize(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl Setup {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Setup::default()
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        for (key, count) in [
            ("modules", self.modules.len()),
            ("files", self.files.len()),
            ("commands", self.commands.len()),
        ] {
            if count > MAX_STEPS {
                let why = format!("too many {key} ({count}); expected at most {MAX_STEPS}");
                return Err((key, why));
            }
        }
        if let Some(path) = self.files.keys().find(|path| !path.starts_with('/')) {
            let shown: String = path.chars().take(80).collect();
            let why =
                format!("invalid file `{shown}`; expected a path in the guest, like /disk/data");
            return Err(("files", why));
        }
        if let Some(name) = self.modules.iter().find(|name| !is_module(name)) {
            let shown: String = name.chars().take(80).collect();
            let why = format!("invalid module `{shown}`; expected a name, like loop");
            return Err(("modules", why));
        }
        let is_empty = |words: &Vec<String>| words.first().is_none_or(String::is_empty);
        match self.commands.iter().any(is_empty) {
            true => {
                let why =
                    "empty command; expected its words, like [\"chmod\", \"600\", \"/disk/data\"]";
                Err(("commands", why.into()))
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    const COMMAND: &str = "name = \"x\"\n[workload]\nkind = \"command\"\ncommand = [\"true\"]\n";

    /// Check that steps are read, and written so that they read back.
    #[test]
    fn steps() {
        let text = format!(
            "{COMMAND}[setup]\nmodules = [\"loop\"]\nfiles = {{ \"/disk/a\" = \"1M\", \"/b\" = 7 }}\n\
             commands = [[\"sync\"]]\ndrop_caches = true\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
        let sizes: Vec<u32> = experiment.setup.files.values().map(|s| s.0).collect();
        assert_eq!(sizes, [7, 1 << 20]);
        let written = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&written).unwrap().setup, experiment.setup);
    }

    /// Check that a wrong step is an error with its line, and that steps are refused where no command runs in a guest.
    #[test]
    fn wrong_steps() {
        for (setup, says) in [
            ("files = { \"data\" = \"1M\" }", "path in the guest"),
            ("files = { \"/data\" = \"1X\" }", "invalid size"),
            ("modules = [\"../x\"]", "invalid module"),
            ("commands = [[]]", "empty command"),
            ("drop_cache = true", "did you mean `drop_caches`"),
        ] {
            let error = Experiment::parse(&format!("{COMMAND}[setup]\n{setup}\n")).unwrap_err();
            assert!(error.to_string().contains(says), "{setup}: {error}");
            assert!(error.line >= 5, "{setup}: {error}");
        }
        let packets = "name = \"x\"\n[setup]\ndrop_caches = true\n";
        let error = Experiment::parse(packets).unwrap_err().to_string();
        assert!(error.contains("kind command"), "{error}");
        let here = format!("lab = \"netns\"\n{COMMAND}[setup]\ndrop_caches = true\n");
        let error = Experiment::parse(&here).unwrap_err().to_string();
        assert!(error.contains("lab vm"), "{error}");
    }
}
