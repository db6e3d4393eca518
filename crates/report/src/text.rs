//! Text for terminals and Markdown: continued lines, escaped names.

use crate::number::printable;

/// A footer line, continued under its text.
pub(crate) fn wrapped(line: &str, columns: usize) -> String {
    continued(line, 10, columns)
}

/// A line, continued below its `indent`-th character.
pub(crate) fn continued(line: &str, indent: usize, columns: usize) -> String {
    let key_bytes = line.char_indices().nth(indent).map_or(line.len(), |(at, _)| at);
    let (key, text) = line.split_at(key_bytes);
    let width = columns.max(40) - indent;
    let mut out = String::from(key);
    let mut used = 0;
    // The first one may be empty, where a blank is the first letter after the indent.
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = 0;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

/// Text escaped for Markdown, on one line.
pub(crate) fn prose(text: &str, limit: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut out = String::new();
    for c in printable(&words.join(" "), limit).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '#' | '$' => {
                out.push('\\');
                out.push(c);
            }
            // GitHub would notify the user of that name.
            '@' => out.push_str("@\u{200b}"),
            c => out.push(c),
        }
    }
    // These begin a list, a heading's underline or a table's.
    if out.starts_with(['-', '+', '=', ':']) {
        out.insert(0, '\\');
    }
    out
}

/// A name, as code. A pipe would end a cell, in code too.
pub(crate) fn code(name: &str, limit: usize) -> String {
    let name = printable(name, limit).replace('|', "\\|");
    let fence = "`".repeat(longest_run(&name) + 1);
    if name.trim().is_empty() {
        return format!("{fence}?{fence}");
    }
    // One blank on each side is taken off again, and is needed beside a backtick.
    if name.starts_with(['`', ' ']) || name.ends_with(['`', ' ']) {
        format!("{fence} {name} {fence}")
    } else {
        format!("{fence}{name}{fence}")
    }
}

/// The most backticks in a row.
fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a line keeps its blanks wherever it is continued.
    #[test]
    fn continued_lines() {
        assert_eq!(continued("  tc against xdp", 4, 80), "  tc against xdp");
        assert_eq!(continued("  xdp against tc", 4, 80), "  xdp against tc");
        let long = continued(&format!("key {}", "word ".repeat(10)), 4, 40);
        assert!(long.lines().all(|l| l.chars().count() <= 40), "{long}");
        assert!(long.lines().skip(1).all(|l| l.starts_with("    word")));
    }
}
