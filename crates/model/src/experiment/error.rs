//! Errors of an experiment file, with their lines.

use std::ops::Range;

use super::knobs::EMPTY_LIST;

/// A mistake in an experiment file, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}{}{}", .source_line.as_ref().map(|l| format!("\n  {line} | {l}")).unwrap_or_default(), .hint.as_ref().map(|h| format!("\n  {h}")).unwrap_or_default())]
pub struct ExperimentError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// The line itself.
    pub source_line: Option<String>,
    /// The likely correction, if it can be guessed.
    pub hint: Option<String>,
}

/// A key of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The table that it is in; none to look in the whole file.
    pub table: Option<&'static str>,
    /// As written in the file.
    pub name: &'static str,
}

impl Key {
    /// One of a table.
    pub fn new(table: &'static str, name: &'static str) -> Key {
        Key { table: Some(table), name }
    }
}

impl From<&'static str> for Key {
    fn from(name: &'static str) -> Key {
        Key { table: None, name }
    }
}

/// The key that is wrong, and a message.
pub(super) type Wrong = (&'static str, String);

/// A mistake in an experiment: the key to change, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The table that the key is in, and its index if there are several of that name; none to
    /// look in the whole file.
    pub table: Option<(&'static str, usize)>,
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// The likely correction.
    pub hint: Option<String>,
}

impl From<(&'static str, String)> for Mistake {
    fn from((key, what): (&'static str, String)) -> Mistake {
        Mistake { table: None, key, what, hint: None }
    }
}

impl Mistake {
    /// The same in a table of the file.
    pub(super) fn within(table: &'static str, n: usize) -> impl Fn(Mistake) -> Mistake {
        move |mistake| Mistake { table: Some((table, n)), ..mistake }
    }

    /// About a name that matches none of these.
    pub(super) fn unknown(key: &'static str, what: &str, name: &str, known: &[&str]) -> Mistake {
        Mistake {
            hint: near(name, known.iter().copied()),
            ..(key, unknown(what, name, known)).into()
        }
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match known.is_empty() {
        true => format!("unknown {what} `{name}`"),
        false => format!("unknown {what} `{name}`; expected one of {}", known.join(", ")),
    }
}

impl ExperimentError {
    pub(crate) fn from_toml(text: &str, error: &toml::de::Error) -> Self {
        let said = error.message().lines().collect::<Vec<_>>().join(" ");
        let error = Self::at(text, error.span(), String::new(), None);
        let line = error.source_line.as_deref().unwrap_or_default();
        let (what, hint) = worded(&said, line);
        ExperimentError { what: shown(&what), hint, ..error }
    }

    pub(super) fn at_line(text: &str, mistake: Mistake) -> Self {
        let span = line_of(text, &mistake);
        Self::at(text, span, mistake.what, mistake.hint)
    }

    /// The mistake in a key of a file, in the line that sets it; none if no line does.
    pub fn about_key(text: &str, key: Key, what: String) -> Option<Self> {
        let mistake =
            Mistake { table: key.table.map(|table| (table, 0)), ..(key.name, what).into() };
        let span = line_of(text, &mistake)?;
        Some(Self::at(text, Some(span), mistake.what, None))
    }

    /// About an unknown word, in the first line that has it.
    pub(super) fn about_word(text: &str, what: &str, word: &str, known: &[&str]) -> Self {
        let quoted = format!("\"{word}\"");
        let hint = near(word, known.iter().copied());
        let at = text.find(&quoted).map(|at| at..at);
        Self::at(text, at, unknown(what, word, known), hint)
    }

    fn at(text: &str, span: Option<Range<usize>>, what: String, hint: Option<String>) -> Self {
        let start = span.map_or(0, |s| s.start.min(text.len()));
        let line = text.as_bytes()[..start].iter().filter(|&&b| b == b'\n').count() + 1;
        let source_line = text
            .lines()
            .nth(line - 1)
            .map(|l| l.chars().filter(|c| !c.is_control()).take(160).collect());
        ExperimentError { line, what: shown(&what), source_line, hint }
    }
}

fn shown(what: &str) -> String {
    what.chars().filter(|c| !c.is_control()).take(900).collect()
}

/// The first line that sets the key in its table, or else the table's header; without a table, the
/// first line of the file that sets the key or its equivalent.
fn line_of(text: &str, mistake: &Mistake) -> Option<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        lines.push((start, line));
        start += line.len();
    }
    let key = mistake.key;
    if let Some((table, n)) = mistake.table {
        let headers = [format!("[[{table}]]"), format!("[{table}]")];
        let is_header = |line: &str| headers.iter().any(|h| line.trim_start().starts_with(h));
        let of_table = [format!("[[{table}."), format!("[{table}.")];
        let is_other = |line: &str| {
            let line = line.trim_start();
            line.starts_with('[') && !of_table.iter().any(|begin| line.starts_with(begin))
        };
        let mut from_header = lines
            .iter()
            .skip_while(|(_, line)| !is_header(line))
            .filter(|(_, line)| is_header(line))
            .skip(n);
        if let Some((header, _)) = from_header.next() {
            let inside = lines.iter().skip_while(|(at, _)| at <= header);
            let mut inside = inside.take_while(|(_, line)| !is_other(line));
            let set = inside.find(|(_, line)| sets(line, key));
            let at = set.map_or(*header, |(at, _)| *at);
            return Some(at..at);
        }
    }
    // The default of an unset key is wrong: point to its table, or the lab.
    let instead: &[&str] = match key {
        "kind" => &["kind", "workload", "lab"],
        "link" => &["link", "lab"],
        "lab" => &["lab", "nics"],
        "classes" | "path" => &[key, "claim"],
        "instruments" => &[key, "functions", "lab"],
        key => &[key],
    };
    // Where several lines set it, the one with the value that is quoted.
    let quoted = mistake.what.split('`').nth(1).filter(|value| !value.is_empty());
    let has_it = |line: &str| quoted.is_some_and(|value| line.contains(value));
    let first = |key: &&str| {
        let all = || lines.iter().filter(|(_, line)| sets(line, key));
        all().find(|(_, line)| has_it(line)).or_else(|| all().next())
    };
    let (header, line) = instead.iter().find_map(first)?;
    // Of a table with a section of its own, the line in that.
    let mut inside = lines.iter().filter(|(at, _)| line.starts_with('[') && at > header);
    let inside = inside.by_ref().take_while(|(_, line)| !line.starts_with('['));
    let at = inside.into_iter().find(|(_, line)| has_it(line)).map_or(*header, |(at, _)| *at);
    Some(at..at)
}

/// Whether a line sets a key: by itself, below a dot, or in a table within the line; or
/// begins a section of that name.
fn sets(line: &str, key: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with(&format!("[{key}")) || line.starts_with(&format!("[[{key}")) {
        return true;
    }
    if line.starts_with('[') && line.trim_end().ends_with(&format!(".{key}]")) {
        return true;
    }
    let of_key = |c: char| c.is_alphanumeric() || "_-\"".contains(c);
    let found = line.match_indices(key).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + key.len()..]);
        !before.ends_with(of_key) && after.trim_start().starts_with(['=', '.'])
    });
    found && !line.starts_with('#')
}

/// A message of serde's in the words of this format, and a hint. `line` is where it points.
fn worded(said: &str, line: &str) -> (String, Option<String>) {
    if said == EMPTY_LIST {
        let hint = "give the knob at least one level, or remove it from [vary]";
        return (said.into(), Some(hint.into()));
    }
    if !said.starts_with("unknown") {
        let mut said = said.replace("missing field", "missing key");
        for (serde, ours) in [
            ("duplicate field", "duplicate key"),
            (": map,", ": table,"),
            (": sequence,", ": list,"),
            (", expected", "; expected"),
            ("expected a sequence", "expected a list"),
            ("expected a map", "expected a table"),
            ("expected u32", "expected a whole number, 0 or more"),
            ("expected u16", "expected a whole number, 0 to 65535"),
            ("expected usize", "expected a whole number, 0 or more"),
            ("expected i64", "expected a whole number"),
            ("expected f64", "expected a number"),
        ] {
            said = said.replace(serde, ours);
        }
        return (said, None);
    }
    let mut quoted = said.split('`').skip(1).step_by(2);
    let Some(got) = quoted.next() else {
        return (said.into(), None);
    };
    let is_key = said.starts_with("unknown field");
    let listed = said.split_once("; expected one of ");
    let known: Vec<&str> = match listed {
        Some((_, list)) => list.split(", ").collect(),
        None => quoted.collect(),
    };
    let key = line.split('=').next().unwrap_or_default().trim();
    let key = key.rsplit('.').next().unwrap_or_default();
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_');
    let what = match said.starts_with("unknown variant") {
        true if is_name => key,
        true => "value",
        false if is_key => "key",
        false => said["unknown ".len()..].split(" `").next().unwrap_or_default(),
    };
    let is_of_many = is_key || what == "knob";
    let hint = near(got, known.iter().copied());
    // There are many keys, and the hint already names one.
    let known = if is_of_many && hint.is_some() { &[] } else { &known[..] };
    (unknown(what, got, known), hint)
}

/// The word that was probably meant.
pub(super) fn near<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let distance = |known: &str| strsim::damerau_levenshtein(word, known);
    let (distance, best) = known.map(|known| (distance(known), known)).min()?;
    // One letter of three may be wrong, and no more than two.
    let likely = distance <= 2 && 3 * distance <= word.len().max(best.len());
    likely.then(|| format!("did you mean `{best}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that, if several lines set a key, the error is about the line with the value that it quotes.
    #[test]
    fn the_line_of_a_value() {
        let text = "knobs = { module = \"a\" }\nknobs = { module = \"a+b.patch\" }\n";
        for (what, line) in [
            ("invalid patch `b.patch`; expected a file", "line 2"),
            ("invalid module; expected a name", "line 1"),
        ] {
            let error = ExperimentError::about_key(text, "module".into(), what.into()).unwrap();
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
