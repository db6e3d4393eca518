//! Names that do something in a terminal, a spreadsheet or a document.

use netplumb_model::recording::Recording;
use netplumb_model::span::SpanOf;

use super::{FORMATS, made, plumb};
use crate::common::Place;

/// A window's title by OSC, one by C1, text turned around, a formula.
const ACTIVE: &str = "=1+1\u{1b}]0;title\u{7}\u{9d}0;t\u{9c}\u{202e}x\u{2066}y\u{200f}\u{feff}|z";

fn evil(mut recording: Recording) -> Recording {
    for arm in &mut recording.arms {
        arm.name = format!("{ACTIVE}{}", arm.name);
        arm.knobs.insert(ACTIVE.into(), ACTIVE.into());
    }
    for function in &mut recording.functions {
        function.name = format!("{ACTIVE}{}", function.name);
        function.module = Some(ACTIVE.into());
        function.layer = Some(ACTIVE.into());
    }
    for value in recording.environment.iter_mut().filter(|(key, _)| !key.starts_with("clock")) {
        *value.1 = ACTIVE.into();
    }
    for block in &mut recording.blocks {
        block.ledger.dropped = [(ACTIVE.to_string(), 1)].into();
    }
    for span in &mut recording.spans {
        if let SpanOf::Stage(stage) = &mut span.of {
            stage.name = format!("{ACTIVE}{}", stage.name);
        }
    }
    for text in &mut recording.trace_texts {
        *text = ACTIVE.into();
    }
    for loss in recording.losses.values_mut().flatten() {
        (loss.cause, loss.meaning) = (ACTIVE.into(), ACTIVE.into());
    }
    for scalar in &mut recording.scalars {
        scalar.item.label = Some(ACTIVE.into());
    }
    for quantity in &mut recording.quantities {
        (quantity.unit, quantity.number) = (ACTIVE.into(), Some(ACTIVE.into()));
        quantity.label = Some(ACTIVE.into());
    }
    let named = || ACTIVE.to_string();
    let not_measured = recording.instruments().concat();
    let not_measured = recording.not_measured.entry(not_measured).or_default();
    not_measured.insert(named(), named());
    let over_budget = recording.instruments().concat();
    recording.over_budget.insert(over_budget, vec![named()]);
    recording.not_tried.insert(named(), named());
    let by = recording.instruments().concat();
    let notes = recording.notes_of(0);
    notes.failed.insert(by, named());
    notes.diagnosis = Some(named());
    notes.inert.insert(named(), named());
    notes.facts.insert(named(), named());
    recording.source_files = vec![ACTIVE.into()];
    recording
}

fn check(text: &str, what: &str) {
    for line in text.lines() {
        // The Markdown output inserts one after an @.
        let line = line.replace("@\u{200b}", "@");
        let found = line.chars().find(|c| netplumb_report::is_active(*c));
        assert_eq!(found, None, "{what}: {line:?}");
    }
}

/// Check that no format of a report or a comparison has them as they are, whatever they
/// name.
#[test]
fn nothing_is_active() {
    let place = Place::new();
    for (name, recording) in [("exact", made::exact()), ("timed", made::timed())] {
        let (file, evil_file) = (format!("{name}.plumb"), format!("evil-{name}.plumb"));
        made::save(&place, &file, &recording);
        made::save(&place, &evil_file, &evil(recording));
        for format in FORMATS.iter().chain(&["--perfetto"]) {
            if format.starts_with("--pprof") || format.starts_with("--html") {
                continue;
            }
            let ran = plumb(&place, &format!("report {evil_file} {format}"), name);
            check(&ran.stdout, &format!("{name} {format}"));
            check(&ran.stderr, &format!("{name} {format}"));
        }
        for format in ["", "--csv", "--json", "--markdown"] {
            let ran = plumb(&place, &format!("diff {file} {evil_file} {format}"), name);
            check(&ran.stdout, &format!("diff {name} {format}"));
            let ran = plumb(&place, &format!("diff {evil_file} {format}"), name);
            check(&ran.stdout, &format!("diff of arms {name} {format}"));
        }
        // No cell begins a formula, and numbers are numbers.
        let csv = plumb(&place, &format!("report {evil_file} --csv"), name);
        let mut reader = csv::Reader::from_reader(csv.code(0).stdout.as_bytes());
        let mut numbers = 0;
        for record in reader.records().map(Result::unwrap) {
            for cell in &record {
                let number = cell.parse::<f64>().is_ok();
                numbers += u32::from(number);
                assert!(number || !cell.starts_with(['=', '+', '-', '@']), "{cell:?}");
            }
        }
        assert!(numbers > 0);
    }
}

/// Check the same of errors, about files and experiments of such names.
#[test]
fn nothing_in_errors_is_active() {
    let place = Place::new();
    let name = "a\u{1b}]0;t\u{7}\u{9b}2J\u{202e}.plumb";
    place.write(name, "no recording");
    for command in ["report", "run", "kernel add"] {
        let mut command = place.plumb(command);
        command.arg(name).env("PLUMB_CACHE", place.path("cache"));
        let ran = super::bounded(&mut command, name);
        assert!(!ran.status.success());
        assert!(ran.stderr.contains("a?]0;t"), "{ran:?}");
        check(&ran.stderr, "errors");
        check(&ran.stdout, "errors");
    }
    place.write("x.toml", "name = \"\\u001b]0;t\\u0007\\u202e\"\n[workload]\npackts\u{202e} = 3\n");
    let ran = plumb(&place, "run x.toml", "an experiment");
    assert_eq!(ran.status.code(), Some(2));
    check(&ran.stderr, "an experiment");
}
