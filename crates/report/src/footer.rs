//! Footers: the meaning of the figures above, and how far to trust them, as data for any output.

use serde::Serialize;

use crate::text::continued;
use crate::text::prose;

/// Text in Markdown is cut to this.
const TEXT_LETTERS: usize = 2_000;
/// Topics stand in a column as wide.
const TOPIC_COLUMNS: usize = 10;

/// A note of a footer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Note {
    /// The subject, in a word.
    pub topic: &'static str,
    /// The note itself, without the topic.
    pub text: String,
    /// Whether it reports that something is missing or wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warning: bool,
}

impl Note {
    pub(crate) fn new(topic: &'static str, text: impl Into<String>) -> Note {
        Note { topic, text: text.into(), warning: false }
    }

    /// A note that something is missing or wrong.
    pub(crate) fn warning(topic: &'static str, text: impl Into<String>) -> Note {
        Note { warning: true, ..Note::new(topic, text) }
    }

    /// The note on one line, for terminals.
    pub(crate) fn line(&self) -> String {
        let topic = self.topic;
        match topic.len() < TOPIC_COLUMNS {
            true => format!("{topic:<TOPIC_COLUMNS$}{}", self.text),
            false => format!("{topic} {}", self.text),
        }
    }
}

/// Notes for a terminal.
pub fn terminal(notes: &[Note], columns: usize) -> String {
    let mut out = String::new();
    for note in notes {
        out.push_str(&continued(&note.line(), TOPIC_COLUMNS, columns));
        out.push('\n');
    }
    out
}

/// Notes as a list in Markdown.
pub(crate) fn markdown(notes: &[Note]) -> String {
    let item = |n: &Note| {
        let text = prose(&n.text, TEXT_LETTERS);
        match n.topic {
            "" => format!("- {text}\n"),
            topic => format!("- **{topic}** {text}\n"),
        }
    };
    notes.iter().map(item).collect()
}
