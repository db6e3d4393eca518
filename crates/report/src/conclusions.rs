//! The conclusion of an experiment, in a sentence: made from its claims' findings, never
//! from words that were there before the data.

use netplumb_model::class::Proto;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::claims::{self, Judged};
use crate::number::printable;
use crate::scan::{self, Scan};
use crate::text::{continued, prose, wrapped};

/// Longer than any sentence worth reading.
const MAX_CHARACTERS: usize = 4_000;

/// The experiment's own sentence, with `{name}` replaced by that claim's finding; without one, all findings.
/// None if nothing was claimed, or the sentence is empty.
pub fn conclusion(experiment: &Experiment, judged: &[Judged]) -> Option<String> {
    let is_empty = |text: &String| text.trim().is_empty();
    if judged.is_empty() || experiment.conclusion.as_ref().is_some_and(is_empty) {
        return None;
    }
    let text = match &experiment.conclusion {
        Some(text) => filled(text.trim(), judged),
        None => {
            let found: Vec<&str> = judged.iter().map(|j| j.finding.as_str()).collect();
            format!("{}.", found.join("; "))
        }
    };
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentences: Vec<String> = text.split(". ").map(capital).collect();
    Some(printable(&sentences.join(". "), MAX_CHARACTERS))
}

fn filled(text: &str, judged: &[Judged]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            continue;
        };
        let found = judged.iter().find(|j| j.name.as_deref() == Some(name));
        // The file was checked: a name without a claim is a file of another version.
        out.push_str(found.map_or("(not measured)", |j| &j.finding));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A sentence's beginning. Protocols are written as in classes, and functions as in
/// the kernel.
fn capital(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.parse::<Proto>().is_ok() || first.contains('_') {
        return text.to_string();
    }
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// The same for a page: a scan's findings, and the conclusion.
pub fn conclusions(
    recording: &Recording,
    views: &[ClassView<'_>],
    experiment: Option<&Experiment>,
) -> Vec<String> {
    let scanned = scan::scan(recording, views).map(|scan| scan::sentence(&scan));
    // Without its own sentence it would repeat the list of claims.
    let concluded = experiment
        .filter(|e| e.conclusion.is_some())
        .and_then(|e| conclusion(e, &claims::judge_all(e, recording, views)));
    let all = scanned.into_iter().chain(concluded);
    all.map(|text| printable(&text, MAX_CHARACTERS)).collect()
}

/// A scan's findings and the conclusion, for the end of a report.
pub fn render(
    experiment: &Experiment,
    judged: &[Judged],
    scan: Option<&Scan>,
    columns: usize,
) -> String {
    let scanned = scan.map(|scan| printable(&scan::sentence(scan), MAX_CHARACTERS));
    let sentences: Vec<String> =
        scanned.into_iter().chain(conclusion(experiment, judged)).collect();
    if sentences.is_empty() {
        return String::new();
    }
    in_short(&sentences.join(" "), columns)
}

/// A conclusion as it ends a report.
pub fn in_short(text: &str, columns: usize) -> String {
    format!("\n{}\n", wrapped(&format!("In short: {text}"), columns))
}

/// The claims of an experiment as Markdown, with its conclusion; nothing where it has none.
pub(crate) fn markdown(experiment: Option<&Experiment>, judged: &[Judged], out: &mut String) {
    if judged.is_empty() {
        return;
    }
    out.push_str("## Claims\n\n");
    for one in judged {
        out.push_str(&format!(
            "- **{}**: {}  \n  {}\n",
            one.verdict.as_str(),
            prose(&one.says, 400),
            prose(&one.because, 4_000)
        ));
    }
    out.push('\n');
    if let Some(text) = experiment.and_then(|e| conclusion(e, judged)) {
        out.push_str(&format!("{}\n\n", prose(&text, 4_000)));
    }
}

/// Facts of the arms' guests that differ from the first one's.
pub fn knobs(recording: &Recording, columns: usize) -> String {
    let mut out = String::new();
    let arms = (0..).zip(&recording.arms);
    for (number, arm) in arms.filter(|(_, arm)| arm.repeats().is_none()) {
        let notes = recording.notes.get(&number);
        let changed: Vec<String> = notes
            .iter()
            .flat_map(|notes| &notes.facts)
            .filter_map(|(key, value)| {
                // The command line and the version repeat the arm's knobs.
                let name = key.strip_prefix("vulnerability.")?;
                Some(format!("{}: {}", printable(name, 40), printable(value, 120)))
            })
            .collect();
        if !changed.is_empty() {
            let line = format!("  - {}: {}", printable(&arm.name, 60), changed.join("; "));
            out.push_str(&continued(&line, 4, columns));
            out.push('\n');
        }
    }
    if out.is_empty() {
        return out;
    }
    format!("Notes of the arms' guests\n{out}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Answer;

    fn judged(name: &str, finding: &str) -> Judged {
        Judged {
            says: String::new(),
            verdict: Answer::Holds,
            because: String::new(),
            name: Some(name.into()),
            finding: finding.into(),
        }
    }

    fn experiment(conclusion: Option<&str>) -> Experiment {
        let mut experiment = Experiment::parse("name = \"x\"\n").unwrap();
        experiment.conclusion = conclusion.map(String::from);
        experiment
    }

    /// Check that findings take the place of names, and that braces that name nothing
    /// do no harm.
    #[test]
    fn findings_in_a_sentence() {
        let judged = [judged("tx", "each rule costs 14"), judged("rx", "no change")];
        let of = |text| conclusion(&experiment(Some(text)), &judged).unwrap();
        assert_eq!(
            of("sending: {tx}.\nReceiving: {rx}."),
            "Sending: each rule costs 14. Receiving: no change."
        );
        assert_eq!(of("{gone} {"), "(not measured) {");
        assert_eq!(
            conclusion(&experiment(None), &judged).unwrap(),
            "Each rule costs 14; no change."
        );
        assert_eq!(conclusion(&experiment(None), &[]), None);
    }

    /// Check that a guest's text in a finding cannot move the cursor.
    #[test]
    fn findings_are_tamed() {
        let judged = [judged("x", "a\u{1b}[2Jb")];
        assert_eq!(conclusion(&experiment(None), &judged).unwrap(), "A?[2Jb.");
    }
}
