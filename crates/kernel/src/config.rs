//! A kernel's `.config`: which options it was built with.

use std::collections::BTreeMap;

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// `=y`: built in.
    Yes,
    /// `=m`: a module.
    Module,
    /// `# ... is not set`, or `=n`.
    No,
    /// A number or a string, without its quotes.
    Value(String),
}

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A line is not in the format.
    #[error(
        "line {line} of the kernel configuration is not `CONFIG_NAME=value`: {text:?}; is it a kernel's .config?"
    )]
    Malformed {
        /// The line's number, from 1.
        line: usize,
        /// How the line begins.
        text: String,
    },
}

/// A kernel's options, by name with the leading `CONFIG_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    options: BTreeMap<String, ConfigValue>,
}

impl KernelConfig {
    /// Parses the text of a `.config`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut options = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let (name, value) = if let Some(comment) = line.strip_prefix('#') {
                let unset = comment.trim().strip_suffix(" is not set");
                let Some(name) = unset.filter(|name| is_name(name)) else {
                    continue;
                };
                (name, ConfigValue::No)
            } else if line.is_empty() {
                continue;
            } else {
                let (name, value) =
                    line.split_once('=').filter(|(name, _)| is_name(name)).ok_or_else(|| {
                        let text = line.chars().take(80).collect();
                        ConfigError::Malformed { line: index + 1, text }
                    })?;
                (name, parse_value(value))
            };
            options.insert(name.to_owned(), value);
        }
        Ok(Self { options })
    }

    /// The option's value, its name given with or without `CONFIG_`; `None` if the configuration does not know it.
    pub fn get(&self, name: &str) -> Option<&ConfigValue> {
        if name.starts_with("CONFIG_") {
            self.options.get(name)
        } else {
            self.options.get(&format!("CONFIG_{name}"))
        }
    }

    /// Whether it is built in.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.get(name) == Some(&ConfigValue::Yes)
    }

    /// Whether it is built in or a module.
    pub fn is_enabled(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ConfigValue::Yes | ConfigValue::Module))
    }

    /// All options, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ConfigValue)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value))
    }
}

fn is_name(name: &str) -> bool {
    name.strip_prefix("CONFIG_").is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn parse_value(value: &str) -> ConfigValue {
    match value {
        "y" => ConfigValue::Yes,
        "m" => ConfigValue::Module,
        "n" => ConfigValue::No,
        _ => match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(quoted) => ConfigValue::Value(quoted.replace("\\\"", "\"").replace("\\\\", "\\")),
            None => ConfigValue::Value(value.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every form of line is understood.
    #[test]
    fn parses() {
        let config = KernelConfig::parse(include_str!("../testdata/config-small")).unwrap();
        assert!(config.is_builtin("CONFIG_NET"));
        assert!(config.is_builtin("NET"));
        assert!(!config.is_builtin("E1000"));
        assert!(config.is_enabled("E1000"));
        assert_eq!(config.get("FPROBE"), Some(&ConfigValue::No));
        assert_eq!(config.get("HZ"), Some(&ConfigValue::Value("250".into())));
        assert_eq!(config.get("BUILD_SALT"), Some(&ConfigValue::Value("6.1.0-54".into())));
        assert_eq!(config.get("NO_SUCH_OPTION"), None);
        assert_eq!(config.iter().count(), 6);
    }

    /// Check that a file of another kind is refused with the line.
    #[test]
    fn malformed() {
        let error = KernelConfig::parse("CONFIG_A=y\n\nfoo=bar\n").unwrap_err();
        assert_eq!(error, ConfigError::Malformed { line: 3, text: "foo=bar".into() });
        let error = KernelConfig::parse("CONFIG_A").unwrap_err();
        assert!(matches!(error, ConfigError::Malformed { line: 1, .. }), "{error}");
    }
}
