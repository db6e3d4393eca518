//! Claims about every traced call: its arguments, what it returned, what it cost.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netplumb_model::calls::OfCalls;
use netplumb_model::condition::Condition;
use netplumb_model::experiment::Claim;
use netplumb_model::quantity::Subject;
use netplumb_model::trace::{Step, argument};

use super::{Outcome, find, holds, list, missing};
use crate::analysis::ClassView;
use crate::number::{counted, printable, thousands};
use crate::seeds;

const NAME_CHARACTERS: usize = 60;
/// The most values of an argument that are named.
const VALUES: usize = 4;

/// The outcome of a claim about calls.
pub(super) fn outcome(claim: &Claim, classes: &[ClassView<'_>]) -> Outcome {
    let Claim::Calls { arms, have, at_least, .. } = claim else {
        return Outcome::not_measured("this claim is not about calls".into());
    };
    let mut all = true;
    let mut findings = Vec::new();
    for class in claim.classes() {
        for arm in arms {
            let Some(view) = find(classes, *class, Some(arm)) else {
                return Outcome::not_measured(missing(*class, Some(arm)));
            };
            match of_arm(view, have, at_least.unwrap_or(1.0)) {
                Ok((holds, text)) => {
                    all &= holds;
                    findings.push(text);
                }
                Err(why) => return Outcome::not_measured(why),
            }
        }
    }
    let findings = findings.join("; ");
    Outcome { verdict: holds(all), finding: findings.clone(), because: findings }
}

/// Whether it holds for all calls of an arm, and how they are.
fn of_arm(view: &ClassView<'_>, have: &Condition, at_least: f64) -> Result<(bool, String), String> {
    let recording = view.recording;
    let arm = printable(seeds::name(view.arm()), NAME_CHARACTERS);
    let traces = recording.call_traces();
    let traces = traces.filter(|t| t.block.is_some_and(|block| view.blocks.contains(&block)));
    let calls: Vec<&Step> = traces.filter_map(|trace| trace.steps.first()).collect();
    let of = OfCalls::in_recording(recording);
    let counts = of.into_iter().flat_map(|of| recording.scalars_of(&of.calls));
    let counts =
        counts.filter(|s| matches!(s.of, Subject::Block(block) if view.blocks.contains(&block)));
    let made = counts.map(|scalar| scalar.value as usize).sum::<usize>();
    if made == 0 {
        return Err(format!("no call was traced with {arm}"));
    }
    if calls.len() < made {
        return Err(format!(
            "of {} with {arm} only {} kept; raise `slowest` in [trace]",
            counted(made, "call"),
            match calls.len() {
                1 => "1 is".into(),
                n => format!("{} are", thousands(n as u64)),
            }
        ));
    }
    for of in have.compared() {
        let is_unknown = |c: &&&Step| c.value(recording, of).is_none();
        let unknown = calls.iter().filter(is_unknown).count();
        if unknown > 0 {
            let first = calls.iter().find(is_unknown);
            let word = first.and_then(|step| step.word(recording, of));
            let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
            let reason = match word.filter(is_name) {
                Some(word) => format!(
                    "`{of}` is a name ({}), which is no number, in",
                    printable(word, NAME_CHARACTERS)
                ),
                None => format!("`{of}` is not known of"),
            };
            return Err(format!(
                "{reason} {} of {} with {arm}",
                thousands(unknown as u64),
                counted(calls.len(), "call"),
            ));
        }
    }
    let is_so = |step: &&&Step| have.holds(|of| step.value(recording, of));
    let so = calls.iter().filter(is_so).count();
    let name = (calls.first()).map_or("", |step| recording.text_of_trace(step.name));
    let calls_of =
        format!("{} of {}", counted(calls.len(), "call"), printable(name, NAME_CHARACTERS));
    Ok(match so == calls.len() {
        true => (true, format!("{arm}: all {calls_of} have {have}")),
        false => {
            let instead = instead(view, &calls, have);
            let holds = so as f64 >= at_least * calls.len() as f64;
            let so = thousands(so as u64);
            let text = format!("{arm}: {so} of {calls_of} have {have}{instead}");
            (holds, text)
        }
    })
}

/// The actual values of the compared arguments.
fn instead(view: &ClassView<'_>, calls: &[&Step], have: &Condition) -> String {
    let mut out = String::new();
    for name in have.values() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for step in calls {
            let text = |id: Option<u32>| id.map_or("?", |id| view.recording.text_of_trace(id));
            let value = match name {
                Some(name) => argument(text(step.arguments), name).unwrap_or("?"),
                None => text(step.returned),
            };
            *counts.entry(printable(value, NAME_CHARACTERS)).or_default() += 1;
        }
        let mut most: Vec<(String, u64)> = counts.into_iter().collect();
        most.sort_by_key(|(value, count)| (Reverse(*count), value.clone()));
        let others: u64 = most.iter().skip(VALUES).map(|(_, count)| count).sum();
        let shown = most.iter().take(VALUES);
        let shown = shown.map(|(value, count)| format!("{value} in {}", thousands(*count)));
        let others = (others > 0).then(|| format!("others in {}", thousands(others)));
        let name = name.unwrap_or("retval");
        out.push_str(&format!(" ({name} is {})", list(shown.chain(others))));
    }
    out
}
