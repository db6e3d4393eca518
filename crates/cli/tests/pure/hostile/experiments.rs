//! Experiment files that broke.

use std::fs;
use std::path::Path;

use netplumb_model::experiment::{Experiment, Lab};

use super::{Random, plumb};
use crate::common::Place;

const MUTATIONS: usize = 210;

/// Replacements for words of a file: numbers at their limits, and words of TOML.
const PIECES: [&str; 20] = [
    "-1",
    "0",
    "9223372036854775807",
    "18446744073709551616",
    "1e308",
    "nan",
    "inf",
    "\"\"",
    "[]",
    "{}",
    "[[",
    "]]",
    "=",
    "\"",
    "\n",
    "true",
    "\"\\u0000\"",
    "1970-01-01",
    "'''",
    "\u{202e}",
];

/// The experiments that come with Netplumb.
fn files() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let files = paths.iter().filter(|p| p.extension().is_some_and(|e| e == "toml"));
    files.map(|p| fs::read_to_string(p).unwrap()).collect()
}

fn mutated(text: &str, others: &[String], random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(lines.len());
        match random.below(7) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[random.below(lines.len())].clone()),
            2 => {
                let other: Vec<&str> = others[random.below(others.len())].lines().collect();
                lines.insert(at, other[random.below(other.len())].into());
            }
            3 => {
                let line: Vec<char> = lines[at].chars().collect();
                lines[at] = line[..random.below(line.len() + 1)].iter().collect();
            }
            4 => {
                let piece = PIECES[random.below(PIECES.len())];
                let key = lines[at].split('=').next().unwrap_or_default().to_string();
                lines[at] = format!("{key}= {piece}");
            }
            5 => {
                let mut line: Vec<char> = lines[at].chars().collect();
                let piece = PIECES[random.below(PIECES.len())].chars();
                let place = random.below(line.len() + 1);
                line.splice(place..place, piece);
                lines[at] = line.into_iter().collect();
            }
            _ => lines.truncate(at + 1),
        }
        if lines.is_empty() {
            lines.push(String::new());
        }
    }
    lines.join("\n")
}

/// Check that a broken experiment is refused as one, with its line, and that one that is still
/// valid ends for lack of a kernel to run it with.
#[test]
fn mutated_experiments() {
    let all = files();
    let place = Place::new();
    fs::create_dir(place.path("cache")).unwrap();
    let mut random = Random(2);
    let mut refused = 0;
    for n in 0..MUTATIONS {
        let text = mutated(&all[n % all.len()], &all, &mut random);
        // No panic, whatever the error.
        let experiment = Experiment::parse(&text);
        // Those that run on this machine are only parsed.
        if experiment.as_ref().is_ok_and(|e| e.lab != Lab::Vm) {
            continue;
        }
        place.write("x.toml", &text);
        let what = format!("mutation {n}:\n{text}");
        let ran = plumb(&place, "--cache cache run x.toml", &what);
        let code = ran.status.code();
        assert_ne!(code, Some(0), "{what}: there is no kernel");
        if experiment.is_err() {
            refused += 1;
            assert_eq!(code, Some(2), "{what}: {ran:#?}");
            assert!(ran.stderr.contains("x.toml"), "{what}: {ran:#?}");
        }
        assert_eq!(place.files(), ["cache", "x.toml"], "{what}");
    }
    assert!(refused > MUTATIONS / 4, "only {refused} were refused");
    place.nothing_runs();
}
