//! The footer under costs that vary: their meaning, their measurement, and their
//! error.

use std::collections::BTreeMap;

use netplumb_model::calls::{CALL_BIAS, CALL_PROBE, TIMED};
use netplumb_model::class::Direction;
use netplumb_model::quantity::{Calls, Quantity};
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::PERIOD;

use super::blind;
use super::blocks::{blocks, intervals};
use super::common::{CUT_SHORT, kernel, ledger, lost};
use super::devices::devices;
use super::{layers, profiled};
use crate::acting;
use crate::analysis::{ClassView, class};
use crate::footer::Note;
use crate::number::{printable, thousands};
use crate::scalars::of_run;
use crate::times::ns;

/// Notes under a result. `classes` are the shown ones.
pub(super) fn footer(
    recording: &Recording,
    quantity: &Quantity,
    classes: &[ClassView<'_>],
) -> Vec<Note> {
    let mut notes = vec![Note::new("clock", clock(recording, quantity)), kernel(recording)];
    notes.extend(devices(recording));
    if quantity.calls == Calls::Samples {
        notes.push(Note::new("samples", samples(recording)));
        let blind = blind::charged(recording);
        notes.extend(blind.map(|text| Note::new("irqs off", TIMER.to_string() + &text)));
        notes.extend(profiled::cost(recording).map(|text| Note::new("cost", text)));
    }
    if recording.blocks.iter().any(|b| b.ledger.offered > 0) {
        notes.push(ledger(recording, classes.iter().map(|class| class.arm)));
    }
    if !classes.is_empty() {
        notes.push(Note::new("blocks", blocks(recording, classes)));
        notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
        notes.push(layers(classes, "cost"));
    }
    notes.extend(apart(classes).map(|text| Note::new("apart", text)));
    notes.extend(acting::footer(recording));
    let none = match quantity.calls {
        _ if quantity.is(&TIMED.step) => {
            "none: every entry has its return, and there was room for all"
        }
        Calls::Times => "none: every time has a stack, and there was room for all",
        Calls::Events => "none: every event has a stack, and there was room for all",
        _ => "none: every sample has a stack, and there was room for all",
    };
    notes.extend(lost(recording, none, CUT_SHORT));
    notes
}

/// The weakness of a timer.
const TIMER: &str = "a timer samples code that runs with interrupts off where they are on again: ";

fn clock(recording: &Recording, quantity: &Quantity) -> String {
    if quantity.is(&TIMED.step) {
        let [each, bias] = [&CALL_PROBE, &CALL_BIAS].map(|of| of_run(recording, of).unwrap_or(0.0));
        let cost = match each > 0.0 {
            true => format!(
                "less {} ns for each call below, shown or not, which tracing costs, and {} ns of the call itself",
                thousands(each.round() as u64),
                thousands(bias.round() as u64)
            ),
            false => "with what tracing costs, which could not be measured".into(),
        };
        return format!(
            "nanoseconds of calls by function_graph, without interrupts that came in between, and other \
             tasks; {cost}; elapsed is as read"
        );
    }
    if quantity.calls == Calls::Entries {
        let (name, unit) = (printable(&quantity.name, 60), printable(&quantity.unit, 40));
        return format!("{name}, in {unit}");
    }
    if quantity.calls == Calls::Times {
        return "nanoseconds from the first event to the last, by the stack at the first; figures without a \
                unit are nanoseconds"
            .into();
    }
    if quantity.calls == Calls::Events {
        return "events, counted by the stack that each happened on".into();
    }
    let every = match of_run(recording, &PERIOD) {
        Some(period) => format!(", every {}", with_unit(period)),
        None => String::new(),
    };
    format!(
        "{} of the running kernel, by samples of what each CPU did{every}; a function that \
         no sample found is in no table; figures without a unit are nanoseconds",
        printable(&quantity.name, 60)
    )
}

fn with_unit(value: f64) -> String {
    match ns(value) {
        long if long.ends_with('s') => long,
        short => format!("{short} ns"),
    }
}

/// The number of samples, and their event.
fn samples(recording: &Recording) -> String {
    let samples: u64 = recording.costs.iter().map(|c| c.calls).sum();
    let sum = |of: fn(&Block) -> u64| -> u64 { recording.blocks.iter().map(of).sum() };
    let (kernel, user) = (sum(Block::kernel), sum(Block::user));
    format!(
        "{} with a stack; {} of the kernel's time in all, {} of programs'",
        thousands(samples),
        with_unit(kernel as f64),
        with_unit(user as f64)
    )
}

/// Work for no packet in the windows.
pub(super) fn apart(classes: &[ClassView<'_>]) -> Option<String> {
    let mut arms: Vec<usize> = classes.iter().map(|c| c.arm).collect();
    arms.sort_unstable();
    arms.dedup();
    let recording = classes.first()?.recording;
    let parts: Vec<String> = (arms.into_iter())
        .filter_map(|arm| {
            let other = class(recording, arm, Direction::Other);
            let sums: BTreeMap<String, u64> =
                (other.contexts.iter()).map(|(context, sum)| (context.to_string(), *sum)).collect();
            let of = sums.iter().map(|(c, sum)| format!("{c} {}", other.cost_text(*sum)));
            let of: Vec<String> = of.collect();
            let per = other.per.word();
            (!of.is_empty()).then(|| {
                let arm = printable(&recording.arms[arm].name, 60);
                format!("{arm} {} per {per}", of.join(", "))
            })
        })
        .collect();
    Some(match parts.is_empty() {
        true => "nothing else ran in the windows".into(),
        false => format!(
            "in the windows, but for no packet (timers, idling, other tasks): {}",
            parts.join("; ")
        ),
    })
}
