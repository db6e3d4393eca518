//! Which layer a function belongs to, by rules that are data: rules/layers.toml.

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Deserialize;

const BUILT_IN: &str = include_str!("../rules/layers.toml");

/// The layers that there are, from the application down, then the shared ones.
pub const LAYERS: &[&str] = &[
    "syscall",
    "socket",
    "transport",
    "network",
    "netfilter",
    "link",
    "driver",
    "bus",
    "memory",
    "copy",
    "locking",
    "scheduling",
    "timer",
    "interrupt",
];

/// The rules, ready to be asked.
#[derive(Debug, Clone)]
pub struct LayerRules {
    rules: Vec<(String, GlobSet, GlobSet)>,
}

/// What is wrong with a file of rules.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// It is no such file.
    #[error("layer rules: {0}")]
    Syntax(String),
    /// A layer that there is not.
    #[error("layer rules: `{name}` is no layer: they are {}", LAYERS.join(", "))]
    NoSuchLayer {
        /// What was given.
        name: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    layer: String,
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
}

impl LayerRules {
    /// The rules that come with the program.
    pub fn built_in() -> LayerRules {
        // INVARIANT: the file is part of the binary, and a test parses it.
        #[allow(clippy::unwrap_used)]
        LayerRules::parse(BUILT_IN).unwrap()
    }

    /// Rules from a file's text.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn parse(text: &str) -> Result<LayerRules, LayerError> {
        let file: File = toml::from_str(text).map_err(|e| LayerError::Syntax(e.to_string()))?;
        let mut rules = Vec::new();
        for rule in file.rule {
            if !LAYERS.contains(&rule.layer.as_str()) {
                return Err(LayerError::NoSuchLayer { name: rule.layer });
            }
            rules.push((rule.layer, globs(&rule.functions)?, globs(&rule.modules)?));
        }
        Ok(LayerRules { rules })
    }

    /// These rules before the ones that there are.
    pub fn override_with(&mut self, first: LayerRules) {
        self.rules.splice(0..0, first.rules);
    }

    /// The layer of a function, if any rule fits. A rule fits if one of its
    /// functions or one of its modules does.
    pub fn layer(&self, function: &str, module: Option<&str>) -> Option<&str> {
        // A clone of a function is that function: `foo.constprop.0`, `foo.cold`.
        let base = function.split('.').next().unwrap_or(function);
        self.rules
            .iter()
            .find(|(_, functions, modules)| {
                functions.is_match(base)
                    || functions.is_match(function)
                    || module.is_some_and(|m| modules.is_match(m))
            })
            .map(|(layer, _, _)| layer.as_str())
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, LayerError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| LayerError::Syntax(e.to_string()))?);
    }
    set.build().map_err(|e| LayerError::Syntax(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the built-in rules parse, and that the first one that fits wins.
    #[test]
    fn built_in_rules() {
        let rules = LayerRules::built_in();
        assert_eq!(rules.layer("ip_output", None), Some("network"));
        assert_eq!(rules.layer("e1000_clean", Some("e1000")), Some("driver"));
        assert_eq!(rules.layer("ip_finish_output2.constprop.0", None), Some("network"));
        assert_eq!(rules.layer("nft_do_chain", Some("nf_tables")), Some("netfilter"));
        assert_eq!(rules.layer("no_such_function", None), None);
    }

    /// Check that a user's rules are asked first, and that others still hold.
    #[test]
    fn overrides_come_first() {
        let mut rules = LayerRules::built_in();
        let text = "[[rule]]\nlayer = \"link\"\nfunctions = [\"ip_output\"]\n";
        rules.override_with(LayerRules::parse(text).unwrap());
        assert_eq!(rules.layer("ip_output", None), Some("link"));
        assert_eq!(rules.layer("ip_rcv", None), Some("network"));
    }

    /// Check that a layer that there is not is refused, and the others are named.
    #[test]
    fn unknown_layer() {
        let error = LayerRules::parse("[[rule]]\nlayer = \"ip\"\n").unwrap_err();
        assert!(error.to_string().contains("`ip` is no layer: they are syscall"), "{error}");
    }
}
