//! Whether two experiments measure the same, so that a run of one can be continued as the other.

use super::{Experiment, ExperimentError};
use crate::recording::{Recording, env};

/// Where two experiments differ in what they measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key, with its tables, like `workload.packets`.
    pub key: String,
    /// Its value in the first, as in a file; none if it isn't set.
    pub was: Option<String>,
    /// Its value in the second.
    pub is: Option<String>,
}

impl Experiment {
    /// Its measurements: without its name, texts and claims, which only affect how it is shown; and without its
    /// duration and instruments, which a recording has itself.
    pub fn measured(&self) -> Experiment {
        let mut measured = Experiment {
            name: String::new(),
            title: String::new(),
            question: String::new(),
            conclusion: None,
            layer: None,
            instruments: None,
            published: Vec::new(),
            shares: Vec::new(),
            figures: Vec::new(),
            claims: Vec::new(),
            ..self.clone()
        };
        measured.workload.duration = None;
        measured
    }

    /// A recording's experiment, without its presentation; none in old recordings that were made by a command line.
    ///
    /// # Errors
    /// It can't be parsed.
    pub fn asked_for(recording: &Recording) -> Result<Option<Experiment>, ExperimentError> {
        let Some(text) = recording.environment.get(env::ASKED) else {
            return Experiment::of_recording(recording);
        };
        let parsed = toml::from_str(text);
        parsed.map(Some).map_err(|e| ExperimentError::from_toml(text, &e))
    }

    /// The first key in which another experiment measures something else.
    pub fn first_difference(&self, other: &Experiment) -> Option<Difference> {
        let (was, is) = (self.measured(), other.measured());
        if was == is {
            return None;
        }
        let table = |of: &Experiment| toml::Value::try_from(of).ok();
        difference("", table(&was).as_ref(), table(&is).as_ref())
    }
}

/// The first difference between two values of a key.
fn difference(
    key: &str,
    was: Option<&toml::Value>,
    is: Option<&toml::Value>,
) -> Option<Difference> {
    if was == is {
        return None;
    }
    let empty = toml::Table::new();
    let table = |value: Option<&toml::Value>| match value {
        Some(toml::Value::Table(table)) => Some(table.clone()),
        None => Some(empty.clone()),
        Some(_) => None,
    };
    if let (Some(was), Some(is)) = (table(was), table(is))
        && !(was.is_empty() && is.is_empty())
    {
        let keys = was.keys().chain(is.keys().filter(|key| !was.contains_key(*key)));
        return keys.into_iter().find_map(|inner| {
            let key = match key {
                "" => inner.clone(),
                outer => format!("{outer}.{inner}"),
            };
            difference(&key, was.get(inner), is.get(inner))
        });
    }
    let text = |value: &toml::Value| value.to_string();
    Some(Difference { key: key.to_string(), was: was.map(text), is: is.map(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Experiment {
        Experiment::parse(&format!("name = \"x\"\n{text}")).unwrap()
    }

    /// Check that texts, the duration of a run and its instruments don't count as a difference.
    #[test]
    fn same() {
        let one = parsed("[workload]\nduration = \"2m\"");
        let mut other =
            parsed("title = \"y\"\nlayer = \"network\"\n[workload]\nduration = \"12h\"");
        other.instruments = Some(vec!["exact".into()]);
        assert_eq!(one.first_difference(&other), None);
    }

    /// Check that the key that differs is found, with both values, wherever it is.
    #[test]
    fn different() {
        for (was, is, key, values) in [
            ("[blocks]\nseeds = 2", "", "blocks.seeds", (Some("2"), None)),
            (
                "[knobs]\nlink = \"lo\"",
                "[knobs]\nlink = \"veth\"",
                "knobs.link",
                (Some("\"lo\""), Some("\"veth\"")),
            ),
            (
                "instruments = [\"samples\"]",
                "instruments = [\"samples\"]\n[samples]\nperiod = 500",
                "samples.period",
                (None, Some("500")),
            ),
            (
                "[workload]\npackets = 100",
                "[workload]\npackets = 200",
                "workload.packets",
                (Some("100"), Some("200")),
            ),
            (
                "[vary]\nsize_bytes = [1, 2]",
                "[vary]\nsize_bytes = [1, 3]",
                "vary.size_bytes",
                (Some("[1, 2]"), Some("[1, 3]")),
            ),
        ] {
            let difference = parsed(was).first_difference(&parsed(is)).unwrap();
            assert_eq!(difference.key, key);
            let found = (difference.was.as_deref(), difference.is.as_deref());
            assert_eq!(found, values);
        }
    }
}
