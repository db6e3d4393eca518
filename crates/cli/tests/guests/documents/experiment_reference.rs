//! docs/reference/experiment.md names the keys that an experiment file may have, all of
//! them and no others; and the examples there and in the guide are experiments.

use std::collections::BTreeSet;

use netplumb_kernel::layers::LAYERS;
use netplumb_model::experiment::{Experiment, KNOBS, Knob};

use crate::documents::markdown::{self, Document};

/// The words in code of a text.
fn quoted(text: &str) -> Vec<String> {
    let inner = text.split('`').skip(1).step_by(2);
    inner.map(str::to_string).collect()
}

/// Rows of the tables below a heading, up to the next heading of any depth.
fn rows(document: &Document, heading: &str) -> Vec<Vec<String>> {
    let found = document.text.split_once(&format!("\n{heading}\n"));
    let (_, below) = found.unwrap_or_else(|| panic!("no `{heading}`"));
    let section = below.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::to_string).collect()).collect()
}

/// The keys in the first column of the tables below a heading.
fn keys(document: &Document, heading: &str) -> BTreeSet<String> {
    let rows = rows(document, heading);
    rows.iter().flat_map(|row| quoted(&row[0])).collect()
}

/// The keys that are allowed next to an unknown one, as its error lists them.
fn accepted(message: &str) -> BTreeSet<String> {
    let (_, words) =
        message.split_once("; expected one of ").unwrap_or_else(|| panic!("{message}"));
    let line = words.lines().next().unwrap();
    line.split(", ").map(str::to_string).collect()
}

fn accepted_by_experiment(text: &str) -> BTreeSet<String> {
    accepted(&Experiment::parse(text).unwrap_err().to_string())
}

fn set<const N: usize>(keys: [&str; N]) -> BTreeSet<String> {
    keys.map(str::to_string).into()
}

/// Check that the tables name every key of every section, and none that is refused.
#[test]
fn every_key_is_in_the_reference() {
    let reference = Document::read("docs/reference/experiment.md");
    let sections = set([
        "workload",
        "blocks",
        "build",
        "setup",
        "filter",
        "functions",
        "probes",
        "events",
        "samples",
        "spans",
        "trace",
        "nics",
        "topology",
        "knobs",
        "vary",
        "arm",
        "published",
        "shares",
        "figure",
        "claim",
        "scan",
    ]);
    let top: BTreeSet<String> = &keys(&reference, "## Top level") | &sections;
    assert_eq!(top, accepted_by_experiment("no-such-key = 1\nname = \"x\"\n"));
    for (heading, section) in [
        ("## `[workload]`", "[workload]"),
        ("## `[blocks]`", "[blocks]"),
        ("## `[build]`", "[build]"),
        ("## `[setup]`", "[setup]"),
        ("## `[filter]`", "[filter]"),
        ("## `[functions]`", "[functions]"),
        ("## `[probes]`", "[probes]"),
        ("## `[events]`", "[events]"),
        ("## `[samples]`", "[samples]"),
        ("## `[spans]`", "[spans]"),
        ("## `[trace]`", "[trace]"),
        ("## `[nics]`", "[nics]"),
        ("## `[[figure]]`", "[[figure]]"),
        ("## `[knobs]`", "[knobs]"),
        ("## `[knobs]`", "[vary]"),
        ("## `[[arm]]`", "[[arm]]"),
        ("## `[[published]]`", "[[published]]"),
        ("## `[[shares]]`", "[[shares]]"),
        ("## `[scan]`", "[scan]"),
    ] {
        let text = format!("name = \"x\"\n{section}\nno-such-key = 1\n");
        assert_eq!(keys(&reference, heading), accepted_by_experiment(&text), "{section}");
    }
}

/// Check that the table of knobs matches the declarations, row by row.
#[test]
fn the_table_of_knobs_is_declared() {
    let reference = Document::read("docs/reference/experiment.md");
    let rows = reference.text.lines().filter(|line| line.starts_with("| `"));
    let declared: Vec<String> = KNOBS.iter().map(Knob::row).collect();
    let keys: Vec<&str> = KNOBS.iter().map(|knob| knob.key).collect();
    let found: Vec<&str> = rows
        .filter(|row| row.split(" | ").count() == 6)
        .filter(|row| keys.contains(&quoted(row)[0].as_str()))
        .collect();
    assert!(found == declared, "the table is to be\n{}", declared.join("\n"));
}

/// Check that the kinds of claims, and the keys of each, are complete and exist.
#[test]
fn every_claim_is_in_the_reference() {
    let reference = Document::read("docs/reference/experiment.md");
    let mut claims = rows(&reference, "## `[[claim]]`");
    claims.retain(|row| row[0].trim() != "`kind`");
    assert!(claims.len() >= 12, "{claims:?}");
    for row in &claims {
        let kind = quoted(&row[0]).remove(0);
        let said: BTreeSet<String> = quoted(row.last().unwrap()).into_iter().collect();
        // All have these, as the text below the tables describes.
        let said = &said | &set(["says", "quantity", "name"]);
        let text = format!("name = \"x\"\n[[claim]]\nkind = \"{kind}\"\nno-such-key = 1\n");
        assert_eq!(said, accepted_by_experiment(&text), "{kind}");
    }
    let kinds: BTreeSet<String> = claims.iter().map(|r| quoted(&r[0]).remove(0)).collect();
    let text = "name = \"x\"\n[[claim]]\nkind = \"no-such-kind\"\n";
    let message = Experiment::parse(text).unwrap_err().to_string();
    assert_eq!(kinds, accepted(&message));
}

/// Check that every example in TOML is an experiment, or lines of one.
#[test]
fn examples_are_experiments() {
    let mut examples = 0;
    for document in markdown::all() {
        for block in document.blocks.iter().filter(|b| b.language == "toml") {
            examples += 1;
            let place = document.place(block.at.start);
            // Lines of one begin with a section, or with a knob.
            let text = match block.text.lines().next().unwrap() {
                first if first.starts_with("name = ") => block.text.clone(),
                first if first.starts_with('[') => format!("name = \"x\"\n{}", block.text),
                _ => {
                    for line in block.text.lines() {
                        let text = format!("name = \"x\"\n[knobs]\n{line}\n");
                        if let Err(error) = Experiment::parse(&text) {
                            panic!("{place}: {error}");
                        }
                    }
                    continue;
                }
            };
            let read = Experiment::parse(&text)
                .and_then(|experiment| experiment.check_layers(&text, LAYERS));
            if let Err(error) = read {
                panic!("{place}: {error}");
            }
        }
    }
    assert!(examples > 5, "{examples}");
}
