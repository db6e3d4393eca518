//! Traced calls: from a guest's ids to a recording.

use std::collections::BTreeMap;

use netplumb_instruments::exact::{NoFunction, Symbol, TracedCalls};
use netplumb_kernel::layers::LayerRules;
use netplumb_model::experiment::Trace as Spec;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Item, Of};
use netplumb_model::recording::Recording;
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_model::trace::{
    CALL_COST, CALLS, Followed, MATCHED, MAX_STEPS, PLACES, RECURSIVE, Step, TextId, Trace,
    UNFINISHED,
};

use crate::collect::Executed;
use crate::error::EngineError;

/// Functions of which a recording has no traces, since it has as many steps as it holds.
const FULL: &str = "traces beyond the limit of a recording";

/// Add the traced calls of the block that was added last.
pub(crate) fn add(
    recording: &mut Recording,
    executed: &Executed<'_>,
    layers: &LayerRules,
    traced: &TracedCalls,
) {
    let Some(block) = (recording.blocks.len() as u32).checked_sub(1) else {
        return;
    };
    let of = Of::Block(block);
    for (quantity, value) in [
        (&CALLS, traced.calls),
        (&MATCHED, traced.matched),
        (&RECURSIVE, traced.recursive),
        (&UNFINISHED, traced.unfinished),
    ] {
        recording.add(of, quantity, Item::ONLY, value as f64);
    }
    let spread = traced.spread.iter().flatten().copied();
    for (place, value) in PLACES
        .into_iter()
        .zip(std::iter::once(traced.sum).chain(spread))
    {
        recording.add(of, &CALL_COST, Item::label(place), value as f64);
    }
    let quantity = recording.quantity(&INSTRUCTIONS);
    let mut texts = recording.known_texts();
    let mut names: BTreeMap<Symbol, TextId> = BTreeMap::new();
    for symbol in traced.symbols() {
        let name = executed.function(layers, symbol).name;
        names.insert(symbol, recording.trace_text(&mut texts, &name));
    }
    let nameless = recording.trace_text(&mut texts, "");
    let name = |symbol: Symbol| names.get(&symbol).copied().unwrap_or(nameless);
    let mut all: usize = recording.traces.iter().map(|t| t.steps.len()).sum();
    let mut full = 0;
    for call in &traced.kept {
        all += call.steps.len();
        if all > MAX_STEPS {
            full += 1;
            continue;
        }
        let command = call.thread.map_or(nameless, name);
        let steps = call.steps.iter().map(|step| Step {
            parent: step.parent,
            name: name(step.symbol),
            begin: step.begin,
            elapsed: step.elapsed,
            total: step.total,
            own: step.own,
            switches: step.switches,
            context: step.context,
            cpu: 0,
            thread: 0,
            command,
            flags: step.flags,
            arguments: None,
            returned: None,
        });
        recording.traces.push(Trace {
            block: Some(block),
            quantity,
            of: Followed::Call,
            number: call.number,
            steps: steps.collect(),
        });
    }
    for (cause, count, meaning) in [
        (
            "calls below traced calls",
            traced.dropped,
            "beyond the maximum of steps of a call ([trace] steps): they are in the totals of what called them",
        ),
        (
            "traced calls of no rank",
            traced.unranked,
            "more calls than are remembered: they are in the number and sum of calls, but not in their median and 99th percentile",
        ),
        (
            FULL,
            full,
            "not shown; keep fewer with --slowest or --depth",
        ),
    ] {
        if count > 0 {
            recording.add_loss(INSTRUCTIONS.instrument, Loss::new(cause, count, meaning));
        }
    }
}

/// The error that a function is not there.
pub(crate) fn no_function(
    spec: &Spec,
    missing: &NoFunction,
    kernel: &str,
    command: bool,
) -> EngineError {
    let (file, name) = spec.place();
    let place = match (file, command) {
        (Some(file), _) if missing.no_file => {
            return EngineError::NoFunction(format!(
                "the command has no file `{file}`; expected the name or path of its program or of one of its libraries"
            ));
        }
        (Some(file), _) => format!("{file} has no function `{name}`"),
        (None, true) => {
            format!("neither kernel {kernel} nor the command's files have a function `{name}`")
        }
        (None, false) => format!("kernel {kernel} has no function `{name}`"),
    };
    let near = match &missing.near[..] {
        [] => "no name is similar".to_string(),
        names => format!("similar names are {}", names.join(", ")),
    };
    EngineError::NoFunction(format!(
        "{place}; {near}. A function that the compiler put into its callers (inlined) can't be traced: trace one of those"
    ))
}
