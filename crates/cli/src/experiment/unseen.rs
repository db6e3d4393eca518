//! The error of a run without packets.

use netplumb_engine::EngineError;
use netplumb_model::calls::OfCalls;
use netplumb_model::experiment::{Experiment, Kind};
use netplumb_model::layers::APPLICATION;
use netplumb_model::quantity::{Declared, Scalar};
use netplumb_model::recording::{Function, Recording, env};
use netplumb_model::spans;
use netplumb_model::text::counted;
use netplumb_report::printable;

use crate::args::live::{EVENTS, SPANS};

/// What to do on this machine if events did not happen.
const CAUSE_IT: &str = "measure longer with --duration 60s, or cause it meanwhile";

/// Why there was no event where only the command ran.
const CAUSES_NONE: &str = "what was run does not cause it";

/// The message that no packet was seen, and what to do about it.
pub(super) fn nothing_seen(experiment: &Experiment, recording: &Recording) -> String {
    let filter = &experiment.filter;
    let counts = |name: &String| name == EVENTS;
    if experiment.instruments.iter().flatten().any(counts) {
        return "nothing was counted: the run ended before its first window did".into();
    }
    if experiment.instruments.iter().flatten().any(|name| name == SPANS) {
        return no_pair(recording);
    }
    if experiment.workload.kind == Kind::Work {
        let more = match experiment.samples.off_cpu {
            true => "",
            false => "; if it waits all the time, --off-cpu shows for what",
        };
        return format!(
            "no samples: nothing of it ran on a CPU when one was sampled; sample longer with \
             --duration 60s, or more often with --frequency 5000{more}"
        );
    }
    let mut filters: Vec<&str> = Vec::new();
    for (set, name) in [
        (!filter.proto.is_empty(), "--proto"),
        (filter.family.is_some(), "--family"),
        (filter.port.is_some(), "--port"),
        (filter.address.is_some(), "--address"),
        (filter.interface.is_some(), "--interface"),
        (filter.netns.is_some(), "--netns"),
        (filter.pid.is_some(), "--pid"),
        (filter.cgroup.is_some(), "--cgroup"),
    ] {
        if set {
            filters.push(name);
        }
    }
    let what = match filters.as_slice() {
        [] => "no packets were seen".to_string(),
        names => format!("no packets matched {}", names.join(" and "),),
    };
    let take = match experiment.workload.command.is_empty() {
        true => {
            "generate traffic while it measures, as with `-- ping -c 5 ADDRESS`, measure longer \
             with --duration 60s, or use --lab netns, where plumb sends packets"
        }
        false => "the command exited without sending or receiving any",
    };
    format!("{what}; {take}")
}

/// The message that no first event has reached the last one, with the counts of both.
fn no_pair(recording: &Recording) -> String {
    let events = recording.environment.get("spans.events");
    let events: Vec<&str> = events.map_or_else(Vec::new, |names| names.split(" → ").collect());
    let sum = |of: &Declared, label: Option<&str>| {
        let is = |s: &&Scalar| label.is_none_or(|label| s.item.label.as_deref() == Some(label));
        let found = recording.scalars_of(of).filter(is);
        found.map(|scalar| scalar.value).sum::<f64>() as u64
    };
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return "no event was asked for".into();
    };
    let [of_first, of_last] = [first, last].map(|name| sum(&spans::SEEN, Some(*name)));
    let [first, last] = [first, last].map(|name| printable(name, 200));
    let (longer, cause) = match is_of_host(recording) {
        true => ("measure longer with --duration 60s", CAUSE_IT),
        false => (CAUSES_NONE, CAUSES_NONE),
    };
    let begun = sum(&spans::BEGUN, None);
    let times = |count: u64| counted(usize::try_from(count).unwrap_or(usize::MAX), "time");
    let key = recording.environment.get("spans.key");
    let key = key.map_or_else(String::new, |key| printable(key, 80));
    match (of_first, begun, of_last) {
        (0, _, 0) => format!("neither `{first}` nor `{last}` was seen: {cause}"),
        (0, ..) => format!("`{first}` was never seen, but `{last}` {}: {cause}", times(of_last)),
        (_, 0, _) => format!(
            "`{first}` was seen {}, but never caused by what was asked for: others caused it, perhaps \
             a kernel thread; leave out the command, --pid or --cgroup",
            times(of_first)
        ),
        (.., 0) => format!("`{first}` was seen {}, but `{last}` never: {longer}", times(of_first)),
        _ => format!(
            "no pair: `{first}` was seen {}, `{last}` {}, and no two had the same key ({key}); choose \
             what they have in common with --key",
            times(of_first),
            times(of_last)
        ),
    }
}

/// The message that the traced function was not called in any block, and what to do about it.
///
/// # Errors
/// The recording has no experiment that can be read.
pub(super) fn never_called(recording: &Recording) -> anyhow::Result<Option<String>> {
    let Some(of) = OfCalls::in_recording(recording) else {
        return Ok(None);
    };
    if recording.scalars_of(&of.calls).any(|calls| calls.value > 0.0) {
        return Ok(None);
    }
    let experiment = Experiment::of_recording(recording)?;
    let Some(trace) = experiment.and_then(|experiment| experiment.trace) else {
        return Ok(None);
    };
    let (file, function) = trace.place();
    let name = printable(function, 200);
    // If both have the function, the kernel's is meant.
    if let (None, Some(module)) = (file, of_program(recording, function)) {
        let module = printable(module, 200);
        return Ok(Some(format!(
            "`{name}` of the kernel was not called; {module} has a `{name}` of its own: trace it as \
             `{module}:{name}`"
        )));
    }
    Ok(Some(format!(
        "`{name}` was not called: {}",
        match is_of_host(recording) {
            true => CAUSE_IT,
            false => "what was run does not call it; `plumb path` shows which functions it calls",
        }
    )))
}

/// The program or library with a function of this name that was called.
fn of_program<'r>(recording: &'r Recording, name: &str) -> Option<&'r str> {
    let is = |function: &&Function| {
        let without_arguments = function.name.split('(').next();
        function.layer.as_deref() == Some(APPLICATION)
            && [Some(function.name.as_str()), without_arguments].contains(&Some(name))
    };
    let modules = recording.functions.iter().filter(is);
    let mut modules = modules.filter_map(|function| function.module.as_deref());
    // Modules that stand for threads have no file, and can't be selected.
    modules.find(|module| !module.starts_with(['(', '[']))
}

/// Whether the recording is of this machine, with work that was not started by the run.
fn is_of_host(recording: &Recording) -> bool {
    recording.environment.get(env::LAB).is_some_and(|lab| lab == "host")
}

/// Whether a run ended with no packet seen.
pub(super) fn is_nothing_seen(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::NothingSeen { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program's function of a name is found, and no kernel's or thread's.
    #[test]
    fn functions_of_programs() {
        let mut recording = Recording::default();
        for (name, module, layer) in [
            ("show", None, None),
            ("show", Some("(thread)"), Some(APPLICATION)),
            ("show", Some("st"), Some(APPLICATION)),
            ("area(int)", Some("libshape.so"), Some(APPLICATION)),
            ("ext4_show", Some("ext4"), Some("filesystem")),
        ] {
            recording.functions.push(Function {
                name: name.into(),
                module: module.map(Into::into),
                layer: layer.map(Into::into),
                address: 0,
                size_bytes: 0,
                source: None,
            });
        }
        assert_eq!(of_program(&recording, "show"), Some("st"));
        assert_eq!(of_program(&recording, "area"), Some("libshape.so"));
        assert_eq!(of_program(&recording, "ext4_show"), None);
    }
}
