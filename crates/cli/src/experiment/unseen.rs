//! The error of a run without packets.

use netplumb_engine::EngineError;
use netplumb_model::experiment::{Experiment, Kind};

/// The message that no packet was seen, and what to do about it.
pub(super) fn nothing_seen(experiment: &Experiment) -> String {
    let filter = &experiment.filter;
    if experiment.workload.kind == Kind::Work {
        let why = "nothing of it ran on a CPU when one was sampled; sample longer with --duration \
                   60s, or more often with --frequency 5000";
        return format!("no samples: {why}");
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

/// Whether a run ended with no packet seen.
pub(super) fn is_nothing_seen(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::NothingSeen { .. }))
}
